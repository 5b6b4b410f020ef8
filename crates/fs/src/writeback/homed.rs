//! What waits of one large file: units of 4 KiB in memory, from a write to where segments show them.

use crate::unit::{UNIT, UnitBytes};
use loamfs_format::checksum::CRC_UNITS;
use loamfs_format::{Extent, FragAddr, Geometry};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{AddAssign, Range, RangeInclusive, SubAssign};

/// A contiguous overwrite up to this many units goes through the log (rule 6).
pub(crate) const IMAGE_UNITS_MAX: u64 = (1 << 20) / UNIT;
/// Units that one batch takes at most.
pub(crate) const BATCH_UNITS_MAX: usize = (16 << 20) / UNIT as usize;

/// So often in a row data may be given up on their way home, since they are cut. Then whoever cuts them waits, or who cuts
/// without end would keep them from their home.
const GIVEN_UP_MAX: u32 = 2;

/// A unit's newest bytes, and what is to be known of them until segments show them.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub bytes: UnitBytes,
    /// Since which put the unit waits, whatever was put over it later; [`Unit::MOVED`] when nobody wrote it.
    pub since: u64,
    /// Bytes of the file that segments may show without it: only what made a file longer hides its end.
    pub hides: Option<u64>,
    /// Whether it has a home that was never written, and takes no other.
    pub reserved: bool,
    /// Whether its home is to be emptied: it gets a new one, however short the overwrite is.
    pub moves: bool,
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
            reserved: false,
            moves: true,
        }
    }

    /// Takes the place of an older one that no segment shows yet.
    fn replaces(&mut self, older: &Unit) {
        self.since = self.since.min(older.since);
        self.hides = match (self.hides, older.hides) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.reserved |= older.reserved;
        self.moves |= older.moves;
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
    /// The units that are written, to those homes and in place, in order, with their checksums, which are 0 until they
    /// landed.
    pub crcs: Vec<(u64, u32)>,
    /// Bytes of the file that segments show with them: up to what was hidden when they were gathered.
    pub shown: u64,
    /// Whether the device has them for good.
    pub landed: bool,
}

impl Batch {
    /// Whether some unit of a new home stays unwritten.
    pub fn leaves_unwritten(&self, block: u64, home: Extent, geometry: &Geometry) -> bool {
        let first = block * geometry.block_units();
        let count = home.frags / geometry.unit_frags();
        let before = |end: u64| self.crcs.partition_point(|(unit, _)| *unit < end) as u64;
        before(first + count) - before(first) < count
    }
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Units in memory.
    pub units: u64,
    /// Of them, images that ride in the next segment.
    pub images: u64,
    /// Blocks that hold a dirty unit which has no home reserved: what new homes take at most.
    pub blocks: u64,
    /// Runs of checksums of dirty units that have: what showing them makes anew, at most.
    pub runs: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.units += other.units;
        self.images += other.images;
        self.blocks += other.blocks;
        self.runs += other.runs;
    }
}

impl SubAssign for Totals {
    fn sub_assign(&mut self, other: Totals) {
        self.units -= other.units;
        self.images -= other.images;
        self.blocks -= other.blocks;
        self.runs -= other.runs;
    }
}

/// The state of a large file's data. It changes through [`Node::change_homed`](crate::inodes::Node::change_homed) only,
/// which counts it.
#[derive(Debug, Default)]
pub(crate) struct Homed {
    /// Newest.
    dirty: BTreeMap<u64, Unit>,
    /// Of dirty units: see [`Totals::blocks`].
    dirty_blocks: u64,
    /// Likewise, [`Totals::runs`].
    dirty_runs: u64,
    /// Overwrites that ride in the next segment, with their homes.
    images: BTreeMap<u64, (FragAddr, Unit)>,
    /// On their way to new homes.
    batch: Option<Batch>,
    /// How many units were ever put here. It numbers the next put.
    puts: u64,
    /// How often in a row what was on its way was given up.
    given_up: u32,
    /// The units that were put one behind the other last, as far as nobody was told that they make a stream.
    stream: Range<u64>,
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

