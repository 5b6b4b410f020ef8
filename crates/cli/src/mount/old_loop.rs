//! Loop devices that an image is attached to before it is mounted.
//!
//! Each has a page cache of its own, so that two that are written through would spoil the volume. One that is left from
//! a mount goes with its last user. That may take long where the daemon died: whoever has a file of the dead mount open,
//! or stands in it, keeps the mount and with it the device, and need not know. Such a device is harmless, and the image is
//! mounted through another one, if all of this holds:
//!
//! - The daemon is gone: the caller has taken the image's lock, and the device's own is free.
//! - No process that can be seen has the device open.
//! - The mount that has claimed the device answers that its connection is cut: ENOTCONN to whoever holds a file there. A
//!   device has one claim, that of a file system, so no other one is on it, in whatever mount namespace. The connection
//!   never comes back. And a FUSE mount, fuseblk too, never writes to its device; it only asks its daemon to. Its pages,
//!   dirty ones of mapped files too, cannot be written any more.
//! - What was written to the device and is still in its page cache is written out (fsync), so that nothing is left that
//!   the kernel could write later.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use loamfs_device::{find_loops, is_autoclear};
use rustix::fs::{FlockOperation, flock};

use super::holders::Holders;
use crate::failure::{Failure, Kind};
use crate::text::shown_path;

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until no loop device of `image` can write to it. The caller has the image's lock.
///
/// # Errors
///
/// If one still can after `patience`; the sentence says who keeps it.
pub fn wait_until_harmless(image: &Path, patience: Duration) -> Result<(), Failure> {
    let start = Instant::now();
    while let Some(old) = attached_to(image).find(|old| !is_harmless(old)) {
        if start.elapsed() > patience {
            return Err(refused(image, &old));
        }
        thread::sleep(PAUSE);
    }
    for old in attached_to(image) {
        tracing::warn!(
            "{} stays until the last files of a mount whose daemon died are closed: {}",
            shown_path(&old),
            Holders::of(&old).dead
        );
    }
    Ok(())
}

fn attached_to(image: &Path) -> impl Iterator<Item = PathBuf> {
    find_loops(image).unwrap_or_default().into_iter()
}

fn is_harmless(old: &Path) -> bool {
    // Without autoclear somebody attached it to have it.
    if !is_autoclear(old) {
        return false;
    }
    let holders = Holders::of(old);
    let of_the_dead_alone =
        !holders.dead.is_empty() && holders.alive.is_empty() && holders.device.is_empty();
    of_the_dead_alone && write_out(old).is_ok()
}

/// Writes out what the page cache has of a device, unless a daemon was given that and not the image: then it has the
/// lock.
fn write_out(old: &Path) -> io::Result<()> {
    let device = File::open(old)?;
    flock(&device, FlockOperation::NonBlockingLockExclusive)?;
    device.sync_all()
}

/// That `image` is not touched, because it is attached to the loop device `old`; who keeps that, and what to do.
pub fn refused(image: &Path, old: &Path) -> Failure {
    let holders = Holders::of(old);
    let advice = if !holders.device.is_empty() {
        format!(
            "and used by {}; end that first, or name the device instead",
            holders.device
        )
    } else if !holders.alive.is_empty() {
        format!(
            "and used by {}, with files of its mount; unmount it first",
            holders.alive
        )
    } else if !holders.dead.is_empty() {
        format!(
            "and used by {}, with files of a mount whose daemon died; end that first",
            holders.dead
        )
    } else if !holders.copies.is_empty() {
        format!(
            "and used by {}, where a copy of its mount is; unmount that there, or end it",
            holders.copies
        )
    } else if is_autoclear(old) {
        // losetup(8) could not detach it sooner.
        "already, until its last user lets go, who cannot be seen from here; look as root, and in other containers"
            .to_owned()
    } else {
        format!(
            "already; name that device instead, or detach it with `losetup -d {}`",
            shown_path(old)
        )
    };
    let (image, old) = (shown_path(image), shown_path(old));
    Failure::new(Kind::Busy, format!("{image} is attached to {old} {advice}"))
}
