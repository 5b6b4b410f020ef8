//! Reserving space that was never written (fallocate): extents of which only the units with a checksum are data. The others
//! read as zeros, whatever their homes hold. Their first write goes in place, since no segment shows what stands there
//! (rules 3 and 6), and takes no space but for the checksum: what that needs is kept free from the call on.

use super::placing::{aimed, aims_of};
use super::write::Writing;
use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::extents::{self, STEP_EXTENTS};
use crate::file::at_home;
use crate::flags::flags_of;
use crate::permission;
use crate::reading::Housed;
use crate::writeback::runs_of;
use loamfs_format::inode::FileExtent;
use loamfs_format::summary::Unwritten;
use loamfs_format::{Extent, Ino, Pointer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Extents that one step makes, at most.
const STEP_NEW: usize = 64;

/// What a step of a reservation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// All of the range has space.
    All,
    /// All before this byte.
    Until(u64),
    /// Nothing: what segments show of the file is its small form, until its data are at home.
    NotHome,
}

/// Gives a bounded number of holes in the bytes `range` of a file space that is not written, behind its end too.
pub(crate) struct Reserve {
    pub ino: Ino,
    pub range: Range<u64>,
}

/// [`Reserve`], prepared: one step.
pub(crate) enum Reserving {
    /// A small file's content leaves the log, so that it can have blocks once it is at home.
    Leave(Writing),
    Take(NewHomes, Reserved),
}

/// Blocks with homes that are not written, in the place of those that they have.
pub(crate) struct NewHomes {
    ino: Ino,
    homes: Vec<(u64, Extent)>,
    change: extents::ExtentChange,
}

impl Operation for Reserve {
    type Change = Reserving;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Reserving>, Stop> {
        let (ino, range) = (self.ino, &self.range);
        let block = u64::from(core.geometry.block_size);
        let inode = core.file(ino)?.inode();
        permission::may_grow(flags_of(inode))?;
        let (size, cutting) = (inode.size, inode.truncating != u64::MAX);
        if cutting && range.end > size {
            return Err(core.leftovers.wait_for_drain(ino));
        }
        if !at_home(core.file(ino)?) {
            return Reserving::leave(core, ino);
        }
        core.prepare_dirty(ino)?;
        let blocks = range.start / block..range.end.div_ceil(block);
        let (holes, reach) = holes(core, ino, blocks.clone())?;
        let homes = take_homes(core, ino, &holes)?;
        let done = match homes.last() {
            Some((first, extent)) => first + extent.frags / core.geometry.block_frags(),
            None => reach,
        };
        let homes = NewHomes::prepare(core, ino, homes)?;
        let reserved = match done < blocks.end {
            true => Reserved::Until(done * block),
            false => Reserved::All,
        };
        Ok(Plan::Change(Reserving::Take(homes, reserved)))
    }
}

impl Reserving {
    fn leave(core: &mut Core, ino: Ino) -> Result<Plan<Reserving>, Stop> {
        let node = core.file(ino)?;
        if node.is_moving() {
            return Ok(Plan::Done(Reserved::NotHome));
        }
        let size = node.inode().size;
        core.may_go_home(ino)?;
        core.prepare_dirty(ino)?;
        let claim = Claim::Growth {
            log: NODES_COST,
            data: 2 * core.sizes().small_max(),
        };
        Ok(Plan::Change(Reserving::Leave(Writing::Large {
            ino,
            small: Some(core.reading().small_content(ino)?),
            units: BTreeMap::new(),
            reserved: BTreeSet::new(),
            size,
            claim,
        })))
    }
}

impl Change for Reserving {
    type Done = Reserved;

