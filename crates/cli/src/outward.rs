//! Copying out of a volume: into directories by descriptors, so that nothing is written elsewhere whatever somebody puts
//! there meanwhile, and on after a file that cannot be copied.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::vec::IntoIter;

use loamfs_format::Ino;
use loamfs_format::inode::mode;
use loamfs_fs::types::{Attr, Timestamp};
use rustix::fs::{
    AtFlags, Dev, FileType, Mode, OFlags, Timespec, Timestamps, linkat, mkdirat, mknodat, openat,
    statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::attributes;
use crate::descent::{Descent, Directory, Left, Mark};
use crate::failure::{Failure, Kind};
use crate::node::{Identity, Node, identity, names, open_directory};
use crate::progress::CopyProgress;
use crate::trouble::Trouble;
use crate::volume::{is_dir, is_file, is_symlink};

/// The bit that gives a program the rights of its group.
const SET_GROUP_ID: u32 = 0o2000;

/// The bits that give a program the rights of others.
const SET_IDS: u32 = 0o6000;

/// The attribute that gives a program rights of root's.
const CAPABILITIES: &[u8] = b"security.capability";

/// Why a program is not given rights of others.
const WRITTEN: &str =
    "its owner could have written to it already; copy the directory that it is in instead";

/// Names and what they lead to.
pub type Entries = Vec<(Vec<u8>, Ino)>;

/// Takes bytes of a file, and where they stand.
pub type Put<'a> = &'a mut dyn FnMut(u64, &[u8]) -> io::Result<()>;

/// What is copied from. What goes wrong with a part of something is added to `troubles`, and the rest handed over.
pub trait Source {
    /// What an inode is.
    ///
    /// # Errors
    ///
    /// If it cannot be read; so with all others.
    fn attr(&self, ino: Ino) -> Result<Attr, Trouble>;

    /// What is in a directory.
    fn entries(&self, dir: Ino, troubles: &mut Vec<Trouble>) -> Entries;

    /// What a file holds, without its holes.
    fn content(
        &self,
        attr: &Attr,
        put: Put<'_>,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Trouble>;

    /// Where a symbolic link leads.
    fn target(&self, ino: Ino) -> Result<Vec<u8>, Trouble>;

    /// The extended attributes that are taken along.
    fn attributes(
        &self,
        ino: Ino,
        give: &mut dyn FnMut(&[u8], &[u8]),
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Trouble>;

    /// Why nothing that is copied gives anybody rights, if it must not.
    fn distrust(&self) -> Option<&'static str> {
        None
    }
}

/// A copy that is being made.
pub struct Outward<'a, S> {
    source: &'a S,
    root: bool,
    way: Descent<Level>,
    /// Files with several names, of which some are still to come.
    links: HashMap<u64, First>,
    /// Whether what is there already may be replaced.
    force: bool,
    /// Directories that were entered: on a damaged volume one may contain itself.
    entered: HashSet<u64>,
    progress: &'a mut CopyProgress,
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

impl<'a, S: Source> Outward<'a, S> {
    /// A copy into `dir`, which goes by `name` in messages, of what these names lead to.
    ///
    /// # Errors
    ///
    /// If the system does not say whose the directory is.
    pub fn new(
        source: &'a S,
        name: &[u8],
        dir: File,
        entries: Entries,
        progress: &'a mut CopyProgress,
    ) -> io::Result<Self> {
        let (dir, metadata) = Directory::new(dir)?;
        let first = Level {
            attr: None,
            private: is_private(&metadata),
            left: entries.into_iter(),
        };
        Ok(Self {
            source,
            root: geteuid().is_root(),
            way: Descent::new(name.to_vec(), dir, first),
            links: HashMap::new(),
            force: false,
            entered: HashSet::new(),
            progress,
        })
    }

    /// The same, which replaces files that are there already, and fills directories that are, if `force`.
    pub fn replacing(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// Copies everything. Not recursive: a damaged volume may be deeper than a stack.
    ///
    /// # Errors
    ///
    /// That with which no further file would fare better.
    pub fn all(&mut self) -> Result<(), Failure> {
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
        let attr = self.source.attr(ino)?;
        if is_dir(&attr) {
            return self.directory(name, attr, private, troubles).map(Some);
        }
        if self.link(name, &attr)? {
            return Ok(None);
        }
        let (node, identity) = if is_file(&attr) {
            self.data(name, &attr, troubles)?
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
        make_room(dir, name, self.force)?;
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
        match mkdirat(dir, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) if !self.force => return Err(Trouble::There),
            Err(Errno::EXIST) => return self.there(name, &attr, troubles),
            made => made?,
        }
        let made = open_directory(dir, name)?;
        if !names(&made)?.is_empty() {
            return Err(replaced());
        }
        let node = Node::from(made.try_clone()?);
        self.disinherit(&node)?;
        let (made, metadata) = Directory::new(made)?;
        // What can be read of a damaged one is copied.
        let level = Level {
            attr: Some(attr),
            private: private || is_private(&metadata),
            left: self.source.entries(attr.ino, troubles).into_iter(),
        };
        Ok((made, level))
    }

    /// Goes into a directory that was there before, and is left as it is.
    fn there(
        &mut self,
        name: &[u8],
        attr: &Attr,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(Directory, Level), Trouble> {
        let (found, metadata) = Directory::new(open_directory(self.way.dir()?, name)?)?;
        let level = Level {
            attr: None,
            private: is_private(&metadata),
            left: self.source.entries(attr.ino, troubles).into_iter(),
        };
        Ok((found, level))
    }

    /// Makes a regular file, with its content.
    fn data(
        &mut self,
        name: &[u8],
        attr: &Attr,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(Node, Identity), Trouble> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        make_room(self.way.dir()?, name, self.force)?;
        let made = openat(self.way.dir()?, name, flags, Mode::from_raw_mode(0o600))?;
        let file = File::from(made);
        let progress = &mut *self.progress;
        let mut put = |offset: u64, data: &[u8]| {
            // What was filled with zeros becomes a hole.
            if data.iter().any(|&byte| byte != 0) {
                file.write_all_at(data, offset)?;
            }
            progress.bytes(data.len() as u64);
            Ok(())
        };
        self.source.content(attr, &mut put, troubles)?;
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
        let is_device = matches!(kind, mode::CHARACTER | mode::BLOCK);
        if let Some(reason) = self.source.distrust().filter(|_| is_device) {
            return Err(Trouble::left_out("a device", &reason));
        }
        make_room(self.way.dir()?, name, self.force)?;
        if is_symlink(attr) {
            let target = self.source.target(attr.ino)?;
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
    fn disinherit(&mut self, node: &Node) -> io::Result<()> {
        // Directories that were made here have none to hand down.
        if self.way.data().is_some_and(|level| level.attr.is_none()) {
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
        let distrust = self.source.distrust();
        let reason = distrust.or((!owned || written).then_some(WRITTEN));
        let mut unfit = Vec::new();
        let mut give = |name: &[u8], value: &[u8]| {
            let reason = reason.filter(|_| name == CAPABILITIES);
            unfit.extend(attributes::set(node, name, value, reason).err());
        };
        let set = self.source.attributes(attr.ino, &mut give, troubles);
        troubles.append(&mut unfit);
        troubles.extend(set.err());
        if !is_symlink(attr) {
            // Nor must somebody else's file become a set-user-id program of the caller's.
            let mut bits = attr.mode & if owned { 0o7777 } else { 0o1777 };
            if let Some(reason) = distrust.filter(|_| !is_dir(attr) && bits & SET_IDS != 0) {
                bits &= !SET_IDS;
                troubles.push(Trouble::left_out("what gives rights of others", &reason));
            }
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

/// Takes away what has that name, if it may be replaced. Directories stay.
fn make_room(dir: &File, name: &[u8], force: bool) -> Result<(), Trouble> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
        Ok(_) if !force => Err(Trouble::There),
        // This refuses directories.
        Ok(_) => Ok(unlinkat(dir, name, AtFlags::empty())?),
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
