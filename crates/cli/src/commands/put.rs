//! `loamfs put`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use std::vec::IntoIter;

use clap::Args;
use loamfs_format::Ino;
use loamfs_format::inode::mode;
use loamfs_fs::Error;
use loamfs_fs::types::{Attr, NewInode, SetAttr, SetTime, Timestamp};
use rustix::fs::{CWD, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::attributes;
use crate::descent::{Descent, Directory, Left};
use crate::failure::{Failure, Kind};
use crate::node::{Identity, Node, identity, names, open};
use crate::progress::CopyProgress;
use crate::text::{self, shown_path};
use crate::trouble::Trouble;
use crate::volume::{Access, Opened, is_dir};

/// Bytes that are written at a time.
const CHUNK: usize = 1 << 20;

/// Files after which the volume may carry out what has become due.
const FILES_PER_TICK: u32 = 256;

/// How long the holder of a lease on a file may take to give it back: how often it is asked, and the time between.
const LEASE_TRIES: u32 = 50;
const LEASE_PAUSE: Duration = Duration::from_millis(100);

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs put volume.img ~/src /src
      A tree.
  tar -cf - . | loamfs put volume.img - /backup.tar
      What another program writes.";

/// Copy files and directories into an unmounted volume.
///
/// Directories are copied with everything in them. Mode, owner, times, hard links and extended
/// attributes are kept; those other than `user.` if you are root. If the target is a directory, the
/// sources go into it; `-` as a source is standard input. What is there already is not changed
/// without --force. What cannot be copied is told, and the rest copied all the same.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PutArgs {
    /// Replace files that are there already, and fill directories that are.
    #[arg(long, short)]
    force: bool,
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
            progress: CopyProgress::new("putting", self.json),
            force: self.force,
            since_tick: 0,
        };
        if put.progress.is_shown() {
            let (files, bytes) = total(&self.sources);
            put.progress.expect(files, bytes);
        }
        let copied = self
            .sources
            .iter()
            .try_for_each(|source| self.copy(&mut put, source));
        let summary = put.progress.finish();
        // What was copied before a failure belongs on the device too.
        opened.finish()?;
        copied?;
        summary.report("put")
    }

    fn copy(&self, put: &mut Put<'_>, source: &Path) -> Result<(), Failure> {
        let target = text::bytes(&self.target);
        let into = put.opened.resolve(target).ok().filter(is_dir);
        let (dir, name) = match into {
            Some(dir) => (dir.ino, name_of(source)?.as_bytes()),
            None if self.sources.len() > 1 => {
                return Err(put.opened.failed(target, &Error::NotDirectory));
            }
            None => match put.opened.resolve_parent(target)? {
                Some((dir, name)) => (dir, name),
                None => return Err(put.opened.failed(target, &Error::IsDirectory)),
            },
        };
        if source == Path::new("-") {
            let copied = put.standard_input(dir, name);
            return copied.map_err(|trouble| trouble.of(source));
        }
        put.tree(dir, name, source)
    }
}

fn name_of(source: &Path) -> Result<&OsStr, Failure> {
    source
        .file_name()
        .filter(|name| *name != "-")
        .ok_or_else(|| {
            Failure::usage(format!(
                "{} has no name of its own; name the file that it becomes, not a directory",
                shown_path(source)
            ))
        })
}

struct Put<'a> {
    opened: &'a Opened,
    /// Files with several names that were copied, and their numbers and generations there.
    links: HashMap<Identity, (Ino, u32)>,
    progress: CopyProgress,
    /// Whether what is there already may be replaced.
    force: bool,
    since_tick: u32,
}

/// A directory that is being copied.
struct Level {
    /// What it has become.
    ino: Ino,
    /// What it is here; nothing of the one that the sources are named from.
    metadata: Option<Metadata>,
    left: IntoIter<Vec<u8>>,
}

/// The way down a source.
type Way = Descent<Level>;

