//! Setting and clearing bits: at once in bitmaps that are in memory, later in others.

use super::{Groups, State};
use crate::error::SpaceError;
use loamfs_format::group::Role;
use loamfs_format::{Extent, GroupNo};
use std::ops::Range;

impl Groups {
    /// Checks that a range is wholly free, in groups that are loaded and have a role.
    pub(crate) fn check_free(&self, extent: Extent) -> Result<Range<u64>, SpaceError> {
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
    pub(crate) fn check_clear(&self, range: Range<u64>, extent: Extent) -> Result<(), SpaceError> {
        let mut parts = self.layout.parts(range);
        parts.try_for_each(|(index, bits, _)| self.table[index].check_clear(bits, extent))
    }

    /// Checks that a range is in use or held back, as far as bitmaps are in memory.
    pub(crate) fn check_set(&self, range: Range<u64>, extent: Extent) -> Result<(), SpaceError> {
        let mut parts = self.layout.parts(range);
        parts.try_for_each(|(index, bits, _)| self.table[index].check_set(bits, extent))
    }

    /// Checks that a range could be marked, whatever is there.
    pub(crate) fn check_aligned(&self, range: Range<u64>) -> Result<(), SpaceError> {
        let mut parts = self.layout.parts(range);
        let misfit = parts.find(|(index, bits, _)| {
            let map = self.table[*index].map();
            map.is_some_and(|map| !map.is_aligned(bits))
        });
        misfit.map_or(Ok(()), |(_, _, extent)| {
            Err(SpaceError::Misaligned { extent })
        })
    }

    /// Sets the bits of a free range.
    pub(crate) fn set(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.layout.parts(range) {
            let now = self.table[index].set(bits, extent);
            self.marked(index, extent, now);
        }
    }

    /// Clears the bits of a range in use.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.layout.parts(range) {
            let now = self.table[index].clear(bits, extent);
            self.marked(index, extent, now);
        }
    }

    /// Bits were set or cleared, in memory or not.
    fn marked(&mut self, index: usize, extent: Extent, now: bool) {
        if now {
            self.dirty(extent);
        } else {
            self.changes.mark_desc(index);
        }
        self.refresh(index);
    }

    /// Sets the bits of a free, loaded range that the next checkpoint does not tell of.
    pub(crate) fn set_unshown(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.layout.parts(range) {
            let group = &mut self.table[index];
            group.set(bits, extent);
            group.hide(extent.frags);
            self.refresh(index);
        }
    }

    /// The next checkpoint tells of an unshown range.
    pub(crate) fn show(&mut self, range: Range<u64>) {
        for (index, _, extent) in self.layout.parts(range) {
            self.table[index].unhide(extent.frags);
            self.dirty(extent);
        }
    }

    /// Clears the bits of an unshown range.
    pub(crate) fn clear_unshown(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.layout.parts(range) {
            let group = &mut self.table[index];
            group.unhide(extent.frags);
            group.clear(bits, extent);
            self.refresh(index);
        }
    }

    /// Marks the chunks of a range as different from those on disk, and the descriptors with them.
    pub(crate) fn dirty(&mut self, extent: Extent) {
        self.changes
            .mark(extent.start.0..extent.end().0, &self.layout);
    }

    /// Reserves a place in one group, of which the maps do not tell.
    pub(crate) fn reserve(&mut self, place: Extent) -> Result<(), SpaceError> {
        let range = self.layout.on_volume(place)?;
        let index = self.layout.index_near(place.start);
        let group = &self.table[index];
        if !group.is_current() {
            return Err(SpaceError::InUse { extent: place });
        }
        let layout = self.layout.with_unmapped(place);
        let map = match group.state() {
            State::Loaded(_) => {
                let mut bits = self.bits(index);
                let start = self.layout.start(index);
                let inside = range.start - start..range.end - start;
                if !bits.is_clear(inside.clone()) {
                    return Err(SpaceError::InUse { extent: place });
                }
                bits.set(inside);
                Some(layout.map_for(index, group.role(), bits)?)
            }
            State::Empty | State::Absent => None,
        };
        self.layout = layout;
        let pristine = super::Group::pristine(&self.layout, index);
        self.table[index].reserve(place.frags, &pristine, map);
        if !self.uneven.contains(&(index as u32)) {
            self.uneven.push(index as u32);
        }
        self.refresh(index);
        Ok(())
    }
}
