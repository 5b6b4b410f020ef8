//! The extents of a section in the blocks of one group (hybridFS, section III.B): how many blocks each has free, and by that
//! `log2(x) + 1` bitmaps of extents.
//!
//! What is counted follows from the group's bitmap, and is nowhere else.

use crate::bitmap::Bitmap;
use std::ops::Range;

/// How the blocks of a group are cut into extents. All are counts of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentShape {
    /// Where the first extent begins: those before stand in front of the first border of a flash block.
    pub(crate) first: u64,
    /// Blocks of an extent, a power of two. Where extents are smaller than a flash block it is a virtual one, which is as long as that.
    pub(crate) extent: u64,
    /// What is counted of an extent, a power of two: blocks, or the extents in a virtual one.
    pub(crate) piece: u64,
}

impl ExtentShape {
    /// How many bitmaps there are.
    fn classes(&self) -> usize {
        (self.extent / self.piece).trailing_zeros() as usize + 1
    }

    /// How many blocks at least the extents of a bitmap have free: all in the first one, and in number `i` behind that all but `2^i`
    /// pieces.
    fn least(&self, class: usize) -> u64 {
        match class.checked_sub(1) {
            None => self.extent,
            Some(i) => self.extent - (self.piece << i),
        }
    }

    /// How many blocks an extent has to have free so that it is likely to have room for `want`: as few as there are bitmaps for, and
    /// never less than half.
    pub(crate) fn least_for(&self, want: u64) -> u64 {
        let mut enough = (1..self.classes()).rev().map(|class| self.least(class));
        let half = self.least(self.classes() - 1);
        enough.find(|least| *least >= want).unwrap_or(half)
    }

    /// As few as an extent may have free that is taken.
    pub(crate) fn half(&self) -> u64 {
        self.least(self.classes() - 1)
    }

    /// The blocks of an extent.
    fn blocks(&self, extent: u64) -> Range<u64> {
        let start = self.first + extent * self.extent;
        start..start + self.extent
    }

    /// The extent that holds a block.
    fn extent_of(&self, block: u64) -> Option<u64> {
        Some(block.checked_sub(self.first)? / self.extent)
    }
}

/// How much of what they have the extents of a group, or of several, have free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtentCounts {
    /// Extents of which nothing is in use.
    pub(crate) clean: u64,
    /// Others with at least half of their blocks free.
    pub(crate) open: u64,
    /// Those with less.
    pub(crate) shut: u64,
    /// Blocks that are free in these.
    pub(crate) lost: u64,
}

/// The extents of a loaded group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtentMap {
    shape: ExtentShape,
    /// Free blocks of each extent.
    free: Vec<u32>,
    /// Of each extent a bit that is clear if it has that many blocks free, see [`ExtentShape::least`].
    classes: Vec<Bitmap>,
}

impl ExtentMap {
    /// The extents in the blocks of a group.
    pub(crate) fn new(shape: ExtentShape, blocks: &Bitmap) -> ExtentMap {
        let count = blocks.len().saturating_sub(shape.first) / shape.extent;
        let mut map = ExtentMap {
            shape,
            free: vec![0; count as usize],
            classes: vec![Bitmap::new(count); shape.classes()],
        };
        map.count(blocks, 0..count);
        map
    }

    /// How they are cut.
    pub(crate) fn shape(&self) -> &ExtentShape {
        &self.shape
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let classes: usize = self.classes.iter().map(Bitmap::bytes).sum();
        self.free.len() * size_of::<u32>() + classes
    }

    /// Takes note of changes in a range of blocks.
    pub(crate) fn update(&mut self, blocks: &Bitmap, changed: Range<u64>) {
        let count = self.free.len() as u64;
        let first = self.shape.extent_of(changed.start).unwrap_or(0);
        let end = changed.end.checked_sub(1);
        let end = end.and_then(|last| self.shape.extent_of(last));
        self.count(blocks, first..end.map_or(0, |last| (last + 1).min(count)));
    }

    /// Counts the free blocks of some extents.
    fn count(&mut self, blocks: &Bitmap, extents: Range<u64>) {
        for extent in extents {
            let free = self.shape.extent - blocks.ones_in(self.shape.blocks(extent));
            self.free[extent as usize] = free as u32;
            for (class, bits) in self.classes.iter_mut().enumerate() {
                match free >= self.shape.least(class) {
                    true => bits.clear(extent..extent + 1),
                    false => bits.set(extent..extent + 1),
                };
            }
        }
    }

    /// As many blocks as some extent has free for sure, by the first bitmap that has one; 0 if none has half.
    pub(crate) fn best(&self) -> u64 {
        let has_one = |class: &usize| self.classes[*class].first_clear().is_some();
        let class = (0..self.classes.len()).find(has_one);
        class.map_or(0, |class| self.shape.least(class))
    }

