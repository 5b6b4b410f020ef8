//! `loamfs get`.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use clap::Args;
use loamfs_format::Ino;
use loamfs_format::inode::mode;
use loamfs_fs::types::{Attr, Timestamp};
use rustix::fs::{
    AtFlags, CWD, Dev, FileType, Mode, OFlags, Timespec, Timestamps, linkat, mkdirat, mknodat,
    openat, symlinkat, unlinkat,
};
use rustix::process::{geteuid, umask};

use crate::attributes;
use crate::descent::{Descent, Directory, Left, Mark};
use crate::failure::{Failure, Kind};
use crate::node::{Identity, Node, identity, names, open, open_directory};
use crate::progress::CopyProgress;
use crate::sparse::data_ranges;
use crate::text;
use crate::trouble::Trouble;
use crate::volume::{Access, Opened, components, is_dir, is_file, is_symlink};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// The bit that gives a program the rights of its group.
const SET_GROUP_ID: u32 = 0o2000;

/// The attribute that gives a program rights of root's.
const CAPABILITIES: &[u8] = b"security.capability";

/// Why a program is not given rights of others.
const WRITTEN: &str =
    "its owner could have written to it already; copy the directory that it is in instead";

/// Copy files and directories out of an unmounted volume.
///
/// Directories are copied with everything in them. Mode, times, hard links and `user.` attributes
/// are kept; owners and other attributes too if you are root. What is there already is not
/// changed. What cannot be copied is told, and the rest copied all the same.
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
        // Nobody else looks into what is not complete.
        umask(Mode::from_raw_mode(0o077));
        let opened = Opened::open(&self.device, Access::Read)?;
        let path = text::bytes(&self.path);
        let ino = opened.resolve(path)?.ino;
        let (place, dir, entries) = self.place(&opened, ino)?;
        let begun = Directory::new(dir).map_err(|error| Failure::io(&self.target, &error));
        let (dir, metadata) = begun?;
        let first = Level {
            attr: None,
            private: is_private(&metadata),
            left: entries.into_iter(),
        };
        let mut get = Get {
            opened: &opened,
            path,
            root: geteuid().is_root(),
            way: Descent::new(text::bytes(place.as_os_str()).to_vec(), dir, first),
            links: HashMap::new(),
            entered: HashSet::new(),
            progress: CopyProgress::new("getting", self.json),
        };
        let copied = get.all();
        let summary = get.progress.finish();
        copied?;
        summary.report("got")
    }

    /// The directory to copy into, and what comes into it.
    fn place(&self, opened: &Opened, ino: Ino) -> Result<(&Path, File, Entries), Failure> {
        let path = text::bytes(&self.path);
        let error = match open_first(&self.target) {
            Ok(dir) => {
                let entries = match components(path).last() {
                    Some(name) => vec![(name.to_vec(), ino)],
                    None => opened.entries(ino, path)?,
                };
                return Ok((&self.target, dir, entries));
            }
            Err(error) => error,
        };
        let failed = |error| Failure::io(&self.target, &error);
        let (Some(parent), Some(name)) = (self.target.parent(), self.target.file_name()) else {
            return Err(failed(error));
        };
        let dir = open_first(parent).map_err(failed)?;
        Ok((parent, dir, vec![(name.as_bytes().to_vec(), ino)]))
    }
}

/// Names and what they lead to.
type Entries = Vec<(Vec<u8>, Ino)>;

/// Opens a directory to make names in it, whatever leads there.
fn open_first(path: &Path) -> io::Result<File> {
    let here = path.as_os_str().is_empty();
    let path = if here { Path::new(".") } else { path };
    open(CWD, path, OFlags::PATH | OFlags::DIRECTORY)
}

struct Get<'a> {
    opened: &'a Opened,
    path: &'a [u8],
    root: bool,
    way: Descent<Level>,
    /// Files with several names, of which some are still to come.
    links: HashMap<u64, First>,
    /// Directories that were entered: on a damaged volume one may contain itself.
    entered: HashSet<u64>,
    progress: CopyProgress,
}

/// A directory that is being filled.
struct Level {
    /// What it becomes when it is full; nothing if it was there before.
    attr: Option<Attr>,
    /// Whether nobody else gets at what is in it until then.
    private: bool,
    left: IntoIter<(Vec<u8>, Ino)>,
}

/// The first name of a file that has several.
struct First {
    dir: Mark,
    name: Vec<u8>,
    identity: Identity,
    /// How many names are still to come.
    left: u32,
}

