//! How much of the groups is in use, and where: a view that only looks.

use crate::bitmap::extent_map::{ExtentCounts, ExtentMap};
use crate::bitmap::group_map::GroupMap;
use crate::groups::{Group, Groups, State};
use crate::held::Held;
use loamfs_format::group::Role;
use loamfs_format::inode::Tier;
use loamfs_format::{FragAddr, GroupNo};
use std::ops::Range;

/// What the extents of a section have free. Those in groups of the log are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentUse {
    /// Extents of which nothing is in use.
    pub clean: u64,
    /// Others of which at least half is free.
    pub open: u64,
    /// Those of which less is: no section gives them out.
    pub shut: u64,
    /// Fragments that are free in these.
    pub lost: u64,
    /// Groups whose bitmaps are not in memory.
    pub unknown: u64,
}

/// What is in use of a volume's groups.
pub struct Usage<'s> {
    groups: &'s Groups,
    held: &'s Held,
}

impl<'s> Usage<'s> {
    pub(crate) const fn new(groups: &'s Groups, held: &'s Held) -> Usage<'s> {
        Usage { groups, held }
    }

    /// Fragments in use, unshown and reserved ones included, held-back ones not.
    pub fn in_use(&self) -> u64 {
        let used = self.groups.indexes().used();
        used.saturating_sub(self.held.frags())
    }

    /// Fragments that are not in use; those held back count as free, and those of a device that leaves do not.
    pub fn free_frags(&self) -> u64 {
        let layout = self.groups.layout();
        let leaving = layout.leaving().iter().cloned().flatten();
        let lost: u64 = leaving.map(|index| self.groups.unused(index)).sum();
        let free = layout.geometry().total_frags.saturating_sub(self.in_use());
        free.saturating_sub(lost)
    }

    /// Fragments of a group in use, held back, unshown or reserved.
    pub fn used_in(&self, group: GroupNo) -> u64 {
        self.groups.get(group).map_or(0, |known| known.used())
    }

    /// Fragments of all groups of a role, and how many of them are in use, held back or unshown.
    pub fn of_role(&self, role: Role) -> (u64, u64) {
        let layout = self.groups.layout();
        let groups = self.groups.numbered().filter(|(_, it)| it.role() == role);
        groups.fold((0, 0), |(all, used), (number, group)| {
            let frags = layout.extent(number as usize).frags;
            (all + frags, used + group.used())
        })
    }

    /// Whether nothing is in use of a group, held back or unshown, and it has no role.
    pub fn is_vacant(&self, group: GroupNo) -> bool {
        self.groups.get(group).is_none_or(Group::is_vacant)
    }

    /// Whether a group is of the log, and nothing was placed in it behind this time of [`Cleaning::clock`](crate::Cleaning::clock).
    pub fn stays_log(&self, group: GroupNo, clock: u64) -> bool {
        let known = self.groups.get(group);
        known.is_some_and(|it| it.role() == Role::Log && it.written() <= clock)
    }

    /// Whether groups are being emptied.
    pub fn is_emptying(&self) -> bool {
        self.groups.has_closed()
    }

    /// Whether this group is being emptied.
    pub fn is_closed(&self, group: GroupNo) -> bool {
        self.groups.is_closed(group.0 as usize)
    }

    /// Whether there are fast devices beside others, so that one can choose between them.
    pub fn has_tiers(&self) -> bool {
        !self.groups.layout().tiers().log.is_empty()
    }

    /// Whether an address is on a device of this tier.
    pub fn is_on(&self, tier: Tier, addr: FragAddr) -> bool {
        let layout = self.groups.layout();
        let group = layout.index(addr.0);
        layout.tier(tier).iter().any(|range| range.contains(&group))
    }

    /// What the extents of the sections have free in these groups; nothing where these are in none.
    pub fn extents(&self, groups: Range<u32>) -> Option<ExtentUse> {
        let mut found = None;
        for index in groups.start as usize..groups.end as usize {
            if self.groups.layout().shape(index).is_some()
                && self.groups.get(GroupNo(index as u32)).is_some()
            {
                self.add_extents(index, found.get_or_insert_default());
            }
        }
        found
    }

    fn add_extents(&self, index: usize, sum: &mut ExtentUse) {
        let (layout, group) = (self.groups.layout(), self.groups.group(index));
        let add = |sum: &mut ExtentUse, counts: ExtentCounts| {
            sum.clean += counts.clean;
            sum.open += counts.open;
            sum.shut += counts.shut;
            sum.lost += counts.lost * layout.geometry().block_frags();
        };
        let counts = |map: &GroupMap| map.extents().map(ExtentMap::counts);
        match group.state() {
            State::Absent if group.role() == Role::Data => sum.unknown += 1,
            State::Loaded(map) => add(sum, counts(map).unwrap_or_default()),
            State::Empty if group.is_claimable() => {
                let map = layout.map_for(index, Role::Data, layout.pristine_bits(index));
                let map = map.ok().and_then(|map| counts(&map));
                add(sum, map.unwrap_or_default());
            }
            State::Empty | State::Absent => {}
        }
    }

    /// Log groups outside of those in which the log should stand.
    pub fn spilled_log_groups(&self) -> u64 {
        let data = &self.groups.layout().tiers().data;
        let log = self.groups.of(Role::Log).groups();
        let spilled =
            |range: &Range<usize>| log.range(range.start as u32..range.end as u32).count();
        data.iter().map(spilled).sum::<usize>() as u64
    }

    /// Whether it is by these changes of roles, the last ones, that log groups are elsewhere.
    pub fn begins_to_spill(&self, changes: &[(GroupNo, Role)]) -> bool {
        let data = &self.groups.layout().tiers().data;
        let is_elsewhere =
            |group: GroupNo| data.iter().any(|range| range.contains(&(group.0 as usize)));
        let new = changes
            .iter()
            .filter(|(group, role)| *role == Role::Log && is_elsewhere(*group));
        let new = new.count() as u64;
        new > 0 && new == self.spilled_log_groups()
    }
}
