//! One group: its descriptor, and its bitmap as far as that is in memory.

use crate::bitmap::Bitmap;
use crate::bitmap::extent_map::ExtentShape;
use crate::bitmap::group_map::GroupMap;
use crate::error::SpaceError;
use crate::layout::Layout;
use crate::role::Cells;
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::{Extent, GroupNo};
use std::ops::Range;

/// How much of a group's bitmap is in memory.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// A group that holds nothing: the bitmap is known without being there.
    Empty,
    /// The bitmap is on disk; what happened to it since is remembered.
    Absent,
    /// The bitmap is in memory.
    Loaded(Box<GroupMap>),
}

/// A change of a bitmap that is not in memory.
#[derive(Clone, Copy, Debug)]
struct Delta {
    extent: Extent,
    /// Whether the bits were set, or cleared.
    set: bool,
}

/// What is always known of a group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    role: Role,
    /// Fragments whose bit is set in memory: in use, held back, unshown or reserved.
    used: u64,
    /// Those of them that belong to superblocks.
    reserved: u64,
    /// Those of them that no segment shows yet.
    unshown: u64,
    /// Longest run of whole blocks when the group is empty; groups where it is 0 never take a role.
    pristine: u64,
    /// Directories anchored here.
    directories: u32,
    /// Fragments promised to directories that were anchored here lately (dirpref).
    promised: u64,
    /// What the table's clock showed when something was placed here last; 0 if that was before the checkpoint that the
    /// volume was opened with.
    written: u64,
    state: State,
    /// What happened to the bitmap since the checkpoint on disk, in order, while it was not in memory.
    deltas: Vec<Delta>,
}

impl Group {
    /// A group that holds nothing and has no role.
    pub(super) fn pristine(layout: &Layout, index: usize) -> Group {
        let (reserved, pristine) = layout.pristine(index);
        Group {
            role: Role::Free,
            used: reserved,
            reserved,
            unshown: 0,
            pristine,
            directories: 0,
            promised: 0,
            written: 0,
            state: State::Empty,
            deltas: Vec::new(),
        }
    }

    // ---- what is known -----------------------------------------------------------------------------------------

    /// What the group is used for.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Fragments whose bit is set.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Fragments whose bit is set and that are not a superblock's.
    pub(crate) fn taken(&self) -> u64 {
        self.used.saturating_sub(self.reserved)
    }

    /// Fragments that no segment shows yet.
    pub(crate) fn unshown(&self) -> u64 {
        self.unshown
    }

    /// Longest run of whole blocks when the group is empty.
    pub(crate) fn pristine_run(&self) -> u64 {
        self.pristine
    }

    /// Directories anchored here.
    pub(crate) fn directories(&self) -> u32 {
        self.directories
    }

    /// Fragments promised to directories that were anchored here lately.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }

    /// What the table's clock showed when something was placed here last.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether nothing is in use, held back or unshown.
    pub(crate) fn is_empty(&self) -> bool {
        self.used <= self.reserved
    }

    /// Whether nothing is there, and it has no role.
    pub(crate) fn is_vacant(&self) -> bool {
        self.role == Role::Free && self.is_empty()
    }

    /// Whether the bitmap has all that happened.
    pub(crate) fn is_current(&self) -> bool {
        self.deltas.is_empty()
    }

    /// Whether the group can take a role.
    pub(crate) fn is_claimable(&self) -> bool {
        let known = !matches!(self.state, State::Absent) && self.is_current();
        self.role == Role::Free && self.is_empty() && known && self.pristine > 0
    }

    /// How much of the bitmap is in memory.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The bitmap, if it is in memory.
    pub(crate) fn map(&self) -> Option<&GroupMap> {
        match &self.state {
            State::Loaded(map) => Some(map),
            State::Empty | State::Absent => None,
        }
    }

    /// Free fragments in holes of at least `least` fragments, as far as the bitmap is in memory.
    pub(crate) fn free_in_holes(&self, least: u64) -> u64 {
        let holes = self.map().into_iter().flat_map(GroupMap::holes);
        let frags = holes.map(|hole| hole.end - hole.start);
        frags.filter(|frags| *frags >= least).sum()
    }

    /// The descriptor.
    pub(crate) fn desc(&self) -> GroupDesc {
        GroupDesc {
            role: self.role,
            used: self.used,
            directories: self.directories,
        }
    }

    /// Checks that `bits`, the place of `extent` in the group, are clear, as far as the bitmap is in memory.
    pub(super) fn check_clear(&self, bits: Range<u64>, extent: Extent) -> Result<(), SpaceError> {
        match self.map() {
            Some(map) if !map.is_aligned(&bits) => Err(SpaceError::Misaligned { extent }),
            Some(map) if !map.is_clear(bits) => Err(SpaceError::InUse { extent }),
            _ => Ok(()),
        }
    }

    /// Checks that `bits`, the place of `extent` in the group, are set, as far as that is known. A free group holds
    /// nothing, whatever is known of its bitmap (rule 11).
    pub(super) fn check_set(&self, bits: Range<u64>, extent: Extent) -> Result<(), SpaceError> {
        match &self.state {
            _ if self.role == Role::Free => Err(SpaceError::NotInUse { extent }),
            State::Loaded(map) if !map.is_aligned(&bits) => Err(SpaceError::Misaligned { extent }),
            State::Loaded(map) if !map.is_set(bits) => Err(SpaceError::NotInUse { extent }),
            State::Empty if self.is_current() => Err(SpaceError::NotInUse { extent }),
            _ => Ok(()),
        }
    }

