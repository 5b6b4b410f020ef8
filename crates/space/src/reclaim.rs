//! What reclaim may want to move: scattered holes, and groups that are nearly empty.

use crate::space::{Space, State};
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::cmp::{Ordering, Reverse};
use std::ops::Range;

/// Cells of the smallest window that compaction looks at.
const WINDOW_UNITS: u64 = 64;

/// A range whose free space lies in holes too small to plug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The range.
    pub extent: Extent,
    /// Fragments in use or held back: what moving has to read and write, at most.
    pub used: u64,
    /// Free fragments in small holes: what it wins.
    pub scattered: u64,
}

/// A group that may be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cheap {
    /// The group.
    pub group: GroupNo,
    /// Fragments in use: what moving has to read and write, at most. What is held back comes by itself.
    pub used: u64,
    /// Free fragments that serve nobody as they are: what it wins.
    pub won: u64,
    /// Free fragments that nobody can use while it is emptied.
    pub closed: u64,
}

impl Space {
    /// Ranges of loaded log groups most of whose free space lies in holes shorter than `hole_max` fragments, where
    /// plugging would cost more in seeks than moving the rest (section 7, "One mover"). The cheapest come first.
    pub fn compact_candidates(&self, hole_max: u64) -> Vec<Candidate> {
        let unit = self.layout.geometry().unit_frags();
        let window = hole_max
            .saturating_mul(8)
            .max(WINDOW_UNITS * unit)
            .min(self.layout.geometry().group_frags)
            .next_power_of_two();
        let mut found = Vec::new();
        for &number in &self.log_groups {
            let State::Loaded(map) = &self.groups[number as usize].state else {
                continue;
            };
            let group = self.layout.extent(number as usize);
            let windows = group.frags.div_ceil(window);
            let mut large = vec![0u64; windows as usize];
            for hole in map
                .holes()
                .filter(|hole| hole.end - hole.start >= hole_max.max(1))
            {
                for at in hole.start / window..=(hole.end - 1) / window {
                    let (start, end) = (at * window, (at + 1) * window);
                    large[at as usize] += hole.end.min(end) - hole.start.max(start);
                }
            }
            for (at, large) in (0..windows).zip(large) {
                let range = at * window..((at + 1) * window).min(group.frags);
                let frags = range.end - range.start;
                let used = map.used_in(range.clone());
                let scattered = frags.saturating_sub(used + large);
                if scattered >= unit && scattered > large && used > 0 {
                    let start = FragAddr(group.start.0 + range.start);
                    let extent = Extent::new(start, frags);
                    found.push(Candidate {
                        extent,
                        used,
                        scattered,
                    });
                }
            }
        }
        found.sort_by(|a, b| {
            ratio(a.used, a.scattered, b.used, b.scattered).then(a.extent.cmp(&b.extent))
        });
        found
    }

    /// Free fragments of log groups in holes of at least `least` fragments: what segments can still be placed in.
    /// Groups that are not loaded count with all that is free in them.
    pub fn log_usable(&self, least: u64) -> u64 {
        let in_group = |number: &u32| self.groups[*number as usize].state.free_in_holes(least);
        self.log_groups.iter().map(in_group).sum::<u64>() + self.log.unloaded
    }

    /// The holes of log groups in which segments may be placed. What bitmaps that are not in memory say is left out.
    pub fn log_holes(&self) -> Vec<Extent> {
        let open = |number: &&u32| !self.closed.contains(&(**number as usize));
        let mut holes = Vec::new();
        for number in self.log_groups.iter().filter(open) {
            let (index, start) = (*number as usize, self.layout.start(*number as usize));
            if let State::Loaded(map) = &self.groups[index].state {
                let extent = |hole: Range<u64>| {
                    Extent::new(FragAddr(start + hole.start), hole.end - hole.start)
                };
                holes.extend(map.holes().map(extent));
            }
        }
        holes
    }

    /// At most `count` log groups whose bitmaps are not in memory, those with most space first.
    pub fn unloaded_log_groups(&self, count: usize) -> Vec<GroupNo> {
        let free = |number: &u32| {
            let index = *number as usize;
            let absent = !matches!(self.groups[index].state, State::Loaded(_));
            let free = self.unused(index);
            (absent && free > 0).then_some((Reverse(free), GroupNo(*number)))
        };
        let mut found: Vec<_> = self.log_groups.iter().filter_map(free).collect();
        found.sort_unstable();
        found
            .into_iter()
            .take(count)
            .map(|(_, group)| group)
            .collect()
    }

    /// The groups of a role that hold something, those first that are cheapest to empty: that hold least for what
    /// emptying wins, which is what is free in holes shorter than `hole_max` fragments (the others serve as they are).
    /// Meanwhile holes of at least `least` fragments serve nobody. Groups that hold nothing but what cannot be moved, which
    /// is what is held back, and `fixed`, are not worth it. Log groups must be loaded to be known.
    pub fn cheapest_groups(
        &self,
        role: Role,
        hole_max: u64,
        least: u64,
        fixed: &[Extent],
    ) -> Vec<Cheap> {
        let held = self.held.iter().map(|(range, _)| range);
        let fixed = fixed.iter().map(|extent| extent.start.0..extent.end().0);
        let mut staying = vec![0; self.groups.len()];
        for (index, _, extent) in held.chain(fixed).flat_map(|range| self.layout.parts(range)) {
            staying[index] += extent.frags;
        }
        let mut found: Vec<Cheap> = (0u32..)
            .zip(&self.groups)
            .filter(|(_, group)| group.role == role && group.used > group.reserved)
            .filter(|(_, group)| role != Role::Log || matches!(group.state, State::Loaded(_)))
            .map(|(number, group)| Cheap {
                group: GroupNo(number),
                used: (group.used - group.reserved).saturating_sub(staying[number as usize]),
                won: self
                    .unused(number as usize)
                    .saturating_sub(group.state.free_in_holes(hole_max)),
                closed: group.state.free_in_holes(least),
            })
            .filter(|cheap| cheap.won > 0 && cheap.used > 0)
            .collect();
        found.sort_by(|a, b| ratio(a.used, a.won, b.used, b.won).then(a.group.cmp(&b.group)));
        found
    }
}

/// Compares a / b with c / d without dividing.
fn ratio(a: u64, b: u64, c: u64, d: u64) -> Ordering {
    (u128::from(a) * u128::from(d)).cmp(&(u128::from(c) * u128::from(b)))
}
