//! The states that a crash may leave: which of the writes since the last flush
//! have landed, and how much of each.
//!
//! Only the end of each stretch between two flushes is looked at. Every state of
//! an earlier crash in the same stretch is one of its states, too (the later
//! writes are lost), and what was promised until the end was promised there
//! before any of the writes that are not durable.

use std::collections::BTreeSet;
use std::fmt;

use loamfs_device::{Event, Image};
use loamfs_format::superblock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::history::Level;
use super::recording::Recording;
use crate::problem::{Problem, Verdict};
use crate::rng::Rng;

/// Bytes of the smallest unit in which a write is torn.
const SECTOR: usize = 512;

/// A stretch between two flushes.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Its number in the recording.
    pub number: usize,
    /// What is durable.
    pub base: Image,
    /// What is not, in the order in which it was issued: writes and discards.
    pub pending: Vec<Event>,
    /// What was promised, and what may be there.
    pub level: Level,
    /// A number that is the same for the same bytes.
    hash: u64,
    /// Where one device ends and the next begins.
    cuts: Vec<u64>,
}

/// What became of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing of it landed.
    Lost,
    /// All of it did.
    Kept,
    /// The first bytes of it did.
    Prefix(u64),
    /// The last bytes of it did.
    Suffix(u64),
    /// A random half of its sectors did.
    Mixed {
        /// Which half.
        seed: u64,
        /// Bytes of a sector.
        sector: u32,
    },
}

/// What a crash made of the pending writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of each, in their order.
    pub fates: Vec<Fate>,
    /// Writes to the same place landed the other way round.
    pub reversed: bool,
    /// The copy of the superblock that rotted.
    pub rot: Option<usize>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fate) in self.fates.iter().enumerate() {
            let gap = if at == 0 { "" } else { " " };
            match fate {
                Fate::Lost => write!(f, "{gap}-")?,
                Fate::Kept => write!(f, "{gap}+")?,
                Fate::Prefix(bytes) => write!(f, "{gap}first:{bytes}")?,
                Fate::Suffix(bytes) => write!(f, "{gap}last:{bytes}")?,
                Fate::Mixed { seed, sector } => write!(f, "{gap}mixed:{sector}:{seed:x}")?,
            }
        }
        if self.reversed {
            f.write_str(", the other way round")?;
        }
        if let Some(copy) = self.rot {
            write!(f, ", superblock copy {copy} rots")?;
        }
        Ok(())
    }
}

/// Cuts a recording at its flushes.
pub fn epochs(recording: &Recording) -> Verdict<Vec<Epoch>> {
    let mut base = recording.base.clone();
    let mut hash = 0;
    let mut level = recording.level.clone();
    let mut pending = Vec::new();
    let mut epochs = Vec::new();
    let end = [Event::Flush];
    for event in recording.events.iter().chain(&end) {
        match event {
            Event::Mark(mark) => level.pass(*mark, &recording.history),
            Event::Write { .. } | Event::Discard { .. } => pending.push(event.clone()),
            Event::Flush | Event::FlushPart { .. } => {
                let epoch = Epoch {
                    number: epochs.len(),
                    base: base.clone(),
                    pending: std::mem::take(&mut pending),
                    level: level.clone(),
                    hash,
                    cuts: recording.cuts.clone(),
                };
                (base, hash) = epoch.build(&epoch.flushed_by(event))?;
                // What waits on other devices waits on.
                let waits = |pending: &&Event| !is_flushed(pending, event);
                pending = epoch.pending.iter().filter(waits).cloned().collect();
                epochs.push(epoch);
            }
        }
    }
    Ok(epochs)
}

impl Epoch {
    /// All writes have the same fate.
    pub fn plan(&self, fate: Fate) -> Plan {
        Plan {
            fates: vec![fate; self.pending.len()],
            reversed: false,
            rot: None,
        }
    }

