//! What is tested: a file system behind a trait, so that the harness can be shown
//! to catch wrong ones.

use std::fmt;
use std::sync::Arc;

use loamfs_device::{Device, Image};
use loamfs_format::Ino;
use loamfs_fs::{
    Attr, DirEntry, NewInode, Placement, RenameFlags, SetAttr, StatFs, Tiering, XattrMode,
};

use crate::errno::{self, Errno};
use crate::geometry::Geometry;
use crate::ops::{Change, Commit, Op};
use crate::problem::Verdict;
use crate::rng::mix;

/// An error that a subject answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its number.
    pub errno: Errno,
    /// Its words.
    pub message: String,
}

impl Failure {
    /// An error with nothing to say beside its number.
    pub fn plain(errno: Errno) -> Self {
        Self {
            errno,
            message: String::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", errno::name(self.errno), self.message)
    }
}

/// What a subject answers.
pub type Outcome<T> = Result<T, Failure>;

/// How a volume is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Write nothing.
    pub read_only: bool,
    /// Bytes of cache.
    pub cache_bytes: usize,
    /// Most dirty bytes; `None` for what the volume chooses.
    pub dirty_max: Option<usize>,
    /// Segments that may wait to be written until others are sealed behind them, or for a flush.
    pub flights: usize,
    /// Whether the device is told what is free.
    pub discard: bool,
    /// Where the volume's randomness starts.
    pub seed: u64,
}

impl Opening {
    /// A cache that holds all of a small volume.
    pub const fn new(seed: u64) -> Self {
        Self {
            read_only: false,
            cache_bytes: 8 << 20,
            dirty_max: None,
            flights: 0,
            discard: false,
            seed,
        }
    }

    /// The same, with other randomness: no two openings of a volume may choose
    /// the same tokens.
    #[must_use]
    pub const fn reseeded(self, by: u64) -> Self {
        Self {
            seed: mix(self.seed ^ mix(by)),
            ..self
        }
    }
}

/// A kind of file system.
pub trait System: Sync {
    /// Makes an empty volume.
    fn format(&self, device: Arc<dyn Device>, geometry: &Geometry, seed: u64) -> Outcome<()>;

    /// Opens a volume, recovering it if it was not closed.
    fn open(&self, device: Arc<dyn Device>, opening: &Opening) -> Outcome<Box<dyn Subject>>;

    /// What prepared volumes hold besides, so that what is special about this system comes up.
    fn furnished(&self) -> Vec<Op> {
        Vec::new()
    }

    /// What the program `explore` takes for this system; each begins with a space.
    fn arguments(&self) -> String {
        String::new()
    }

    /// Of a device of `size` bytes, where one of the system's devices ends and the next begins.
    fn cuts(&self, _size: u64) -> Vec<u64> {
        Vec::new()
    }

    /// Changes the devices of a volume that nobody has open; one that was carried out already changes nothing.
    fn change(
        &self,
        _device: &Arc<dyn Device>,
        _change: Change,
        _opening: &Opening,
    ) -> Outcome<()> {
        Err(Failure::plain(errno::EOPNOTSUPP))
    }

    /// The number of the device at a place among all there are, if it is one of the volume's.
    fn number(&self, _device: &Arc<dyn Device>, _part: u8) -> Option<u32> {
        None
    }

    /// Which devices the volume has, where that may change.
    fn table(&self, _device: &Arc<dyn Device>) -> Verdict<Option<String>> {
        Ok(None)
    }

    /// Whether devices are put together as the table says; and, of a volume that was opened, whether they agree.
    fn devices_obey(&self, _device: &Arc<dyn Device>, _opened: bool) -> Verdict {
        Ok(())
    }

    /// Looks at a volume that is not open with eyes of its own; what is wrong with it.
    fn check(&self, image: &Image, geometry: &Geometry) -> Vec<String>;
}

/// The attribute that shows where small files of a directory go.
pub const PLACEMENT: &[u8] = b"loamfs.place";
/// The one that shows on which devices its large files go.
pub const TIER: &[u8] = b"loamfs.on";

