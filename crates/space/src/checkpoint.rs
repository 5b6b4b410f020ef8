//! What a checkpoint writes into the maps: bitmap chunks, group descriptors, owner records (rule 9).
//!
//! The order is: [`Space::groups_to_load_for_checkpoint`] until it names nothing, then, in the moment in which the
//! checkpoint is sealed, [`Space::dirty_chunks`], [`Space::dirty_groups`], [`Space::owner_overlay`] and
//! [`Space::held`], then [`Space::checkpoint_done`], and only then what the checkpoint itself allocates and frees,
//! since its own maps leave that out.

use crate::bitmap::group_map::empty_chunk;
use crate::error::SpaceError;
use crate::owners::Owner;
use crate::space::{Space, State};
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, GroupDesc};
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::collections::BTreeSet;
use std::ops::Range;

/// A chunk as the bitmap tree holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkValue {
    /// No bit is set: the tree has no entry.
    Clear,
    /// Every bit is set: an entry of length 0.
    Full,
    /// The bits, bit 0 of byte 0 first.
    Mixed([u8; CHUNK_BYTES]),
}

impl Space {
    /// The chunks that may differ from the last checkpoint's, by key.
    pub fn dirty_chunks(&self) -> Vec<u64> {
        self.dirty_chunks.iter().copied().collect()
    }

    /// Number of dirty chunks, and of dirty descriptors.
    pub fn dirty_counts(&self) -> (usize, usize) {
        (self.dirty_chunks.len(), self.dirty_groups.len())
    }

    /// A chunk as a checkpoint taken now writes it: without what no segment shows yet.
    ///
    /// # Errors
    /// [`SpaceError::NotLoaded`] naming a group of the chunk whose bitmap is not there.
    pub fn chunk_value(&self, key: u64) -> Result<ChunkValue, SpaceError> {
        let Range { start: first, end } = self.layout.frags_of(key..key.saturating_add(1));
        let mut bits = empty_chunk();
        for (index, range, piece) in self.layout.parts(first..end) {
            match &self.groups[index].state {
                State::Absent => {
                    return Err(SpaceError::NotLoaded {
                        group: GroupNo(index as u32),
                    });
                }
                State::Empty => {}
                State::Loaded(map) => map.export(range, piece.start.0 - first, &mut bits),
            }
        }
        for reserved in self.layout.reserved() {
            let (from, to) = (reserved.start.0.max(first), reserved.end().0.min(end));
            if from < to {
                bits.set(from - first..to - first);
            }
        }
        let left_out = !loamfs_format::mutant::active("unshown-in-bitmap");
        for (range, ()) in self.unshown.overlapping(first..end).filter(|_| left_out) {
            bits.clear(range.start.max(first) - first..range.end.min(end) - first);
        }
        for place in self.layout.unmapped() {
            let (from, to) = (place.start.0.max(first), place.end().0.min(end));
            if from < to {
                bits.clear(from - first..to - first);
            }
        }
        let mut value = [0; CHUNK_BYTES];
        for (bytes, word) in value.as_chunks_mut::<8>().0.iter_mut().zip(bits.words()) {
            *bytes = word.to_le_bytes();
        }
        Ok(match bits.ones() {
            0 => ChunkValue::Clear,
            CHUNK_FRAGS => ChunkValue::Full,
            _ => ChunkValue::Mixed(value),
        })
    }

    /// Runs of whole chunks without a bit around those that changed since the last checkpoint, as addresses. None
    /// leaves its group.
    ///
    /// # Errors
    /// As [`Space::chunk_value`], of the chunks that changed.
    pub fn cleared(&self) -> Result<Vec<Range<u64>>, SpaceError> {
        let is_clear = |key| matches!(self.chunk_value(key), Ok(ChunkValue::Clear));
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &key in &self.dirty_chunks {
            let known = runs.last().is_some_and(|run| run.contains(&key));
            if known || self.chunk_value(key)? != ChunkValue::Clear {
                continue;
            }
            let group = self
                .layout
                .geometry()
                .group_of(FragAddr(key.saturating_mul(CHUNK_FRAGS)));
            let chunks = self.layout.chunk_keys(group);
            let before = (chunks.start..key).rev().take_while(|key| is_clear(*key));
            let behind = (key + 1..chunks.end).take_while(|key| is_clear(*key));
            runs.push(before.last().unwrap_or(key)..behind.last().unwrap_or(key) + 1);
        }
        let addresses = |keys| self.layout.frags_of(keys);
        Ok(runs.into_iter().map(addresses).collect())
    }

