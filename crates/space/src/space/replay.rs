//! Free space in roll-forward: what the summaries from the last checkpoint on say, applied while a volume is opened.
//!
//! No bitmap is needed for it. Counters are right at once; bits of groups that are not loaded follow when they are.

use super::Space;
use crate::error::SpaceError;
use crate::owners::Owner;
use loamfs_format::group::Role;
use loamfs_format::summary::Wait;
use loamfs_format::{Extent, GroupNo};

/// Applies what summaries say.
#[derive(Debug)]
pub struct SpaceReplay<'a> {
    space: &'a mut Space,
}

impl<'a> SpaceReplay<'a> {
    pub(super) fn new(space: &'a mut Space) -> SpaceReplay<'a> {
        SpaceReplay { space }
    }

    /// A segment allocated a range. What of it was held back no longer is (rule 5); its bits were set all
    /// along.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is not on the volume, or known to be in use.
    pub fn allocate(self, extent: Extent, owner: Owner) -> Result<(), SpaceError> {
        let space = self.space;
        let range = space.groups.layout().on_volume(extent)?;
        if space.groups.layout().is_reserved(extent) {
            return Err(SpaceError::InUse { extent });
        }
        let fresh = space.held.gaps(range.clone());
        for range in &fresh {
            space.groups.ranges().check_clear(range.clone(), extent)?;
        }
        if space.law.allocation_ends_hold() {
            space.held.cut(range, |_| ());
        }
        for range in fresh {
            space.groups.mark().set(range);
        }
        space.correct_owner(extent, owner);
        Ok(())
    }

    /// A segment freed a range, or a checkpoint retired one or names it as held back; its bits are set in the
    /// checkpoint's bitmap. Saying the same twice does no harm.
    ///
    /// # Errors
    /// [`SpaceError`] when the range is known not to be in use, or waits for something else.
    pub fn free(self, extent: Extent, wait: Wait) -> Result<(), SpaceError> {
        let space = self.space;
        let range = space.check_used(extent)?;
        let mut held = space.held.overlapping(range.clone());
        if held.any(|(_, known)| known != wait) {
            return Err(SpaceError::NotInUse { extent });
        }
        drop(held);
        space.held.cut(range.clone(), |_| ());
        space.held.insert(range, wait);
        Ok(())
    }

    /// A segment gave a group a role. A group changes its role only when nothing in it is in use or held back, so
    /// what is still held back there was released before.
    ///
    /// # Errors
    /// [`SpaceError`] when there is no such group, or its contents do not fit the role.
    pub fn role(self, group: GroupNo, role: Role) -> Result<(), SpaceError> {
        let space = self.space;
        let known = space.groups.get(group);
        let known = known.ok_or(SpaceError::Group { group })?;
        if known.role() == role {
            return Ok(());
        }
        let index = group.0 as usize;
        space.release_range(space.groups.layout().extent(index));
        space.groups.assign(index, role)
    }
}
