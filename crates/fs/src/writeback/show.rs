//! Showing new homes: data that landed become what segments say of a file (rules 3 and 7).

use super::homed::Batch;
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::extents::{self, CrcChange};
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::region::Region;
use loamfs_format::inode::{Body, FileExtent};
use loamfs_format::{Geometry, Ino, Pointer, Ssn};

/// What cannot be.
const VANISHED: Error = Error::Broken("new homes vanished while they were to be shown");

/// Lets the next segment show a file's new homes; they replace the old ones, which it frees.
pub(crate) struct Show {
    pub ino: Ino,
}

/// [`Show`], prepared.
pub(crate) struct Showing {
    ino: Ino,
    /// The blocks that have new homes.
    runs: Vec<(u64, u64)>,
    fresh: Vec<FileExtent>,
    change: extents::ExtentChange,
    crcs: CrcChange,
}

impl Operation for Show {
    type Change = Showing;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Showing>, Stop> {
        let ino = self.ino;
        let node = core.inodes.get(ino);
        let batch = node.and_then(|node| node.homed().batch());
        if !batch.is_some_and(|batch| batch.landed) {
            return Ok(Plan::Done(()));
        }
        core.prepare_dirty(ino)?;
        let (geometry, birth) = (core.geometry, core.open_ssn());
        let node = core.inodes.prepared(ino)?;
        let Some(batch) = node.homed().batch() else {
            return Ok(Plan::Done(()));
        };
        let fresh = fresh_extents(batch, &geometry, birth);
        let units: Vec<u64> = batch.crcs.iter().map(|(unit, _)| *unit).collect();
        let runs = extents::runs(&fresh, &geometry);
        let blocks = &mut core.blocks;
        let mut change = extents::prepare(node.inode(), blocks, &geometry, &runs, &fresh)?;
        let (short, crcs) = (core.sb.has_short_checksums(), batch.crcs.iter().copied());
        let crcs = extents::prepare_crcs(node.inode(), blocks, short, crcs)?;
        if fresh.is_empty() {
            change = written_extents(core, ino, &units, &crcs)?;
        }
        Ok(Plan::Change(Showing {
            ino,
            runs,
            fresh,
            change,
            crcs,
        }))
    }
}

/// The extents that a batch brings.
fn fresh_extents(batch: &Batch, geometry: &Geometry, birth: Ssn) -> Vec<FileExtent> {
    let fresh = batch.homes.iter().map(|(block, extent)| FileExtent {
        block: *block,
        pointer: Pointer {
            addr: extent.start,
            frags: extent.frags as u32,
            birth,
            unwritten: batch.leaves_unwritten(*block, *extent, geometry),
            ..Pointer::NONE
        },
    });
    fresh.collect()
}

impl Change for Showing {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let ino = self.ino;
        let per_block = core.geometry.block_units();
        let node = core.inodes.prepared(ino)?;
        let batch = node.change_homed(&mut core.writeback, |homed| {
            for (from, to) in self.runs {
                homed.drop_images(from * per_block, to * per_block);
            }
            homed.take_batch()
        });
        let batch = batch.ok_or(Stop::Failed(VANISHED))?;
        let small = match node.inode().body {
            Body::Small(pointer) => Some(pointer),
            _ => None,
        };
        if matches!(node.inode().body, Body::Small(_) | Body::Inline(_)) {
            node.inode_mut().body = Body::Empty;
            node.inode_mut().frags = 0;
        }
        // What was written since the batch was gathered hides nothing of it.
        let shown = node.shown_size().max(batch.shown);
        node.show_size(shown.min(node.inode().size));
        core.homes().change(ino, &self.change)?;
        let node = core.inodes.prepared(ino)?;
        let fresh = self.fresh.iter().map(|e| u64::from(e.pointer.frags));
        // What the inode counts is taken as it stands.
        node.inode_mut().frags = node.inode().frags.saturating_add(fresh.sum());
        let freed = self.change.into_freed();
        if !freed.is_empty() && core.may_gather() {
            note_scattered(core, ino, &self.fresh);
        }
        let node = core.inodes.prepared(ino)?;
        extents::apply_crcs(node.inode_mut(), &mut core.blocks, &self.crcs)?;
        node.inode_mut().frags -= freed
            .iter()
            .map(|e| e.frags)
            .sum::<u64>()
            .min(node.inode().frags);
        core.homes().keep_tail(ino, &batch);
        for (block, extent) in &batch.homes {
            core.homes().show(ino, *block, *extent)?;
        }
        if core.env.law().frees_old_home() {
            freed.into_iter().for_each(|home| core.freeing().home(home));
        }
        if let Some(pointer) = small {
            core.freeing().block(&pointer);
        }
        Ok(core.touch(ino)?)
    }
}

/// What was written over stands elsewhere than what is around it.
fn note_scattered(core: &mut Core, ino: Ino, fresh: &[FileExtent]) {
    let per_block = core.geometry.block_units();
    for it in fresh {
        let region = Region::of(ino, it.block * per_block);
        core.reclaim.scattered().note(region);
    }
}

/// Extents of which the last unwritten unit is among those that are about to be shown are like any others then.
fn written_extents(
    core: &mut Core,
    ino: Ino,
    units: &[u64],
    crcs: &CrcChange,
) -> Result<extents::ExtentChange, Stop> {
    let (geometry, per_block) = (core.geometry, core.geometry.block_units());
    let (Some(first), Some(last)) = (units.first(), units.last()) else {
        return Ok(extents::ExtentChange::default());
    };
    let (from, to) = (first / per_block, last / per_block + 1);
    let inode = core.inodes.prepared(ino)?.inode();
    let found = extents::overlapping(inode, &mut core.blocks, &geometry, from, to)?;
    let mut change = extents::ExtentChange::default();
    for extent in found.iter().filter(|extent| extent.pointer.unwritten) {
        let end = (extent.block + extents::blocks_of(extent, &geometry)) * per_block;
        let next = units.partition_point(|unit| *unit < extent.block * per_block);
        let touched = units.get(next).is_some_and(|unit| *unit < end);
        if touched && core.reading().is_written(ino, extent, crcs)? {
            let inode = core.inodes.prepared(ino)?.inode();
            change.and(extents::prepare_written(inode, &mut core.blocks, *extent)?);
        }
    }
    Ok(change)
}