    /// What a flush makes durable is kept, and nothing else.
    fn flushed_by(&self, flush: &Event) -> Plan {
        let fate = |event: &Event| match is_flushed(event, flush) {
            true => Fate::Kept,
            false => Fate::Lost,
        };
        Plan {
            fates: self.pending.iter().map(fate).collect(),
            ..self.plan(Fate::Lost)
        }
    }

    /// The device after a crash, and a number for its bytes.
    pub fn build(&self, plan: &Plan) -> Verdict<(Image, u64)> {
        let harness = |error| Problem::new("harness", format!("{error}"));
        let mut image = self.base.clone();
        let writes = self.pending.iter().zip(&plan.fates);
        let mut writes: Vec<_> = writes.collect();
        if plan.reversed {
            writes.reverse();
        }
        let mut touched = BTreeSet::new();
        for (event, fate) in writes {
            for (offset, len) in landed(event, *fate) {
                apply(event, offset, len, &mut image).map_err(harness)?;
                let sectors = offset / SECTOR as u64..(offset + len).div_ceil(SECTOR as u64);
                touched.extend(sectors);
            }
        }
        if let Some(copy) = plan.rot {
            let offset = superblock::offsets(image.size())[copy];
            image.write(offset + 100, &[0xa5; 64]).map_err(harness)?;
            touched.insert((offset + 100) / SECTOR as u64);
        }
        let mut hash = self.hash;
        for sector in touched {
            let offset = sector * SECTOR as u64;
            hash ^= sector_hash(&self.base, offset).map_err(harness)?;
            hash ^= sector_hash(&image, offset).map_err(harness)?;
        }
        Ok((image, hash))
    }

    /// States to explore, at most about `budget`.
    pub fn plans(&self, rng: &mut Rng, budget: usize, rot: bool) -> Vec<Plan> {
        let mut plans = Plans {
            epoch: self,
            rng,
            plans: Vec::new(),
        };
        plans.prefixes(budget / 3);
        plans.devices();
        plans.torn_copies();
        plans.lost(budget / 3);
        plans.torn(budget / 3);
        plans.mixed(budget / 8);
        plans.reversed();
        if rot {
            plans.rotten();
        }
        plans.plans
    }

    /// A line for each pending write, for a report.
    pub fn listing(&self, plan: &Plan) -> String {
        let writes = self.pending.iter().zip(&plan.fates);
        writes
            .map(|(event, fate)| match event {
                Event::Write { offset, data, kind } => {
                    format!("    {kind} {} bytes at {offset}: {fate:?}\n", data.len())
                }
                other => format!("    {other:?}: {fate:?}\n"),
            })
            .collect()
    }
}

/// Whether a flush makes a write durable. None goes from one device into another.
fn is_flushed(event: &Event, flush: &Event) -> bool {
    match flush {
        Event::FlushPart { offset, len } => (*offset..offset + len).contains(&extent(event).0),
        _ => true,
    }
}

fn sector_hash(image: &Image, offset: u64) -> Result<u64, loamfs_device::DeviceError> {
    let len = SECTOR.min((image.size() - offset) as usize);
    let mut bytes = [0; SECTOR];
    image.read(offset, &mut bytes[..len])?;
    Ok(xxh3_64_with_seed(&bytes, offset))
}

fn extent(event: &Event) -> (u64, u64) {
    match event {
        Event::Write { offset, data, .. } => (*offset, data.len() as u64),
        Event::Discard { offset, len } => (*offset, *len),
        Event::Flush | Event::FlushPart { .. } | Event::Mark(_) => (0, 0),
    }
}

/// The parts of a write that landed.
fn landed(event: &Event, fate: Fate) -> Vec<(u64, u64)> {
    let (start, len) = extent(event);
    match fate {
        Fate::Lost => Vec::new(),
        Fate::Kept => vec![(start, len)],
        Fate::Prefix(bytes) => vec![(start, bytes.min(len))],
        Fate::Suffix(bytes) => {
            let bytes = bytes.min(len);
            vec![(start + len - bytes, bytes)]
        }
        Fate::Mixed { seed, sector } => {
            let mut rng = Rng::new(seed);
            let sectors = (start..start + len).step_by(sector as usize);
            sectors
                .filter(|_| rng.one_in(2))
                .map(|at| (at, u64::from(sector).min(start + len - at)))
                .collect()
        }
    }
}

