//! Which mounts of LoamFS there are, and on what.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use loamfs_device::whole_image;
use loamfs_fuse::MountEntry;
use rustix::fs::{major, minor};
use rustix::process::geteuid;

use crate::failure::{Failure, Kind};
use crate::text::shown_path;

/// The subtype of our mounts, as in `fuse.loamfs` and `fuseblk.loamfs`.
pub const SUBTYPE: &str = "loamfs";

/// All mounts of LoamFS, whoever mounted them, and whatever they say of themselves.
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

/// The mount that a file or directory is on, and its number there.
///
/// # Errors
///
/// If it cannot be looked at.
pub fn holding(path: &Path) -> Result<Option<(MountEntry, u64)>, Failure> {
    let metadata = fs::symlink_metadata(path).map_err(|error| Failure::io(path, &error))?;
    let device = (major(metadata.dev()), minor(metadata.dev()));
    let entry = ours().into_iter().find(|entry| entry.device == device);
    Ok(entry.map(|entry| (entry, metadata.ino())))
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
    let wanted = Wanted::new(path);
    let mut mounts = trusted().into_iter().rev();
    mounts.find(|entry| wanted.is_source_of(entry))
}

/// Any mount, of whatever type, that stands on the device or image file at `path`.
pub fn find_any(path: &Path) -> Option<MountEntry> {
    let wanted = Wanted::new(path);
    let mounts = loamfs_fuse::mounts().unwrap_or_default();
    let mut mounts = mounts.into_iter().rev();
    mounts.find(|entry| is_trusted(entry) && wanted.is_source_of(entry))
}

/// The mounts of LoamFS of which the caller can believe what they stand on.
pub fn trusted() -> Vec<MountEntry> {
    let mut found = ours();
    found.retain(is_trusted);
    found
}

/// Whether what a mount is said to stand on can be believed: anybody else who may mount may say anything of that, and never
/// answer who looks.
pub fn is_trusted(entry: &MountEntry) -> bool {
    let own = geteuid();
    let mounter = entry.mounter();
    mounter.is_none_or(|uid| uid == 0 || uid == own.as_raw())
}

/// That nobody but its user can say more of a mount.
pub fn not_told(entry: &MountEntry) -> Failure {
    let told = format!(
        "{} was mounted by another user; ask as that user, or name the device or image file",
        shown_path(&entry.path)
    );
    Failure::new(Kind::NoPermission, told)
}

/// A device or image file, by all that the mount table may say of it. What that says is compared as text, and never looked
/// at: where it leads, others may be asked who do not answer.
pub struct Wanted {
    names: Vec<PathBuf>,
    devices: Vec<(u32, u32)>,
}

impl Wanted {
    /// The one at `path`.
    pub fn new(path: &Path) -> Self {
        let mut wanted = Self::itself(path);
        if let Some(image) = whole_image(path) {
            let Self { names, devices } = Self::itself(&image);
            wanted.names.extend(names);
            wanted.devices.extend(devices);
        }
        wanted
    }

    /// The same, without what else leads to the image behind a loop device.
    fn itself(path: &Path) -> Self {
        let names = [std::path::absolute(path), fs::canonicalize(path)];
        let devices = match fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => vec![number_of(&found)],
            Ok(found) if found.is_file() => loops_of(path),
            _ => Vec::new(),
        };
        Self {
            names: names.into_iter().flatten().collect(),
            devices,
        }
    }

    /// Whether a mount stands on it.
    pub fn is_source_of(&self, entry: &MountEntry) -> bool {
        self.devices.contains(&entry.device) || self.names.iter().any(|name| *name == *entry.source)
    }
}

fn loops_of(image: &Path) -> Vec<(u32, u32)> {
    let loops = loamfs_device::find_loops(image).unwrap_or_default();
    let found = loops.iter().filter_map(|path| fs::metadata(path).ok());
    found.map(|device| number_of(&device)).collect()
}

fn number_of(device: &Metadata) -> (u32, u32) {
    (major(device.rdev()), minor(device.rdev()))
}