impl Put<'_> {
    /// Copies `source` and everything below it. Not recursive: a tree may be deeper than a stack.
    fn tree(&mut self, dir: Ino, name: &[u8], source: &Path) -> Result<(), Failure> {
        let first = Level {
            ino: dir,
            metadata: None,
            left: vec![text::bytes(source.as_os_str()).to_vec()].into_iter(),
        };
        let from = if source.is_absolute() { "/" } else { "." };
        let begun = open(CWD, from, OFlags::PATH | OFlags::DIRECTORY).and_then(Directory::new);
        let (begun, _) = begun.map_err(|error| Failure::io(source, &error))?;
        let mut way = Descent::new(Vec::new(), begun, first);
        while let Some(level) = way.data() {
            let into = level.ino;
            let Some(from) = level.left.next() else {
                self.leave(&mut way)?;
                continue;
            };
            let to = if way.depth() == 0 { name } else { &from };
            let mut troubles = Vec::new();
            let copied = self.one(&mut way, &from, into, to, &mut troubles);
            let below = copied.unwrap_or_else(|trouble| {
                troubles.push(trouble);
                None
            });
            self.progress.bad(|| way.path(&from), troubles)?;
            if let Some((dir, level)) = below {
                way.enter(from, dir, level);
            }
        }
        Ok(())
    }

    /// Goes up, out of a directory of which everything was copied.
    fn leave(&mut self, way: &mut Way) -> Result<(), Failure> {
        let Some(Left { name, dir, data }) = way.leave() else {
            return Ok(());
        };
        let Some(metadata) = data.metadata else {
            return Ok(());
        };
        let mut troubles = Vec::new();
        let finished = dir
            .map_err(Trouble::from)
            .and_then(|dir| self.finish(&dir.into(), &metadata, data.ino, &mut troubles));
        troubles.extend(finished.err());
        self.progress.bad(|| way.path(&name), troubles)
    }

    /// Copies what is called `from` here to `to` in a directory there. Returns the directory, if it is one, whose entries
    /// are to be copied.
    fn one(
        &mut self,
        way: &mut Way,
        from: &[u8],
        into: Ino,
        to: &[u8],
        troubles: &mut Vec<Trouble>,
    ) -> Result<Option<(Directory, Level)>, Trouble> {
        self.progress.file();
        self.tick()?;
        let dir = way.dir()?;
        let (node, metadata) = Node::find(dir, from)?;
        let new = NewInode {
            mode: metadata.mode() & !mode::TYPE,
            umask: 0,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: device_number(metadata.rdev()),
        };
        if metadata.is_dir() {
            let ino = self.directory(into, to, &new)?.ino;
            let read = open_found(dir, from, &metadata, OFlags::DIRECTORY)?;
            let left = names(&read)?.into_iter();
            let level = Level {
                ino,
                metadata: Some(metadata),
                left,
            };
            return Ok(Some((Directory::new(read)?.0, level)));
        }
        if let Some(ino) = self.copied(&metadata) {
            self.link(ino, into, to)?;
            return Ok(None);
        }
        let volume = self.opened.volume();
        let (made, node) = match metadata.mode() & mode::TYPE {
            mode::REGULAR => {
                let file = open_found(dir, from, &metadata, OFlags::empty())?;
                let made = self.disinherit(self.file(into, to, &new)?)?;
                self.sparse(made.ino, &file)?;
                (made, file.into())
            }
            mode::SYMLINK => {
                self.make_room(into, to)?;
                (volume.symlink(into, to, &node.target()?, &new)?, node)
            }
            file_type => {
                self.make_room(into, to)?;
                let made = volume.mknod(into, to, file_type, &new)?;
                (self.disinherit(made)?, node)
            }
        };
        self.finish(&node, &metadata, made.ino, troubles)?;
        if metadata.nlink() > 1 {
            let copied = (made.ino, made.generation);
            self.links.insert(identity(&metadata), copied);
        }
        Ok(None)
    }

    /// What a file with several names has become, if it was copied and has a name there still: a source behind it may have
    /// come to the same name, and replaced it, and another file may have its number by now.
    fn copied(&self, metadata: &Metadata) -> Option<Ino> {
        if metadata.nlink() < 2 {
            return None;
        }
        let &(ino, generation) = self.links.get(&identity(metadata))?;
        let found = self.opened.volume().getattr(ino).ok()?;
        (found.generation == generation && found.nlink > 0).then_some(ino)
    }

    /// Gives what was copied one more name. Where it has that already it stays: that may be the only one.
    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), Trouble> {
        let volume = self.opened.volume();
        let there = volume.lookup(dir, name);
        if self.force && there.is_ok_and(|found| found.ino == ino) {
            return Ok(());
        }
        self.make_room(dir, name)?;
        volume.link(ino, dir, name)?;
        Ok(())
    }

    fn standard_input(&mut self, dir: Ino, name: &[u8]) -> Result<(), Trouble> {
        let new = NewInode {
            mode: 0o644,
            umask: 0,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
        };
        self.progress.file();
        let attr = self.file(dir, name, &new)?;
        self.data(attr.ino, 0, &mut io::stdin().lock())
    }

    /// Takes away what has that name, if it may be replaced. Directories stay.
    fn make_room(&self, dir: Ino, name: &[u8]) -> Result<(), Trouble> {
        let volume = self.opened.volume();
        match volume.lookup(dir, name) {
            Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) if !self.force => Err(Trouble::There),
            Ok(found) if is_dir(&found) => Err(Error::IsDirectory.into()),
            Ok(_) => Ok(volume.unlink(dir, name)?),
        }
    }

    /// The directory of that name, made if it is not there.
    fn directory(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr, Trouble> {
        let volume = self.opened.volume();
        Ok(match volume.mkdir(dir, name, new) {
            Err(Error::Exists) if !self.force => return Err(Trouble::There),
            Err(Error::Exists) => match volume.lookup(dir, name) {
                Ok(attr) if !is_dir(&attr) => Err(Error::NotDirectory),
                found => found,
            },
            made => made.and_then(|made| self.disinherit(made)),
        }?)
    }

    /// Takes the access lists away that what was made just now has got from its directory: it is to have those of what it is
    /// copied from, if any.
    fn disinherit(&self, made: Attr) -> Result<Attr, Error> {
        let attributes = self.opened.volume().xattrs(made.ino);
        for list in attributes.list()? {
            attributes.remove(&list)?;
        }
        Ok(made)
    }

    /// A new regular file of that name.
    fn file(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr, Trouble> {
        self.make_room(dir, name)?;
        Ok(self.opened.volume().create(dir, name, new)?)
    }

    /// Copies a file's data, as far as it reaches now; its holes stay holes.
    fn sparse(&mut self, ino: Ino, file: &File) -> Result<(), Trouble> {
        let size = file.metadata()?.len();
        let mut from = 0;
        while let Some(range) = next_data(file, from, size)? {
            rustix::fs::seek(file, SeekFrom::Start(range.start))?;
            from = range.end;
            let mut part = file.take(range.end - range.start);
            self.data(ino, range.start, &mut part)?;
        }
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.opened.volume().setattr(ino, &set)?;
        Ok(())
    }

    fn data(&mut self, ino: Ino, mut offset: u64, from: &mut dyn Read) -> Result<(), Trouble> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let len = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if len == 0 {
                return Ok(());
            }
            let mut rest = &buffer[..len];
            while !rest.is_empty() {
                let written = self.opened.volume().write(ino, offset, rest)?;
                rest = &rest[written.min(rest.len())..];
                offset += written as u64;
                self.progress.bytes(written as u64);
                if written == 0 {
                    return Err(Error::NoSpace.into());
                }
            }
        }
    }

    /// Sets what making and filling it has changed.
    fn finish(
        &self,
        node: &Node,
        metadata: &Metadata,
        ino: Ino,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Trouble> {
        let volume = self.opened.volume();
        let given = attributes::put(volume, node, ino, troubles);
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
        volume.setattr(ino, &set)?;
        given
    }

    fn tick(&mut self) -> Result<(), Trouble> {
        self.since_tick += 1;
        if self.since_tick < FILES_PER_TICK {
            return Ok(());
        }
        self.since_tick = 0;
        let ticked = self.opened.volume().upkeep().tick();
        Ok(ticked.map_err(|error| self.opened.failed(b"", &error))?)
    }
}

