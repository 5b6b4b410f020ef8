//! Gathering what stands scattered of large files, because the volume's owner asks for it and in idle times: read in the order of its
//! addresses, as much as memory holds, and written in that of its file. What is worth it `reclaim::gathering` says.

use super::commit::all_written;
use super::{Durability, Engine, Upkeep};
use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::extents::{blocks_of, clip};
use crate::operations::carry::pieces;
use crate::reclaim::Gathering;
use crate::region::Region;
use crate::unit::UNIT;
use loamfs_format::group::Role;
use loamfs_format::inode::FileExtent;
use loamfs_format::{BlockKind, FragAddr, GroupNo};
use std::collections::BTreeMap;

/// Extents of a file that are looked at in one hold of the state.
const EXTENTS: usize = 1024;
/// Units that are read together.
const READ_TOGETHER: usize = 256;
/// Bytes of a file that one step moves at most, as a program would write them.
const PIECE: u64 = 1 << 20;
/// Regions that are looked at between two ticks.
const LOOKS: usize = 64;

impl Upkeep<'_> {
    /// By the clock: gathers a region, if nobody has asked for anything for a while and there is one that pays. A failure is
    /// nobody's error.
    pub(super) fn gather_in_idle_time(&self, is_quiet: bool) {
        let engine = self.engine();
        let is_due = {
            let mut core = self.core();
            let free = core.space.free_groups();
            core.reclaim.scattered().is_due(is_quiet, free)
        };
        if !is_due {
            return;
        }
        let ends = engine.asked_from_now_on();
        for _ in 0..LOOKS {
            let Some(region) = self.core().reclaim.scattered().take() else {
                break;
            };
            match engine.gather_if(region, Gathering::pays, &ends) {
                Ok(0) if !ends() && !self.core().reclaim.scattered().waits_for_room() => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, ino = region.ino().0, "a file is not put in order");
                    break;
                }
            }
        }
    }
}

impl Engine {
    /// Gathers all that reads much slower than it could, as long as `goes_on` and there is room for it. Answers how many bytes were
    /// written anew.
    pub(super) fn gather_all(&self, goes_on: &mut dyn FnMut() -> bool) -> Result<u64, Error> {
        if !self.core().may_gather() {
            return Ok(0);
        }
        self.look_for_scattered()?;
        // What is written over meanwhile, and what was gathered, comes another time.
        let regions = self.core().reclaim.scattered().take_all();
        let (mut bytes, mut is_full) = (0, false);
        for region in regions {
            if is_full || !goes_on() {
                self.core().reclaim.scattered().note(region);
                continue;
            }
            match self.gather_if(region, Gathering::helps, &|| false) {
                // Groups that are emptied make room.
                Err(Error::NoSpace) => is_full = true,
                gathered => bytes += gathered?,
            }
        }
        Ok(bytes)
    }

    /// Looks through the log for regions that stand in more than one place. What is damaged nobody is told here.
    fn look_for_scattered(&self) -> Result<(), Error> {
        let log: Vec<GroupNo> = {
            let core = self.core();
            let groups = (0..core.geometry.groups()).map(GroupNo);
            groups
                .filter(|group| core.space.role(*group) == Role::Log)
                .collect()
        };
        for group in log {
            let found = self.run(|core| scattered_in(core, group));
            let regions = match found {
                Err(error @ Error::ReadOnly) => return Err(error),
                found => found.unwrap_or_default(),
            };
            let mut core = self.core();
            let note = |region| core.reclaim.scattered().note(region);
            regions.into_iter().for_each(note);
        }
        Ok(())
    }

    /// Gathers a region if that is worth it; answers how many bytes it has. Where it finds no room it is remembered.
    fn gather_if(
        &self,
        region: Region,
        is_worth_it: fn(Gathering) -> bool,
        ends: &dyn Fn() -> bool,
    ) -> Result<u64, Error> {
        let extents = match self.extents(region) {
            // It went, or it is damaged: others tell.
            Err(Error::Stale(_) | Error::Corrupt(_)) => return Ok(0),
            extents => extents?,
        };
        let together = self.gathered_together();
        let bytes = {
            let mut core = self.core();
            let places: Vec<_> = extents.iter().map(|it| it.pointer.extent()).collect();
            let frags = places.iter().map(|place| place.frags).sum::<u64>();
            let gathering = core.prices().gathering(&places, together);
            if !is_worth_it(gathering) {
                return Ok(0);
            }
            tracing::debug!(?region, ?gathering, places = places.len(), "gathering");
            if !core.cleaner().may_gather(frags) {
                let free = core.space.free_groups();
                core.reclaim.scattered().wait_for_room(region, free);
                return Ok(0);
            }
            core.geometry.byte_offset(FragAddr(frags))
        };
        let mut rest = extents.as_slice();
        while !rest.is_empty() && !ends() {
            let count = self.count_together(rest, together);
            let (now, later) = rest.split_at(count);
            let gathered = self.gather(region, now);
            if matches!(gathered, Err(Error::NoSpace)) {
                let mut core = self.core();
                let free = core.space.free_groups();
                core.reclaim.scattered().wait_for_room(region, free);
            }
            gathered?;
            rest = later;
        }
        let mut core = self.core();
        match rest.is_empty() {
            true => core.reclaim.scattered().forget(region),
            false => core.reclaim.scattered().note(region),
        }
        Ok(bytes)
    }

