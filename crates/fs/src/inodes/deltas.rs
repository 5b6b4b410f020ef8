//! What segments said of inodes whose blocks they did not write (rule 16), and of which the next one may say it too.

use super::block::InodeBlock;
use crate::error::Corrupt;
use loamfs_format::delta::{self, Delta};
use loamfs_format::ifile::{INODE_BLOCK_MAX, IfileEntry, block_of, slot_of};
use loamfs_format::summary::{DELTA_SIZE_MAX, delta_size};
use loamfs_format::{Ino, InodeBlockNo, inode};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Bytes by which checkpoints say again what was said of a block, before it is written. To write it costs twice as much at most, so
/// whatever changes later, both together cost no more than half as much again as writing it at once. Where changes come evenly that
/// is near the least: saying again costs more with each of them.
const AGAIN_MAX: u64 = INODE_BLOCK_MAX / 2;

/// Deltas of inode blocks, one for each inode that has any. They count until a segment writes the block.
#[derive(Debug, Default)]
pub(crate) struct Deltas {
    of: BTreeMap<InodeBlockNo, Said>,
    /// Blocks that should be written, since checkpoints have said enough of them again.
    due: BTreeSet<InodeBlockNo>,
    /// Bytes of their records.
    bytes: u64,
    /// Bytes from which on blocks are written; without any none are made.
    most: u64,
    /// Bytes of dead inodes from which on blocks are written that have any.
    most_dead: u64,
    /// Whether inodes may come and go whose blocks are not written.
    lazy: bool,
    /// Bytes of inodes that live no longer, of blocks that stayed since the mount.
    dead: BTreeMap<InodeBlockNo, u64>,
    /// The sum of them.
    dead_bytes: u64,
    /// What the next segment says besides.
    next: Share,
    /// Blocks that could not be read to be written.
    unread: BTreeSet<InodeBlockNo>,
}

/// What was said of a block.
#[derive(Debug, Default)]
struct Said {
    deltas: BTreeMap<Ino, Delta>,
    /// Bytes of their records.
    bytes: u64,
    /// Bytes of records by which checkpoints have said it again.
    again: u64,
}

/// What a segment takes, and spares, by saying what changed in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// Bytes of records that were not said before, at most.
    said: u64,
    /// Bytes that it would take more if it wrote the blocks, at least.
    spared: u64,
}

impl Deltas {
    /// A segment says this of an inode. `newest` says whether it counts before what was said already.
    pub fn put(&mut self, mut delta: Delta, newest: bool) {
        let said = self.of.entry(block_of(delta.ino())).or_default();
        self.bytes -= said.bytes;
        if let Some(mut before) = said.deltas.remove(&delta.ino()) {
            said.bytes -= delta_size(&before);
            // What is of another state is damage: it fits the block no more than it fits what was said.
            if !newest {
                delta.follow(&before);
            } else if delta.follows(&before) {
                before.follow(&delta);
                delta = before;
            }
        }
        said.bytes += delta_size(&delta);
        self.bytes += said.bytes;
        said.deltas.insert(delta.ino(), delta);
    }

    /// A segment writes a block, with all that was said of it, or says that it is gone.
    pub fn written(&mut self, block: InodeBlockNo) {
        self.forget(block);
        self.dead_bytes -= self.dead.remove(&block).unwrap_or_default();
    }

    /// What was said of a block counts no longer.
    fn forget(&mut self, block: InodeBlockNo) {
        let gone = self.of.remove(&block).unwrap_or_default();
        self.bytes -= gone.bytes;
        self.due.remove(&block);
        self.unread.remove(&block);
    }

    /// A checkpoint says all of them again.
    pub fn said_again(&mut self) {
        for (block, said) in &mut self.of {
            said.again += said.bytes;
            if said.again >= AGAIN_MAX {
                self.due.insert(*block);
            }
        }
    }

    /// A block is not written though it is due: checkpoints say as much of it again first.
    pub fn put_off(&mut self, block: InodeBlockNo) {
        self.due.remove(&block);
        if let Some(said) = self.of.get_mut(&block) {
            said.again = 0;
        }
    }

