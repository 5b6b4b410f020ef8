//! Bringing a group's bitmap into memory, and dropping it again.

use crate::bitmap::Bitmap;
use crate::error::SpaceError;
use crate::space::{Delta, Space, State};
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, Role};
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

impl Space {
    /// Whether the group's bitmap is known: it is in memory, or the group is free and holds nothing.
    pub fn is_loaded(&self, group: GroupNo) -> bool {
        self.groups
            .get(group.0 as usize)
            .is_some_and(|g| !matches!(g.state, State::Absent))
    }

    /// The keys of the bitmap chunks that hold a group's bits, which [`Space::load`] wants.
    pub fn chunk_keys(&self, group: GroupNo) -> Range<u64> {
        self.layout.chunk_keys(group)
    }

    /// Takes in a group's bitmap as the last checkpoint has it: those of its chunks that are there, `None` for one
    /// that is wholly set. What happened to the group since is applied then. Does nothing if the group is loaded.
    ///
    /// # Errors
    /// [`SpaceError`] when the bitmap contradicts the descriptor or what happened since; the group then stays
    /// unloaded, and the volume should not be written to.
    pub fn load(
        &mut self,
        group: GroupNo,
        chunks: impl IntoIterator<Item = (u64, Option<[u8; CHUNK_BYTES]>)>,
    ) -> Result<(), SpaceError> {
        let index = group.0 as usize;
        if index >= self.groups.len() {
            return Err(SpaceError::Group { group });
        }
        if self.is_loaded(group) {
            return Ok(());
        }
        let bits = self.bits_of(group, chunks);
        self.materialise(index, bits)
    }

    /// Believes a group's bitmap, as the last checkpoint has it, rather than what its descriptor counts, and has the
    /// next checkpoint write the right count. For repair: at once after [`Space::open`], with the chunks that
    /// [`Space::load`] wants.
    pub fn recount(
        &mut self,
        group: GroupNo,
        chunks: impl IntoIterator<Item = (u64, Option<[u8; CHUNK_BYTES]>)>,
    ) {
        let index = group.0 as usize;
        if index >= self.groups.len() {
            return;
        }
        let used = self.bits_of(group, chunks).ones();
        self.leave(index);
        let known = &mut self.groups[index];
        self.used = self.used.saturating_add(used).saturating_sub(known.used);
        known.used = used;
        known.state = match used > known.reserved {
            true => State::Absent,
            false => State::Empty,
        };
        self.dirty_groups.insert(group.0);
        // A bitmap without content cannot contradict anything.
        let _ = self.take_role(index);
    }

    /// The bits of a group that the chunks of the bitmap have.
    fn bits_of(
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
            let Some(value) = value else {
                let range = Extent::new(FragAddr(first), CHUNK_FRAGS);
                if range.overlaps(extent) {
                    let start = first.saturating_sub(extent.start.0);
                    bits.set(start..(first + CHUNK_FRAGS) - extent.start.0);
                }
                continue;
            };
            for (word, bytes) in value.as_chunks::<8>().0.iter().enumerate() {
                let mut rest = u64::from_le_bytes(*bytes);
                while rest != 0 {
                    let run = rest >> rest.trailing_zeros();
                    let start = first + word as u64 * 64 + u64::from(rest.trailing_zeros());
                    let end = start + u64::from(run.trailing_ones());
                    if start.max(extent.start.0) < end.min(extent.end().0) {
                        bits.set(start.saturating_sub(extent.start.0)..end - extent.start.0);
                    }
                    // Clears the lowest run of ones.
                    rest &= rest.wrapping_add(rest & rest.wrapping_neg());
                }
            }
        }
        bits
    }

    /// Makes `bits`, with the group's deltas applied to them, its bitmap in memory.
    pub(crate) fn materialise(&mut self, index: usize, mut bits: Bitmap) -> Result<(), SpaceError> {
        let start = self.layout.extent(index).start.0;
        let group = &self.groups[index];
        for &Delta { extent, set } in &group.deltas {
            let range = extent.start.0 - start..extent.end().0 - start;
            if set {
                if !bits.is_clear(range.clone()) {
                    return Err(SpaceError::InUse { extent });
                }
                bits.set(range);
            } else {
                if !bits.is_set(range.clone()) {
                    return Err(SpaceError::NotInUse { extent });
                }
                bits.clear(range);
            }
        }
        if bits.ones() != group.used {
            return Err(SpaceError::Usage {
                group: GroupNo(index as u32),
                descriptor: group.used,
                bitmap: bits.ones(),
            });
        }
        let map = self.layout.map_for(index, group.role, bits)?;
        self.leave(index);
        let group = &mut self.groups[index];
        group.state = if group.role == Role::Free && group.used <= group.reserved {
            State::Empty
        } else {
            State::Loaded(Box::new(map))
        };
        let deltas = std::mem::take(&mut group.deltas);
        self.pending.remove(&(index as u32));
        self.enter(index);
        for Delta { extent, .. } in deltas {
            self.mark_dirty(extent.start.0..extent.end().0);
        }
        Ok(())
    }

    /// Drops a group's bitmap from memory if a checkpoint has all of it, and tells whether it did. A free group's
    /// takes no memory.
    pub fn unload(&mut self, group: GroupNo) -> bool {
        let index = group.0 as usize;
        let clean = self.groups.get(index).is_some_and(|g| {
            matches!(g.state, State::Loaded(_)) && g.unshown == 0 && g.used > g.reserved
        }) && self
            .dirty_chunks
            .range(self.layout.chunk_keys(group))
            .next()
            .is_none();
        if clean {
            self.leave(index);
            self.groups[index].state = State::Absent;
            self.enter(index);
        }
        clean
    }

    /// The groups whose bitmaps are in memory, in order.
    pub fn loaded_groups(&self) -> impl Iterator<Item = GroupNo> {
        (0u32..)
            .zip(&self.groups)
            .filter(|(_, group)| matches!(group.state, State::Loaded(_)))
            .map(|(number, _)| GroupNo(number))
    }
}