    /// How much of it waits.
    pub fn totals(&self) -> Totals {
        let flying = self.batch.as_ref().map_or(0, |b| b.units.len());
        Totals {
            units: (self.dirty.len() + self.images.len() + flying) as u64,
            images: self.images.len() as u64,
            blocks: self.dirty_blocks,
            runs: self.dirty_runs,
        }
    }

    /// The number of the next put.
    pub fn puts(&self) -> u64 {
        self.puts
    }

    /// Whether units wait that are not on their way yet.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The units of a range that wait and are not on their way yet.
    pub(super) fn dirty_in(&self, range: RangeInclusive<u64>) -> impl Iterator<Item = u64> {
        self.dirty.range(range).map(|(unit, _)| *unit)
    }

    /// The last unit that waits and is not on its way yet.
    pub(super) fn last_dirty(&self) -> Option<u64> {
        self.dirty.keys().next_back().copied()
    }

    /// What is on its way, or has landed and is not shown.
    pub(super) fn batch(&self) -> Option<&Batch> {
        self.batch.as_ref()
    }

    /// Whether new homes of it are being written, or have landed and are not shown.
    pub fn is_flying(&self) -> bool {
        self.batch.is_some()
    }

    /// Units that ride in the next segment.
    pub fn images(&self) -> impl Iterator<Item = u64> {
        self.images.keys().copied()
    }

    /// The units of a range that are in memory; one may come twice.
    pub fn units_in(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + use<'_> {
        let flying = self
            .batch
            .as_ref()
            .map(|batch| batch.units.range(range.clone()));
        let dirty = self.dirty.range(range.clone()).map(|(unit, _)| *unit);
        let images = self.images.range(range.clone()).map(|(unit, _)| *unit);
        dirty
            .chain(images)
            .chain(flying.into_iter().flatten().map(|(unit, _)| *unit))
    }

    /// The first unit of a range that is in memory.
    pub fn first_in(&self, range: Range<u64>) -> Option<u64> {
        let dirty = self.dirty.range(range.clone()).next().map(|(u, _)| *u);
        let image = self.images.range(range.clone()).next().map(|(u, _)| *u);
        let batch = self.batch.as_ref();
        let flying = batch.and_then(|b| b.units.range(range).next().map(|(u, _)| *u));
        [dirty, image, flying].into_iter().flatten().min()
    }

    /// Whether new homes that are on their way hold a unit of a range, written or not.
    pub fn flies_over(&self, range: Range<u64>) -> bool {
        let batch = self.batch.iter();
        batch
            .flat_map(|batch| &batch.crcs)
            .any(|(unit, _)| range.contains(unit))
    }

    /// Whether units of a range are on their way that are not to be given up once more.
    pub fn insists_on(&self, range: Range<u64>) -> bool {
        self.given_up >= GIVEN_UP_MAX && self.flies_over(range)
    }

    /// Drops the units of a range that wait and are not on their way.
    pub fn drop_units(&mut self, range: Range<u64>, per_block: u64) {
        self.images.retain(|unit, _| !range.contains(unit));
        self.change_dirty(range.clone(), per_block, |dirty| {
            dirty.retain(|unit, _| !range.contains(unit));
        });
    }

    /// Nothing on its way shows more than `size` bytes of the file.
    pub fn show_at_most(&mut self, size: u64) {
        if let Some(batch) = &mut self.batch {
            batch.shown = batch.shown.min(size);
        }
    }

    /// An image that the mover takes along.
    pub fn move_image(&mut self, unit: u64, home: FragAddr, bytes: UnitBytes) {
        self.images.insert(unit, (home, Unit::moved(bytes)));
    }

