//! An image file that is being made, and taking that back.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// What making an image has done to its file. Unless it is kept, all that is taken back when this goes: under the lock, since it has
/// the descriptor too, so that nothing of anybody else's is taken away.
pub(super) struct Making {
    file: File,
    path: PathBuf,
    /// Whether the file was not there before.
    is_new: bool,
    /// How long it was, and how long it was made.
    lengths: (u64, u64),
    is_kept: AtomicBool,
}

impl Making {
    /// Extends a file that was opened from `path` and locked to `size` bytes, if it is shorter.
    pub(super) fn begin(file: &File, path: &Path, is_new: bool, size: u64) -> Result<Self, Errno> {
        let file = file
            .try_clone()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let before = end(&file)?;
        let making = Self {
            file,
            path: path.to_path_buf(),
            is_new,
            lengths: (before, size.max(before)),
            is_kept: AtomicBool::new(false),
        };
        if before < size {
            rustix::fs::ftruncate(&making.file, size)?;
            rustix::fs::fsync(&making.file)?;
        }
        Ok(making)
    }

    /// It is to stay as it is.
    pub(super) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    fn take_back(&self) -> Result<(), Errno> {
        let (before, made) = self.lengths;
        if self.is_new {
            return match self.has_its_name()? {
                true => rustix::fs::unlink(&self.path),
                false => Ok(()),
            };
        }
        // Who takes no lock may have made it longer still.
        match end(&self.file)? == made {
            true => rustix::fs::ftruncate(&self.file, before),
            false => Ok(()),
        }
    }

    /// Whether the name is still this file's.
    fn has_its_name(&self) -> Result<bool, Errno> {
        let (this, named) = (
            rustix::fs::fstat(&self.file)?,
            rustix::fs::lstat(&self.path)?,
        );
        Ok((this.st_dev, this.st_ino) == (named.st_dev, named.st_ino))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.is_kept.load(Ordering::Relaxed) {
            // The failure that led here is the one to report.
            let _ = self.take_back();
        }
    }
}

fn end(file: &File) -> Result<u64, Errno> {
    rustix::fs::seek(file, SeekFrom::End(0))
}
