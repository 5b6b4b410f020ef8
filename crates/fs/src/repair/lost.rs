//! The directory for inodes that lost their names.

use super::Done;
use super::links::Adopt;
use crate::core::dirent_type;
use crate::error::Error;
use crate::types::NewInode;
use crate::volume::Volume;
use loamfs_format::Ino;
use loamfs_format::inode::{ROOT_INO, mode};

/// Where inodes without a name get one.
const LOST_AND_FOUND: &str = "lost+found";
/// Names tried for that directory, in case something else has the first ones.
const LOST_AND_FOUND_TRIES: u32 = 16;
/// Entries read at once when subdirectories are counted.
const ENTRIES_STEP: usize = 1024;

/// Gives an inode a name in the directory for such inodes.
pub(super) fn name(volume: &Volume, ino: Ino) -> Result<Done, Error> {
    let file_type = match volume.getattr(ino) {
        Err(Error::Stale(_)) => return Ok(Done::No("the inode does not exist")),
        other => other?.mode & mode::TYPE,
    };
    let links = if file_type == mode::DIRECTORY {
        2 + subdirectories(volume, ino)?
    } else {
        1
    };
    let dir = lost_and_found(volume)?;
    let adopt = Adopt {
        parent: dir,
        name: format!("#{ino}"),
        ino,
        links,
    };
    volume.run(|core| core.perform(&adopt))
}

/// The directory for inodes that lost their names, made if it is not there.
fn lost_and_found(volume: &Volume) -> Result<Ino, Error> {
    let new = NewInode {
        mode: 0o700,
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
    };
    for attempt in 0..LOST_AND_FOUND_TRIES {
        let name = match attempt {
            0 => LOST_AND_FOUND.to_owned(),
            n => format!("{LOST_AND_FOUND}.{n}"),
        };
        match volume.lookup(ROOT_INO, name.as_bytes()) {
            Err(Error::NotFound) => {
                return Ok(volume.mkdir(ROOT_INO, name.as_bytes(), &new)?.ino);
            }
            Ok(attr) if attr.mode & mode::TYPE == mode::DIRECTORY => return Ok(attr.ino),
            // Something else has the name.
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Exists)
}

/// Counts the directories that a directory names.
fn subdirectories(volume: &Volume, dir: Ino) -> Result<u32, Error> {
    let directory = dirent_type(mode::DIRECTORY);
    // Behind `.` and `..`.
    let (mut position, mut count) = (2, 0u32);
    loop {
        let entries = volume.readdir(dir, position, ENTRIES_STEP)?;
        let found = entries.iter().filter(|e| e.file_type == directory).count();
        count = count.saturating_add(u32::try_from(found).unwrap_or(u32::MAX));
        match entries.last() {
            // A damaged directory must not be listed for ever.
            Some(last) if last.next > position => position = last.next,
            _ => return Ok(count),
        }
    }
}
