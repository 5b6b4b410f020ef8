//! What a checkpoint writes into the maps: bitmap chunks, group descriptors, owner records (rule 9).
//!
//! The order is this:
//!
//! 1. [`Space::groups_to_load_for_checkpoint`], until it names nothing.
//! 2. In the moment in which the checkpoint is sealed: [`Checkpoint`], [`Space::owners`] and [`Space::held`].
//! 3. [`Space::checkpoint_done`].
//! 4. What the checkpoint itself allocates and frees. Its own maps leave that out.
//!
//! [`Space::groups_to_load_for_checkpoint`]: crate::Space::groups_to_load_for_checkpoint
//! [`Space::owners`]: crate::Space::owners
//! [`Space::held`]: crate::Space::held
//! [`Space::checkpoint_done`]: crate::Space::checkpoint_done

use crate::bitmap::Bitmap;
use crate::bitmap::group_map::empty_chunk;
use crate::error::SpaceError;
use crate::groups::{Groups, State};
use crate::law::{Law, Rules};
use crate::unshown::Unshown;
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, GroupDesc};
use loamfs_format::{FragAddr, GroupNo};
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

/// Bitmaps and descriptors as a checkpoint taken now writes them.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'a> {
    groups: &'a Groups,
    unshown: &'a Unshown,
    law: &'a Law<dyn Rules>,
}

impl<'a> Checkpoint<'a> {
    pub(crate) fn new(
        groups: &'a Groups,
        unshown: &'a Unshown,
        law: &'a Law<dyn Rules>,
    ) -> Checkpoint<'a> {
        Checkpoint {
            groups,
            unshown,
            law,
        }
    }

    /// The chunks that may differ from the last checkpoint's, by key.
    pub fn dirty_chunks(self) -> impl Iterator<Item = u64> + use<'a> {
        self.groups.changes().chunks().iter().copied()
    }

    /// Number of dirty chunks, and of dirty descriptors.
    pub fn dirty_counts(self) -> (usize, usize) {
        let changes = self.groups.changes();
        (changes.chunks().len(), changes.descs().len())
    }

    /// A chunk: without what no segment shows yet.
    ///
    /// # Errors
    /// [`SpaceError::NotLoaded`] naming a group of the chunk whose bitmap is not there.
    pub fn chunk_value(self, key: u64) -> Result<ChunkValue, SpaceError> {
        let layout = self.groups.layout();
        let chunk = layout.frags_of(key..key.saturating_add(1));
        let first = chunk.start;
        let mut bits = self.bits(chunk.clone())?;
        let within = |range: Range<u64>| {
            let (from, to) = (range.start.max(first), range.end.min(chunk.end));
            (from < to).then(|| from - first..to - first)
        };
        for place in layout.reserved() {
            if let Some(range) = within(place.start.0..place.end().0) {
                bits.set(range);
            }
        }
        let unshown = self.unshown.inside(chunk.clone());
        for range in unshown.filter(|_| self.law.leaves_out_unshown()) {
            bits.clear(range.start - first..range.end - first);
        }
        for place in layout.unmapped() {
            if let Some(range) = within(place.start.0..place.end().0) {
                bits.clear(range);
            }
        }
        Ok(value_of(&bits))
    }

    /// The bits of a chunk's fragments in memory, but for reserved ones.
    fn bits(self, chunk: Range<u64>) -> Result<Bitmap, SpaceError> {
        let first = chunk.start;
        let mut bits = empty_chunk();
        for (index, range, part) in self.groups.layout().parts(chunk) {
            match self.groups.group(index).state() {
                State::Absent => {
                    let group = GroupNo(index as u32);
                    return Err(SpaceError::NotLoaded { group });
                }
                State::Empty => {}
                State::Loaded(map) => map.export(range, part.start.0 - first, &mut bits),
            }
        }
        Ok(bits)
    }

    /// Runs of whole chunks without a bit around those that changed since the last checkpoint, as addresses. None
    /// leaves its group.
    ///
    /// # Errors
    /// As [`Checkpoint::chunk_value`], of the chunks that changed.
    pub fn cleared(self) -> Result<Vec<Range<u64>>, SpaceError> {
        let layout = self.groups.layout();
        let is_clear = |key: &u64| matches!(self.chunk_value(*key), Ok(ChunkValue::Clear));
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &key in self.groups.changes().chunks() {
            let known = runs.last().is_some_and(|run| run.contains(&key));
            if known || self.chunk_value(key)? != ChunkValue::Clear {
                continue;
            }
            let first = FragAddr(key.saturating_mul(CHUNK_FRAGS));
            let chunks = layout.chunk_keys(layout.geometry().group_of(first));
            let before = (chunks.start..key).rev().take_while(is_clear);
            let behind = (key + 1..chunks.end).take_while(is_clear);
            runs.push(before.last().unwrap_or(key)..behind.last().unwrap_or(key) + 1);
        }
        let addresses = |keys| layout.frags_of(keys);
        Ok(runs.into_iter().map(addresses).collect())
    }

    /// The address from which on all groups leave and hold nothing, to the end of the volume; none where the last group does not.
    pub fn vacant_from(self) -> Option<FragAddr> {
        let layout = self.groups.layout();
        let is_vacant =
            |index: &usize| layout.is_leaving(*index) && self.groups.group(*index).is_vacant();
        let first = (0..layout.groups()).rev().take_while(is_vacant).last()?;
        Some(FragAddr(layout.start(first)))
    }

    /// The descriptors that may differ from the last checkpoint's, consistent with [`Checkpoint::chunk_value`]: neither
    /// what no segment shows yet nor what the maps never tell of is counted. Groups that leave have none once nothing is there.
    pub fn dirty_groups(self) -> Vec<(GroupNo, Option<GroupDesc>)> {
        let describe = |&number: &u32| {
            let index = number as usize;
            let group = self.groups.group(index);
            let desc = group.desc();
            if group.is_vacant() && self.groups.layout().is_leaving(index) {
                return (GroupNo(number), None);
            }
            let used = desc
                .used
                .saturating_sub(group.unshown())
                .saturating_sub(self.groups.layout().unmapped_in(index));
            (GroupNo(number), Some(GroupDesc { used, ..desc }))
        };
        self.groups.changes().descs().iter().map(describe).collect()
    }
}

