//! Ranges of regular files: zeroing, freeing and filling them (fallocate).
//!
//! What is a hole is told by blocks, as homes are: a block is data when it has a home in which something was written, or
//! something that waits to be. A small file is data from start to end.

use super::resize::Resizing;
use super::write::{Write, Writing};
use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::extents::{self, CrcChange, STEP_EXTENTS, STEP_UNITS};
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::permission;
use crate::unit::{UNIT, UnitBytes};
use loamfs_format::Ino;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Writes zeros over what the bytes `range` of a file have of blocks beside them; over all of them where blocks are
/// not freed. This is all of [`Punch`] that may find no space, and comes first.
pub(crate) struct ZeroEdges {
    pub ino: Ino,
    pub range: Range<u64>,
}

/// Makes the bytes `range` of a small file that stays small zeros, in one go as all that is done to small files. It grows
/// to hold them if `grow` says so.
pub(crate) struct ZeroSmall {
    pub ino: Ino,
    pub range: Range<u64>,
    pub grow: bool,
}

/// Lets a small file that stays small grow to hold the bytes up to `end`, if it may. Nothing is reserved for it: it is in
/// the log.
pub(crate) struct GrowSmall {
    pub ino: Ino,
    pub end: u64,
    pub grow: bool,
}

/// [`ZeroEdges`], [`ZeroSmall`] or [`GrowSmall`], prepared. Done says whether the file is one of those that this is for.
pub(crate) enum Filling {
    /// There is nothing to do, which is a change all the same, as the kernel's own file systems have it.
    Nothing(Ino),
    Write(Writing),
    Grow(Resizing),
}

impl Operation for ZeroEdges {
    type Change = Filling;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Filling>, Stop> {
        let (ino, range) = (self.ino, &self.range);
        let node = core.file(ino)?;
        permission::may_change(flags_of(node.inode()))?;
        let (frees, large) = (frees_blocks(node), node.is_large());
        let end = range.end.min(node.inode().size);
        if range.start >= end {
            return Filling::nothing(core, ino);
        }
        if !frees {
            return match large {
                true => Filling::zero_units(core, ino, [range.start..end, 0..0]),
                false => Filling::zero_small(core, ino, range.start..end),
            };
        }
        let block = u64::from(core.geometry.block_size);
        let whole = whole_blocks(core, ino, range)?;
        let edges = if whole.is_empty() {
            [range.start..end, 0..0]
        } else {
            [
                range.start..whole.start * block,
                (whole.end * block).min(end)..end,
            ]
        };
        if edges.iter().all(Range::is_empty) {
            // All of it goes with the blocks, in one step where these are few.
            return Ok(Plan::Done(true));
        }
        Filling::zero_units(core, ino, edges)
    }
}

impl Operation for ZeroSmall {
    type Change = Filling;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Filling>, Stop> {
        let (ino, range) = (self.ino, &self.range);
        let node = core.file(ino)?;
        let (size, large, flags) = (node.inode().size, node.is_large(), flags_of(node.inode()));
        let end = match self.grow {
            true => range.end,
            false => range.end.min(size),
        };
        if large || size.max(end) > core.sizes().small_max() {
            return Ok(Plan::Done(false));
        }
        if range.start >= end {
            permission::may_change(flags)?;
            return Filling::nothing(core, ino);
        }
        let zeros = vec![0; (end - range.start) as usize];
        let write = Write {
            ino,
            offset: range.start,
            data: &zeros,
        };
        Ok(match write.prepare(core)? {
            Plan::Change(write) => Plan::Change(Filling::Write(write)),
            Plan::Done(()) => Plan::Done(true),
        })
    }
}

impl Operation for GrowSmall {
    type Change = Filling;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Filling>, Stop> {
        let (ino, end) = (self.ino, self.end);
        let small_max = core.sizes().small_max();
        let node = core.file(ino)?;
        let size = node.inode().size;
        if node.is_large() || size.max(end) > small_max {
            return Ok(Plan::Done(false));
        }
        permission::may_grow(flags_of(node.inode()))?;
        if !self.grow || end <= size {
            return Filling::nothing(core, ino);
        }
        let resizing = Resizing::prepare(core, ino, end)?;
        Ok(Plan::Change(Filling::Grow(resizing)))
    }
}

impl Filling {
    fn nothing(core: &mut Core, ino: Ino) -> Result<Plan<Filling>, Stop> {
        core.prepare_dirty(ino)?;
        Ok(Plan::Change(Filling::Nothing(ino)))
    }

    /// Zeros over bytes of a small file.
    fn zero_small(core: &mut Core, ino: Ino, range: Range<u64>) -> Result<Plan<Filling>, Stop> {
        core.prepare_dirty(ino)?;
        let mut content = core.reading().small_content(ino)?;
        let bytes = Arc::make_mut(&mut content);
        if let Some(part) = bytes.get_mut(range.start as usize..range.end as usize) {
            part.fill(0);
        }
        let write = Writing::small(core, ino, content)?;
        Ok(Plan::Change(Filling::Write(write)))
    }

