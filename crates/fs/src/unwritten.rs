//! Space that files have and that was never written (fallocate): extents of which only the units with a checksum are
//! data. The others read as zeros, whatever their homes hold. Their first write goes in place, since no segment shows what
//! stands there (rules 3 and 6), and takes no space but for the checksum: what that needs is kept free from the call on.

use crate::blocks::Stop;
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::extents::{self, STEP_EXTENTS};
use crate::file::at_home;
use crate::flags::flags_of;
use crate::operations::resize::Resize;
use crate::permission;
use crate::reading::Housed;
use crate::writeback::runs_of;
use loamfs_format::inode::FileExtent;
use loamfs_format::summary::Unwritten;
use loamfs_format::{Extent, Ino, Pointer};
use std::collections::BTreeMap;
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

impl Core {
    /// Gives a bounded number of holes in the bytes `range` of a file space that is not written, behind its end too. The
    /// file grows to hold them first, if `grow` says so.
    pub fn reserve(&mut self, ino: Ino, range: Range<u64>, grow: bool) -> Result<Reserved, Stop> {
        let (geometry, block) = (self.geometry, u64::from(self.geometry.block_size));
        let inode = &self.file(ino)?.inode;
        permission::may_grow(flags_of(inode))?;
        let (size, cutting) = (inode.size, inode.truncating != u64::MAX);
        if grow && range.end > size {
            let size = range.end;
            self.perform(&Resize { ino, size })?;
            return Ok(Reserved::Until(range.start));
        }
        if cutting && range.end > size {
            return Err(self.leftovers.wait_for_drain(ino));
        }
        if !at_home(self.file(ino)?) {
            return self.take_home(ino).map(|()| Reserved::NotHome);
        }
        self.prepare_dirty(ino)?;
        let blocks = range.start / block..range.end.div_ceil(block);
        let (holes, reach) = self.holes(ino, blocks.clone())?;
        let homes = self.reserve_homes(ino, &holes)?;
        let done = match homes.last() {
            Some((first, extent)) => first + extent.frags / geometry.block_frags(),
            None => reach,
        };
        self.show_unwritten(ino, &homes)?;
        self.apply(|core| core.changed_content(ino))?;
        Ok(match done < blocks.end {
            true => Reserved::Until(done * block),
            false => Reserved::All,
        })
    }

    /// The holes among some blocks of a file, as far as a bounded step sees, and how far that is.
    fn holes(&mut self, ino: Ino, blocks: Range<u64>) -> Result<(Vec<Range<u64>>, u64), Stop> {
        let geometry = self.geometry;
        let found = self
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
    fn reserve_homes(
        &mut self,
        ino: Ino,
        holes: &[Range<u64>],
    ) -> Result<Vec<(u64, Extent)>, Stop> {
        let (block, frags) = (
            u64::from(self.geometry.block_size),
            self.geometry.block_frags(),
        );
        let mut count: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        self.budget().admit(NODES_COST, 0)?;
        // What cannot be had whole is not begun.
        if count > self.space.free_frags() / frags {
            return Err(Stop::Full);
        }
        while count > 0 {
            let more = Unwritten {
                extents: (holes.len() as u64).min(STEP_NEW as u64),
                frags: count * frags,
            };
            let promise = self.sizes().promise_of(more);
            if self
                .budget()
                .space_fits(NODES_COST + promise, count * block)
            {
                self.budget().admit(NODES_COST + promise, 0)?;
                match self.homes().take(ino, first_of(holes, count)) {
                    Err(Stop::Full) if count > 1 => {}
                    Err(stop) => return Err(stop),
                    Ok(mut homes) => {
                        let rest = homes.split_off(homes.len().min(STEP_NEW));
                        self.homes().give_up(&rest);
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

    /// Gives blocks of which nothing was written, and nothing is being written, other homes: there is nothing to read. What
    /// finds none stays where it is.
    pub fn move_unwritten(&mut self, ino: Ino, housed: &[Housed]) -> Result<(), Stop> {
        let geometry = self.geometry;
        let per_block = geometry.block_units();
        let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
        for it in housed.iter().filter(|it| !it.written) {
            *blocks.entry(it.unit / per_block).or_default() += 1;
        }
        let flying = self.inodes.prepared(ino)?.homed().is_flying();
        if blocks.is_empty() || flying || self.writeback.arrives(ino) {
            return Ok(());
        }
        blocks.retain(|_, count| *count == per_block);
        let homes = match self.homes().take(ino, runs_of(blocks.into_keys())) {
            Err(Stop::Full) => return Ok(()),
            found => found?,
        };
        self.show_unwritten(ino, &homes)
    }

    /// Gives blocks of a file homes that are not written, in the place of those that they have.
    fn show_unwritten(&mut self, ino: Ino, homes: &[(u64, Extent)]) -> Result<(), Stop> {
        let (geometry, birth) = (self.geometry, self.open_ssn());
        let unwritten = self.env.law.shows_unwritten();
        let fresh: Vec<FileExtent> = homes
            .iter()
            .map(|(block, extent)| FileExtent {
                block: *block,
                pointer: Pointer {
                    addr: extent.start,
                    frags: extent.frags as u32,
                    birth,
                    unwritten,
                    ..Pointer::NONE
                },
            })
            .collect();
        let runs = extents::runs(&fresh, &geometry);
        let inode = &self.inodes.prepared(ino)?.inode;
        let change = extents::prepare(inode, &mut self.blocks, &geometry, &runs, &fresh)
            .inspect_err(|_| self.homes().give_up(homes))?;
        self.apply(|core| {
            core.homes().change(ino, &change)?;
            core.inodes.prepared(ino)?.inode.frags +=
                homes.iter().map(|(_, extent)| extent.frags).sum::<u64>();
            core.freeing().homes_of(ino, change.freed)?;
            for (block, extent) in homes {
                core.homes().show(ino, *block, *extent)?;
            }
            core.touch(ino)
        })
    }
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
