//! What is mounted beside or below a new mount, and had better be known to who made it.

use std::path::Path;

use loamfs_fuse::MountEntry;

use super::spec::Spec;
use crate::mounts::{self, Wanted};
use crate::report::Identity;
use crate::text::shown_path;

/// What to say of the mount that was made.
pub fn warnings(spec: &Spec) -> Vec<String> {
    let hidden = hidden(&spec.mountpoint).into_iter();
    hidden.chain(same_identity(spec)).collect()
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
