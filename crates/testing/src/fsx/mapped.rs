//! Loads and stores through a shared mapping.
//!
//! They are made by the kernel, which copies between the mapping and a file in memory: it takes the same page faults as
//! an instruction would, but a mapping whose file system died is an error (EFAULT), not a signal.

use std::ffi::c_void;
use std::fs::File;
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

const PAGE: u64 = 4096;

/// The file in memory through which bytes go.
#[derive(Debug)]
pub struct BounceFile(File);

impl BounceFile {
    /// A new one.
    ///
    /// # Errors
    /// As the system says.
    pub fn new() -> Result<BounceFile, Errno> {
        let fd = rustix::fs::memfd_create("bounce", MemfdFlags::CLOEXEC)?;
        Ok(BounceFile(File::from(fd)))
    }

    /// Loads bytes of a file that has them all.
    ///
    /// # Errors
    /// As the system says; EFAULT when a page cannot be read.
    pub fn load(&self, file: &File, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let mapping = Mapping::of(file, at, bytes.len(), ProtFlags::READ)?;
        #[expect(unsafe_code, reason = "a mapping is memory that no type owns")]
        // SAFETY: the mapping is that long and lives until the end of this function. Only the kernel reads through the
        // slice.
        let mapped = unsafe { slice::from_raw_parts(mapping.wanted.cast_const(), bytes.len()) };
        all(rustix::io::pwrite(&self.0, mapped, 0)?, bytes.len())?;
        all(rustix::io::pread(&self.0, &mut *bytes, 0)?, bytes.len())
    }

    /// Stores bytes into a file that is long enough, and waits until they are written out if `sync`.
    ///
    /// # Errors
    /// As [`BounceFile::load`].
    pub fn store(&self, file: &File, at: u64, bytes: &[u8], sync: bool) -> Result<(), Errno> {
        let mapping = Mapping::of(file, at, bytes.len(), ProtFlags::READ | ProtFlags::WRITE)?;
        all(rustix::io::pwrite(&self.0, bytes, 0)?, bytes.len())?;
        let wanted = mapping.wanted.cast::<MaybeUninit<u8>>();
        #[expect(unsafe_code, reason = "a mapping is memory that no type owns")]
        // SAFETY: as above; only the kernel writes through the slice.
        let mapped = unsafe { slice::from_raw_parts_mut(wanted, bytes.len()) };
        let (copied, _) = rustix::io::pread(&self.0, mapped, 0)?;
        all(copied.len(), bytes.len())?;
        if sync { mapping.sync() } else { Ok(()) }
    }
}

/// The kernel stops in the middle where it finds a page that cannot be had.
fn all(copied: usize, wanted: usize) -> Result<(), Errno> {
    if copied == wanted {
        Ok(())
    } else {
        Err(Errno::FAULT)
    }
}

/// Pages of a file in memory.
struct Mapping {
    start: *mut c_void,
    len: usize,
    /// The first byte that was asked for.
    wanted: *mut u8,
}

impl Mapping {
    fn of(file: &File, at: u64, len: usize, prot: ProtFlags) -> Result<Mapping, Errno> {
        let skipped = (at % PAGE) as usize;
        let len = skipped + len;
        #[expect(unsafe_code, reason = "mmap is no safe call")]
        // SAFETY: a new mapping, where the kernel likes, overlaps nothing that anybody uses.
        let start = unsafe {
            let flags = MapFlags::SHARED;
            rustix::mm::mmap(ptr::null_mut(), len, prot, flags, file, at - at % PAGE)?
        };
        Ok(Mapping {
            start,
            len,
            wanted: start.cast::<u8>().wrapping_add(skipped),
        })
    }

    fn sync(&self) -> Result<(), Errno> {
        #[expect(unsafe_code, reason = "msync is no safe call")]
        // SAFETY: the range is this mapping.
        unsafe {
            rustix::mm::msync(self.start, self.len, MsyncFlags::SYNC)
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "munmap is no safe call")]
        // SAFETY: the range is this mapping, and nobody uses it any more.
        unsafe {
            let _ = rustix::mm::munmap(self.start, self.len);
        }
    }
}
