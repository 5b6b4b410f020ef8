//! Mounts whose daemon died: they answer nothing, and keep a block device claimed.

use std::path::Path;

use loamfs_fuse::{MountEntry, detach, is_dead, unmount};

use crate::failure::{Failure, Kind};
use crate::mounts::{self, Wanted};
use crate::text::shown_path;

/// Clears dead mounts of this device, and a dead one of ours on this mount point.
///
/// # Errors
///
/// If the device is mounted and alive, or a dead mount cannot be cleared.
pub fn clear(device: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let wanted = Wanted::new(device);
    for entry in mounts::trusted().into_iter().rev() {
        let ours = wanted.is_source_of(&entry);
        if !ours && entry.path != mountpoint {
            continue;
        }
        if is_dead(&entry.path) {
            clear_one(&entry)?;
        } else if ours {
            return Err(Failure::new(
                Kind::Busy,
                format!(
                    "{} is mounted on {} already; use it there, or unmount it first",
                    shown_path(device),
                    shown_path(&entry.path)
                ),
            ));
        }
    }
    Ok(())
}

/// Takes a dead mount away: at once if nobody stands in it, else as soon as the last one leaves.
pub fn clear_one(entry: &MountEntry) -> Result<(), Failure> {
    let path = &entry.path;
    if unmount(path).is_err()
        && let Err(error) = detach(path)
    {
        // The daemon's supervisor may have been quicker.
        if !is_there(entry) {
            return Ok(());
        }
        return Err(Failure::new(
            Kind::Busy,
            format!(
                "the daemon of the mount on {} died, and the mount cannot be cleared ({error}); \
                     unmount it as the user who mounted it",
                shown_path(path)
            ),
        ));
    }
    tracing::warn!(
        "cleared the mount on {}, whose daemon had died",
        shown_path(path)
    );
    Ok(())
}

fn is_there(entry: &MountEntry) -> bool {
    mounts::ours().iter().any(|other| other == entry)
}
