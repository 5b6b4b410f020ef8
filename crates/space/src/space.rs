//! [`Space`]: the free space of a volume, and those that own the parts of its state.

mod life;
mod replay;

pub use replay::SpaceReplay;

use crate::bitmaps::Bitmaps;
use crate::checkpoint::{self, Checkpoint};
use crate::cleaning::Cleaning;
use crate::error::SpaceError;
use crate::groups::{Areas, FreeIndex, Groups, SpaceRepair};
use crate::held::Held;
use crate::law::{Law, Rules};
use crate::layout::Layout;
use crate::owed::Owed;
use crate::owners::Owners;
use crate::placement::{Placement, PlacementState};
use crate::spare::Spare;
use crate::uneven::Uneven;
use crate::unshown::Unshown;
use crate::usage::Usage;
use loamfs_format::group::{CHUNK_BYTES, GroupDesc, Role};
use loamfs_format::{Extent, Geometry, GroupNo};

/// The free space of a volume. See the crate's documentation for the states of a fragment.
#[derive(Clone, Debug)]
pub struct Space {
    groups: Groups,
    unshown: Unshown,
    held: Held,
    owed: Owed,
    owners: Owners,
    placement: PlacementState,
    law: Law<dyn Rules>,
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
    /// and its successors say: see [`SpaceReplay`].
    pub fn open(
        geometry: Geometry,
        reserved: Vec<Extent>,
        descs: Vec<(GroupNo, GroupDesc)>,
    ) -> Space {
        Space::open_with_gaps(geometry, reserved, &[], descs)
    }

    /// The same of a volume with `gaps`: nothing is found there, and the maps do not tell of them.
    pub fn open_with_gaps(
        geometry: Geometry,
        reserved: Vec<Extent>,
        gaps: &[Extent],
        descs: Vec<(GroupNo, GroupDesc)>,
    ) -> Space {
        Space {
            groups: Groups::open(Layout::new(geometry, reserved, gaps), descs),
            unshown: Unshown::default(),
            held: Held::default(),
            owed: Owed::default(),
            owners: Owners::default(),
            placement: PlacementState::default(),
            law: Law::default(),
        }
    }

    /// The same under a law that somebody else has chosen.
    #[must_use]
    pub fn with_law(self, law: Law<dyn Rules>) -> Space {
        Space { law, ..self }
    }

    /// The law that it goes by.
    pub fn law(&self) -> &Law<dyn Rules> {
        &self.law
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

    /// Which groups serve what.
    pub fn areas(&mut self) -> Areas<'_> {
        self.groups.areas()
    }

    /// Whether everything goes to groups of the log that hold nothing.
    pub fn is_all_log(&self) -> bool {
        self.groups.is_all_log()
    }

    /// Then, fragments that blocks of large files find in the group that they fill.
    pub fn home_room(&self) -> u64 {
        Placement::home_room(&self.groups, &self.placement)
    }

    /// Then, fragments that blocks of large files find elsewhere while groups are emptied: there, and in whole groups.
    pub fn room_for_moved_homes(&self) -> u64 {
        Placement::room_for_moved_homes(&self.groups, &self.placement)
    }

    /// What the group is used for; [`Role::Free`] for groups that do not exist.
    pub fn role(&self, group: GroupNo) -> Role {
        let known = self.groups.get(group);
        known.map_or(Role::Free, |known| known.role())
    }

    /// Groups that have no role and can take one.
    pub fn free_groups(&self) -> u64 {
        self.groups.of(Role::Free).groups().len() as u64
    }

    /// The free space of a role's groups.
    pub fn free_index(&self, role: Role) -> &FreeIndex {
        self.groups.of(role)
    }

