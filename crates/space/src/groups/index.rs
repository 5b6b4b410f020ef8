//! The free-space index over all groups: an entry a role, and sets of groups that somebody looks for.
//!
//! Of a group whose bitmap is in memory the longest free run is known, of any other an upper bound: its free fragments.
//! Over both stand trees of maxima, as over the words of one bitmap (the extent summary tree, H5).

use super::group::{Group, State};
use crate::bitmap::max_tree::MaxTree;
use crate::role::Cells;
use loamfs_format::GroupNo;
use loamfs_format::group::Role;
use std::collections::BTreeSet;
use std::ops::Range;

/// Groups whose bitmaps are asked for at once: they stand on the disk one after another.
const LOAD_AHEAD: usize = 4;

/// What counts for a group beside what it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    /// Fragments that it has.
    pub(super) frags: u64,
    /// Whether anything new may be placed in it.
    pub(super) open: bool,
    /// Whether what is free there is room: its device is to stay.
    pub(super) stays: bool,
    /// Whether directories may be anchored in it.
    pub(super) homes: bool,
}

/// What the index has of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    role: Role,
    /// Whether the group is in the index of its role.
    listed: bool,
    /// Whether its bitmap is known.
    known: bool,
    /// Longest free run of a known bitmap, and what no run of any other can exceed: of what is open to be taken.
    run: u32,
    bound: u32,
    /// Fragments that an extent of a section has free, see [`GroupMap::best_extent`](crate::bitmap::group_map::GroupMap::best_extent).
    extent: u32,
    /// Free fragments.
    free: u64,
    /// Fragments that are neither in use nor promised, of groups where directories can be anchored.
    room: u32,
    used: u64,
    /// Bytes of the bitmap.
    bytes: usize,
    /// Whether the group could lose its role.
    idle: bool,
    /// Whether something happened to it that its bitmap does not have.
    deferred: bool,
}

impl Share {
    fn of(group: &Group, stand: Stand) -> Share {
        let Stand {
            frags,
            open,
            stays,
            homes,
        } = stand;
        let (role, unused) = (group.role(), frags.saturating_sub(group.used()));
        let gives = Cells::of(role) != Cells::None;
        let claimable = group.is_claimable();
        let listed = stays && (gives || claimable);
        let open = stays && open;
        // Small enough: a group has at most 2^19 fragments.
        let extent = group.map().map_or(0, |map| map.best_extent() as u32);
        let (run, bound, free) = match group.state() {
            State::Loaded(map) => (map.longest() as u32, 0, map.clear_frags()),
            State::Absent => (0, unused as u32, unused),
            State::Empty if claimable => (0, 0, group.pristine_run()),
            State::Empty => (0, 0, 0),
        };
        let homes = stays && homes && (role == Role::Free || Cells::of(role) == Cells::Blocks);
        let room = unused.saturating_sub(group.promised()) as u32;
        Share {
            role,
            listed,
            known: !matches!(group.state(), State::Absent),
            run: if open { run } else { 0 },
            bound: if open { bound } else { 0 },
            extent: if open { extent } else { 0 },
            free: if listed { free } else { 0 },
            room: if homes { room } else { 0 },
            used: group.used(),
            bytes: group.map().map_or(0, |map| map.bytes()),
            idle: gives && group.is_empty(),
            deferred: !group.is_current(),
        }
    }
}

/// The groups of one role, and where in them free runs may be.
#[derive(Clone, Debug)]
pub struct FreeIndex {
    groups: BTreeSet<u32>,
    runs: MaxTree,
    bounds: MaxTree,
    extents: MaxTree,
    /// Free fragments of groups whose bitmap is known, and of others.
    known: u64,
    unknown: u64,
}

impl FreeIndex {
    fn new(count: usize) -> FreeIndex {
        FreeIndex {
            groups: BTreeSet::new(),
            runs: MaxTree::new(vec![0; count]),
            bounds: MaxTree::new(vec![0; count]),
            extents: MaxTree::new(vec![0; count]),
            known: 0,
            unknown: 0,
        }
    }

    /// The groups, but for free ones that can take no role.
    pub fn groups(&self) -> &BTreeSet<u32> {
        &self.groups
    }

    /// The group of `within` that is nearest to another one, which may be elsewhere.
    pub(crate) fn nearest(&self, to: usize, within: &Range<usize>) -> Option<usize> {
        let (start, end) = (within.start as u32, within.end as u32);
        let to = (to as u32).clamp(start, end.max(start));
        let above = self.groups.range(to..end.max(to)).next().copied();
        let below = self.groups.range(start..to).next_back().copied();
        let both = [above, below].into_iter().flatten();
        let nearest = both.min_by_key(|group| group.abs_diff(to));
        nearest.map(|group| group as usize)
    }

    /// Whether one of the groups of `within` is among them.
    pub(crate) fn is_any(&self, within: &Range<usize>) -> bool {
        self.nearest(within.start, within).is_some()
    }

    /// The longest free run of each group whose bitmap is known, 0 of others.
    pub(crate) fn runs(&self) -> &MaxTree {
        &self.runs
    }

    /// Fragments of the longest free run, or that it may have where bitmaps are not known.
    pub fn longest(&self) -> u32 {
        self.runs.max().max(self.bounds.max())
    }

