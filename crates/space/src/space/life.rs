//! The life of a fragment: giving it to an owner, and taking it back.

use super::Space;
use crate::error::SpaceError;
use crate::owners::Owner;
use loamfs_format::summary::Wait;
use loamfs_format::{Extent, FragAddr, Ssn};
use std::ops::Range;

impl Space {
    /// Gives a free range to an owner, whose record replaces all that it overlaps.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is not wholly free, or in groups that are not loaded or have no role.
    pub fn allocate(&mut self, extent: Extent, owner: Owner) -> Result<(), SpaceError> {
        let range = self.groups.ranges().check_free(extent)?;
        self.groups.mark().set(range);
        self.correct_owner(extent, owner);
        Ok(())
    }

    /// Takes a free range for data that no segment shows yet: until [`Space::show`], neither the checkpoint's
    /// bitmap nor the owner records tell of it (rule 9).
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate_unshown(&mut self, extent: Extent) -> Result<(), SpaceError> {
        let range = self.groups.ranges().check_free(extent)?;
        self.groups.mark().set_unshown(range.clone());
        self.unshown.insert(range);
        Ok(())
    }

    /// Gives an unshown range to the owner whose shown form it belongs to from the next segment on.
    ///
    /// # Errors
    /// [`SpaceError::NotInUse`] when not all of the range is unshown.
    pub fn show(&mut self, extent: Extent, owner: Owner) -> Result<(), SpaceError> {
        let range = self.unshown.take(extent, &self.groups)?;
        self.groups.mark().show(range);
        self.correct_owner(extent, owner);
        Ok(())
    }

    /// Gives a range in use the owner record that it should have, with the next checkpoint.
    pub fn correct_owner(&mut self, extent: Extent, owner: Owner) {
        let geometry = self.groups.layout().geometry();
        self.owners.insert(extent, owner, geometry);
    }

    /// Makes an unshown range free at once. No write to it may be in flight (rule 7).
    ///
    /// # Errors
    /// [`SpaceError::NotInUse`] when not all of the range is unshown.
    pub fn abandon(&mut self, extent: Extent) -> Result<(), SpaceError> {
        let range = self.unshown.take(extent, &self.groups)?;
        self.groups.mark().clear_unshown(range);
        self.owed.pay(extent);
        Ok(())
    }

    /// Frees a range by segment `by`: it is held back until a durable summary says `durable` >= `by` (H14, rule 5).
    /// The group need not be loaded.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is known not to be wholly in use, or was freed before.
    pub fn free(&mut self, extent: Extent, by: Ssn) -> Result<(), SpaceError> {
        self.hold(extent, Wait::Durable(by))
    }

    /// Frees map nodes or summaries that checkpoint `by` supersedes: held back until both superblock copies name
    /// `by` or a later one (rule 5).
    ///
    /// # Errors
    /// As [`Space::free`].
    pub fn retire(&mut self, extent: Extent, by: Ssn) -> Result<(), SpaceError> {
        self.hold(extent, Wait::Checkpoint(by))
    }

    fn hold(&mut self, extent: Extent, wait: Wait) -> Result<(), SpaceError> {
        let range = self.check_used(extent)?;
        if !self.held.is_free(&range) {
            return Err(SpaceError::NotInUse { extent });
        }
        self.held.insert(range, wait);
        self.owed.pay(extent);
        Ok(())
    }

    /// Checks that a range is in use or held back, as far as bitmaps are loaded.
    pub(super) fn check_used(&self, extent: Extent) -> Result<Range<u64>, SpaceError> {
        let layout = self.groups.layout();
        let range = layout.on_volume(extent)?;
        if layout.is_reserved(extent) || !self.unshown.is_free(&range) {
            return Err(SpaceError::NotInUse { extent });
        }
        self.groups.ranges().check_set(range.clone(), extent)?;
        Ok(range)
    }

    /// Makes reusable what was held back: `recorded` is the highest `durable` in a durable summary of the chain,
    /// `both_named` the older of the checkpoints that the two superblock copies durably name. Returns what is free
    /// now, by address, and may be discarded. Ranges that are `busy`, since an older write to them is in flight, are left
    /// for the next time (rule 7).
    pub fn release(
        &mut self,
        recorded: Ssn,
        both_named: Ssn,
        busy: impl Fn(Range<FragAddr>) -> bool,
    ) -> Vec<Extent> {
        let done = |wait| match wait {
            Wait::Durable(by) => by <= recorded,
            Wait::Checkpoint(by) => by <= both_named,
        };
        let busy = |range: &Range<u64>| busy(FragAddr(range.start)..FragAddr(range.end));
        let released = self.held.release(done, busy).into_iter();
        released
            .map(|range| {
                self.groups.mark().clear(range.clone());
                Extent::new(FragAddr(range.start), range.end - range.start)
            })
            .collect()
    }

    /// Releases what of a range is held back, whatever it waits for.
    pub fn release_range(&mut self, extent: Extent) {
        let range = extent.start.0..extent.end().0;
        let groups = &mut self.groups;
        self.held
            .cut(range, |released| groups.mark().clear(released));
    }
}
