//! Extents for the blocks of large files where everything is in the log (LFS, section 4.3): one behind the other, in groups that
//! held nothing. They have groups of their own, since what is written over, and what is not, should not share them; and
//! since what they fill is no room for a segment that was promised it.

use super::{FoundSpace, free_groups};
use crate::groups::Groups;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr};

/// A search for a run of free blocks; see [`super::Placement::find_data`].
pub(super) struct Search<'a> {
    groups: &'a mut Groups,
    /// Free groups that are left to segments.
    kept: u64,
    /// Fragments wanted.
    want: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(groups: &'a mut Groups, kept: u64, blocks: u64) -> Search<'a> {
        let geometry = groups.layout().geometry();
        let block = geometry.block_frags();
        Search {
            want: blocks.clamp(1, geometry.total_frags / block + 1) * block,
            kept,
            groups,
        }
    }

    /// Looks for a run behind `end`, then in a free group.
    pub(super) fn find(&mut self, end: FragAddr) -> FoundSpace {
        let index = self.groups.layout().index_near(end);
        let goes_on = self.groups.is_home_head(index);
        if goes_on
            && !self.groups.is_closed(index)
            && let Some(run) = self.run_in(index, self.groups.layout().position(end.0))
        {
            return FoundSpace::Run(run);
        }
        let log = self.groups.of(Role::Log).groups().first();
        let near = match goes_on {
            true => index,
            false => log.map_or(index, |first| *first as usize),
        };
        while free_groups(self.groups) > self.kept {
            let Some(index) = self.free_group(near) else {
                break;
            };
            if !self.groups.claim(index, Role::Log) {
                break;
            }
            // A superblock may leave too little.
            if let Some(run) = self.run_in(index, 0) {
                self.groups.areas().fill_with_homes(index);
                return FoundSpace::Run(run);
            }
        }
        FoundSpace::Full
    }

    /// The free group that is nearest to another one: where homes should stand, then anywhere.
    fn free_group(&self, near: usize) -> Option<usize> {
        let free = self.groups.of(Role::Free);
        let layout = self.groups.layout();
        let mut tiers = layout.tiers().data.iter();
        let found = tiers.find_map(|within| free.nearest(near, within));
        found.or_else(|| free.nearest(near, &(0..layout.groups())))
    }

    /// The first run of whole blocks of a group from a position on, as far as it is wanted.
    fn run_in(&self, index: usize, from: u64) -> Option<Extent> {
        let layout = self.groups.layout();
        let (block, start) = (layout.geometry().block_frags(), layout.start(index));
        let map = self.groups.group(index).map()?;
        let mut from = from;
        loop {
            let at = map.find(from, block)?;
            let aligned = at.next_multiple_of(block);
            let run = self
                .groups
                .ranges()
                .run(Role::Log, FragAddr(start + aligned), self.want);
            if run >= block {
                let whole = run - run % block;
                return Some(Extent::new(FragAddr(start + aligned), whole));
            }
            from = aligned + block;
        }
    }
}
