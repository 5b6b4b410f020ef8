//! The descriptor, and single requests on it.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;

use crate::transfer::{drain, fill};
use crate::{Buffer, sys};

/// Data that direct I/O cannot take from where it lies is copied in parts of
/// this size: a whole segment at once, and no more memory than that.
const BOUNCE_MAX: usize = 8 << 20;

/// An open and locked device, and what was found out about it.
pub(super) struct RawFile {
    pub file: File,
    /// Bytes, in whole units of `align`.
    pub size: u64,
    /// Physical sector in bytes.
    pub sector: u32,
    /// Unit of writing, and of all direct I/O, in bytes.
    pub align: u32,
    pub rotational: bool,
    pub direct: bool,
    pub block: bool,
    pub writable: bool,
}

impl RawFile {
    /// The unit in which a transfer may be continued.
    fn step(&self) -> usize {
        if self.direct { self.align as usize } else { 1 }
    }

    /// Fills the buffers from the bytes at `offset`, which lie on the device.
    pub fn read(&self, buffers: &mut [&mut [u8]], offset: u64) -> Result<(), Errno> {
        let fits = !self.direct
            || (offset.is_multiple_of(u64::from(self.align))
                && buffers.iter().all(|buffer| self.is_aligned(buffer)));
        if fits {
            let mut pieces: Vec<_> = buffers
                .iter_mut()
                .map(|buffer| IoSliceMut::new(buffer))
                .collect();
            self.fill(&mut pieces, offset)
        } else {
            self.read_widened(buffers, offset)
        }
    }

    /// Reads whole sectors around the range and copies the range out of them.
    fn read_widened(&self, buffers: &mut [&mut [u8]], offset: u64) -> Result<(), Errno> {
        let align = u64::from(self.align);
        let len: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let skip = offset % align;
        // The size is in whole units, so this does not reach beyond the end.
        let wide = (skip + len as u64).next_multiple_of(align);
        let mut bounce = Buffer::zeroed(wide as usize);
        self.fill(&mut [IoSliceMut::new(&mut bounce)], offset - skip)?;
        let mut rest = &bounce[skip as usize..];
        for buffer in buffers {
            let (head, tail) = rest.split_at(buffer.len());
            buffer.copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn fill(&self, pieces: &mut [IoSliceMut<'_>], offset: u64) -> Result<(), Errno> {
        fill(pieces, offset, self.step(), |pieces, offset| {
            rustix::io::preadv(&self.file, pieces, offset)
        })
    }

    /// Writes the pieces one after another at `offset`; all are whole sectors.
    pub fn write(&self, pieces: &[&[u8]], offset: u64) -> Result<(), Errno> {
        if !self.direct || pieces.iter().all(|piece| self.is_aligned(piece)) {
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            self.drain(&mut slices, offset)
        } else {
            self.write_bounced(pieces, offset)
        }
    }

    fn write_bounced(&self, pieces: &[&[u8]], mut offset: u64) -> Result<(), Errno> {
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut bounce = Buffer::zeroed(left.min(BOUNCE_MAX));
        let mut filled = 0;
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let count = rest.len().min(bounce.len() - filled);
                let (head, tail) = rest.split_at(count);
                bounce[filled..filled + count].copy_from_slice(head);
                rest = tail;
                filled += count;
                left -= count;
                if filled == bounce.len() || left == 0 {
                    self.drain(&mut [IoSlice::new(&bounce[..filled])], offset)?;
                    offset += filled as u64;
                    filled = 0;
                }
            }
        }
        Ok(())
    }

    fn drain(&self, pieces: &mut [IoSlice<'_>], offset: u64) -> Result<(), Errno> {
        drain(pieces, offset, self.step(), |pieces, offset| {
            rustix::io::pwritev(&self.file, pieces, offset)
        })
    }

    /// Whether direct I/O can use this memory where it lies.
    fn is_aligned(&self, memory: &[u8]) -> bool {
        let align = self.align as usize;
        memory.as_ptr().addr().is_multiple_of(align) && memory.len().is_multiple_of(align)
    }

    /// Makes completed writes durable, with the metadata needed to read them.
    pub fn flush(&self) -> Result<(), Errno> {
        loop {
            // Only an interruption is tried again: after any other error the
            // kernel may have dropped what it could not write, and a second
            // call that succeeds would mean nothing.
            match rustix::fs::fdatasync(&self.file) {
                Err(Errno::INTR) => {}
                outcome => return outcome,
            }
        }
    }

    /// Discards the whole sectors within a range; returns how many bytes these have.
    pub fn discard(&self, offset: u64, len: u64) -> Result<u64, Errno> {
        let align = u64::from(self.align);
        let start = offset.next_multiple_of(align);
        let end = (offset + len) / align * align;
        if start >= end {
            return Ok(0);
        }
        if self.block {
            sys::block_discard(&self.file, start, end - start)?;
        } else {
            sys::punch_hole(&self.file, start, end - start)?;
        }
        Ok(end - start)
    }
}
