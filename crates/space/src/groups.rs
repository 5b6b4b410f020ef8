//! The table of groups (H4): descriptors, bitmaps as far as they are in memory, and the indexes that follow from both.
//!
//! Whoever changes a group does it here, so that no index is ever behind.

mod areas;
mod changes;
mod group;
mod index;
mod load;
mod mark;
mod ranges;
mod repair;
mod roles;

pub use areas::Areas;
pub(crate) use changes::Changes;
pub(crate) use group::{Group, State};
pub use index::FreeIndex;
pub(crate) use index::Indexes;
use index::Stand;
pub(crate) use ranges::Ranges;
pub use repair::SpaceRepair;

use crate::layout::Layout;
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::{FragAddr, GroupNo};
use std::collections::BTreeSet;

/// All groups of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    layout: Layout,
    table: Vec<Group>,
    /// Groups that have less room than others: a part is reserved, or they are the last and shorter.
    uneven: Vec<u32>,
    /// Groups that are being emptied: nothing new is placed in them.
    closed: BTreeSet<usize>,
    /// Whether everything goes to groups of the log, and to groups that hold nothing ([`Areas::keep_all_in_log`]).
    all_log: bool,
    /// Whether the log is one run upward ([`Areas::spare_bands`]).
    spares_bands: bool,
    /// Then the group of the log that blocks of large files fill: segments leave it alone.
    home_head: Option<usize>,
    /// Fragments that were taken since the checkpoint that the volume was opened with: the time by which the age of what
    /// groups hold is told.
    clock: u64,
    indexes: Indexes,
    changes: Changes,
}

impl Groups {
    /// The groups as their descriptors say; those without one are free and empty. Groups that hold more than what is
    /// reserved are not loaded.
    pub(crate) fn open(layout: Layout, descs: Vec<(GroupNo, GroupDesc)>) -> Groups {
        let count = layout.groups();
        let table: Vec<_> = (0..count)
            .map(|index| Group::pristine(&layout, index))
            .collect();
        let whole = layout.geometry().group_frags;
        let uneven = (0u32..).zip(&table);
        let uneven = uneven.filter(|(_, group)| (1..whole).contains(&group.pristine_run()));
        let mut groups = Groups {
            uneven: uneven.map(|(number, _)| number).collect(),
            closed: BTreeSet::new(),
            all_log: false,
            spares_bands: false,
            home_head: None,
            clock: 0,
            indexes: Indexes::new(count),
            changes: Changes::default(),
            layout,
            table,
        };
        for (number, desc) in descs {
            let index = number.0 as usize;
            let frags = groups.layout.geometry().group_extent(number).frags;
            let used = desc.used.saturating_add(groups.layout.unmapped_in(index));
            if let Some(group) = groups.table.get_mut(index) {
                group.describe(GroupDesc { used, ..desc }, frags);
            }
        }
        for index in 0..count {
            // A bitmap without content cannot contradict anything.
            let _ = groups.enter(index);
        }
        groups
    }

    // ---- what is known -----------------------------------------------------------------------------------------

    /// Where the groups are.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A group of the volume.
    pub(crate) fn group(&self, index: usize) -> &Group {
        &self.table[index]
    }

    /// A group, if there is one of this number.
    pub(crate) fn get(&self, group: GroupNo) -> Option<&Group> {
        self.table.get(group.0 as usize)
    }

    /// All groups, by number.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &Group)> {
        (0u32..).zip(&self.table)
    }

    /// Fragments of a group that nothing uses, and nothing holds back.
    pub(crate) fn unused(&self, index: usize) -> u64 {
        let frags = self.layout.extent(index).frags;
        frags.saturating_sub(self.table[index].used())
    }

    /// Fragments that were taken since the checkpoint that the volume was opened with.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// How many fragments were taken elsewhere since something was placed in the group. A hint: it starts anew when a volume
    /// is opened, with what is replayed.
    pub(crate) fn age(&self, index: usize) -> u64 {
        self.clock.saturating_sub(self.table[index].written())
    }

    /// Groups that have less room than others.
    pub(crate) fn uneven(&self) -> &[u32] {
        &self.uneven
    }

    /// Whether there are groups in which nothing new is placed.
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Whether the group is being emptied.
    pub(crate) fn is_closed(&self, index: usize) -> bool {
        self.closed.contains(&index)
    }

    /// Whether everything goes to groups of the log.
    pub(crate) fn is_all_log(&self) -> bool {
        self.all_log
    }

    /// Whether a segment may go on at an address: where each group is filled by itself, not where one begins.
    pub(crate) fn may_go_on(&self, at: FragAddr) -> bool {
        !self.all_log || self.layout.position(at.0) != 0
    }

    /// Whether the log is one run upward while half of the groups are free.
    pub(crate) fn spares_bands(&self) -> bool {
        self.spares_bands
    }

    /// Whether blocks of large files fill this group of the log, and segments do not.
    pub(crate) fn is_home_head(&self, index: usize) -> bool {
        self.home_head == Some(index)
    }

    /// The indexes over the groups.
    pub(crate) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// The free space of a role's groups.
    pub(crate) fn of(&self, role: Role) -> &FreeIndex {
        self.indexes.of(role)
    }

    /// What differs from the last checkpoint.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// What bitmaps in memory say of ranges.
    pub(crate) fn ranges(&self) -> Ranges<'_> {
        Ranges::new(self)
    }

    // ---- changes -----------------------------------------------------------------------------------------------

    /// Promises fragments of a group to a new directory.
    pub(crate) fn promise(&mut self, index: usize, frags: u64) {
        self.table[index].promise(frags, self.layout.geometry().group_frags);
        self.refresh(index);
    }

    /// Directories came to be anchored in a group (positive) or left it.
    pub(crate) fn anchor(&mut self, group: GroupNo, delta: i32) {
        let index = group.0 as usize;
        if let Some(known) = self.table.get_mut(index) {
            known.anchor(delta);
            self.changes.mark_desc(index);
            self.refresh(index);
        }
    }

    /// The roles that changed since the last call.
    pub(crate) fn take_roles(&mut self) -> Vec<(GroupNo, Role)> {
        self.changes.take_roles()
    }

    /// A checkpoint has all that was reported so far; changes that wait for a group to be loaded are not in it yet.
    pub(crate) fn checkpoint_done(&mut self) {
        self.changes.written(self.indexes.deferred());
    }

    /// Whether the counts are those of the bitmaps in memory, and the indexes those of the groups.
    ///
    /// # Errors
    /// What is not so.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut indexes = Indexes::new(self.table.len());
        for (index, group) in self.table.iter().enumerate() {
            if group.map().is_some() && self.bits(index).ones() != group.used() {
                return Err("a group's count is not that of its bitmap");
            }
            if group.map().is_some_and(|map| !map.extents_agree()) {
                return Err("the extents of a group are not those of its bitmap");
            }
            if group.unshown() > group.taken() {
                return Err("a group has more unshown than taken fragments");
            }
            indexes.update(index, group, self.stand(index));
        }
        match self.indexes.agree_with(&indexes) {
            true => Ok(()),
            false => Err("the free-space index is not that of the groups"),
        }
    }

    /// Brings every index up to date with one group.
    fn refresh(&mut self, index: usize) {
        self.indexes
            .update(index, &self.table[index], self.stand(index));
    }

    /// What a group's index goes by beside the group.
    fn stand(&self, index: usize) -> Stand {
        Stand {
            frags: self.layout.extent(index).frags,
            open: !self.is_closed(index) && !self.is_home_head(index),
            stays: !self.layout.is_leaving(index),
            homes: !self.layout.is_for_log(index),
        }
    }
}
