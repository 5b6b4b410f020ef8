//! Runs for tracks (S2): each in one group of theirs, and in one window, so that a read which is aligned brings all of it.

use super::{FoundSpace, free_groups};
use crate::groups::Groups;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr};

/// A search for a run; see [`super::Placement::find_track`].
pub(super) struct Search<'a> {
    groups: &'a mut Groups,
    frags: u64,
    window: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(groups: &'a mut Groups, frags: u64, window: u64) -> Search<'a> {
        let unit = groups.layout().geometry().unit_frags();
        let frags = frags.max(1).next_multiple_of(unit);
        Search {
            groups,
            frags,
            window,
        }
    }

    /// Looks for a run, in the group of `near` from there on, then anywhere, while `kept` free groups are left.
    pub(super) fn find(&mut self, near: FragAddr, kept: u64) -> FoundSpace {
        let Ok(least) = u32::try_from(self.frags) else {
            return FoundSpace::Full;
        };
        let beside = self.groups.layout().index_near(near);
        let runs = |from| self.groups.of(Role::Track).runs().first(from, least);
        if runs(beside) == Some(beside)
            && let Some(run) = self.run_in(beside, near)
        {
            return FoundSpace::Run(run);
        }
        let mut from = 0;
        while let Some(index) = runs(from) {
            if let Some(run) = self.run_in(index, FragAddr(0)) {
                return FoundSpace::Run(run);
            }
            from = index + 1;
        }
        let tracks = self.groups.of(Role::Track);
        if let Some(index) = tracks.bounds().first(0, least) {
            return FoundSpace::Load(tracks.to_load(index, least));
        }
        self.claim(kept).map_or(FoundSpace::Full, FoundSpace::Run)
    }

    /// The free group nearest to those of tracks: where data should stand, then anywhere.
    fn free_group(&self) -> Option<usize> {
        let layout = self.groups.layout();
        let near = self.groups.of(Role::Track).groups().last();
        let near = near.map_or(0, |last| *last as usize);
        let all = 0..layout.groups();
        let mut within = layout.tiers().data.iter().chain([&all]);
        within.find_map(|within| self.groups.of(Role::Free).nearest(near, within))
    }

    /// A run in a free group, which becomes one of tracks: the nearest to those that there are.
    fn claim(&mut self, kept: u64) -> Option<Extent> {
        while free_groups(self.groups) > kept {
            let index = self.free_group()?;
            if !self.groups.claim(index, Role::Track) {
                return None;
            }
            // A superblock may leave too little.
            if let Some(run) = self.run_in(index, FragAddr(0)) {
                return Some(run);
            }
        }
        None
    }

    /// The first run of a group, not before an address, that goes over no window's border.
    fn run_in(&self, index: usize, from: FragAddr) -> Option<Extent> {
        let start = self.groups.layout().start(index);
        let map = self.groups.group(index).map()?;
        let unit = self.groups.layout().geometry().unit_frags();
        let from = from.0.next_multiple_of(unit);
        map.holes().find_map(|hole| {
            let (at, end) = ((start + hole.start).max(from), start + hole.end);
            let next = (at / self.window + 1) * self.window;
            let at = if at + self.frags > next { next } else { at };
            let fits = self.frags <= self.window && at + self.frags <= end;
            fits.then_some(Extent::new(FragAddr(at), self.frags))
        })
    }
}
