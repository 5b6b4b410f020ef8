//! Which processes hold on to a block device, or to files of the file system that is mounted from it.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use loamfs_fuse::{is_dead, mounts_of};
use rustix::fs::{AtFlags, CWD, FileType, Stat, StatxFlags, fstat, major, minor, stat, statx};

use crate::text::shown;

/// How many processes a sentence names.
const NAMED_MAX: usize = 5;

/// A process, by number and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    id: u32,
    name: String,
}

/// Processes that a sentence is about.
#[derive(Debug, Default)]
pub struct Processes(Vec<Process>);

impl Processes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Processes {
    /// `process 12 (cat)`, or `processes 12 (cat), 34 (dd) and 5 more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> = self.0.iter().take(NAMED_MAX).map(Process::named).collect();
        let plural = if self.0.len() == 1 { "" } else { "es" };
        write!(f, "process{plural} {}", named.join(", "))?;
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Process {
    fn named(&self) -> String {
        format!("{} ({})", self.id, self.name)
    }
}

/// Who holds what. Only what this process may see of others: root all, in its own process namespace.
#[derive(Debug, Default)]
pub struct Holders {
    /// Those that have the device itself open.
    pub device: Processes,
    /// Those that have files on it, of a mount that has its server.
    pub alive: Processes,
    /// Those that have files on it, of a mount whose server died.
    pub dead: Processes,
    /// Those whose mount namespace has a mount of it that is not in the caller's, one of each namespace. Such a copy
    /// needs nobody who has a file open.
    pub copies: Processes,
}

impl Holders {
    /// Looks for the holders of the block device at `path`.
    pub fn of(path: &Path) -> Self {
        let mut holders = Self::default();
        let Ok(found) = stat(path) else {
            return holders;
        };
        let device = (major(found.st_rdev), minor(found.st_rdev));
        let mut namespaces = HashSet::from([mount_namespace("self")]);
        for id in others() {
            let process = || Process {
                id,
                name: name_of(id),
            };
            if namespaces.insert(mount_namespace(&id.to_string())) && has_mounted(id, device) {
                holders.copies.0.push(process());
            }
            let mut holds: Vec<Hold> = held_by(id)
                .filter_map(|link| Hold::of(&link, device))
                .collect();
            holds.sort_unstable();
            holds.dedup();
            for hold in holds {
                let list = match hold {
                    Hold::Device => &mut holders.device,
                    Hold::Alive => &mut holders.alive,
                    Hold::Dead => &mut holders.dead,
                };
                list.0.push(process());
            }
        }
        holders
    }
}

/// What a process has to do with a device through one of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Device,
    Alive,
    Dead,
}

impl Hold {
    fn of(link: &Path, device: (u32, u32)) -> Option<Self> {
        // No file system is asked, as one may not answer.
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(CWD, link, flags, StatxFlags::TYPE).ok()?;
        let kind = FileType::from_raw_mode(found.stx_mode.into());
        if kind == FileType::BlockDevice && (found.stx_rdev_major, found.stx_rdev_minor) == device {
            return Some(Self::Device);
        }
        if (found.stx_dev_major, found.stx_dev_minor) != device {
            return None;
        }
        Some(if is_dead(link) {
            Self::Dead
        } else {
            Self::Alive
        })
    }
}

/// All processes but this one.
fn others() -> impl Iterator<Item = u32> {
    let numbers = names_in(Path::new("/proc")).filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        name.parse().ok()
    });
    numbers.filter(|id| *id != std::process::id())
}

/// The number of a process's mount namespace; `None` if it cannot be seen.
fn mount_namespace(process: &str) -> Option<u64> {
    let found = stat(format!("/proc/{process}/ns/mnt")).ok();
    found.map(|found| found.st_ino)
}

/// Whether a device is mounted where a process is. What is mounted there is not looked at, as that may not answer.
fn has_mounted(id: u32, device: (u32, u32)) -> bool {
    let mounts = mounts_of(id).unwrap_or_default();
    mounts.iter().any(|entry| entry.device == device)
}

