//! [`Space`] itself: the groups of a volume, and what is known of each without its bitmap.

use crate::bitmap::group_map::GroupMap;
use crate::bitmap::max_tree::MaxTree;
use crate::error::SpaceError;
use crate::held::Held;
use crate::layout::Layout;
use crate::owners::Owners;
use crate::range_map::RangeMap;
use loamfs_format::group::{CHUNK_FRAGS, GroupDesc, Role};
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How much of a group's bitmap is in memory.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// A free group that holds nothing: the bitmap is known without being there.
    Empty,
    /// The bitmap is on disk; see [`Group::deltas`].
    Absent,
    /// The bitmap is in memory.
    Loaded(Box<GroupMap>),
}

/// A change of a bitmap that is not in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delta {
    /// The fragments.
    pub(crate) extent: Extent,
    /// Their new bits.
    pub(crate) set: bool,
}

/// What is always known of a group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) role: Role,
    /// Fragments whose bit is set in memory: in use, held back, unshown or reserved.
    pub(crate) used: u64,
    /// Those of them that belong to superblocks.
    pub(crate) reserved: u64,
    /// Those of them that no segment shows yet.
    pub(crate) unshown: u64,
    /// Longest run of whole blocks when the group is empty; groups where it is 0 never take a role.
    pub(crate) pristine: u64,
    /// Directories anchored here.
    pub(crate) directories: u32,
    /// Fragments promised to directories that were anchored here lately (dirpref).
    pub(crate) promised: u64,
    pub(crate) state: State,
    /// What happened to the bitmap since the checkpoint on disk, in order, while it was not in memory.
    pub(crate) deltas: Vec<Delta>,
    /// Whether the group is among those that can take a role.
    claimable: bool,
    /// Whether the group is among those that could lose theirs.
    idle: bool,
    /// Its share of [`LogSpace`].
    counted: u64,
}

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
    pub(crate) layout: Layout,
    pub(crate) groups: Vec<Group>,
    /// Longest run of each loaded log group.
    pub(crate) log_runs: MaxTree,
    /// Free fragments of each log group that is not loaded: no run in it is longer.
    pub(crate) log_hopes: MaxTree,
    /// Longest run of each loaded data group.
    pub(crate) data_runs: MaxTree,
    /// Free fragments of each data group that is not loaded.
    pub(crate) data_hopes: MaxTree,
    /// Free and unpromised fragments of each data or free group.
    pub(crate) rooms: MaxTree,
    pub(crate) rooms_sum: u64,
    /// Free groups that can take a role.
    pub(crate) free: BTreeSet<u32>,
    pub(crate) log_groups: BTreeSet<u32>,
    /// Log and data groups that hold nothing.
    pub(crate) idle: BTreeSet<u32>,
    /// Groups with deltas.
    pub(crate) pending: BTreeSet<u32>,
    pub(crate) log: LogSpace,
    /// Groups that have less room than others: a part is reserved, or they are the last and shorter.
    uneven: Vec<u32>,
    /// Free groups that data never takes.
    pub(crate) kept_for_log: u64,
    /// Free groups that the log takes last: data that wait were admitted for them.
    pub(crate) kept_for_data: u64,
    /// By anchor: where the last extent of data ends that was found for it.
    pub(crate) data_ends: BTreeMap<GroupNo, FragAddr>,
    /// Groups that are being emptied: nothing new is placed in them.
    pub(crate) closed: BTreeSet<usize>,
    pub(crate) held: Held,
    pub(crate) unshown: RangeMap<()>,
    pub(crate) owners: Owners,
    pub(crate) role_changes: BTreeMap<GroupNo, Role>,
    pub(crate) dirty_chunks: BTreeSet<u64>,
    pub(crate) dirty_groups: BTreeSet<u32>,
    /// The chunk marked dirty last: a log writes into the same one many times in a row.
    pub(crate) last_dirty: Option<u64>,
    pub(crate) used: u64,
    pub(crate) loaded_bytes: usize,
}

impl Group {
    /// A group that holds nothing.
    fn pristine(layout: &Layout, index: usize) -> Group {
        let reserved = layout.reserved_frags(index);
        Group {
            role: Role::Free,
            used: reserved,
            reserved,
            unshown: 0,
            pristine: layout.pristine_run(index),
            directories: 0,
            promised: 0,
            state: State::Empty,
            deltas: Vec::new(),
            claimable: false,
            idle: false,
            counted: 0,
        }
    }
}

