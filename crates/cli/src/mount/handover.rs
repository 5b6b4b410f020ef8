//! What a successor must know of a mount whose daemon died, in memory that outlives a daemon: a memory file, which the
//! supervisor keeps open ([`super::supervisor`]).
//!
//! It is laid out for one machine and one version of this program: what begins with another number is not read. A daemon
//! may be killed between any two instructions, so each part says how it stays readable. A successor copies what counts
//! into memory of its own before it serves, and hands that over instead.

pub mod damaged;
pub mod table;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use loamfs_fuse::{Class, Counts, Negotiated, Request};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::lost::Lost;
use crate::errors::ErrorKind;

use damaged::{Damaged, FILES_MAX};
use table::SHARDS;
pub use table::{Shard, Survivor};

/// Which layout it is.
const MAGIC: u64 = u64::from_le_bytes(*b"loamfs\0\x03");

/// Bytes in front of the tables.
const HEAD: usize = 1 << 16;

/// Requests that are remembered as begun: of four daemons in a row, a number of threads each.
const BEGUN: usize = 1024;
const BEGUN_OF_ONE: usize = BEGUN / 4;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: u64,
    /// How many daemons there were before.
    succession: u64,
    /// Everything that was answered is durable.
    is_durable: u64,
    /// What the kernel and the first daemon agreed on; zeros before.
    agreed: [u64; 4],
    /// What a remount changed, as [`super::standing`] has it.
    standing: Standing,
    /// The device number of the mount.
    mount: [u64; 2],
    /// What waited to be written at most since all was durable, as far as the daemon looked, in bytes.
    waiting: u64,
    /// What was written since it last looked.
    written: u64,
    /// What was counted since the mount began, when the daemon last looked.
    counted: Counted,
    /// Daemons that died.
    deaths: Deaths,
}

const _: () = assert!(
    size_of::<Head>()
        + size_of::<[Begun; BEGUN]>()
        + size_of::<[u64; SHARDS]>()
        + size_of::<[Damaged; FILES_MAX]>()
        <= HEAD
);

impl Head {
    fn waiting(&self) -> u64 {
        self.waiting.max(self.written)
    }
}

/// What is counted of a mount, whoever serves it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Counted {
    /// Since when, in seconds of the time of day.
    pub since: u64,
    /// What programs asked for, by [`Class`].
    pub operations: [[u64; Counts::WORDS]; Class::ALL.len()],
    /// Errors, by kind.
    pub errors: [u64; ErrorKind::COUNT],
}

/// Daemons of a mount that died, and what went with the last one.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Deaths {
    /// How many.
    pub count: u64,
    /// When the last one was followed, in seconds of the time of day.
    pub last: u64,
    /// Files and directories of which changes may be lost.
    pub files: u64,
}

/// A request that changes names, and what tells whether it was carried out. Its number is written last.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Begun {
    unique: u64,
    mark: u64,
}

/// What a remount changes: numbers that whoever keeps them understands.
pub type Standing = [u64; 3];

/// The memory of this daemon.
pub struct Handover {
    file: Arc<File>,
    head: Mutex<&'static mut Head>,
    begun: Vec<Mutex<&'static mut Begun>>,
    damaged: Mutex<&'static mut [Damaged]>,
    /// Where this daemon's own part of them begins.
    first: usize,
    /// Of earlier daemons.
    earlier: HashMap<u64, u64>,
}

