//! How much room the log and data groups have, and whether that leaves the reserve alone (rule 10).

use super::worst_case::REMOVAL_COST;
use super::{Budget, Waiting};
use crate::reclaim::Elsewhere;
use loamfs_format::FragAddr;
use loamfs_format::group::Role;
use loamfs_space::Leaving;

impl Budget<'_> {
    /// Whether `log` more bytes in the log and `data` more bytes in data groups, besides what is dirty, what waits, and what
    /// still stands on devices that leave, would leave the reserve alone.
    pub fn space_fits(&mut self, log: u64, data: u64) -> bool {
        self.fits_beside(&self.waiting(), log, data)
    }

    /// The same; it was counted what waits.
    pub(super) fn fits_beside(&mut self, waiting: &Waiting, log: u64, data: u64) -> bool {
        let frag = u64::from(self.geometry.fragment_size);
        let leaving = self.leaving();
        let for_data = self.groups_for_data(waiting, data + leaving.data * frag);
        // Both checkpoints say what counts of inodes whose blocks were not written: that is none of the reserve.
        let deltas = 2 * self.inodes.deltas().bytes_at_most();
        let dirty = log + self.segment_with(waiting) + deltas;
        // Blocks are not split, so that the ends of holes are lost.
        let dirty = dirty + dirty / 2 + (leaving.log + leaving.log / 8) * frag;
        let in_log = self.log_room(for_data) * frag;
        let groups = |bytes: u64| {
            bytes
                .saturating_sub(in_log)
                .div_ceil(self.sizes.group_bytes())
        };
        // Data never takes the last groups, whatever room the log has besides: the log takes others for what is dirty.
        let for_log = if for_data > 0 {
            groups(dirty) + self.sizes.groups_kept_from_data()
        } else {
            groups(dirty + self.sizes.reserve_bytes())
        };
        for_log + for_data <= self.space.free_groups()
    }

    /// Fragments of log groups to be counted on. Where groups are written when they are clean, holes are none. Once the reserve's
    /// groups are all that is left, these are holes that segments can be cut into.
    fn log_room(&mut self, for_data: u64) -> u64 {
        if self.space.is_all_log() {
            self.head_room()
        } else if self.space.free_groups() > self.sizes.reserve_groups() + for_data + 1 {
            self.space.free_index(Role::Log).frags()
        } else {
            self.usable_log()
        }
    }

    /// Fragments behind the log's end, in its group.
    fn head_room(&self) -> u64 {
        let unit = self.geometry.unit_frags();
        let behind = FragAddr(self.log.tail().next.0.saturating_add(unit));
        let bitmaps = self.space.bitmaps();
        bitmaps.log_run(behind, self.geometry.group_frags)
    }

    /// Free groups that become data groups when all that waits gets new homes.
    pub fn groups_awaited(&self) -> u64 {
        self.groups_for_data(&self.waiting(), 0)
    }

    /// The same when `more` bytes wait besides.
    fn groups_for_data(&self, waiting: &Waiting, more: u64) -> u64 {
        let (frag, ragged) = (
            u64::from(self.geometry.fragment_size),
            self.space.uneven().ragged(),
        );
        let room = match self.space.is_all_log() {
            true => self.space.home_room(),
            false => self.space.free_index(Role::Data).frags(),
        };
        let room = room.saturating_sub(ragged.data);
        let short = (waiting.blocks + more).saturating_sub(room * frag);
        if short == 0 {
            return 0;
        }
        (short + ragged.free * frag).div_ceil(self.sizes.group_bytes())
    }

    /// What the cleaner must know of it.
    pub fn elsewhere(&mut self) -> Elsewhere {
        // As long as there are clean groups, nothing is moved into holes.
        let clean =
            self.space.is_all_log() && 2 * self.space.free_groups() > self.sizes.reserve_groups();
        Elsewhere {
            usable_log: if clean { 0 } else { self.usable_log() },
            waiting_bytes: self.waiting().blocks,
            groups_awaited: self.groups_awaited(),
        }
    }

    /// Whether what comes next has room in the log; and in as many bytes of homes, where these are there too, if it was homes that
    /// had no room.
    pub fn goes_on(&mut self, bytes: u64) -> bool {
        let homes = self.space.is_all_log() && self.reclaim.are_homes_refused();
        self.space_fits(bytes, if homes { bytes } else { 0 })
    }

    /// Whether the log has room for the reserve besides what is dirty.
    pub fn has_reserve(&mut self) -> bool {
        self.space_fits(0, 0)
    }

    /// Whether half the reserve is left, and what removals begin with: compaction, which takes before it gives, leaves that to deletes.
    /// On a small volume the two checkpoints may take more than half of the reserve.
    pub fn may_compact(&mut self) -> bool {
        let dirty = self.segment_estimate();
        // What bitmaps that are not in memory may tell is no reason to stop.
        self.leaves_half(dirty)
            && self.leaves_checkpoints_for_any(dirty + 2 * REMOVAL_COST) != Some(false)
    }

    /// Whether so many dirty bytes leave that.
    pub(super) fn leaves_half(&mut self, dirty: u64) -> bool {
        let usable = self.usable_log() + self.whole_groups();
        let bytes = usable * u64::from(self.geometry.fragment_size);
        bytes >= self.sizes.reserve_bytes() / 2 + dirty
    }

    /// What winning space is measured by: free fragments that any segment can be cut into, of which whole groups serve every
    /// role, and so count twice; where groups are written when they are clean, these alone, what is left of those that are
    /// being filled, and those that two checkpoints free.
    pub fn won(&mut self) -> u64 {
        match self.space.is_all_log() {
            true => self.usable() + self.emptied(),
            false => self.usable() + self.whole_groups(),
        }
    }

    /// Free fragments that segments go to: in whole groups, and in holes of the log that any can be cut into; where groups are
    /// written when they are clean, in whole ones, and in what is left of those that are being filled.
    pub fn usable(&mut self) -> u64 {
        let begun = match self.space.is_all_log() {
            true => self.head_room() + self.space.home_room(),
            false => self.usable_log(),
        };
        self.whole_groups() + begun
    }

    /// Fragments of groups, where these are written when they are clean, that are free once both superblock copies name another
    /// checkpoint.
    pub fn emptied(&self) -> u64 {
        let (space, geometry) = (self.space, self.geometry);
        let emptied = self.reclaim.emptied(self.checkpoints.named());
        let waits = emptied.filter(|(group, clock)| space.usage().stays_log(*group, *clock));
        // What lives there goes elsewhere.
        let live = |group| space.bitmaps().live_frags(geometry.group_extent(group));
        waits
            .map(|(group, _)| geometry.group_frags.saturating_sub(live(group)))
            .sum()
    }

    /// Fragments of the groups that have no role.
    fn whole_groups(&self) -> u64 {
        self.space.free_groups() * self.geometry.group_frags
    }

    /// What stands on devices that leave.
    pub(super) fn leaving(&mut self) -> Leaving {
        let space = self.space;
        self.reclaim.known().leaving(|| space.cleaning().leaving())
    }

    /// Free fragments of log groups in holes that any segment can be cut into.
    pub fn usable_log(&mut self) -> u64 {
        let least = self.sizes.hole_least();
        let space = self.space;
        let known = self.reclaim.known();
        known.usable(|| space.cleaning().log_usable(least))
    }
}
