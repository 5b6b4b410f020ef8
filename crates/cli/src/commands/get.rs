//! `loamfs get`.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use loamfs_format::Ino;
use loamfs_format::inode::mode;
use loamfs_fs::types::{Attr, Timestamp};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::process::geteuid;

use crate::attributes;
use crate::failure::{Failure, Kind};
use crate::progress::CopyProgress;
use crate::sparse::data_ranges;
use crate::text;
use crate::volume::{Access, Opened, components, is_dir};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Copy files and directories out of an unmounted volume.
///
/// Directories are copied with everything in them. Mode, times, hard links and `user.` attributes
/// are kept; owners and other attributes too if you are root. What is there already is not
/// overwritten.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The device or image file.
    device: PathBuf,
    /// What to copy, on the volume.
    path: OsString,
    /// Where to; into it if it is a directory.
    #[arg(default_value = ".")]
    target: PathBuf,
}

impl GetArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If something cannot be read or written. What was copied before stays.
    pub fn run(self) -> Result<u8, Failure> {
        let opened = Opened::open(&self.device, Access::Read)?;
        let path = text::bytes(&self.path);
        let attr = opened.resolve(path)?;
        let target = match components(path).last() {
            Some(name) if self.target.is_dir() => self.target.join(OsStr::from_bytes(name)),
            _ => self.target.clone(),
        };
        let mut get = Get {
            opened: &opened,
            path,
            root: geteuid().is_root(),
            links: HashMap::new(),
            entered: HashSet::new(),
            progress: CopyProgress::new("getting"),
        };
        let copied = get.tree(attr.ino, &target);
        let summary = get.progress.finish();
        copied?;
        summary.report("got", self.json)
    }
}

struct Get<'a> {
    opened: &'a Opened,
    path: &'a [u8],
    root: bool,
    /// Files with several names that were copied.
    links: HashMap<u64, PathBuf>,
    /// Directories that were entered: on a damaged volume one may contain itself.
    entered: HashSet<u64>,
    progress: CopyProgress,
}

enum Task {
    Enter(Ino, PathBuf),
    Finish(Attr, PathBuf),
}

impl Get<'_> {
    /// Copies an inode and everything below it. Not recursive: a damaged volume may be deeper than
    /// a stack.
    fn tree(&mut self, ino: Ino, target: &Path) -> Result<(), Failure> {
        let mut tasks = vec![Task::Enter(ino, target.to_owned())];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Finish(attr, path) => self.finish(&attr, &path)?,
                Task::Enter(ino, path) => {
                    let attr = self.opened.volume.getattr(ino);
                    let attr = attr.map_err(|error| Failure::volume(&path, &error))?;
                    if !self.one(&attr, &path)? {
                        continue;
                    }
                    tasks.push(Task::Finish(attr, path.clone()));
                    if is_dir(&attr) {
                        for (name, ino) in self.opened.entries(ino, self.path)? {
                            tasks.push(Task::Enter(ino, path.join(OsStr::from_bytes(&name))));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies one inode; false if it became another name of one that was copied.
    fn one(&mut self, attr: &Attr, path: &Path) -> Result<bool, Failure> {
        self.progress.file();
        let failed = |error: io::Error| Failure::io(path, &error);
        if !is_dir(attr) && attr.nlink > 1 {
            if let Some(first) = self.links.get(&attr.ino.get()) {
                fs::hard_link(first, path).map_err(failed)?;
                return Ok(false);
            }
            self.links.insert(attr.ino.get(), path.to_owned());
        }
        match attr.mode & mode::TYPE {
            mode::DIRECTORY => {
                if !self.entered.insert(attr.ino.get()) {
                    return Err(Failure::new(
                        Kind::Data,
                        format!(
                            "{}: a directory that contains itself; run `loamfs check`",
                            path.display()
                        ),
                    ));
                }
                // Nobody else looks in before the mode is set.
                match DirBuilder::new().mode(0o700).create(path) {
                    // Only the target itself may be there.
                    Err(error)
                        if error.kind() == io::ErrorKind::AlreadyExists
                            && self.entered.len() == 1
                            && path.is_dir() => {}
                    made => made.map_err(failed)?,
                }
            }
            mode::REGULAR => self.data(attr, path)?,
            mode::SYMLINK => {
                let target = self.opened.volume.readlink(attr.ino);
                let target = target.map_err(|error| Failure::volume(path, &error))?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&target), path).map_err(failed)?;
            }
            special => {
                let (major, minor) = split_device(attr.rdev);
                rustix::fs::mknodat(
                    CWD,
                    path,
                    FileType::from_raw_mode(special),
                    Mode::from_raw_mode(0o600),
                    rustix::fs::makedev(major, minor),
                )
                .map_err(|errno| failed(errno.into()))?;
            }
        }
        Ok(true)
    }

    fn data(&mut self, attr: &Attr, path: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(path, &error);
        let file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        // A hostile volume could claim 8 EiB of holes.
        for range in data_ranges(&self.opened.volume, attr.ino) {
            let range = range.map_err(|error| Failure::volume(path, &error))?;
            let mut offset = range.start;
            while offset < range.end {
                let len = CHUNK.min(usize::try_from(range.end - offset).unwrap_or(CHUNK));
                let data = self.opened.volume.read(attr.ino, offset, len);
                let data = data.map_err(|error| Failure::volume(path, &error))?;
                if data.is_empty() {
                    break;
                }
                // What was filled with zeros becomes a hole.
                if data.iter().any(|&byte| byte != 0) {
                    file.write_all_at(&data, offset).map_err(failed)?;
                }
                offset += data.len() as u64;
                self.progress.bytes(data.len() as u64);
            }
        }
        file.set_len(attr.size).map_err(failed)
    }

    /// Sets owner, attributes, mode and times, in this order: each undoes or forbids part of the next.
    fn finish(&self, attr: &Attr, path: &Path) -> Result<(), Failure> {
        let failed = |errno: rustix::io::Errno| Failure::io(path, &errno.into());
        if self.root {
            let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed)?;
        }
        attributes::get(&self.opened.volume, attr.ino, path)?;
        if attr.mode & mode::TYPE != mode::SYMLINK {
            // Somebody else's file must not become a set-user-id program of the caller's.
            let kept = if self.root { 0o7777 } else { 0o1777 };
            rustix::fs::chmod(path, Mode::from_raw_mode(attr.mode & kept)).map_err(failed)?;
        }
        let times = Timestamps {
            last_access: timespec(attr.atime),
            last_modification: timespec(attr.mtime),
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanos.min(999_999_999).into(),
    }
}

/// The inverse of how device numbers are packed into an inode.
fn split_device(rdev: u32) -> (u32, u32) {
    (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & !0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_apart() {
        assert_eq!(split_device(0x103), (1, 3));
        assert_eq!(split_device(0x123a_bc45), (0xabc, 0x12345));
    }
}
