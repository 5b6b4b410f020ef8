//! Keyed sums of sets: two sets that must be equal are added to and subtracted from the same sum.
//!
//! A range of fragments adds the difference of the keyed hashes of its two ends. So it costs two hashes whatever its length,
//! and ranges that touch add up to what they are together. Counted with their multiplicity, two sets of
//! fragments have equal sums exactly when they are equal, but for a chance of one in 2^64.

use super::slots::Slotted;
use crate::Owner;
use loamfs_format::{Extent, FragAddr, Ino};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The least that a region covers, as a power of two: a window of the scan.
const REGION_SHIFT_MIN: u32 = super::bits::WINDOW.trailing_zeros();
/// Regions and ranges that even the smallest check distinguishes.
const COUNT_MIN: u64 = 64;

/// Whether something is added to a sum or taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Reached,
    Recorded,
}

impl Side {
    fn apply(self, sum: &mut u64, value: u64) {
        *sum = match self {
            Side::Reached => sum.wrapping_add(value),
            Side::Recorded => sum.wrapping_sub(value),
        };
    }
}

/// Sums of (fragment, owner) and of homes with images, a region of the volume each.
#[derive(Debug)]
pub(crate) struct SpaceSums {
    key: [u8; 16],
    shift: u32,
    sums: Vec<u64>,
}

impl SpaceSums {
    pub(crate) fn new(key: [u8; 16], total_frags: u64, memory: u64) -> SpaceSums {
        let most = (memory / size_of::<u64>() as u64).max(COUNT_MIN);
        let mut shift = REGION_SHIFT_MIN;
        while total_frags >> shift >= most {
            shift += 1;
        }
        let count = (total_frags >> shift) + 1;
        SpaceSums {
            key,
            shift,
            sums: vec![0; count as usize],
        }
    }

    /// Counts a range that belongs to `owner`, or to nobody.
    pub(crate) fn range(&mut self, extent: Extent, owner: Option<Owner>, side: Side) {
        let mut at = extent.start.0;
        while at < extent.end().0 {
            let region = at >> self.shift;
            let end = ((region + 1) << self.shift).min(extent.end().0);
            let value = self
                .hash(0, end, owner)
                .wrapping_sub(self.hash(0, at, owner));
            self.add(region, value, side);
            at = end;
        }
    }

    /// Counts a home with an image.
    pub(crate) fn image(&mut self, home: FragAddr, side: Side) {
        let value = self.hash(1, home.0, None);
        self.add(home.0 >> self.shift, value, side);
    }

    /// The regions whose sums are not zero, those that touch as one, by address.
    pub(crate) fn unequal(&self) -> Vec<Extent> {
        let size = 1u64 << self.shift;
        let mut regions: Vec<Extent> = Vec::new();
        for (index, _) in (0u64..).zip(&self.sums).filter(|(_, sum)| **sum != 0) {
            match regions.last_mut() {
                Some(last) if last.end().0 == index << self.shift => last.frags += size,
                _ => regions.push(Extent::new(FragAddr(index << self.shift), size)),
            }
        }
        regions
    }

    fn add(&mut self, region: u64, value: u64, side: Side) {
        if let Some(sum) = self.sums.get_mut(region as usize) {
            side.apply(sum, value);
        }
    }

    fn hash(&self, domain: u8, at: u64, owner: Option<Owner>) -> u64 {
        hash(&self.key, (domain, at, owner))
    }
}

/// Sums of what names and slots say of inodes and what inodes say of theirs, a range of inode numbers each.
#[derive(Debug)]
pub(crate) struct NameSums {
    key: [u8; 16],
    /// Inode numbers that share a sum.
    span: u64,
    sums: Vec<u64>,
}

impl NameSums {
    pub(crate) fn new(key: [u8; 16], inodes: u64, memory: u64) -> NameSums {
        let most = (memory / size_of::<u64>() as u64).max(COUNT_MIN);
        let span = inodes.div_ceil(most).max(32);
        NameSums {
            key,
            span,
            sums: vec![0; (inodes / span) as usize + 1],
        }
    }

