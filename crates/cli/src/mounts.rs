//! Which mounts of LoamFS there are, and on what.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use loamfs_fuse::{MountEntry, backing_file};
use rustix::fs::{major, minor};

use crate::failure::{Failure, Kind};
use crate::text::shown_path;

/// The subtype of our mounts, as in `fuse.loamfs` and `fuseblk.loamfs`.
pub const SUBTYPE: &str = "loamfs";

/// All mounts of LoamFS.
pub fn ours() -> Vec<MountEntry> {
    let mut found = loamfs_fuse::mounts().unwrap_or_default();
    found.retain(|entry| entry.subtype() == Some(OsStr::new(SUBTYPE)));
    found
}

/// The mount that `path` stands for: mounted on it, or standing on the device or image file there.
pub fn find(path: &Path) -> Option<MountEntry> {
    let on_it = loamfs_fuse::find_mount(path, SUBTYPE.as_ref());
    on_it.unwrap_or_default().or_else(|| find_source(path))
}

/// As [`find`].
///
/// # Errors
///
/// If there is none.
pub fn mounted(path: &Path) -> Result<MountEntry, Failure> {
    find(path).ok_or_else(|| none_on(path))
}

/// That there is no mount on `path`.
pub fn none_on(path: &Path) -> Failure {
    let told = format!(
        "no LoamFS is mounted on {}; name the directory that it is mounted on",
        shown_path(path)
    );
    Failure::new(Kind::NoInput, told)
}

/// The mount whose volume is on `path`, directly or through a loop device.
pub fn find_source(path: &Path) -> Option<MountEntry> {
    ours()
        .into_iter()
        .rev()
        .find(|entry| is_source(entry, path))
}

/// Any mount, of whatever type, that stands on the device or image file at `path`.
pub fn find_any(path: &Path) -> Option<MountEntry> {
    let mounts = loamfs_fuse::mounts().unwrap_or_default();
    mounts
        .into_iter()
        .rev()
        .find(|entry| is_source(entry, path))
}

/// Whether `entry` is a mount of what is at `path`.
pub fn is_source(entry: &MountEntry, path: &Path) -> bool {
    let source = Path::new(&entry.source);
    if !source.is_absolute() {
        return false;
    }
    if same(source, path) {
        return true;
    }
    let Ok(wanted) = fs::metadata(path) else {
        return false;
    };
    if wanted.file_type().is_block_device() {
        return (major(wanted.rdev()), minor(wanted.rdev())) == entry.device;
    }
    backing_file(source).is_some_and(|image| same(&image, path))
}

/// Whether two paths lead to one file, or one device node.
fn same(left: &Path, right: &Path) -> bool {
    match (fs::metadata(left), fs::metadata(right)) {
        (Ok(left), Ok(right)) => {
            let devices = left.file_type().is_block_device() && right.file_type().is_block_device();
            (devices && left.rdev() == right.rdev())
                || (left.dev(), left.ino()) == (right.dev(), right.ino())
        }
        _ => false,
    }
}
