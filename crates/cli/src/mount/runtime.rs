//! The directory of what daemons of a user have while they run: sockets, logs, and what was lost.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::text::shown_path;

/// Where daemons of this user keep their sockets and, without a system log, their logs.
pub fn directory() -> PathBuf {
    if geteuid().is_root() {
        return "/run/loamfs".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(path) if Path::new(&path).is_absolute() => Path::new(&path).join("loamfs"),
        _ => format!("/tmp/loamfs-{}", geteuid().as_raw()).into(),
    }
}

/// Makes the directory of sockets and logs, for this user alone.
///
/// # Errors
///
/// If it cannot be made, or somebody else made it.
pub fn make() -> io::Result<PathBuf> {
    let path = directory();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)?;
    refuse_foreign(&path)?;
    Ok(path)
}

/// The directory of sockets and logs, if that is a place of its user's.
pub fn own() -> Option<PathBuf> {
    make().ok()
}

/// Where a daemon logs without a system log.
pub fn log_file(name: &str) -> Option<PathBuf> {
    Some(own()?.join(format!("{name}.log")))
}

/// Below /tmp anybody could have made the directory, with a socket or a link to a file in it.
///
/// # Errors
///
/// That it is not this user's alone.
pub fn refuse_foreign(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        let words = format!(
            "{} is not a directory that only its user can write to; remove it",
            shown_path(path)
        );
        return Err(io::Error::other(words));
    }
    Ok(())
}
