//! Setting and clearing bits: at once in bitmaps that are in memory, later in others.

use super::{Groups, State};
use crate::error::SpaceError;
use loamfs_format::Extent;
use std::ops::Range;

/// Sets and clears bits.
pub(crate) struct Mark<'g>(&'g mut Groups);

impl Mark<'_> {
    /// Sets the bits of a free range.
    pub(crate) fn set(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.0.layout.parts(range) {
            self.0.clock += extent.frags;
            let now = self.0.table[index].set(bits, extent, self.0.clock);
            self.marked(index, extent, now);
        }
    }

    /// Clears the bits of a range in use.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.0.layout.parts(range) {
            let now = self.0.table[index].clear(bits, extent);
            self.marked(index, extent, now);
        }
    }

    /// Bits were set or cleared, in memory or not.
    fn marked(&mut self, index: usize, extent: Extent, now: bool) {
        if now {
            self.0.dirty(extent);
        } else {
            self.0.changes.mark_desc(index);
        }
        self.0.refresh(index);
    }

    /// Sets the bits of a free, loaded range that the next checkpoint does not tell of.
    pub(crate) fn set_unshown(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.0.layout.parts(range) {
            self.0.clock += extent.frags;
            let group = &mut self.0.table[index];
            group.set(bits, extent, self.0.clock);
            group.hide(extent.frags);
            self.0.refresh(index);
        }
    }

    /// The next checkpoint tells of an unshown range.
    pub(crate) fn show(&mut self, range: Range<u64>) {
        for (index, _, extent) in self.0.layout.parts(range) {
            self.0.table[index].unhide(extent.frags);
            self.0.dirty(extent);
        }
    }

    /// Clears the bits of an unshown range.
    pub(crate) fn clear_unshown(&mut self, range: Range<u64>) {
        for (index, bits, extent) in self.0.layout.parts(range) {
            let group = &mut self.0.table[index];
            group.unhide(extent.frags);
            group.clear(bits, extent);
            self.0.refresh(index);
        }
    }
}

impl Groups {
    /// Where bits are set and cleared.
    pub(crate) fn mark(&mut self) -> Mark<'_> {
        Mark(self)
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
