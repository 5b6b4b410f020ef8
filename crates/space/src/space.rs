//! [`Space`]: the free space of a volume, and those that own the parts of its state.

use crate::checkpoint::{self, Checkpoint};
use crate::cleaning::{Candidate, Cheap, Cleaning};
use crate::error::SpaceError;
use crate::groups::{Groups, State};
use crate::held::Held;
use crate::layout::Layout;
use crate::owners::{Owner, Owners};
use crate::placement::{Found, Placement, anchor};
use crate::unshown::Unshown;
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, GroupDesc, Role};
use loamfs_format::summary::Wait;
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo};
use std::ops::Range;

/// Free space by who can use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSpace {
    /// Fragments of free whole units in loaded log groups.
    pub loaded: u64,
    /// Free fragments in log groups that are not loaded. Some may lie in units that are partly in use.
    pub unloaded: u64,
    /// Free fragments in free groups, all of them in whole units.
    pub free_groups: u64,
    /// Free fragments in data groups, which the log cannot use.
    pub data: u64,
}

/// Free space that no block of data fits into; see [`Space::ragged`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ragged {
    /// Fragments in data groups, at most.
    pub data: u64,
    /// Fragments in free groups.
    pub free: u64,
}

/// The free space of a volume. See the crate's documentation for the states of a fragment.
#[derive(Clone, Debug)]
pub struct Space {
    pub(crate) groups: Groups,
    pub(crate) unshown: Unshown,
    pub(crate) held: Held,
    pub(crate) owners: Owners,
    placement: Placement,
}

impl Space {
    /// The space of a new volume: all groups are free and empty but for the `reserved` extents
    /// ([`loamfs_format::superblock::Superblock::copy_extents`]), whose chunks and descriptors are dirty.
    pub fn new(geometry: Geometry, reserved: Vec<Extent>) -> Space {
        let mut space = Space::open(geometry, reserved.clone(), Vec::new());
        for extent in reserved {
            let end = extent.end().0.min(geometry.total_frags);
            let frags = end.saturating_sub(extent.start.0);
            space.groups.dirty(Extent::new(extent.start, frags));
        }
        space
    }

    /// The space of a volume as its last checkpoint describes it; groups without a descriptor are free and empty.
    /// Groups that hold more than the `reserved` extents are not loaded. Then follow what the checkpoint's summary
    /// and its successors say: see [`Space::replay_allocate`].
    pub fn open(
        geometry: Geometry,
        reserved: Vec<Extent>,
        descs: Vec<(GroupNo, GroupDesc)>,
    ) -> Space {
        Space {
            groups: Groups::open(Layout::new(geometry, reserved), descs),
            unshown: Unshown::default(),
            held: Held::default(),
            owners: Owners::default(),
            placement: Placement::default(),
        }
    }

    /// Reserves a superblock's place, which lies in one group, from now on: no free space is found there any more, and the
    /// maps never tell of it. When a volume of which it is known that nothing is there was just opened, or later, with
    /// the bitmap in memory.
    ///
    /// # Errors
    /// [`SpaceError`] when something is there, is held back, or may be.
    pub fn reserve(&mut self, place: Extent) -> Result<(), SpaceError> {
        self.groups.reserve(place)
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        self.groups.layout().geometry()
    }

    /// What the group is used for; [`Role::Free`] for groups that do not exist.
    pub fn role(&self, group: GroupNo) -> Role {
        self.desc(group).role
    }

    /// The group's descriptor as it is in memory; [`Space::dirty_groups`] tells what a checkpoint writes.
    pub fn desc(&self, group: GroupNo) -> GroupDesc {
        let known = self.groups.get(group);
        known.map_or_else(GroupDesc::default, |known| known.desc())
    }

    /// Bytes that loaded bitmaps and their trees take.
    pub fn loaded_bytes(&self) -> usize {
        self.groups.indexes().bytes()
    }

    /// Fragments that are not in use; those held back count as free.
    pub fn free_frags(&self) -> u64 {
        self.reusable_frags().saturating_add(self.held.frags())
    }

    /// Fragments that are free and may be written at once.
    pub fn reusable_frags(&self) -> u64 {
        let total = self.geometry().total_frags;
        total.saturating_sub(self.groups.indexes().used())
    }

    /// Fragments in use, unshown and reserved ones included, held-back ones not.
    pub fn used(&self) -> u64 {
        let used = self.groups.indexes().used();
        used.saturating_sub(self.held.frags())
    }

    /// Fragments that are held back.
    pub fn held_frags(&self) -> u64 {
        self.held.frags()
    }

