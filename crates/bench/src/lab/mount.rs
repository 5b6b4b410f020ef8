//! Which mount a directory of the user's own is on.

use std::path::{Path, PathBuf};

use loamfs_fuse::{MountEntry, mounts};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A directory, and the mount that it is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The directory.
    pub directory: PathBuf,
    /// Where the file system is mounted.
    pub mountpoint: PathBuf,
    /// Its type, such as `ext4` or `fuseblk.loamfs`.
    pub file_system: String,
    /// What is mounted: a device, or the name that the mounter chose.
    pub source: String,
    /// Options of the mount and of the file system.
    pub options: String,
}

impl Mount {
    /// The mount that a directory is on.
    ///
    /// # Errors
    /// If there is no such directory.
    pub fn of(directory: &Path) -> Result<Mount, Error> {
        let directory = directory
            .canonicalize()
            .map_err(Error::at("finding", directory))?;
        // A later mount lies over an earlier one.
        let above = mounts()?
            .into_iter()
            .filter(|entry| directory.starts_with(&entry.path))
            .max_by_key(|entry| entry.path.components().count());
        let entry = above.ok_or_else(|| {
            Error::Lacking(format!(
                "no mount is known that {} is on",
                directory.display()
            ))
        })?;
        Ok(Mount {
            directory,
            options: options(&entry),
            mountpoint: entry.path,
            file_system: entry.fstype.to_string_lossy().into_owned(),
            source: entry.source.to_string_lossy().into_owned(),
        })
    }

    /// Whether it is LoamFS.
    pub fn is_loamfs(&self) -> bool {
        ["fuse.loamfs", "fuseblk.loamfs"].contains(&self.file_system.as_str())
    }
}

/// Each option once.
fn options(entry: &MountEntry) -> String {
    let (mount, file_system) = (
        entry.options.to_string_lossy(),
        entry.super_options.to_string_lossy(),
    );
    let mut options: Vec<&str> = mount.split(',').collect();
    let more = file_system.split(',').filter(|option| !option.is_empty());
    options.extend(more.filter(|option| !mount.split(',').any(|known| known == *option)));
    options.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_is_told_with_its_options() {
        let mount = Mount::of(Path::new("/proc/self/..")).unwrap();
        assert_eq!(mount.file_system, "proc");
        assert_eq!(mount.mountpoint, Path::new("/proc"));
        assert_eq!(mount.directory, Path::new("/proc"));
        let mut options: Vec<&str> = mount.options.split(',').collect();
        assert!(options.contains(&"rw"), "{options:?}");
        let count = options.len();
        options.sort_unstable();
        options.dedup();
        assert_eq!(options.len(), count);
        assert!(!mount.is_loamfs());
        assert!(Mount::of(Path::new("/none/such")).is_err());
    }
}
