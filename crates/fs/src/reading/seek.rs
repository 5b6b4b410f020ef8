//! Looking for data and holes (lseek), and for extents.

use super::Reading;
use super::written::Runs;
use crate::blocks::Stop;
use crate::error::Error;
use crate::extents::{self, STEP_EXTENTS, STEP_UNITS};
use crate::inodes::Node;
use loamfs_format::Ino;
use loamfs_format::inode::FileExtent;

/// What a step of a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Here it is.
    At(u64),
    /// Not before this offset, from which to go on.
    From(u64),
}

impl Reading<'_> {
    /// Looks for the first data, or the first hole, at or behind `offset`; the end of a file counts as a hole.
    ///
    /// # Errors
    /// [`Error::NoData`] behind the end of the file, or when there is no data any more.
    pub fn seek(&mut self, ino: Ino, offset: u64, data: bool) -> Result<Search, Stop> {
        let node = self.file(ino)?;
        let size = node.inode().size;
        if offset >= size {
            return Err(Error::NoData.into());
        }
        if !node.is_large() {
            return Ok(Search::At(if data { offset } else { size }));
        }
        let block = u64::from(self.geometry.block_size);
        let found = if data {
            self.next_data(ino, offset / block)?
        } else {
            Some(self.next_hole(ino, offset / block)?)
        };
        let bytes = |block_no: u64| block_no.saturating_mul(block).max(offset);
        match found {
            Some(Search::At(at)) if bytes(at) < size => Ok(Search::At(bytes(at))),
            Some(Search::From(at)) if bytes(at) < size => Ok(Search::From(bytes(at))),
            Some(_) if !data => Ok(Search::At(size)),
            _ => Err(Error::NoData.into()),
        }
    }

    /// The first block from `from` on that is data, as far as a bounded step sees.
    fn next_data(&mut self, ino: Ino, from: u64) -> Result<Option<Search>, Stop> {
        let (geometry, per_block) = (self.geometry, self.geometry.block_units());
        let waits = self.inodes.prepared(ino)?.homed();
        let waiting = waits.first_in(from * per_block..u64::MAX);
        let waiting = waiting.map(|unit| unit / per_block);
        let extents = self.extents_from(ino, from, waiting.unwrap_or(u64::MAX), STEP_EXTENTS)?;
        let all = extents.len() < STEP_EXTENTS;
        let mut at = from;
        for extent in extents {
            let end = extent.block + extents::blocks_of(&extent, geometry);
            at = at.max(extent.block);
            if !extent.pointer.unwritten {
                return Ok(Some(Search::At(at.min(waiting.unwrap_or(at)))));
            }
            let units = at * per_block..end * per_block;
            if let Some(unit) = self.first_written(ino, units)? {
                let found = unit / per_block;
                return Ok(Some(Search::At(found.min(waiting.unwrap_or(found)))));
            }
            at = end;
        }
        Ok(match waiting {
            // The last of these extents may reach beyond it.
            Some(waiting) if all || waiting < at => Some(Search::At(waiting)),
            _ => (!all).then_some(Search::From(at)),
        })
    }

    /// The first block from `from` on that is no data, as far as a bounded step sees.
    fn next_hole(&mut self, ino: Ino, from: u64) -> Result<Search, Stop> {
        let (geometry, per_block) = (self.geometry, self.geometry.block_units());
        let extents = self.extents_from(ino, from, u64::MAX, STEP_EXTENTS)?;
        let all = extents.len() < STEP_EXTENTS;
        let most = from + (STEP_UNITS / per_block).max(1);
        let (mut at, mut runs) = (from, Runs::default());
        let mut extents = extents.into_iter().peekable();
        loop {
            if let Some(extent) = extents.peek().filter(|e| e.block <= at) {
                let end = extent.block + extents::blocks_of(extent, geometry);
                if at < end && extent.pointer.unwritten {
                    let mut written = false;
                    for unit in at * per_block..(at + 1) * per_block {
                        written |= runs.of(self, ino, unit)? != 0;
                    }
                    if !written && !waits(self.inodes.prepared(ino)?, at, per_block) {
                        return Ok(Search::At(at));
                    }
                    at += 1;
                } else {
                    at = at.max(end);
                }
                if at >= end {
                    extents.next();
                }
            } else if waits(self.inodes.prepared(ino)?, at, per_block) {
                at += 1;
            } else if extents.peek().is_some() || all {
                return Ok(Search::At(at));
            } else {
                return Ok(Search::From(at));
            }
            if at >= most && extents.peek().is_some() {
                return Ok(Search::From(at));
            }
        }
    }

    /// Whether a file has space behind its end.
    pub fn reaches_behind_end(&mut self, ino: Ino) -> Result<bool, Stop> {
        let size = self.file(ino)?.inode().size;
        let behind = size.div_ceil(self.geometry.block_size.into());
        Ok(!self.extents_from(ino, behind, u64::MAX, 1)?.is_empty())
    }

    /// Up to `max` extents that overlap blocks `from .. to`.
    pub fn extents_from(
        &mut self,
        ino: Ino,
        from: u64,
        to: u64,
        max: usize,
    ) -> Result<Vec<FileExtent>, Stop> {
        let geometry = self.geometry;
        let node = self.inodes.prepared(ino)?;
        extents::first_overlapping(node.inode(), self.blocks, geometry, from..to, max)
    }
}

/// Whether something of a block waits to be written.
fn waits(node: &Node, block: u64, per_block: u64) -> bool {
    let units = block * per_block..(block + 1) * per_block;
    node.homed().first_in(units).is_some()
}
