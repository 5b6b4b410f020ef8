//! Loop devices: block devices whose content is a file.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Stat, major, minor, stat};
use rustix::io::Errno;
use rustix::ioctl;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const CONTROL: &str = "/dev/loop-control";
const CTL_GET_FREE: ioctl::Opcode = 0x4c82;
const CLR_FD: ioctl::Opcode = 0x4c01;
const GET_STATUS: ioctl::Opcode = 0x4c05;
const SET_CAPACITY: ioctl::Opcode = 0x4c07;
const CONFIGURE: ioctl::Opcode = 0x4c0a;

const FLAG_READ_ONLY: u32 = 1;
const FLAG_AUTOCLEAR: u32 = 4;
const FLAG_DIRECT_IO: u32 = 16;

/// What statfs(2) says of a tmpfs.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// How often a free device is asked for again after somebody else took it.
const ATTEMPTS_MAX: u32 = 64;

/// `struct loop_info64`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Configuration {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Configuration>() == 304);

/// A loop device could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} loop device for {path}: {source}", path = path.display())]
pub struct LoopError {
    /// What was tried.
    action: &'static str,
    /// The image or the device.
    path: PathBuf,
    /// The system's reason.
    source: io::Error,
}

/// How to attach an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Detach by itself when nobody has the device open or mounted any longer.
    pub autoclear: bool,
    /// Bypass the page cache of the image where its file system can do that.
    pub direct_io: bool,
    /// Logical block size of the device, in bytes; 0 leaves that to the kernel.
    pub block_size: u32,
}

/// A loop device with an image attached. With
/// [`autoclear`](LoopOptions::autoclear) the device lives at least as long as
/// this.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    device: OwnedFd,
}

impl LoopDevice {
    /// Attaches `image` to a free loop device. Needs root.
    ///
    /// # Errors
    ///
    /// [`LoopError`].
    pub fn attach(image: &Path, options: LoopOptions) -> Result<Self, LoopError> {
        Self::attach_to(image, image, options)
    }

    /// The same of the image that was opened from `name` as `image`, whatever has that name now.
    ///
    /// # Errors
    ///
    /// [`LoopError`].
    pub fn attach_opened(
        image: impl AsFd,
        name: &Path,
        options: LoopOptions,
    ) -> Result<Self, LoopError> {
        // Another opening of the same file: the device keeps that which it is given, and with it a lock, for as long as
        // anybody has the device.
        let opened = format!("/proc/self/fd/{}", image.as_fd().as_raw_fd());
        Self::attach_to(opened.as_ref(), name, options)
    }

    fn attach_to(opened: &Path, image: &Path, options: LoopOptions) -> Result<Self, LoopError> {
        let failed = |source| LoopError {
            action: "attach",
            path: image.to_owned(),
            source,
        };
        let file = File::options()
            .read(true)
            .write(!options.read_only)
            .open(opened)
            .map_err(failed)?;
        let control = File::options()
            .read(true)
            .write(true)
            .open(CONTROL)
            .map_err(failed)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let number = free_number(control.as_fd()).map_err(|errno| failed(errno.into()))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::options()
                .read(true)
                .write(!options.read_only)
                .open(&path)
                .map_err(failed)?;
            match configure_best(device.as_fd(), file.as_fd(), image, options) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        device: device.into(),
                    });
                }
                // Somebody else was faster.
                Err(Errno::BUSY) if attempts < ATTEMPTS_MAX => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }

    /// Opens a loop device that is already attached.
    ///
    /// # Errors
    ///
    /// [`LoopError`].
    pub fn open(path: &Path, read_only: bool) -> Result<Self, LoopError> {
        let device = File::options()
            .read(true)
            .write(!read_only)
            .open(path)
            .map_err(|source| LoopError {
                action: "open",
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            path: path.to_owned(),
            device: device.into(),
        })
    }

    /// The device's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a write fails for which the image's file system has too little room. The driver takes a write that was cut
    /// short for a whole one, and so are cut short all that are buffered, and on tmpfs direct ones too.
    #[must_use]
    pub fn tells_of_want_of_room(&self, image: impl AsFd) -> bool {
        let flags = status(self.device.as_fd()).map_or(0, |info| info.flags);
        let in_memory = rustix::fs::fstatfs(image).is_ok_and(|found| found.f_type == TMPFS_MAGIC);
        flags & FLAG_DIRECT_IO != 0 && !in_memory
    }

    /// Detaches the image. If the device is in use, that happens when the last
    /// user is gone.
    ///
    /// # Errors
    ///
    /// [`LoopError`].
    pub fn detach(self) -> Result<(), LoopError> {
        clear(self.device.as_fd()).map_err(|errno| LoopError {
            action: "detach",
            path: self.path,
            source: errno.into(),
        })
    }
}

/// Has a loop device take the size that its image has by now.
///
/// # Errors
///
/// [`LoopError`].
pub fn measure_again(device: &Path) -> Result<(), LoopError> {
    let measured = File::open(device).and_then(|opened| Ok(set_capacity(opened.as_fd())?));
    measured.map_err(|source| LoopError {
        action: "measure",
        path: device.to_owned(),
        source,
    })
}

/// The file behind a loop device, as the kernel names it, or nothing if the
/// device is not attached or no loop device.
#[must_use]
pub fn backing_file(device: &Path) -> Option<PathBuf> {
    let device = fs::canonicalize(device).ok()?;
    let name = device.file_name()?;
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    let mut bytes = fs::read(file).ok()?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Some(std::ffi::OsString::from_vec(bytes).into())
}

