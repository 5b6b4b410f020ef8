//! Checks of pages that come from a device, done once before anything looks into them.

use super::child::{Child, points_to_node};
use super::{
    CAPACITY, LEVEL_MAX, MAGIC, NODE_SIZE, Page, RawNode, SLOT_SIZE, SLOTS, VALUE_MAX, VERSION,
};
use crate::pointer::Identity;
use zerocopy::FromBytes;

/// Why bytes are not the node that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum NodeError {
    /// Not the size of a node.
    #[error("node of {found} bytes")]
    Size { found: usize },
    /// Wrong magic number.
    #[error("not a node: magic {found:#010x}")]
    Magic { found: u32 },
    /// A layout of another version.
    #[error("node of version {found}")]
    Version { found: u16 },
    /// A node of another kind of tree.
    #[error("node of kind {found} instead of {expected}")]
    Kind { found: u8, expected: u8 },
    /// A node of another level, or one too high for any tree.
    #[error("node of level {found} instead of {expected}")]
    Level { found: u8, expected: u8 },
    /// A node of another owner.
    #[error("node of inode {found} instead of {expected}")]
    Ino { found: u64, expected: u64 },
    /// A node of another life of its owner.
    #[error("node of generation {found} instead of {expected}")]
    Generation { found: u32, expected: u32 },
    /// A node with another lower bound.
    #[error("node from key {found} on instead of {expected}")]
    Low { found: u64, expected: u64 },
    /// A reserved field that is not zero.
    #[error("reserved field of a node is not zero")]
    Reserved,
    /// A node without entries.
    #[error("empty node")]
    Empty,
    /// More slots than fit, or a heap that starts among them or behind the page.
    #[error("node with {count} slots and its heap from {heap_start} on")]
    Heap { count: u16, heap_start: u16 },
    /// A value outside of the heap, or too long.
    #[error("value of entry {index} at {offset}, {len} bytes")]
    Value { index: usize, offset: u16, len: u16 },
    /// Two values that share bytes.
    #[error("value of entry {index} overlaps another")]
    Overlap { index: usize },
    /// A heap that is not exactly its values and garbage.
    #[error("heap of {heap} bytes holds {live} bytes of values and {garbage} of garbage")]
    Garbage {
        heap: usize,
        live: usize,
        garbage: usize,
    },
    /// A key below the node's lower bound or not above its predecessor.
    #[error("key of entry {index} out of order")]
    Order { index: usize },
    /// The record of a child that cannot be one.
    #[error("record of child {index} is not valid")]
    Child { index: usize },
}

impl Page {
    /// Takes over bytes from a device, after verifying them.
    ///
    /// # Errors
    /// [`NodeError`], as from [`Page::verify`].
    pub fn from_bytes(bytes: &[u8], identity: &Identity) -> Result<Page, NodeError> {
        Page::verify(bytes, identity)?;
        let raw =
            RawNode::read_from_bytes(bytes).map_err(|_| NodeError::Size { found: bytes.len() })?;
        Ok(Page(Box::new(raw)))
    }

    /// Checks that the bytes are the node `identity`, and everything that accessors rely on.
    ///
    /// # Errors
    /// [`NodeError`], naming the first thing that is wrong.
    pub fn verify(bytes: &[u8], identity: &Identity) -> Result<(), NodeError> {
        let node =
            RawNode::ref_from_bytes(bytes).map_err(|_| NodeError::Size { found: bytes.len() })?;
        node.verify_identity(identity)?;
        node.verify_heap()?;
        node.verify_keys()?;
        node.verify_children(bytes)
    }
}

