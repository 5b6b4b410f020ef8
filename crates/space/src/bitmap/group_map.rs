//! The bitmap of one loaded group, and the summary tree over what can be allocated in it.

use crate::bitmap::Bitmap;
use crate::bitmap::extent_map::{ExtentMap, ExtentShape};
use crate::bitmap::summary_tree::SummaryTree;
use loamfs_format::group::CHUNK_FRAGS;
use std::ops::Range;

/// A group's bitmap in memory. Positions are fragments from the group's start.
///
/// What is given out are *cells*: 4 KiB units in a log group, blocks in a data group. A cell is free only if all
/// of its fragments are, since a unit that holds a live or held-back fragment is never rewritten (rule 5). A log
/// group also keeps the bits of its fragments; those of a data group follow from its cells, which saves fifteen
/// bits of sixteen.
#[derive(Clone, Debug)]
pub(crate) struct GroupMap {
    /// Fragments of the group that lie on the volume.
    frags: u64,
    /// A cell is `1 << shift` fragments.
    shift: u32,
    cells: Bitmap,
    fine: Option<Bitmap>,
    /// Cells that are never given out whatever they hold: cut by the volume's end or by a superblock.
    fixed: Vec<u64>,
    clear_cells: u64,
    tree: SummaryTree,
    /// Where the group is cut into extents.
    extents: Option<ExtentMap>,
}

impl GroupMap {
    /// Builds the map from one bit a fragment. `reserved` fragments are set for good and must be set in `bits`.
    /// `fine` tells whether single fragments can be allocated; if not, `Err` names a fragment of a block that is
    /// only partly in use, which no writer leaves behind.
    pub(crate) fn new(
        bits: Bitmap,
        cell_frags: u64,
        fine: bool,
        reserved: &[Range<u64>],
    ) -> Result<GroupMap, u64> {
        let frags = bits.len();
        let shift = cell_frags.trailing_zeros();
        let count = frags.div_ceil(cell_frags);
        let mut cells = Bitmap::new(count);
        let mut fixed = Vec::new();
        for range in reserved {
            fixed.extend(range.start >> shift..range.end.div_ceil(cell_frags));
        }
        if !frags.is_multiple_of(cell_frags) {
            fixed.push(count - 1);
        }
        fixed.sort_unstable();
        fixed.dedup();
        for cell in 0..count {
            let range = cell << shift..frags.min((cell + 1) << shift);
            let whole = fixed.binary_search(&cell).is_err();
            if !whole || !bits.is_clear(range.clone()) {
                if whole && !fine && !bits.is_set(range.clone()) {
                    return Err(range.start);
                }
                cells.set(cell..cell + 1);
            }
        }
        Ok(GroupMap {
            frags,
            shift,
            clear_cells: count - cells.ones(),
            tree: SummaryTree::new(&cells),
            cells,
            fine: (fine && shift > 0).then_some(bits),
            fixed,
            extents: None,
        })
    }

    /// Cuts the cells into extents of this shape, or into none any more.
    pub(crate) fn cut(&mut self, shape: Option<ExtentShape>) {
        self.extents = shape.map(|shape| ExtentMap::new(shape, &self.cells));
    }

    /// The extents, where the group is cut into such.
    pub(crate) fn extents(&self) -> Option<&ExtentMap> {
        self.extents.as_ref()
    }

    /// Whether what is known of the extents is what the bits say.
    pub(crate) fn extents_agree(&self) -> bool {
        let counted = |known: &ExtentMap| *known == ExtentMap::new(*known.shape(), &self.cells);
        self.extents.as_ref().is_none_or(counted)
    }

    /// As many fragments as one extent has free for sure, see [`ExtentMap::best`].
    pub(crate) fn best_extent(&self) -> u64 {
        self.extents.as_ref().map_or(0, ExtentMap::best) << self.shift
    }

    /// Runs of extents for `want` fragments, in fragments.
    pub(crate) fn room_in_extents(&self, want: u64, clean: bool) -> Option<Range<u64>> {
        let extents = self.extents.as_ref()?;
        let want = want.div_ceil(1 << self.shift);
        let cells = match clean {
            true => extents.clean(want),
            false => extents.open(&self.cells, want),
        };
        cells.map(|cells| cells.start << self.shift..cells.end << self.shift)
    }

    /// Free fragments from `at` on in the extents, see [`ExtentMap::goes_on`].
    pub(crate) fn goes_on(&self, at: u64, want: u64) -> u64 {
        if at & ((1 << self.shift) - 1) != 0 {
            return 0;
        }
        let want = want.div_ceil(1 << self.shift);
        let on = |extents: &ExtentMap| extents.goes_on(&self.cells, at >> self.shift, want);
        self.extents.as_ref().map_or(0, on) << self.shift
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<GroupMap>()
            + self.cells.bytes()
            + self.tree.bytes()
            + self.fine.as_ref().map_or(0, Bitmap::bytes)
            + self.extents.as_ref().map_or(0, ExtentMap::bytes)
    }

    /// Fragments of the cells that can be given out.
    pub(crate) fn clear_frags(&self) -> u64 {
        self.clear_cells << self.shift
    }

    /// Whether a range may be marked: always in a log group, whole blocks in a data group.
    pub(crate) fn is_aligned(&self, range: &Range<u64>) -> bool {
        self.fine.is_some() || (range.start | range.end) & ((1 << self.shift) - 1) == 0
    }

