//! The other devices of a volume of several: those that were named, then those that the kernel has.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use loamfs_device::{Device, FileDevice};
use loamfs_format::superblock::Superblock;
use loamfs_fs::members::{Candidate, join, join_without, leading};
use loamfs_fs::{Env, Joining, LogError, Purpose, Replacing, superblocks};

use crate::failure::Failure;
use crate::report::Identity;
use crate::signatures;
use crate::text::shown_path;

/// Devices that the command line names for the command.
static NAMED: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// What becomes of a volume of which a device is missing that does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It is refused.
    Refused,
    /// What stands on the others is read.
    Allowed,
}

/// Keeps what the command line names.
pub fn set_named(paths: Vec<PathBuf>) {
    // It is read once.
    let _ = NAMED.set(paths);
}

/// What the command line names.
pub fn named() -> &'static [PathBuf] {
    NAMED.get().map_or(&[], Vec::as_slice)
}

/// Adds a device to the volume on `first` and `others`. What it held goes when nothing can refuse it any more. Returns the volume's
/// size before and after, in bytes.
///
/// # Errors
///
/// Why it cannot join; then it is as it was.
pub fn add(
    first: &Candidate,
    others: &[Candidate],
    new: (&Candidate, Purpose),
) -> Result<(u64, u64), loamfs_fs::Error> {
    let env = Env::system();
    let joining = Joining::ask(first, others, new, &env)?;
    wipe_signatures(&new.0.device)?;
    joining.join()
}

/// Puts a new device in the place of the one that leads, which is missing. What it held goes when nothing can refuse it any more.
/// Returns the volume's size, and how much of the copy cannot be read, in bytes.
///
/// # Errors
///
/// Why it cannot; then it is as it was.
pub fn replace_missing(
    first: &Candidate,
    others: &[Candidate],
    new: &Candidate,
) -> Result<(u64, u64), loamfs_fs::Error> {
    let replacing = Replacing::ask(first, others, new)?;
    wipe_signatures(&new.device)?;
    replacing.replace(&Env::system())
}

fn wipe_signatures(device: &Arc<dyn Device>) -> Result<(), loamfs_fs::Error> {
    let found = signatures::find(device)?;
    signatures::wipe(device, &found)?;
    Ok(device.flush()?)
}

/// The whole volume of which `device`, at `path`, is one: the `others` that were named are opened first, and where some are
/// missing then, those of the kernel's block devices that say that they are it. A volume of one device is that device.
///
/// # Errors
///
/// Which device is missing, is another volume's, or cannot be opened.
pub fn complete(
    path: &Path,
    device: Arc<FileDevice>,
    others: &[PathBuf],
    absent: Absent,
    open: impl Fn(&Path) -> Result<Arc<FileDevice>, Failure>,
) -> Result<Arc<dyn Device>, Failure> {
    let others = others_of(path, &device, others, open)?;
    match superblocks::find(&device).is_ok_and(|copies| copies.newest.has_devices()) {
        true => joined(path, device, &others, absent),
        // Whoever opens the volume says what is wrong with it.
        false => Ok(device),
    }
}

/// The other devices of the volume of which `device`, at `path`, is one, as for [`complete`].
///
/// # Errors
///
/// As for [`complete`].
pub fn others_of(
    path: &Path,
    device: &Arc<FileDevice>,
    others: &[PathBuf],
    open: impl Fn(&Path) -> Result<Arc<FileDevice>, Failure>,
) -> Result<Vec<Candidate>, Failure> {
    let found = superblocks::find(device).ok().map(|copies| copies.newest);
    let Some(sb) = found.filter(Superblock::has_devices) else {
        return match others.first() {
            None => Ok(Vec::new()),
            Some(other) => Err(Failure::usage(format!(
                "{} is a volume of one device; leave out {}",
                shown_path(path),
                shown_path(other)
            ))),
        };
    };
    let mut candidates = Vec::new();
    for other in others {
        candidates.push(candidate(other, open(other)?));
    }
    let say = |other: &Candidate| Some(superblocks::find(other.device.as_ref()).ok()?.newest);
    let mut said: Vec<Superblock> = candidates.iter().filter_map(say).collect();
    said.push(sb);
    // Once the device that leads is found, its table counts: a crash may have left an older one on the others.
    while let Some(table) = leading(said.iter()).or(said.last()) {
        let known: Vec<[u8; 16]> = said.iter().filter_map(own).collect();
        if table
            .devices
            .iter()
            .all(|entry| known.contains(&entry.uuid))
        {
            break;
        }
        let mut found = Vec::new();
        for path in attached(table, &known) {
            found.push(candidate(&path, open(&path)?));
        }
        let before = said.len();
        said.extend(found.iter().filter_map(say));
        candidates.extend(found);
        if said.len() == before {
            break;
        }
    }
    Ok(candidates)
}

