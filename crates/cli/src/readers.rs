//! Opening a device although others have locked it who can only read it.
//!
//! Whoever may read a file may lock it, alone if they like, and would so keep it from everybody. Root goes on all the same
//! if nobody who writes to it can be found: every process is looked at for what it has open, and those of root's for
//! locks. A lock that is shared with them then keeps others out. Where even that is refused, only a mount goes on, which
//! the kernel knows of: other LoamFS processes see the claim on a block device, or the loop device of an image.

use std::path::Path;
use std::time::Duration;

use loamfs_device::{DeviceError, FileDevice, FileOptions, Lock, Mode, image_behind};
use rustix::process::geteuid;

use crate::mount::nobody_writes;
use crate::output::note;
use crate::text::shown_path;

/// What keeps others from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The lock alone.
    ByLock,
    /// The kernel too, from the time that it is mounted or attached to a loop device.
    ByKernel,
}

/// Opens and locks a device.
///
/// # Errors
///
/// As [`FileDevice::open_with`].
pub fn open(path: &Path, options: &FileOptions, kept: Kept) -> Result<FileDevice, DeviceError> {
    open_by(path, options, kept, |options| {
        FileDevice::open_with(path, options)
    })
}

/// The same, with another way to open it.
///
/// # Errors
///
/// As that.
pub fn open_by(
    path: &Path,
    options: &FileOptions,
    kept: Kept,
    open: impl Fn(&FileOptions) -> Result<FileDevice, DeviceError>,
) -> Result<FileDevice, DeviceError> {
    let busy = match open(options) {
        Err(busy @ DeviceError::Busy { .. }) if geteuid().is_root() => busy,
        opened => return opened,
    };
    let locks: &[Lock] = match (options.mode, kept) {
        (Mode::ReadOnly, _) => &[Lock::None],
        (_, Kept::ByLock) => &[Lock::Shared],
        (_, Kept::ByKernel) => &[Lock::Shared, Lock::None],
    };
    for &lock in locks {
        let options = FileOptions {
            lock,
            lock_wait: Duration::ZERO,
            ..options.clone()
        };
        // Opened first, so that of two who do this at a time one sees the other.
        if let Ok(device) = open(&options)
            && nobody_writes(&device)
        {
            note(&format!(
                "loamfs: {} is locked by others who can only read it; going on all the same",
                shown_path(path)
            ));
            return Ok(device);
        }
    }
    Err(busy)
}

/// As [`open`], and locks the image behind a loop device: who has that, or comes to it by another one, is kept out.
///
/// # Errors
///
/// As [`FileDevice::open_with`].
pub fn open_with_image(
    path: &Path,
    options: &FileOptions,
    kept: Kept,
) -> Result<FileDevice, DeviceError> {
    with_image(path, open(path, options, kept)?, options, kept)
}

/// Locks the image behind a loop device that was opened. Of several that are parts of an image each has its own user: what they
/// share is the lock.
///
/// # Errors
///
/// [`DeviceError::Busy`].
pub fn with_image(
    path: &Path,
    device: FileDevice,
    options: &FileOptions,
    kept: Kept,
) -> Result<FileDevice, DeviceError> {
    let Some((image, is_whole)) = image_behind(path) else {
        return Ok(device);
    };
    let of_image = FileOptions {
        direct: false,
        lock: match is_whole {
            true => options.lock,
            false => Lock::Shared,
        },
        ..options.clone()
    };
    match open(&image, &of_image, kept) {
        Err(busy @ DeviceError::Busy { .. }) => Err(busy),
        Ok(image) => Ok(device.with_image(image)),
        // Whoever attached it could open it, and this process need not.
        Err(_) => Ok(device),
    }
}
