//! The node of every tree: a slotted page of 4 KiB.
//!
//! ```text
//! 0          64            64 + 12 * count        heap_start                4096
//! | header   | slots, by key -->  | free, zero    | heap of values (and garbage) |
//! ```
//!
//! | offset | bytes | header field |
//! |---|---|---|
//! | 0 | 4 | magic, "LNOD" |
//! | 4 | 2 | version, 1 |
//! | 6 | 1 | kind, [`BlockKind`] |
//! | 7 | 1 | level, leaves are 0 |
//! | 8 | 2 | count of slots |
//! | 10 | 2 | heap_start, from the page's start |
//! | 12 | 2 | garbage: dead bytes in the heap |
//! | 14 | 2 | reserved, zero |
//! | 16 | 8 | ino, the owner |
//! | 24 | 4 | generation of the owner |
//! | 28 | 4 | reserved, zero |
//! | 32 | 8 | low: no key of the node is lower |
//! | 40 | 24 | reserved, zero |
//!
//! A slot is key (8), offset of the value from the page's start (2), its length (2); keys strictly increase. A value
//! of length 0 has offset 4096. In an inner node the key is the low of a child, the value a [`Child`].
//!
//! kind, level, ino, generation and low are the node's [`Identity`]: they seed its checksum, and they stand in the
//! page so that a dump explains itself. Dead bytes are zero, so no old value leaks, and the same operations on a
//! page always give the same bytes.
//!
//! [`Page::from_bytes`] verifies once what came from a device; everything else relies on that.

use crate::kind::BlockKind;
use crate::pointer::Identity;
use crate::types::{FragAddr, Ino};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

mod child;
mod dump;
mod split;
#[cfg(test)]
mod tests;
mod verify;

pub use child::{Child, TreeRoot};
pub use verify::NodeError;

/// Bytes of a node.
pub const NODE_SIZE: usize = 4096;
/// First bytes of a node.
pub const MAGIC: u32 = u32::from_le_bytes(*b"LNOD");
/// Version of the layout.
pub const VERSION: u16 = 1;
/// Bytes of a slot.
pub const SLOT_SIZE: usize = size_of::<RawSlot>();
/// Bytes that slots and values share.
pub const CAPACITY: usize = NODE_SIZE - size_of::<RawHeader>();
/// The longest value. A split always finds room for one more of them.
pub const VALUE_MAX: usize = 1400;
/// The highest level of a node. More than a volume can fill; bounds every descent.
pub const LEVEL_MAX: u8 = 30;

const SLOTS: usize = CAPACITY / SLOT_SIZE;

/// Bit of an address that says: not on a device yet, only in memory. Never valid on disk.
const TEMPORARY: u64 = 1 << 63;

/// The `counter`-th temporary address, for a node that is still only in memory.
pub const fn temporary(counter: u64) -> FragAddr {
    FragAddr(TEMPORARY | counter)
}

/// Whether `addr` stands for a node that is still only in memory.
pub const fn is_temporary(addr: FragAddr) -> bool {
    addr.0 & TEMPORARY != 0
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    kind: u8,
    level: u8,
    count: U16,
    heap_start: U16,
    garbage: U16,
    reserved0: U16,
    ino: U64,
    generation: U32,
    reserved1: U32,
    low: U64,
    reserved2: [u8; 24],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlot {
    key: U64,
    offset: U16,
    len: U16,
}

/// The page, seen as header and slots; the heap is the tail of the slots' array.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawNode {
    header: RawHeader,
    slots: [RawSlot; SLOTS],
}

const _: () = assert!(size_of::<RawHeader>() == 64);
const _: () = assert!(size_of::<RawNode>() == NODE_SIZE);
// The two halves of the best cut of a full page and one more entry differ by at most the longest entry.
const _: () = assert!((CAPACITY + 2 * (VALUE_MAX + SLOT_SIZE)) / 2 <= CAPACITY);

/// The page has no room for the entry; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is full")]
pub struct Full;

/// A node in memory, in its form on disk.
#[derive(Clone)]
pub struct Page(Box<RawNode>);

impl Page {
    /// An empty node.
    pub fn new(identity: &Identity) -> Page {
        let mut page = Page(Box::new(RawNode::new_zeroed()));
        page.0.header = RawHeader {
            magic: U32::new(MAGIC),
            version: U16::new(VERSION),
            kind: identity.kind as u8,
            level: identity.level,
            count: U16::new(0),
            heap_start: U16::new(NODE_SIZE as u16),
            garbage: U16::new(0),
            reserved0: U16::new(0),
            ino: U64::new(identity.ino.0),
            generation: U32::new(identity.generation),
            reserved1: U32::new(0),
            low: U64::new(identity.logical),
            reserved2: [0; 24],
        };
        page
    }

