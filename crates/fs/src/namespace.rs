//! Names: looking them up, listing them, and the steps of which changes of names are made.

use crate::blocks::Stop;
use crate::core::{Core, dirent_type};
use crate::dir::{self, Found};
use crate::error::Error;
use crate::inodes::Node;
use crate::permission::{self, Born};
use crate::types::{Attr, DirEntry, NewInode, Timestamp};
use loamfs_format::dirent::{Dirent, NAME_MAX};
use loamfs_format::inode::{Inode, mode};
use loamfs_format::summary::Record;
use loamfs_format::{GroupNo, Ino};

/// That a name can be given or taken away.
pub(crate) fn valid_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Error::Invalid("this name cannot be given or taken away"));
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name holds no slash and no zero byte"));
    }
    Ok(())
}

impl Core {
    /// The entry of a name, which may be `.` or `..`.
    pub(crate) fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Found>, Stop> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong.into());
        }
        let hash = self.sb.hash_key;
        self.directory(dir)?;
        let node = self.inodes.prepared(dir)?;
        dir::lookup(&node.inode, &mut self.blocks, &hash, name)
    }

    pub(crate) fn find_existing(&mut self, dir: Ino, name: &[u8]) -> Result<Found, Stop> {
        Ok(self.find(dir, name)?.ok_or(Error::NotFound)?)
    }

    /// Attributes of what a name leads to.
    pub fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Attr, Stop> {
        let ino = match name {
            b"." => self.directory(dir)?.inode.ino,
            b".." => self.directory(dir)?.inode.parent,
            _ => {
                let found = self.find_existing(dir, name)?;
                self.node(found.ino)?.dir_key = found.key;
                found.ino
            }
        };
        self.attr(ino)
    }

    /// Entries from a position on.
    pub fn readdir(&mut self, dir: Ino, position: u64, max: usize) -> Result<Vec<DirEntry>, Stop> {
        let node = self.directory(dir)?;
        let parent = node.inode.parent;
        let mut entries = Vec::new();
        let dots = [(0, dir, &b"."[..]), (1, parent, &b".."[..])];
        for (at, ino, name) in dots.into_iter().filter(|(at, ..)| *at >= position) {
            let file_type = dirent_type(mode::DIRECTORY);
            entries.push(DirEntry {
                ino,
                file_type,
                next: at + 1,
                name: name.to_vec(),
            });
        }
        entries.truncate(max);
        if entries.len() < max {
            let node = self.inodes.prepared(dir)?;
            let from = position.max(2);
            let rest = match dir::list(&node.inode, &mut self.blocks, from, max - entries.len()) {
                Err(Stop::Missing) if !entries.is_empty() => Vec::new(),
                other => other?,
            };
            entries.extend(rest.into_iter().map(|found| DirEntry {
                ino: found.ino,
                file_type: found.file_type,
                next: found.key + 1,
                name: found.name,
            }));
        }
        Ok(entries)
    }

    /// An empty inode of a number that was found for `dir`, which is in memory.
    pub(crate) fn new_node(&mut self, dir: Ino, ino: Ino, born: &Born, new: &NewInode) -> Node {
        let now = self.env.now();
        let is_dir = born.mode & mode::TYPE == mode::DIRECTORY;
        let anchor = if is_dir {
            self.choose_anchor(dir)
        } else {
            self.inodes.anchor_of(dir)
        };
        let generation = self.env.generation();
        let inode = Inode {
            uid: new.uid,
            gid: born.gid,
            project: born.flags.project,
            flags: born.flags.bits,
            parent: dir,
            ssn: self.open_ssn(),
            anchor,
            rdev: new.rdev,
            ..Inode::new(ino, born.mode, generation, now)
        };
        Node::new(self.env.config.owner.stored(inode), self.open_ssn())
    }

    fn choose_anchor(&mut self, dir: Ino) -> GroupNo {
        let parent = self.inodes.anchor_of(dir);
        let (size, files) = (self.sb.avg_file_size, self.sb.files_per_dir);
        let group = self.space.choose_anchor(parent, size, files);
        self.space.anchored(group, 1);
        self.pending.say(Record::Anchored(group, 1));
        group
    }

    /// Finds a place for a new entry and reads what putting it there needs.
    pub(crate) fn prepare_entry(&mut self, dir: Ino, name: &[u8]) -> Result<u64, Stop> {
        let hash = self.sb.hash_key;
        self.directory(dir)?;
        let node = self.inodes.prepared(dir)?;
        dir::prepare_insert(&node.inode, &mut self.blocks, &hash, name)
    }

    pub(crate) fn prepare_remove_entry(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
        self.directory(dir)?;
        let node = self.inodes.prepared(dir)?;
        dir::prepare_remove(&node.inode, &mut self.blocks, key)
    }

    pub(crate) fn prepare_replace_entry(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
        self.directory(dir)?;
        let node = self.inodes.prepared(dir)?;
        dir::prepare_replace(&node.inode, &mut self.blocks, key)
    }

    /// Puts a name into a directory that `prepare_entry` gave the key for.
    pub(crate) fn add_entry(
        &mut self,
        dir: Ino,
        key: u64,
        ino: Ino,
        file_type: u32,
        name: &[u8],
    ) -> Result<(), Stop> {
        let node = self.inodes.prepared(dir)?;
        let entry = Dirent {
            ino,
            file_type: dirent_type(file_type),
            name,
        };
        dir::insert(&mut node.inode, &mut self.blocks, key, &entry)?;
        node.shown_size = node.inode.size;
        Ok(())
    }

    pub(crate) fn remove_entry(&mut self, dir: Ino, found: &Found) -> Result<(), Stop> {
        let node = self.inodes.prepared(dir)?;
        dir::remove(&mut node.inode, &mut self.blocks, found)?;
        node.shown_size = node.inode.size;
        Ok(())
    }

    pub(crate) fn replace_entry(
        &mut self,
        dir: Ino,
        key: u64,
        (ino, file_type, name): (Ino, u32, &[u8]),
    ) -> Result<(), Stop> {
        let node = self.inodes.prepared(dir)?;
        let entry = Dirent {
            ino,
            file_type: dirent_type(file_type),
            name,
        };
        dir::replace(&mut node.inode, &mut self.blocks, key, &entry)
    }

    pub(crate) fn changed_names(&mut self, dir: Ino, now: Timestamp) -> Result<(), Stop> {
        let node = self.inodes.prepared(dir)?;
        node.inode.mtime = now;
        node.inode.ctime = now;
        self.touch(dir)
    }

    /// Flags may forbid that a directory loses a name of an inode.
    pub(crate) fn refuse_removal(&mut self, dir: Ino, ino: Ino) -> Result<(), Stop> {
        let flags = self.flags(ino)?;
        Ok(permission::may_remove(self.flags(dir)?, flags)?)
    }

    /// One name less; without any, the inode is an orphan until nobody holds it.
    pub(crate) fn drop_link(&mut self, ino: Ino, now: Timestamp) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        node.inode.nlink = node.inode.nlink.saturating_sub(1);
        node.inode.ctime = now;
        self.leftovers.mark(&mut self.inodes, ino)?;
        self.touch(ino)
    }

    /// A directory without a name: it is an orphan until nobody holds it.
    pub(crate) fn drop_directory(&mut self, ino: Ino, now: Timestamp) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        let anchor = node.inode.anchor;
        node.inode.nlink = 1;
        self.space.anchored(anchor, -1);
        self.pending.say(Record::Anchored(anchor, -1));
        self.drop_link(ino, now)
    }

    pub(crate) fn prepare_empty(&mut self, dir: Ino) -> Result<(), Stop> {
        self.directory(dir)?;
        let node = self.inodes.prepared(dir)?;
        match dir::next(&node.inode, &mut self.blocks, 0)? {
            Some(_) => Err(Error::NotEmpty.into()),
            None => Ok(()),
        }
    }

    /// The target of a symlink.
    pub fn readlink(&mut self, ino: Ino) -> Result<Vec<u8>, Stop> {
        if self.node(ino)?.inode.file_type() != mode::SYMLINK {
            return Err(Error::Invalid("not a symbolic link").into());
        }
        Ok(self.reading().small_content(ino)?.to_vec())
    }

    /// Holds an inode although its names may go.
    pub fn hold(&mut self, ino: Ino) -> Result<(), Stop> {
        let unlinked = self.node(ino)?.inode.nlink == 0;
        self.leftovers.holders.hold(ino, unlinked);
        Ok(())
    }

    /// Lets go of an inode.
    pub fn let_go(&mut self, ino: Ino) {
        if self.leftovers.holders.let_go(ino) {
            self.leftovers.add(ino);
        }
    }
}