    /// A block that should be written cannot be read: it is not tried again until somebody else has it written.
    pub fn leave(&mut self, block: InodeBlockNo) {
        self.unread.insert(block);
    }

    /// Segments may say so many bytes, from now on.
    pub fn keep_to(&mut self, most: u64) {
        self.most = most;
    }

    /// So many bytes of dead inodes may stay in blocks, from now on.
    pub fn keep_dead_to(&mut self, most: u64) {
        self.most_dead = most;
    }

    /// Inodes may come and go from now on whose blocks are not written.
    pub fn be_lazy(&mut self) {
        self.lazy = true;
    }

    /// A segment says this entry of a block that stays: what was said of inodes that do not live counts no longer.
    pub fn keep_live(&mut self, block: InodeBlockNo, entry: &IfileEntry) {
        self.note_dead(block, entry.packed & !entry.live);
        let Some(said) = self.of.get_mut(&block) else {
            return;
        };
        self.bytes -= said.bytes;
        let lives = |ino: Ino| entry.live & 1 << slot_of(ino) != 0;
        said.deltas.retain(|ino, _| lives(*ino));
        said.bytes = said.deltas.values().map(delta_size).sum();
        self.bytes += said.bytes;
        if said.deltas.is_empty() {
            self.forget(block);
        }
    }

    /// These inodes of a block that stays live no longer, a bit for each.
    fn note_dead(&mut self, block: InodeBlockNo, dead: u32) {
        let bytes = u64::from(dead.count_ones()) * inode::SIZE as u64;
        let before = match bytes {
            0 => self.dead.remove(&block),
            _ => self.dead.insert(block, bytes),
        };
        self.dead_bytes = self.dead_bytes + bytes - before.unwrap_or_default();
    }

    /// What was said of a block.
    pub fn of_block(&self, block: InodeBlockNo) -> Vec<Delta> {
        let said = self.of.get(&block).into_iter();
        said.flat_map(|said| said.deltas.values().cloned())
            .collect()
    }

    /// In how many bytes the next segment may say what changed in a block, and not write it, if it may: a third of it, with what was said
    /// before, while there is not too much of it. So the segment and the two checkpoints behind it, which say it again, take no
    /// more than the block (rule 10).
    pub fn may_say(&self, block: InodeBlockNo, b: &InodeBlock) -> Option<u64> {
        let stays = b.may_stay(self.lazy)
            && self.bytes < self.most
            && (self.dead_bytes < self.most_dead || b.dead() == 0);
        let left = (b.bytes() / 3).checked_sub(self.bytes_of(block));
        left.filter(|_| stays)
    }

    /// Whether the next segment says what changed in a block however much that is: as far as it is known without a look at the inodes.
    fn stays(&self, block: InodeBlockNo, b: &InodeBlock) -> bool {
        let most = self.may_say(block, b);
        most.is_some_and(|most| longest(b) <= most)
    }

    /// Bytes of records by which the next segment says again what was said of a block that stays: its entry ends that.
    pub fn said_beside(&self, block: InodeBlockNo, b: &InodeBlock) -> u64 {
        match b.says_entry() {
            true => self.bytes_of(block),
            false => 0,
        }
    }

    /// What the next segment takes and spares by saying what changed in a block. Where it may say less than is known here, the block
    /// counts as written: that is more than the segment and two checkpoints take then.
    pub fn share(&self, block: InodeBlockNo, b: &InodeBlock) -> Share {
        match self.stays(block, b) {
            true => {
                let said = longest(b);
                Share {
                    said,
                    spared: b.room() - said - self.said_beside(block, b),
                }
            }
            false => Share::default(),
        }
    }

    /// A block changed, and so its share.
    pub fn note_change(&mut self, before: Share, after: Share) {
        self.next = Share {
            said: (self.next.said + after.said).saturating_sub(before.said),
            spared: (self.next.spared + after.spared).saturating_sub(before.spared),
        };
    }