impl RawNode {
    fn verify_identity(&self, identity: &Identity) -> Result<(), NodeError> {
        let header = &self.header;
        if header.magic.get() != MAGIC {
            return Err(NodeError::Magic {
                found: header.magic.get(),
            });
        }
        if header.version.get() != VERSION {
            return Err(NodeError::Version {
                found: header.version.get(),
            });
        }
        if header.kind != identity.kind as u8 {
            return Err(NodeError::Kind {
                found: header.kind,
                expected: identity.kind as u8,
            });
        }
        if header.level != identity.level || header.level > LEVEL_MAX {
            return Err(NodeError::Level {
                found: header.level,
                expected: identity.level,
            });
        }
        if header.ino.get() != identity.ino.0 {
            return Err(NodeError::Ino {
                found: header.ino.get(),
                expected: identity.ino.0,
            });
        }
        if header.generation.get() != identity.generation {
            let (found, expected) = (header.generation.get(), identity.generation);
            return Err(NodeError::Generation { found, expected });
        }
        if header.low.get() != identity.logical {
            return Err(NodeError::Low {
                found: header.low.get(),
                expected: identity.logical,
            });
        }
        let reserved = header.reserved0.get() != 0
            || header.reserved1.get() != 0
            || header.reserved2 != [0; 24];
        if reserved {
            Err(NodeError::Reserved)
        } else {
            Ok(())
        }
    }

    fn verify_heap(&self) -> Result<(), NodeError> {
        let (count, heap_start) = (self.header.count.get(), self.header.heap_start.get());
        let slots_end = NODE_SIZE - CAPACITY + usize::from(count) * SLOT_SIZE;
        if usize::from(count) > SLOTS || !(slots_end..=NODE_SIZE).contains(&usize::from(heap_start))
        {
            return Err(NodeError::Heap { count, heap_start });
        }
        if count == 0 {
            return Err(NodeError::Empty);
        }
        let mut taken = Bytes([0; NODE_SIZE / 64]);
        let mut live = 0;
        for (index, slot) in self.slots[..usize::from(count)].iter().enumerate() {
            let (offset, len, range) = (slot.offset.get(), slot.len.get(), slot.range());
            let placed = if len == 0 {
                range.start == NODE_SIZE
            } else {
                offset >= heap_start && range.end <= NODE_SIZE && range.len() <= VALUE_MAX
            };
            if !placed {
                return Err(NodeError::Value { index, offset, len });
            }
            live += range.len();
            if !taken.take(range) {
                return Err(NodeError::Overlap { index });
            }
        }
        let heap = NODE_SIZE - usize::from(heap_start);
        let garbage = usize::from(self.header.garbage.get());
        if live + garbage != heap {
            return Err(NodeError::Garbage {
                heap,
                live,
                garbage,
            });
        }
        Ok(())
    }

    fn verify_keys(&self) -> Result<(), NodeError> {
        let mut at_least = Some(self.header.low.get());
        for (index, slot) in self.slots[..usize::from(self.header.count.get())]
            .iter()
            .enumerate()
        {
            let key = slot.key.get();
            if at_least.is_none_or(|least| key < least) {
                return Err(NodeError::Order { index });
            }
            at_least = key.checked_add(1);
        }
        Ok(())
    }

    fn verify_children(&self, bytes: &[u8]) -> Result<(), NodeError> {
        if self.header.level == 0 {
            return Ok(());
        }
        for (index, slot) in self.slots[..usize::from(self.header.count.get())]
            .iter()
            .enumerate()
        {
            let child = bytes.get(slot.range()).and_then(Child::decode);
            if !child.is_some_and(|child| points_to_node(&child.pointer)) {
                return Err(NodeError::Child { index });
            }
        }
        Ok(())
    }
}

/// A set of the page's bytes.
struct Bytes([u64; NODE_SIZE / 64]);

impl Bytes {
    /// Adds a range inside the page; false when one of its bytes was there.
    fn take(&mut self, range: std::ops::Range<usize>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let bits = (64 - at % 64).min(range.end - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            let word = &mut self.0[at / 64];
            if *word & mask != 0 {
                return false;
            }
            *word |= mask;
            at += bits;
        }
        true
    }
}