    /// The upper bound of each group whose bitmap is not known, 0 of others.
    pub(crate) fn bounds(&self) -> &MaxTree {
        &self.bounds
    }

    /// As many fragments as one extent of each group has free for sure, if that is half of it: 0 where bitmaps are not known, and of
    /// groups that no section has.
    pub(crate) fn extents(&self) -> &MaxTree {
        &self.extents
    }

    /// The first few groups from `first` on whose upper bounds are at least `least`.
    pub(crate) fn to_load(&self, first: usize, least: u32) -> Vec<GroupNo> {
        let next = |&index: &usize| self.bounds.first(index + 1, least);
        std::iter::successors(Some(first), next)
            .take(LOAD_AHEAD)
            .map(|index| GroupNo(index as u32))
            .collect()
    }

    /// Fragments of free whole cells in groups whose bitmap is known.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Free fragments of the other groups.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Free fragments of all of them.
    pub fn frags(&self) -> u64 {
        self.known + self.unknown
    }

    fn count(&mut self, known: bool, more: u64, less: u64) {
        let frags = match known {
            true => &mut self.known,
            false => &mut self.unknown,
        };
        *frags = frags.saturating_add(more).saturating_sub(less);
    }

    fn put(&mut self, index: usize, share: &Share, before: u64) {
        self.count(share.known, share.free, before);
        self.runs.set(index, share.run);
        self.bounds.set(index, share.bound);
        self.extents.set(index, share.extent);
    }

    fn remove(&mut self, index: usize, share: &Share) {
        self.groups.remove(&(index as u32));
        let nothing = Share {
            known: share.known,
            ..Share::default()
        };
        self.put(index, &nothing, share.free);
    }
}

/// Indexes over all groups.
#[derive(Clone, Debug)]
pub(crate) struct Indexes {
    shares: Vec<Share>,
    /// By number of the role.
    roles: [FreeIndex; Role::ALL.len()],
    idle: BTreeSet<u32>,
    deferred: BTreeSet<u32>,
    rooms: MaxTree,
    rooms_sum: u64,
    used: u64,
    bytes: usize,
}

impl Indexes {
    /// Indexes that have nothing of `count` groups.
    pub(super) fn new(count: usize) -> Indexes {
        let index = |role| match Cells::of(role) {
            Cells::None => FreeIndex::new(0),
            Cells::Units | Cells::Blocks => FreeIndex::new(count),
        };
        Indexes {
            shares: vec![Share::default(); count],
            roles: Role::ALL.map(index),
            idle: BTreeSet::new(),
            deferred: BTreeSet::new(),
            rooms: MaxTree::new(vec![0; count]),
            rooms_sum: 0,
            used: 0,
            bytes: 0,
        }
    }

    /// Brings all indexes up to date with one group. What is not open has no run to find.
    pub(super) fn update(&mut self, index: usize, group: &Group, stand: Stand) {
        let new = Share::of(group, stand);
        let old = std::mem::replace(&mut self.shares[index], new);
        if new == old {
            return;
        }
        self.used = self.used - old.used + new.used;
        self.bytes = self.bytes - old.bytes + new.bytes;
        self.rooms_sum = self.rooms_sum - u64::from(old.room) + u64::from(new.room);
        self.rooms.set(index, new.room);
        set_member(&mut self.idle, index, old.idle, new.idle);
        set_member(&mut self.deferred, index, old.deferred, new.deferred);
        let place = |share: &Share| (share.role, share.listed, share.known);
        if place(&old) == place(&new) {
            self.roles[new.role as usize].put(index, &new, old.free);
            return;
        }
        self.roles[old.role as usize].remove(index, &old);
        let role = &mut self.roles[new.role as usize];
        set_member(&mut role.groups, index, false, new.listed);
        role.put(index, &new, 0);
    }

    /// Whether they have of each group, and in all, what `others` have, which were just made.
    pub(super) fn agree_with(&self, others: &Indexes) -> bool {
        let sums = |of: &Indexes| (of.used, of.bytes, of.rooms_sum);
        let mut roles = self.roles.iter().zip(&others.roles);
        let free = |of: &FreeIndex| (of.known, of.unknown);
        self.shares == others.shares
            && sums(self) == sums(others)
            && roles.all(|(one, other)| one.groups == other.groups && free(one) == free(other))
    }

    /// The free space of a role's groups.
    pub(crate) fn of(&self, role: Role) -> &FreeIndex {
        &self.roles[role as usize]
    }

    /// Groups that hold nothing and could lose their role.
    pub(crate) fn idle(&self) -> &BTreeSet<u32> {
        &self.idle
    }

    /// Groups to which something happened that their bitmaps do not have.
    pub(crate) fn deferred(&self) -> &BTreeSet<u32> {
        &self.deferred
    }

    /// Free and unpromised fragments of each data or free group.
    pub(crate) fn rooms(&self) -> &MaxTree {
        &self.rooms
    }

    /// The sum of these.
    pub(crate) fn rooms_sum(&self) -> u64 {
        self.rooms_sum
    }

    /// Fragments of all groups whose bit is set.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that bitmaps in memory take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn set_member(set: &mut BTreeSet<u32>, index: usize, was: bool, is: bool) {
    match (was, is) {
        (false, true) => _ = set.insert(index as u32),
        (true, false) => _ = set.remove(&(index as u32)),
        _ => {}
    }
}
