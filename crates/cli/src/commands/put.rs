//! `loamfs put`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use loamfs_format::Ino;
use loamfs_format::inode::mode;
use loamfs_fs::Error;
use loamfs_fs::types::{Attr, NewInode, SetAttr, SetTime, Timestamp};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::attributes;
use crate::failure::Failure;
use crate::progress::CopyProgress;
use crate::text;
use crate::volume::{Access, Opened, is_dir, is_file};

/// Bytes that are written at a time.
const CHUNK: usize = 1 << 20;

/// Files after which the volume may carry out what has become due.
const FILES_PER_TICK: u32 = 256;

/// Copy files and directories into an unmounted volume.
///
/// Directories are copied with everything in them. Mode, owner, times, hard links and extended
/// attributes are kept; those other than `user.` if you are root. If the target is a directory, the
/// sources go into it; `-` as a source is standard input.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The device or image file.
    device: PathBuf,
    /// What to copy.
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Where to, on the volume.
    target: OsString,
}

impl PutArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If something cannot be read or written. What was copied before stays.
    pub fn run(self) -> Result<u8, Failure> {
        // Opening writes already.
        for source in self
            .sources
            .iter()
            .filter(|source| *source != Path::new("-"))
        {
            fs::symlink_metadata(source).map_err(|error| Failure::io(source, &error))?;
        }
        let opened = Opened::open(&self.device, Access::Write)?;
        let mut put = Put {
            opened: &opened,
            links: HashMap::new(),
            progress: CopyProgress::new("putting"),
            since_tick: 0,
        };
        let copied = self
            .sources
            .iter()
            .try_for_each(|source| self.copy(&mut put, source));
        let summary = put.progress.finish();
        // What was copied before a failure belongs on the device too.
        opened.finish()?;
        copied?;
        summary.report("put", self.json)
    }

    fn copy(&self, put: &mut Put<'_>, source: &Path) -> Result<(), Failure> {
        let target = text::bytes(&self.target);
        let into = put.opened.resolve(target).ok().filter(is_dir);
        let (dir, name) = match into {
            Some(dir) => (dir.ino, name_of(source)?.to_owned()),
            None if self.sources.len() > 1 => {
                return Err(put.opened.failed(target, &Error::NotDirectory));
            }
            None => match put.opened.resolve_parent(target)? {
                Some((dir, name)) => (dir, OsStr::from_bytes(name).to_owned()),
                None => return Err(put.opened.failed(target, &Error::IsDirectory)),
            },
        };
        if source == Path::new("-") {
            let metadata = NewInode {
                mode: 0o644,
                umask: 0,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                rdev: 0,
            };
            let attr = put.file(dir, name.as_bytes(), &metadata, source)?;
            return put.data(attr.ino, 0, &mut io::stdin().lock(), source);
        }
        put.tree(dir, name.as_bytes(), source)
    }
}

fn name_of(source: &Path) -> Result<&OsStr, Failure> {
    source
        .file_name()
        .filter(|name| *name != "-")
        .ok_or_else(|| {
            Failure::usage(format!(
                "{} has no name of its own; name the file that it becomes, not a directory",
                source.display()
            ))
        })
}

struct Put<'a> {
    opened: &'a Opened,
    /// Files with several names that were copied: device and number here, number there.
    links: HashMap<(u64, u64), Ino>,
    progress: CopyProgress,
    since_tick: u32,
}

/// A directory whose entries are still to be copied, or which is to be finished after them.
enum Task {
    Enter(Ino, Vec<u8>, PathBuf),
    Finish(Ino, PathBuf, Metadata),
}

