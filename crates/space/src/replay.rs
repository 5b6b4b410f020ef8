//! What summaries say, applied while a volume is opened: the chain from the last checkpoint on.
//!
//! No bitmap is needed for it. Counters are right at once; bits of groups that are not loaded follow when they are.

use crate::error::SpaceError;
use crate::owners::Owner;
use crate::space::{Delta, Space, State};
use loamfs_format::group::Role;
use loamfs_format::summary::Wait;
use loamfs_format::{Extent, GroupNo};

impl Space {
    /// A segment allocated a range. What of it was held back is no longer pending (rule 5); its bits were set all
    /// along.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is not on the volume, or known to be in use.
    pub fn replay_allocate(&mut self, extent: Extent, owner: Owner) -> Result<(), SpaceError> {
        let range = self.layout.on_volume(extent)?;
        if self.layout.is_reserved(extent) {
            return Err(SpaceError::InUse { extent });
        }
        let held: Vec<_> = self
            .held
            .overlapping(range.clone())
            .map(|(found, _)| found)
            .collect();
        // What lies between the held ranges was free.
        let mut fresh = Vec::new();
        let mut at = range.start;
        for found in held {
            if found.start > at {
                fresh.push(at..found.start);
            }
            at = found.end;
        }
        if at < range.end {
            fresh.push(at..range.end);
        }
        for (index, bits, _) in fresh
            .iter()
            .flat_map(|range| self.layout.parts(range.clone()))
        {
            match &self.groups[index].state {
                State::Loaded(map) if !map.is_aligned(&bits) => {
                    return Err(SpaceError::Misaligned { extent });
                }
                State::Loaded(map) if !map.is_clear(bits) => {
                    return Err(SpaceError::InUse { extent });
                }
                _ => {}
            }
        }
        if !loamfs_format::mutant::active("replay-keeps-free") {
            self.held.cut(range, |_| ());
        }
        for (index, bits, piece) in fresh
            .into_iter()
            .flat_map(|range| self.layout.parts(range))
            .collect::<Vec<_>>()
        {
            if let State::Loaded(map) = &mut self.groups[index].state {
                map.set(bits);
                self.mark_dirty(piece.start.0..piece.end().0);
            } else {
                self.defer(
                    index,
                    Delta {
                        extent: piece,
                        set: true,
                    },
                );
            }
            self.adjust(index, piece.frags, 0);
            self.refresh(index);
        }
        self.owners.insert(extent, owner, self.layout.geometry());
        Ok(())
    }

    /// A segment freed a range, or a checkpoint retired one. Saying the same twice does no harm.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is known not to be in use, or waits for something else.
    pub fn replay_free(&mut self, extent: Extent, wait: Wait) -> Result<(), SpaceError> {
        let range = self.layout.on_volume(extent)?;
        self.check_used(extent, &range)?;
        if self
            .held
            .overlapping(range.clone())
            .any(|(_, known)| known != wait)
        {
            return Err(SpaceError::NotInUse { extent });
        }
        self.held.cut(range.clone(), |_| ());
        self.held.insert(range, wait);
        Ok(())
    }

    /// The checkpoint's summary names a range as held back; its bits are set in the checkpoint's bitmap.
    ///
    /// # Errors
    /// As [`Space::replay_free`].
    pub fn replay_held(&mut self, extent: Extent, wait: Wait) -> Result<(), SpaceError> {
        self.replay_free(extent, wait)
    }

    /// A segment gave a group a role. A group changes its role only when nothing in it is in use or held back, so
    /// what is still pending there was released before.
    ///
    /// # Errors
    /// [`SpaceError`] when there is no such group, or its contents do not fit the role.
    pub fn replay_role(&mut self, group: GroupNo, role: Role) -> Result<(), SpaceError> {
        let index = group.0 as usize;
        if index >= self.groups.len() {
            return Err(SpaceError::Group { group });
        }
        if self.groups[index].role == role {
            return Ok(());
        }
        self.release_group(index);
        self.assign(index, role)
    }
}