/// The loop devices that are attached to the whole of `image`, by whatever path. Whoever may not ask the devices is told of
/// those that were attached by its path.
///
/// # Errors
///
/// [`LoopError`] if `image` cannot be looked at.
pub fn find_loops(image: &Path) -> Result<Vec<PathBuf>, LoopError> {
    let failed = |source| LoopError {
        action: "look for a",
        path: image.to_owned(),
        source,
    };
    let wanted = stat(image).map_err(|errno| failed(errno.into()))?;
    let image = fs::canonicalize(image).ok();
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").map_err(failed)?.flatten() {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(b"loop") || !entry.path().join("loop").exists() {
            continue;
        }
        let path = Path::new("/dev").join(name);
        let is_attached = match info_of(&path) {
            Some(info) => is_whole(&info, &wanted),
            None => image.is_some() && backing_file(&path) == image,
        };
        if is_attached {
            found.push(path);
        }
    }
    Ok(found)
}

/// The image of which a loop device is the whole, if it can be found by the name
/// under which it was attached.
#[must_use]
pub fn whole_image(device: &Path) -> Option<PathBuf> {
    let (image, is_whole) = image_behind(device)?;
    is_whole.then_some(image)
}

/// The image behind a loop device, likewise, and whether the device is the whole of it.
#[must_use]
pub fn image_behind(device: &Path) -> Option<(PathBuf, bool)> {
    let image = backing_file(device)?;
    let found = stat(&image).ok()?;
    let info = info_of(device).filter(|info| is_of(info, &found))?;
    Some((image, is_whole(&info, &found)))
}

/// Whether a loop device is detached when nobody uses it any longer.
#[must_use]
pub fn is_autoclear(device: &Path) -> bool {
    info_of(device).is_some_and(|info| info.flags & FLAG_AUTOCLEAR != 0)
}

/// What the driver says of a loop device; nothing if it was detached meanwhile.
fn info_of(device: &Path) -> Option<Info> {
    let device = File::open(device).ok()?;
    status(device.as_fd()).ok()
}

fn is_whole(info: &Info, file: &Stat) -> bool {
    info.offset == 0 && info.size_limit == 0 && is_of(info, file)
}

fn is_of(info: &Info, file: &Stat) -> bool {
    info.inode == file.st_ino
        && (major(info.device), minor(info.device)) == (major(file.st_dev), minor(file.st_dev))
}

/// Configures with direct I/O if wanted and possible.
fn configure_best(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    image: &Path,
    options: LoopOptions,
) -> Result<(), Errno> {
    let mut flags = 0;
    if options.read_only {
        flags |= FLAG_READ_ONLY;
    }
    if options.autoclear {
        flags |= FLAG_AUTOCLEAR;
    }
    let configuration = |flags| -> Result<Configuration, Errno> {
        let mut configuration = Configuration::new_zeroed();
        configuration.fd = u32::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
        configuration.block_size = options.block_size;
        configuration.info.flags = flags;
        // Only for show, and cut to size; the last byte stays zero.
        let name = image.as_os_str().as_bytes();
        let len = name.len().min(configuration.info.file_name.len() - 1);
        configuration.info.file_name[..len].copy_from_slice(&name[..len]);
        Ok(configuration)
    };
    if options.direct_io {
        match configure(device, configuration(flags | FLAG_DIRECT_IO)?) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
            result => return result,
        }
    }
    configure(device, configuration(flags)?)
}

/// `LOOP_CTL_GET_FREE`, which returns the number of a free device as the
/// ioctl's result.
struct GetFree;

#[expect(
    unsafe_code,
    reason = "an ioctl's argument type is known only to its driver"
)]
// SAFETY: the request takes no argument, changes no memory of ours, and returns
// a number.
unsafe impl ioctl::Ioctl for GetFree {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> ioctl::Opcode {
        CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        out: ioctl::IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> Result<i32, Errno> {
        Ok(out)
    }
}

#[expect(
    unsafe_code,
    reason = "an ioctl's argument type is known only to its driver"
)]
fn free_number(control: BorrowedFd<'_>) -> Result<i32, Errno> {
    // SAFETY: see `GetFree`.
    unsafe { ioctl::ioctl(control, GetFree) }
}

#[expect(
    unsafe_code,
    reason = "an ioctl's argument type is known only to its driver"
)]
fn configure(device: BorrowedFd<'_>, configuration: Configuration) -> Result<(), Errno> {
    // SAFETY: LOOP_CONFIGURE reads a `loop_config`, which `Configuration` is,
    // and the descriptor in it stays open during the call.
    unsafe { ioctl::ioctl(device, ioctl::Setter::<CONFIGURE, _>::new(configuration)) }
}

#[expect(
    unsafe_code,
    reason = "an ioctl's argument type is known only to its driver"
)]
fn status(device: BorrowedFd<'_>) -> Result<Info, Errno> {
    let mut info = Info::new_zeroed();
    // SAFETY: LOOP_GET_STATUS64 writes a `loop_info64`, which `Info` is.
    unsafe { ioctl::ioctl(device, ioctl::Updater::<GET_STATUS, _>::new(&mut info)) }?;
    Ok(info)
}

#[expect(
    unsafe_code,
    reason = "an ioctl's argument type is known only to its driver"
)]
fn clear(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { ioctl::ioctl(device, ioctl::NoArg::<CLR_FD>::new()) }
}

#[expect(
    unsafe_code,
    reason = "an ioctl's argument type is known only to its driver"
)]
fn set_capacity(device: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    unsafe { ioctl::ioctl(device, ioctl::NoArg::<SET_CAPACITY>::new()) }
}
