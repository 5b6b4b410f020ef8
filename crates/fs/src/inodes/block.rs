//! Inode blocks in memory (H20).

use crate::unit::{UNIT, filled};
use loamfs_format::ifile::{IfileEntry, ino_at, offset_in, slot_of};
use loamfs_format::inode::{self, Inode};
use loamfs_format::{Ino, InodeBlockNo, Pointer, Ssn};
use std::sync::Arc;

/// An inode block that changed, or is about to.
#[derive(Debug)]
pub(crate) struct InodeBlock {
    /// As the last segment has it.
    base: IfileEntry,
    /// The inodes that lived then, in the order of their slots.
    packed: Option<Arc<[u8]>>,
    /// Live and orphan bits as they are now.
    live: u32,
    orphan: u32,
    /// Whether the next segment writes it, or says what changed in it.
    dirty: bool,
    /// Whether that must write it: it moves.
    whole: bool,
    /// A bit for each of its inodes that came since.
    came: u32,
    /// Inodes of it that changed, those that came among them.
    changed: u32,
}

impl InodeBlock {
    /// As the last segment has it.
    pub fn new(base: IfileEntry, packed: Option<Arc<[u8]>>) -> InodeBlock {
        InodeBlock {
            live: base.live,
            orphan: base.orphan,
            base,
            packed,
            dirty: false,
            whole: false,
            came: 0,
            changed: 0,
        }
    }

    /// Its entry as the last segment has it, and the inodes that lived then, in the order of their slots.
    pub fn sealed_form(&self) -> (IfileEntry, Option<Arc<[u8]>>) {
        (self.base, self.packed.clone())
    }

    /// The inode of a slot as the last segment has it, if it lived then.
    pub fn sealed_inode(&self, slot: u32) -> Option<&[u8]> {
        let at = offset_in(self.base.live, slot)?;
        self.packed.as_deref()?.get(at..at + inode::SIZE)
    }

    /// Where the last segment has it, if it does.
    pub fn sealed_at(&self) -> Option<&Pointer> {
        Some(&self.base.pointer).filter(|pointer| pointer.is_some())
    }

    /// A bit for each of its inodes that lives.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// A bit for each that is an orphan.
    pub fn orphan(&self) -> u32 {
        self.orphan
    }

    /// The numbers of its live inodes, if it is block number `block`.
    pub fn inos(&self, block: InodeBlockNo) -> impl Iterator<Item = Ino> + use<> {
        let live = self.live;
        let slots = (0..32).filter(move |slot| live & (1 << slot) != 0);
        slots.map(move |slot| ino_at(block, slot))
    }

    /// Whether the next segment writes it, or says what changed in it.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// The next segment writes it.
    pub fn touch(&mut self) {
        self.whole = true;
        self.dirty = true;
    }

    /// An inode of it came, in this slot.
    pub fn come(&mut self, slot: u32) {
        self.set_live(slot, true);
        self.came |= 1 << slot;
        self.dirty = true;
    }

    /// The inode of a slot goes. It may have `changed` since the last segment.
    pub fn go(&mut self, slot: u32, changed: bool) {
        self.set_live(slot, false);
        self.came &= !(1 << slot);
        self.changed = self.changed.saturating_sub(changed.into());
        self.dirty = true;
    }

    /// An inode of it changes, for the first time since the last segment if `first`.
    pub fn touch_inode(&mut self, first: bool) {
        self.changed += u32::from(first);
        self.dirty = true;
    }

    /// Whether the next segment may say what changed in it, instead of writing it. `lazy` says whether inodes may come and go by that.
    /// Half of what the block holds lives at least: else it is short, and its room is worth it.
    pub fn may_stay(&self, lazy: bool) -> bool {
        let others = self.came != 0 || self.says_entry();
        let stands = self.sealed_at().is_some() && self.live != 0;
        self.dirty
            && !self.whole
            && stands
            && (lazy || !others)
            && 2 * self.dead() <= self.base.packed.count_ones()
    }

    /// Inodes that the block has on the device, and that live no longer.
    pub fn dead(&self) -> u32 {
        (self.base.packed & !self.live).count_ones()
    }

    /// Whether its entry changes though it stays where it is: other inodes live in it, or are orphans.
    pub fn says_entry(&self) -> bool {
        (self.live, self.orphan) != (self.base.live, self.base.orphan)
    }

    /// Inodes of it that changed since the last segment.
    pub fn changed(&self) -> u32 {
        self.changed
    }

    /// An inode lives from now on, or no longer; it is no orphan.
    fn set_live(&mut self, slot: u32, live: bool) {
        self.live = with_bit(self.live, slot, live);
        self.orphan = with_bit(self.orphan, slot, false);
    }

    /// The inode of a slot is an orphan from now on, or no longer.
    pub fn set_orphan(&mut self, slot: u32, orphan: bool) {
        self.orphan = with_bit(self.orphan, slot, orphan);
        self.dirty = true;
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.live.count_ones()) * inode::SIZE as u64
    }

    /// Bytes that the next segment takes at most if it writes it.
    pub fn dirty_room(&self) -> u64 {
        if self.dirty { self.room() } else { 0 }
    }

    /// Bytes that it takes at most, whatever the fragments: the last one may be filled in part.
    pub fn room(&self) -> u64 {
        self.bytes().next_multiple_of(UNIT)
    }

    /// Its entry, when segment `ssn` has it at `pointer`.
    pub fn entry(&self, pointer: Pointer, ssn: Ssn) -> IfileEntry {
        IfileEntry {
            pointer,
            live: self.live,
            packed: self.live,
            orphan: self.orphan,
            ssn,
        }
    }

    /// Its entry, when segment `ssn` leaves it where it is.
    pub fn entry_apart(&self, ssn: Ssn) -> IfileEntry {
        IfileEntry {
            live: self.live,
            orphan: self.orphan,
            ssn,
            ..self.base
        }
    }

    /// The packed bytes of the block, dirty inodes in place of their old forms; `None` if one has no form at all.
    pub fn pack(
        &self,
        block: InodeBlockNo,
        current: impl Fn(Ino) -> Option<Inode>,
    ) -> Option<Arc<[u8]>> {
        let mut whole = true;
        let packed = filled(self.bytes() as usize, |bytes| {
            for (ino, room) in self.inos(block).zip(bytes.chunks_mut(inode::SIZE)) {
                match (current(ino), self.sealed_inode(slot_of(ino))) {
                    (Some(inode), _) => room.copy_from_slice(&inode.encode()),
                    (None, Some(old)) => room.copy_from_slice(old),
                    (None, None) => whole = false,
                }
            }
        });
        whole.then_some(packed)
    }
}

/// Some bits with one of them set or cleared.
fn with_bit(bits: u32, at: u32, set: bool) -> u32 {
    let bit = 1 << at;
    if set { bits | bit } else { bits & !bit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_format::ifile::INODE_BLOCK_MAX;

    #[test]
    fn a_block_has_room_in_whole_fragments_and_a_full_one_in_its_own_bytes() {
        let mut block = InodeBlock::new(IfileEntry::default(), None);
        for slot in 0..32 {
            block.come(slot);
            for fragment in [512, 1024, 2048, 4096] {
                assert!(block.bytes().next_multiple_of(fragment) <= block.room());
            }
        }
        assert_eq!(block.room(), INODE_BLOCK_MAX);
    }
}