    /// Bytes that are read before they are written: what the cache of contents holds, and what may wait.
    fn gathered_together(&self) -> u64 {
        let waiting = self.core().writeback.bytes_max() / 2;
        self.sweeper().sweep_bytes().min(waiting).max(UNIT)
    }

    /// How many extents come to so many bytes; one at least.
    fn count_together(&self, extents: &[FileExtent], bytes: u64) -> usize {
        let geometry = self.core().geometry;
        let mut sum = 0;
        let fits = |it: &&FileExtent| {
            sum += geometry.byte_offset(FragAddr(it.pointer.frags.into()));
            sum <= bytes
        };
        extents.iter().take_while(fits).count().max(1)
    }

    /// What stands of a region, in the order of the file, in pieces that lie in one group each.
    fn extents(&self, region: Region) -> Result<Vec<FileExtent>, Error> {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let more = self.run(|core| {
                core.node(region.ino())?;
                let per_block = core.geometry.block_units();
                let units = region.units();
                let (first, end) = (units.start / per_block, units.end / per_block);
                let first = from.unwrap_or(first);
                // One extent may go on into the next region.
                if first >= end {
                    return Ok(Vec::new());
                }
                let more = core
                    .reading()
                    .extents_from(region.ino(), first, end, EXTENTS)?;
                let cut = |it: &FileExtent| clip(it, &core.geometry, first, end);
                Ok(more.iter().map(cut).collect::<Vec<_>>())
            })?;
            let (geometry, longest) = {
                let core = self.core();
                // What is more than may wait would be sent back for ever.
                let most = PIECE.min(core.writeback.bytes_max() / 2);
                (core.geometry, most / u64::from(core.geometry.block_size))
            };
            let Some(last) = more.last() else {
                return Ok(found);
            };
            from = Some(last.block + blocks_of(last, &geometry));
            let written = more.iter().filter(|it| !it.pointer.unwritten);
            found.extend(written.flat_map(|it| pieces(it, it.block, longest.max(1), &geometry)));
        }
    }

    /// Reads extents of a region in the order of their addresses, and writes them in that of the file.
    fn gather(&self, region: Region, extents: &[FileExtent]) -> Result<(), Error> {
        let ino = region.ino();
        let geometry = self.core().geometry;
        let per_block = geometry.block_units();
        let mut places: Vec<(FragAddr, u64)> = Vec::new();
        for it in extents {
            let first = it.block * per_block;
            let units = u64::from(it.pointer.frags) / geometry.unit_frags();
            let place = |unit| FragAddr(it.pointer.addr.0 + unit * geometry.unit_frags());
            places.extend((0..units).map(|unit| (place(unit), first + unit)));
        }
        places.sort_unstable();
        for places in places.chunks(READ_TOGETHER) {
            // Whoever moves it says what is wrong with it.
            let _ = self.step(|core| {
                let mut missed = Missed::default();
                for (_, unit) in places {
                    missed.note(core.reading().shown_unit(ino, *unit))?;
                }
                missed.nothing()
            });
        }
        let carried = extents.iter().try_for_each(|it| {
            match self.run(|core| core.mover().carry(ino, it)) {
                // It went meanwhile.
                Err(Error::Stale(_)) => Ok(()),
                Err(error @ (Error::Corrupt(_) | Error::Device(_))) => {
                    tracing::warn!(%error, ino = ino.0, "what is damaged is not moved");
                    Ok(())
                }
                carried => carried,
            }
        });
        let written = self.write_out(Durability::Written).and_then(all_written);
        self.core().mover().leave_unmoved();
        carried.and(written)
    }
}

impl Core {
    /// Whether what stands scattered reads slower, and stays so if nobody mends it.
    pub fn may_gather(&self) -> bool {
        self.space.is_all_log() && self.prices().disk().turns()
    }
}

/// Regions of which a group holds several pieces, one at least from its front on.
fn scattered_in(core: &mut Core, group: GroupNo) -> Result<Vec<Region>, Stop> {
    let range = core.geometry.group_extent(group);
    let owners = core
        .maps
        .owners_now(&mut core.blocks, &core.space, &core.geometry, range)?;
    let per_block = core.geometry.block_units();
    let homes = owners
        .iter()
        .filter(|(_, owner)| owner.kind == BlockKind::Homed);
    let mut pieces: BTreeMap<Region, u32> = BTreeMap::new();
    for (_, owner) in homes {
        let region = Region::of(owner.ino, owner.logical.saturating_mul(per_block));
        *pieces.entry(region).or_default() += 1;
    }
    let scattered = pieces.into_iter().filter(|(_, count)| *count > 1);
    Ok(scattered.map(|(region, _)| region).collect())
}
