//! Who reads regions that have images: in order, or at random, and what that has cost them.

use crate::reclaim::Estimate;
use crate::region::Region;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes after which whoever reads on is taken to read in order.
const IN_ORDER: u64 = 128 << 10;
/// Reads may come so many bytes before or behind their turn: the kernel has several under way.
const OUT_OF_TURN: u64 = 256 << 10;
/// Regions that are remembered at most.
const REGIONS_MAX: usize = 256;

/// How a region is read.
#[derive(Clone, Debug, Default)]
struct Reads {
    /// The last read.
    last: Range<u64>,
    /// Bytes that were read in order, up to there.
    in_order: u64,
    /// Microseconds that were lost by reading at random what has not settled.
    paid: u64,
    /// What settling would take and save, when that was last looked at.
    estimate: Estimate,
    /// Whether it was decided for who reads in order just now.
    passed: bool,
    /// When it was read last, in reads of all.
    at: u64,
}

/// How regions are read.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    regions: BTreeMap<Region, Reads>,
    /// Reads so far.
    reads: u64,
}

impl Readers {
    /// Whether a region was read before.
    pub fn knows(&self, region: Region) -> bool {
        self.regions.contains_key(&region)
    }

    /// A region is read for the first time. The one that nobody read for longest is forgotten for it, if need be.
    pub fn meet(&mut self, region: Region, estimate: Estimate) {
        if self.regions.len() >= REGIONS_MAX {
            let oldest = self.regions.iter().min_by_key(|(_, reads)| reads.at);
            let oldest = oldest.map(|(region, _)| *region);
            oldest.and_then(|region| self.regions.remove(&region));
        }
        let reads = Reads {
            estimate,
            at: self.reads,
            ..Reads::default()
        };
        self.regions.insert(region, reads);
    }

    /// Bytes of a region are read, images among them or not. Whether it is time to ask if it should settle.
    pub fn read(&mut self, region: Region, bytes: Range<u64>, has_image: bool) -> bool {
        let Some(reads) = self.regions.get_mut(&region) else {
            return false;
        };
        self.reads += 1;
        reads.at = self.reads;
        if reads.last == bytes {
            return false;
        }
        let turn =
            reads.last.end.saturating_sub(OUT_OF_TURN)..=reads.last.end.saturating_add(OUT_OF_TURN);
        if turn.contains(&bytes.start) && reads.last.end > 0 {
            reads.in_order = reads.in_order.saturating_add(bytes.end - bytes.start);
        } else {
            (reads.in_order, reads.passed) = (0, false);
            if has_image {
                reads.paid = reads.paid.saturating_add(reads.estimate.at_random);
            }
        }
        reads.last = bytes;
        reads.reads_in_order() || reads.has_paid()
    }

    /// Whether a region should settle, by what that takes now. Either way it is not asked again for a while.
    pub fn decide(&mut self, region: Region, estimate: Estimate) -> bool {
        let Some(reads) = self.regions.get_mut(&region) else {
            return false;
        };
        reads.estimate = estimate;
        let settles = (reads.reads_in_order() && estimate.pays()) || reads.has_paid();
        if settles {
            reads.paid = 0;
        }
        reads.passed |= reads.reads_in_order();
        settles
    }
}

impl Reads {
    fn reads_in_order(&self) -> bool {
        self.in_order >= IN_ORDER && !self.passed
    }

    fn has_paid(&self) -> bool {
        self.paid > 0 && self.paid >= self.estimate.cost && self.estimate.cost > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_format::Ino;

    /// Many regions that are read once each took from one that is read on and on what it had paid.
    #[test]
    fn who_reads_on_is_not_forgotten_for_many_who_read_once() {
        let (mut readers, mut due) = (Readers::default(), false);
        let dear = Estimate {
            cost: 10_000,
            at_random: 10,
            ..Estimate::default()
        };
        let region = Region::of(Ino(1), 0);
        readers.meet(region, dear);
        for turn in 1..=1000 {
            let at = (turn % 2) << 25;
            due = readers.read(region, at..at + turn, true);
            let other = Region::of(Ino(1 + turn), 0);
            readers.meet(other, dear);
            readers.read(other, 0..4096, true);
        }
        assert!(due);
        assert!(readers.regions.len() <= REGIONS_MAX);
    }

    /// What stood at home was charged as if its image were far away: a region was swept that cost its readers nothing.
    #[test]
    fn who_reads_at_random_what_is_at_home_pays_nothing() {
        let mut readers = Readers::default();
        let region = Region::of(Ino(1), 0);
        let estimate = Estimate {
            cost: 100,
            at_random: 10,
            ..Estimate::default()
        };
        readers.meet(region, estimate);
        let mut read = |turn: u64, has_image| {
            let at = (turn % 2) << 25;
            readers.read(region, at..at + 4096, has_image)
        };
        assert!((0..1000).all(|turn| !read(turn, false)));
        assert!((0..10).any(|turn| read(turn, true)));
    }
}