impl Get<'_> {
    /// Copies everything. Not recursive: a damaged volume may be deeper than a stack.
    fn all(&mut self) -> Result<(), Failure> {
        while let Some(level) = self.way.data() {
            let Some((name, ino)) = level.left.next() else {
                self.leave()?;
                continue;
            };
            let private = level.private;
            let mut troubles = Vec::new();
            let copied = self.one(&name, ino, private, &mut troubles);
            let below = copied.unwrap_or_else(|trouble| {
                troubles.push(trouble);
                None
            });
            self.progress.bad(|| self.way.path(&name), troubles)?;
            if let Some((dir, level)) = below {
                self.way.enter(name, dir, level);
            }
        }
        Ok(())
    }

    /// Goes up, out of a directory that is full.
    fn leave(&mut self) -> Result<(), Failure> {
        let Some(Left { name, dir, data }) = self.way.leave() else {
            return Ok(());
        };
        let Some(attr) = data.attr else {
            return Ok(());
        };
        let mut troubles = Vec::new();
        match dir {
            Ok(dir) => self.finish(&dir.into(), &attr, data.private, &mut troubles),
            Err(error) => troubles.push(error.into()),
        }
        self.progress.bad(|| self.way.path(&name), troubles)
    }

    /// Copies one inode. Returns the directory, if it became one, to be filled.
    fn one(
        &mut self,
        name: &[u8],
        ino: Ino,
        private: bool,
        troubles: &mut Vec<Trouble>,
    ) -> Result<Option<(Directory, Level)>, Trouble> {
        self.progress.file();
        let attr = self.opened.volume.getattr(ino)?;
        if is_dir(&attr) {
            return self.directory(name, attr, private, troubles).map(Some);
        }
        if self.link(name, &attr)? {
            return Ok(None);
        }
        let (node, identity) = if is_file(&attr) {
            self.data(name, &attr)?
        } else {
            self.special(name, &attr)?
        };
        self.finish(&node, &attr, private, troubles);
        if attr.nlink > 1 {
            let first = First {
                dir: self.way.mark(),
                name: name.to_vec(),
                identity,
                left: attr.nlink - 1,
            };
            self.links.insert(ino.get(), first);
        }
        Ok(None)
    }

    /// Makes another name of a file that was copied; false if it was not.
    fn link(&mut self, name: &[u8], attr: &Attr) -> Result<bool, Trouble> {
        let Some(first) = self.links.get_mut(&attr.ino.get()) else {
            return Ok(false);
        };
        let from = self.way.open(first.dir)?;
        let dir = self.way.dir()?;
        linkat(from, &first.name[..], dir, name, AtFlags::empty())?;
        let (_, found) = Node::find(dir, name)?;
        if identity(&found) != first.identity {
            unlinkat(dir, name, AtFlags::empty())?;
            return Err(replaced());
        }
        first.left -= 1;
        if first.left == 0 {
            self.links.remove(&attr.ino.get());
        }
        Ok(true)
    }

    /// Makes a directory.
    fn directory(
        &mut self,
        name: &[u8],
        attr: Attr,
        private: bool,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(Directory, Level), Trouble> {
        if !self.entered.insert(attr.ino.get()) {
            let words = "a directory that contains itself; run `loamfs check`";
            return Err(Trouble::Said(Kind::Data, words.to_owned()));
        }
        let dir = self.way.dir()?;
        mkdirat(dir, name, Mode::from_raw_mode(0o700))?;
        let made = open_directory(dir, name)?;
        if !names(&made)?.is_empty() {
            return Err(replaced());
        }
        let node = Node::from(made.try_clone()?);
        self.disinherit(&node)?;
        let (made, metadata) = Directory::new(made)?;
        // What can be read of a damaged one is copied.
        let entries = self.opened.entries(attr.ino, self.path);
        let entries = entries.unwrap_or_else(|failure| {
            troubles.push(failure.into());
            Vec::new()
        });
        let level = Level {
            attr: Some(attr),
            private: private || is_private(&metadata),
            left: entries.into_iter(),
        };
        Ok((made, level))
    }

    /// Makes a regular file, with its content.
    fn data(&mut self, name: &[u8], attr: &Attr) -> Result<(Node, Identity), Trouble> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(self.way.dir()?, name, flags, Mode::from_raw_mode(0o600))?;
        let file = File::from(made);
        // A hostile volume could claim 8 EiB of holes.
        for range in data_ranges(&self.opened.volume, attr.ino) {
            let range = range?;
            let mut offset = range.start;
            while offset < range.end {
                let len = CHUNK.min(usize::try_from(range.end - offset).unwrap_or(CHUNK));
                let data = self.opened.volume.read(attr.ino, offset, len)?;
                if data.is_empty() {
                    break;
                }
                // What was filled with zeros becomes a hole.
                if data.iter().any(|&byte| byte != 0) {
                    file.write_all_at(&data, offset)?;
                }
                offset += data.len() as u64;
                self.progress.bytes(data.len() as u64);
            }
        }
        file.set_len(attr.size)?;
        let identity = identity(&file.metadata()?);
        let node = Node::from(file);
        self.disinherit(&node)?;
        Ok((node, identity))
    }

    /// Makes what has no content: a symbolic link, a device, a fifo or a socket.
    fn special(&mut self, name: &[u8], attr: &Attr) -> Result<(Node, Identity), Trouble> {
        let (major, minor) = split_device(attr.rdev);
        let device = rustix::fs::makedev(major, minor);
        let kind = attr.mode & mode::TYPE;
        if is_symlink(attr) {
            let target = self.opened.volume.readlink(attr.ino)?;
            symlinkat(OsStr::from_bytes(&target), self.way.dir()?, name)?;
        } else {
            let (kind, bits) = (FileType::from_raw_mode(kind), Mode::from_raw_mode(0o600));
            mknodat(self.way.dir()?, name, kind, bits, device)?;
        }
        let (node, found) = Node::find(self.way.dir()?, name)?;
        if !is_new(&found, kind, device) {
            return Err(replaced());
        }
        if !is_symlink(attr) {
            self.disinherit(&node)?;
        }
        Ok((node, identity(&found)))
    }

    /// Takes away the access lists that what is made in somebody's directory may get from that.
    fn disinherit(&self, node: &Node) -> io::Result<()> {
        // All other directories were made here.
        if self.way.depth() == 0 {
            node.remove_attribute(c"system.posix_acl_access")?;
            node.remove_attribute(c"system.posix_acl_default")?;
        }
        Ok(())
    }

    /// Sets owner, attributes, mode and times, in this order: each undoes or forbids part of the next. What does not fit
    /// the file system here is left out, and told.
    fn finish(&self, node: &Node, attr: &Attr, private: bool, troubles: &mut Vec<Trouble>) {
        let mut owned = self.root;
        if self.root
            && let Err(error) = node.set_owner(attr.uid, attr.gid)
        {
            let what = format!("its owner {}:{}", attr.uid, attr.gid);
            troubles.push(Trouble::left_out(what, &error));
            owned = false;
        }
        // A file that its new owner may have written to since must give nobody's rights but theirs.
        let written = is_file(attr) && owned && !private && attr.uid != 0;
        let trusted = owned && !written;
        let fits = |name: &[u8]| match name == CAPABILITIES && !trusted {
            true => Err(WRITTEN),
            false => Ok(()),
        };
        let set = attributes::get(&self.opened.volume, attr.ino, node, fits, troubles);
        troubles.extend(set.err());
        if !is_symlink(attr) {
            // Nor must somebody else's file become a set-user-id program of the caller's.
            let mut bits = attr.mode & if owned { 0o7777 } else { 0o1777 };
            if written && bits & SET_GROUP_ID != 0 {
                bits &= !SET_GROUP_ID;
                troubles.push(Trouble::left_out("its set-group-id bit", &WRITTEN));
            }
            if let Err(error) = node.set_mode(bits) {
                troubles.push(Trouble::left_out(format!("its mode {bits:04o}"), &error));
            }
        }
        let times = Timestamps {
            last_access: timespec(attr.atime),
            last_modification: timespec(attr.mtime),
        };
        if let Err(error) = node.set_times(&times) {
            troubles.push(Trouble::left_out("when it was read and changed", &error));
        }
    }
}

/// Whether nobody but the caller gets at what is in a directory.
fn is_private(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0
}

/// Whether what was found is what was made under its name just now.
fn is_new(found: &Metadata, kind: u32, device: Dev) -> bool {
    let is_device = matches!(kind, mode::CHARACTER | mode::BLOCK);
    found.mode() & mode::TYPE == kind
        && found.nlink() == 1
        && (!is_device || found.rdev() == device)
}

fn replaced() -> Trouble {
    let words = "somebody has put something else in its place meanwhile";
    Trouble::Said(Kind::Io, words.to_owned())
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