    /// The groups whose bitmaps a checkpoint needs and lacks: those that changed while they were not loaded, and,
    /// where a chunk covers several groups, the neighbours of those that changed.
    ///
    /// # Errors
    /// [`SpaceError`] when what was replayed contradicts itself.
    pub fn groups_to_load_for_checkpoint(&mut self) -> Result<Vec<GroupNo>, SpaceError> {
        let mut absent = BTreeSet::new();
        for number in self.pending.clone() {
            if matches!(self.groups[number as usize].state, State::Empty) {
                self.materialise(number as usize, self.layout.pristine_bits(number as usize))?;
            } else {
                absent.insert(number);
            }
        }
        if self.layout.geometry().group_frags < CHUNK_FRAGS {
            let waiting: Vec<u64> = absent
                .iter()
                .flat_map(|&number| self.layout.chunk_keys(GroupNo(number)))
                .collect();
            for &key in self.dirty_chunks.iter().chain(&waiting) {
                absent.extend(
                    self.layout
                        .parts(self.layout.frags_of(key..key.saturating_add(1)))
                        .map(|(index, _, _)| index as u32)
                        .filter(|&number| !self.is_loaded(GroupNo(number))),
                );
            }
        }
        Ok(absent.into_iter().map(GroupNo).collect())
    }

    /// The descriptors that may differ from the last checkpoint's, consistent with [`Space::chunk_value`]: neither what no
    /// segment shows yet nor what the maps never tell of is counted.
    pub fn dirty_groups(&self) -> Vec<(GroupNo, GroupDesc)> {
        self.dirty_groups
            .iter()
            .map(|&number| {
                let group = GroupNo(number);
                let desc = self.desc(group);
                let used = desc
                    .used
                    .saturating_sub(self.groups[number as usize].unshown)
                    .saturating_sub(self.layout.unmapped_in(number as usize));
                (group, GroupDesc { used, ..desc })
            })
            .collect()
    }

    /// The owner records since the last checkpoint, by address. Each replaces all records in the tree that it
    /// overlaps.
    pub fn owner_overlay(&self) -> impl Iterator<Item = (Extent, Owner)> {
        self.owners.iter()
    }

    /// The owner records since the last checkpoint that overlap a range, whole, by address. What they leave open
    /// is as the owner tree has it.
    pub fn owner_in_overlay(&self, range: Extent) -> Vec<(Extent, Owner)> {
        self.owners.overlapping(range).collect()
    }

    /// Everything reported so far is in the maps: forgets what is dirty, and the owner records.
    pub fn checkpoint_done(&mut self) {
        self.dirty_chunks.clear();
        self.last_dirty = None;
        self.owners.clear();
        // Changes that wait for a group to be loaded are not in the maps yet.
        self.dirty_groups.clone_from(&self.pending);
    }

    /// The chunks that hold a range.
    pub fn chunks_of(&self, extent: Extent) -> impl Iterator<Item = u64> + use<> {
        let last = extent.end().0.saturating_sub(1);
        let keys = extent.start.0 / CHUNK_FRAGS..last / CHUNK_FRAGS + 1;
        keys.take_while(move |_| extent.frags > 0)
    }

    /// Fragments of an extent that are in use and not held back; those of bitmaps that are not in memory may be.
    pub fn live_frags(&self, extent: Extent) -> u64 {
        let Ok(range) = self.layout.on_volume(extent) else {
            return 0;
        };
        let used =
            |(index, bits, piece): (usize, Range<u64>, Extent)| match &self.groups[index].state {
                State::Absent => piece.frags,
                State::Empty => 0,
                State::Loaded(map) => map.used_in(bits),
            };
        let used: u64 = self.layout.parts(range.clone()).map(used).sum();
        let held = self.held.overlapping(range.clone());
        let held = held.map(|(held, _)| held.end.min(range.end) - held.start.max(range.start));
        used.saturating_sub(held.sum())
    }

    /// A fragment's bit in memory, if the bitmap of its group is known.
    pub fn is_set(&self, addr: FragAddr) -> Option<bool> {
        let extent = Extent::new(addr, 1);
        let (index, bits, _) = self
            .layout
            .parts(self.layout.on_volume(extent).ok()?)
            .next()?;
        match &self.groups[index].state {
            State::Absent => None,
            State::Empty => Some(self.layout.is_reserved(extent)),
            State::Loaded(map) => Some(!map.is_clear(bits)),
        }
    }
}
