//! What bitmaps in memory say of ranges, which may go across groups.

use super::Group;
use crate::error::SpaceError;
use crate::layout::Layout;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

/// A look at the groups' bitmaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranges<'a> {
    layout: &'a Layout,
    table: &'a [Group],
    /// Whether runs go on in the next group.
    cross: bool,
}

impl<'a> Ranges<'a> {
    pub(super) fn new(layout: &'a Layout, table: &'a [Group], cross: bool) -> Ranges<'a> {
        Ranges {
            layout,
            table,
            cross,
        }
    }

    /// Free whole cells from `at` on, in fragments, at most `max`, across the borders of loaded groups of one role if runs
    /// go on there. 0 when `at` is not the start of a cell, or on a device that leaves.
    pub(crate) fn run(self, role: Role, at: FragAddr, max: u64) -> u64 {
        let mut found = 0;
        while found < max && at.0.saturating_add(found) < self.layout.geometry().total_frags {
            let here = at.0 + found;
            let index = self.layout.index(here);
            let group = &self.table[index];
            let is_room = group.role() == role && !self.layout.is_leaving(index);
            let Some(map) = group.map().filter(|_| is_room) else {
                break;
            };
            let run = map.run(self.layout.position(here), max - found);
            found += run;
            if run == 0 || !self.cross || self.layout.index(here + run) == index {
                break;
            }
        }
        found
    }

    /// Checks that a range is wholly free, in groups that are loaded and have a role.
    pub(crate) fn check_free(self, extent: Extent) -> Result<Range<u64>, SpaceError> {
        let range = self.layout.on_volume(extent)?;
        for (index, bits, _) in self.layout.parts(range.clone()) {
            let (known, group) = (&self.table[index], GroupNo(index as u32));
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
        let mut parts = self.layout.parts(range);
        parts.try_for_each(|(index, bits, _)| self.table[index].check_clear(bits, extent))
    }

    /// Checks that a range is in use or held back, as far as bitmaps are in memory.
    pub(crate) fn check_set(self, range: Range<u64>, extent: Extent) -> Result<(), SpaceError> {
        let mut parts = self.layout.parts(range);
        parts.try_for_each(|(index, bits, _)| self.table[index].check_set(bits, extent))
    }

    /// Checks that a range could be marked, whatever is there.
    pub(crate) fn check_aligned(self, range: Range<u64>) -> Result<(), SpaceError> {
        let mut parts = self.layout.parts(range);
        let misfit = parts.find(|(index, bits, _)| {
            let map = self.table[*index].map();
            map.is_some_and(|map| !map.is_aligned(bits))
        });
        misfit.map_or(Ok(()), |(_, _, extent)| {
            Err(SpaceError::Misaligned { extent })
        })
    }
}