fn value_of(bits: &Bitmap) -> ChunkValue {
    let mut value = [0; CHUNK_BYTES];
    for (bytes, word) in value.as_chunks_mut::<8>().0.iter_mut().zip(bits.words()) {
        *bytes = word.to_le_bytes();
    }
    match bits.ones() {
        0 => ChunkValue::Clear,
        CHUNK_FRAGS => ChunkValue::Full,
        _ => ChunkValue::Mixed(value),
    }
}

/// See [`crate::Space::groups_to_load_for_checkpoint`].
pub(crate) fn groups_to_load(groups: &mut Groups) -> Result<Vec<GroupNo>, SpaceError> {
    let mut absent = BTreeSet::new();
    for number in groups.indexes().deferred().clone() {
        match groups.group(number as usize).state() {
            State::Empty => groups.load_empty(number as usize)?,
            State::Absent | State::Loaded(_) => _ = absent.insert(number),
        }
    }
    let layout = groups.layout();
    if layout.geometry().group_frags < CHUNK_FRAGS {
        let waiting = absent.iter().map(|&number| GroupNo(number));
        let waiting: Vec<u64> = waiting.flat_map(|group| layout.chunk_keys(group)).collect();
        let keys = groups.changes().chunks().iter().chain(&waiting);
        let chunks = keys.map(|&key| layout.frags_of(key..key.saturating_add(1)));
        let neighbours = chunks.flat_map(|chunk| layout.parts(chunk));
        let unknown = neighbours
            .filter(|(index, _, _)| matches!(groups.group(*index).state(), State::Absent));
        absent.extend(unknown.map(|(index, _, _)| index as u32));
    }
    Ok(absent.into_iter().map(GroupNo).collect())
}