fn apply(
    event: &Event,
    offset: u64,
    len: u64,
    image: &mut Image,
) -> Result<(), loamfs_device::DeviceError> {
    match event {
        Event::Write {
            offset: start,
            data,
            ..
        } => {
            let from = (offset - start) as usize;
            image.write(offset, &data[from..from + len as usize])
        }
        Event::Discard { .. } => image.clear(offset, len),
        Event::Flush | Event::FlushPart { .. } | Event::Mark(_) => Ok(()),
    }
}

/// Collects plans.
struct Plans<'a> {
    epoch: &'a Epoch,
    rng: &'a mut Rng,
    plans: Vec<Plan>,
}

impl Plans<'_> {
    fn count(&self) -> usize {
        self.epoch.pending.len()
    }

    fn add(&mut self, fates: Vec<Fate>) {
        self.plans.push(Plan {
            fates,
            reversed: false,
            rot: None,
        });
    }

    /// The first so many landed: everything, nothing, and what is between.
    fn prefixes(&mut self, budget: usize) {
        let count = self.count();
        let all: Vec<usize> = if count <= budget {
            (0..=count).collect()
        } else {
            let some = (0..budget).map(|_| self.rng.index(count + 1));
            [count, 0].into_iter().chain(some).collect()
        };
        for kept in all {
            self.add(prefix(count, kept));
        }
    }

    /// One device keeps what the others lose, or loses what they keep.
    fn devices(&mut self) {
        let on = |event: &Event| {
            let (at, _) = extent(event);
            self.epoch.cuts.partition_point(|cut| *cut <= at)
        };
        let devices: Vec<usize> = self.epoch.pending.iter().map(on).collect();
        let all: BTreeSet<usize> = devices.iter().copied().collect();
        for device in all.iter().filter(|_| all.len() > 1) {
            for kept in [true, false] {
                let fate = |on: &usize| match (on == device) == kept {
                    true => Fate::Kept,
                    false => Fate::Lost,
                };
                self.add(devices.iter().map(fate).collect());
            }
        }
    }

    /// All copies of superblocks that are under way together are torn.
    fn torn_copies(&mut self) {
        let pending = self.epoch.pending.iter();
        let is_copy: Vec<bool> = pending.map(Recording::is_superblock).collect();
        if is_copy.iter().filter(|is| **is).count() > 1 {
            let fate = |is: &bool| match is {
                true => Fate::Prefix(SECTOR as u64),
                false => Fate::Kept,
            };
            self.add(is_copy.iter().map(fate).collect());
        }
    }

    /// Up to three lost, all such sets if they are few enough; also of those
    /// that an earlier crash had seen.
    fn lost(&mut self, budget: usize) {
        let count = self.count();
        let triples = (count * (count.max(1) - 1) / 2 * count.max(2).saturating_sub(2)) / 3;
        let sets = count + count * count.max(1).saturating_sub(1) / 2 + triples;
        if sets <= budget {
            for one in 0..count {
                self.lose(count, &[one]);
                for two in 0..one {
                    self.lose(count, &[one, two]);
                    for three in 0..two {
                        self.lose(count, &[one, two, three]);
                    }
                }
            }
            return;
        }
        for at in 0..budget {
            let kept = if at % 2 == 0 {
                count
            } else {
                self.rng.between(1, count as u64) as usize
            };
            let lost: Vec<usize> = (0..self.rng.between(1, 3))
                .map(|_| self.rng.index(kept))
                .collect();
            self.lose(kept, &lost);
        }
    }

    fn lose(&mut self, kept: usize, lost: &[usize]) {
        let mut fates = prefix(self.count(), kept);
        for &at in lost {
            fates[at] = Fate::Lost;
        }
        self.add(fates);
    }

    /// One write is torn at a sector; the others landed, or those before it, or
    /// any.
    fn torn(&mut self, budget: usize) {
        let count = self.count();
        for _ in 0..if count == 0 { 0 } else { budget } {
            let at = self.rng.index(count);
            let (_, len) = extent(&self.epoch.pending[at]);
            let sector = *self.rng.pick(&[512, 4096]).unwrap_or(&512);
            if len <= sector {
                continue;
            }
            // The first and the last sector are where headers and ends are.
            let sectors = len.div_ceil(sector);
            let cut = match self.rng.below(4) {
                0 => 1,
                1 => sectors - 1,
                _ => self.rng.between(1, sectors - 1),
            };
            let mut fates = match self.rng.below(3) {
                0 => prefix(count, count),
                1 => prefix(count, at),
                _ => self.any(count),
            };
            fates[at] = if self.rng.one_in(3) {
                Fate::Suffix(len - cut * sector)
            } else {
                Fate::Prefix(cut * sector)
            };
            self.add(fates);
        }
    }

    /// Any sectors of any writes.
    fn mixed(&mut self, budget: usize) {
        for _ in 0..if self.count() == 0 { 0 } else { budget.max(1) } {
            let sector = *self.rng.pick(&[512, 4096]).unwrap_or(&512);
            let fates = (0..self.count()).map(|_| match self.rng.below(4) {
                0 => Fate::Lost,
                1 => Fate::Kept,
                _ => Fate::Mixed {
                    seed: self.rng.next_u64(),
                    sector,
                },
            });
            let fates = fates.collect();
            self.add(fates);
        }
    }

    fn any(&mut self, count: usize) -> Vec<Fate> {
        let keep = |_| {
            if self.rng.one_in(2) {
                Fate::Lost
            } else {
                Fate::Kept
            }
        };
        (0..count).map(keep).collect()
    }

    /// Writes to the same place need not land in the order in which they were issued.
    fn reversed(&mut self) {
        let mut extents: Vec<_> = self.epoch.pending.iter().map(extent).collect();
        extents.sort_unstable();
        if extents
            .windows(2)
            .any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
        {
            let mut plan = self.epoch.plan(Fate::Kept);
            plan.reversed = true;
            self.plans.push(plan);
        }
    }

    /// One copy of the superblock rots, with and without the pending writes, or without those to superblocks or the
    /// first alone.
    fn rotten(&mut self) {
        let (kept, lost) = (self.epoch.plan(Fate::Kept), self.epoch.plan(Fate::Lost));
        let mut unnamed = kept.clone();
        for (fate, event) in unnamed.fates.iter_mut().zip(&self.epoch.pending) {
            if Recording::is_superblock(event) {
                *fate = Fate::Lost;
            }
        }
        let mut headless = kept.clone();
        headless
            .fates
            .iter_mut()
            .take(1)
            .for_each(|fate| *fate = Fate::Lost);
        for plan in [kept, unnamed, headless, lost] {
            for copy in [0, 1] {
                let rot = Some(copy);
                self.plans.push(Plan {
                    rot,
                    ..plan.clone()
                });
            }
        }
    }
}