    fn cells_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start >> self.shift..((range.end - 1) >> self.shift) + 1
    }

    /// Whether no fragment of a range is set.
    pub(crate) fn is_clear(&self, range: Range<u64>) -> bool {
        match &self.fine {
            Some(fine) => fine.is_clear(range),
            None => self.cells.is_clear(self.cells_of(&range)),
        }
    }

    /// Whether every fragment of a range is set.
    pub(crate) fn is_set(&self, range: Range<u64>) -> bool {
        match &self.fine {
            Some(fine) => fine.is_set(range),
            None => self.cells.is_set(self.cells_of(&range)),
        }
    }

    /// Sets the fragments of an aligned range that is clear.
    pub(crate) fn set(&mut self, range: Range<u64>) {
        let cells = self.cells_of(&range);
        if let Some(fine) = &mut self.fine {
            fine.set(range);
        }
        let changed = self.cells.set(cells.clone());
        self.clear_cells -= changed;
        if changed > 0 {
            self.summarise(cells);
        }
    }

    /// Clears the fragments of an aligned range that is set and holds nothing reserved.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        let mut cells = self.cells_of(&range);
        if let Some(fine) = &mut self.fine {
            fine.clear(range);
            // Only the outer cells may still hold something else.
            let free = |cell: u64| fine.is_clear(cell << self.shift..(cell + 1) << self.shift);
            if !free(cells.start) {
                cells.start += 1;
            }
            if !cells.is_empty() && !free(cells.end - 1) {
                cells.end -= 1;
            }
        }
        if !cells.is_empty() {
            self.clear_cells += self.cells.clear(cells.clone());
            for &cell in self.fixed.iter().filter(|&cell| cells.contains(cell)) {
                self.clear_cells -= self.cells.set(cell..cell + 1);
            }
            self.summarise(cells);
        }
    }

    fn summarise(&mut self, cells: Range<u64>) {
        let (low, high) = (cells.start / 64, (cells.end - 1) / 64);
        self.tree.update(&self.cells, low as usize, high as usize);
        if let Some(extents) = &mut self.extents {
            extents.update(&self.cells, cells);
        }
    }

    /// The longest run of free cells, in fragments.
    pub(crate) fn longest(&self) -> u64 {
        self.tree.longest() << self.shift
    }

    /// Where the first run of free cells of at least `least` fragments starts, not before `from`.
    pub(crate) fn find(&self, from: u64, least: u64) -> Option<u64> {
        let cell = 1 << self.shift;
        let found = self.tree.find(
            &self.cells,
            from.div_ceil(cell),
            least.max(1).div_ceil(cell),
        )?;
        Some(found << self.shift)
    }

    /// Free whole cells from `at` on, in fragments, at most `max`.
    pub(crate) fn run(&self, at: u64, max: u64) -> u64 {
        if at & ((1 << self.shift) - 1) != 0 {
            return 0;
        }
        self.cells.clear_run(at >> self.shift, max >> self.shift) << self.shift
    }

    /// Set fragments in a range; reserved ones may or may not be counted.
    pub(crate) fn used_in(&self, range: Range<u64>) -> u64 {
        match &self.fine {
            Some(fine) => fine.ones_in(range),
            None => self.cells.ones_in(self.cells_of(&range)) << self.shift,
        }
    }

    /// The runs of free cells, as ranges of fragments.
    pub(crate) fn holes(&self) -> impl Iterator<Item = Range<u64>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.tree.find(&self.cells, at, 1)?;
            at = start + self.cells.clear_run(start, u64::MAX);
            Some(start << self.shift..at << self.shift)
        })
    }

    /// The runs of free cells in a range that is widened to whole cells.
    pub(crate) fn holes_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut at = range.start >> self.shift << self.shift;
        let end = range.end.next_multiple_of(1 << self.shift);
        std::iter::from_fn(move || {
            let start = self.find(at, 1).filter(|start| *start < end)?;
            at = start + self.run(start, end - start);
            Some(start..at)
        })
    }

    /// Adds the bits of a chunk to `out`: those of the fragments `range`, the first of which is bit `bit` of the
    /// chunk. Reserved fragments are left to the caller.
    pub(crate) fn export(&self, range: Range<u64>, bit: u64, out: &mut Bitmap) {
        let range = range.start..range.end.min(self.frags);
        let shift = self.shift;
        if let Some(fine) = &self.fine {
            let mut at = range.start;
            while at < range.end {
                at += fine.clear_run(at, range.end - at);
                let start = at;
                while at < range.end && fine.get(at) {
                    at += 1;
                }
                let from = bit + start - range.start;
                out.set(from..from + (at - start));
            }
            return;
        }
        for cell in range.start >> shift..range.end.div_ceil(1 << shift) {
            if self.cells.get(cell) && self.fixed.binary_search(&cell).is_err() {
                let start = (cell << shift).max(range.start);
                let end = ((cell + 1) << shift).min(range.end);
                let from = bit + start - range.start;
                out.set(from..from + (end - start));
            }
        }
    }
}

/// A bitmap of a chunk's size.
pub(crate) fn empty_chunk() -> Bitmap {
    Bitmap::new(CHUNK_FRAGS)
}
