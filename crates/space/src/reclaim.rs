//! What reclaim may want to move: scattered holes, and groups that are nearly empty.

use crate::space::{Space, State};
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};

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

impl Space {
    /// Ranges of loaded log groups most of whose free space lies in holes shorter than `hole_max` fragments, where
    /// plugging would cost more in seeks than moving the rest (section 7, "One mover"). The cheapest come first.
    pub fn compact_candidates(&self, hole_max: u64) -> Vec<Candidate> {
        let unit = self.geometry.unit_frags();
        let window = hole_max
            .saturating_mul(8)
            .max(WINDOW_UNITS * unit)
            .min(self.geometry.group_frags)
            .next_power_of_two();
        let mut found = Vec::new();
        for &number in &self.log_groups {
            let State::Loaded(map) = &self.groups[number as usize].state else {
                continue;
            };
            let group = self.extent(number as usize);
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
        // Compares used / scattered without dividing.
        found.sort_by(|a, b| {
            let (left, right) = (
                u128::from(a.used) * u128::from(b.scattered),
                u128::from(b.used) * u128::from(a.scattered),
            );
            left.cmp(&right).then(a.extent.cmp(&b.extent))
        });
        found
    }

    /// Free fragments of log groups in holes of at least `least` fragments: what segments can still be placed in.
    /// Groups that are not loaded count with all that is free in them.
    pub fn log_usable(&self, least: u64) -> u64 {
        let in_group = |number: &u32| match &self.groups[*number as usize].state {
            State::Loaded(map) => {
                let holes = map.holes().map(|hole| hole.end - hole.start);
                holes.filter(|frags| *frags >= least).sum()
            }
            _ => 0,
        };
        self.log_groups.iter().map(in_group).sum::<u64>() + self.log.unloaded
    }

    /// The `count` groups of a role that hold least, but something, with the fragments that they hold.
    pub fn emptiest_groups(&self, role: Role, count: usize) -> Vec<(GroupNo, u64)> {
        let mut found: Vec<(GroupNo, u64)> = (0u32..)
            .zip(&self.groups)
            .filter(|(_, group)| group.role == role && group.used > group.reserved)
            .map(|(number, group)| (GroupNo(number), group.used - group.reserved))
            .collect();
        found.sort_by_key(|&(group, used)| (used, group));
        found.truncate(count);
        found
    }
}