    /// Room for `want` blocks, as far as there is, from the first clean extent on, and in those behind it that are.
    pub(crate) fn clean(&self, want: u64) -> Option<Range<u64>> {
        let extent = self.classes[0].first_clear()?;
        let start = self.shape.blocks(extent).start;
        Some(start..start + self.clean_from(extent, want))
    }

    /// Blocks from the beginning of an extent on in this and those behind it, as long as they are clean, at most `want`.
    fn clean_from(&self, extent: u64, want: u64) -> u64 {
        let run = self.classes[0].clear_run(extent, want.div_ceil(self.shape.extent));
        (run * self.shape.extent).min(want)
    }

    /// Room for `want` blocks, as far as there is, in an extent that has at least half of its blocks free: the first one that has
    /// [`ExtentShape::least_for`] these, or half.
    pub(crate) fn open(&self, blocks: &Bitmap, want: u64) -> Option<Range<u64>> {
        let likely = self.shape.least_for(want);
        let is_likely = |class: &usize| self.shape.least(*class) == likely;
        let last = self.classes.len() - 1;
        let likely = (1..last).find(is_likely).unwrap_or(last);
        let mut classes = [likely, last].into_iter();
        let extent = classes.find_map(|class| self.classes[class].first_clear())?;
        self.room_in(blocks, extent, want)
    }

    /// The first free run of an extent that has room for `want` blocks, or its longest one. In a virtual extent it begins where one of
    /// its extents does, if it can.
    fn room_in(&self, blocks: &Bitmap, extent: u64, want: u64) -> Option<Range<u64>> {
        let all = self.shape.blocks(extent);
        let mut longest: Option<Range<u64>> = None;
        let mut at = all.start;
        while at < all.end {
            let run = blocks.clear_run(at, all.end - at);
            let aligned = all.start + (at - all.start).next_multiple_of(self.shape.piece);
            let start = match aligned < at + run {
                true => aligned,
                false => at,
            };
            let found = start..at + run.min(start - at + want);
            let worth = |range: &Range<u64>| {
                let begins = (range.start - all.start).is_multiple_of(self.shape.piece);
                (range.end - range.start, begins)
            };
            if run > 0 && longest.as_ref().is_none_or(|it| worth(it) < worth(&found)) {
                longest = Some(found);
            }
            at += run.max(1);
        }
        longest
    }

    /// Free blocks from `at` on for a file that ends before: the rest of the extent it has begun, and clean ones behind that, at most
    /// `want`. At the beginning of an extent it has none there.
    pub(crate) fn goes_on(&self, blocks: &Bitmap, at: u64, want: u64) -> u64 {
        let extent = self.shape.extent_of(at);
        let Some(extent) = extent.filter(|extent| *extent < self.free.len() as u64) else {
            return 0;
        };
        let all = self.shape.blocks(extent);
        if at == all.start {
            return self.clean_from(extent, want);
        }
        let rest = all.end - at;
        let run = blocks.clear_run(at, rest.min(want));
        match run == rest {
            true => run + self.clean_from(extent + 1, want - run),
            false => run,
        }
    }

