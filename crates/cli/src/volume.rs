//! A volume that is not mounted, opened for one command, and paths on it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use loamfs_device::{Device, DeviceError, FileDevice, FileOptions, Mode};
use loamfs_format::Ino;
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_fs::types::Attr;
use loamfs_fs::{Env, Error, GroupNo, OpenOptions, Rebuild, Volume};

use crate::failure::{Failure, Kind};
use crate::members::{self, Absent};
use crate::mount::unwritable::{self, Instead};
use crate::mount::{patience, wait_until_harmless};
use crate::mounts;
use crate::readers::{self, Kept};
use crate::text::{shown, shown_path};

/// What a command wants to do with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look, beside other readers, without a single write.
    Read,
    /// The same at what there is: of several devices others than the one that leads may be missing.
    Degraded,
    /// Change, alone.
    Write,
}

impl Access {
    /// To read a volume, or what there is of it.
    pub const fn reading(degraded: bool) -> Self {
        match degraded {
            true => Self::Degraded,
            false => Self::Read,
        }
    }

    /// Whether nothing is written.
    const fn is_reading(self) -> bool {
        matches!(self, Self::Read | Self::Degraded)
    }
}

/// How a command reads.
#[derive(Clone, Copy, Debug, Args)]
pub struct Reading {
    /// Read what there is, though devices of the volume are missing; what stands on those is an error. `loamfs salvage`
    /// brings out parts of files, too.
    #[arg(long)]
    degraded: bool,
}

impl Reading {
    /// What is wanted of the volume.
    pub const fn access(self) -> Access {
        Access::reading(self.degraded)
    }
}

/// Opens the device of a volume, with the others if it has several, and says in a sentence why that does not work.
///
/// # Errors
///
/// What the device said, or which of several is missing.
pub fn open_device(path: &Path, access: Access) -> Result<Arc<dyn Device>, Failure> {
    let absent = match access {
        Access::Degraded => Absent::Allowed,
        Access::Read | Access::Write => Absent::Refused,
    };
    let device = open_one(path, access)?;
    members::complete(path, device, members::named(), absent, |other| {
        open_one(other, access)
    })
}

/// Opens a device alone.
///
/// # Errors
///
/// What the device said.
pub fn open_one(path: &Path, access: Access) -> Result<Arc<FileDevice>, Failure> {
    let mode = match access {
        Access::Read | Access::Degraded => Mode::ReadOnly,
        Access::Write => Mode::ReadWriteExclusive,
    };
    let mut options = FileOptions::new(mode);
    // Of what is mounted it is known that nobody lets go soon.
    options.lock_wait = match mounts::find_source(path) {
        Some(_) => Duration::ZERO,
        None => patience::of_command(),
    };
    if access == Access::Write {
        unwritable::refuse_device(path, Instead::Change)?;
    }
    match readers::open_with_image(path, &options, Kept::ByLock) {
        Ok(device) => {
            if access == Access::Write && !device.is_block_device() {
                wait_until_harmless(path, patience::of_command())?;
            }
            Ok(Arc::new(device))
        }
        Err(error @ DeviceError::Busy { .. }) => Err(match mounts::find_source(path) {
            Some(mount) => Failure::new(
                Kind::Busy,
                format!(
                    "{} is mounted on {}; unmount that first",
                    shown_path(path),
                    shown_path(&mount.path)
                ),
            ),
            None => Failure::device(path, &error),
        }),
        Err(error) => {
            let failure = Failure::device(path, &error);
            Err(match access {
                Access::Write => unwritable::explained(path, failure, Instead::Change),
                Access::Read | Access::Degraded => failure,
            })
        }
    }
}

/// A volume, open for a command.
pub struct Opened {
    /// The volume.
    volume: Volume,
    path: Box<Path>,
    access: Access,
}

