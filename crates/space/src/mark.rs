//! Giving fragments to owners, and taking them back.

use crate::error::SpaceError;
use crate::owners::Owner;
use crate::space::{Delta, Space, State};
use loamfs_format::group::Role;
use loamfs_format::summary::Wait;
use loamfs_format::{Extent, FragAddr, GroupNo, Ssn};
use std::ops::Range;

impl Space {
    /// Gives a free range to an owner, whose record replaces all that it overlaps.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is not wholly free, or in groups that are not loaded or have no role.
    pub fn allocate(&mut self, extent: Extent, owner: Owner) -> Result<(), SpaceError> {
        let range = self.take(extent)?;
        self.mark_dirty(range);
        self.owners.insert(extent, owner, self.layout.geometry());
        Ok(())
    }

    /// Takes a free range for data that no segment shows yet: until [`Space::show`], neither the checkpoint's
    /// bitmap nor the owner records tell of it (rule 9).
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate_unshown(&mut self, extent: Extent) -> Result<(), SpaceError> {
        let range = self.take(extent)?;
        for (index, _, piece) in self.layout.parts(range.clone()) {
            self.groups[index].unshown += piece.frags;
        }
        // Data written in sequence is one range, however many calls it took.
        let before = self
            .unshown
            .before(range.start)
            .filter(|(found, ())| found.end == range.start);
        let start = before.map_or(range.start, |(found, ())| found.start);
        self.unshown.insert(start..range.end, ());
        Ok(())
    }

    /// Gives an unshown range to the owner whose shown form it belongs to from the next segment on.
    ///
    /// # Errors
    /// [`SpaceError::NotInUse`] when not all of the range is unshown.
    pub fn show(&mut self, extent: Extent, owner: Owner) -> Result<(), SpaceError> {
        let range = self.take_unshown(extent)?;
        self.mark_dirty(range);
        self.owners.insert(extent, owner, self.layout.geometry());
        Ok(())
    }

    /// Gives a range in use the owner record that it should have, with the next checkpoint.
    pub fn correct_owner(&mut self, extent: Extent, owner: Owner) {
        self.owners.insert(extent, owner, self.layout.geometry());
    }

