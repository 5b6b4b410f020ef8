//! Starting the way home: overwrites become images, the rest gets new homes (rules 3, 6 and 10; H19).

use super::homed::{BATCH_UNITS_MAX, Batch, IMAGE_UNITS_MAX, UNIT};
use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::extents;
use loamfs_device::Buffer;
use loamfs_format::maps::unit_crc;
use loamfs_format::{Extent, FragAddr, Geometry, Ino};
use loamfs_space::Found;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Homed data to be written.
#[derive(Debug)]
pub(crate) struct HomeWrite {
    pub ino: Ino,
    pub batch: u64,
    pub writes: Vec<(FragAddr, Buffer)>,
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
        self.writes.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// Units that become images, with their homes.
type Images = Vec<(u64, FragAddr)>;
/// First writes: units with homes that were never written.
type Firsts = BTreeMap<u64, FragAddr>;

/// Where everything goes that is taken.
struct Room {
    images: Images,
    /// Units for new homes.
    fresh: BTreeSet<u64>,
    /// The blocks that hold them.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Units of these that stay unwritten.
    still: BTreeSet<u64>,
    /// New homes, by first block.
    homes: Vec<(u64, Extent)>,
    /// What is written where its home is.
    firsts: Vec<(u64, FragAddr, Vec<u8>)>,
}

/// Bytes of a summary that an image takes: allocation, image, and the free of the one before.
const IMAGE_RECORDS: u64 = 256;
/// Homes may be longer than this only in pieces, so that their length in bytes fits a pointer.
const HOME_FRAGS_MAX: u64 = 1 << 20;

impl Core {
    /// Starts to bring what waits of a file's units `from ..= to` to where segments can show it: overwrites become
    /// images for the next segment, the rest gets new homes, which the caller writes.
    pub fn start_writeback(&mut self, ino: Ino, from: u64, to: u64) -> Result<Started, Stop> {
        self.access.check()?;
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return Ok(Started::Nothing);
        };
        if node.homed().is_flying()
            || self
                .env
                .law
                .waits_for_first_write(self.writeback.arrives(ino))
        {
            return Ok(Started::Busy);
        }
        // Segments show a file up to its first hidden unit: none that was written since may stay behind what is taken.
        let hidden = node.homed().hidden_end(node.hidden_from());
        let from = hidden.map_or(from, |end| from.min(end / UNIT));
        let waiting = node.homed().dirty.range(from..=to.max(from));
        let units: Vec<u64> = waiting
            .map(|(unit, _)| *unit)
            .take(BATCH_UNITS_MAX)
            .collect();
        let Some(last) = units.last() else {
            return Ok(Started::Nothing);
        };
        self.prepare_dirty(ino)?;
        let (mut images, mut fresh, mut first) = self.sort_out(ino, &units)?;
        // More images than a segment holds wait for the next, and so does what is behind them.
        let most = self.geometry.segment_max as usize / UNIT as usize;
        let next = images.get(most).map_or(last + 1, |(unit, _)| *unit);
        images.truncate(most);
        fresh.split_off(&next);
        first.split_off(&next);
        let room = self.find_room(ino, images, fresh, first)?;
        self.apply(|core| {
            core.make_images(ino, &room.images)?;
            core.note_dirty();
            let write = core.make_batch(ino, room)?;
            Ok(Started::Until(next, write))
        })
    }

    /// Takes homes for what needs them. Where the log has no room for images, they too get new homes, for which what
    /// waits was admitted (rules 6 and 10); where data groups have none after all, the reserve serves.
    fn find_room(
        &mut self,
        ino: Ino,
        images: Images,
        fresh: BTreeSet<u64>,
        first: Firsts,
    ) -> Result<Room, Stop> {
        if !images.is_empty()
            && !self
                .budget()
                .space_fits(images.len() as u64 * (UNIT + IMAGE_RECORDS), 0)
        {
            let mut all = fresh.clone();
            all.extend(images.iter().map(|(unit, _)| unit));
            match self.room_for(ino, Images::new(), all, first.clone()) {
                Err(Stop::Full) => {}
                found => return found,
            }
        }
        self.room_for(ino, images, fresh, first)
    }

