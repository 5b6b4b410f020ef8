//! What bitmaps in memory say of ranges, which may go across groups.

use super::{Group, Groups};
use crate::error::SpaceError;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

/// A look at the groups' bitmaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranges<'a> {
    groups: &'a Groups,
}

impl<'a> Ranges<'a> {
    pub(super) fn new(groups: &'a Groups) -> Ranges<'a> {
        Ranges { groups }
    }

    fn group(self, index: usize) -> &'a Group {
        self.groups.group(index)
    }

    /// Whether runs go on from a group into the next one: never into one that is being emptied, which would get back what leaves it.
    /// Where everything is in the log, a neighbour may hold something, and what is free there is a hole; so only where the log is to be
    /// one run, and into a group that holds nothing.
    fn cross(self, from: usize, into: usize) -> bool {
        let groups = self.groups;
        let homes = groups.is_home_head(from) || groups.is_home_head(into);
        let one_run = groups.spares_bands() && !homes && groups.group(into).is_empty();
        !groups.is_closed(into) && (!groups.is_all_log() || one_run)
    }

    /// Free whole cells from `at` on, in fragments, at most `max`, across the borders of loaded groups of one role if runs
    /// go on there. 0 when `at` is not the start of a cell, or on a device that leaves.
    pub(crate) fn run(self, role: Role, at: FragAddr, max: u64) -> u64 {
        let layout = self.groups.layout();
        let mut found = 0;
        while found < max && at.0.saturating_add(found) < layout.geometry().total_frags {
            let here = at.0 + found;
            let index = layout.index(here);
            if found > 0 && !self.cross(index - 1, index) {
                break;
            }
            let group = self.group(index);
            let is_room = group.role() == role && !layout.is_leaving(index);
            let Some(map) = group.map().filter(|_| is_room) else {
                break;
            };
            let run = map.run(layout.position(here), max - found);
            found += run;
            if run == 0 || layout.index(here + run) == index {
                break;
            }
        }
        found
    }

    /// Checks that a range is wholly free, in groups that are loaded and have a role.
    pub(crate) fn check_free(self, extent: Extent) -> Result<Range<u64>, SpaceError> {
        let layout = self.groups.layout();
        let range = layout.on_volume(extent)?;
        for (index, bits, _) in layout.parts(range.clone()) {
            let (known, group) = (self.group(index), GroupNo(index as u32));
            let role = known.role();
            if role == Role::Free {
                return Err(SpaceError::Role { group, role });
            }
            if known.map().is_none() {
                return Err(SpaceError::NotLoaded { group });
            }
            known.check_clear(bits, extent)?;
        }
        Ok(range)
    }

    /// Checks that a range is free, as far as bitmaps are in memory.
    pub(crate) fn check_clear(self, range: Range<u64>, extent: Extent) -> Result<(), SpaceError> {
        let mut parts = self.groups.layout().parts(range);
        parts.try_for_each(|(index, bits, _)| self.group(index).check_clear(bits, extent))
    }

    /// Checks that a range is in use or held back, as far as bitmaps are in memory.
    pub(crate) fn check_set(self, range: Range<u64>, extent: Extent) -> Result<(), SpaceError> {
        let mut parts = self.groups.layout().parts(range);
        parts.try_for_each(|(index, bits, _)| self.group(index).check_set(bits, extent))
    }

    /// Checks that a range could be marked, whatever is there.
    pub(crate) fn check_aligned(self, range: Range<u64>) -> Result<(), SpaceError> {
        let mut parts = self.groups.layout().parts(range);
        let misfit = parts.find(|(index, bits, _)| {
            let map = self.group(*index).map();
            map.is_some_and(|map| !map.is_aligned(bits))
        });
        misfit.map_or(Ok(()), |(_, _, extent)| {
            Err(SpaceError::Misaligned { extent })
        })
    }
}