    /// Makes an unshown range free at once. No write to it may be in flight (rule 7).
    ///
    /// # Errors
    /// [`SpaceError::NotInUse`] when not all of the range is unshown.
    pub fn abandon(&mut self, extent: Extent) -> Result<(), SpaceError> {
        let range = self.take_unshown(extent)?;
        for (index, bits, piece) in self.layout.parts(range) {
            if let State::Loaded(map) = &mut self.groups[index].state {
                map.clear(bits);
            }
            self.adjust(index, 0, piece.frags);
            self.refresh(index);
        }
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

    /// Makes reusable what was held back: `said` is the highest `durable` in a durable summary of the chain,
    /// `both_named` the older of the checkpoints that the two superblock copies durably name. Returns what is free
    /// now, by address, and may be discarded. Ranges that are `busy`, since an older write to them is in flight, are left
    /// for the next time (rule 7).
    pub fn release(
        &mut self,
        said: Ssn,
        both_named: Ssn,
        busy: impl Fn(Range<FragAddr>) -> bool,
    ) -> Vec<Extent> {
        let done = |wait| match wait {
            Wait::Durable(by) => by <= said,
            Wait::Checkpoint(by) => by <= both_named,
        };
        let busy = |range: &Range<u64>| busy(FragAddr(range.start)..FragAddr(range.end));
        let released = self.held.release(done, busy);
        released
            .into_iter()
            .map(|range| {
                let extent = Extent::new(FragAddr(range.start), range.end - range.start);
                self.clear_used(range);
                extent
            })
            .collect()
    }

    /// What is held back, by address and with what it waits for, for the checkpoint's summary.
    pub fn held(&self) -> impl Iterator<Item = (Extent, Wait)> {
        self.held.iter().map(|(range, wait)| {
            (
                Extent::new(FragAddr(range.start), range.end - range.start),
                wait,
            )
        })
    }

    /// How many ranges are held back.
    pub fn held_ranges(&self) -> usize {
        self.held.len()
    }

    /// The unshown ranges, by address.
    pub fn unshown(&self) -> impl Iterator<Item = Extent> {
        self.unshown
            .iter()
            .map(|(range, ())| Extent::new(FragAddr(range.start), range.end - range.start))
    }

    // ---- steps -------------------------------------------------------------------------------------------------

    /// Sets the bits of a range that must be wholly free.
    fn take(&mut self, extent: Extent) -> Result<Range<u64>, SpaceError> {
        let range = self.layout.on_volume(extent)?;
        for (index, bits, _) in self.layout.parts(range.clone()) {
            let group = &self.groups[index];
            let number = GroupNo(index as u32);
            match &group.state {
                _ if group.role == Role::Free => {
                    return Err(SpaceError::Role {
                        group: number,
                        role: group.role,
                    });
                }
                State::Loaded(map) if !map.is_aligned(&bits) => {
                    return Err(SpaceError::Misaligned { extent });
                }
                State::Loaded(map) if !map.is_clear(bits) => {
                    return Err(SpaceError::InUse { extent });
                }
                State::Loaded(_) => {}
                State::Absent | State::Empty => {
                    return Err(SpaceError::NotLoaded { group: number });
                }
            }
        }
        for (index, bits, piece) in self.layout.parts(range.clone()) {
            let group = &mut self.groups[index];
            if let State::Loaded(map) = &mut group.state {
                map.set(bits);
            }
            if group.role == Role::Data {
                group.promised = group.promised.saturating_sub(piece.frags);
            }
            self.adjust(index, piece.frags, 0);
            self.refresh(index);
        }
        Ok(range)
    }

    /// Takes a range, which must be unshown, out of the unshown ones.
    fn take_unshown(&mut self, extent: Extent) -> Result<Range<u64>, SpaceError> {
        let range = self.layout.on_volume(extent)?;
        let covered: u64 = self
            .unshown
            .overlapping(range.clone())
            .map(|(found, ())| found.end.min(range.end) - found.start.max(range.start))
            .sum();
        if covered != extent.frags {
            return Err(SpaceError::NotInUse { extent });
        }
        if let Some(misfit) = self.layout.parts(range.clone()).find(|(index, bits, _)| {
            matches!(&self.groups[*index].state, State::Loaded(map) if !map.is_aligned(bits))
        }) {
            return Err(SpaceError::Misaligned { extent: misfit.2 });
        }
        self.unshown.cut(range.clone(), |_, ()| ());
        for (index, _, piece) in self.layout.parts(range.clone()) {
            let group = &mut self.groups[index];
            group.unshown = group.unshown.saturating_sub(piece.frags);
        }
        Ok(range)
    }

    fn hold(&mut self, extent: Extent, wait: Wait) -> Result<(), SpaceError> {
        let range = self.layout.on_volume(extent)?;
        self.check_used(extent, &range)?;
        if !self.held.is_free(&range) {
            return Err(SpaceError::NotInUse { extent });
        }
        self.held.insert(range, wait);
        Ok(())
    }

    /// Checks that a range is in use or held back, as far as bitmaps are loaded.
    pub(crate) fn check_used(&self, extent: Extent, range: &Range<u64>) -> Result<(), SpaceError> {
        if self.layout.is_reserved(extent) || !self.unshown.is_free(range) {
            return Err(SpaceError::NotInUse { extent });
        }
        for (index, bits, _) in self.layout.parts(range.clone()) {
            match &self.groups[index].state {
                State::Loaded(map) if !map.is_aligned(&bits) => {
                    return Err(SpaceError::Misaligned { extent });
                }
                State::Loaded(map) if !map.is_set(bits) => {
                    return Err(SpaceError::NotInUse { extent });
                }
                State::Empty if self.groups[index].deltas.is_empty() => {
                    return Err(SpaceError::NotInUse { extent });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Clears the bits of a range in use, now or when its groups are loaded.
    pub(crate) fn clear_used(&mut self, range: Range<u64>) {
        for (index, bits, piece) in self.layout.parts(range) {
            if let State::Loaded(map) = &mut self.groups[index].state {
                map.clear(bits);
                self.mark_dirty(piece.start.0..piece.end().0);
            } else {
                self.defer(
                    index,
                    Delta {
                        extent: piece,
                        set: false,
                    },
                );
            }
            self.adjust(index, 0, piece.frags);
            self.refresh(index);
        }
    }

    /// Keeps a change for the moment when the group is loaded.
    pub(crate) fn defer(&mut self, index: usize, delta: Delta) {
        self.groups[index].deltas.push(delta);
        self.dirty_groups.insert(index as u32);
    }
}