    /// Units that the mover takes along to new homes.
    pub fn move_units(&mut self, units: Vec<(u64, UnitBytes)>, per_block: u64) {
        let range = range_of(units.iter().map(|(unit, _)| *unit));
        let moved = units.into_iter();
        let moved = moved.map(|(unit, bytes)| (unit, Unit::moved(bytes)));
        self.change_dirty(range, per_block, |dirty| dirty.extend(moved));
    }

    /// Of these units those that wait get new homes, however short what was put is.
    pub fn move_waiting(&mut self, units: &[u64]) {
        for unit in units {
            if let Some(waiting) = self.dirty.get_mut(unit) {
                waiting.moves = true;
            }
        }
    }

    /// Takes units that go home, or into the next segment, as far as they wait.
    pub fn take_units(
        &mut self,
        units: impl Iterator<Item = u64> + Clone,
        per_block: u64,
    ) -> Vec<(u64, Unit)> {
        self.change_dirty(range_of(units.clone()), per_block, |dirty| {
            let taken = units.filter_map(|unit| Some((unit, dirty.remove(&unit)?)));
            taken.collect()
        })
    }

    /// Units that wait and whose homes these are ride in the next segment.
    pub(super) fn make_images(&mut self, homes: &BTreeMap<u64, FragAddr>, per_block: u64) {
        let taken = self.take_units(homes.keys().copied(), per_block);
        let image = |(unit, waiting): (u64, Unit)| Some((unit, (*homes.get(&unit)?, waiting)));
        self.images.extend(taken.into_iter().filter_map(image));
    }

    /// An image is in a segment; its home and bytes.
    pub fn take_image(&mut self, unit: u64) -> Option<(FragAddr, UnitBytes)> {
        let (home, image) = self.images.remove(&unit)?;
        Some((home, image.bytes))
    }

    /// Whether so many units were put one behind the other since this was last so: what is written from front to back at
    /// such length is seldom written again, and need not wait for more.
    pub fn take_stream(&mut self, units: u64) -> bool {
        let is_long = self.stream.end - self.stream.start >= units;
        if is_long {
            self.stream.start = self.stream.end;
        }
        is_long
    }

    /// The unit behind those of a stream lengthens it, and the last one may be put in parts; any other begins a new one.
    fn lengthen_stream(&mut self, unit: u64) {
        if unit == self.stream.end {
            self.stream.end += 1;
        } else if unit + 1 != self.stream.end {
            self.stream = unit..unit + 1;
        }
    }

    /// Takes in newly written units, of blocks of `per_block`. `what` tells of each what it hides, and whether its home is
    /// reserved: see [`Unit::hides`] and [`Unit::reserved`].
    pub fn put(
        &mut self,
        units: BTreeMap<u64, UnitBytes>,
        what: impl Fn(u64) -> (Option<u64>, bool),
        per_block: u64,
    ) {
        let range = range_of(units.keys().copied());
        let first = self.puts;
        self.puts += units.len() as u64;
        units.keys().for_each(|unit| self.lengthen_stream(*unit));
        self.change_dirty(range, per_block, |dirty| {
            for ((unit, bytes), since) in units.into_iter().zip(first..) {
                let (hides, reserved) = what(unit);
                let new = Unit {
                    bytes,
                    since,
                    hides,
                    reserved,
                    moves: false,
                };
                match dirty.entry(unit) {
                    Entry::Vacant(entry) => drop(entry.insert(new)),
                    Entry::Occupied(mut entry) => {
                        let older = entry.insert(new);
                        entry.get_mut().replaces(&older);
                    }
                }
            }
        });
    }

    /// Changes the dirty units of a range, and counts what that changes.
    fn change_dirty<T>(
        &mut self,
        range: Range<u64>,
        per_block: u64,
        change: impl FnOnce(&mut BTreeMap<u64, Unit>) -> T,
    ) -> T {
        let (blocks, runs) = self.counts_in(&range, per_block);
        let done = change(&mut self.dirty);
        let (blocks_now, runs_now) = self.counts_in(&range, per_block);
        self.dirty_blocks = self.dirty_blocks + blocks_now - blocks;
        self.dirty_runs = self.dirty_runs + runs_now - runs;
        done
    }