impl State {
    /// Free fragments in holes of at least `least` fragments, as far as the bitmap is in memory.
    pub(crate) fn free_in_holes(&self, least: u64) -> u64 {
        let State::Loaded(map) = self else {
            return 0;
        };
        let holes = map.holes().map(|hole| hole.end - hole.start);
        holes.filter(|frags| *frags >= least).sum()
    }
}

impl Space {
    /// The space of a new volume: all groups are free and empty but for the `reserved` extents
    /// ([`loamfs_format::superblock::Superblock::copy_extents`]), whose chunks and descriptors are dirty.
    pub fn new(geometry: Geometry, reserved: Vec<Extent>) -> Space {
        let mut space = Space::open(geometry, reserved, Vec::new());
        for extent in space.layout.reserved().to_vec() {
            space.mark_dirty(extent.start.0..extent.end().0.min(geometry.total_frags));
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
        let count = geometry.groups() as usize;
        let empty = || MaxTree::new(vec![0; count]);
        let mut space = Space {
            layout: Layout::new(geometry, reserved),
            groups: Vec::with_capacity(count),
            log_runs: empty(),
            log_hopes: empty(),
            data_runs: empty(),
            data_hopes: empty(),
            rooms: empty(),
            rooms_sum: 0,
            free: BTreeSet::new(),
            log_groups: BTreeSet::new(),
            idle: BTreeSet::new(),
            pending: BTreeSet::new(),
            log: LogSpace::default(),
            uneven: Vec::new(),
            kept_for_log: 0,
            kept_for_data: 0,
            data_ends: BTreeMap::new(),
            closed: BTreeSet::new(),
            held: Held::default(),
            unshown: RangeMap::default(),
            owners: Owners::default(),
            role_changes: BTreeMap::new(),
            dirty_chunks: BTreeSet::new(),
            dirty_groups: BTreeSet::new(),
            last_dirty: None,
            used: 0,
            loaded_bytes: 0,
        };
        for (index, number) in (0..count).zip(0u32..) {
            let group = Group::pristine(&space.layout, index);
            if group.pristine < geometry.group_frags {
                space.uneven.push(number);
            }
            space.groups.push(group);
        }
        for (group, desc) in descs {
            let Some(known) = space.groups.get_mut(group.0 as usize) else {
                continue;
            };
            known.role = desc.role;
            known.directories = desc.directories;
            if desc.used > known.reserved {
                // A descriptor that says more than the group has counts as full; loading it will say what is wrong.
                known.used = desc.used.min(geometry.group_extent(group).frags);
                known.state = State::Absent;
            }
        }
        for index in 0..count {
            space.used += space.groups[index].used;
            // A bitmap without content cannot contradict anything.
            let _ = space.take_role(index);
        }
        space
    }

    /// Reserves a superblock's place, which lies in one group, from now on: no free space is found there any more, and the
    /// maps never tell of it. When a volume of which it is known that nothing is there was just opened, or later, with
    /// the bitmap in memory.
    ///
    /// # Errors
    /// [`SpaceError`] when something is there, is held back, or may be.
    pub fn reserve(&mut self, place: Extent) -> Result<(), SpaceError> {
        let range = self.layout.on_volume(place)?;
        let index = self.layout.index_near(place.start);
        let layout = self.layout.with_unmapped(place);
        let start = self.layout.extent(index).start.0;
        let group = &self.groups[index];
        if !group.deltas.is_empty() {
            return Err(SpaceError::InUse { extent: place });
        }
        let bits = match &group.state {
            State::Loaded(map) => {
                let mut bits = self.layout.pristine_bits(index);
                map.export(0..bits.len(), 0, &mut bits);
                let inside = range.start - start..range.end - start;
                if !bits.is_clear(inside.clone()) {
                    return Err(SpaceError::InUse { extent: place });
                }
                bits.set(inside);
                Some(bits)
            }
            State::Empty | State::Absent => None,
        };
        let map = bits.map(|bits| layout.map_for(index, group.role, bits));
        let map = map.transpose()?;
        self.layout = layout;
        self.leave(index);
        let pristine = Group::pristine(&self.layout, index);
        let group = &mut self.groups[index];
        group.reserved = pristine.reserved;
        group.pristine = pristine.pristine;
        if let Some(map) = map {
            group.state = State::Loaded(Box::new(map));
        }
        if !self.uneven.contains(&(index as u32)) {
            self.uneven.push(index as u32);
        }
        self.adjust(index, place.frags, 0);
        self.enter(index);
        Ok(())
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        self.layout.geometry()
    }

    /// What the group is used for; [`Role::Free`] for groups that do not exist.
    pub fn role(&self, group: GroupNo) -> Role {
        self.groups
            .get(group.0 as usize)
            .map_or(Role::Free, |g| g.role)
    }

    /// The group's descriptor as it is in memory; [`Space::dirty_groups`] tells what a checkpoint writes.
    pub fn desc(&self, group: GroupNo) -> GroupDesc {
        self.groups
            .get(group.0 as usize)
            .map_or_else(GroupDesc::default, |g| GroupDesc {
                role: g.role,
                used: g.used,
                directories: g.directories,
            })
    }

    /// Bytes that loaded bitmaps and their trees take.
    pub fn loaded_bytes(&self) -> usize {
        self.loaded_bytes
    }

    /// Fragments that are not in use; those held back count as free.
    pub fn free_frags(&self) -> u64 {
        self.reusable_frags().saturating_add(self.held.frags())
    }

    /// Fragments that are free and may be written at once.
    pub fn reusable_frags(&self) -> u64 {
        self.layout.geometry().total_frags.saturating_sub(self.used)
    }

    /// Fragments in use, unshown and reserved ones included, held-back ones not.
    pub fn used(&self) -> u64 {
        self.used.saturating_sub(self.held.frags())
    }

    /// Fragments that are held back.
    pub fn held_frags(&self) -> u64 {
        self.held.frags()
    }

    /// Free space by who can use it.
    pub fn log_space(&self) -> LogSpace {
        self.log
    }

    /// Owner records since the last checkpoint.
    pub fn owner_overlay_len(&self) -> usize {
        self.owners.len()
    }

    /// Groups that have no role and can take one.
    pub fn free_groups(&self) -> u64 {
        self.free.len() as u64
    }

    /// Fragments that no block of data fits into, of those that [`LogSpace`] counts in data groups, and of free groups as
    /// if they were whole: at the edges of what is reserved, and of the volume.
    pub fn ragged(&self) -> Ragged {
        let mut ragged = Ragged::default();
        for number in &self.uneven {
            let group = &self.groups[*number as usize];
            match group.role {
                // At the end of the group, and of each part that is reserved.
                Role::Data => {
                    let cuts = 1 + self.layout.reserved_in(*number as usize).len() as u64;
                    ragged.data += cuts * self.layout.geometry().block_frags();
                }
                Role::Free => {
                    ragged.free += self.layout.geometry().group_frags - group.pristine;
                }
                Role::Log | Role::Track | Role::Section => {}
            }
        }
        ragged
    }

    /// The longest runs of free groups that are cut short: by what is reserved, or by the end of the volume.
    pub fn free_runs_cut_short(&self) -> Vec<u64> {
        let free = |number: &&u32| self.free.contains(number);
        let run = |number: &u32| self.groups[*number as usize].pristine;
        self.uneven.iter().filter(free).map(run).collect()
    }

    /// From now on the last `groups` free groups are left to the log: [`Space::find_data`] does not take them.
    pub fn keep_for_log(&mut self, groups: u64) {
        self.kept_for_log = groups;
    }

    /// Until the next call the last `groups` free groups are left to data: [`Space::find_log`] takes them when there
    /// is nothing else.
    pub fn keep_for_data(&mut self, groups: u64) {
        self.kept_for_data = groups;
    }

    /// From now on nothing new is placed in `groups`, which are being emptied, and in no other such groups.
    pub fn close_groups(&mut self, groups: &[GroupNo]) {
        let known = groups.iter().map(|group| group.0 as usize);
        let new: BTreeSet<usize> = known.filter(|index| *index < self.groups.len()).collect();
        let old = std::mem::replace(&mut self.closed, new.clone());
        for index in old.union(&new) {
            self.refresh(*index);
        }
    }

    /// Fragments of a group that nothing uses, and nothing holds back.
    pub(crate) fn unused(&self, index: usize) -> u64 {
        let used = self.groups[index].used;
        self.layout.extent(index).frags.saturating_sub(used)
    }

    // ---- bookkeeping -------------------------------------------------------------------------------------------

    /// Changes the number of fragments in use of a group. Call [`Space::refresh`] afterwards.
    pub(crate) fn adjust(&mut self, index: usize, more: u64, less: u64) {
        let group = &mut self.groups[index];
        group.used = group.used.saturating_add(more).saturating_sub(less);
        self.used = self.used.saturating_add(more).saturating_sub(less);
    }

    /// Marks the chunks of a range as different from those on disk, and the descriptors with them.
    pub(crate) fn mark_dirty(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let chunk = |at: u64| loamfs_format::group::chunk_key(FragAddr(at));
        let (first, last) = (chunk(range.start), chunk(range.end - 1));
        let same = self.last_dirty == Some(first) && first == last;
        if same && self.layout.geometry().group_frags >= CHUNK_FRAGS {
            return;
        }
        self.dirty_chunks.extend(first..=last);
        self.last_dirty = Some(last);
        for index in self.layout.index(range.start)..=self.layout.index(range.end - 1) {
            self.dirty_groups.insert(index as u32);
        }
    }

    /// Brings every index over the groups up to date with one group.
    pub(crate) fn refresh(&mut self, index: usize) {
        let frags = self.layout.extent(index).frags;
        let group = &mut self.groups[index];
        let unused = frags.saturating_sub(group.used);
        let empty = group.used <= group.reserved;
        let number = index as u32;

        let known = !matches!(group.state, State::Absent) && group.deltas.is_empty();
        let claimable = group.role == Role::Free && empty && known && group.pristine > 0;
        if claimable != group.claimable {
            group.claimable = claimable;
            if claimable {
                self.free.insert(number)
            } else {
                self.free.remove(&number)
            };
        }
        let idle = empty && matches!(group.role, Role::Log | Role::Data);
        if idle != group.idle {
            group.idle = idle;
            if idle {
                self.idle.insert(number)
            } else {
                self.idle.remove(&number)
            };
        }
        if !group.deltas.is_empty() {
            self.pending.insert(number);
        }

        // Small enough: a group has at most 2^19 fragments.
        let (run, hope, free) = match &group.state {
            State::Loaded(map) => (map.longest() as u32, 0, map.clear_frags()),
            State::Absent => (0, unused as u32, unused),
            State::Empty => (0, 0, if claimable { group.pristine } else { 0 }),
        };
        let (log, data) = (group.role == Role::Log, group.role == Role::Data);
        let loaded = matches!(group.state, State::Loaded(_));
        let open = !self.closed.contains(&index);
        let (run, hope) = if open { (run, hope) } else { (0, 0) };
        if log {
            self.log_runs.set(index, run);
            self.log_hopes.set(index, hope);
        } else if data {
            self.data_runs.set(index, run);
            self.data_hopes.set(index, hope);
        }
        let counted = if log || claimable || data { free } else { 0 };
        if counted != group.counted {
            let total = if data {
                &mut self.log.data
            } else if !log {
                &mut self.log.free_groups
            } else if loaded {
                &mut self.log.loaded
            } else {
                &mut self.log.unloaded
            };
            *total = total.saturating_add(counted).saturating_sub(group.counted);
            group.counted = counted;
        }
        let room = if log {
            0
        } else {
            unused.saturating_sub(group.promised)
        };
        let room = if group.role == Role::Free || data {
            room as u32
        } else {
            0
        };
        self.rooms_sum =
            (self.rooms_sum + u64::from(room)).saturating_sub(u64::from(self.rooms.get(index)));
        self.rooms.set(index, room);
    }

    /// Takes a group out of the counters that depend on its role and state, before either changes.
    pub(crate) fn leave(&mut self, index: usize) {
        let group = &mut self.groups[index];
        let total = match (group.role, &group.state) {
            (Role::Log, State::Loaded(_)) => &mut self.log.loaded,
            (Role::Log, _) => &mut self.log.unloaded,
            (Role::Data, _) => &mut self.log.data,
            _ => &mut self.log.free_groups,
        };
        *total = total.saturating_sub(std::mem::take(&mut group.counted));
        match group.role {
            Role::Log => {
                self.log_runs.set(index, 0);
                self.log_hopes.set(index, 0);
                self.log_groups.remove(&(index as u32));
            }
            Role::Data => {
                self.data_runs.set(index, 0);
                self.data_hopes.set(index, 0);
            }
            _ => {}
        }
        if let State::Loaded(map) = &group.state {
            self.loaded_bytes -= map.bytes();
        }
    }

    /// The reverse of [`Space::leave`], after role or state have changed.
    pub(crate) fn enter(&mut self, index: usize) {
        let group = &self.groups[index];
        if group.role == Role::Log {
            self.log_groups.insert(index as u32);
        }
        if let State::Loaded(map) = &group.state {
            self.loaded_bytes += map.bytes();
        }
        self.refresh(index);
    }
}