/// An open volume. Dropping it without closing it is a crash.
#[expect(missing_docs, reason = "each method is the volume's of the same name")]
pub trait Subject: Send {
    fn close(self: Box<Self>) -> Outcome<()>;
    fn lookup(&self, dir: Ino, name: &[u8]) -> Outcome<Attr>;
    fn getattr(&self, ino: Ino) -> Outcome<Attr>;
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Outcome<Attr>;
    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Outcome<Attr>;
    /// EOPNOTSUPP where a subject has no such thing.
    fn create_unnamed(&self, _dir: Ino, _new: &NewInode) -> Outcome<Attr> {
        Err(Failure::plain(errno::EOPNOTSUPP))
    }
    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Outcome<Attr>;
    fn mknod(&self, dir: Ino, name: &[u8], file_type: u32, new: &NewInode) -> Outcome<Attr>;
    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Outcome<Attr>;
    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Outcome<Attr>;
    fn unlink(&self, dir: Ino, name: &[u8]) -> Outcome<()>;
    fn rmdir(&self, dir: Ino, name: &[u8]) -> Outcome<()>;
    fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Outcome<()>;
    fn readlink(&self, ino: Ino) -> Outcome<Vec<u8>>;
    fn readdir(&self, dir: Ino, position: u64, max: usize) -> Outcome<Vec<DirEntry>>;
    fn open_file(&self, ino: Ino) -> Outcome<()>;
    fn release_file(&self, ino: Ino) -> Outcome<()>;
    fn read(&self, ino: Ino, offset: u64, len: usize) -> Outcome<Vec<u8>>;
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Outcome<usize>;
    fn punch(&self, ino: Ino, offset: u64, len: u64) -> Outcome<()>;
    fn allocate(&self, ino: Ino, offset: u64, len: u64, grow: bool) -> Outcome<()>;
    fn zero(&self, ino: Ino, offset: u64, len: u64, grow: bool) -> Outcome<()> {
        self.punch(ino, offset, len)?;
        self.allocate(ino, offset, len, grow)
    }
    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Outcome<u64>;
    fn seek_data(&self, ino: Ino, offset: u64) -> Outcome<u64>;
    fn seek_hole(&self, ino: Ino, offset: u64) -> Outcome<u64>;
    fn fsync(&self, ino: Ino, data_only: bool) -> Outcome<()>;
    fn sync(&self) -> Outcome<()>;
    fn statfs(&self) -> StatFs;
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Outcome<Vec<u8>>;
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Outcome<()>;
    fn listxattr(&self, ino: Ino) -> Outcome<Vec<Vec<u8>>>;
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Outcome<()>;
    /// Lets time pass, then does what is due.
    fn tick(&self, millis: u64) -> Outcome<()>;
    fn commit(&self, how: Commit) -> Outcome<()>;
    fn checkpoint(&self) -> Outcome<()>;
    /// Brings home what has gone through the log, where a subject has such a thing.
    fn settle(&self) -> Outcome<()> {
        Ok(())
    }
    /// Puts large files in order and empties what holds little, where a subject has such a thing.
    fn clean(&self) -> Outcome<()> {
        Ok(())
    }
    /// Marks a device as one that leaves, or stays after all.
    fn mark(&self, _device: u32, _leaves: bool) -> Outcome<()> {
        Err(Failure::plain(errno::EOPNOTSUPP))
    }
    /// Empties devices that are to leave, for so many steps at most.
    fn empty(&self, _steps: u16) -> Outcome<()> {
        Err(Failure::plain(errno::EOPNOTSUPP))
    }
    /// Settles a directory's small files into tracks, where a subject has such a thing.
    fn settle_directory(&self, _dir: Ino) -> Outcome<()> {
        Ok(())
    }
    /// Reads a directory's files cold until they settle by the clock, where a subject has such a thing.
    fn read_until_settled(&self, _dir: Ino) -> Outcome<()> {
        Ok(())
    }
    /// EOPNOTSUPP where a subject has no such thing. [`PLACEMENT`] shows it.
    fn place(&self, _dir: Ino, _placement: Placement) -> Outcome<()> {
        Err(Failure::plain(errno::EOPNOTSUPP))
    }
    /// The same; [`TIER`] shows it.
    fn carry(&self, _dir: Ino, _on: Tiering) -> Outcome<()> {
        Err(Failure::plain(errno::EOPNOTSUPP))
    }
}
