//! What bitmaps in memory say of ranges, and which of them are in memory.

use crate::groups::{Groups, State};
use crate::held::Held;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

/// The bitmaps as they are in memory.
#[derive(Clone, Copy, Debug)]
pub struct Bitmaps<'a> {
    groups: &'a Groups,
    held: &'a Held,
}

impl<'a> Bitmaps<'a> {
    pub(crate) fn new(groups: &'a Groups, held: &'a Held) -> Bitmaps<'a> {
        Bitmaps { groups, held }
    }

    /// Whether the group's bitmap is known: it is in memory, or the group is free and holds nothing.
    pub fn is_loaded(self, group: GroupNo) -> bool {
        let known = self.groups.get(group);
        known.is_some_and(|known| !matches!(known.state(), State::Absent))
    }

    /// Bytes that bitmaps in memory and their trees take.
    pub fn bytes(self) -> usize {
        self.groups.indexes().bytes()
    }

    /// A fragment's bit, if the bitmap of its group is known.
    pub fn is_set(self, addr: FragAddr) -> Option<bool> {
        let layout = self.groups.layout();
        let extent = Extent::new(addr, 1);
        let range = layout.on_volume(extent).ok()?;
        let (index, bits, _) = layout.parts(range).next()?;
        match self.groups.group(index).state() {
            State::Absent => None,
            State::Empty => Some(layout.is_reserved(extent)),
            State::Loaded(map) => Some(!map.is_clear(bits)),
        }
    }

    /// Fragments of an extent that are in use and not held back; those of bitmaps that are not in memory may be.
    pub fn live_frags(self, extent: Extent) -> u64 {
        let Ok(range) = self.groups.layout().on_volume(extent) else {
            return 0;
        };
        let parts = self.groups.layout().parts(range.clone());
        let used = parts.map(
            |(index, bits, part)| match self.groups.group(index).state() {
                State::Absent => part.frags,
                State::Empty => 0,
                State::Loaded(map) => map.used_in(bits),
            },
        );
        let held = self.held.overlapping(range.clone());
        let held = held.map(|(held, _)| held.end.min(range.end) - held.start.max(range.start));
        used.sum::<u64>().saturating_sub(held.sum())
    }

    /// Free whole units of the log from `at` on, in fragments, at most `max`; across the borders of loaded log groups, unless
    /// each is filled by itself. 0 when `at` is not the start of a unit.
    pub fn log_run(self, at: FragAddr, max: u64) -> u64 {
        match self.groups.may_go_on(at) {
            true => self.groups.ranges().run(Role::Log, at, max),
            false => 0,
        }
    }

    /// The free runs in a range that is widened to whole cells: 4 KiB units of log groups, blocks of data groups. What
    /// is in use, unshown, reserved or held back (rule 5) is in none of them; neither is anything of groups whose
    /// bitmaps are not in memory. A device may be told to discard them.
    pub fn free_runs(self, extent: Extent) -> Vec<Extent> {
        let layout = self.groups.layout();
        let mut runs: Vec<Extent> = Vec::new();
        let end = extent.start.0.saturating_add(extent.frags);
        let range = extent.start.0..end.min(layout.geometry().total_frags);
        for (index, bits, _) in layout.parts(range) {
            let start = layout.start(index);
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
    fn holes(self, index: usize, bits: Range<u64>) -> Vec<Range<u64>> {
        let (layout, group) = (self.groups.layout(), self.groups.group(index));
        match group.state() {
            State::Loaded(map) => map.holes_in(bits).collect(),
            State::Empty if group.is_current() => layout
                .map_for(index, group.role(), layout.pristine_bits(index))
                .map(|map| map.holes_in(bits).collect())
                .unwrap_or_default(),
            State::Empty | State::Absent => Vec::new(),
        }
    }
}