    fn claim(&self) -> Claim {
        match self {
            Reserving::Leave(write) => write.claim(),
            // As much was taken as was admitted.
            Reserving::Take(..) => Claim::Nothing,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Reserved, Broken> {
        match self {
            Reserving::Leave(write) => {
                write.apply(core)?;
                Ok(Reserved::NotHome)
            }
            Reserving::Take(homes, reserved) => {
                let ino = homes.ino;
                homes.apply(core)?;
                core.changed_content(ino)?;
                Ok(reserved)
            }
        }
    }
}

impl NewHomes {
    /// Other homes for blocks of which nothing was written, and nothing is being written: there is nothing to read. What
    /// finds none stays where it is. The inode is prepared.
    pub fn elsewhere(
        core: &mut Core,
        ino: Ino,
        housed: &[Housed],
    ) -> Result<Option<NewHomes>, Stop> {
        let per_block = core.geometry.block_units();
        let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
        for it in housed.iter().filter(|it| !it.written) {
            *blocks.entry(it.unit / per_block).or_default() += 1;
        }
        let flying = core.inodes.prepared(ino)?.homed().is_flying();
        if blocks.is_empty() || flying || core.writeback.arrives(ino) {
            return Ok(None);
        }
        blocks.retain(|_, count| *count == per_block);
        let end = blocks.keys().next_back().map_or(0, |block| block + 1);
        let end = end.saturating_mul(core.geometry.block_size.into());
        let aim = aims_of(core, ino, end)?.moved;
        let runs = runs_of(blocks.into_keys());
        let homes = match core.homes().take(ino, aimed(runs, aim)) {
            Err(Stop::Full) => return Ok(None),
            found => found?,
        };
        NewHomes::prepare(core, ino, homes).map(Some)
    }

    /// Reads what showing homes needs that were taken; they are given back when it stops.
    fn prepare(core: &mut Core, ino: Ino, homes: Vec<(u64, Extent)>) -> Result<NewHomes, Stop> {
        let (geometry, birth) = (core.geometry, core.open_ssn());
        let unwritten = core.env.law().shows_unwritten();
        let fresh = homes.iter().map(|(block, extent)| FileExtent {
            block: *block,
            pointer: Pointer {
                addr: extent.start,
                frags: extent.frags as u32,
                birth,
                unwritten,
                ..Pointer::NONE
            },
        });
        let fresh: Vec<FileExtent> = fresh.collect();
        let runs = extents::runs(&fresh, &geometry);
        let inode = core.inodes.prepared(ino)?.inode();
        match extents::prepare(inode, &mut core.blocks, &geometry, &runs, &fresh) {
            Ok(change) => Ok(NewHomes { ino, homes, change }),
            Err(stop) => {
                core.homes().give_up(&homes);
                Err(stop)
            }
        }
    }
}

impl Change for NewHomes {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let (ino, homes) = (self.ino, self.homes);
        core.homes().change(ino, &self.change)?;
        let inode = core.inodes.prepared(ino)?.inode_mut();
        let frags = homes.iter().map(|(_, extent)| extent.frags);
        // What the inode counts is taken as it stands.
        inode.frags = inode.frags.saturating_add(frags.sum());
        core.freeing().homes_of(ino, self.change.into_freed())?;
        for (block, extent) in homes {
            core.homes().show(ino, block, extent)?;
        }
        Ok(core.touch(ino)?)
    }
}

/// The holes among some blocks of a file, as far as a bounded step sees, and how far that is.
fn holes(core: &mut Core, ino: Ino, blocks: Range<u64>) -> Result<(Vec<Range<u64>>, u64), Stop> {
    let geometry = core.geometry;
    let found = core
        .reading()
        .extents_from(ino, blocks.start, blocks.end, STEP_EXTENTS)?;
    let (mut holes, mut at) = (Vec::new(), blocks.start);
    for extent in &found {
        if extent.block > at {
            holes.push(at..extent.block);
        }
        at = at.max(extent.block + extents::blocks_of(extent, &geometry));
    }
    if found.len() == STEP_EXTENTS {
        return Ok((holes, at.min(blocks.end)));
    }
    if at < blocks.end {
        holes.push(at..blocks.end);
    }
    Ok((holes, blocks.end))
}

/// Takes homes for blocks that nobody writes now, from the first on: for as many as there is room for, with what their
/// checksums will take.
fn take_homes(core: &mut Core, ino: Ino, holes: &[Range<u64>]) -> Result<Vec<(u64, Extent)>, Stop> {
    let (block, frags) = (
        u64::from(core.geometry.block_size),
        core.geometry.block_frags(),
    );
    let mut count: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
    core.budget().admit(NODES_COST, 0)?;
    let end = holes.last().map_or(0, |hole| hole.end);
    let aim = aims_of(core, ino, end.saturating_mul(block))?.new;
    // What cannot be had whole is not begun.
    if count > core.space.usage().free_frags() / frags {
        return Err(Stop::Full);
    }
    while count > 0 {
        let more = Unwritten {
            extents: (holes.len() as u64).min(STEP_NEW as u64),
            frags: count * frags,
        };
        let promise = core.sizes().promise_of(more);
        if core
            .budget()
            .space_fits(NODES_COST + promise, count * block)
        {
            core.budget().admit(NODES_COST + promise, 0)?;
            match core.homes().take(ino, aimed(first_of(holes, count), aim)) {
                Err(Stop::Full) if count > 1 => {}
                Err(stop) => return Err(stop),
                Ok(mut homes) => {
                    let rest = homes.split_off(homes.len().min(STEP_NEW));
                    core.homes().give_up(&rest);
                    return Ok(homes);
                }
            }
        } else if count == 1 {
            return Err(Stop::Full);
        }
        count /= 2;
    }
    Ok(Vec::new())
}

/// The first `count` blocks of some ranges.
fn first_of(holes: &[Range<u64>], mut count: u64) -> Vec<Range<u64>> {
    let mut first = Vec::new();
    for hole in holes {
        let taken = (hole.end - hole.start).min(count);
        first.extend((taken > 0).then(|| hole.start..hole.start + taken));
        count -= taken;
    }
    first
}
