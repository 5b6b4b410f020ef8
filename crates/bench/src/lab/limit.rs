//! A bound on memory, for this process and for those that it starts from then on: a memory cgroup of either version.
//!
//! Charged are the pages, names and inodes that these processes bring into the kernel's caches, and LoamFS's daemon as
//! a whole. XFS's own buffers of metadata are charged to nobody: XFS keeps more than the bound says.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::cleanup::{Guard, later};

/// A bound that holds until it is dropped.
#[must_use]
pub struct MemoryLimit {
    _undo: Guard,
}

/// Where the groups are, and how their files are called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// The root of all groups.
    root: PathBuf,
    /// The group that this process is in.
    own: PathBuf,
    /// Whether it is of version 2, where controllers are enabled one by one.
    unified: bool,
}

/// The file of a group that holds its processes' numbers; writing one moves it there.
const PROCESSES: &str = "cgroup.procs";

impl MemoryLimit {
    /// Puts this process under a bound of `bytes`; `None` on a machine that has no such groups.
    ///
    /// # Errors
    /// Without root.
    pub fn enter(bytes: u64) -> Result<Option<MemoryLimit>, Error> {
        let read = |path: &str| {
            let path = Path::new(path);
            fs::read_to_string(path).map_err(Error::at("reading", path))
        };
        let (mounts, groups) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
        let Some(hierarchy) = find(&mounts, &groups, has_memory) else {
            return Ok(None);
        };
        if hierarchy.unified {
            write(&hierarchy.root.join("cgroup.subtree_control"), "+memory")?;
        }
        let name = format!("loamfs-bench-{}", std::process::id());
        let group = hierarchy.root.join(name);
        fs::create_dir(&group).map_err(Error::at("making", &group))?;
        let (gone, home) = (group.clone(), hierarchy.own.clone());
        let undo = later(move || {
            // A daemon may not have ended yet when a signal undoes all.
            let members = fs::read_to_string(gone.join(PROCESSES)).unwrap_or_default();
            for process in members.lines() {
                let _ = write(&home.join(PROCESSES), process);
            }
            let _ = fs::remove_dir(&gone);
        });
        let (most, with_swap, swap) = if hierarchy.unified {
            ("memory.max", "memory.swap.max", 0)
        } else {
            (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                bytes,
            )
        };
        write(&group.join(most), &bytes.to_string())?;
        let with_swap = group.join(with_swap);
        if with_swap.exists() {
            write(&with_swap, &swap.to_string())?;
        }
        write(&group.join(PROCESSES), &std::process::id().to_string())?;
        Ok(Some(MemoryLimit { _undo: undo }))
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::at("writing to", path))
}

/// Whether a group of version 2 can bound memory.
fn has_memory(root: &Path) -> bool {
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "memory")
}

/// The hierarchy that bounds memory, from /proc/self/mounts and /proc/self/cgroup.
fn find(mounts: &str, groups: &str, has_memory: impl Fn(&Path) -> bool) -> Option<Hierarchy> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, root, kind, options, ..] = fields.as_slice() else {
            return None;
        };
        let root = PathBuf::from(root);
        let unified = match *kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => false,
            "cgroup2" if has_memory(&root) => true,
            _ => return None,
        };
        // number:controllers:path; version 2 names no controllers.
        let own = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let ours = match unified {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|name| name == "memory"),
            };
            ours.then_some(path)
        })?;
        Some(Hierarchy {
            own: root.join(own.trim_start_matches('/')),
            root,
            unified,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                         cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                         cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                         cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn the_first_version_has_a_hierarchy_for_memory() {
        let groups = "9:cpu:/a\n4:memory:/user/x\n0::/b\n";
        let found = find(FIRST, groups, |_| false).unwrap();
        assert_eq!(found.own, Path::new("/sys/fs/cgroup/memory/user/x"));
        assert_eq!(found.root, Path::new("/sys/fs/cgroup/memory"));
        assert!(!found.unified);
    }

    #[test]
    fn the_second_has_one_for_all_if_it_bounds_memory() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let found = find(mounts, "0::/init.scope\n", |_| true).unwrap();
        assert_eq!(found.own, Path::new("/sys/fs/cgroup/init.scope"));
        assert!(found.unified);
        assert_eq!(find(mounts, "0::/\n", |_| false), None);
        assert_eq!(find("proc /proc proc rw 0 0\n", "0::/\n", |_| true), None);
    }
}