    /// Reads what goes to new homes, and takes these; nothing is taken when it stops.
    fn room_for(
        &mut self,
        ino: Ino,
        images: Images,
        mut fresh: BTreeSet<u64>,
        mut first: Firsts,
    ) -> Result<Room, Stop> {
        let per_block = self.geometry.block_units();
        // A block that gets a new home takes all of its units along.
        first.retain(|unit, _| {
            let start = unit / per_block * per_block;
            let moves = fresh.range(start..start + per_block).next().is_some();
            if moves {
                fresh.insert(*unit);
            }
            !moves
        });
        let blocks = self.gather_blocks(ino, &fresh)?;
        let mut still = BTreeSet::new();
        for block in blocks.keys() {
            let units = block * per_block..(block + 1) * per_block;
            let unwritten = self.unwritten_units(ino, units)?.into_keys();
            still.extend(unwritten.filter(|unit| !fresh.contains(unit)));
        }
        let mut firsts = Vec::with_capacity(first.len());
        for (unit, home) in first {
            firsts.push((unit, home, self.reading().unit_content(ino, unit)?));
        }
        let homes = self.find_homes(ino, runs_of(blocks.keys().copied()))?;
        Ok(Room {
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
        &mut self,
        ino: Ino,
        units: &[u64],
    ) -> Result<(Images, BTreeSet<u64>, Firsts), Stop> {
        let (mut images, mut fresh) = (Vec::new(), BTreeSet::new());
        let (Some(first), Some(last)) = (units.first(), units.last()) else {
            return Ok((images, fresh, Firsts::new()));
        };
        let homes: BTreeMap<u64, FragAddr> = self
            .reading()
            .homes(ino, *first, last + 1)?
            .into_iter()
            .collect();
        let mut reserved = self.unwritten_units(ino, *first..last + 1)?;
        reserved.retain(|_, home| !self.writeback.has_failed(*home));
        let mut firsts = Firsts::new();
        let moving = self
            .inodes
            .nodes
            .get(&ino)
            .map(|node| node.homed().moving.clone())
            .unwrap_or_default();
        let mut run: Vec<(u64, FragAddr)> = Vec::new();
        let mut end_run = |run: &mut Vec<(u64, FragAddr)>, fresh: &mut BTreeSet<u64>| {
            if run.len() as u64 <= IMAGE_UNITS_MAX {
                images.append(run);
            } else {
                fresh.extend(run.drain(..).map(|(unit, _)| unit));
            }
        };
        for unit in units {
            if run.last().is_some_and(|(last, _)| last + 1 != *unit) {
                end_run(&mut run, &mut fresh);
            }
            let home = homes.get(unit).filter(|_| !moving.contains(unit));
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
        // A block that gets a new home takes all of its units along.
        let per_block = self.geometry.block_units();
        images.retain(|(unit, _)| {
            let first = unit / per_block * per_block;
            let moves = fresh.range(first..first + per_block).next().is_some();
            if moves {
                fresh.insert(*unit);
            }
            !moves
        });
        Ok((images, fresh, firsts))
    }

    /// The whole content of every block that holds one of `units`.
    fn gather_blocks(
        &mut self,
        ino: Ino,
        units: &BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, Vec<u8>>, Stop> {
        let per_block = self.geometry.block_units();
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut missed = Missed::default();
        let wanted: BTreeSet<u64> = units.iter().map(|unit| unit / per_block).collect();
        for block in wanted {
            let mut content = Vec::with_capacity((per_block * UNIT) as usize);
            for unit in block * per_block..(block + 1) * per_block {
                if let Some(bytes) = missed.note(self.reading().unit_content(ino, unit))? {
                    content.extend_from_slice(&bytes);
                }
            }
            blocks.insert(block, content);
        }
        missed.nothing()?;
        Ok(blocks)
    }

    /// Takes space for blocks, in as long extents as there are; nothing is taken when it stops.
    pub fn find_homes(
        &mut self,
        ino: Ino,
        runs: Vec<Range<u64>>,
    ) -> Result<Vec<(u64, Extent)>, Stop> {
        let mut homes: Vec<(u64, Extent)> = Vec::new();
        let block_frags = self.geometry.block_frags();
        for run in runs {
            let mut at = run.start;
            while at < run.end {
                let want = (run.end - at).min(HOME_FRAGS_MAX / block_frags);
                let found = match self.goal(ino, at, &homes) {
                    Ok((goal, anchor)) => self.space.find_data(want, goal, anchor),
                    Err(stop) => {
                        self.give_up(&homes);
                        return Err(stop);
                    }
                };
                let extent = match found {
                    Found::Run(extent) => extent,
                    Found::Load(groups) => {
                        self.give_up(&homes);
                        return Err(Stop::Load(groups));
                    }
                    Found::Full => {
                        self.give_up(&homes);
                        return Err(Stop::Full);
                    }
                };
                let extent = Extent::new(extent.start, extent.frags.min(want * block_frags));
                if let Err(error) = self.space.allocate_unshown(extent) {
                    self.give_up(&homes);
                    return Err(error.into());
                }
                homes.push((at, extent));
                at += extent.frags / block_frags;
            }
        }
        Ok(homes)
    }

    /// Gives homes back that nobody took.
    pub fn give_up(&mut self, homes: &[(u64, Extent)]) {
        let extents: Vec<Extent> = homes.iter().map(|(_, extent)| *extent).collect();
        self.release_unshown(&extents);
    }

    /// Where the home of a block would best be: behind the home of the one before it.
    fn goal(
        &mut self,
        ino: Ino,
        block: u64,
        homes: &[(u64, Extent)],
    ) -> Result<(FragAddr, loamfs_format::GroupNo), Stop> {
        let geometry = self.geometry;
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return Err(Error::Stale(ino).into());
        };
        let anchor = node.inode.anchor;
        if let Some((_, extent)) = homes.last() {
            return Ok((extent.end(), anchor));
        }
        let before = match block.checked_sub(1) {
            Some(before) => {
                extents::overlapping(&node.inode, &mut self.blocks, &geometry, before, before + 1)?
            }
            None => Vec::new(),
        };
        Ok((
            before
                .last()
                .map_or(FragAddr(0), |e| e.pointer.extent().end()),
            anchor,
        ))
    }

    fn make_images(&mut self, ino: Ino, images: &[(u64, FragAddr)]) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        let per_block = self.geometry.block_units();
        node.change_homed(&mut self.writeback, |homed| {
            for (unit, home) in images {
                if let Some(waiting) = homed.dirty.remove(unit) {
                    homed.images.insert(*unit, (*home, waiting));
                }
            }
            homed.recount(per_block);
        });
        match images.is_empty() {
            true => Ok(()),
            false => self.touch(ino),
        }
    }

    fn make_batch(&mut self, ino: Ino, room: Room) -> Result<Option<HomeWrite>, Stop> {
        let Room {
            fresh: mut units,
            blocks,
            still,
            homes,
            firsts,
            ..
        } = room;
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        if homes.is_empty() && firsts.is_empty() {
            return Ok(None);
        }
        let id = self.writeback.new_batch();
        let mut crcs = checksums(&blocks, &still, per_block);
        for (unit, _, bytes) in &firsts {
            crcs.push((*unit, unit_crc(bytes)));
            units.insert(*unit);
        }
        crcs.sort_unstable();
        let in_place = joined(firsts, &self.geometry);
        let arriving: Vec<Extent> = in_place
            .iter()
            .map(|(at, bytes)| Extent::new(*at, self.geometry.frags_for(bytes.len() as u64)))
            .collect();
        let writes = homes
            .iter()
            .map(|(first, extent)| home_write(&self.geometry, &blocks, *first, *extent))
            .chain(in_place)
            .collect();
        let (size, from) = (node.inode.size, node.hidden_from());
        node.change_homed(&mut self.writeback, |homed| {
            homed.moving.retain(|unit| !units.contains(unit));
            let taken = units
                .iter()
                .filter_map(|unit| Some((*unit, homed.dirty.remove(unit)?)))
                .collect();
            homed.recount(per_block);
            let hidden = homed.hidden_end(from);
            homed.batch = Some(Batch {
                id,
                units: taken,
                homes,
                crcs,
                shown: hidden.map_or(size, |end| size.min(end)),
                landed: false,
            });
        });
        if !arriving.is_empty() {
            self.writeback.arriving.insert(id, (ino, arriving));
        }
        Ok(Some(HomeWrite {
            ino,
            batch: id,
            writes,
        }))
    }
}

/// The checksums of the units of blocks that are written, but for those that were never written.
fn checksums(
    blocks: &BTreeMap<u64, Vec<u8>>,
    still: &BTreeSet<u64>,
    per_block: u64,
) -> Vec<(u64, u32)> {
    let mut crcs = Vec::new();
    for (block, content) in blocks {
        let units = content.chunks(UNIT as usize).zip(block * per_block..);
        let written = units.filter(|(_, unit)| !still.contains(unit));
        crcs.extend(written.map(|(bytes, unit)| (unit, unit_crc(bytes))));
    }
    crcs
}

/// The write of the blocks from `first` on to their home.
fn home_write(
    geometry: &Geometry,
    blocks: &BTreeMap<u64, Vec<u8>>,
    first: u64,
    home: Extent,
) -> (FragAddr, Buffer) {
    let block_size = geometry.block_size as usize;
    let count = home.frags / geometry.block_frags();
    let mut buffer = Buffer::zeroed(count as usize * block_size);
    for (room, block) in buffer.chunks_mut(block_size).zip(first..) {
        if let Some(content) = blocks.get(&block) {
            room.copy_from_slice(content);
        }
    }
    (home.start, buffer)
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

/// The writes of units to their homes, in as few as there can be.
fn joined(units: Vec<(u64, FragAddr, Vec<u8>)>, geometry: &Geometry) -> Vec<(FragAddr, Buffer)> {
    let unit_frags = geometry.unit_frags();
    let behind = |(_, home, _): &(u64, FragAddr, Vec<u8>), next: &(u64, FragAddr, Vec<u8>)| {
        home.0 + unit_frags == next.1.0
    };
    let runs = units.chunk_by(behind);
    let write = |run: &[(u64, FragAddr, Vec<u8>)]| {
        let mut buffer = Buffer::zeroed(run.len() * UNIT as usize);
        for (room, (_, _, bytes)) in buffer.chunks_mut(UNIT as usize).zip(run) {
            room.copy_from_slice(bytes);
        }
        Some((run.first()?.1, buffer))
    };
    runs.filter_map(write).collect()
}
