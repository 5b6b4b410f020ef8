//! Opening: the lock, the size, the sectors, and whether direct I/O works.

use std::fs::File;
use std::num::NonZero;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;

use super::making::Making;
use super::raw::RawFile;
use crate::{Buffer, DeviceError, sys};

/// The sector of an image file: the page of the file system that it lies on,
/// whatever that one lies on.
const FILE_SECTOR: u32 = 4096;

/// How a device is opened, and so whom it keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For reading, beside other readers.
    ReadOnly,
    /// For reading and writing, alone among those that take the lock.
    ReadWrite,
    /// As `ReadWrite`; a block device must also not be mounted or otherwise
    /// claimed in the kernel.
    ReadWriteExclusive,
}

/// Which lock is held on the descriptor while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// For reading a shared one, for writing an exclusive one.
    ByMode,
    /// A shared one for writing too, beside those of others that can only read, as the caller has made sure.
    Shared,
    /// None, as something else keeps others out.
    None,
}

/// How a [`FileDevice`](super::FileDevice) is opened.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// What for.
    pub mode: Mode,
    /// Whether direct I/O may be used where it works.
    pub direct: bool,
    /// Overrides what the system says about seeks. What it cannot say counts as
    /// rotational: avoiding seeks on a fast device costs little, and making them
    /// on a slow one costs much.
    pub rotational: Option<bool>,
    /// Threads that work on one batch, the caller included; `None` is the caller
    /// alone.
    pub threads: Option<NonZero<usize>>,
    /// Which lock is taken.
    pub lock: Lock,
    /// How long to wait for the lock, and for a claim in the kernel. A daemon that
    /// was killed holds it until its last write has landed, and udev takes it for a
    /// moment whenever a block device that was open for writing is closed.
    pub lock_wait: Duration,
}

impl FileOptions {
    /// Direct I/O, four threads, no waiting.
    pub const fn new(mode: Mode) -> Self {
        Self {
            mode,
            direct: true,
            rotational: None,
            threads: NonZero::new(4),
            lock: Lock::ByMode,
            lock_wait: Duration::ZERO,
        }
    }
}

/// Opens, locks and measures a device.
pub(super) fn open(path: &Path, options: &FileOptions) -> Result<RawFile, DeviceError> {
    let flags = flags_of(options.mode);
    let file = while_busy(options.lock_wait, || open_file(path, flags))?;
    measure(file, path, options)
}

/// The same, of an image file of at least that many bytes, which is made if it is not there. Returns what that has done to it, too; a
/// block device is not changed.
pub(super) fn create(
    path: &Path,
    options: &FileOptions,
    size: u64,
) -> Result<(RawFile, Option<Making>), DeviceError> {
    let (file, is_new, is_block) = while_busy(options.lock_wait, || make(path, options))?;
    let making = match is_block {
        true => None,
        false => Some(
            Making::begin(&file, path, is_new, size)
                .map_err(|errno| DeviceError::open(path, errno))?,
        ),
    };
    Ok((measure_locked(file, path, options)?, making))
}

/// Opens and locks what is to be a device, made if it is not there. Returns whether it is new, and a block device.
fn make(path: &Path, options: &FileOptions) -> Result<(File, bool, bool), DeviceError> {
    let (file, is_new) = open_or_make(path, options.mode)?;
    let is_block = is_block(&file, path)?;
    take_lock(&file, path, options)?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| DeviceError::open(path, errno))?;
    // Whoever had the lock before has taken the file back; but a path through /proc leads to a file without a name, too.
    let leads_here = || match rustix::fs::stat(path) {
        Ok(there) => (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino),
        Err(_) => false,
    };
    match stat.st_nlink > 0 || leads_here() {
        true => Ok((file, is_new, is_block)),
        false => Err(busy(path)),
    }
}

/// Locks and measures what was opened from `path`.
pub(super) fn measure(
    file: File,
    path: &Path,
    options: &FileOptions,
) -> Result<RawFile, DeviceError> {
    is_block(&file, path)?;
    take_lock(&file, path, options)?;
    measure_locked(file, path, options)
}

/// Whether it is a block device, which else is a regular file.
fn is_block(file: &File, path: &Path) -> Result<bool, DeviceError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| DeviceError::open(path, errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => Ok(true),
        FileType::RegularFile => Ok(false),
        _ => Err(DeviceError::NotADevice {
            path: path.to_path_buf(),
        }),
    }
}

fn measure_locked(file: File, path: &Path, options: &FileOptions) -> Result<RawFile, DeviceError> {
    let failed = |errno| DeviceError::open(path, errno);
    let block = is_block(&file, path)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    let (align, sector) = if block {
        sectors(&file).map_err(failed)?
    } else {
        (FILE_SECTOR, FILE_SECTOR)
    };
    // The end of a block device is where the kernel's BLKGETSIZE64 says.
    let end = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(failed)?;
    let size = end - end % u64::from(align);
    let seeks = || sys::rotational(if block { stat.st_rdev } else { stat.st_dev });
    Ok(RawFile {
        size,
        sector,
        align,
        rotational: options.rotational.or_else(seeks).unwrap_or(true),
        direct: options.direct && try_direct(&file, size, align).map_err(failed)?,
        block,
        writable: options.mode != Mode::ReadOnly,
        file,
    })
}

