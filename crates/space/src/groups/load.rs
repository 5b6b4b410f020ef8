//! Bringing a group's bitmap into memory, and dropping it again.

use super::{Groups, State};
use crate::bitmap::Bitmap;
use crate::error::SpaceError;
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, Role};
use loamfs_format::{Extent, GroupNo};

impl Groups {
    /// Takes in a group's bitmap as the last checkpoint has it, unless the group is loaded.
    pub(crate) fn load(
        &mut self,
        group: GroupNo,
        chunks: impl IntoIterator<Item = (u64, Option<[u8; CHUNK_BYTES]>)>,
    ) -> Result<(), SpaceError> {
        let known = self.get(group).ok_or(SpaceError::Group { group })?;
        if !matches!(known.state(), State::Absent) {
            return Ok(());
        }
        self.materialise(group.0 as usize, self.bits_on_disk(group, chunks))
    }

    /// Brings the bitmap of a group into memory that was empty at the last checkpoint.
    pub(crate) fn load_empty(&mut self, index: usize) -> Result<(), SpaceError> {
        self.materialise(index, self.layout.pristine_bits(index))
    }

    /// Drops a group's bitmap from memory if a checkpoint has all of it, and tells whether it did.
    pub(crate) fn unload(&mut self, group: GroupNo) -> bool {
        let known = self.get(group);
        let done = known.is_some_and(|known| {
            known.map().is_some() && known.unshown() == 0 && !known.is_empty()
        });
        let mut dirty = self.changes.chunks().range(self.layout.chunk_keys(group));
        let clean = done && dirty.next().is_none();
        if clean {
            self.table[group.0 as usize].unload();
            self.refresh(group.0 as usize);
        }
        clean
    }

    /// Enters a group into the indexes, with a bitmap if it has a role and holds nothing.
    pub(super) fn enter(&mut self, index: usize) -> Result<(), SpaceError> {
        self.refresh(index);
        let group = &self.table[index];
        if group.role() != Role::Free && matches!(group.state(), State::Empty) {
            self.load_empty(index)?;
        }
        Ok(())
    }

    /// The bits of a loaded group.
    pub(super) fn bits(&self, index: usize) -> Bitmap {
        let mut bits = self.layout.pristine_bits(index);
        if let Some(map) = self.table[index].map() {
            map.export(0..bits.len(), 0, &mut bits);
        }
        bits
    }

    /// Makes `bits`, with all that happened to the group, its bitmap in memory.
    fn materialise(&mut self, index: usize, bits: Bitmap) -> Result<(), SpaceError> {
        let number = GroupNo(index as u32);
        let group = &mut self.table[index];
        let bits = group.current(number, self.layout.start(index), bits)?;
        let map = self.layout.map_for(index, group.role(), bits)?;
        for extent in group.load(map) {
            let range = extent.start.0..extent.end().0;
            self.changes.mark(range, &self.layout);
        }
        self.refresh(index);
        Ok(())
    }

    /// The bits of a group that the chunks of the bitmap have.
    pub(super) fn bits_on_disk(
        &self,
        group: GroupNo,
        chunks: impl IntoIterator<Item = (u64, Option<[u8; CHUNK_BYTES]>)>,
    ) -> Bitmap {
        let index = group.0 as usize;
        let extent = self.layout.extent(index);
        let mut bits = self.layout.pristine_bits(index);
        let keys = self.layout.chunk_keys(group);
        for (key, value) in chunks.into_iter().filter(|(key, _)| keys.contains(key)) {
            let first = key.saturating_mul(CHUNK_FRAGS);
            match value {
                Some(value) => set_chunk(&mut bits, extent, first, &value),
                None => set_within(&mut bits, extent, first..first + CHUNK_FRAGS),
            }
        }
        bits
    }
}

/// Sets the bits of a chunk from `first` on that lie in a group.
fn set_chunk(bits: &mut Bitmap, group: Extent, first: u64, value: &[u8; CHUNK_BYTES]) {
    for (word, bytes) in value.as_chunks::<8>().0.iter().enumerate() {
        let mut rest = u64::from_le_bytes(*bytes);
        while rest != 0 {
            let run = rest >> rest.trailing_zeros();
            let start = first + word as u64 * 64 + u64::from(rest.trailing_zeros());
            set_within(bits, group, start..start + u64::from(run.trailing_ones()));
            // Clears the lowest run of ones.
            rest &= rest.wrapping_add(rest & rest.wrapping_neg());
        }
    }
}

/// Sets the bits of a range as far as it lies in a group.
pub(super) fn set_within(bits: &mut Bitmap, group: Extent, range: std::ops::Range<u64>) {
    if range.start.max(group.start.0) < range.end.min(group.end().0) {
        bits.set(range.start.saturating_sub(group.start.0)..range.end - group.start.0);
    }
}
