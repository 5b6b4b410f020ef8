//! What summaries say, applied while a volume is opened (roll-forward): the chain from the last checkpoint on.
//!
//! No bitmap is needed for it. Counters are right at once; bits of groups that are not loaded follow when they are.

use crate::error::SpaceError;
use crate::owners::Owner;
use crate::space::Space;
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
        let range = self.groups.layout().on_volume(extent)?;
        if self.groups.layout().is_reserved(extent) {
            return Err(SpaceError::InUse { extent });
        }
        let fresh = self.held.gaps(range.clone());
        for range in &fresh {
            self.groups.check_clear(range.clone(), extent)?;
        }
        if !loamfs_format::mutant::active("replay-keeps-free") {
            self.held.cut(range, |_| ());
        }
        for range in fresh {
            self.groups.set(range);
        }
        self.owners
            .insert(extent, owner, self.groups.layout().geometry());
        Ok(())
    }

    /// A segment freed a range, or a checkpoint retired one. Saying the same twice does no harm.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is known not to be in use, or waits for something else.
    pub fn replay_free(&mut self, extent: Extent, wait: Wait) -> Result<(), SpaceError> {
        let range = self.check_used(extent)?;
        let mut held = self.held.overlapping(range.clone());
        if held.any(|(_, known)| known != wait) {
            return Err(SpaceError::NotInUse { extent });
        }
        drop(held);
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
        let known = self.groups.get(group).ok_or(SpaceError::Group { group })?;
        if known.role() == role {
            return Ok(());
        }
        let index = group.0 as usize;
        self.release_range(self.groups.layout().extent(index));
        self.groups.assign(index, role)
    }
}