/// Opens a directory or regular file that was found in a directory, if it is still there. Nothing is waited for: not for
/// whoever should write into a fifo that somebody puts in its place, and not long for the holder of a lease.
fn open_found(dir: &File, name: &[u8], found: &Metadata, flags: OFlags) -> Result<File, Trouble> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut tries = 0;
    let file = loop {
        match open(dir, name, flags) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < LEASE_TRIES => {
                tries += 1;
                thread::sleep(LEASE_PAUSE);
            }
            opened => break opened?,
        }
    };
    if identity(&file.metadata()?) == identity(found) {
        return Ok(file);
    }
    let words = "somebody has put something else in its place meanwhile; copy it again";
    Err(Trouble::Said(Kind::Io, words.to_owned()))
}

/// Files and bytes below these paths, as far as they can be told.
fn total(sources: &[PathBuf]) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    let mut left: Vec<PathBuf> = sources.to_vec();
    while let Some(path) = left.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        files += 1;
        if metadata.is_file() {
            bytes += metadata.len();
        }
        let entries = metadata
            .is_dir()
            .then(|| fs::read_dir(&path).ok())
            .flatten();
        left.extend(
            entries
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path()),
        );
    }
    (files, bytes)
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

/// The first range of data of a file at or behind `from`, and before `size`: a file that somebody makes longer all the
/// time must come to an end. Where holes cannot be told from data, it is all of the rest.
fn next_data(file: &File, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if from >= size {
        return Ok(None);
    }
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) if start >= size => Ok(None),
        Ok(start) => {
            let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
            Ok(Some(start..end.min(size)))
        }
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(from..size)),
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
