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

/// All of them, by block.
#[derive(Debug, Default)]
pub(super) struct Sightings(BTreeMap<u64, Vec<Sighting>>);

impl Sightings {
    pub(super) fn add(&mut self, block: InodeBlockNo, by: By, entry: IfileEntry) {
        if entry.live == 0 {
            return;
        }
        let of = self.0.entry(block.0).or_default();
        if of.iter().any(|seen| seen.by == by && seen.entry == entry) {
            return;
        }
        of.push(Sighting { by, entry });
        let age = |seen: &Sighting| (seen.entry.pointer.birth, seen.entry.ssn);
        let same = || of.iter().enumerate().filter(|(_, seen)| seen.by == by);
        if same().count() > KEPT
            && let Some((oldest, _)) = same().min_by_key(|(_, seen)| age(seen))
        {
            of.swap_remove(oldest);
        }
    }

    /// Takes back what was seen, whatever spoke of it.
    pub(super) fn remove(&mut self, block: InodeBlockNo, entry: &IfileEntry) {
        let Some(of) = self.0.get_mut(&block.0) else {
            return;
        };
        of.retain(|seen| seen.entry != *entry);
        if of.is_empty() {
            self.0.remove(&block.0);
        }
    }

    /// What was seen of a block, the newest first: of a block that stayed, as inodes came and went, the last entry.
    pub(super) fn of(&self, block: InodeBlockNo) -> Vec<Sighting> {
        let mut seen = self.0.get(&block.0).cloned().unwrap_or_default();
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
        self.0.range(from..).map(|(block, _)| InodeBlockNo(*block))
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
}