    /// The bytes on disk.
    pub fn as_bytes(&self) -> &[u8; NODE_SIZE] {
        zerocopy::transmute_ref!(&*self.0)
    }

    /// Who the node is; `None` when its kind is no kind, which a verified page rules out.
    pub fn identity(&self) -> Option<Identity> {
        let header = &self.0.header;
        Some(Identity {
            kind: BlockKind::from_u8(header.kind)?,
            level: header.level,
            ino: Ino(header.ino.get()),
            generation: header.generation.get(),
            logical: header.low.get(),
        })
    }

    /// Level in the tree; leaves are 0.
    pub fn level(&self) -> u8 {
        self.0.header.level
    }

    /// The node's lower bound.
    pub fn low(&self) -> u64 {
        self.0.header.low.get()
    }

    /// Lowers the node's bound. It is part of the identity, so only a node that is not on disk may change it.
    pub fn set_low(&mut self, low: u64) {
        self.0.header.low = U64::new(low);
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        usize::from(self.0.header.count.get()).min(SLOTS)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The key of entry `index`.
    pub fn key(&self, index: usize) -> Option<u64> {
        self.slots().get(index).map(|slot| slot.key.get())
    }

    /// The highest key.
    pub fn last_key(&self) -> Option<u64> {
        self.slots().last().map(|slot| slot.key.get())
    }

    /// The value of entry `index`.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        self.as_bytes().get(self.slots().get(index)?.range())
    }

