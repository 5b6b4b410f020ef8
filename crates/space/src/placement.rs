//! Where new things go: segments ([`log`]), blocks of large files ([`data`]; [`section`], where flash is cut into extents; [`home`], where these are in the log), tracks ([`track`]), new directories ([`anchor`]).

mod anchor;
mod data;
mod home;
mod log;
mod section;
mod track;

use crate::groups::Groups;
use crate::law::{Law, Rules};
use loamfs_format::group::Role;
use loamfs_format::inode::Tier;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::collections::BTreeMap;

/// Bytes of the smallest hole that is worth a seek while there is other room, where groups are not small.
const WORTH_A_SEEK: u64 = 1 << 20;
/// Where they are, it is one of so many parts of a group.
const HOLES: u64 = 8;

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundSpace {
    /// A free run, not claimed by the search.
    Run(Extent),
    /// The bitmaps of these groups must be loaded before the search can go on.
    Load(Vec<GroupNo>),
    /// There is no space.
    Full,
}

/// What searches keep in mind.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacementState {
    /// Free groups that data never takes.
    kept_for_log: u64,
    /// Free groups that the log takes last: data that wait were admitted for them.
    kept_for_data: u64,
    /// By anchor: where the last extent of data ends that was found for it.
    data: Ends,
    /// The same of what was to stand on fast devices.
    fast: Ends,
}

impl PlacementState {
    /// Free groups that data do not take while groups are emptied: what is moved may take of what is kept, as the mover may.
    const fn kept_while_emptying(&self) -> u64 {
        self.kept_for_log / 2
    }
}

/// Where extents of data end that were found last.
#[derive(Clone, Debug, Default)]
struct Ends {
    /// For each anchor.
    near: BTreeMap<GroupNo, FragAddr>,
    /// For any.
    last: Option<FragAddr>,
}

/// Looks for places.
#[derive(Debug)]
pub struct Placement<'a> {
    groups: &'a mut Groups,
    state: &'a mut PlacementState,
    law: &'a Law<dyn Rules>,
}