    /// Zeros over bytes of a large file, as far as they are no hole.
    fn zero_units(
        core: &mut Core,
        ino: Ino,
        ranges: [Range<u64>; 2],
    ) -> Result<Plan<Filling>, Stop> {
        core.prepare_dirty(ino)?;
        let mut units: BTreeMap<u64, UnitBytes> = BTreeMap::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            for unit in data_units(core, ino, range.start / UNIT..range.end.div_ceil(UNIT))? {
                let content = match units.remove(&unit) {
                    Some(content) => content,
                    None => core.reading().unit_content(ino, unit)?,
                };
                let base = unit * UNIT;
                let (from, to) = (base.max(range.start), (base + UNIT).min(range.end));
                let content = Arc::make_mut(units.entry(unit).or_insert(content));
                if let Some(part) = content.get_mut((from - base) as usize..(to - base) as usize) {
                    part.fill(0);
                }
            }
        }
        let block = u64::from(core.geometry.block_size);
        let claim = Claim::Growth {
            log: NODES_COST,
            data: units.len() as u64 * UNIT + 2 * block,
        };
        let write = Writing::Large {
            ino,
            small: None,
            units,
            reserved: BTreeSet::new(),
            size: core.file(ino)?.inode().size,
            claim,
        };
        Ok(Plan::Change(Filling::Write(write)))
    }
}

impl Change for Filling {
    type Done = bool;

    fn claim(&self) -> Claim {
        match self {
            Filling::Nothing(_) => Claim::Removal,
            Filling::Write(write) => write.claim(),
            Filling::Grow(resizing) => resizing.claim(),
        }
    }

    fn apply(self, core: &mut Core) -> Result<bool, Broken> {
        match self {
            Filling::Nothing(ino) => core.changed_content(ino)?,
            Filling::Write(write) => write.apply(core)?,
            Filling::Grow(resizing) => resizing.apply(core)?,
        }
        Ok(true)
    }
}

/// Frees a bounded number of the blocks in the bytes `range` of a file, which then read as zeros. Each step is an
/// operation of its own: a crash may leave the range freed in part.
pub(crate) struct Punch {
    pub ino: Ino,
    pub range: Range<u64>,
}

/// [`Punch`], prepared: one step. Done is where to go on, `None` at the end.
pub(crate) struct Punching {
    ino: Ino,
    /// The units that go.
    units: Range<u64>,
    change: extents::ExtentChange,
    crcs: CrcChange,
    next: Option<u64>,
}

impl Operation for Punch {
    type Change = Punching;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Punching>, Stop> {
        let (ino, geometry) = (self.ino, core.geometry);
        if !frees_blocks(core.file(ino)?) {
            return Ok(Plan::Done(None));
        }
        let blocks = whole_blocks(core, ino, &self.range)?;
        if blocks.is_empty() {
            return Ok(Plan::Done(None));
        }
        core.prepare_dirty(ino)?;
        let per_block = geometry.block_units();
        let mut reading = core.reading();
        let found = reading.extents_from(ino, blocks.start, blocks.end, STEP_EXTENTS)?;
        let most = (STEP_UNITS / per_block).max(1);
        let start = found
            .first()
            .map_or(blocks.end, |e| e.block.max(blocks.start));
        let stop = match found.last() {
            Some(last) if found.len() == STEP_EXTENTS => {
                last.block + extents::blocks_of(last, &geometry)
            }
            _ => blocks.end,
        };
        let stop = stop.min(start.saturating_add(most)).min(blocks.end);
        let units = blocks.start * per_block..stop * per_block;
        core.may_cut(ino, units.clone())?;
        let inode = core.inodes.prepared(ino)?.inode();
        let ranges = [(start, stop)];
        let freeing = if start < stop { &ranges[..] } else { &[] };
        let change = extents::prepare(inode, &mut core.blocks, &geometry, freeing, &[])?;
        let freed = found.iter().flat_map(|e| {
            let end = e.block + extents::blocks_of(e, &geometry);
            e.block.max(start) * per_block..end.min(stop) * per_block
        });
        let none = freed.map(|unit| (unit, 0));
        let short = core.sb.has_short_checksums();
        let crcs = extents::prepare_crcs(inode, &mut core.blocks, short, none)?;
        let more = stop < blocks.end;
        Ok(Plan::Change(Punching {
            ino,
            units,
            change,
            crcs,
            next: more.then_some(stop * u64::from(geometry.block_size)),
        }))
    }
}

impl Change for Punching {
    type Done = Option<u64>;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<Option<u64>, Broken> {
        let ino = self.ino;
        core.homes().drop_units(ino, self.units)?;
        core.homes().change(ino, &self.change)?;
        let node = core.inodes.prepared(ino)?;
        extents::apply_crcs(node.inode_mut(), &mut core.blocks, &self.crcs)?;
        core.freeing().homes_of(ino, self.change.into_freed())?;
        core.changed_content(ino)?;
        Ok(self.next)
    }
}

/// The blocks of which `range` leaves nothing. Behind the end of the file there is nothing to leave.
fn whole_blocks(core: &mut Core, ino: Ino, range: &Range<u64>) -> Result<Range<u64>, Stop> {
    let block = u64::from(core.geometry.block_size);
    let size = core.file(ino)?.inode().size;
    let end = if range.end >= size {
        size.div_ceil(block)
    } else {
        range.end / block
    };
    Ok(range.start.div_ceil(block)..end)
}

/// Those of some units of a large file that are no hole.
fn data_units(core: &mut Core, ino: Ino, units: Range<u64>) -> Result<BTreeSet<u64>, Stop> {
    let homes = core.reading().homes(ino, units.start, units.end)?;
    let mut found: BTreeSet<u64> = homes.into_iter().map(|(unit, _)| unit).collect();
    let node = core.file(ino)?;
    let mut from = units.start;
    while let Some(unit) = node.homed().first_in(from..units.end) {
        found.insert(unit);
        from = unit + 1;
    }
    Ok(found)
}

/// Whether a file has blocks that can be freed. While it is on its way home its units stay, as zeros: without them the
/// small form that segments still show would come back.
fn frees_blocks(node: &Node) -> bool {
    node.is_large() && !node.is_moving()
}