    /// Free space by who can use it.
    pub fn log_space(&self) -> LogSpace {
        let (log, data) = (self.groups.of(Role::Log), self.groups.of(Role::Data));
        LogSpace {
            loaded: log.known(),
            unloaded: log.unknown(),
            free_groups: self.groups.of(Role::Free).known(),
            data: data.known() + data.unknown(),
        }
    }

    /// Owner records since the last checkpoint.
    pub fn owner_overlay_len(&self) -> usize {
        self.owners.len()
    }

    /// Groups that have no role and can take one.
    pub fn free_groups(&self) -> u64 {
        self.groups.of(Role::Free).groups().len() as u64
    }

    /// Fragments that no block of data fits into, of those that [`LogSpace`] counts in data groups, and of free groups as
    /// if they were whole: at the edges of what is reserved, and of the volume.
    pub fn ragged(&self) -> Ragged {
        let (layout, mut ragged) = (self.groups.layout(), Ragged::default());
        let geometry = layout.geometry();
        for index in self.groups.uneven().iter().map(|group| *group as usize) {
            let group = self.groups.group(index);
            match group.role() {
                // At the end of the group, and of each part that is reserved.
                Role::Data => {
                    let cuts = 1 + layout.reserved_in(index).len() as u64;
                    ragged.data += cuts * geometry.block_frags();
                }
                Role::Free => ragged.free += geometry.group_frags - group.pristine_run(),
                Role::Log | Role::Track | Role::Section => {}
            }
        }
        ragged
    }

    /// The longest runs of free groups that are cut short: by what is reserved, or by the end of the volume.
    pub fn free_runs_cut_short(&self) -> Vec<u64> {
        let free = self.groups.of(Role::Free).groups();
        let uneven = self.groups.uneven().iter();
        let cut = uneven.filter(|group| free.contains(group));
        cut.map(|group| self.groups.group(*group as usize).pristine_run())
            .collect()
    }

    /// From now on the last `groups` free groups are left to the log: [`Space::find_data`] does not take them.
    pub fn keep_for_log(&mut self, groups: u64) {
        self.placement.keep_for_log(groups);
    }

    /// Until the next call the last `groups` free groups are left to data: [`Space::find_log`] takes them when there
    /// is nothing else.
    pub fn keep_for_data(&mut self, groups: u64) {
        self.placement.keep_for_data(groups);
    }

    /// From now on nothing new is placed in `groups`, which are being emptied, and in no other such groups.
    pub fn close_groups(&mut self, groups: &[GroupNo]) {
        self.groups.close(groups);
    }

    // ---- placement ---------------------------------------------------------------------------------------------

    /// Free whole units from `at` on, in fragments, at most `max`; across the borders of loaded log groups. 0 when
    /// `at` is not the start of a unit.
    pub fn log_run(&self, at: FragAddr, max: u64) -> u64 {
        self.groups.run(Role::Log, at, max)
    }

    /// Looks for a free run of `want` fragments in the log, in whole units, and claims a free group for the log if
    /// it has to. Nothing else is claimed: the caller allocates what it uses.
    ///
    /// In this order: the run that continues at `near`; the first one behind it, and around the end of the volume,
    /// in a log group; a free group that is not kept for data, the nearest to the log groups there are, so that
    /// metadata stay together (Z7), and the first one in the middle of a `rotational` device; the largest hole of at
    /// least `least` fragments (smaller ones are left to compaction); a kept group. The run found is at most `want`
    /// long.
    pub fn find_log(&mut self, want: u64, least: u64, near: FragAddr, rotational: bool) -> Found {
        self.placement
            .find_log(&mut self.groups, want, least, near, rotational)
    }

    /// Looks for one free extent of at most `blocks` blocks, as long as possible; the caller allocates it and comes
    /// back for the rest, with `goal` behind it. Free groups that the extent reaches into become data groups: a
    /// group's size limits no extent.
    ///
    /// In this order: on from `goal`, where the file's last extent ends (address 0: nowhere), however short; while half of
    /// the groups are free, on from where the last extent near this `anchor` ends, if all of it fits; the group nearest
    /// to `anchor` that has, or may have, a run of the wanted length, and of a mebibyte while half of the groups are
    /// free, or is free itself; the largest run.
    pub fn find_data(&mut self, blocks: u64, goal: FragAddr, anchor: GroupNo) -> Found {
        self.placement
            .find_data(&mut self.groups, blocks, goal, anchor)
    }

    /// Chooses the group near which a new directory's large files will stand, and promises it what directories there
    /// take so far, at most `avg_file_size` bytes x `files_per_dir`. `parent` is the anchor of the parent. The
    /// directory counts once [`Space::anchored`] says so.
    pub fn choose_anchor(
        &mut self,
        parent: GroupNo,
        avg_file_size: u32,
        files_per_dir: u32,
    ) -> GroupNo {
        anchor::choose(&mut self.groups, parent, avg_file_size, files_per_dir)
    }