    /// The dirty blocks and runs of checksums that the units of a range belong to.
    fn counts_in(&self, range: &Range<u64>, per_block: u64) -> (u64, u64) {
        let count = |len: u64, reserved: bool| {
            let whole = range.start / len * len..range.end.div_ceil(len).saturating_mul(len);
            let counted = self.dirty.range(whole);
            let counted = counted.filter(|(_, unit)| unit.reserved == reserved);
            let mut last = None;
            let new = |(unit, _): &(&u64, &Unit)| last.replace(*unit / len) != Some(*unit / len);
            counted.filter(new).count() as u64
        };
        (count(per_block, false), count(CRC_UNITS, true))
    }

    /// Whether a dirty unit must have another home than it has.
    pub(super) fn moves(&self, unit: u64) -> bool {
        self.dirty.get(&unit).is_some_and(|waiting| waiting.moves)
    }

    /// Whether a unit is on its way home.
    pub fn is_under_way(&self, unit: u64) -> bool {
        self.batch
            .as_ref()
            .is_some_and(|batch| batch.units.contains_key(&unit))
    }

    /// Units that were taken are on their way.
    pub(super) fn set_off(&mut self, batch: Batch) {
        self.batch = Some(batch);
    }

    /// The writes of batch `id` are over; what was `written` has these checksums. Without them it waits again. Returns whether
    /// there is something to show.
    pub(super) fn land(
        &mut self,
        id: u64,
        written: Option<Vec<(u64, u32)>>,
        per_block: u64,
    ) -> bool {
        let Some(batch) = self.batch.as_mut().filter(|batch| batch.id == id) else {
            return false;
        };
        batch.landed = true;
        let Some(crcs) = written else {
            // The homes that failed stay taken until the next mount, so that the next try goes elsewhere (rule 12).
            self.give_up_batch(per_block);
            return false;
        };
        batch.crcs = crcs;
        true
    }

    /// What is on its way, to be shown.
    pub(super) fn take_batch(&mut self) -> Option<Batch> {
        self.given_up = 0;
        self.batch.take()
    }

    /// Drops all that waits. Puts are numbered on: somebody may wait for those that were.
    pub(super) fn clear(&mut self) {
        let puts = self.puts;
        *self = Homed {
            puts,
            ..Homed::default()
        };
    }

    /// What was on its way waits again.
    pub(super) fn give_up_batch(&mut self, per_block: u64) -> Option<Batch> {
        let mut batch = self.batch.take()?;
        self.given_up += 1;
        let units = std::mem::take(&mut batch.units);
        let range = range_of(units.keys().copied());
        self.change_dirty(range, per_block, |dirty| take_back(dirty, units));
        Some(batch)
    }

    /// Drops what nobody wrote: it is where segments show it, and was to be moved.
    pub fn leave_unmoved(&mut self, per_block: u64) {
        self.change_dirty(0..u64::MAX, per_block, |dirty| {
            dirty.retain(|_, waiting| waiting.since != Unit::MOVED);
        });
    }

    /// Drops images of units in blocks that have new homes: these hold what is newest of them.
    pub fn drop_images(&mut self, from: u64, to: u64) {
        self.images.retain(|unit, _| !(from..to).contains(unit));
    }
}

/// Puts what a batch was to write back among the dirty units, under what was put over it.
fn take_back(dirty: &mut BTreeMap<u64, Unit>, units: BTreeMap<u64, Unit>) {
    for (unit, older) in units {
        match dirty.entry(unit) {
            Entry::Vacant(entry) => drop(entry.insert(older)),
            Entry::Occupied(mut newer) => newer.get_mut().replaces(&older),
        }
    }
}

