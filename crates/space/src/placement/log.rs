//! Where dynamic segments go (H10): runs of free units where the log goes on. `log::segment` builds a dynamic segment over them,
//! and `log::plugging` cuts one into holes.

use super::{FoundSpace, HOLES, WORTH_A_SEEK, free_groups, is_roomy, least_hole};
use crate::groups::Groups;
use crate::law::{Law, Rules};
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

/// A search for a run of free units; see [`super::Placement::find_log`].
pub(super) struct Search<'a> {
    groups: &'a mut Groups,
    law: &'a Law<dyn Rules>,
    /// Fragments wanted, and the fewest of a hole that will do.
    want: u64,
    least: u64,
    near: FragAddr,
    /// The group of `near`.
    own: usize,
    /// The groups that are looked at.
    within: Range<usize>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        groups: &'a mut Groups,
        law: &'a Law<dyn Rules>,
        want: u64,
        least: u64,
        near: FragAddr,
    ) -> Search<'a> {
        let geometry = groups.layout().geometry();
        let (unit, total) = (geometry.unit_frags(), geometry.total_frags);
        let want = want.clamp(1, total).next_multiple_of(unit);
        // No hole of a whole group is too small.
        let least = least.clamp(1, want).min(geometry.group_frags / 2);
        let near = FragAddr(near.0.min(total).next_multiple_of(unit));
        Search {
            want,
            least: least.next_multiple_of(unit),
            near,
            own: groups.layout().index_near(near),
            within: 0..groups.layout().groups(),
            groups,
            law,
        }
    }

    /// Looks for a run, while `kept` free groups are taken last: where the log should stand, then anywhere.
    pub(super) fn find(&mut self, kept: u64) -> FoundSpace {
        let all = self.within.clone();
        for within in self.groups.layout().tiers().log.clone() {
            self.within = within;
            match self.find_within(kept) {
                FoundSpace::Full => {}
                found => return found,
            }
        }
        self.within = all;
        match self.find_within(kept) {
            FoundSpace::Full => self.claim_run(0).map_or(FoundSpace::Full, FoundSpace::Run),
            found => found,
        }
    }

    fn find_within(&mut self, kept: u64) -> FoundSpace {
        let all_log = self.groups.is_all_log();
        let enough = if all_log { self.least } else { self.want };
        let on = self.goes_on();
        if on >= enough {
            return FoundSpace::Run(Extent::new(self.near, on));
        }
        let found = match all_log {
            true => self.own_bitmap(),
            false => self.next_fit().or_else(|| self.long_hole()),
        };
        if let Some(found) = found {
            return found;
        }
        match self.claim_run(kept) {
            Some(run) => FoundSpace::Run(run),
            None if all_log => self.next_fit().unwrap_or_else(|| self.largest_hole()),
            None => self.largest_hole(),
        }
    }

    /// Whether a run may continue at `near`, and is looked for there.
    fn may_go_on(&self) -> bool {
        self.within.contains(&self.own) && self.groups.may_go_on(self.near)
    }

    /// Fragments of the run that continues at `near`.
    fn goes_on(&self) -> u64 {
        match self.may_go_on() {
            true => self.run_at(self.near),
            false => 0,
        }
    }

    /// The bitmap of the group in which the log stands, if it is not in memory: each mount would begin another group.
    fn own_bitmap(&self) -> Option<FoundSpace> {
        let least = u32::try_from(self.least).ok()?;
        let own = self.own..self.own + 1;
        let bounds = self.groups.of(Role::Log).bounds();
        let has_room = self.may_go_on() && bounds.max_in(&own) >= least;
        has_room.then(|| FoundSpace::Load(vec![GroupNo(self.own as u32)]))
    }

    /// Fragments of the free run at an address, as far as it is wanted and lies where one is looked for.
    fn run_at(&self, at: FragAddr) -> u64 {
        let end = self.groups.layout().start(self.within.end);
        let most = self.want.min(end.saturating_sub(at.0));
        self.groups.ranges().run(Role::Log, at, most)
    }

    /// Whether the log is to be one run upward, rather than to fill what is left of groups: on a shingled disk, while half of them are free, and where
    /// they are not small.
    fn goes_up(&self) -> bool {
        let geometry = self.groups.layout().geometry();
        let small = geometry.frags_for(WORTH_A_SEEK) > geometry.group_frags / HOLES;
        self.groups.spares_bands() && is_roomy(self.groups) && !small
    }

    /// The run that continues at `near`, if it now goes on into a group that was claimed. To leave the end of a group as a hole would
    /// break the run: a seek, and on a shingled disk a band that is rewritten. Where room is short whole groups are what is counted.
    fn goes_on_into(&self, index: usize) -> Option<Extent> {
        let run = Extent::new(self.near, self.goes_on());
        let end = run.end().0;
        let into = self.groups.layout().start(index);
        let goes_on = self.near.0 < into && into < end && run.frags >= self.least;
        (goes_on && self.goes_up()).then_some(run)
    }

    /// A run in a free group, which becomes a log group, while more than `kept` of them are left.
    fn claim_run(&mut self, kept: u64) -> Option<Extent> {
        while free_groups(self.groups) > kept {
            let index = self.free_group()?;
            if !self.groups.claim(index, Role::Log) {
                return None;
            }
            if let Some(run) = self.goes_on_into(index) {
                return Some(self.grow(run, kept));
            }
            // A superblock may leave too little.
            let map = self.groups.group(index).map();
            let longest = map.map_or(0, |map| map.longest());
            if longest >= self.least
                && let Some(run) = self.run_in(index, 0, self.want.min(longest))
            {
                return Some(self.grow(run, kept));
            }
        }
        None
    }

    /// The first run behind `near` that is as long as wanted, or as a group, going around once. Where the log
    /// goes up, what is wanted goes to no hole that is not worth a seek.
    fn next_fit(&self) -> Option<FoundSpace> {
        let layout = self.groups.layout();
        let group_frags = layout.geometry().group_frags;
        // No group has a longer run; those of neighbours may continue it.
        let worth = match self.goes_up() {
            true => least_hole(self.groups),
            false => 0,
        };
        let cap = self.want.max(worth).min(group_frags);
        let from = self.near.0 - layout.start(self.own);
        let is_near = self.within.contains(&self.own);
        if let Some(run) = self.run_in(self.own, from, cap).filter(|_| is_near) {
            return Some(FoundSpace::Run(run));
        }
        let least = u32::try_from(cap).ok()?;
        // A group that has only little space left is not worth its bitmap while others have more.
        let free = self.groups.of(Role::Free).is_any(&self.within);
        let crowded = !free || !self.law.gathers_segments();
        let worth = if crowded { 0 } else { (group_frags / 4) as u32 };
        let worth = worth.max(least);
        let count = layout.groups();
        let ahead = |index: usize| (index + count - self.own) % count;
        let log = self.groups.of(Role::Log);
        let within = &self.within;
        let bound = log.bounds().first_around(self.own, worth, within);
        let run = log.runs().first_around(self.own + 1, least, within);
        // The own group's run before `near` comes last.
        let run_ahead = run.map(|index| {
            if index == self.own {
                count
            } else {
                ahead(index)
            }
        });
        match (run, bound) {
            (Some(_), Some(bound)) if Some(ahead(bound)) < run_ahead => {
                Some(FoundSpace::Load(log.to_load(bound, worth)))
            }
            (Some(index), _) => self.run_in(index, 0, cap).map(FoundSpace::Run),
            (None, Some(bound)) => Some(FoundSpace::Load(log.to_load(bound, worth))),
            (None, None) => None,
        }
    }

    /// The first run of at least `least` fragments of a loaded log group, followed beyond the group's end. What is free on a
    /// device that leaves is no run.
    fn run_in(&self, index: usize, from: u64, least: u64) -> Option<Extent> {
        let group = self.groups.group(index);
        let map = group.map()?;
        let leaves = self.groups.layout().is_leaving(index);
        let homes = self.groups.is_home_head(index);
        if leaves || homes || group.role() != Role::Log || least == 0 {
            return None;
        }
        let at = FragAddr(self.groups.layout().start(index) + map.find(from, least)?);
        Some(Extent::new(at, self.run_at(at)))
    }

    /// The largest hole that is known, once half of the groups are taken, if it is worth a seek: inode blocks and directories
    /// leave such holes with the next segments. Else the log would lie thinly in ever more groups, which data lack.
    fn long_hole(&self) -> Option<FoundSpace> {
        let longest = self.groups.of(Role::Log).runs().max_in(&self.within);
        let least = least_hole(self.groups).min(self.want).max(self.least);
        if is_roomy(self.groups) || u64::from(longest) < least {
            return None;
        }
        Some(self.largest_hole()).filter(|found| matches!(found, FoundSpace::Run(_)))
    }

    /// Claims the free groups behind a run until it is as long as wanted, or `kept` are left.
    fn grow(&mut self, run: Extent, kept: u64) -> Extent {
        let mut run = run;
        if self.groups.is_all_log() {
            return run;
        }
        loop {
            let (end, layout) = (run.end().0, self.groups.layout());
            let next = layout.index(end);
            if run.frags >= self.want
                || free_groups(self.groups) <= kept
                || layout.position(end) != 0
                || !self.within.contains(&next)
                || !self.groups.claim(next, Role::Log)
            {
                return run;
            }
            let longer = self.run_at(run.start);
            if longer == run.frags {
                return run;
            }
            run.frags = longer;
        }
    }

    /// The free group that the log should take next.
    fn free_group(&self) -> Option<usize> {
        let (free, within) = (self.groups.of(Role::Free), &self.within);
        let own = self.own;
        let log = self.groups.of(Role::Log).groups();
        if log.is_empty() {
            return free.nearest(own, within);
        }
        // Near the log, then near its head, then ahead of it.
        let rank =
            |log: usize, free: usize| (free.abs_diff(log), free.abs_diff(own), free < own, free);
        let near = |log: &u32| {
            let log = *log as usize;
            free.nearest(log, within).map(|free| rank(log, free))
        };
        let best = log.iter().filter_map(near).min();
        best.map(|(_, _, _, free)| free)
    }

    /// The largest hole of the loaded groups, if that is large enough.
    fn largest_hole(&self) -> FoundSpace {
        let log = self.groups.of(Role::Log);
        let longest = log.runs().max_in(&self.within);
        if longest > 0 && u64::from(longest) >= self.least {
            let index = log.runs().first_around(self.own, longest, &self.within);
            let least = u64::from(longest).min(self.want);
            if let Some(run) = index.and_then(|index| self.run_in(index, 0, least)) {
                return FoundSpace::Run(run);
            }
        }
        let Ok(least) = u32::try_from(self.least) else {
            return FoundSpace::Full;
        };
        match log.bounds().first_around(self.own, least, &self.within) {
            Some(index) => FoundSpace::Load(log.to_load(index, least)),
            None => FoundSpace::Full,
        }
    }
}
