//! Ranges of regular files: freeing, zeroing and filling them (fallocate).
//!
//! What is a hole is told by blocks, as homes are: a block is data when it has a home in which something was written, or
//! something that waits to be. A small file is data from start to end.

use crate::blocks::Stop;
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::error::Error;
use crate::extents::{self, STEP_EXTENTS, STEP_UNITS};
use crate::file::SIZE_MAX;
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::operations::resize::Resize;
use crate::operations::write::Write;
use crate::permission;
use crate::writeback::UNIT;
use loamfs_format::Ino;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

impl Core {
    /// Writes zeros over what the bytes `range` of a file have of blocks beside them; over all of them where blocks are
    /// not freed. This is all of [`Core::punch`] that may find no space, and comes first.
    pub fn zero_edges(&mut self, ino: Ino, range: Range<u64>) -> Result<(), Stop> {
        let block = u64::from(self.geometry.block_size);
        let node = self.file(ino)?;
        permission::may_change(flags_of(&node.inode))?;
        let (frees, end) = (frees_blocks(node), range.end.min(node.inode.size));
        if range.start >= end {
            return self.note_change(ino);
        }
        if !frees {
            return self.zero_bytes(ino, range.start..end);
        }
        let whole = self.whole_blocks(ino, &range)?;
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
            return Ok(());
        }
        self.zero_units(ino, edges)
    }

    /// Makes the bytes `range` of a small file that stays small zeros, in one go as all that is done to small files;
    /// returns whether it is one. It grows to hold them if `grow` says so.
    pub fn zero_if_small(&mut self, ino: Ino, range: Range<u64>, grow: bool) -> Result<bool, Stop> {
        let node = self.file(ino)?;
        let (size, large) = (node.inode.size, node.is_large());
        let end = if grow { range.end } else { range.end.min(size) };
        if large || size.max(end) > self.sizes().small_max() {
            return Ok(false);
        }
        if range.start >= end {
            permission::may_change(flags_of(&self.file(ino)?.inode))?;
            return self.note_change(ino).map(|()| true);
        }
        let zeros = vec![0; (end - range.start) as usize];
        self.perform(&Write {
            ino,
            offset: range.start,
            data: &zeros,
        })?;
        Ok(true)
    }

    /// Frees a bounded number of the blocks in the bytes `range` of a file, which then read as zeros; returns where to go
    /// on, `None` at the end. Each step is an operation of its own: a crash may leave the range freed in part.
    pub fn punch(&mut self, ino: Ino, range: Range<u64>) -> Result<Option<u64>, Stop> {
        let block = u64::from(self.geometry.block_size);
        if !frees_blocks(self.file(ino)?) {
            return Ok(None);
        }
        let whole = self.whole_blocks(ino, &range)?;
        if whole.is_empty() {
            return Ok(None);
        }
        let next = self.free_blocks(ino, whole.clone())?;
        Ok((next < whole.end).then(|| next * block))
    }

    /// What finds nothing to do is a change all the same, as the kernel's own file systems have it.
    fn note_change(&mut self, ino: Ino) -> Result<(), Stop> {
        self.prepare_dirty(ino)?;
        self.budget().admit_removal()?;
        self.apply(|core| core.changed_content(ino))
    }

    /// The blocks of which `range` leaves nothing. Behind the end of the file there is nothing to leave.
    fn whole_blocks(&mut self, ino: Ino, range: &Range<u64>) -> Result<Range<u64>, Stop> {
        let block = u64::from(self.geometry.block_size);
        let size = self.file(ino)?.inode.size;
        let end = if range.end >= size {
            size.div_ceil(block)
        } else {
            range.end / block
        };
        Ok(range.start.div_ceil(block)..end)
    }

    /// Writes zeros over bytes of a file whose blocks are not freed.
    fn zero_bytes(&mut self, ino: Ino, range: Range<u64>) -> Result<(), Stop> {
        if self.file(ino)?.is_large() {
            self.zero_units(ino, [range, 0..0])
        } else {
            self.zero_small(ino, range)
        }
    }

    /// Writes zeros over bytes of a small file.
    fn zero_small(&mut self, ino: Ino, range: Range<u64>) -> Result<(), Stop> {
        self.prepare_dirty(ino)?;
        let size = self.file(ino)?.inode.size;
        self.budget().admit(size + 8192, 0)?;
        let mut content = self.reading().small_content(ino)?.to_vec();
        if let Some(part) = content.get_mut(range.start as usize..range.end as usize) {
            part.fill(0);
        }
        self.apply(|core| {
            core.set_small(ino, content)?;
            core.changed_content(ino)
        })
    }

    /// Writes zeros over bytes of a large file, as far as they are no hole.
    fn zero_units(&mut self, ino: Ino, ranges: [Range<u64>; 2]) -> Result<(), Stop> {
        self.prepare_dirty(ino)?;
        let mut units: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            for unit in self.data_units(ino, range.start / UNIT..range.end.div_ceil(UNIT))? {
                let content = match units.remove(&unit) {
                    Some(content) => content,
                    None => self.reading().unit_content(ino, unit)?,
                };
                let base = unit * UNIT;
                let (from, to) = (base.max(range.start), (base + UNIT).min(range.end));
                let content = units.entry(unit).or_insert(content);
                if let Some(part) = content.get_mut((from - base) as usize..(to - base) as usize) {
                    part.fill(0);
                }
            }
        }
        let block = u64::from(self.geometry.block_size);
        self.budget()
            .admit(NODES_COST, units.len() as u64 * UNIT + 2 * block)?;
        let size = self.file(ino)?.inode.size;
        let units = units.into_iter().map(|(unit, bytes)| (unit, bytes.into()));
        let units = units.collect();
        self.apply(|core| {
            core.homes().put(ino, units, size, &BTreeSet::new())?;
            core.changed_content(ino)
        })
    }

    /// Those of some units of a large file that are no hole.
    fn data_units(&mut self, ino: Ino, units: Range<u64>) -> Result<BTreeSet<u64>, Stop> {
        let homes = self.reading().homes(ino, units.start, units.end)?;
        let mut found: BTreeSet<u64> = homes.into_iter().map(|(unit, _)| unit).collect();
        let node = self.file(ino)?;
        let mut from = units.start;
        while let Some(unit) = node.homed().first_in(from..units.end) {
            found.insert(unit);
            from = unit + 1;
        }
        Ok(found)
    }

    /// Frees a bounded number of the homes of `blocks`, from the first on, and drops what waits to be written there;
    /// returns the block behind what is done. The next segment shows it, and frees the homes.
    fn free_blocks(&mut self, ino: Ino, blocks: Range<u64>) -> Result<u64, Stop> {
        self.prepare_dirty(ino)?;
        self.budget().admit_removal()?;
        let geometry = self.geometry;
        let per_block = geometry.block_units();
        let found = self
            .reading()
            .extents_from(ino, blocks.start, blocks.end, STEP_EXTENTS)?;
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
        self.may_cut(ino, blocks.start * per_block..stop * per_block)?;
        let node = self.inodes.prepared(ino)?;
        let ranges = [(start, stop)];
        let freeing = if start < stop { &ranges[..] } else { &[] };
        let change = extents::prepare(&node.inode, &mut self.blocks, &geometry, freeing, &[])?;
        let units = found.iter().flat_map(|e| {
            let end = e.block + extents::blocks_of(e, &geometry);
            e.block.max(start) * per_block..end.min(stop) * per_block
        });
        let crcs =
            extents::prepare_crcs(&node.inode, &mut self.blocks, units.map(|unit| (unit, 0)))?;
        self.apply(|core| {
            core.homes()
                .drop_units(ino, blocks.start * per_block..stop * per_block)?;
            core.homes().change(ino, &change)?;
            let node = core.inodes.prepared(ino)?;
            extents::apply_crcs(&mut node.inode, &mut core.blocks, &crcs)?;
            core.freeing().homes_of(ino, change.freed)?;
            core.changed_content(ino)?;
            Ok(stop)
        })
    }

    /// Lets a small file that stays small grow to hold the bytes up to `end`, if it may; returns whether it is one. Nothing
    /// is reserved for it: it is in the log.
    pub fn grow_if_small(&mut self, ino: Ino, end: u64, grow: bool) -> Result<bool, Stop> {
        let small_max = self.sizes().small_max();
        let node = self.file(ino)?;
        let size = node.inode.size;
        if node.is_large() || size.max(end) > small_max {
            return Ok(false);
        }
        permission::may_grow(flags_of(&node.inode))?;
        match grow && end > size {
            true => self.perform(&Resize { ino, size: end })?,
            false => self.note_change(ino)?,
        }
        Ok(true)
    }
}

/// Whether a file has blocks that can be freed. While it is on its way home its units stay, as zeros: without them the
/// small form that segments still show would come back.
fn frees_blocks(node: &Node) -> bool {
    node.is_large() && !node.is_moving()
}

/// The end of a range of `len` bytes from `offset` on.
///
/// # Errors
/// [`Error::Invalid`] for an empty range, [`Error::TooLarge`] for one that no file reaches.
pub(crate) fn end_of(offset: u64, len: u64) -> Result<u64, Error> {
    if len == 0 {
        return Err(Error::Invalid("a range holds at least one byte"));
    }
    let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
    end.ok_or(Error::TooLarge)
}
