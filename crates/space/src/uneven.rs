//! Groups that have less room than others: superblocks or the volume's end cut them short.

use crate::groups::Groups;
use crate::role::Cells;
use loamfs_format::group::Role;

/// Free space that no block of data fits into; see [`Uneven::ragged`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ragged {
    /// Fragments in data groups, at most.
    pub data: u64,
    /// Fragments in free groups.
    pub free: u64,
}

/// Groups that are cut short.
#[derive(Clone, Copy, Debug)]
pub struct Uneven<'a> {
    groups: &'a Groups,
}

impl<'a> Uneven<'a> {
    pub(crate) fn new(groups: &'a Groups) -> Uneven<'a> {
        Uneven { groups }
    }

    /// Fragments that no block of data fits into, of those that the index of data groups counts, and of free groups as if
    /// they were whole: at the edges of what is reserved, and of the volume.
    pub fn ragged(self) -> Ragged {
        let (layout, mut ragged) = (self.groups.layout(), Ragged::default());
        let geometry = layout.geometry();
        let uneven = self.groups.uneven().iter().map(|group| *group as usize);
        for index in uneven.filter(|index| !layout.is_leaving(*index)) {
            let group = self.groups.group(index);
            // At the end of the group, and of each part that is reserved.
            let cuts = 1 + layout.reserved_in(index).len() as u64;
            let ends = cuts * geometry.block_frags();
            if Cells::of(group.role()) == Cells::Blocks {
                ragged.data += ends;
            } else if group.role() == Role::Free {
                // It becomes one of blocks.
                ragged.free += geometry.group_frags - group.pristine_run() + ends;
            }
        }
        ragged
    }

    /// The longest runs of those that are free.
    pub fn free_runs(self) -> Vec<u64> {
        let free = self.groups.of(Role::Free).groups();
        let uneven = self.groups.uneven().iter();
        let run = |group: &u32| self.groups.group(*group as usize).pristine_run();
        uneven
            .filter(|group| free.contains(group))
            .map(run)
            .collect()
    }
}