    /// Directories came to be anchored in a group (positive) or left it; also for replay.
    pub fn anchored(&mut self, group: GroupNo, delta: i32) {
        self.groups.anchor(group, delta);
    }

    // ---- roles -------------------------------------------------------------------------------------------------

    /// The roles that changed since the last call, for the segment's summary.
    pub fn take_role_changes(&mut self) -> Vec<(GroupNo, Role)> {
        self.groups.take_roles()
    }

    /// Whether [`Space::take_role_changes`] has something to say.
    pub fn has_role_changes(&self) -> bool {
        self.groups.changes().has_roles()
    }

    /// Makes log and data groups free again that hold nothing: nothing in use, held back or unshown. `protect` is
    /// left alone, and so is the last log group, so that the log stays where it is. Returns the groups.
    ///
    /// No write to these groups may be in flight (rule 11).
    pub fn give_back_empty(&mut self, protect: Option<GroupNo>) -> Vec<GroupNo> {
        self.groups.give_back_empty(protect)
    }

    // ---- bitmaps -----------------------------------------------------------------------------------------------

    /// Whether the group's bitmap is known: it is in memory, or the group is free and holds nothing.
    pub fn is_loaded(&self, group: GroupNo) -> bool {
        let known = self.groups.get(group);
        known.is_some_and(|known| !matches!(known.state(), State::Absent))
    }

    /// The keys of the bitmap chunks that hold a group's bits, which [`Space::load`] wants.
    pub fn chunk_keys(&self, group: GroupNo) -> Range<u64> {
        self.groups.layout().chunk_keys(group)
    }

    /// Takes in a group's bitmap as the last checkpoint has it: those of its chunks that are there, `None` for one
    /// that is wholly set. What happened to the group since is applied then. Does nothing if the group is loaded.
    ///
    /// # Errors
    /// [`SpaceError`] when the bitmap contradicts the descriptor or what happened since; the group then stays
    /// unloaded, and the volume should not be written to.
    pub fn load(
        &mut self,
        group: GroupNo,
        chunks: impl IntoIterator<Item = (u64, Option<[u8; CHUNK_BYTES]>)>,
    ) -> Result<(), SpaceError> {
        self.groups.load(group, chunks)
    }

    /// Believes a group's bitmap, as the last checkpoint has it, rather than what its descriptor counts, and has the
    /// next checkpoint write the right count. For repair: at once after [`Space::open`], with the chunks that
    /// [`Space::load`] wants.
    pub fn recount(
        &mut self,
        group: GroupNo,
        chunks: impl IntoIterator<Item = (u64, Option<[u8; CHUNK_BYTES]>)>,
    ) {
        self.groups.recount(group, chunks);
    }

    /// Drops a group's bitmap from memory if a checkpoint has all of it, and tells whether it did. A free group's
    /// takes no memory.
    pub fn unload(&mut self, group: GroupNo) -> bool {
        self.groups.unload(group)
    }

    /// The groups whose bitmaps are in memory, in order.
    pub fn loaded_groups(&self) -> impl Iterator<Item = GroupNo> {
        let groups = self.groups.numbered();
        let loaded = groups.filter(|(_, group)| group.map().is_some());
        loaded.map(|(number, _)| GroupNo(number))
    }

    /// The free runs in a range that is widened to whole cells: 4 KiB units of log groups, blocks of data groups. What
    /// is in use, unshown, reserved or held back (rule 5) is in none of them; neither is anything of groups whose
    /// bitmaps are not in memory.
    pub fn free_runs(&self, extent: Extent) -> Vec<Extent> {
        self.groups.free_runs(extent)
    }

    /// Fragments of an extent that are in use and not held back; those of bitmaps that are not in memory may be.
    pub fn live_frags(&self, extent: Extent) -> u64 {
        let Ok(range) = self.groups.layout().on_volume(extent) else {
            return 0;
        };
        let held = self.held.overlapping(range.clone());
        let held = held.map(|(held, _)| held.end.min(range.end) - held.start.max(range.start));
        let held: u64 = held.sum();
        self.groups.set_frags(range.clone()).saturating_sub(held)
    }

    /// A fragment's bit in memory, if the bitmap of its group is known.
    pub fn is_set(&self, addr: FragAddr) -> Option<bool> {
        self.groups.is_set(addr)
    }

    // ---- what waits --------------------------------------------------------------------------------------------

