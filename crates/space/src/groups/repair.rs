//! What repair knows better than the volume: bitmaps and descriptors are made to agree with it.

use super::load::set_within;
use super::{Groups, State};
use crate::error::SpaceError;
use loamfs_format::group::CHUNK_BYTES;
use loamfs_format::{Extent, GroupNo};

/// Corrects what is known of groups.
#[derive(Debug)]
pub struct SpaceRepair<'a> {
    groups: &'a mut Groups,
}

impl<'a> SpaceRepair<'a> {
    pub(crate) fn new(groups: &'a mut Groups) -> SpaceRepair<'a> {
        SpaceRepair { groups }
    }

    /// Believes a group's bitmap, as the last checkpoint has it, rather than what its descriptor counts, and has the
    /// next checkpoint write the right count. At once after [`crate::Space::open`], with the chunks that
    /// [`crate::Space::load`] wants.
    pub fn recount(
        &mut self,
        group: GroupNo,
        chunks: impl IntoIterator<Item = (u64, Option<[u8; CHUNK_BYTES]>)>,
    ) {
        if self.groups.get(group).is_none() {
            return;
        }
        let index = group.0 as usize;
        let used = self.groups.bits_on_disk(group, chunks).ones();
        self.groups.table[index].recount(used);
        self.groups.changes.mark_desc(index);
        // A bitmap without content cannot contradict anything.
        let _ = self.groups.enter(index);
    }

    /// Makes these ranges, as far as they lie in the group, what is in use of it now, whatever its bitmap and its
    /// descriptor say. At once after replay, without a bitmap in memory.
    ///
    /// # Errors
    /// [`SpaceError`] when there is no such group, or ranges are no whole blocks of a data group.
    pub fn rebuild(&mut self, group: GroupNo, used: &[Extent]) -> Result<(), SpaceError> {
        let known = self.groups.get(group).ok_or(SpaceError::Group { group })?;
        let index = group.0 as usize;
        let extent = self.groups.layout.extent(index);
        let all = extent.start.0..extent.end().0;
        // Of an empty group it is known: only superblocks have bits there.
        if !matches!(known.state(), State::Absent) {
            if known.used() > 0 {
                self.groups.changes.mark(all, &self.groups.layout);
            }
            return Ok(());
        }
        let mut bits = self.groups.layout.pristine_bits(index);
        for range in used {
            set_within(&mut bits, extent, range.start.0..range.end().0);
        }
        self.groups.table[index].recount(bits.ones());
        let map = self
            .groups
            .layout
            .map_for(index, self.groups.table[index].role(), bits)?;
        // What happened to it since the checkpoint is in there.
        drop(self.groups.table[index].load(map));
        self.groups.changes.mark(all, &self.groups.layout);
        self.groups.refresh(index);
        Ok(())
    }

    /// Has the next checkpoint write these groups' descriptors. When the map does not have them.
    pub fn rewrite(&mut self, groups: impl IntoIterator<Item = GroupNo>) {
        for group in groups {
            self.groups.changes.mark_desc(group.0 as usize);
        }
    }
}
