//! One way to write or to read.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use loamfs_console::size::human;
use rustix::fs::OFlags;

use crate::Error;
use crate::mount::together;
use crate::stand::Stand;

/// Alignment of what is written and read directly.
const ALIGNMENT: usize = 4096;

/// In which direction, and how many bytes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A new file is written, and then made durable.
    Write(usize),
    /// The file that was last written is read.
    Read(usize),
}

/// Streams that run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// What each does.
    pub way: Way,
    /// Whether past the kernel's cache (`O_DIRECT`).
    pub direct: bool,
    /// How many.
    pub count: usize,
}

impl Stream {
    /// What people call it.
    pub fn name(&self) -> String {
        let (verb, size) = match self.way {
            Way::Write(size) => ("write", size),
            Way::Read(size) => ("read", size),
        };
        let direct = if self.direct { ", direct" } else { "" };
        let streams = if self.count == 1 { "" } else { "s" };
        let size = human(size as u64);
        format!("{verb} {size}{direct}, {} stream{streams}", self.count)
    }

    /// Bytes a second of all, which share `bytes` out.
    ///
    /// # Errors
    /// As the system says.
    pub fn run(&self, stand: &Stand, bytes: u64) -> Result<f64, Error> {
        let (each, root) = (bytes / self.count as u64, stand.root());
        match self.way {
            Way::Write(_) => remove_all(root)?,
            Way::Read(_) => stand.drop_caches()?,
        }
        stand.sync()?;
        let taken = together(self.count, |number| {
            let file = self.open(&path(root, self.count, number))?;
            match self.way {
                Way::Write(size) => write(&file, size, each),
                Way::Read(size) => read(&file, size, each),
            }
        })?;
        let done = each * self.count as u64;
        Ok(done as f64 / taken.time.as_secs_f64().max(1e-9))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        match self.way {
            Way::Write(_) => options.write(true).create_new(true),
            Way::Read(_) => options.read(true),
        };
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        options.open(path)
    }
}

/// The file of a stream, among so many.
fn path(root: &Path, count: usize, number: usize) -> PathBuf {
    root.join(format!("stream{number}of{count}"))
}

/// Removes all files, which are those of earlier streams.
fn remove_all(root: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(root).map_err(Error::at("listing", root))? {
        let path = entry.map_err(Error::at("listing", root))?.path();
        if path.is_file() {
            fs::remove_file(&path).map_err(Error::at("removing", &path))?;
        }
    }
    Ok(())
}

fn write(file: &File, size: usize, bytes: u64) -> io::Result<()> {
    let mut memory = vec![0x5a; size + ALIGNMENT];
    let piece = aligned(&mut memory, size);
    let mut at = 0;
    while at < bytes {
        // Not all pieces are alike.
        piece[..8].copy_from_slice(&at.to_le_bytes());
        file.write_all_at(piece, at)?;
        at += size as u64;
    }
    file.sync_all()
}

fn read(file: &File, size: usize, bytes: u64) -> io::Result<()> {
    let mut memory = vec![0; size + ALIGNMENT];
    let piece = aligned(&mut memory, size);
    let mut at = 0;
    while at < bytes {
        match file.read_at(piece, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => at += read as u64,
        }
    }
    Ok(())
}

/// A part of `memory` of `size` bytes where direct transfers may begin.
fn aligned(memory: &mut [u8], size: usize) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    &mut memory[start..start + size]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned() {
        let mut memory = vec![0; 100 + ALIGNMENT];
        let piece = aligned(&mut memory, 100);
        assert_eq!(
            (piece.len(), piece.as_ptr().align_offset(ALIGNMENT)),
            (100, 0)
        );
    }

    #[test]
    fn a_stream_says_what_it_does() {
        let stream = Stream {
            way: Way::Write(4096),
            direct: true,
            count: 4,
        };
        assert_eq!(stream.name(), "write 4.0 KiB, direct, 4 streams");
    }
}
