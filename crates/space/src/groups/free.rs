//! What bitmaps in memory say of a range.

use super::{Groups, State};
use loamfs_format::{Extent, FragAddr};
use std::ops::Range;

impl Groups {
    /// The free runs of whole cells in a range.
    pub(crate) fn free_runs(&self, extent: Extent) -> Vec<Extent> {
        let mut runs: Vec<Extent> = Vec::new();
        let end = extent.start.0.saturating_add(extent.frags);
        let range = extent.start.0..end.min(self.layout.geometry().total_frags);
        for (index, bits, _) in self.layout.parts(range) {
            let start = self.layout.start(index);
            for hole in self.holes(index, bits) {
                let run = Extent::new(FragAddr(start + hole.start), hole.end - hole.start);
                match runs.last_mut().filter(|last| last.end() == run.start) {
                    Some(last) => last.frags += run.frags,
                    None => runs.push(run),
                }
            }
        }
        runs
    }

    /// The runs of free cells in a part of a group, if its bitmap is known.
    fn holes(&self, index: usize, bits: Range<u64>) -> Vec<Range<u64>> {
        let group = &self.table[index];
        match group.state() {
            State::Loaded(map) => map.holes_in(bits).collect(),
            State::Empty if group.is_current() => self
                .layout
                .map_for(index, group.role(), self.layout.pristine_bits(index))
                .map(|map| map.holes_in(bits).collect())
                .unwrap_or_default(),
            State::Empty | State::Absent => Vec::new(),
        }
    }

    /// How many fragments of a range are set; those of bitmaps that are not in memory may be.
    pub(crate) fn set_frags(&self, range: Range<u64>) -> u64 {
        let parts = self.layout.parts(range);
        let used = parts.map(|(index, bits, extent)| match self.table[index].state() {
            State::Absent => extent.frags,
            State::Empty => 0,
            State::Loaded(map) => map.used_in(bits),
        });
        used.sum()
    }

    /// A fragment's bit in memory, if the bitmap of its group is known.
    pub(crate) fn is_set(&self, addr: FragAddr) -> Option<bool> {
        let extent = Extent::new(addr, 1);
        let range = self.layout.on_volume(extent).ok()?;
        let (index, bits, _) = self.layout.parts(range).next()?;
        match self.table[index].state() {
            State::Absent => None,
            State::Empty => Some(self.layout.is_reserved(extent)),
            State::Loaded(map) => Some(!map.is_clear(bits)),
        }
    }
}
