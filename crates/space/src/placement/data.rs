//! Extents for the blocks of large files, which hFS keeps in its data partition (H1, H9, H19): long ones near the
//! directory's anchor group. Which files are large `operations::write` decides.

use super::{FoundSpace, free_groups, is_roomy, least_hole, section};
use crate::bitmap::max_tree::MaxTree;
use crate::groups::Groups;
use loamfs_format::group::Role;
use loamfs_format::inode::Tier;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

/// Bytes of the smallest rest of a hole that is filled with a part of a file.
const LEAST_REST: u64 = 64 << 10;

/// Where a run may be found: the nearest first, and at the same distance the surest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Loaded,
    Unloaded,
    Free,
}

/// Of the groups of fast devices one in so many stays free of blocks of large files: so much of them is for the log, as ZFS leaves a
/// quarter of its special devices to metadata.
const KEPT_OF_FAST: usize = 4;

/// How many free groups blocks of large files may take, the log being left `kept`, where a tier was chosen for them.
pub(super) fn claimable(groups: &Groups, tier: Tier, kept: u64) -> u64 {
    let claimable = free_groups(groups).saturating_sub(kept);
    if tier != Tier::Fast {
        return claimable;
    }
    let all = groups.layout().tier(tier).iter().map(Range::len);
    let left = all.sum::<usize>().div_ceil(KEPT_OF_FAST) as u64;
    claimable.min(free_on(groups, tier).saturating_sub(left))
}

/// Free groups on the devices of a tier.
pub(super) fn free_on(groups: &Groups, tier: Tier) -> u64 {
    let free = groups.of(Role::Free).groups();
    let free_in = |range: &Range<usize>| free.range(range.start as u32..range.end as u32).count();
    let within = groups.layout().tier(tier);
    within.iter().map(free_in).sum::<usize>() as u64
}

/// Where extents end that were found before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// For the same anchor.
    pub near: Option<FragAddr>,
    /// For any.
    pub last: Option<FragAddr>,
}