    /// Counts `count` names of an inode of this type; `parent` is the directory that names a directory, else 0.
    pub(crate) fn names(&mut self, ino: Ino, kind: u8, parent: Ino, count: u64, side: Side) {
        let value = hash(&self.key, (2u8, ino, kind, parent)).wrapping_mul(count);
        self.add(ino, value, side);
    }

    /// Counts `count` subdirectories of a directory.
    pub(crate) fn subdirectories(&mut self, dir: Ino, count: u64, side: Side) {
        let value = hash(&self.key, (3u8, dir)).wrapping_mul(count);
        self.add(dir, value, side);
    }

    /// Counts a slot of a track, or what an inode says of its slot.
    pub(crate) fn slot(&mut self, slot: &Slotted, side: Side) {
        let value = hash(&self.key, (4u8, slot.ino, slot.digest));
        self.add(slot.ino, value, side);
    }

    /// Whether the sum that this number counts for is not zero.
    pub(crate) fn is_unequal(&self, ino: Ino) -> bool {
        self.sums.get(self.index(ino)).is_some_and(|sum| *sum != 0)
    }

    /// Whether all sums are zero.
    pub(crate) fn all_equal(&self) -> bool {
        self.sums.iter().all(|sum| *sum == 0)
    }

    fn add(&mut self, ino: Ino, value: u64, side: Side) {
        let index = self.index(ino);
        if let Some(sum) = self.sums.get_mut(index) {
            side.apply(sum, value);
        }
    }

    /// Numbers that were never given out share the last sum.
    fn index(&self, ino: Ino) -> usize {
        ((ino.0 / self.span) as usize).min(self.sums.len() - 1)
    }
}

fn hash(key: &[u8; 16], value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_format::{BlockKind, Geometry};

    fn owner(logical: u64) -> Owner {
        let geometry = Geometry {
            fragment_size: 1024,
            block_size: 16_384,
            small_size: 16_384,
            group_frags: 8192,
            total_frags: 1 << 20,
            segment_max: 1 << 20,
            checkpoint_segments_max: 64,
            checkpoint_summary_max: 1 << 20,
            checkpoint_nodes_max: 2048,
        };
        Owner::new(
            BlockKind::SmallData,
            0,
            Ino(40),
            logical,
            FragAddr(0),
            &geometry,
        )
    }

    #[test]
    fn the_same_fragments_in_other_pieces_have_the_same_sum() {
        let mut sums = SpaceSums::new([1; 16], 1 << 20, 1 << 20);
        sums.range(
            Extent::new(FragAddr(65_000), 1000),
            Some(owner(0)),
            Side::Reached,
        );
        for (start, frags) in [(65_400, 600), (65_000, 400)] {
            sums.range(
                Extent::new(FragAddr(start), frags),
                Some(owner(0)),
                Side::Recorded,
            );
        }
        assert_eq!(sums.unequal(), []);
    }

    #[test]
    fn fragments_counted_twice_or_for_another_owner_show() {
        for (extent, whose) in [((10, 5), 0), ((10, 6), 1)] {
            let mut sums = SpaceSums::new([1; 16], 1 << 20, 1 << 20);
            sums.range(Extent::new(FragAddr(10), 6), Some(owner(0)), Side::Reached);
            let extent = Extent::new(FragAddr(extent.0), extent.1);
            sums.range(extent, Some(owner(whose)), Side::Recorded);
            assert_eq!(sums.unequal().len(), 1);
        }
        let mut sums = SpaceSums::new([1; 16], 1 << 20, 1 << 20);
        for side in [Side::Reached, Side::Reached, Side::Recorded] {
            sums.range(Extent::new(FragAddr(10), 6), Some(owner(0)), side);
        }
        assert_eq!(sums.unequal().len(), 1);
    }
}