/// Number of a thread among those that have asked for one.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Handover {
    /// Memory for the first daemon of a mount, and the tables in it.
    ///
    /// # Errors
    ///
    /// If the system gives none.
    pub fn new() -> io::Result<(Self, Vec<Shard>)> {
        let file = memfd_create("loamfs", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (HEAD + SHARDS * Shard::BYTES) as u64)?;
        let mut parts = Parts::map(&file)?;
        parts.head.magic = MAGIC;
        parts.head.counted.since = now() / 1_000_000_000;
        let file = Arc::new(File::from(file));
        let shards = parts.shards(&file);
        let handover = Self {
            file,
            head: Mutex::new(parts.head),
            begun: parts.begun.iter_mut().map(Mutex::new).collect(),
            damaged: Mutex::new(parts.damaged),
            first: 0,
            earlier: HashMap::new(),
        };
        Ok((handover, shards))
    }

    /// Memory for a successor, with what an earlier daemon left.
    ///
    /// # Errors
    ///
    /// If the system gives none, or that is of another version of this program.
    pub fn after(predecessor: &OwnedFd) -> io::Result<(Self, Vec<Shard>, Predecessor)> {
        let mut old = Parts::map(predecessor)?;
        if old.head.magic != MAGIC {
            let text = "the daemon before was of a version that this one does not follow";
            return Err(io::Error::other(text));
        }
        let (mut new, shards) = Self::new()?;
        let succession = old.head.succession + 1;
        {
            let head = new.head();
            head.succession = succession;
            head.agreed = old.head.agreed;
            head.standing = old.head.standing;
            head.mount = old.head.mount;
            head.counted = old.head.counted;
            head.deaths = old.head.deaths;
        }
        new.first = (succession as usize % (BEGUN / BEGUN_OF_ONE)) * BEGUN_OF_ONE;
        for (slot, old) in new.begun.iter_mut().zip(&*old.begun) {
            **slot.get_mut().unwrap_or_else(PoisonError::into_inner) = *old;
            new.earlier.insert(old.unique, old.mark);
        }
        new.note_damaged(&damaged::left(old.damaged));
        let was_durable = old.head.is_durable != 0;
        let file = Arc::new(File::from(predecessor.try_clone()?));
        let survivors = old
            .shards(&file)
            .iter()
            .flat_map(Shard::survivors)
            .collect();
        let predecessor = Predecessor {
            survivors,
            was_durable,
        };
        Ok((new, shards, predecessor))
    }

    fn head(&mut self) -> &mut Head {
        self.head.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> MutexGuard<'_, &'static mut Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel and the daemon have agreed.
    pub fn agree(&self, agreed: &Negotiated) {
        self.shared().agreed = agreed.to_words();
    }

    /// What they agreed on.
    pub fn agreed(&self) -> Option<Negotiated> {
        Negotiated::from_words(self.shared().agreed)
    }

    /// The mount has this device number.
    pub fn note_mount(&self, (major, minor): (u32, u32)) {
        self.shared().mount = [major.into(), minor.into()];
    }

    /// The device number of the mount; zeros if it has none.
    pub fn mount(&self) -> (u32, u32) {
        let [major, minor] = self.shared().mount;
        let number = |number| u32::try_from(number).unwrap_or(0);
        (number(major), number(minor))
    }

    /// What a remount changed.
    pub fn standing(&self) -> Standing {
        self.shared().standing
    }

    /// A remount changes it.
    pub fn stand(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.shared().standing);
    }

    /// Somebody wrote so many bytes.
    pub fn note_written(&self, bytes: usize) {
        let written = &mut self.shared().written;
        *written = written.saturating_add(bytes as u64);
    }

    /// What is counted, and what waits to be written, in bytes: nothing if all is durable. To be called now and then.
    pub fn note_counted(&self, waiting: Option<u64>, count: impl FnOnce(&mut Counted)) {
        let mut head = self.shared();
        let written = std::mem::take(&mut head.written);
        let most = |waiting: u64| waiting.max(written).max(head.waiting);
        head.waiting = waiting.map_or(0, most);
        count(&mut head.counted);
    }

    /// What was counted when it was last noted.
    pub fn counted(&self) -> Counted {
        self.shared().counted
    }

    /// These files are damaged, by the time at which that was found. To be called now and then.
    pub fn note_damaged(&self, files: &[Damaged]) {
        let mut places = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged::leave(&mut places, files);
    }

    /// The files that were damaged when that was last noted.
    pub fn damaged(&self) -> Vec<Damaged> {
        damaged::left(&self.damaged.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What waits to be written, in bytes, or has waited since all was durable.
    pub fn waiting(&self) -> u64 {
        self.shared().waiting()
    }

    /// A daemon before this one has died, and changes of so many files and directories may be lost.
    pub fn note_death(&self, files: u64) {
        let deaths = &mut self.shared().deaths;
        deaths.count += 1;
        deaths.last = now() / 1_000_000_000;
        deaths.files = files;
    }

    /// Daemons that died.
    pub fn deaths(&self) -> Deaths {
        self.shared().deaths
    }

    /// Nothing is answered any more, and all that was is durable.
    pub fn note_durable(&self) {
        self.shared().is_durable = 1;
    }

    /// A request is about to change names. `mark` will tell whether it was carried out; that of the first daemon that
    /// began it counts. Returns that, if there was such a one.
    pub fn begin(&self, request: Request, mark: u64) -> Option<u64> {
        let earlier = self.earlier(request);
        let slot = self.first + thread_number() % BEGUN_OF_ONE;
        if let Some(slot) = self.begun.get(slot) {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.unique = 0;
            compiler_fence(Ordering::SeqCst);
            slot.mark = earlier.unwrap_or(mark);
            compiler_fence(Ordering::SeqCst);
            slot.unique = request.unique;
        }
        earlier
    }

    /// What an earlier daemon marked the same request with, if it began with it.
    pub fn earlier(&self, request: Request) -> Option<u64> {
        let earlier = || self.earlier.get(&request.unique).copied();
        request.is_resent.then(earlier).flatten()
    }
}

impl AsFd for Handover {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a daemon that has ended left undone, by its memory.
///
/// # Errors
///
/// If that cannot be read.
pub fn lost(memory: BorrowedFd<'_>) -> io::Result<Lost> {
    let mut parts = Parts::map(memory)?;
    let file = Arc::new(File::from(memory.try_clone_to_owned()?));
    let start: *mut Head = parts.head;
    let mut lost = Lost::default();
    if parts.head.magic == MAGIC && parts.head.is_durable == 0 {
        let shards = parts.shards(&file);
        let undurable = |shard: &Shard| {
            shard
                .survivors()
                .iter()
                .filter(|one| one.is_undurable())
                .count()
        };
        lost.files = shards.iter().map(undurable).sum::<usize>() as u64;
        lost.bytes = if lost.files > 0 {
            parts.head.waiting()
        } else {
            0
        };
    }
    unmap(start);
    Ok(lost)
}

/// The time of day as a mark: nanoseconds.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// What an earlier daemon left.
pub struct Predecessor {
    /// The inodes that the kernel has.
    pub survivors: Vec<Survivor>,
    /// It came to rest before it ended.
    pub was_durable: bool,
}

/// The parts of a mapped memory file.
struct Parts {
    head: &'static mut Head,
    begun: &'static mut [Begun],
    levels: &'static mut [u64],
    damaged: &'static mut [Damaged],
    tables: &'static mut [u8],
}

impl Parts {
    /// Maps it, for as long as this process lives.
    fn map(file: impl AsFd) -> io::Result<Self> {
        let len = HEAD + SHARDS * Shard::BYTES;
        if rustix::fs::fstat(&file)?.st_size != len as i64 {
            return Err(io::Error::other("the memory has another size"));
        }
        let bytes = map(file, len)?;
        let (head, tables) = bytes.split_at_mut(HEAD);
        let bad = || io::Error::other("the memory cannot be used");
        let (head, rest) = Head::mut_from_prefix(head).map_err(|_| bad())?;
        let (begun, rest) =
            <[Begun]>::mut_from_prefix_with_elems(rest, BEGUN).map_err(|_| bad())?;
        let (levels, rest) =
            <[u64]>::mut_from_prefix_with_elems(rest, SHARDS).map_err(|_| bad())?;
        // Zeros, of a daemon that left none yet.
        let (damaged, _) =
            <[Damaged]>::mut_from_prefix_with_elems(rest, FILES_MAX).map_err(|_| bad())?;
        Ok(Self {
            head,
            begun,
            levels,
            damaged,
            tables,
        })
    }

    fn shards(&mut self, file: &Arc<File>) -> Vec<Shard> {
        let levels = std::mem::take(&mut self.levels).iter_mut();
        let tables = std::mem::take(&mut self.tables).chunks_exact_mut(Shard::BYTES);
        let shards = levels.zip(tables).enumerate();
        shards
            .filter_map(|(number, (level, table))| {
                let at = (HEAD + number * Shard::BYTES) as u64;
                Shard::new(Arc::clone(file), at, level, table)
            })
            .collect()
    }
}

#[expect(unsafe_code, reason = "mapping memory is")]
fn map(file: impl AsFd, len: usize) -> io::Result<&'static mut [u8]> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: the address is the kernel's choice. The file has `len` bytes, which nobody takes back; it is never unmapped;
    // and no other process maps it: the supervisor only keeps it, and an earlier daemon is gone.
    unsafe {
        let start = mmap(std::ptr::null_mut(), len, protection, flags, file, 0)?;
        Ok(std::slice::from_raw_parts_mut(start.cast(), len))
    }
}

/// Takes memory away that [`Parts::map`] has mapped; nothing of it is used any more.
#[expect(unsafe_code, reason = "unmapping memory is")]
fn unmap(start: *mut Head) {
    // SAFETY: it begins there and is that long, and the caller has let go of its parts.
    let unmapped = unsafe { rustix::mm::munmap(start.cast(), HEAD + SHARDS * Shard::BYTES) };
    if let Err(error) = unmapped {
        tracing::warn!("memory is not given back: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(unique: u64, is_resent: bool) -> Request {
        Request { unique, is_resent }
    }

    #[test]
    fn what_was_begun_is_known_to_all_who_follow() {
        let (first, _) = Handover::new().unwrap();
        assert_eq!(first.begin(request(6, false), 77), None);
        let (second, _, _) = Handover::after(&first.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(
            second.earlier(request(6, false)),
            None,
            "another one of that number"
        );
        let (third, _, _) = Handover::after(&second.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(third.begin(request(6, true), 99), Some(77));
        assert_eq!(third.begin(request(8, true), 99), None);
        let (fourth, _, _) = Handover::after(&third.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(fourth.earlier(request(6, true)), Some(77));
        assert_eq!(fourth.earlier(request(8, true)), Some(99));
    }

    #[test]
    fn damaged_files_are_known_to_all_who_follow() {
        let file = Damaged::new(33, 7, "a block");
        let (first, _) = Handover::new().unwrap();
        first.note_damaged(&[file]);
        let (second, _, _) = Handover::after(&first.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let (third, _, _) = Handover::after(&second.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(third.damaged(), [file]);
    }

    #[test]
    fn other_memory_is_refused() {
        let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        assert!(Handover::after(&other).is_err());
        ftruncate(&other, (HEAD + SHARDS * Shard::BYTES) as u64).unwrap();
        assert!(Handover::after(&other).is_err());
    }
}