    /// The value of entry `index`, to be changed without changing its length.
    pub fn value_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        let range = self.slots().get(index)?.range();
        self.0.as_mut_bytes().get_mut(range)
    }

    /// Entry `index`.
    pub fn entry(&self, index: usize) -> Option<(u64, &[u8])> {
        Some((self.key(index)?, self.value(index)?))
    }

    /// The entries by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &[u8])> {
        (0..self.count()).filter_map(|index| self.entry(index))
    }

    /// The index of `key`, or the index that it would get.
    ///
    /// # Errors
    /// The index to insert at, when the key is not there.
    pub fn find(&self, key: u64) -> Result<usize, usize> {
        self.slots()
            .binary_search_by(|slot| slot.key.get().cmp(&key))
    }

    /// The index of the greatest key that is not above `key`.
    pub fn floor(&self, key: u64) -> Option<usize> {
        match self.find(key) {
            Ok(index) => Some(index),
            Err(index) => index.checked_sub(1),
        }
    }

    /// The index of the lowest key that is not below `key`; [`Page::count`] when there is none.
    pub fn ceiling(&self, key: u64) -> usize {
        match self.find(key) {
            Ok(index) | Err(index) => index,
        }
    }

    /// Bytes that entries take, slots included.
    pub fn used_bytes(&self) -> usize {
        CAPACITY - self.free_bytes()
    }

    /// Bytes left for entries, garbage included.
    pub fn free_bytes(&self) -> usize {
        (self.gap() + self.garbage()).min(CAPACITY)
    }

    /// Adds an entry, or replaces the value of `key` if it is there. Returns its index.
    ///
    /// # Errors
    /// [`Full`] when there is no room; nothing was changed.
    pub fn insert(&mut self, key: u64, value: &[u8]) -> Result<usize, Full> {
        let index = match self.find(key) {
            Ok(index) => return self.replace(index, value).map(|()| index),
            Err(index) => index,
        };
        if value.len() > VALUE_MAX || self.free_bytes() < SLOT_SIZE + value.len() {
            return Err(Full);
        }
        if self.gap() < SLOT_SIZE + value.len() {
            self.compact();
        }
        let count = self.count();
        self.0.slots.copy_within(index..count, index + 1);
        self.0.slots[index] = RawSlot {
            key: U64::new(key),
            offset: U16::new(0),
            len: U16::new(0),
        };
        self.0.header.count = U16::new(count as u16 + 1);
        self.push_value(index, value);
        Ok(index)
    }

    /// Replaces the value of entry `index`; an index without an entry is left alone.
    ///
    /// # Errors
    /// [`Full`] when there is no room; nothing was changed.
    pub fn replace(&mut self, index: usize, value: &[u8]) -> Result<(), Full> {
        let Some(old) = self.value_mut(index) else {
            return Ok(());
        };
        if old.len() == value.len() {
            old.copy_from_slice(value);
            return Ok(());
        }
        let len = old.len();
        if value.len() > VALUE_MAX || self.free_bytes() + len < value.len() {
            return Err(Full);
        }
        self.drop_value(index);
        if self.gap() < value.len() {
            self.compact();
        }
        self.push_value(index, value);
        Ok(())
    }

    /// Gives entry `index` another key, which must lie strictly between its neighbours'.
    pub fn set_key(&mut self, index: usize, key: u64) {
        if let Some(slot) = self.slots_mut().get_mut(index) {
            slot.key = U64::new(key);
        }
    }

    /// Removes entry `index`; an index without an entry is left alone.
    pub fn remove(&mut self, index: usize) {
        let count = self.count();
        if index < count {
            self.drop_value(index);
            self.0.slots.copy_within(index + 1..count, index);
            self.0.slots[count - 1] = RawSlot::new_zeroed();
            self.0.header.count = U16::new(count as u16 - 1);
        }
    }

    /// Removes the entries from `index` on.
    pub fn truncate(&mut self, index: usize) {
        for last in (index..self.count()).rev() {
            self.remove(last);
        }
    }

    /// Moves the live values to the end of the page, in the order of their keys.
    pub fn compact(&mut self) {
        let old = self.clone();
        self.clear_heap();
        for (index, (_, value)) in old.iter().enumerate() {
            self.push_value(index, value);
        }
    }

    fn slots(&self) -> &[RawSlot] {
        &self.0.slots[..self.count()]
    }

    fn slots_mut(&mut self) -> &mut [RawSlot] {
        let count = self.count();
        &mut self.0.slots[..count]
    }

    fn heap_start(&self) -> usize {
        usize::from(self.0.header.heap_start.get()).min(NODE_SIZE)
    }

    /// Dead bytes in the heap.
    pub fn garbage(&self) -> usize {
        usize::from(self.0.header.garbage.get())
    }

    /// Bytes between slots and heap.
    fn gap(&self) -> usize {
        self.heap_start()
            .saturating_sub(NODE_SIZE - CAPACITY + self.count() * SLOT_SIZE)
    }

    /// Empties the heap and zeroes all behind the slots.
    fn clear_heap(&mut self) {
        let slots_end = NODE_SIZE - CAPACITY + self.count() * SLOT_SIZE;
        self.0.as_mut_bytes()[slots_end..].fill(0);
        self.0.header.heap_start = U16::new(NODE_SIZE as u16);
        self.0.header.garbage = U16::new(0);
    }

    /// Puts the value of entry `index`, which has none, on the heap. The caller has made room.
    fn push_value(&mut self, index: usize, value: &[u8]) {
        let start = self.heap_start().saturating_sub(value.len());
        let offset = if value.is_empty() { NODE_SIZE } else { start };
        if let Some(slot) = self.slots_mut().get_mut(index) {
            slot.offset = U16::new(offset as u16);
            slot.len = U16::new(value.len() as u16);
        }
        if let Some(room) = self.0.as_mut_bytes().get_mut(start..start + value.len()) {
            room.copy_from_slice(value);
            self.0.header.heap_start = U16::new(start as u16);
        }
    }

    /// Zeroes the value of entry `index` and makes it one of length 0.
    fn drop_value(&mut self, index: usize) {
        let Some(slot) = self.slots_mut().get_mut(index) else {
            return;
        };
        let range = slot.range();
        slot.offset = U16::new(NODE_SIZE as u16);
        slot.len = U16::new(0);
        if let Some(value) = self.0.as_mut_bytes().get_mut(range.clone()) {
            value.fill(0);
        }
        if range.start == self.heap_start() {
            self.0.header.heap_start = U16::new(range.end as u16);
        } else {
            self.0.header.garbage = U16::new((self.garbage() + range.len()) as u16);
        }
        // Garbage behind the last value would otherwise wait for the next compaction.
        if self.heap_start() + self.garbage() == NODE_SIZE {
            self.0.header.heap_start = U16::new(NODE_SIZE as u16);
            self.0.header.garbage = U16::new(0);
        }
    }
}

impl RawSlot {
    fn range(&self) -> std::ops::Range<usize> {
        let offset = usize::from(self.offset.get());
        offset..offset + usize::from(self.len.get())
    }
}
