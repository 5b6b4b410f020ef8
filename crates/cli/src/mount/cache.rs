//! How much memory a mount's caches may take.

use std::fs;
use std::path::Path;

/// Smallest cache that may be asked for: below it the log's own buffers would not fit.
pub const MIN: u64 = 16 << 20;

/// The default where memory is neither scarce nor plenty is this part of it: the kernel's own cache of files wants the
/// most of it.
const PART: u64 = 16;

/// The default stays within these bounds...
const DEFAULT_MIN: u64 = 256 << 20;
const DEFAULT_MAX: u64 = 2 << 30;
/// ... and takes at most this part of a small memory.
const PART_MAX: u64 = 4;

/// Bytes of cache for a mount that asks for none, on a machine with so many bytes of memory.
pub fn default_bytes(memory: u64) -> u64 {
    (memory / PART)
        .clamp(DEFAULT_MIN, DEFAULT_MAX)
        .min(memory / PART_MAX)
        .max(MIN)
}

/// Bytes of memory that this machine has.
pub fn machine() -> u64 {
    let info = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "there are machines with 32 bits")]
    let units = u64::from(info.totalram);
    units.saturating_mul(info.mem_unit.into())
}

/// Bytes of memory that this process may use: the machine's, or what a control group leaves of it.
pub fn memory() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = least_limit(&groups, Path::new("/sys/fs/cgroup"));
    limit.unwrap_or(u64::MAX).min(machine())
}

/// The least limit of memory of the control groups that a process is in, as its `cgroup` file names them, and of those
/// above (cgroups(7)). In a container the names may be those of the world outside; its own group is the root then.
fn least_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let above = Path::new(group.trim_start_matches('/')).ancestors();
        let limit = |group: &Path| fs::read_to_string(root.join(group).join(file)).ok();
        above
            .filter_map(|group| limit(group)?.trim().parse().ok())
            .min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_follows_memory_within_bounds() {
        let mib = |count: u64| count << 20;
        for (memory, cache) in [
            (32, 16),
            (512, 128),
            (1_024, 256),
            (4_096, 256),
            (16_384, 1_024),
            (524_288, 2_048),
        ] {
            assert_eq!(default_bytes(mib(memory)), mib(cache), "{memory} MiB");
        }
    }

    #[test]
    fn a_control_group_limits_what_is_below_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let groups = "4:memory:/a\n3:cpuset:/\n0::/b/c\n";
        assert_eq!(least_limit(groups, root), None);
        for (group, file, limit) in [
            ("b", "memory.max", "300\n"),
            ("b/c", "memory.max", "max\n"),
            ("memory/a", "memory.limit_in_bytes", "9223372036854771712\n"),
        ] {
            fs::create_dir_all(root.join(group)).unwrap();
            fs::write(root.join(group).join(file), limit).unwrap();
        }
        assert_eq!(least_limit(groups, root), Some(300));
        fs::write(root.join("memory/memory.limit_in_bytes"), "200").unwrap();
        assert_eq!(least_limit(groups, root), Some(200));
    }
}