impl<'a> Placement<'a> {
    pub(crate) fn new(
        groups: &'a mut Groups,
        state: &'a mut PlacementState,
        law: &'a Law<dyn Rules>,
    ) -> Placement<'a> {
        Placement { groups, state, law }
    }

    /// From now on the last `groups` free groups are left to the log: [`Placement::find_data`] does not take them.
    pub fn keep_for_log(&mut self, groups: u64) {
        self.state.kept_for_log = groups;
    }

    /// Until the next call the last `groups` free groups are left to data: [`Placement::find_log`] takes them when there
    /// is nothing else.
    pub fn keep_for_data(&mut self, groups: u64) {
        self.state.kept_for_data = groups;
    }

    /// From now on nothing new is placed in `groups`, which are being emptied, and in no other such groups.
    pub fn close_groups(&mut self, groups: &[GroupNo]) {
        self.groups.areas().close(groups);
    }

    /// Looks for a free run of `want` fragments in the log, in whole units, and claims a free group for the log if
    /// it has to. Nothing else is claimed: the caller allocates what it uses.
    ///
    /// Where some groups are for the log ([`Areas::keep_log_on`](crate::Areas::keep_log_on)), in these first. In this
    /// order:
    /// - the run that continues at `near`,
    /// - the first one behind it, and around the end of the volume, in a log group,
    /// - once half of the groups are taken, the largest hole that is known, if it is worth a seek,
    /// - a free group that is not kept for data: the nearest to the log groups there are, so that metadata stay together
    ///   (Z7); the first one nearest to `near`,
    /// - the largest hole of at least `least` fragments; smaller ones are left to compaction,
    /// - a kept group.
    ///
    /// Where everything is in the log ([`Areas::keep_all_in_log`](crate::Areas::keep_all_in_log)), what continues at `near` is
    /// taken however short it is, if not less than `least`; the bitmap there is asked for first. Other holes come behind free groups.
    ///
    /// The run found is at most `want` long.
    pub fn find_log(&mut self, want: u64, least: u64, near: FragAddr) -> FoundSpace {
        log::Search::new(self.groups, self.law, want, least, near).find(self.state.kept_for_data)
    }

    /// Looks for one free extent of at most `blocks` blocks, as long as possible; the caller allocates it and comes
    /// back for the rest, with `goal` behind it. Free groups that the extent reaches into become data groups: a
    /// group's size limits no extent.
    ///
    /// Where some groups are for the log, in the others first, unless the blocks are to stand on the fast devices: then in those of
    /// the log, of which a quarter is left free. In this order:
    /// - on from `goal`, where the file's last extent ends (address 0: nowhere),
    /// - while half of the groups are free, on from where the last extent near this `anchor` ends, if all of it fits; then the
    ///   group nearest to `anchor` that is free, or has or may have a run of the wanted length, and of a mebibyte,
    /// - later on from where the last extent ends, whatever its anchor, if all of it fits, or 64 KiB; then the free group
    ///   nearest to `anchor`,
    /// - the largest run.
    ///
    /// In the groups of a section ([`Areas::cut`](crate::Areas::cut)) whole extents come before that: see `section`.
    ///
    /// Where everything is in the log, on from where the last extent ends; then a free group near that, which becomes one of the
    /// log.
    pub fn find_data(
        &mut self,
        blocks: u64,
        goal: FragAddr,
        anchor: GroupNo,
        tier: Tier,
    ) -> FoundSpace {
        if self.groups.is_all_log() {
            return self.find_home(blocks);
        }
        let kept = self.state.kept_for_log;
        let ends = match tier {
            Tier::Fast => &mut self.state.fast,
            Tier::Auto | Tier::Slow => &mut self.state.data,
        };
        let begun = data::Begun {
            near: ends.near.get(&anchor).copied(),
            last: ends.last,
        };
        let found = data::Search::new(self.groups, (tier, kept), blocks, goal, anchor).find(begun);
        if let FoundSpace::Run(extent) = &found {
            ends.near.insert(anchor, extent.end());
            ends.last = Some(extent.end());
        }
        found
    }

    /// Free fragments on the devices of a tier that blocks of large files may take. Those in groups of theirs may lie in holes.
    pub fn room_on(&self, tier: Tier) -> u64 {
        let layout = self.groups.layout();
        let data = self.groups.of(Role::Data).groups();
        let groups = layout.tier(tier).iter();
        let groups = groups.flat_map(|range| data.range(range.start as u32..range.end as u32));
        let stay = groups.filter(|group| !layout.is_leaving(**group as usize));
        let unused = stay.map(|group| self.groups.unused(*group as usize));
        let claimable = data::claimable(self.groups, tier, self.state.kept_for_log)
            .min(data::free_on(self.groups, tier));
        unused.sum::<u64>() + claimable * layout.geometry().group_frags
    }

    /// Fragments behind the last extent of blocks of large files, in the group of the log that they fill.
    pub(crate) fn home_room(groups: &Groups, state: &PlacementState) -> u64 {
        let Some(end) = state.data.last else {
            return 0;
        };
        let layout = groups.layout();
        match groups.is_home_head(layout.index_near(end)) {
            true => groups
                .ranges()
                .run(Role::Log, end, layout.geometry().group_frags),
            false => 0,
        }
    }

    /// Fragments that blocks of large files find there, and in whole groups, while groups are emptied.
    pub(crate) fn room_for_moved_homes(groups: &Groups, state: &PlacementState) -> u64 {
        let whole = free_groups(groups).saturating_sub(state.kept_while_emptying());
        Placement::home_room(groups, state) + whole * groups.layout().geometry().group_frags
    }

    /// Looks for an extent of at most `blocks` blocks in the group of the log that they fill, or in the next one.
    fn find_home(&mut self, blocks: u64) -> FoundSpace {
        let end = self.state.data.last.unwrap_or(FragAddr(0));
        let kept = match self.groups.has_closed() {
            true => self.state.kept_while_emptying(),
            false => self.state.kept_for_log,
        };
        let found = home::Search::new(self.groups, kept, blocks).find(end);
        if let FoundSpace::Run(extent) = &found {
            self.state.data.last = Some(extent.end());
        }
        found
    }

    /// Looks for a run of whole units for a track of `frags` fragments, which goes over no multiple of `window` and stays in
    /// its group: in the group of `near` from there on, if tracks stand there, then where the first one is. Claims a free group if
    /// it has to, but for those that are kept for the log or for data. Nothing else is claimed: the caller allocates what it uses.
    pub fn find_track(&mut self, frags: u64, window: u64, near: FragAddr) -> FoundSpace {
        let kept = self.state.kept_for_log.max(self.state.kept_for_data);
        track::Search::new(self.groups, frags, window).find(near, kept)
    }

    /// Chooses the group near which a new directory's large files will stand, and promises it what directories there
    /// take so far, at most `avg_file_size` bytes x `files_per_dir`. `parent` is the anchor of the parent. The
    /// directory counts once [`Space::anchored`](crate::Space::anchored) says so.
    pub fn choose_anchor(
        &mut self,
        parent: GroupNo,
        avg_file_size: u32,
        files_per_dir: u32,
    ) -> GroupNo {
        anchor::choose(self.groups, parent, avg_file_size, files_per_dir)
    }
}

/// Whether half of the groups are free.
fn is_roomy(groups: &Groups) -> bool {
    free_groups(groups) > groups.layout().present() as u64 / 2
}

/// Fragments of the smallest hole that is worth a seek. What is written into smaller ones costs more in seeks than in transfer,
/// and what is written together lies apart.
fn least_hole(groups: &Groups) -> u64 {
    let geometry = groups.layout().geometry();
    let worth = WORTH_A_SEEK / u64::from(geometry.fragment_size);
    worth.min(geometry.group_frags / HOLES)
}

/// The number of groups that can take a role.
fn free_groups(groups: &Groups) -> u64 {
    groups.of(Role::Free).groups().len() as u64
}