    /// How much is in use, and where.
    pub fn usage(&self) -> Usage<'_> {
        Usage::new(&self.groups, &self.held)
    }

    /// Free groups that something may be kept in until they are needed.
    pub fn spare(&self) -> Spare<'_> {
        Spare::new(&self.groups)
    }

    /// Groups that have less room than others.
    pub fn uneven(&self) -> Uneven<'_> {
        Uneven::new(&self.groups)
    }

    // ---- placement ---------------------------------------------------------------------------------------------

    /// Where new things go.
    pub fn placement(&mut self) -> Placement<'_> {
        Placement::new(&mut self.groups, &mut self.placement, &self.law)
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

    /// Drops a group's bitmap from memory if a checkpoint has all of it, and tells whether it did. A free group's
    /// takes no memory.
    pub fn unload(&mut self, group: GroupNo) -> bool {
        self.groups.unload(group)
    }

    /// What repair knows better.
    pub fn repair(&mut self) -> SpaceRepair<'_> {
        SpaceRepair::new(&mut self.groups)
    }

    /// The bitmaps as they are in memory.
    pub fn bitmaps(&self) -> Bitmaps<'_> {
        Bitmaps::new(&self.groups, &self.held)
    }

    // ---- what waits --------------------------------------------------------------------------------------------

    /// What is held back (delayed deallocation).
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// What stands on fast devices and is to go to slow ones.
    pub fn owed(&self) -> &Owed {
        &self.owed
    }

    /// The same.
    pub fn owed_mut(&mut self) -> &mut Owed {
        &mut self.owed
    }

    /// The unshown ranges, by address.
    pub fn unshown(&self) -> impl Iterator<Item = Extent> {
        self.unshown.iter()
    }

    /// Whether everything is counted right, and nothing is both held back and unshown. It goes over all bitmaps in
    /// memory: for tests, and builds that are tested.
    ///
    /// # Errors
    /// What is not so.
    pub fn check(&self) -> Result<(), &'static str> {
        self.groups.check()?;
        let unshown: u64 = self.unshown().map(|extent| extent.frags).sum();
        let counted: u64 = self
            .groups
            .numbered()
            .map(|(_, group)| group.unshown())
            .sum();
        if unshown != counted {
            return Err("unshown fragments are not counted right");
        }
        let held: u64 = self.held.iter().map(|(extent, _)| extent.frags).sum();
        if held != self.held.frags() {
            return Err("fragments that are held back are not counted right");
        }
        let twice = |extent: Extent| !self.held.is_free(&(extent.start.0..extent.end().0));
        match self.unshown().any(twice) {
            true => Err("a range is held back that no segment shows"),
            false => Ok(()),
        }
    }

    // ---- checkpoints -------------------------------------------------------------------------------------------

    /// Bitmaps and descriptors as a checkpoint taken now writes them.
    pub fn checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint::new(&self.groups, &self.unshown, &self.law)
    }

    /// The owner records since the last checkpoint.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// The groups whose bitmaps a checkpoint needs and lacks: those that changed while they were not loaded, and,
    /// where a chunk covers several groups, the neighbours of those that changed.
    ///
    /// # Errors
    /// [`SpaceError`] when what was replayed contradicts itself.
    pub fn groups_to_load_for_checkpoint(&mut self) -> Result<Vec<GroupNo>, SpaceError> {
        checkpoint::groups_to_load(&mut self.groups)
    }

    /// Everything reported so far is in the maps: forgets what is dirty, and the owner records.
    pub fn checkpoint_done(&mut self) {
        self.groups.checkpoint_done();
        self.owners.clear();
    }

    /// What summaries say, to be applied while a volume is opened.
    pub fn replay(&mut self) -> SpaceReplay<'_> {
        SpaceReplay::new(self)
    }

    /// What the cleaner may want to move.
    pub fn cleaning(&self) -> Cleaning<'_> {
        Cleaning::new(&self.groups, &self.held)
    }

    /// The table of groups, for tests.
    #[cfg(test)]
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::FoundSpace;
    use crate::tests::geometry;
    use loamfs_format::FragAddr;
    use loamfs_format::Ssn;
    use loamfs_format::summary::Wait;

    #[test]
    fn what_is_counted_wrongly_is_found() {
        let mut space = Space::new(geometry(), Vec::new());
        let FoundSpace::Run(run) = space.placement().find_log(8, 8, FragAddr(0)) else {
            panic!("no room");
        };
        space.allocate_unshown(run).unwrap();
        assert_eq!(space.check(), Ok(()));
        let range = run.start.0..run.end().0;
        let mut twice = space.clone();
        twice.held.insert(range.clone(), Wait::Durable(Ssn(1)));
        assert!(twice.check().is_err(), "held back and unshown");
        let mut lost = space.clone();
        lost.unshown = Unshown::default();
        assert!(lost.check().is_err(), "unshown by the group alone");
        space.groups.mark().set(range);
        assert!(space.check().is_err(), "counted twice");
    }
}
