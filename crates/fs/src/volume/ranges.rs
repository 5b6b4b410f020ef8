//! Operations on ranges of files: each goes in bounded steps, from the start on.

use super::Volume;
use super::background::LEFTOVERS_STEP;
use super::commit::all_written;
use crate::error::Error;
use crate::file::SIZE_MAX;
use crate::operations::preallocate::{Reserve, Reserved};
use crate::operations::range::{GrowSmall, Punch, ZeroEdges, ZeroSmall};
use crate::operations::resize::{CutBehind, Grow};
use crate::reading::{Piece, Search};
use loamfs_format::Ino;
use loamfs_format::superblock::{Features, INCOMPATIBLE_UNWRITTEN};
use std::ops::Range;

/// Bytes that are copied at a time.
const COPY_STEP: u64 = 256 << 10;
/// How often a small file's content is brought home whose owner makes it small again meanwhile.
const HOME_TRIES: u32 = 16;

/// Ranges of a regular file's bytes: where it has data, where space, and where neither.
#[derive(Debug, Clone, Copy)]
pub struct Ranges<'v> {
    volume: &'v Volume,
    ino: Ino,
}

impl Volume {
    /// Ranges of a file.
    pub fn ranges(&self, ino: Ino) -> Ranges<'_> {
        Ranges { volume: self, ino }
    }
}

impl Ranges<'_> {
    /// Frees the bytes `offset .. offset + len` of a file as far as it has them; they read as zeros then, and its size
    /// stays. Parts of blocks at both ends are written with zeros.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NoSpace`] for those parts only, before anything was changed.
    pub fn punch(&self, offset: u64, len: u64) -> Result<(), Error> {
        let Ranges { volume, ino } = *self;
        let end = end_of(offset, len)?;
        let range = offset..end;
        volume.perform(&ZeroEdges { ino, range })?;
        self.free(offset..end)
    }

    /// Frees the blocks that lie in a range of bytes, and reads none.
    pub(super) fn free(&self, range: Range<u64>) -> Result<(), Error> {
        let Ranges { volume, ino } = *self;
        let mut at = Some(range.start);
        while let Some(from) = at {
            let range = from..range.end;
            let step = Punch { ino, range };
            at = volume.engine.run_removal(|core| core.perform(&step))?;
        }
        Ok(())
    }

    /// Gives the holes among the bytes `offset .. offset + len` of a file space, also behind its end. They read as zeros,
    /// and their first write never fails for want of space. The file grows to hold them if `grow` says so. Small files, which
    /// are in the log, only grow.
    ///
    /// # Errors
    /// [`Error`]; holes may have space in part then, and the file another mtime, but the size that it had, and all space that was
    /// reserved before.
    pub fn allocate(&self, offset: u64, len: u64, grow: bool) -> Result<(), Error> {
        let Ranges { volume, ino } = *self;
        let end = end_of(offset, len)?;
        if volume.perform(&GrowSmall { ino, end, grow })? {
            return Ok(());
        }
        // What an earlier call has reserved behind the end stays, whatever becomes of this one.
        let has_more = volume.run(|core| core.reading().reaches_behind_end(ino))?;
        let mut result = self.reserve(offset, end);
        if grow {
            // Others may have written behind the old end meanwhile, whose data stay: so it grows last.
            result = result.and_then(|()| volume.perform(&Grow { ino, size: end }));
            if result.is_err() && !has_more {
                volume.perform(&CutBehind { ino })?;
                volume.engine.tidy_after(LEFTOVERS_STEP);
            }
        }
        result
    }

    fn reserve(&self, offset: u64, end: u64) -> Result<(), Error> {
        let Ranges { volume, ino } = *self;
        volume
            .engine
            .announce(Features::incompatible(INCOMPATIBLE_UNWRITTEN))?;
        let (mut from, mut tries) = (offset, 0);
        loop {
            let range = from..end;
            match volume.perform(&Reserve { ino, range })? {
                Reserved::All => return Ok(()),
                Reserved::Until(at) => from = at,
                Reserved::NotHome if tries < HOME_TRIES => {
                    tries += 1;
                    all_written(volume.engine.bring_home(&[ino])?)?;
                }
                Reserved::NotHome => return Err(Error::Unwritten(ino)),
            }
        }
    }

    /// Makes the bytes `offset .. offset + len` of a file zeros that have space, growing the file as
    /// [`Ranges::allocate`] does.
    ///
    /// # Errors
    /// [`Error`]; part of the range of a large file may be zeros then.
    pub fn zero(&self, offset: u64, len: u64, grow: bool) -> Result<(), Error> {
        let Ranges { volume, ino } = *self;
        let end = end_of(offset, len)?;
        let range = offset..end;
        if volume.perform(&ZeroSmall { ino, range, grow })? {
            return Ok(());
        }
        self.punch(offset, len)?;
        self.allocate(offset, len, grow)
    }

    /// The first data at or behind `offset`. What is a hole is told by blocks.
    ///
    /// # Errors
    /// [`Error::NoData`] if there is none before the end of the file, and any other.
    pub fn seek_data(&self, offset: u64) -> Result<u64, Error> {
        self.seek(offset, true)
    }

    /// The first hole at or behind `offset`, which is the end of the file at the latest.
    ///
    /// # Errors
    /// [`Error::NoData`] if the file ends before, and any other.
    pub fn seek_hole(&self, offset: u64) -> Result<u64, Error> {
        self.seek(offset, false)
    }

    fn seek(&self, offset: u64, data: bool) -> Result<u64, Error> {
        let Ranges { volume, ino } = *self;
        let mut from = offset;
        loop {
            match volume.run(|core| core.reading().seek(ino, from, data))? {
                Search::At(at) => return Ok(at),
                Search::From(at) => from = at,
            }
        }
    }

    /// Where a regular file's content is, from byte `from` on: pieces in order, without gaps, a bounded number; and
    /// where to go on, `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn map(&self, from: u64) -> Result<(Vec<Piece>, Option<u64>), Error> {
        let Ranges { volume, ino } = *self;
        volume.run(|core| core.reading().map(ino, from))
    }
}