/// The links that lead to what a process has open, mapped, or stands in.
fn held_by(id: u32) -> impl Iterator<Item = PathBuf> {
    let process = Path::new("/proc").join(id.to_string());
    let single = ["cwd", "root", "exe"].map(|name| process.join(name));
    let open = names_in(&process.join("fd"));
    let mapped = names_in(&process.join("map_files"));
    single.into_iter().chain(open).chain(mapped)
}

/// What is in a directory; nothing where that cannot be read.
fn names_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).ok();
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// The number of the first process namespace, in which all processes are seen.
const ALL_PROCESSES: u64 = 0xefff_fffc;

/// Whether no other process can write to a file or block device, and none of root's has a lock on it. Whoever cannot be
/// looked at counts as one that does.
pub fn nobody_writes(file: impl AsFd) -> bool {
    let sees_all = stat("/proc/self/ns/pid").is_ok_and(|found| found.st_ino == ALL_PROCESSES);
    match fstat(file) {
        Ok(wanted) if sees_all => others().all(|id| is_harmless(id, &wanted).unwrap_or(false)),
        _ => false,
    }
}

/// Whether a process has a file neither open for writing nor, as root, locked.
fn is_harmless(id: u32, wanted: &Stat) -> io::Result<bool> {
    let process = Path::new("/proc").join(id.to_string());
    let mut open = open_of(&process)?;
    if open.is_empty() {
        // Of a process that ends, the threads that are not done have the files.
        for task in names_in(&process.join("task")) {
            open.extend(open_of(&task)?);
        }
    }
    for link in open {
        if !leads_to(&link, wanted) {
            continue;
        }
        let info = link.to_string_lossy().replace("/fd/", "/fdinfo/");
        let info = unless_gone(fs::read_to_string(info))?;
        let is_locked = info.lines().any(|line| line.starts_with("lock:"));
        if can_write(&info) || (is_locked && is_of_root(&process)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a process or a thread has open.
fn open_of(process: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(process.join("fd"));
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    unless_gone(entries.and_then(paths))
}

/// What is read of a process or a file of it that has ended meanwhile is nothing.
fn unless_gone<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(T::default())
        }
        read => read,
    }
}

fn leads_to(link: &Path, wanted: &Stat) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let Ok(found) = statx(CWD, link, flags, StatxFlags::TYPE | StatxFlags::INO) else {
        return false;
    };
    let kind = FileType::from_raw_mode(wanted.st_mode);
    if FileType::from_raw_mode(found.stx_mode.into()) != kind {
        return false;
    }
    if kind == FileType::BlockDevice {
        let wanted = (major(wanted.st_rdev), minor(wanted.st_rdev));
        return (found.stx_rdev_major, found.stx_rdev_minor) == wanted;
    }
    let device = (major(wanted.st_dev), minor(wanted.st_dev));
    (found.stx_dev_major, found.stx_dev_minor) == device && found.stx_ino == wanted.st_ino
}

/// Whether a descriptor can be written to, by what /proc says of it; one that is gone cannot.
fn can_write(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.is_some_and(|flags| {
        u32::from_str_radix(flags.trim(), 8)
            .map_or(true, |flags| flags & libc::O_ACCMODE.cast_unsigned() != 0)
    })
}

/// Whether root started a process, whatever rights it has itself: somebody may have given the file to a set-user-id program.
fn is_of_root(process: &Path) -> io::Result<bool> {
    let status = unless_gone(fs::read_to_string(process.join("status")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    Ok(line.is_some_and(|line| line.split_whitespace().next() == Some("0")))
}

fn name_of(id: u32) -> String {
    let name = fs::read(format!("/proc/{id}/comm")).unwrap_or_default();
    shown(name.trim_ascii_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named_in_a_sentence() {
        let process = |id| Process {
            id,
            name: "cat".to_owned(),
        };
        let said = |count| Processes((1..=count).map(process).collect()).to_string();
        assert_eq!(said(1), "process 1 (cat)");
        assert_eq!(said(2), "processes 1 (cat), 2 (cat)");
        assert!(said(7).ends_with("5 (cat) and 2 more"));
    }

    #[test]
    fn who_holds_nothing_of_a_device_is_not_named() {
        let holders = Holders::of(Path::new("/nowhere"));
        assert!(holders.device.is_empty() && holders.alive.is_empty() && holders.dead.is_empty());
    }
}
