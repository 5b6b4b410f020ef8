//! Homes for the blocks of large files (H9, H19): long extents near the directory's anchor group.

use crate::bitmap::max_tree::MaxTree;
use crate::find_log::{Found, hopes_from};
use crate::space::{Space, State};
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};

/// Bytes of the smallest hole that is begun while half of the groups are free, where groups are not small.
const WORTH_A_SEEK: u64 = 1 << 20;
/// Where they are, it is one of so many parts of a group.
const HOLES: u64 = 8;

/// Where a run may be found: the nearest first, and at the same distance the surest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Loaded,
    Unloaded,
    Free,
}

impl Space {
    /// Looks for one free extent of at most `blocks` blocks, as long as possible; the caller allocates it and comes
    /// back for the rest, with `goal` behind it. Free groups that the extent reaches into become data groups: a
    /// group's size limits no extent.
    ///
    /// In this order: on from `goal`, where the file's last extent ends (address 0: nowhere), however short; while half of
    /// the groups are free, on from where the last extent near this `anchor` ends, if all of it fits; the group nearest
    /// to `anchor` that has, or may have, a run of the wanted length, and of a mebibyte while half of the groups are
    /// free, or is free itself; the largest run.
    pub fn find_data(&mut self, blocks: u64, goal: FragAddr, anchor: GroupNo) -> Found {
        let block = self.layout.geometry().block_frags();
        let want = blocks.clamp(1, self.layout.geometry().total_frags / block + 1) * block;
        let found = match self.continue_at(goal, want) {
            Some(found) => found,
            None => self.find_hole(want, goal, anchor),
        };
        if let Found::Run(extent) = &found {
            self.data_ends.insert(anchor, extent.end());
        }
        found
    }

    /// A hole that was begun and has room, or another.
    fn find_hole(&mut self, want: u64, goal: FragAddr, anchor: GroupNo) -> Found {
        let least = self.least_hole();
        let begun = self.data_ends.get(&anchor).filter(|_| least > 0);
        if let Some(begun) = begun.copied() {
            match self.continue_at(begun, want) {
                Some(Found::Run(run)) if run.frags < want => {}
                Some(found) => return found,
                None => {}
            }
        }
        self.find_other_hole(want, least, goal, anchor)
    }

    /// Looks for a hole of at least `least` fragments, if there is one.
    fn find_other_hole(&mut self, want: u64, least: u64, goal: FragAddr, anchor: GroupNo) -> Found {
        let anchor = (anchor.0 as usize).min(self.groups.len().saturating_sub(1));
        let cap = want.max(least).min(self.layout.geometry().group_frags) as u32;
        while let Some((source, index)) = self.nearest_source(anchor, cap) {
            match source {
                Source::Loaded => return self.data_run_in(index, goal, cap.into(), want),
                Source::Unloaded => return Found::Load(hopes_from(&self.data_hopes, index, cap)),
                Source::Free => {
                    if !self.claim(index, Role::Data) {
                        break;
                    }
                    let longest = self.data_runs.get(index);
                    if longest > 0 {
                        let least = longest.min(cap).into();
                        return self.data_run_in(index, goal, least, want);
                    }
                }
            }
        }
        self.largest_data_run(anchor, goal, cap, want)
    }

    /// Fragments of the smallest hole that is begun. While there is plenty, what is written into small ones costs more in
    /// seeks than in transfer, and what is written together lies apart.
    fn least_hole(&self) -> u64 {
        let plenty = self.free_groups() > self.groups.len() as u64 / 2;
        let worth = WORTH_A_SEEK / u64::from(self.layout.geometry().fragment_size);
        if plenty {
            worth.min(self.layout.geometry().group_frags / HOLES)
        } else {
            0
        }
    }

    fn continue_at(&mut self, goal: FragAddr, want: u64) -> Option<Found> {
        if goal.0 == 0 || goal.0 >= self.layout.geometry().total_frags {
            return None;
        }
        let index = self.layout.index_near(goal);
        if self.closed.contains(&index) {
            return None;
        }
        let group = &self.groups[index];
        if group.role == Role::Data && self.data_hopes.get(index) > 0 {
            return Some(Found::Load(vec![GroupNo(index as u32)]));
        }
        let run = self.data_run(goal, want);
        (run > 0).then(|| Found::Run(Extent::new(goal, run)))
    }

