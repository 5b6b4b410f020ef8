//! A bound on what a device reads and writes a second, by the kernel's block cgroups (version 1).
//!
//! It holds for the root of all groups, where this process has to be with what it starts: there the kernel's own threads
//! are too, which write back what programs wrote. Groups of version 2 have no bounds at their root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::Error;
use crate::cleanup::{Guard, later};

/// A bound that holds until it is dropped.
#[must_use]
pub struct Throttle {
    _bounds: [Guard; 2],
}

impl Throttle {
    /// Binds a device to so many bytes a second in each direction, whoever in the root group asks.
    ///
    /// # Errors
    /// Without root, or on a machine that cannot.
    pub fn enter(device: &Path, rate: u64) -> Result<Throttle, Error> {
        let read = |path: &str| {
            let path = Path::new(path);
            fs::read_to_string(path).map_err(Error::at("reading", path))
        };
        let (mounts, groups) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
        let root = root(&mounts, &groups).ok_or_else(|| {
            let why =
                "slowing a device down takes block cgroups of version 1, and to be in their root";
            Error::Lacking(why.into())
        })?;
        let found = fs::metadata(device).map_err(Error::at("looking at", device))?;
        let number = format!("{}:{}", major(found.rdev()), minor(found.rdev()));
        let bind = |direction: &str| -> Result<Guard, Error> {
            let path = root.join(format!("blkio.throttle.{direction}_bps_device"));
            let bound = format!("{number} {rate}");
            fs::write(&path, bound).map_err(Error::at("writing to", &path))?;
            let none = format!("{number} 0");
            Ok(later(move || drop(fs::write(path, none))))
        };
        Ok(Throttle {
            _bounds: [bind("read")?, bind("write")?],
        })
    }
}

/// The root of the block groups, if this process is in it; from /proc/self/mounts and /proc/self/cgroup.
fn root(mounts: &str, groups: &str) -> Option<PathBuf> {
    let has = |names: &str| names.split(',').any(|name| name == "blkio");
    // number:controllers:path
    let own = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        has(names).then_some(path)
    })?;
    mounts.lines().filter(|_| own == "/").find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, root, "cgroup", options, ..] = fields.as_slice() else {
            return None;
        };
        has(options).then(|| PathBuf::from(root))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                          cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                          cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n";

    #[test]
    fn only_in_the_root_of_the_block_groups_a_bound_holds_for_all() {
        let expected = Some(PathBuf::from("/sys/fs/cgroup/blkio"));
        assert_eq!(root(MOUNTS, "2:cpu:/a\n1:blkio:/\n"), expected);
        assert_eq!(root(MOUNTS, "1:blkio:/a\n"), None);
        assert_eq!(
            root("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "0::/\n"),
            None
        );
    }
}