    /// How much they have free.
    pub(crate) fn counts(&self) -> ExtentCounts {
        let mut counts = ExtentCounts::default();
        for free in self.free.iter().map(|free| u64::from(*free)) {
            match free {
                all if all == self.shape.extent => counts.clean += 1,
                some if some >= self.shape.half() => counts.open += 1,
                few => {
                    counts.shut += 1;
                    counts.lost += few;
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Free blocks of each extent, counted one by one.
    fn plain(shape: &ExtentShape, blocks: &Bitmap) -> Vec<u64> {
        let starts = (0..).map(|n| shape.first + n * shape.extent);
        let whole = starts.take_while(|start| start + shape.extent <= blocks.len());
        let free = |start: u64| (start..start + shape.extent).filter(|at| !blocks.get(*at));
        whole.map(|start| free(start).count() as u64).collect()
    }

    fn agree(map: &ExtentMap, blocks: &Bitmap) {
        let free = plain(&map.shape, blocks);
        assert_eq!(
            map.free.iter().map(|f| u64::from(*f)).collect::<Vec<_>>(),
            free
        );
        let pieces = map.shape.extent / map.shape.piece;
        assert_eq!(map.classes.len() as u32, pieces.ilog2() + 1);
        for (extent, free) in free.iter().enumerate() {
            let clear = |class: usize| !map.classes[class].get(extent as u64);
            assert_eq!(clear(0), *free == map.shape.extent);
            for i in 0..pieces.ilog2() {
                let least = (pieces - (1 << i)) * map.shape.piece;
                assert_eq!(clear(i as usize + 1), *free >= least, "{extent} {i}");
            }
        }
    }

    /// The figure of the paper: of 64 blocks a file takes 1, another 11, a third one 48.
    #[test]
    fn the_bitmaps_are_those_of_the_paper() {
        let shape = ExtentShape {
            first: 0,
            extent: 64,
            piece: 1,
        };
        let mut blocks = Bitmap::new(64);
        let mut map = ExtentMap::new(shape, &blocks);
        let bits =
            |map: &ExtentMap| -> Vec<bool> { map.classes.iter().map(|c| c.get(0)).collect() };
        assert_eq!(bits(&map), [false; 7]);
        let mut take = |map: &mut ExtentMap, want, found: Option<Range<u64>>| {
            let range = map.clean(want).or_else(|| map.open(&blocks, want));
            assert_eq!(range, found);
            if let Some(range) = range {
                blocks.set(range.clone());
                map.update(&blocks, range);
            }
        };
        take(&mut map, 1, Some(0..1));
        assert_eq!(bits(&map), [true, false, false, false, false, false, false]);
        take(&mut map, 11, Some(1..12));
        assert_eq!(bits(&map), [true, true, true, true, true, false, false]);
        assert_eq!(map.shape.least_for(48), 48);
        take(&mut map, 48, Some(12..60));
        assert_eq!(bits(&map), [true; 7]);
        take(&mut map, 1, None);
        assert_eq!(
            map.counts(),
            ExtentCounts {
                shut: 1,
                lost: 4,
                ..ExtentCounts::default()
            }
        );
        blocks.clear(0..64);
        map.update(&blocks, 0..64);
        assert_eq!(bits(&map), [false; 7]);
    }

    /// A virtual extent of 64 extents, of which files take 12 and 48, as in the paper, and a third one less than one.
    #[test]
    fn files_in_a_virtual_extent_begin_with_an_extent_of_their_own() {
        let shape = ExtentShape {
            first: 0,
            extent: 256,
            piece: 4,
        };
        let mut blocks = Bitmap::new(256);
        let mut map = ExtentMap::new(shape, &blocks);
        assert_eq!(map.classes.len(), 7);
        for (want, found) in [(45, 0..45), (10, 48..58), (3, 60..63)] {
            let range = map.clean(want).or_else(|| map.open(&blocks, want));
            assert_eq!(range, Some(found.clone()));
            blocks.set(found.clone());
            map.update(&blocks, found);
        }
    }

    proptest! {
        #[test]
        fn counts_bitmaps_and_what_is_found_are_right(
            cells in 1u64..700, first in 0u64..70, extent in 0u32..7, piece in 0u32..7,
            steps in prop::collection::vec((0u8..6, 0u64..700, 1u64..90), 1..120),
        ) {
            let (extent, piece) = (1 << extent, 1 << piece.min(extent.saturating_sub(1)));
            let shape = ExtentShape { first, extent, piece };
            let mut blocks = Bitmap::new(cells);
            let mut map = ExtentMap::new(shape, &blocks);
            let mut end = 0;
            for (what, at, want) in steps {
                let before = plain(&shape, &blocks);
                let found = match what {
                    0 => {
                        let range = at.min(cells - 1)..(at + want).min(cells).max(1);
                        let range = range.start.min(range.end - 1)..range.end;
                        blocks.clear(range.clone());
                        map.update(&blocks, range);
                        agree(&map, &blocks);
                        continue;
                    }
                    1 => {
                        let run = map.goes_on(&blocks, end, want);
                        (run > 0).then(|| end..end + run)
                    }
                    _ => map.clean(want).or_else(|| map.open(&blocks, want)),
                };
                // Nothing is found only where less than half of each extent is free.
                let half = extent.div_ceil(2);
                let some = before.iter().any(|free| *free >= half);
                prop_assert_eq!(map.best() > 0, some);
                let Some(found) = found else {
                    prop_assert!(what == 1 || !some, "{:?}", before);
                    continue;
                };
                prop_assert!(!found.is_empty() && found.end - found.start <= want);
                prop_assert!(blocks.is_clear(found.clone()));
                // Each extent that is begun has half of its blocks free, and all of them if the run goes into others.
                let first_of = shape.extent_of(found.start).unwrap();
                let last_of = shape.extent_of(found.end - 1).unwrap();
                for of in first_of..=last_of {
                    let goes_on = what == 1 && of == first_of && found.start != shape.blocks(of).start;
                    let least = if of > first_of { extent } else { half };
                    prop_assert!(goes_on || before[of as usize] >= least);
                }
                // Where one was clean a file begins at its border.
                if what > 1 && before.contains(&extent) {
                    prop_assert_eq!((found.start - first) % extent, 0);
                    prop_assert_eq!(before[first_of as usize], extent);
                }
                end = found.end;
                blocks.set(found.clone());
                map.update(&blocks, found);
                agree(&map, &blocks);
                let counts = map.counts();
                prop_assert!(counts.lost * 2 < counts.shut * extent || counts.shut == 0);
            }
        }
    }
}
