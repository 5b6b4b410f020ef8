//! What is mounted beside or below a new mount, and had better be known to who made it.

use std::fs::File;
use std::path::Path;

use loamfs_device::{LoopDevice, backing_file};
use loamfs_fuse::MountEntry;

use super::spec::Spec;
use crate::mounts::{self, Wanted};
use crate::report::Identity;
use crate::text::shown_path;

/// What to say of the mount that was made.
pub fn warnings(spec: &Spec) -> Vec<String> {
    let hidden = hidden(&spec.mountpoint).into_iter();
    hidden
        .chain(same_identity(spec))
        .chain(silent_loop(spec))
        .collect()
}

/// A loop device of somebody else's that would not say when its image finds no room.
fn silent_loop(spec: &Spec) -> Option<String> {
    let image = File::open(backing_file(&spec.device)?).ok()?;
    let device = LoopDevice::open(&spec.device, true).ok()?;
    let is_silent = !spec.options.is_read_only() && !device.tells_of_want_of_room(&image);
    is_silent.then(|| {
        format!(
            "should the file system below {} get full, what was synced is lost without a word; mount the image itself, or \
             attach it with `losetup --direct-io=on`, on a disk",
            shown_path(&spec.device)
        )
    })
}

/// What the mount lies over.
fn hidden(mountpoint: &Path) -> Option<String> {
    let mut mounts = loamfs_fuse::mounts().unwrap_or_default();
    let place = std::fs::canonicalize(mountpoint).unwrap_or_else(|_| mountpoint.to_owned());
    mounts.retain(|entry| entry.path == place);
    mounts.pop()?;
    let below = mounts.pop()?;
    Some(format!(
        "this hides what was mounted on {} before: {} ({}); `loamfs unmount` brings it back",
        shown_path(&place),
        shown_path(Path::new(&below.source)),
        below.fstype.to_string_lossy(),
    ))
}

/// A mount of another device whose volume says that it is the same.
fn same_identity(spec: &Spec) -> Option<String> {
    let own = Identity::probe(&spec.device).ok()?.uuid();
    let wanted = Wanted::new(&spec.device);
    let is_twin = |entry: &MountEntry| {
        !wanted.is_source_of(entry)
            && Identity::probe(Path::new(&entry.source)).is_ok_and(|other| other.uuid() == own)
    };
    let twin = mounts::trusted().into_iter().find(is_twin)?;
    Some(format!(
        "the volume on {} has the same UUID {own}: one is a copy of the other, and UUID= may mean either",
        shown_path(&twin.path)
    ))
}