/// The least range that holds all of some units.
fn range_of(units: impl Iterator<Item = u64>) -> Range<u64> {
    let range = units.map(|unit| unit..unit + 1);
    let both = |a: Range<u64>, b: Range<u64>| a.start.min(b.start)..a.end.max(b.end);
    range.reduce(both).unwrap_or_default()
}

/// The least that units from `from` on let segments show.
fn hidden_end(units: &BTreeMap<u64, Unit>, from: u64) -> Option<u64> {
    units.range(from..).find_map(|(_, unit)| unit.hides)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use loamfs_format::checksum::CRC_UNITS;

    /// Units of a block.
    const PER_BLOCK: u64 = 4;

    fn put(homed: &mut Homed, units: Range<u64>, reserved: bool) {
        let bytes: UnitBytes = vec![7; UNIT as usize].into();
        let units = units.map(|unit| (unit, UnitBytes::clone(&bytes)));
        homed.put(units.collect(), |_| (None, reserved), PER_BLOCK);
    }

    /// Blocks and runs, each unit looked at.
    fn counted(homed: &Homed) -> (u64, u64) {
        let of = |len: u64, reserved: bool| {
            let units = homed.dirty.iter();
            let units = units.filter(|(_, unit)| unit.reserved == reserved);
            let parts: std::collections::BTreeSet<u64> =
                units.map(|(unit, _)| unit / len).collect();
            parts.len() as u64
        };
        (of(PER_BLOCK, false), of(CRC_UNITS, true))
    }

    #[test]
    fn dirty_blocks_and_runs_are_counted_as_they_come_and_go() {
        let mut homed = Homed::default();
        let mut step = |change: &dyn Fn(&mut Homed)| {
            change(&mut homed);
            let totals = homed.totals();
            assert_eq!((totals.blocks, totals.runs), counted(&homed));
        };
        step(&|homed| put(homed, 1..10, false));
        step(&|homed| put(homed, 200..331, true));
        step(&|homed| put(homed, 9..14, true));
        step(&|homed| put(homed, 210..220, false));
        step(&|homed| {
            let taken = homed.take_units([3, 4, 5, 6, 7, 100, 200].into_iter(), PER_BLOCK);
            assert_eq!(taken.len(), 6);
        });
        step(&|homed| homed.drop_units(256..u64::MAX, PER_BLOCK));
        step(&|homed| {
            let bytes: UnitBytes = vec![1; UNIT as usize].into();
            homed.move_units(vec![(90, bytes.clone()), (20, bytes)], PER_BLOCK);
        });
        step(&|homed| {
            let units = homed.take_units(201..230, PER_BLOCK).into_iter().collect();
            homed.batch = Some(Batch {
                id: 1,
                units,
                homes: Vec::new(),
                crcs: Vec::new(),
                shown: 0,
                landed: false,
            });
        });
        step(&|homed| drop(homed.give_up_batch(PER_BLOCK).unwrap()));
        step(&|homed| homed.leave_unmoved(PER_BLOCK));
        step(&|homed| homed.drop_units(0..u64::MAX, PER_BLOCK));
        assert_eq!(homed.totals(), Totals::default());
    }

    #[test]
    fn a_stream_is_what_is_written_from_front_to_back() {
        let long = 100;
        let mut homed = Homed::default();
        // Two writes share each unit in which one ends within it.
        for unit in (10..10 + long - 1).step_by(3) {
            put(&mut homed, unit..unit + 4, false);
            assert_eq!(
                homed.take_stream(long),
                unit + 4 >= 10 + long,
                "unit {unit}"
            );
        }
        put(&mut homed, 10 + long..10 + 2 * long - 8, false);
        assert!(!homed.take_stream(long), "another one is not that long yet");
        put(&mut homed, 0..1, false);
        put(&mut homed, 10 + 2 * long - 8..10 + 2 * long, false);
        assert!(!homed.take_stream(long), "it was broken off");
    }
}