impl Put<'_> {
    /// Copies `source` and everything below it. Not recursive: a tree may be deeper than a stack.
    fn tree(&mut self, dir: Ino, name: &[u8], source: &Path) -> Result<(), Failure> {
        let mut tasks = vec![Task::Enter(dir, name.to_vec(), source.to_owned())];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Finish(ino, path, metadata) => self.finish(ino, &path, &metadata)?,
                Task::Enter(dir, name, path) => {
                    let metadata =
                        fs::symlink_metadata(&path).map_err(|error| Failure::io(&path, &error))?;
                    let Some(ino) = self.one(dir, &name, &path, &metadata)? else {
                        continue;
                    };
                    tasks.push(Task::Finish(ino, path.clone(), metadata.clone()));
                    if metadata.is_dir() {
                        for entry in
                            fs::read_dir(&path).map_err(|error| Failure::io(&path, &error))?
                        {
                            let entry = entry.map_err(|error| Failure::io(&path, &error))?;
                            let name = entry.file_name().as_bytes().to_vec();
                            tasks.push(Task::Enter(ino, name, entry.path()));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies one file or makes one directory. `None` if it is another name of one that is there.
    fn one(
        &mut self,
        dir: Ino,
        name: &[u8],
        path: &Path,
        metadata: &Metadata,
    ) -> Result<Option<Ino>, Failure> {
        self.progress.file();
        self.tick()?;
        let failed = |error| Failure::volume(path, &error);
        let volume = &self.opened.volume;
        let identity = (metadata.dev(), metadata.ino());
        if !metadata.is_dir()
            && metadata.nlink() > 1
            && let Some(&ino) = self.links.get(&identity)
        {
            volume.link(ino, dir, name).map_err(failed)?;
            return Ok(None);
        }
        let new = NewInode {
            mode: metadata.mode() & !mode::TYPE,
            umask: 0,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: device_number(metadata.rdev()),
        };
        let attr = match metadata.mode() & mode::TYPE {
            mode::DIRECTORY => self.directory(dir, name, &new, path)?,
            mode::REGULAR => {
                let attr = self.file(dir, name, &new, path)?;
                let file = File::open(path).map_err(|error| Failure::io(path, &error))?;
                self.sparse(attr.ino, &file, path)?;
                attr
            }
            mode::SYMLINK => {
                let target = fs::read_link(path).map_err(|error| Failure::io(path, &error))?;
                volume
                    .symlink(dir, name, target.as_os_str().as_bytes(), &new)
                    .map_err(failed)?
            }
            file_type => volume.mknod(dir, name, file_type, &new).map_err(failed)?,
        };
        if !metadata.is_dir() && metadata.nlink() > 1 {
            self.links.insert(identity, attr.ino);
        }
        Ok(Some(attr.ino))
    }

    /// The directory of that name, made if it is not there.
    fn directory(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        path: &Path,
    ) -> Result<Attr, Failure> {
        let volume = &self.opened.volume;
        let made = match volume.mkdir(dir, name, new) {
            Err(Error::Exists) => match volume.lookup(dir, name) {
                Ok(attr) if !is_dir(&attr) => Err(Error::NotDirectory),
                found => found,
            },
            made => made,
        };
        made.map_err(|error| Failure::volume(path, &error))
    }

    /// The regular file of that name, made or emptied.
    fn file(&self, dir: Ino, name: &[u8], new: &NewInode, path: &Path) -> Result<Attr, Failure> {
        let volume = &self.opened.volume;
        let empty = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        let made = match volume.create(dir, name, new) {
            Err(Error::Exists) => match volume.lookup(dir, name) {
                Ok(attr) if is_file(&attr) => volume.setattr(attr.ino, &empty),
                Ok(_) => Err(Error::Exists),
                Err(error) => Err(error),
            },
            made => made,
        };
        made.map_err(|error| Failure::volume(path, &error))
    }

    /// Copies a file's data; its holes stay holes.
    fn sparse(&mut self, ino: Ino, file: &File, path: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(path, &error);
        let mut from = 0;
        while let Some(range) = next_data(file, from).map_err(failed)? {
            rustix::fs::seek(file, SeekFrom::Start(range.start))
                .map_err(|errno| failed(errno.into()))?;
            from = range.end;
            let mut part = file.take(range.end - range.start);
            self.data(ino, range.start, &mut part, path)?;
        }
        let size = file.metadata().map_err(failed)?.len();
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let grown = self.opened.volume.setattr(ino, &set);
        grown
            .map(drop)
            .map_err(|error| Failure::volume(path, &error))
    }

    fn data(
        &mut self,
        ino: Ino,
        mut offset: u64,
        from: &mut dyn Read,
        path: &Path,
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let len = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| Failure::io(path, &error))?,
            };
            if len == 0 {
                return Ok(());
            }
            let mut rest = &buffer[..len];
            while !rest.is_empty() {
                let written = self
                    .opened
                    .volume
                    .write(ino, offset, rest)
                    .map_err(|error| Failure::volume(path, &error))?;
                rest = &rest[written.min(rest.len())..];
                offset += written as u64;
                self.progress.bytes(written as u64);
                if written == 0 {
                    return Err(Failure::volume(path, &Error::NoSpace));
                }
            }
        }
    }

    /// Sets what making and filling it has changed.
    fn finish(&self, ino: Ino, path: &Path, metadata: &Metadata) -> Result<(), Failure> {
        attributes::put(&self.opened.volume, path, ino)?;
        let is_symlink = metadata.file_type().is_symlink();
        let set = SetAttr {
            mode: (!is_symlink).then(|| metadata.mode() & !mode::TYPE),
            uid: Some(metadata.uid()),
            gid: Some(metadata.gid()),
            atime: Some(SetTime::At(timestamp(
                metadata.atime(),
                metadata.atime_nsec(),
            ))),
            mtime: Some(SetTime::At(timestamp(
                metadata.mtime(),
                metadata.mtime_nsec(),
            ))),
            ..SetAttr::default()
        };
        self.opened
            .volume
            .setattr(ino, &set)
            .map(|_| ())
            .map_err(|error| Failure::volume(path, &error))
    }

    fn tick(&mut self) -> Result<(), Failure> {
        self.since_tick += 1;
        if self.since_tick < FILES_PER_TICK {
            return Ok(());
        }
        self.since_tick = 0;
        self.opened
            .volume
            .tick()
            .map_err(|error| self.opened.failed(b"", &error))
    }
}

fn timestamp(seconds: i64, nanos: i64) -> Timestamp {
    Timestamp {
        seconds,
        nanos: u32::try_from(nanos).unwrap_or(0),
    }
}

/// A device number in the 32 bits that a mount would bring it in.
fn device_number(rdev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// The first range of data of a file at or behind `from`; where holes cannot be told from data, all of the rest.
fn next_data(file: &File, from: u64) -> io::Result<Option<Range<u64>>> {
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => Ok(Some(start..rustix::fs::seek(file, SeekFrom::Hole(start))?)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            let size = file.metadata()?.len();
            Ok((from < size).then_some(from..size))
        }
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_packed_as_the_kernel_does() {
        assert_eq!(device_number(rustix::fs::makedev(1, 3)), 0x103);
        assert_eq!(
            device_number(rustix::fs::makedev(0xabc, 0x12345)),
            0x123a_bc45
        );
    }
}
