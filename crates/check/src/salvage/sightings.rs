//! Blocks of inodes that something on the device speaks of.

use loamfs_format::ifile::IfileEntry;
use loamfs_format::{FragAddr, InodeBlockNo};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What speaks of a block, from the best evidence to the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// A summary of the volume.
    Summary,
    /// What looks like a leaf of the IFILE; only the checksum of the block proves it.
    Leaf,
    /// The block itself looks like one: the checksum is that of what is there.
    Itself,
}

/// An entry that the IFILE may have had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    pub(super) by: By,
    pub(super) entry: IfileEntry,
}

/// Sightings of a block by one kind of evidence that are kept: the newest.
const KEPT: usize = 4;

/// Most sightings that are kept: of some forty million inodes, in some 400 MiB.
const SIGHTINGS_MAX: usize = 1 << 22;

/// All of them, by block.
#[derive(Debug)]
pub(super) struct Sightings {
    of: BTreeMap<u64, Vec<Sighting>>,
    count: usize,
    most: usize,
    /// Whether there were more.
    overflowed: bool,
}

impl Default for Sightings {
    fn default() -> Sightings {
        Sightings::of_at_most(SIGHTINGS_MAX)
    }
}

impl Sightings {
    fn of_at_most(most: usize) -> Sightings {
        Sightings {
            of: BTreeMap::new(),
            count: 0,
            most,
            overflowed: false,
        }
    }

    /// Whether there was more than is kept.
    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub(super) fn add(&mut self, block: InodeBlockNo, by: By, entry: IfileEntry) {
        if entry.live == 0 {
            return;
        }
        let of = self.of.entry(block.0).or_default();
        if of.iter().any(|seen| seen.by == by && seen.entry == entry) {
            return;
        }
        of.push(Sighting { by, entry });
        self.count += 1;
        let age = |seen: &Sighting| (seen.entry.pointer.birth, seen.entry.ssn);
        let same = || of.iter().enumerate().filter(|(_, seen)| seen.by == by);
        if same().count() > KEPT
            && let Some((oldest, _)) = same().min_by_key(|(_, seen)| age(seen))
        {
            of.swap_remove(oldest);
            self.count -= 1;
        }
        // Numbers are given out as they rise: the highest are those that never were.
        if self.count > self.most
            && let Some((_, gone)) = self.of.pop_last()
        {
            self.count -= gone.len();
            self.overflowed = true;
        }
    }

    /// Takes back what was seen, whatever spoke of it.
    pub(super) fn remove(&mut self, block: InodeBlockNo, entry: &IfileEntry) {
        let Some(of) = self.of.get_mut(&block.0) else {
            return;
        };
        self.count -= of.extract_if(.., |seen| seen.entry == *entry).count();
        if of.is_empty() {
            self.of.remove(&block.0);
        }
    }

    /// What was seen of a block, the newest first: of a block that stayed, as inodes came and went, the last entry.
    pub(super) fn of(&self, block: InodeBlockNo) -> Vec<Sighting> {
        let mut seen = self.of.get(&block.0).cloned().unwrap_or_default();
        seen.sort_by_key(|s| (Reverse((s.entry.pointer.birth, s.entry.ssn)), s.by));
        seen
    }

    /// What was seen at an address of a block.
    pub(super) fn at(&self, block: InodeBlockNo, addr: FragAddr) -> Vec<Sighting> {
        let mut seen = self.of(block);
        seen.retain(|seen| seen.entry.pointer.addr == addr);
        seen
    }

    /// The blocks of which something was seen, from one on.
    pub(super) fn blocks(&self, from: u64) -> impl Iterator<Item = InodeBlockNo> + '_ {
        self.of.range(from..).map(|(block, _)| InodeBlockNo(*block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_format::Ssn;

    /// As inodes of it came and went, segments said entries of a block that stayed: all have the age of the block.
    #[test]
    fn the_newest_entry_of_a_block_that_stayed_is_kept() {
        let (block, mut seen) = (InodeBlockNo(1), Sightings::default());
        let entry = |ssn| IfileEntry {
            live: 1,
            packed: 1,
            ssn: Ssn(ssn),
            ..IfileEntry::default()
        };
        for ssn in [1, 2, 3, 4, 9, 5, 6, 7] {
            seen.add(block, By::Summary, entry(ssn));
        }
        let kept: Vec<u64> = seen.of(block).iter().map(|s| s.entry.ssn.0).collect();
        assert_eq!(kept, [9, 7, 6, 5]);
    }
    /// Any file can look as if it spoke of blocks without end.
    #[test]
    fn more_than_there_is_room_for_is_not_kept() {
        let mut seen = Sightings::of_at_most(40);
        let entry = IfileEntry {
            live: 1,
            packed: 1,
            ..IfileEntry::default()
        };
        for block in (0..1000).rev() {
            for by in [By::Leaf, By::Itself] {
                seen.add(InodeBlockNo(block), by, entry);
            }
        }
        let kept: Vec<u64> = seen.blocks(0).map(|block| block.0).collect();
        assert_eq!(kept, Vec::from_iter(0..20));
        assert!(seen.overflowed());
        seen.remove(InodeBlockNo(3), &entry);
        assert!(seen.of(InodeBlockNo(3)).is_empty());
    }
}