    /// What is held back, by address and with what it waits for, for the checkpoint's summary.
    pub fn held(&self) -> impl Iterator<Item = (Extent, Wait)> {
        self.held.iter().map(|(range, wait)| {
            (
                Extent::new(FragAddr(range.start), range.end - range.start),
                wait,
            )
        })
    }

    /// How many ranges are held back.
    pub fn held_ranges(&self) -> usize {
        self.held.len()
    }

    /// The unshown ranges, by address.
    pub fn unshown(&self) -> impl Iterator<Item = Extent> {
        self.unshown.iter()
    }

    // ---- checkpoints -------------------------------------------------------------------------------------------

    fn checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint::new(&self.groups, &self.unshown)
    }

    /// The chunks that may differ from the last checkpoint's, by key.
    pub fn dirty_chunks(&self) -> Vec<u64> {
        self.groups.changes().chunks().iter().copied().collect()
    }

    /// Number of dirty chunks, and of dirty descriptors.
    pub fn dirty_counts(&self) -> (usize, usize) {
        let changes = self.groups.changes();
        (changes.chunks().len(), changes.descs().len())
    }

    /// See [`Checkpoint::chunk_value`].
    ///
    /// # Errors
    /// [`SpaceError::NotLoaded`] naming a group of the chunk whose bitmap is not there.
    pub fn chunk_value(&self, key: u64) -> Result<crate::ChunkValue, SpaceError> {
        self.checkpoint().chunk_value(key)
    }

    /// See [`Checkpoint::cleared`].
    ///
    /// # Errors
    /// As [`Space::chunk_value`], of the chunks that changed.
    pub fn cleared(&self) -> Result<Vec<Range<u64>>, SpaceError> {
        self.checkpoint().cleared()
    }

    /// The groups whose bitmaps a checkpoint needs and lacks: those that changed while they were not loaded, and,
    /// where a chunk covers several groups, the neighbours of those that changed.
    ///
    /// # Errors
    /// [`SpaceError`] when what was replayed contradicts itself.
    pub fn groups_to_load_for_checkpoint(&mut self) -> Result<Vec<GroupNo>, SpaceError> {
        checkpoint::groups_to_load(&mut self.groups)
    }

    /// See [`Checkpoint::dirty_groups`].
    pub fn dirty_groups(&self) -> Vec<(GroupNo, GroupDesc)> {
        self.checkpoint().dirty_groups()
    }

    /// The owner records since the last checkpoint, by address. Each replaces all records in the tree that it
    /// overlaps.
    pub fn owner_overlay(&self) -> impl Iterator<Item = (Extent, Owner)> {
        self.owners.iter()
    }

    /// The owner records since the last checkpoint that overlap a range, whole, by address. What they leave open
    /// is as the owner tree has it.
    pub fn owner_in_overlay(&self, range: Extent) -> Vec<(Extent, Owner)> {
        self.owners.overlapping(range).collect()
    }

    /// Everything reported so far is in the maps: forgets what is dirty, and the owner records.
    pub fn checkpoint_done(&mut self) {
        self.groups.checkpoint_done();
        self.owners.clear();
    }

    /// The chunks that hold a range.
    pub fn chunks_of(&self, extent: Extent) -> impl Iterator<Item = u64> + use<> {
        let last = extent.end().0.saturating_sub(1);
        let keys = extent.start.0 / CHUNK_FRAGS..last / CHUNK_FRAGS + 1;
        keys.take_while(move |_| extent.frags > 0)
    }

    // ---- cleaning ----------------------------------------------------------------------------------------------

    fn cleaning(&self) -> Cleaning<'_> {
        Cleaning::new(&self.groups, &self.held)
    }

    /// See [`Cleaning::compact_candidates`].
    pub fn compact_candidates(&self, hole_max: u64) -> Vec<Candidate> {
        self.cleaning().compact_candidates(hole_max)
    }

    /// See [`Cleaning::log_usable`].
    pub fn log_usable(&self, least: u64) -> u64 {
        self.cleaning().log_usable(least)
    }

    /// See [`Cleaning::log_holes`].
    pub fn log_holes(&self) -> Vec<Extent> {
        self.cleaning().log_holes()
    }

    /// See [`Cleaning::unloaded_log_groups`].
    pub fn unloaded_log_groups(&self, count: usize) -> Vec<GroupNo> {
        self.cleaning().unloaded_log_groups(count)
    }

    /// See [`Cleaning::cheapest_groups`].
    pub fn cheapest_groups(
        &self,
        role: Role,
        hole_max: u64,
        least: u64,
        fixed: &[Extent],
    ) -> Vec<Cheap> {
        self.cleaning()
            .cheapest_groups(role, hole_max, least, fixed)
    }
}
