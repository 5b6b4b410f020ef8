//! What points to nodes: the records of inner nodes, and roots.

use super::{LEVEL_MAX, NODE_SIZE, Page, is_temporary};
use crate::kind::BlockKind;
use crate::pointer::{Identity, Pointer, RawPointer};
use crate::types::Ino;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The smallest fragment that a volume may have; bounds the fragments of a node.
const FRAGMENT_MIN: usize = 512;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawChild {
    pointer: RawPointer,
    aggregate: [U64; 3],
}

/// The value of an entry of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Where the child is.
    pub pointer: Pointer,
    /// What the tree's owner wants to know of the child's subtree without reading it. Not kept up to date while the
    /// child is only in memory.
    pub aggregate: [u64; 3],
}

impl Child {
    /// Bytes on disk.
    pub const SIZE: usize = size_of::<RawChild>();

    /// The record of a child that is still only in memory.
    pub const fn unsettled(pointer: Pointer) -> Child {
        Child {
            pointer,
            aggregate: [0; 3],
        }
    }

    /// The form on disk.
    pub fn encode(&self) -> [u8; Child::SIZE] {
        let raw = RawChild {
            pointer: self.pointer.encode(),
            aggregate: self.aggregate.map(U64::new),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads the form on disk; `None` when the bytes are no record.
    pub fn decode(bytes: &[u8]) -> Option<Child> {
        let raw = RawChild::ref_from_bytes(bytes).ok()?;
        Some(Child {
            pointer: Pointer::decode(&raw.pointer),
            aggregate: raw.aggregate.map(|word| word.get()),
        })
    }
}

impl Page {
    /// The child of entry `index` of an inner node.
    pub fn child(&self, index: usize) -> Option<Child> {
        Child::decode(self.value(index)?)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTreeRoot {
    pointer: RawPointer,
    low: U64,
    level: u8,
    reserved0: [u8; 7],
    reserved1: U64,
}

/// A whole tree: where its root node is and who that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeRoot {
    /// The root node; [`Pointer::NONE`] for the empty tree.
    pub pointer: Pointer,
    /// The root node's lower bound.
    pub low: u64,
    /// The root node's level.
    pub level: u8,
}

impl TreeRoot {
    /// Bytes on disk.
    pub const SIZE: usize = size_of::<RawTreeRoot>();
    /// The empty tree.
    pub const EMPTY: TreeRoot = TreeRoot {
        pointer: Pointer::NONE,
        low: 0,
        level: 0,
    };

    /// Whether the tree has no node.
    pub const fn is_empty(&self) -> bool {
        !self.pointer.is_some()
    }

    /// Who the root node is in a tree of this kind and owner.
    pub const fn identity(&self, kind: BlockKind, ino: Ino, generation: u32) -> Identity {
        Identity {
            kind,
            level: self.level,
            ino,
            generation,
            logical: self.low,
        }
    }

    /// The form on disk.
    pub fn encode(&self) -> [u8; TreeRoot::SIZE] {
        let raw = RawTreeRoot {
            pointer: self.pointer.encode(),
            low: U64::new(self.low),
            level: self.level,
            reserved0: [0; 7],
            reserved1: U64::new(0),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads the form on disk; `None` when the bytes are no root.
    pub fn decode(bytes: &[u8]) -> Option<TreeRoot> {
        let raw = RawTreeRoot::ref_from_bytes(bytes).ok()?;
        let root = TreeRoot {
            pointer: Pointer::decode(&raw.pointer),
            low: raw.low.get(),
            level: raw.level,
        };
        let plausible = if root.is_empty() {
            root == TreeRoot::EMPTY
        } else {
            points_to_node(&root.pointer) && root.level <= LEVEL_MAX
        };
        let reserved = raw.reserved0 != [0; 7] || raw.reserved1.get() != 0;
        (plausible && !reserved).then_some(root)
    }
}

/// Whether a pointer read from a device can lead to a node: what it says is read must be one page, or two copies of one.
pub(super) fn points_to_node(pointer: &Pointer) -> bool {
    pointer.is_some()
        && !is_temporary(pointer.addr)
        && pointer.stored as usize == NODE_SIZE
        && (1..=2 * NODE_SIZE / FRAGMENT_MIN).contains(&(pointer.frags as usize))
}
