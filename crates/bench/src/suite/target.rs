//! What workloads are run on: files, and what stands below them.

mod device;
mod directory;
mod library;

use std::fs;
use std::ops::Range;
use std::path::Path;

use super::files::Files;
use super::spent::Daemons;
use crate::Error;
use crate::trace::Trace;

pub use device::OnDevice;
pub use directory::InDirectory;
pub use library::{InLibrary, LibraryArgs};

/// One of so many parts of a bound on memory is LoamFS's cache: the rest is for the daemon itself and the kernel.
const CACHE: u64 = 2;

/// A file system under a workload. It is not mounted before the first [`Target::remount`].
///
/// # Errors
/// What the system and the file system say.
pub trait Target {
    /// Its files.
    fn files(&self) -> &dyn Files;

    /// The directory that the files are in, for programs; `None` where they are not mounted.
    fn root(&self) -> Option<&Path>;

    /// Mounts it anew, with cold caches. Everything is on its device then.
    fn remount(&mut self) -> Result<(), Error>;

    /// Whether [`Target::remount`] mounts. Then it is part of a phase's write-back, and of its seconds; where caches are
    /// dropped only, it is not.
    fn mounts_anew(&self) -> bool {
        true
    }

    /// Mounts it anew under a bound on memory, or without one. Whether there is one: a machine may have no groups for it.
    fn bound_memory(&mut self, bytes: Option<u64>) -> Result<bool, Error>;

    /// Drops all caches.
    fn drop_caches(&mut self) -> Result<(), Error>;

    /// Brings home what waits in a log; nothing for file systems that have none.
    fn settle(&mut self) -> Result<(), Error>;

    /// Bytes of files' data that it says it has read and written so far; `None` if it does not tell.
    fn data(&self) -> Result<Option<(u64, u64)>, Error>;

    /// The daemons that serve it and have served it, where those are known.
    fn daemons(&self) -> Daemons {
        Daemons::default()
    }

    /// Unmounts it.
    fn unmount(&mut self) -> Result<(), Error>;

    /// What was seen of it, once it is unmounted.
    fn seen(self: Box<Self>) -> Result<Seen, Error>;
}

/// What was seen of a target while it was used.
#[derive(Debug, Default)]
pub struct Seen {
    /// Requests to its device, in microseconds of [`super::clock::micros`]; no phases.
    pub trace: Trace,
    /// Bytes that each of several devices holds of it, one behind the other; nothing of one.
    pub parts: Vec<u64>,
    /// Sectors of its journal, where that is known.
    pub journal: Vec<Range<u64>>,
    /// Whether somebody else dropped caches.
    pub disturbed: bool,
}

/// Counts our own drops of the kernel's caches beside anybody's.
#[derive(Debug)]
pub struct Drops {
    before: u64,
    own: u64,
}

impl Drops {
    /// From now on.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn new() -> Result<Drops, Error> {
        Ok(Drops {
            before: drops()?,
            own: 0,
        })
    }

    /// One of our own.
    pub const fn count(&mut self) {
        self.own += 1;
    }

    /// Whether there were others.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn disturbed(&self) -> Result<bool, Error> {
        Ok(drops()?.saturating_sub(self.before) != self.own)
    }
}

/// How often anybody dropped names and inodes since the system started.
fn drops() -> Result<u64, Error> {
    let path = Path::new("/proc/vmstat");
    let text = fs::read_to_string(path).map_err(Error::at("reading", path))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("drop_slab "));
    Ok(line.and_then(|count| count.parse().ok()).unwrap_or(0))
}
