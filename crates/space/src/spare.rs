//! Free groups that something may be kept in until they are needed: a view that only looks.

use crate::groups::Groups;
use loamfs_format::GroupNo;
use loamfs_format::group::Role;
use std::ops::Range;

/// Free groups of some ranges.
#[derive(Clone, Copy, Debug)]
pub struct Spare<'s>(&'s Groups);

impl<'s> Spare<'s> {
    pub(crate) const fn new(groups: &'s Groups) -> Spare<'s> {
        Spare(groups)
    }

    /// Groups of `within`, by number, that have no role, may take one, and are whole: those that the log and data will take
    /// last come first, as either takes what is nearest to what it has.
    pub fn farthest(self, within: &[Range<u32>]) -> Vec<GroupNo> {
        let (free, cut) = (self.0.of(Role::Free).groups(), self.0.uneven());
        let mut found: Vec<(u32, u32)> = Vec::new();
        for range in within.iter().filter(|range| range.start < range.end) {
            let taken = range.clone().filter(|group| !free.contains(group));
            let taken: Vec<u32> = taken.collect();
            for group in free
                .range(range.clone())
                .filter(|group| !cut.contains(group))
            {
                let behind = taken.partition_point(|taken| taken < group);
                let beside = taken[..behind].last().into_iter().chain(taken.get(behind));
                let nearest = beside.map(|taken| taken.abs_diff(*group)).min();
                found.push((nearest.unwrap_or(u32::MAX), *group));
            }
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, group)| GroupNo(group)).collect()
    }
}