    /// Where to look for a run of `least` fragments.
    fn nearest_source(&self, anchor: usize, least: u32) -> Option<(Source, usize)> {
        let near = |tree: &MaxTree| {
            [tree.first(anchor, least), tree.last(anchor, least)]
                .into_iter()
                .flatten()
                .min_by_key(|index| index.abs_diff(anchor))
        };
        let number = anchor as u32;
        let free = self.data_may_claim().then(|| {
            let above = self.free.range(number..).next();
            let below = self.free.range(..number).next_back();
            [above, below]
                .into_iter()
                .flatten()
                .min_by_key(|free| free.abs_diff(number))
        });
        let sources = [
            (Source::Loaded, near(&self.data_runs)),
            (Source::Unloaded, near(&self.data_hopes)),
            (Source::Free, free.flatten().map(|&free| free as usize)),
        ];
        sources
            .into_iter()
            .filter_map(|(source, index)| Some((source, index?)))
            .min_by_key(|&(source, index)| (index.abs_diff(anchor), source))
    }

    /// Whether there are more free groups than the log keeps.
    fn data_may_claim(&self) -> bool {
        self.free_groups() > self.kept_for_log
    }

    /// The first run of at least `least` fragments of a loaded data group; behind `goal` if that is in the group.
    fn data_run_in(&mut self, index: usize, goal: FragAddr, least: u64, want: u64) -> Found {
        let start = self.layout.start(index);
        let State::Loaded(map) = &self.groups[index].state else {
            return Found::Full;
        };
        let from = goal
            .0
            .checked_sub(start)
            .filter(|&from| from < self.layout.geometry().group_frags);
        let at = from
            .and_then(|from| map.find(from, least))
            .or_else(|| map.find(0, least));
        match at {
            Some(at) => {
                let at = FragAddr(start + at);
                Found::Run(Extent::new(at, self.data_run(at, want)))
            }
            None => Found::Full,
        }
    }

    /// Free whole blocks from `at` on, across the borders of data groups, and into free groups, which are claimed.
    fn data_run(&mut self, at: FragAddr, max: u64) -> u64 {
        let mut found = 0;
        while found < max && at.0 + found < self.layout.geometry().total_frags {
            let here = at.0 + found;
            let index = self.layout.index(here);
            let from = self.layout.position(here);
            if self.groups[index].role == Role::Free {
                let block = self.layout.geometry().block_frags();
                let free = from.is_multiple_of(block)
                    && self
                        .layout
                        .geometry()
                        .group_extent(GroupNo(index as u32))
                        .frags
                        >= from + block
                    && !self.layout.is_reserved(Extent::new(FragAddr(here), block));
                if !free || !self.data_may_claim() || !self.claim(index, Role::Data) {
                    break;
                }
            }
            let State::Loaded(map) = &self.groups[index].state else {
                break;
            };
            if self.groups[index].role != Role::Data {
                break;
            }
            let run = map.run(from, max - found);
            found += run;
            if run == 0 || self.layout.index(here + run) == index {
                break;
            }
        }
        found
    }

    /// The largest run of the loaded groups, unless one not loaded promises far more.
    fn largest_data_run(&mut self, anchor: usize, goal: FragAddr, cap: u32, want: u64) -> Found {
        let block = self.layout.geometry().block_frags() as u32;
        let (run, hope) = (self.data_runs.max(), self.data_hopes.max());
        if hope >= block && hope > run && run < cap / 8 || run < block {
            if hope < block {
                return Found::Full;
            }
            let least = hope.min(cap);
            let index = self.data_hopes.first(anchor, least);
            let index = index.or_else(|| self.data_hopes.first(0, least));
            return Found::Load(hopes_from(&self.data_hopes, index.unwrap_or(anchor), least));
        }
        let index = self
            .data_runs
            .first(anchor, run)
            .or_else(|| self.data_runs.first(0, run));
        self.data_run_in(index.unwrap_or(anchor), goal, run.into(), want)
    }
}