/// The whole volume out of devices that are all known, as far as none is missing.
///
/// # Errors
///
/// As for [`complete`].
pub fn whole(
    path: &Path,
    device: &Arc<FileDevice>,
    others: &[(PathBuf, Arc<FileDevice>)],
    absent: Absent,
) -> Result<Arc<dyn Device>, Failure> {
    let others = others
        .iter()
        .map(|(path, other)| candidate(path, Arc::clone(other)));
    joined(
        path,
        Arc::clone(device),
        &others.collect::<Vec<_>>(),
        absent,
    )
}

/// A device, called by its path.
pub fn candidate(path: &Path, device: Arc<FileDevice>) -> Candidate {
    Candidate {
        name: shown_path(path),
        device,
    }
}

fn joined(
    path: &Path,
    device: Arc<FileDevice>,
    others: &[Candidate],
    absent: Absent,
) -> Result<Arc<dyn Device>, Failure> {
    let join = match absent {
        Absent::Refused => join,
        Absent::Allowed => join_without,
    };
    join(&candidate(path, device), others)
        .map_err(|error| Failure::volume(path, &LogError::from(error).into()))
}

/// Which device a copy stands on.
fn own(sb: &Superblock) -> Option<[u8; 16]> {
    sb.own_device().map(|entry| entry.uuid)
}

/// The kernel's block devices that are devices of the volume, but for those that are known.
fn attached(sb: &Superblock, known: &[[u8; 16]]) -> Vec<PathBuf> {
    let wanted = |path: &PathBuf| {
        let said = Identity::probe(path).ok();
        let said = said.as_ref().map(Identity::superblock);
        let uuid = said.filter(|said| said.uuid == sb.uuid).and_then(own);
        uuid.is_some_and(|uuid| {
            !known.contains(&uuid) && sb.devices.iter().any(|entry| entry.uuid == uuid)
        })
    };
    let all = block_devices(Path::new("/sys/class/block"));
    let mut paths: Vec<PathBuf> = all.into_iter().filter(wanted).collect();
    paths.sort();
    paths
}

/// All that the kernel has, by what it says of them, and that hold something. Those that are part of another one, as paths to one
/// disk are and the disks of a mirror, say what that says: it alone counts.
fn block_devices(told: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(told) else {
        return Vec::new();
    };
    let holds = |entry: &fs::DirEntry| {
        let size = fs::read_to_string(entry.path().join("size"));
        // A partition is in the folder of its disk, and that is what is claimed.
        let place = entry.path();
        let is_partition = place.join("partition").exists();
        let disk = is_partition
            .then(|| fs::canonicalize(&place).ok())
            .flatten();
        let disk = disk.as_deref().and_then(Path::parent);
        let is_claimed = |place: &Path| {
            let holders = fs::read_dir(place.join("holders"));
            holders.is_ok_and(|mut holders| holders.next().is_some())
        };
        !is_claimed(&place)
            && !disk.is_some_and(is_claimed)
            && size.is_ok_and(|size| size.trim() != "0")
    };
    // The kernel writes `!` for the slashes in a device's name.
    let path = |name: &OsStr| Path::new("/dev").join(name.to_string_lossy().replace('!', "/"));
    let entries = entries.flatten().filter(holds);
    entries.map(|entry| path(&entry.file_name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_behind_another_device_are_not_found_beside_it() {
        let told = tempfile::tempdir().unwrap();
        let devices = [
            ("sda", "8", true),
            ("sdb", "8", true),
            ("dm-0", "8", false),
            ("loop0", "0", false),
        ];
        for (name, size, is_claimed) in devices {
            let entry = told.path().join(name);
            fs::create_dir_all(entry.join("holders")).unwrap();
            fs::write(entry.join("size"), format!("{size}\n")).unwrap();
            if is_claimed {
                fs::create_dir(entry.join("holders/dm-0")).unwrap();
            }
        }
        // A partition may have none.
        fs::create_dir(told.path().join("cciss!c0d0p1")).unwrap();
        fs::write(told.path().join("cciss!c0d0p1/size"), "8\n").unwrap();
        // Partitions of what is claimed are in the folder of their disk.
        let devices = tempfile::tempdir().unwrap();
        for (disk, is_claimed) in [("sdc", true), ("sdd", false)] {
            let part = devices.path().join(format!("{disk}/{disk}1"));
            fs::create_dir_all(&part).unwrap();
            fs::write(part.join("size"), "8\n").unwrap();
            fs::write(part.join("partition"), "1\n").unwrap();
            if is_claimed {
                fs::create_dir_all(devices.path().join(disk).join("holders/dm-0")).unwrap();
            }
            std::os::unix::fs::symlink(&part, told.path().join(format!("{disk}1"))).unwrap();
        }
        let mut found = block_devices(told.path());
        found.sort();
        assert_eq!(
            found,
            ["/dev/cciss/c0d0p1", "/dev/dm-0", "/dev/sdd1"].map(PathBuf::from)
        );
    }
}
