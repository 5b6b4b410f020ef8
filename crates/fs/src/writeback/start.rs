//! Starting the way home: overwrites become images, the rest gets new homes (rules 3, 6 and 10; H19).

use super::homed::{BATCH_UNITS_MAX, Batch, IMAGE_UNITS_MAX};
use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::operations::placing::{Aim, aimed, aims_of};
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::unit::{UNIT, UnitBytes};
use loamfs_format::checksum::unit_crc;
use loamfs_format::{Extent, FragAddr, Geometry, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Units and their checksums.
pub(super) type Crcs = Vec<(u64, u32)>;

/// Homed data to be written.
#[derive(Debug)]
pub(crate) struct HomeWrite {
    pub ino: Ino,
    pub batch: u64,
    /// Where units go that follow each other.
    pub(super) runs: Vec<(FragAddr, Vec<(u64, UnitBytes)>)>,
    /// Those of them that stay unwritten, and get no checksum.
    pub(super) still: BTreeSet<u64>,
}

/// What became of the wish to bring a file's data home.
#[derive(Debug)]
pub(crate) enum Started {
    /// Nothing waits there.
    Nothing,
    /// Others are writing data of this file: only when that is over can more follow.
    Busy,
    /// The units before this one are on their way, with what the caller is to write.
    Until(u64, Option<HomeWrite>),
}

impl HomeWrite {
    /// Bytes to be written.
    pub fn bytes(&self) -> usize {
        let units: usize = self.runs.iter().map(|(_, units)| units.len()).sum();
        units * UNIT as usize
    }

    /// Where they go.
    pub fn homes(&self, geometry: &Geometry) -> impl Iterator<Item = Extent> {
        let unit = geometry.unit_frags();
        let runs = self.runs.iter();
        runs.map(move |(home, units)| Extent::new(*home, units.len() as u64 * unit))
    }

    /// The units that are written, in order.
    fn units(&self) -> impl Iterator<Item = u64> + use<> {
        let units = self.runs.iter().flat_map(|(_, units)| units);
        let units: BTreeSet<u64> = units.map(|(unit, _)| *unit).collect();
        (&units - &self.still).into_iter()
    }

    /// Puts the bytes together in `room`, which is as long as they are. Returns what of it is written where, and the
    /// checksums of the units, in order. Nobody needs to wait for that.
    pub fn put_together<'r>(&self, mut room: &'r mut [u8]) -> (Vec<(FragAddr, &'r [u8])>, Crcs) {
        let (mut writes, mut crcs) = (Vec::with_capacity(self.runs.len()), Crcs::new());
        for (home, units) in &self.runs {
            let (run, rest) = room.split_at_mut(units.len() * UNIT as usize);
            room = rest;
            for (room, (unit, bytes)) in run.chunks_mut(UNIT as usize).zip(units) {
                room.copy_from_slice(bytes);
                if !self.still.contains(unit) {
                    crcs.push((*unit, unit_crc(room)));
                }
            }
            writes.push((*home, &*run));
        }
        crcs.sort_unstable();
        (writes, crcs)
    }
}

/// Units that become images, with their homes.
type Images = Vec<(u64, FragAddr)>;
/// First writes: units with homes that were never written.
type Firsts = BTreeMap<u64, FragAddr>;
/// One of them, with its bytes.
type First = (u64, FragAddr, UnitBytes);
/// Whole blocks, unit by unit.
type Blocks = BTreeMap<u64, Vec<UnitBytes>>;

/// Where everything goes that is taken.
struct Taken {
    images: Images,
    /// Units for new homes.
    fresh: BTreeSet<u64>,
    /// The units of the blocks that hold them.
    blocks: Blocks,
    /// Units of these that stay unwritten.
    still: BTreeSet<u64>,
    /// New homes, by first block.
    homes: Vec<(u64, Extent)>,
    /// What is written where its home is.
    firsts: Vec<First>,
}

/// Bytes of a summary that an image takes: allocation, image, and the free of the one before.
const IMAGE_RECORDS: u64 = 256;

/// Starts to bring what waits of a file's units `from ..= to` to where segments can show it: overwrites become
/// images for the next segment, the rest gets new homes, which the caller writes.
pub(crate) struct Start {
    pub ino: Ino,
    pub from: u64,
    pub to: u64,
}

/// [`Start`], prepared.
pub(crate) struct Starting {
    ino: Ino,
    /// The first unit that waits on.
    next: u64,
    room: Taken,
}

impl Operation for Start {
    type Change = Starting;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Starting>, Stop> {
        let ino = self.ino;
        core.access.check()?;
        let Some(node) = core.inodes.get(ino) else {
            return Ok(Plan::Done(Started::Nothing));
        };
        let arrives = core.writeback.arrives(ino);
        if node.homed().is_flying() || core.env.law().waits_for_first_write(arrives) {
            return Ok(Plan::Done(Started::Busy));
        }
        // Segments show a file up to its first hidden unit: none that was written since may stay behind what is taken.
        let hidden = node.homed().hidden_end(node.hidden_from());
        let from = hidden.map_or(self.from, |end| self.from.min(end / UNIT));
        let waiting = node.homed().dirty_in(from..=self.to.max(from));
        let units: Vec<u64> = waiting.take(BATCH_UNITS_MAX).collect();
        let Some(last) = units.last() else {
            return Ok(Plan::Done(Started::Nothing));
        };
        core.prepare_dirty(ino)?;
        let (mut images, mut fresh, mut first) = sort_out(core, ino, &units)?;
        // More images than a segment holds wait for the next, and so does what is behind them.
        let most = core.geometry.segment_max as usize / UNIT as usize;
        let next = images.get(most).map_or(last + 1, |(unit, _)| *unit);
        images.truncate(most);
        fresh.split_off(&next);
        first.split_off(&next);
        let room = find_room(core, ino, images, fresh, first)?;
        Ok(Plan::Change(Starting { ino, next, room }))
    }
}

impl Change for Starting {
    type Done = Started;

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<Started, Broken> {
        let (ino, next) = (self.ino, self.next);
        make_images(core, ino, &self.room.images)?;
        core.note_dirty();
        let write = make_batch(core, ino, self.room)?;
        Ok(Started::Until(next, write))
    }
}

/// Takes homes for what needs them. Where the log has no room for images, they too get new homes, for which what
/// waits was admitted (rules 6 and 10); where data groups have none after all, the reserve serves.
fn find_room(
    core: &mut Core,
    ino: Ino,
    images: Images,
    fresh: BTreeSet<u64>,
    first: Firsts,
) -> Result<Taken, Stop> {
    if !images.is_empty()
        && !core
            .budget()
            .space_fits(images.len() as u64 * (UNIT + IMAGE_RECORDS), 0)
    {
        let mut all = fresh.clone();
        all.extend(images.iter().map(|(unit, _)| unit));
        match room_for(core, ino, Images::new(), all, first.clone()) {
            Err(Stop::Full) => {}
            found => return found,
        }
    }
    room_for(core, ino, images, fresh, first)
}

/// Reads what goes to new homes, and takes these; nothing is taken when it stops.
fn room_for(
    core: &mut Core,
    ino: Ino,
    images: Images,
    mut fresh: BTreeSet<u64>,
    mut first: Firsts,
) -> Result<Taken, Stop> {
    let per_block = core.geometry.block_units();
    first.retain(|unit, _| !goes_along(*unit, &mut fresh, per_block));
    let blocks = gather_blocks(core, ino, &fresh)?;
    let mut still = BTreeSet::new();
    for block in blocks.keys() {
        let units = block * per_block..(block + 1) * per_block;
        let unwritten = core.reading().unwritten(ino, units)?.into_keys();
        still.extend(unwritten.filter(|unit| !fresh.contains(unit)));
    }
    let mut firsts = Vec::with_capacity(first.len());
    for (unit, home) in first {
        firsts.push((unit, home, core.reading().unit_content(ino, unit)?));
    }
    let runs = runs_with_aims(core, ino, &blocks)?;
    let homes = core.homes().take(ino, runs)?;
    Ok(Taken {
        images,
        fresh,
        blocks,
        still,
        homes,
        firsts,
    })
}

/// Splits waiting units into overwrites that go through the log, with their homes, those for new homes, and first writes
/// of homes that were reserved.
fn sort_out(
    core: &mut Core,
    ino: Ino,
    units: &[u64],
) -> Result<(Images, BTreeSet<u64>, Firsts), Stop> {
    let (mut images, mut fresh) = (Vec::new(), BTreeSet::new());
    let (Some(first), Some(last)) = (units.first(), units.last()) else {
        return Ok((images, fresh, Firsts::new()));
    };
    let homes: BTreeMap<u64, FragAddr> = core
        .reading()
        .homes(ino, *first, last + 1)?
        .into_iter()
        .collect();
    let mut reserved = core.reading().unwritten(ino, *first..last + 1)?;
    reserved.retain(|_, home| !core.writeback.has_failed(*home));
    let mut firsts = Firsts::new();
    let homed = core.inodes.loaded(ino)?.homed();
    // Where homes are in the log, one in the place of another costs no seek more than an image.
    let longest = match core.space.is_all_log() {
        true => 0,
        false => IMAGE_UNITS_MAX,
    };
    let mut run: Vec<(u64, FragAddr)> = Vec::new();
    let mut end_run = |run: &mut Vec<(u64, FragAddr)>, fresh: &mut BTreeSet<u64>| {
        if run.len() as u64 <= longest {
            images.append(run);
        } else {
            fresh.extend(run.drain(..).map(|(unit, _)| unit));
        }
    };
    for unit in units {
        if run.last().is_some_and(|(last, _)| last + 1 != *unit) {
            end_run(&mut run, &mut fresh);
        }
        let home = homes.get(unit).filter(|_| !homed.moves(*unit));
        match (reserved.get(unit), home) {
            (Some(home), _) => {
                end_run(&mut run, &mut fresh);
                firsts.insert(*unit, *home);
            }
            (None, Some(home)) => run.push((*unit, *home)),
            (None, None) => {
                end_run(&mut run, &mut fresh);
                fresh.insert(*unit);
            }
        }
    }
    end_run(&mut run, &mut fresh);
    let per_block = core.geometry.block_units();
    images.retain(|(unit, _)| !goes_along(*unit, &mut fresh, per_block));
    Ok((images, fresh, firsts))
}

/// Whether a unit is among the fresh ones, since another of its block is: a block that gets a new home takes all of its
/// units along.
fn goes_along(unit: u64, fresh: &mut BTreeSet<u64>, per_block: u64) -> bool {
    let first = unit / per_block * per_block;
    let moves = fresh.range(first..first + per_block).next().is_some();
    if moves {
        fresh.insert(unit);
    }
    moves
}

/// The whole content of every block that holds one of `units`.
fn gather_blocks(core: &mut Core, ino: Ino, units: &BTreeSet<u64>) -> Result<Blocks, Stop> {
    let per_block = core.geometry.block_units();
    let mut blocks = Blocks::new();
    let mut missed = Missed::default();
    let wanted: BTreeSet<u64> = units.iter().map(|unit| unit / per_block).collect();
    for block in wanted {
        let mut content = Vec::with_capacity(per_block as usize);
        for unit in block * per_block..(block + 1) * per_block {
            let node = core.inodes.loaded(ino)?;
            let is_whole = (unit + 1) * UNIT <= node.inode().size;
            match node.homed().get(unit).filter(|_| is_whole) {
                // As nearly all of it is.
                Some(waiting) => content.push(Arc::clone(waiting)),
                None => content.extend(missed.note(core.reading().unit_content(ino, unit))?),
            }
        }
        blocks.insert(block, content);
    }
    missed.nothing()?;
    Ok(blocks)
}

fn make_images(core: &mut Core, ino: Ino, images: &[(u64, FragAddr)]) -> Result<(), Stop> {
    if images.is_empty() {
        return Ok(());
    }
    let node = core.inodes.prepared(ino)?;
    let per_block = core.geometry.block_units();
    node.change_homed(&mut core.writeback, |homed| {
        let homes: BTreeMap<u64, FragAddr> = images.iter().copied().collect();
        homed.make_images(&homes, per_block);
    });
    core.touch(ino)
}

fn make_batch(core: &mut Core, ino: Ino, room: Taken) -> Result<Option<HomeWrite>, Stop> {
    core.inodes.prepared(ino)?;
    if room.homes.is_empty() && room.firsts.is_empty() {
        return Ok(None);
    }
    let (batch, geometry) = (core.writeback.new_batch(), core.geometry);
    let mut units = room.fresh;
    units.extend(room.firsts.iter().map(|(unit, ..)| *unit));
    let in_place = joined(room.firsts, &geometry);
    let extent = |(at, units): &(FragAddr, Vec<(u64, UnitBytes)>)| {
        Extent::new(*at, units.len() as u64 * geometry.unit_frags())
    };
    let arriving: Vec<Extent> = in_place.iter().map(extent).collect();
    let new = room.homes.iter();
    let new = new.map(|(first, home)| home_write(&geometry, &room.blocks, *first, *home));
    let write = HomeWrite {
        ino,
        batch,
        runs: new.chain(in_place).collect(),
        still: room.still,
    };
    set_off(core, &write, units, room.homes)?;
    if !arriving.is_empty() {
        core.writeback.arriving.insert(batch, (ino, arriving));
    }
    Ok(Some(write))
}

/// Notes that `units` of a file are on their way, to new `homes` or to those that they have.
fn set_off(
    core: &mut Core,
    write: &HomeWrite,
    units: BTreeSet<u64>,
    homes: Vec<(u64, Extent)>,
) -> Result<(), Stop> {
    let per_block = core.geometry.block_units();
    let node = core.inodes.prepared(write.ino)?;
    let (size, from) = (node.inode().size, node.hidden_from());
    node.change_homed(&mut core.writeback, |homed| {
        let taken = homed.take_units(units.iter().copied(), per_block);
        let hidden = homed.hidden_end(from);
        homed.set_off(Batch {
            id: write.batch,
            units: taken.into_iter().collect(),
            homes,
            crcs: write.units().map(|unit| (unit, 0)).collect(),
            shown: hidden.map_or(size, |end| size.min(end)),
            landed: false,
        });
    });
    Ok(())
}

/// The units of the blocks from `first` on, which go to their home.
fn home_write(
    geometry: &Geometry,
    blocks: &Blocks,
    first: u64,
    home: Extent,
) -> (FragAddr, Vec<(u64, UnitBytes)>) {
    let count = home.frags / geometry.block_frags();
    let units = blocks
        .range(first..first + count)
        .flat_map(|(_, units)| units)
        .cloned();
    let numbers = first * geometry.block_units()..;
    (home.start, numbers.zip(units).collect())
}

/// The runs among some blocks, and where they go: what the mover takes along may go elsewhere than what somebody writes.
fn runs_with_aims(
    core: &mut Core,
    ino: Ino,
    blocks: &Blocks,
) -> Result<Vec<(Range<u64>, Aim)>, Stop> {
    let (aims, per_block) = (aims_of(core, ino, 0)?, core.geometry.block_units());
    let homed = core.inodes.loaded(ino)?.homed();
    let moves = |block: &u64| {
        let mut units = block * per_block..(block + 1) * per_block;
        aims.new != aims.moved && units.any(|unit| homed.moves(unit))
    };
    let (moved, new): (Vec<u64>, Vec<u64>) = blocks.keys().copied().partition(moves);
    let [new, moved] = [new, moved].map(|blocks| runs_of(blocks.into_iter()));
    let mut runs: Vec<_> = aimed(new, aims.new)
        .chain(aimed(moved, aims.moved))
        .collect();
    runs.sort_by_key(|(run, _)| run.start);
    Ok(runs)
}

/// The runs among some blocks.
pub(crate) fn runs_of(blocks: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match runs.last_mut().filter(|run| run.end == block) {
            Some(run) => run.end += 1,
            None => runs.push(block..block + 1),
        }
    }
    runs
}

/// Units that go to their homes, in as few runs as there can be.
fn joined(units: Vec<First>, geometry: &Geometry) -> Vec<(FragAddr, Vec<(u64, UnitBytes)>)> {
    let unit_frags = geometry.unit_frags();
    let behind = |(_, home, _): &First, next: &First| home.0 + unit_frags == next.1.0;
    let runs = units.chunk_by(behind);
    let of_run = |run: &[First]| {
        let units = run.iter().map(|(unit, _, bytes)| (*unit, bytes.clone()));
        Some((run.first()?.1, units.collect()))
    };
    runs.filter_map(of_run).collect()
}