impl Opened {
    /// Opens the volume on a device or in a file.
    ///
    /// # Errors
    ///
    /// If there is none, somebody else uses it, or it is damaged.
    pub fn open(path: &Path, access: Access) -> Result<Self, Failure> {
        Self::open_to_repair(path, access, Vec::new(), Rebuild::default())
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The same, with groups whose descriptors count wrongly, and what is known of maps of which nodes cannot be read.
    ///
    /// # Errors
    ///
    /// As [`Opened::open`].
    pub fn open_to_repair(
        path: &Path,
        access: Access,
        recount: Vec<GroupNo>,
        rebuild: Rebuild,
    ) -> Result<Self, Failure> {
        let device = open_device(path, access)?;
        let options = OpenOptions {
            read_only: access.is_reading(),
            recount,
            rebuild,
            ..OpenOptions::default()
        };
        let volume = Volume::open(device, &options, Env::system())
            .map_err(|error| Failure::volume(path, &error))?;
        Ok(Self {
            volume,
            path: path.into(),
            access,
        })
    }

    /// Ends the work; what was changed is on the device when this returns.
    ///
    /// # Errors
    ///
    /// If that could not be done.
    pub fn finish(self) -> Result<(), Failure> {
        match self.access {
            Access::Read | Access::Degraded => Ok(()),
            Access::Write => self
                .volume
                .close()
                .map_err(|error| Failure::volume(&self.path, &error)),
        }
    }

    /// Turns an error about a name on the volume into a failure.
    pub fn failed(&self, name: &[u8], error: &Error) -> Failure {
        let what = Path::new("/").join(shown(trim(name)));
        match error {
            // Which device it is, it says itself.
            Error::Device(DeviceError::Member { .. }) => Failure::volume(&what, error),
            Error::Device(_) => Failure::volume(&self.path, error),
            error => Failure::volume(&what, error),
        }
    }

    /// What a path leads to. The last component may be a symbolic link, which is not followed;
    /// neither are others, because a link means nothing outside a mount.
    ///
    /// # Errors
    ///
    /// If there is nothing.
    pub fn resolve(&self, path: &[u8]) -> Result<Attr, Failure> {
        let mut attr = self
            .volume
            .getattr(ROOT_INO)
            .map_err(|error| self.failed(path, &error))?;
        for name in components(path) {
            attr = self
                .volume
                .lookup(attr.ino, name)
                .map_err(|error| self.failed(path, &error))?;
        }
        Ok(attr)
    }

    /// The directory that holds the last component of a path, and that component. The root has
    /// none.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub fn resolve_parent<'a>(&self, path: &'a [u8]) -> Result<Option<(Ino, &'a [u8])>, Failure> {
        let Some(name) = components(path).last() else {
            return Ok(None);
        };
        let trimmed = trim_end(path);
        let parent = self.resolve(&trimmed[..trimmed.len() - name.len()])?;
        if !is_dir(&parent) {
            return Err(self.failed(path, &Error::NotDirectory));
        }
        Ok(Some((parent.ino, name)))
    }

    /// The entries of a directory but `.` and `..`, by name. Names that could lead elsewhere when
    /// they are used as paths are damage, and left out.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn entries(&self, dir: Ino, path: &[u8]) -> Result<Vec<(Vec<u8>, Ino)>, Failure> {
        const BATCH: usize = 1024;
        let mut entries = Vec::new();
        let mut position = 0;
        loop {
            let batch = self
                .volume
                .readdir(dir, position, BATCH)
                .map_err(|error| self.failed(path, &error))?;
            match batch.last() {
                // A damaged directory must not be listed for ever.
                Some(last) if last.next != position => position = last.next,
                _ => break,
            }
            entries.extend(
                batch
                    .into_iter()
                    .filter(|entry| is_name(&entry.name))
                    .map(|entry| (entry.name, entry.ino)),
            );
        }
        entries.sort_unstable();
        Ok(entries)
    }
}

/// Whether an inode is a directory.
pub fn is_dir(attr: &Attr) -> bool {
    attr.mode & mode::TYPE == mode::DIRECTORY
}

/// Whether an inode is a regular file.
pub fn is_file(attr: &Attr) -> bool {
    attr.mode & mode::TYPE == mode::REGULAR
}

/// Whether an inode is a symbolic link.
pub fn is_symlink(attr: &Attr) -> bool {
    attr.mode & mode::TYPE == mode::SYMLINK
}

/// The names in a path, without empty ones.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
}

fn trim(path: &[u8]) -> &[u8] {
    let start = path.iter().take_while(|&&byte| byte == b'/').count();
    &path[start..]
}

fn trim_end(path: &[u8]) -> &[u8] {
    let slashes = path.iter().rev().take_while(|&&byte| byte == b'/').count();
    &path[..path.len() - slashes]
}

/// Whether a name is a single component other than `.` and `..`.
pub fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_into_names() {
        let names: Vec<_> = components(b"//a/b//c/").collect();
        assert_eq!(names, [b"a", b"b", b"c"]);
        assert_eq!(components(b"/").count(), 0);
        assert_eq!(trim_end(b"a/b//"), b"a/b");
        assert_eq!(trim(b"//a/"), b"a/");
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for name in [&b"."[..], b"..", b"", b"a/b", b"a\0b"] {
            assert!(!is_name(name));
        }
        assert!(is_name(b"..."));
    }
}
