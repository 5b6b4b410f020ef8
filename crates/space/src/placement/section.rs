//! Extents of a section for the blocks of large files: hybridFS's allocation in two ways (section III.B), over the groups of a
//! device. What it finds in one group [`ExtentMap`](crate::bitmap::extent_map::ExtentMap) says.
//!
//! Other than in the paper, a file goes on in the extent that it has begun, however much of that is free; and where no extent has
//! half of its blocks free, the search of every volume finds what is left.

use super::FoundSpace;
use super::data::Source;
use crate::bitmap::max_tree::MaxTree;
use crate::groups::Groups;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

/// A search for free extents in groups of one section.
pub(super) struct Search<'a> {
    groups: &'a mut Groups,
    within: Range<usize>,
    /// Fragments wanted.
    want: u64,
    /// Where the file's last extent ends; address 0: nowhere.
    goal: FragAddr,
    /// The group that the others are to be near to.
    near: usize,
    /// Whether free groups may be claimed.
    claims: bool,
}

impl<'a> Search<'a> {
    /// A search for `want` fragments for a file that ends at `goal`, whose anchor is a group.
    pub(super) fn new(
        groups: &'a mut Groups,
        within: Range<usize>,
        want: u64,
        (goal, anchor): (FragAddr, usize),
        claims: bool,
    ) -> Search<'a> {
        let behind = groups.layout().index_near(goal);
        let goes_on = goal.0 != 0 && within.contains(&behind);
        Search {
            near: if goes_on { behind } else { anchor },
            goal: if goes_on { goal } else { FragAddr(0) },
            within,
            want,
            claims,
            groups,
        }
    }

    /// Looks for room: in the extent where the file ends, in clean ones, then in one of which at least half is free.
    pub(super) fn find(mut self) -> Option<FoundSpace> {
        let shape = self.groups.layout().shape(self.within.start)?;
        let block = self.groups.layout().geometry().block_frags();
        let blocks = self.want.div_ceil(block);
        self.go_on()
            .or_else(|| self.find_with(shape.extent * block, true))
            .or_else(|| self.find_with(shape.least_for(blocks) * block, false))
            .or_else(|| self.find_with(shape.half() * block, false))
    }

    /// What is free in the file's last extent behind its end, and in clean ones behind that.
    fn go_on(&self) -> Option<FoundSpace> {
        if self.goal.0 == 0 || self.groups.is_closed(self.near) {
            return None;
        }
        if self.groups.of(Role::Data).bounds().get(self.near) > 0 {
            return Some(FoundSpace::Load(vec![GroupNo(self.near as u32)]));
        }
        let layout = self.groups.layout();
        let group = self.groups.group(self.near);
        let map = group.map().filter(|_| !layout.is_leaving(self.near))?;
        let run = map.goes_on(layout.position(self.goal.0), self.want);
        (run > 0).then(|| FoundSpace::Run(Extent::new(self.goal, run)))
    }

    /// Room in an extent of which so many fragments are free: all of them, in groups that are free too, or not.
    fn find_with(&mut self, least: u64, clean: bool) -> Option<FoundSpace> {
        let least = u32::try_from(least).ok()?;
        while let Some((source, index)) = self.nearest(least, clean) {
            match source {
                Source::Loaded => return self.run_in(index, clean),
                Source::Unloaded => {
                    let load = self.groups.of(Role::Data).to_load(index, least);
                    return Some(FoundSpace::Load(load));
                }
                // One that a superblock cuts, or that is the last, may have no whole extent.
                Source::Free if !self.groups.claim(index, Role::Data) => return None,
                Source::Free if self.groups.of(Role::Data).extents().get(index) < least => {
                    self.claims = false;
                }
                Source::Free => {}
            }
        }
        None
    }

    /// Where such an extent is, or may be: the nearest group.
    fn nearest(&self, least: u32, clean: bool) -> Option<(Source, usize)> {
        let near = |tree: &MaxTree| tree.nearest(self.near, least, &self.within);
        let data = self.groups.of(Role::Data);
        let free = self.groups.of(Role::Free);
        let free = (clean && self.claims).then(|| free.nearest(self.near, &self.within));
        let sources = [
            (Source::Loaded, near(data.extents())),
            (Source::Unloaded, near(data.bounds())),
            (Source::Free, free.flatten()),
        ];
        let known = sources
            .into_iter()
            .filter_map(|(source, index)| Some((source, index?)));
        known.min_by_key(|(source, index)| (index.abs_diff(self.near), *source))
    }

    /// The room that a loaded group has in its extents.
    fn run_in(&self, index: usize, clean: bool) -> Option<FoundSpace> {
        let map = self.groups.group(index).map()?;
        let run = map.room_in_extents(self.want, clean)?;
        let start = FragAddr(self.groups.layout().start(index) + run.start);
        Some(FoundSpace::Run(Extent::new(start, run.end - run.start)))
    }
}