/// Another descriptor of the same opening, which shares its lock and its flags.
pub(super) fn measured_again(raw: &RawFile) -> Result<RawFile, Errno> {
    let file = raw
        .file
        .try_clone()
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let end = rustix::fs::seek(&file, SeekFrom::End(0))?;
    let size = end - end % u64::from(raw.align);
    Ok(RawFile { file, size, ..*raw })
}

fn flags_of(mode: Mode) -> OFlags {
    let common = OFlags::CLOEXEC | OFlags::NOCTTY;
    common
        | match mode {
            // Opening a fifo for reading would wait for a writer; files and block
            // devices do not know this flag.
            Mode::ReadOnly => OFlags::RDONLY | OFlags::NONBLOCK,
            Mode::ReadWrite => OFlags::RDWR,
            // Without O_CREAT this claims a block device and means nothing for a
            // file.
            Mode::ReadWriteExclusive => OFlags::RDWR | OFlags::EXCL,
        }
}

/// Opens what is there, or makes a file. Returns whether it made it.
fn open_or_make(path: &Path, mode: Mode) -> Result<(File, bool), DeviceError> {
    let flags = flags_of(mode);
    let is = |error: &DeviceError, errno: Errno| error.errno() == errno.raw_os_error();
    match open_file(path, flags) {
        Err(error) if is(&error, Errno::NOENT) => {}
        opened => return opened.map(|file| (file, false)),
    }
    match open_file(path, flags | OFlags::CREATE | OFlags::EXCL) {
        // Somebody else made it meanwhile, or it is a link that leads nowhere yet.
        Err(error) if is(&error, Errno::EXIST) => {}
        opened => return opened.map(|file| (file, true)),
    }
    let opened = open_file(path, (flags - OFlags::EXCL) | OFlags::CREATE);
    opened.map(|file| (file, false))
}

fn open_file(path: &Path, flags: OFlags) -> Result<File, DeviceError> {
    // Whoever may read an image reads what its files' modes keep from them, and may lock it.
    match rustix::fs::open(path, flags, rustix::fs::Mode::from_raw_mode(0o600)) {
        Ok(descriptor) => Ok(File::from(descriptor)),
        Err(Errno::BUSY) => Err(busy(path)),
        Err(Errno::ISDIR) => Err(DeviceError::NotADevice {
            path: path.to_path_buf(),
        }),
        Err(errno) => Err(DeviceError::open(path, errno)),
    }
}

/// Takes the lock on the descriptor that does the I/O. The kernel keeps it as
/// long as a request is under way on that descriptor, even of a process that was
/// killed, so no old write can land after the next holder's first.
fn take_lock(file: &File, path: &Path, options: &FileOptions) -> Result<(), DeviceError> {
    let operation = match (options.lock, options.mode) {
        (Lock::None, _) => return Ok(()),
        (Lock::Shared, _) | (Lock::ByMode, Mode::ReadOnly) => FlockOperation::NonBlockingLockShared,
        (Lock::ByMode, _) => FlockOperation::NonBlockingLockExclusive,
    };
    while_busy(options.lock_wait, || {
        match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => Err(busy(path)),
            Err(errno) => Err(DeviceError::open(path, errno)),
        }
    })
}

/// Tries again, for so long, as long as others use the device.
fn while_busy<T>(
    wait: Duration,
    mut attempt: impl FnMut() -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    const PAUSE: Duration = Duration::from_millis(10);
    let start = Instant::now();
    loop {
        match attempt() {
            Err(DeviceError::Busy { .. }) if start.elapsed() < wait => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn busy(path: &Path) -> DeviceError {
    DeviceError::Busy {
        path: path.to_path_buf(),
    }
}

/// Logical and physical sector of a block device.
fn sectors(file: &File) -> Result<(u32, u32), Errno> {
    let logical = rustix::fs::ioctl_blksszget(file)?;
    let physical = rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical);
    let plausible = |size: u32| size.is_power_of_two() && size >= 512;
    match (plausible(logical), plausible(physical)) {
        (true, true) => Ok((logical, physical.max(logical))),
        (true, false) => Ok((logical, logical)),
        _ => Err(Errno::INVAL),
    }
}

/// Switches direct I/O on if a read then works, else leaves it off.
fn try_direct(file: &File, size: u64, align: u32) -> Result<bool, Errno> {
    if size == 0 || sys::set_direct(file, true).is_err() {
        return Ok(false);
    }
    let mut probe = Buffer::zeroed(align as usize);
    let works = loop {
        match rustix::io::pread(file, probe.as_mut_slice(), 0) {
            Err(Errno::INTR) => {}
            // Any other error is the medium's, and shows when it matters.
            outcome => break outcome != Err(Errno::INVAL),
        }
    };
    if !works {
        sys::set_direct(file, false)?;
    }
    Ok(works)
}