fn prefix(count: usize, kept: usize) -> Vec<Fate> {
    let fate = |at| if at < kept { Fate::Kept } else { Fate::Lost };
    (0..count).map(fate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::history::History;
    use crate::model::Model;
    use loamfs_device::IoKind;

    fn write(offset: u64, byte: u8, len: usize) -> Event {
        Event::Write {
            offset,
            data: vec![byte; len].into(),
            kind: IoKind::Segment,
        }
    }

    fn recording(events: Vec<Event>) -> Recording {
        Recording {
            base: Image::new(1 << 20),
            events,
            history: History::new(Model::new(0o755, 0, 0)),
            level: Level::default(),
            cuts: Vec::new(),
        }
    }

    fn byte(image: &Image, offset: u64) -> u8 {
        let mut byte = [0];
        image.read(offset, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn what_was_flushed_stays() {
        let events = vec![write(0, 1, 4096), Event::Flush, write(0, 2, 4096)];
        let epochs = epochs(&recording(events)).unwrap();
        assert_eq!(epochs.len(), 2);
        let lost = epochs[1].plan(Fate::Lost);
        assert_eq!(byte(&epochs[1].build(&lost).unwrap().0, 0), 1);
        let kept = epochs[1].plan(Fate::Kept);
        assert_eq!(byte(&epochs[1].build(&kept).unwrap().0, 0), 2);
    }

    #[test]
    fn what_one_of_two_devices_has_flushed_stays_and_the_rest_waits() {
        let flush = Event::FlushPart {
            offset: 0,
            len: 8192,
        };
        let events = vec![
            write(0, 1, 4096),
            write(8192, 1, 4096),
            flush,
            write(4096, 2, 4096),
        ];
        let epochs = epochs(&recording(events)).unwrap();
        let lost = epochs[1].build(&epochs[1].plan(Fate::Lost)).unwrap().0;
        assert_eq!((byte(&lost, 0), byte(&lost, 8192)), (1, 0));
        assert_eq!(epochs[1].pending.len(), 2);
    }

    #[test]
    fn equal_bytes_have_equal_hashes() {
        let events = vec![
            write(8192, 1, 8192),
            Event::Flush,
            write(8192, 2, 4096),
            Event::Flush,
            write(8192, 1, 4096),
        ];
        let epochs = epochs(&recording(events)).unwrap();
        let hash = |at: usize, fate| epochs[at].build(&epochs[at].plan(fate)).unwrap().1;
        assert_eq!(hash(0, Fate::Kept), hash(1, Fate::Lost));
        assert_eq!(hash(1, Fate::Lost), hash(2, Fate::Kept));
        assert_ne!(hash(1, Fate::Lost), hash(1, Fate::Kept));
        let torn = Fate::Prefix(512);
        assert_ne!(hash(0, torn), hash(0, Fate::Kept));
    }

    #[test]
    fn all_sets_of_up_to_three_lost_are_tried() {
        let events = (0..4).map(|at| write(at * 4096, 1, 4096)).collect();
        let epoch = &epochs(&recording(events)).unwrap()[0];
        let plans = epoch.plans(&mut Rng::new(1), 60, false);
        let mut sets = BTreeSet::new();
        for plan in plans {
            let whole = plan
                .fates
                .iter()
                .all(|f| matches!(f, Fate::Lost | Fate::Kept));
            if whole {
                let kept: Vec<bool> = plan.fates.iter().map(|f| *f == Fate::Kept).collect();
                sets.insert(kept);
            }
        }
        assert_eq!(sets.len(), 16);
    }

    #[test]
    fn writes_to_one_place_may_land_the_other_way_round() {
        let events = vec![write(0, 1, 4096), write(0, 2, 4096)];
        let epoch = &epochs(&recording(events)).unwrap()[0];
        let plans = epoch.plans(&mut Rng::new(1), 30, false);
        let reversed = plans.iter().find(|plan| plan.reversed).unwrap();
        assert_eq!(byte(&epoch.build(reversed).unwrap().0, 0), 1);
    }

    #[test]
    fn a_torn_write_ends_at_a_sector() {
        let epoch = &epochs(&recording(vec![write(4096, 7, 8192)])).unwrap()[0];
        let mut plan = epoch.plan(Fate::Prefix(1024));
        let image = epoch.build(&plan).unwrap().0;
        assert_eq!((byte(&image, 5119), byte(&image, 5120)), (7, 0));
        plan.rot = Some(0);
        let image = epoch.build(&plan).unwrap().0;
        assert_eq!(byte(&image, (64 << 10) + 100), 0xa5);
    }
}
