//! `loamfs unmount`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use loamfs_device::{DeviceError, FileDevice, FileOptions, Mode};
use loamfs_fuse::{MountEntry, find_mount, is_dead, unmount};

use crate::failure::{Failure, Kind};
use crate::mount::control::Waiter;
use crate::mounts::SUBTYPE;
use crate::output::note;

/// How long a daemon that cannot be asked is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// Unmount a volume; returns when all is on the device.
#[derive(Debug, Args)]
pub struct UnmountArgs {
    /// Where it is mounted.
    mountpoint: PathBuf,
}

impl UnmountArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If it is in use, or could not be written out.
    pub fn run(self) -> Result<u8, Failure> {
        let shown = self.mountpoint.display();
        let found = find_mount(&self.mountpoint, SUBTYPE.as_ref())
            .map_err(|error| Failure::usage(format!("{shown} cannot be looked at: {error}")))?;
        let Some(entry) = found else {
            return Err(Failure::usage(format!(
                "no LoamFS is mounted on {shown}; name the directory that it is mounted on"
            )));
        };
        if is_dead(&entry.path) {
            crate::mount::clear_dead(&entry)?;
            note(&format!(
                "loamfs: the daemon of {shown} had died; the next mount recovers the volume"
            ));
            return Ok(0);
        }
        // Before, because afterwards the daemon may be gone too soon.
        let waiter = Waiter::new(&entry);
        unmount(&entry.path).map_err(|error| refused(&self.mountpoint, &error))?;
        match waiter {
            Ok(waiter) => waiter
                .wait()
                .map_err(|error| Failure::new(Kind::Io, format!("unmounting {shown}: {error}")))?,
            Err(_) => wait_for_lock(&entry)?,
        }
        Ok(0)
    }
}

fn refused(mountpoint: &Path, error: &loamfs_fuse::Error) -> Failure {
    let shown = mountpoint.display();
    let text = error.to_string();
    if text.contains("busy") {
        return Failure::new(
            Kind::Busy,
            format!(
                "{shown} is in use; end the programs that `fuser -vm {shown}` shows, and try again"
            ),
        );
    }
    Failure::new(Kind::Io, text)
}

/// Waits for a daemon that cannot be asked, by the lock that it holds on the device.
fn wait_for_lock(entry: &MountEntry) -> Result<(), Failure> {
    let path = Path::new(&entry.source);
    let mut options = FileOptions::new(Mode::ReadOnly);
    options.lock_wait = PATIENCE;
    match FileDevice::open_with(path, &options) {
        Err(error @ DeviceError::Busy { .. }) => Err(Failure::device(path, &error)),
        // A loop device that has detached, or a device that the caller may not read: then umount
        // itself is all that can be said.
        _ => Ok(()),
    }
}