impl Volume {
    /// Copies up to `len` bytes from one file, or place in a file, to another, as far as the source goes at the start;
    /// returns how many.
    ///
    /// # Errors
    /// [`Error`], when nothing was copied.
    pub fn copy_range(
        &self,
        (from, offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
    ) -> Result<u64, Error> {
        let overlap = offset.abs_diff(to_offset) < len;
        if from == to && overlap {
            return Err(Error::Invalid("a range cannot be copied onto itself"));
        }
        // A file that is copied to its own end must not be copied on from there.
        let len = len.min(self.getattr(from)?.size.saturating_sub(offset));
        let mut done = 0;
        while done < len {
            let step = (len - done).min(COPY_STEP);
            let copied = copy_step(self, (from, offset + done), (to, to_offset + done), step);
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

fn copy_step(volume: &Volume, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64, Error> {
    let (end, to_end) = (from.1.checked_add(len), to.1.checked_add(len));
    end.and(to_end).ok_or(Error::TooLarge)?;
    let data = volume.read(from.0, from.1, len as usize)?;
    if data.is_empty() {
        return Ok(0);
    }
    Ok(volume.write(to.0, to.1, &data)? as u64)
}

/// The end of a range of `len` bytes from `offset` on.
///
/// # Errors
/// [`Error::Invalid`] for an empty range, [`Error::TooLarge`] for one that no file reaches.
fn end_of(offset: u64, len: u64) -> Result<u64, Error> {
    if len == 0 {
        return Err(Error::Invalid("a range holds at least one byte"));
    }
    let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
    end.ok_or(Error::TooLarge)
}
