//! Data of large files on their way to the device: gathered in 4 KiB units, written to new homes or through the log
//! (rules 3, 6 and 7).
//!
//! ```text
//!          write            start_writeback                write, flush             show
//! caller ---------> dirty ---+---- new home ----> batch -----------------> landed ---------> extents
//!                            +---- overwrite ---> images ---- next segment: lazy map ------> settled
//! ```
//! What stands further left is newer and hides what stands further right.

use loamfs_format::{Extent, FragAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a unit.
pub(crate) const UNIT: u64 = loamfs_format::superblock::UNIT_SIZE as u64;
/// A contiguous overwrite up to this many units goes through the log (rule 6).
pub(crate) const IMAGE_UNITS_MAX: u64 = (1 << 20) / UNIT;
/// Units that one batch takes at most.
pub(crate) const BATCH_UNITS_MAX: usize = (16 << 20) / UNIT as usize;

/// One unit's bytes.
pub(crate) type UnitBytes = Arc<[u8]>;

/// Data written to new homes that no segment shows yet.
#[derive(Debug)]
pub(crate) struct Batch {
    pub id: u64,
    /// What callers wrote; the rest of their blocks stays as it was.
    pub units: BTreeMap<u64, UnitBytes>,
    /// New homes, by first block.
    pub homes: Vec<(u64, Extent)>,
    /// Checksums of every unit in those homes.
    pub crcs: Vec<(u64, u32)>,
    /// Bytes of the file that segments show with them: up to what was hidden when they were gathered.
    pub shown: u64,
    /// Whether the device has them for good.
    pub landed: bool,
}

/// The state of a large file's data.
#[derive(Debug, Default)]
pub(crate) struct Homed {
    /// Newest.
    pub dirty: BTreeMap<u64, UnitBytes>,
    /// Blocks that hold a dirty unit: what new homes take at most.
    pub dirty_blocks: u64,
    /// Overwrites that ride in the next segment, with their homes.
    pub images: BTreeMap<u64, (FragAddr, UnitBytes)>,
    /// On their way to new homes.
    pub batch: Option<Batch>,
    /// Dirty units whose homes are to be given up: they get new ones however short they are.
    pub moving: BTreeSet<u64>,
    /// The last batch was given up, and nothing was started since: what it held waits as before.
    pub overtaken: bool,
    /// Units that were ever put here: tells whether anything new came.
    pub puts: u64,
}

impl Homed {
    /// Whether everything is where segments show it.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.images.is_empty() && self.batch.is_none()
    }

    /// The newest bytes of a unit that are not yet where segments show them.
    pub fn get(&self, unit: u64) -> Option<&UnitBytes> {
        self.dirty
            .get(&unit)
            .or_else(|| self.images.get(&unit).map(|(_, bytes)| bytes))
            .or_else(|| self.batch.as_ref()?.units.get(&unit))
    }

    /// The first unit from `from` on that waits and is not on its way yet.
    pub fn first_dirty(&self, from: u64) -> Option<u64> {
        self.dirty.range(from..).next().map(|(unit, _)| *unit)
    }

    /// The first unit from `from` on that is not yet where segments show it; images do not count, since the next
    /// segment shows them.
    pub fn first_hidden(&self, from: u64) -> Option<u64> {
        let dirty = self.first_dirty(from);
        let flying = self
            .batch
            .as_ref()
            .and_then(|b| b.units.range(from..).next().map(|(unit, _)| *unit));
        match (dirty, flying) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let flying = self.batch.as_ref().map_or(0, |b| b.units.len());
        (self.dirty.len() + self.images.len() + flying) as u64 * UNIT
    }

    /// Takes in a newly written unit, of blocks of `per_block` units.
    pub fn put(&mut self, unit: u64, bytes: UnitBytes, per_block: u64) {
        let first = unit / per_block * per_block;
        if self.dirty.range(first..first + per_block).next().is_none() {
            self.dirty_blocks += 1;
        }
        self.puts += 1;
        self.dirty.insert(unit, bytes);
    }

    /// Counts the dirty blocks anew after units left.
    pub fn recount(&mut self, per_block: u64) {
        let mut last = None;
        self.dirty_blocks = 0;
        for unit in self.dirty.keys() {
            if last.replace(unit / per_block) != Some(unit / per_block) {
                self.dirty_blocks += 1;
            }
        }
    }

    /// Puts what a batch was to write back among the dirty units, where nothing newer is there.
    pub fn take_back(&mut self, units: BTreeMap<u64, UnitBytes>) {
        for (unit, bytes) in units {
            if !self.images.contains_key(&unit) {
                self.dirty.entry(unit).or_insert(bytes);
            }
        }
    }

    /// Makes images of units in blocks that get other homes, or none, plain dirty units again.
    pub fn unimage(&mut self, from: u64, to: u64) {
        let units: Vec<u64> = self.images.range(from..to).map(|(unit, _)| *unit).collect();
        for unit in units {
            if let Some((_, bytes)) = self.images.remove(&unit) {
                self.dirty.entry(unit).or_insert(bytes);
            }
        }
    }
}