    // ---- bits --------------------------------------------------------------------------------------------------

    /// Sets the bits of an extent that is free, now, or when the bitmap is loaded; tells whether now. The table's clock
    /// shows `clock`.
    pub(super) fn set(&mut self, bits: Range<u64>, extent: Extent, clock: u64) -> bool {
        self.used = self.used.saturating_add(extent.frags);
        self.written = clock;
        if Cells::of(self.role) == Cells::Blocks {
            self.promised = self.promised.saturating_sub(extent.frags);
        }
        let State::Loaded(map) = &mut self.state else {
            self.deltas.push(Delta { extent, set: true });
            return false;
        };
        map.set(bits);
        true
    }

    /// Clears the bits of an extent in use, now, or when the bitmap is loaded; tells whether now.
    pub(super) fn clear(&mut self, bits: Range<u64>, extent: Extent) -> bool {
        self.used = self.used.saturating_sub(extent.frags);
        let State::Loaded(map) = &mut self.state else {
            self.deltas.push(Delta { extent, set: false });
            return false;
        };
        map.clear(bits);
        true
    }

    /// Some of the fragments in use are such that no segment shows.
    pub(super) fn hide(&mut self, frags: u64) {
        self.unshown += frags;
    }

    /// Some of the unshown fragments are shown, or free.
    pub(super) fn unhide(&mut self, frags: u64) {
        self.unshown = self.unshown.saturating_sub(frags);
    }

    // ---- bitmaps -----------------------------------------------------------------------------------------------

    /// The bitmap on disk with all that happened since.
    pub(super) fn current(
        &self,
        group: GroupNo,
        start: u64,
        bits: Bitmap,
    ) -> Result<Bitmap, SpaceError> {
        let mut bits = bits;
        for &Delta { extent, set } in &self.deltas {
            let range = extent.start.0 - start..extent.end().0 - start;
            if set {
                if !bits.is_clear(range.clone()) {
                    return Err(SpaceError::InUse { extent });
                }
                bits.set(range);
            } else {
                if !bits.is_set(range.clone()) {
                    return Err(SpaceError::NotInUse { extent });
                }
                bits.clear(range);
            }
        }
        if bits.ones() != self.used {
            return Err(SpaceError::Usage {
                group,
                descriptor: self.used,
                bitmap: bits.ones(),
            });
        }
        Ok(bits)
    }

    /// Takes in a bitmap that has all that happened, and tells what that was.
    pub(super) fn load(&mut self, map: GroupMap) -> impl Iterator<Item = Extent> + use<> {
        self.state = match self.role == Role::Free && self.is_empty() {
            true => State::Empty,
            false => State::Loaded(Box::new(map)),
        };
        let deltas = std::mem::take(&mut self.deltas);
        deltas.into_iter().map(|delta| delta.extent)
    }

    /// The blocks are cut into extents of this shape, or into none any more.
    pub(super) fn cut(&mut self, shape: Option<ExtentShape>) {
        if let State::Loaded(map) = &mut self.state
            && Cells::of(self.role) == Cells::Blocks
        {
            map.cut(shape);
        }
    }

    /// Forgets the bitmap, which a checkpoint has.
    pub(super) fn unload(&mut self) {
        self.state = State::Absent;
    }

    // ---- descriptors -------------------------------------------------------------------------------------------

    /// Takes in a descriptor of a group of `frags` fragments.
    pub(super) fn describe(&mut self, desc: GroupDesc, frags: u64) {
        self.role = desc.role;
        self.directories = desc.directories;
        if desc.used > self.reserved {
            // A descriptor that says more than the group has counts as full; loading it will say what is wrong.
            self.used = desc.used.min(frags);
            self.state = State::Absent;
        }
    }

    /// Believes that so many fragments are in use.
    pub(super) fn recount(&mut self, used: u64) {
        self.used = used;
        self.state = match used > self.reserved {
            true => State::Absent,
            false => State::Empty,
        };
    }

    /// Some more fragments are reserved: how the group looks when empty, and its bitmap now, if it is in memory.
    pub(super) fn reserve(&mut self, frags: u64, pristine: &Group, map: Option<GroupMap>) {
        self.used = self.used.saturating_add(frags);
        self.reserved = pristine.reserved;
        self.pristine = pristine.pristine;
        if let Some(map) = map {
            self.state = State::Loaded(Box::new(map));
        }
    }

    /// Takes a role; with the bitmap in its cells, if it is in memory.
    pub(super) fn take_role(&mut self, role: Role, map: Option<GroupMap>) {
        self.role = role;
        if let Some(map) = map {
            self.state = State::Loaded(Box::new(map));
        }
    }

    /// Loses the role, and the bitmap, which says nothing any more.
    pub(super) fn lose_role(&mut self) {
        self.role = Role::Free;
        self.promised = 0;
        self.state = State::Empty;
    }

    // ---- directories -------------------------------------------------------------------------------------------

    /// Promises fragments to a directory, at most `most` in all.
    pub(super) fn promise(&mut self, frags: u64, most: u64) {
        self.promised = (self.promised + frags).min(most);
    }

    /// Directories came to be anchored here, or left.
    pub(super) fn anchor(&mut self, delta: i32) {
        if delta < 0 {
            // The promises to those that left lapse.
            let left = u64::from(delta.unsigned_abs().min(self.directories));
            self.promised -= self.promised / u64::from(self.directories.max(1)) * left;
        }
        self.directories = self.directories.saturating_add_signed(delta);
    }
}
