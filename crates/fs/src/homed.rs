//! Data of large files on their way to the device: gathered in 4 KiB units, written to new homes or through the log
//! (rules 3, 6 and 7).
//!
//! ```text
//!          write            start_writeback                write, flush             show
//! caller ---------> dirty ---+---- new home ----> batch -----------------> landed ---------> extents
//!                            +---- overwrite ---> images ---- next segment: lazy map ------> settled
//! ```
//! What stands further left is newer and hides what stands further right. A batch is newer than images of its units: none
//! are made while there is one (`start_writeback`), but older ones still ride in the next segment, which somebody may
//! wait for.

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

/// A unit's newest bytes, and what is to be known of them until segments show them.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub bytes: UnitBytes,
    /// Since which put the unit waits, whatever was put over it later; [`Unit::MOVED`] when nobody wrote it.
    pub since: u64,
    /// Bytes of the file that segments may show without it: only what made a file longer hides its end.
    pub hides: Option<u64>,
}

impl Unit {
    /// Stands for no put: the mover brings what is on the device already.
    const MOVED: u64 = u64::MAX;

    /// What the mover takes along.
    pub fn moved(bytes: UnitBytes) -> Unit {
        Unit {
            bytes,
            since: Unit::MOVED,
            hides: None,
        }
    }

    /// Takes the place of an older one that no segment shows yet.
    fn replaces(&mut self, older: &Unit) {
        self.since = self.since.min(older.since);
        self.hides = match (self.hides, older.hides) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Data written to new homes that no segment shows yet.
#[derive(Debug)]
pub(crate) struct Batch {
    pub id: u64,
    /// What callers wrote; the rest of their blocks stays as it was.
    pub units: BTreeMap<u64, Unit>,
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
    pub dirty: BTreeMap<u64, Unit>,
    /// Blocks that hold a dirty unit: what new homes take at most.
    pub dirty_blocks: u64,
    /// Overwrites that ride in the next segment, with their homes.
    pub images: BTreeMap<u64, (FragAddr, Unit)>,
    /// On their way to new homes.
    pub batch: Option<Batch>,
    /// Dirty units whose homes are to be given up: they get new ones however short they are.
    pub moving: BTreeSet<u64>,
    /// Units that were ever put here: the number of the next put.
    pub puts: u64,
}

impl Homed {
    /// Whether everything is where segments show it.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.images.is_empty() && self.batch.is_none()
    }

    /// The newest bytes of a unit that are not yet where segments show them.
    pub fn get(&self, unit: u64) -> Option<&UnitBytes> {
        let flying = self.batch.as_ref();
        let unit = self
            .dirty
            .get(&unit)
            .or_else(|| flying?.units.get(&unit))
            .or_else(|| self.images.get(&unit).map(|(_, image)| image));
        unit.map(|unit| &unit.bytes)
    }

    /// Whether something that was put before put number `upto` is not yet where the next segment shows it; images are.
    pub fn waits(&self, upto: u64) -> bool {
        let flying = self.batch.iter().flat_map(|batch| batch.units.values());
        self.dirty
            .values()
            .chain(flying)
            .any(|unit| unit.since < upto)
    }

    /// Bytes of the file that segments may show, as far as units from `from` on that wait and are not on their way yet
    /// hide its end.
    pub fn hidden_end(&self, from: u64) -> Option<u64> {
        hidden_end(&self.dirty, from)
    }

    /// The same, those on their way included.
    pub fn unshown_end(&self, from: u64) -> Option<u64> {
        let flying = self.batch.as_ref();
        let flying = flying.and_then(|batch| hidden_end(&batch.units, from));
        self.hidden_end(from).into_iter().chain(flying).min()
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let flying = self.batch.as_ref().map_or(0, |b| b.units.len());
        (self.dirty.len() + self.images.len() + flying) as u64 * UNIT
    }

    /// Takes in a newly written unit, of blocks of `per_block` units; see [`Unit::hides`].
    pub fn put(&mut self, unit: u64, bytes: UnitBytes, hides: Option<u64>, per_block: u64) {
        let first = unit / per_block * per_block;
        if self.dirty.range(first..first + per_block).next().is_none() {
            self.dirty_blocks += 1;
        }
        let since = self.puts;
        self.puts += 1;
        let mut new = Unit {
            bytes,
            since,
            hides,
        };
        if let Some(older) = self.dirty.get(&unit) {
            new.replaces(older);
        }
        self.dirty.insert(unit, new);
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
    pub fn take_back(&mut self, units: BTreeMap<u64, Unit>) {
        for (unit, older) in units {
            self.make_dirty(unit, older);
        }
    }

    /// Drops what nobody wrote: it is where segments show it, and was to be moved.
    pub fn leave_unmoved(&mut self, per_block: u64) {
        let moving = &mut self.moving;
        self.dirty.retain(|unit, waiting| {
            let written = waiting.since != Unit::MOVED;
            if !written {
                moving.remove(unit);
            }
            written
        });
        self.recount(per_block);
    }

    /// A unit waits again, under what was put over it.
    fn make_dirty(&mut self, unit: u64, older: Unit) {
        match self.dirty.get_mut(&unit) {
            Some(newer) => newer.replaces(&older),
            None => drop(self.dirty.insert(unit, older)),
        }
    }

    /// Drops images of units in blocks that have new homes: these hold what is newest of them.
    pub fn drop_images(&mut self, from: u64, to: u64) {
        self.images.retain(|unit, _| !(from..to).contains(unit));
    }

    /// Makes images of units in blocks that get no homes plain dirty units again.
    pub fn unimage(&mut self, from: u64, to: u64) {
        let units: Vec<u64> = self.images.range(from..to).map(|(unit, _)| *unit).collect();
        for unit in units {
            if let Some((_, image)) = self.images.remove(&unit) {
                self.make_dirty(unit, image);
            }
        }
    }
}

/// The least that units from `from` on let segments show.
fn hidden_end(units: &BTreeMap<u64, Unit>, from: u64) -> Option<u64> {
    units.range(from..).find_map(|(_, unit)| unit.hides)
}