    /// Bytes that the next segment spares, at least.
    pub fn spared(&self) -> u64 {
        self.next.spared
    }

    /// What changed is in a segment now.
    pub fn sealed(&mut self) {
        self.next = Share::default();
    }

    /// Bytes of all their records.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the records of a checkpoint behind the next segment, at most.
    pub fn bytes_at_most(&self) -> u64 {
        self.bytes + self.next.said
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Delta> {
        self.of.values().flat_map(|said| said.deltas.values())
    }

    /// The blocks in these ranges of which segments said something.
    pub fn blocks_in(&self, ranges: &[Range<u64>]) -> Vec<InodeBlockNo> {
        let within = |block: &&InodeBlockNo| ranges.iter().any(|range| range.contains(&block.0));
        self.of.keys().filter(within).copied().collect()
    }

    /// Whether an inode has one.
    pub fn has(&self, ino: Ino) -> bool {
        let said = self.of.get(&block_of(ino));
        said.is_some_and(|said| said.deltas.contains_key(&ino))
    }

    /// Bytes of those of a block.
    fn bytes_of(&self, block: InodeBlockNo) -> u64 {
        self.of.get(&block).map_or(0, |said| said.bytes)
    }

    /// Whether there is so much of them that blocks must be written.
    pub fn are_crowded(&self) -> bool {
        self.bytes > self.most / 2
    }

    /// The blocks that should be written, those of which most is said first: any if there is much of all of them, else those of which
    /// checkpoints have said enough again. Those that cannot be read are in nobody's way.
    pub fn to_write(&self, count: usize) -> Vec<InodeBlockNo> {
        let mut blocks: Vec<InodeBlockNo> = match self.are_crowded() {
            true => self.of.keys().copied().collect(),
            false => self.due.iter().copied().collect(),
        };
        blocks.retain(|block| !self.unread.contains(block));
        blocks.sort_by_cached_key(|block| (Reverse(self.bytes_of(*block)), *block));
        blocks.truncate(count);
        blocks
    }

    /// The inodes of a block that live as of the last segment, in the order of their slots, made of what stands where its entry says. One
    /// that came, and of which nothing was said, is zeros.
    ///
    /// # Errors
    /// [`Corrupt::Missing`]: a segment said something of an inode that is not there.
    pub fn apply(
        &self,
        block: InodeBlockNo,
        entry: &IfileEntry,
        stored: Arc<[u8]>,
    ) -> Result<Arc<[u8]>, Corrupt> {
        let said = self.of.get(&block);
        if said.is_none() && entry.live == entry.packed {
            return Ok(stored);
        }
        let said = said.into_iter().flat_map(|said| said.deltas.values());
        match delta::apply_all(entry, &stored, said) {
            (bytes, None) => Ok(bytes.into()),
            (_, Some(ino)) => Err(Corrupt::Missing {
                ino,
                what: "the inode of which a segment says what changed",
            }),
        }
    }
}

/// Bytes of records that say what changed in a block, at most.
fn longest(b: &InodeBlock) -> u64 {
    u64::from(b.changed()) * DELTA_SIZE_MAX
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use loamfs_format::inode::{Inode, Timestamp, mode};
    use loamfs_format::{FragAddr, Pointer};

    fn inode(ino: u64, size: u64, uid: u32) -> Inode {
        Inode {
            size,
            uid,
            ..Inode::new(Ino(ino), mode::REGULAR, 7, Timestamp::default())
        }
    }

    fn between(old: &Inode, new: &Inode) -> Delta {
        Delta::between(&old.encode(), &new.encode()).unwrap()
    }

    fn block_of_two() -> (IfileEntry, Arc<[u8]>) {
        let entry = IfileEntry {
            pointer: Pointer {
                addr: FragAddr(8),
                ..Pointer::NONE
            },
            live: 0b101,
            packed: 0b101,
            ..IfileEntry::default()
        };
        let bytes = [inode(32, 1, 1).encode(), inode(34, 1, 1).encode()].concat();
        (entry, bytes.into())
    }

    #[test]
    fn what_was_said_last_counts_until_the_block_is_written() {
        let (entry, stored) = block_of_two();
        let block = InodeBlockNo(1);
        let mut deltas = Deltas::default();
        deltas.put(between(&inode(34, 1, 1), &inode(34, 2, 1)), true);
        deltas.put(between(&inode(34, 2, 1), &inode(34, 3, 9)), true);
        assert_eq!(deltas.iter().count(), 1);
        let now = deltas.apply(block, &entry, stored.clone()).unwrap();
        assert_eq!(now[..512], inode(32, 1, 1).encode());
        assert_eq!(now[512..], inode(34, 3, 9).encode());
        deltas.written(block);
        assert_eq!((deltas.iter().count(), deltas.bytes()), (0, 0));
        assert_eq!(deltas.apply(block, &entry, stored.clone()).unwrap(), stored);
    }

    #[test]
    fn what_is_said_of_no_inode_of_the_block_is_damage() {
        let (entry, stored) = block_of_two();
        for (old, new) in [
            (inode(33, 1, 1), inode(33, 2, 1)),
            (
                Inode {
                    generation: 8,
                    ..inode(34, 1, 1)
                },
                Inode {
                    generation: 8,
                    ..inode(34, 2, 1)
                },
            ),
        ] {
            let mut deltas = Deltas::default();
            deltas.put(between(&old, &new), true);
            let read = deltas.apply(InodeBlockNo(1), &entry, stored.clone());
            assert!(matches!(read, Err(Corrupt::Missing { .. })), "{read:?}");
        }
    }

    #[test]
    fn a_block_is_due_once_checkpoints_have_said_enough_of_it_again() {
        let block = InodeBlockNo(1);
        let mut deltas = Deltas::default();
        deltas.keep_to(1 << 20);
        deltas.put(between(&inode(34, 1, 1), &inode(34, 2, 1)), true);
        let again = AGAIN_MAX.div_ceil(deltas.bytes());
        (1..again).for_each(|_| deltas.said_again());
        assert_eq!(deltas.to_write(9), []);
        deltas.said_again();
        assert_eq!(deltas.to_write(9), [block]);
        deltas.put_off(block);
        assert_eq!(deltas.to_write(9), []);
        (0..again).for_each(|_| deltas.said_again());
        assert_eq!(deltas.to_write(9), [block]);
        deltas.written(block);
        assert_eq!(deltas.to_write(9), []);
    }

    /// What is dead in blocks that stay is room that nobody gets.
    #[test]
    fn no_more_dies_in_blocks_that_stay_than_may_be_said() {
        let (entry, stored) = block_of_two();
        let mut b = InodeBlock::new(entry, Some(stored));
        b.go(2, false);
        let mut deltas = Deltas::default();
        deltas.be_lazy();
        deltas.keep_to(1024);
        deltas.keep_dead_to(1024);
        let stays = |deltas: &Deltas| deltas.may_say(InodeBlockNo(1), &b).is_some();
        deltas.note_dead(InodeBlockNo(7), 0b1);
        assert!(stays(&deltas));
        deltas.note_dead(InodeBlockNo(7), 0b11);
        assert!(!stays(&deltas));
        deltas.written(InodeBlockNo(7));
        assert!(stays(&deltas));
        deltas.keep_dead_to(0);
        assert!(!stays(&deltas));
    }

    #[test]
    fn the_fullest_blocks_come_first() {
        let mut deltas = Deltas::default();
        deltas.put(between(&inode(32, 1, 1), &inode(32, 2, 1)), true);
        deltas.put(between(&inode(64, 1, 1), &inode(64, 2, 3)), true);
        deltas.put(between(&inode(96, 1, 1), &inode(96, 2, 1)), true);
        assert_eq!(deltas.to_write(2), [InodeBlockNo(2), InodeBlockNo(1)]);
    }
}