/// A search for a run of free blocks; see [`super::Placement::find_data`].
pub(super) struct Search<'a> {
    groups: &'a mut Groups,
    /// Where blocks should stand.
    tier: Tier,
    /// Free groups that are left to the log.
    kept: u64,
    /// Fragments wanted.
    want: u64,
    goal: FragAddr,
    /// The index of the anchor group.
    anchor: usize,
    /// The groups that are looked at.
    within: Range<usize>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        groups: &'a mut Groups,
        (tier, kept): (Tier, u64),
        blocks: u64,
        goal: FragAddr,
        anchor: GroupNo,
    ) -> Search<'a> {
        let geometry = groups.layout().geometry();
        let block = geometry.block_frags();
        let last = groups.layout().groups().saturating_sub(1);
        Search {
            want: blocks.clamp(1, geometry.total_frags / block + 1) * block,
            tier,
            kept,
            goal,
            anchor: (anchor.0 as usize).min(last),
            within: 0..groups.layout().groups(),
            groups,
        }
    }

    /// Looks for a run: where the blocks should stand, where data should, then anywhere.
    pub(super) fn find(&mut self, begun: Begun) -> FoundSpace {
        let all = self.within.clone();
        if self.tier == Tier::Fast {
            match self.find_in_tier(begun) {
                FoundSpace::Full => self.tier = Tier::Auto,
                found => return found,
            }
        }
        match self.find_in_tier(begun) {
            FoundSpace::Full => {}
            found => return found,
        }
        self.within = all;
        self.find_within(begun)
    }

    fn find_in_tier(&mut self, begun: Begun) -> FoundSpace {
        for within in self.groups.layout().tier(self.tier).to_vec() {
            self.within = within;
            match self.find_within(begun) {
                FoundSpace::Full => {}
                found => return found,
            }
        }
        FoundSpace::Full
    }

    fn find_within(&mut self, begun: Begun) -> FoundSpace {
        for within in self.groups.layout().sections_in(&self.within) {
            let claims = self.may_claim();
            let near = (self.goal, self.anchor);
            let search = section::Search::new(self.groups, within, self.want, near, claims);
            if let Some(found) = search.find() {
                return found;
            }
        }
        match is_roomy(self.groups) {
            true => self.find_near(begun.near),
            false => self.find_large(begun.last),
        }
    }

    /// While half of the groups are free: near the anchor.
    fn find_near(&mut self, begun: Option<FragAddr>) -> FoundSpace {
        if let Some(found) = self.continue_at(self.goal) {
            return found;
        }
        if let Some(begun) = begun {
            match self.continue_at(begun) {
                Some(FoundSpace::Run(run)) if run.frags < self.want => {}
                Some(found) => return found,
                None => {}
            }
        }
        self.find_hole(least_hole(self.groups))
    }

    /// Later: in the holes of one group after the other, whatever directory a file is in. So a sweep stays in few groups: its
    /// ways are short, and on a shingled disk few bands are written anew. The longest holes would be fewer, but all over the volume. On a
    /// disk a way is never longer than its parts. So a read that finds a file near its directory saves at most what writing it
    /// there took, as a hole of its own in the sweep. It takes more than one read of each file that is written for nearness to pay.
    fn find_large(&mut self, begun: Option<FragAddr>) -> FoundSpace {
        match self.continue_at(self.goal) {
            Some(FoundSpace::Run(run)) if run.frags < self.want => {}
            Some(found) => return found,
            None => {}
        }
        let fragment = self.groups.layout().geometry().fragment_size;
        let least = self.want.min(LEAST_REST / u64::from(fragment));
        match begun.and_then(|begun| self.continue_at(begun)) {
            Some(FoundSpace::Run(run)) if run.frags < least => {}
            Some(found) => return found,
            None => {}
        }
        match self.free_group() {
            Some(found) => found,
            None => self.fill_group(begun, least),
        }
    }

    /// The next hole of at least `least` fragments in the group that is being filled, then in the emptiest one. Where there is none,
    /// the longest.
    fn fill_group(&mut self, begun: Option<FragAddr>, least: u64) -> FoundSpace {
        let (begun, layout) = (begun.unwrap_or(FragAddr(0)), self.groups.layout());
        let own = layout.index_near(begun);
        if self.has_hole(own, least) {
            let from = begun.0 - layout.start(own);
            return self.run_from(own, from, least);
        }
        match self.emptiest(least) {
            Some(index) if self.groups.of(Role::Data).bounds().get(index) > 0 => {
                FoundSpace::Load(vec![GroupNo(index as u32)])
            }
            Some(index) => self.run_from(index, 0, least),
            None => self.largest_run(u32::try_from(self.want).unwrap_or(u32::MAX)),
        }
    }

    /// Whether a data group, where it may be looked at, is known to have a hole of `least` fragments.
    fn has_hole(&self, index: usize, least: u64) -> bool {
        let hole = self.groups.of(Role::Data).runs().get(index);
        u64::from(hole) >= least && self.within.contains(&index)
    }

    /// Of the data groups that have such a hole, or may have one as far as is known, the one that has most free.
    fn emptiest(&self, least: u64) -> Option<usize> {
        let data = self.groups.of(Role::Data);
        let (runs, bounds) = (data.runs(), data.bounds());
        // Where only shorter holes are left, groups are not all looked at for each.
        let longest = runs.max_in(&self.within).max(bounds.max_in(&self.within));
        if u64::from(longest) < least {
            return None;
        }
        let groups = data.groups().iter().map(|group| *group as usize);
        let within = groups.filter(|index| self.within.contains(index));
        within
            .filter(|&index| u64::from(runs.get(index).max(bounds.get(index))) >= least)
            .max_by_key(|index| self.groups.unused(*index))
    }

    /// The longest run of the free group that is nearest to the anchor, which becomes a data group.
    fn free_group(&mut self) -> Option<FoundSpace> {
        while self.may_claim() {
            let free = self.groups.of(Role::Free);
            let index = free.nearest(self.anchor, &self.within)?;
            if !self.groups.claim(index, Role::Data) {
                return None;
            }
            let longest = self.groups.of(Role::Data).runs().get(index);
            if longest > 0 {
                return Some(self.run_in(index, longest.into()));
            }
        }
        None
    }

    /// Looks for a hole of at least `least` fragments, if there is one.
    fn find_hole(&mut self, least: u64) -> FoundSpace {
        let group_frags = self.groups.layout().geometry().group_frags;
        let cap = self.want.max(least).min(group_frags) as u32;
        while let Some((source, index)) = self.nearest_source(cap) {
            match source {
                Source::Loaded => return self.run_in(index, cap.into()),
                Source::Unloaded => {
                    return FoundSpace::Load(self.groups.of(Role::Data).to_load(index, cap));
                }
                Source::Free => {
                    if !self.groups.claim(index, Role::Data) {
                        break;
                    }
                    let longest = self.groups.of(Role::Data).runs().get(index);
                    if longest > 0 {
                        return self.run_in(index, longest.min(cap).into());
                    }
                }
            }
        }
        self.largest_run(cap)
    }

    /// The run that starts at an address, however short.
    fn continue_at(&mut self, at: FragAddr) -> Option<FoundSpace> {
        let layout = self.groups.layout();
        if at.0 == 0 || at.0 >= layout.geometry().total_frags {
            return None;
        }
        let index = layout.index_near(at);
        if self.groups.is_closed(index) || !self.within.contains(&index) {
            return None;
        }
        if self.groups.of(Role::Data).bounds().get(index) > 0 {
            return Some(FoundSpace::Load(vec![GroupNo(index as u32)]));
        }
        let run = self.run(at);
        (run > 0).then(|| FoundSpace::Run(Extent::new(at, run)))
    }

    /// Where to look for a run of `least` fragments.
    fn nearest_source(&self, least: u32) -> Option<(Source, usize)> {
        let near = |tree: &MaxTree| tree.nearest(self.anchor, least, &self.within);
        let data = self.groups.of(Role::Data);
        let free = self.groups.of(Role::Free);
        let free = self
            .may_claim()
            .then(|| free.nearest(self.anchor, &self.within));
        let sources = [
            (Source::Loaded, near(data.runs())),
            (Source::Unloaded, near(data.bounds())),
            (Source::Free, free.flatten()),
        ];
        sources
            .into_iter()
            .filter_map(|(source, index)| Some((source, index?)))
            .min_by_key(|&(source, index)| (index.abs_diff(self.anchor), source))
    }

    /// Whether there are more free groups than the log keeps.
    fn may_claim(&self) -> bool {
        claimable(self.groups, self.tier, self.kept) > 0
    }

    /// The first run of at least `least` fragments of a loaded data group; behind the goal if that is in the group.
    fn run_in(&mut self, index: usize, least: u64) -> FoundSpace {
        let layout = self.groups.layout();
        let from = self.goal.0.checked_sub(layout.start(index));
        let from = from.filter(|&from| from < layout.geometry().group_frags);
        self.run_from(index, from.unwrap_or(0), least)
    }

    /// The same from a position in the group on, then from its start.
    fn run_from(&mut self, index: usize, from: u64, least: u64) -> FoundSpace {
        let start = self.groups.layout().start(index);
        let Some(map) = self.groups.group(index).map() else {
            return FoundSpace::Full;
        };
        let at = map.find(from, least);
        let Some(at) = at.or_else(|| map.find(0, least)) else {
            return FoundSpace::Full;
        };
        let at = FragAddr(start + at);
        FoundSpace::Run(Extent::new(at, self.run(at)))
    }

    /// Free whole blocks from `at` on, across the borders of data groups, and into free groups, which are claimed.
    fn run(&mut self, at: FragAddr) -> u64 {
        let end = self.groups.layout().start(self.within.end);
        let want = self.want.min(end.saturating_sub(at.0));
        let mut found = 0;
        loop {
            let here = FragAddr(at.0 + found);
            found += self.groups.ranges().run(Role::Data, here, want - found);
            if found >= want || !self.claim_at(at.0 + found) {
                return found;
            }
        }
    }

    /// Claims the group that holds an address, if it is free and has a block there.
    fn claim_at(&mut self, at: u64) -> bool {
        let layout = self.groups.layout();
        let geometry = layout.geometry();
        let (index, from) = (layout.index(at), layout.position(at));
        if at >= geometry.total_frags || self.groups.group(index).role() != Role::Free {
            return false;
        }
        let block = geometry.block_frags();
        let free = from.is_multiple_of(block)
            && layout.extent(index).frags >= from + block
            && !layout.is_reserved(Extent::new(FragAddr(at), block));
        free && self.may_claim() && self.groups.claim(index, Role::Data)
    }

    /// The largest run of the loaded groups, unless one not loaded promises far more.
    fn largest_run(&mut self, cap: u32) -> FoundSpace {
        let block = self.groups.layout().geometry().block_frags() as u32;
        let data = self.groups.of(Role::Data);
        let within = &self.within;
        let (run, bound) = (data.runs().max_in(within), data.bounds().max_in(within));
        if bound >= block && bound > run && run < cap / 8 || run < block {
            if bound < block {
                return FoundSpace::Full;
            }
            let least = bound.min(cap);
            let index = data.bounds().first_around(self.anchor, least, within);
            return FoundSpace::Load(data.to_load(index.unwrap_or(self.anchor), least));
        }
        let index = data.runs().first_around(self.anchor, run, within);
        self.run_in(index.unwrap_or(self.anchor), run.into())
    }
}
