//! Names: create, remove, link, rename, list. Each operation first looks up and reserves, then changes memory and
//! does not stop ([`Core::apply`]).

mod rename;

pub(crate) use rename::Climb;

use crate::blocks::Stop;
use crate::core::{Core, dirent_type};
use crate::dir::{self, Found};
use crate::error::Error;
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::permission::{self, Born};
use crate::types::{Attr, DirEntry, NewInode, SetAttr, SetTime, Timestamp};
use crate::xattrs::Put;
use loamfs_format::dirent::{Dirent, NAME_MAX};
use loamfs_format::inode::{Body, Inode, TAIL, mode};
use loamfs_format::summary::Record;
use loamfs_format::{GroupNo, Ino};

/// Longest target of a symlink.
const TARGET_MAX: usize = 4095;
/// What a change of names makes at most, in bytes of the log: nodes of two directories, and inode blocks.
pub(crate) const NAMES_COST: u64 = 96 << 10;

/// Bytes of the log that setting attributes makes at most.
fn cost(puts: &[Put]) -> u64 {
    puts.iter().map(Put::cost).sum()
}

fn valid_name(name: &[u8]) -> Result<(), Error> {
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

    fn find_existing(&mut self, dir: Ino, name: &[u8]) -> Result<Found, Stop> {
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

    /// Makes an inode and gives it a name.
    pub fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        file_type: u32,
        new: &NewInode,
        target: &[u8],
    ) -> Result<Attr, Stop> {
        valid_name(name)?;
        if target.len() > TARGET_MAX {
            return Err(Error::NameTooLong.into());
        }
        if self.find(dir, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        let links_max = self.links_max;
        let parent = self.directory(dir)?;
        if parent.inode.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        if file_type == mode::DIRECTORY && parent.inode.nlink >= links_max {
            return Err(Error::TooManyLinks.into());
        }
        permission::may_grow(flags_of(&parent.inode))?;
        self.prepare_dirty(dir)?;
        let key = self.prepare_entry(dir, name)?;
        let ino = self.inodes.find_number(&self.maps, &mut self.blocks, dir)?;
        let (born, lists) = self.prepare_birth(dir, file_type, new)?;
        self.admit(NAMES_COST + target.len() as u64 + cost(&lists), 0)?;
        self.apply(|core| {
            let mut node = core.new_node(dir, ino, &born, new);
            let now = node.inode.btime;
            node.dir_key = key;
            node.inode.size = target.len() as u64;
            node.shown_size = node.inode.size;
            if target.len() > TAIL {
                node.small = Some(target.into());
                core.pending.add_content(target.len());
            } else if !target.is_empty() {
                node.inode.body = Body::Inline(target.to_vec());
            }
            core.inodes.take_number(dir, node)?;
            for list in lists {
                core.put_xattr(ino, list)?;
            }
            core.add_entry(dir, key, ino, file_type, name)?;
            if file_type == mode::DIRECTORY {
                core.add_links(dir, 1)?;
            }
            core.changed_names(dir, now)?;
            core.touch(ino)?;
            core.attr(ino)
        })
    }

    /// Makes a regular file that has no name: it is held once, and gone when nobody holds it and [`Core::link`] gave it
    /// none.
    pub fn make_unnamed(&mut self, dir: Ino, new: &NewInode) -> Result<Attr, Stop> {
        let parent = &self.directory(dir)?.inode;
        if parent.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        permission::may_grow(flags_of(parent))?;
        let ino = self.inodes.find_number(&self.maps, &mut self.blocks, dir)?;
        let (born, lists) = self.prepare_birth(dir, mode::REGULAR, new)?;
        self.admit(NAMES_COST + cost(&lists), 0)?;
        self.apply(|core| {
            let mut node = core.new_node(dir, ino, &born, new);
            node.inode.nlink = 0;
            core.inodes.take_number(dir, node)?;
            core.holders.hold_nameless(ino);
            for list in lists {
                core.put_xattr(ino, list)?;
            }
            core.mark_leftover(ino)?;
            core.touch(ino)?;
            core.attr(ino)
        })
    }

    /// An empty inode of a number that was found for `dir`, which is in memory.
    fn new_node(&mut self, dir: Ino, ino: Ino, born: &Born, new: &NewInode) -> Node {
        let now = self.clock.now();
        let is_dir = born.mode & mode::TYPE == mode::DIRECTORY;
        let anchor = if is_dir {
            self.choose_anchor(dir)
        } else {
            self.anchor_of(dir)
        };
        let generation = self.random.generation();
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
        Node::new(self.owner.stored(inode), self.open_ssn())
    }

    fn choose_anchor(&mut self, dir: Ino) -> GroupNo {
        let parent = self.anchor_of(dir);
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

    fn prepare_remove_entry(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
        self.directory(dir)?;
        let node = self.inodes.prepared(dir)?;
        dir::prepare_remove(&node.inode, &mut self.blocks, key)
    }

    fn prepare_replace_entry(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
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

    fn remove_entry(&mut self, dir: Ino, found: &Found) -> Result<(), Stop> {
        let node = self.inodes.prepared(dir)?;
        dir::remove(&mut node.inode, &mut self.blocks, found)?;
        node.shown_size = node.inode.size;
        Ok(())
    }

    fn replace_entry(
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

    fn changed_names(&mut self, dir: Ino, now: Timestamp) -> Result<(), Stop> {
        let node = self.inodes.prepared(dir)?;
        node.inode.mtime = now;
        node.inode.ctime = now;
        self.touch(dir)
    }

    /// Gives an inode one more name.
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Stop> {
        valid_name(name)?;
        let node = self.visible(ino)?;
        if node.inode.is_dir() {
            return Err(Error::NotPermitted.into());
        }
        let (nlink, file_type) = (node.inode.nlink, node.inode.file_type());
        if nlink == 0 && !self.holders.is_nameless(ino) {
            return Err(Error::NotFound.into());
        }
        if nlink >= self.links_max {
            return Err(Error::TooManyLinks.into());
        }
        if self.find(dir, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        let parent = &self.directory(dir)?.inode;
        if parent.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        let into = flags_of(parent);
        let flags = self.flags(ino)?;
        permission::may_change(flags)?;
        permission::may_enter(into, flags)?;
        self.prepare_dirty(ino)?;
        self.prepare_dirty(dir)?;
        let key = self.prepare_entry(dir, name)?;
        self.admit(NAMES_COST, 0)?;
        self.apply(|core| {
            let now = core.clock.now();
            core.add_entry(dir, key, ino, file_type, name)?;
            core.changed_names(dir, now)?;
            let node = core.inodes.prepared(ino)?;
            node.inode.nlink += 1;
            node.inode.ctime = now;
            if core.holders.take_nameless(ino) {
                node.inode.parent = dir;
                node.dir_key = key;
            }
            core.mark_leftover(ino)?;
            core.touch(ino)?;
            core.attr(ino)
        })
    }

    /// Takes a name away from something that is no directory.
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), Stop> {
        valid_name(name)?;
        let found = self.find_existing(dir, name)?;
        self.refuse_removal(dir, found.ino)?;
        if self.node(found.ino)?.inode.is_dir() {
            return Err(Error::IsDirectory.into());
        }
        self.prepare_dirty(dir)?;
        self.prepare_dirty(found.ino)?;
        self.prepare_remove_entry(dir, found.key)?;
        self.admit_removal()?;
        self.apply(|core| {
            let now = core.clock.now();
            core.remove_entry(dir, &found)?;
            core.changed_names(dir, now)?;
            core.drop_link(found.ino, now)
        })
    }

    /// Flags may forbid that a directory loses a name of an inode.
    fn refuse_removal(&mut self, dir: Ino, ino: Ino) -> Result<(), Stop> {
        let flags = self.flags(ino)?;
        Ok(permission::may_remove(self.flags(dir)?, flags)?)
    }

    /// One name less; without any, the inode is an orphan until nobody holds it.
    fn drop_link(&mut self, ino: Ino, now: Timestamp) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        node.inode.nlink = node.inode.nlink.saturating_sub(1);
        node.inode.ctime = now;
        self.mark_leftover(ino)?;
        self.touch(ino)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), Stop> {
        if name == b".." {
            return Err(Error::NotEmpty.into());
        }
        valid_name(name)?;
        let found = self.find_existing(dir, name)?;
        self.refuse_removal(dir, found.ino)?;
        self.prepare_empty(found.ino)?;
        self.prepare_dirty(dir)?;
        self.prepare_dirty(found.ino)?;
        self.prepare_remove_entry(dir, found.key)?;
        self.admit_removal()?;
        self.apply(|core| {
            let now = core.clock.now();
            core.remove_entry(dir, &found)?;
            core.add_links(dir, -1)?;
            core.changed_names(dir, now)?;
            core.drop_directory(found.ino, now)
        })
    }

    /// A directory without a name: it is an orphan until nobody holds it.
    fn drop_directory(&mut self, ino: Ino, now: Timestamp) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        let anchor = node.inode.anchor;
        node.inode.nlink = 1;
        self.space.anchored(anchor, -1);
        self.pending.say(Record::Anchored(anchor, -1));
        self.drop_link(ino, now)
    }

    fn prepare_empty(&mut self, dir: Ino) -> Result<(), Stop> {
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
        Ok(self.small_content(ino)?.to_vec())
    }

    /// Changes attributes.
    pub fn setattr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, Stop> {
        self.visible(ino)?;
        permission::may_set(self.flags(ino)?, set)?;
        self.prepare_dirty(ino)?;
        let list = match set.mode {
            Some(bits) => self.prepare_chmod(ino, bits)?,
            None => None,
        };
        let cost = NAMES_COST + list.as_ref().map_or(0, Put::cost);
        self.admit(cost, 0).or_else(|stop| match stop {
            // Shrinking gives space back, so it works on a full volume.
            Stop::Full if set.size.is_some() => self.admit_removal(),
            stop => Err(stop),
        })?;
        let size = self.node(ino)?.inode.size;
        if let Some(wanted) = set.size {
            if self.node(ino)?.inode.is_dir() {
                return Err(Error::IsDirectory.into());
            }
            if wanted != size || wanted == 0 {
                self.resize(ino, wanted)?;
            }
        }
        self.apply(|core| core.set_attributes(ino, set, list))
    }

    /// Sets what [`Core::setattr`] prepared, but for the size.
    fn set_attributes(&mut self, ino: Ino, set: &SetAttr, list: Option<Put>) -> Result<Attr, Stop> {
        let now = self.clock.now();
        let time = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::At(t) => t,
        };
        if let Some(list) = list {
            self.put_xattr(ino, list)?;
        }
        let node = self.inodes.prepared(ino)?;
        let i = &mut node.inode;
        if let Some(bits) = set.mode {
            i.mode = i.mode & mode::TYPE | bits & permission::BITS;
        }
        if set.drop_privileges && i.file_type() != mode::DIRECTORY {
            i.mode = permission::without_privileges(i.mode);
        }
        i.uid = set.uid.unwrap_or(i.uid);
        i.gid = set.gid.unwrap_or(i.gid);
        i.atime = set.atime.map_or(i.atime, time);
        // A size that is set is a change of the content, even to what it was.
        let changed = set.size.map_or(i.mtime, |_| now);
        i.mtime = set.mtime.map_or(changed, time);
        i.ctime = set.ctime.unwrap_or(now);
        self.touch(ino)?;
        self.attr(ino)
    }

    /// Takes set-user-id and the like away where they are set.
    pub fn drop_privileges(&mut self, ino: Ino) -> Result<(), Stop> {
        let inode = &self.node(ino)?.inode;
        if inode.is_dir() || permission::without_privileges(inode.mode) == inode.mode {
            return Ok(());
        }
        let set = SetAttr {
            drop_privileges: true,
            ..SetAttr::default()
        };
        self.setattr(ino, &set).map(drop)
    }

    /// Removes an orphan that nobody holds, or goes on with it; returns whether it is gone.
    pub fn evict(&mut self, ino: Ino) -> Result<bool, Stop> {
        if self.holders.hold_it(ino) {
            return Ok(true);
        }
        let node = match self.node(ino) {
            Err(Stop::Failed(Error::Stale(_))) => return Ok(true),
            other => other?,
        };
        if node.inode.nlink > 0 {
            return Ok(true);
        }
        let large = node.is_large();
        if node.inode.is_file() && large && node.inode.size > 0 {
            self.prepare_dirty(ino)?;
            self.admit_removal()?;
            self.resize(ino, 0)?;
            return Ok(false);
        }
        if node.inode.truncating != u64::MAX {
            self.drain(ino)?;
            return Ok(false);
        }
        if !self.clear_xattrs(ino)? {
            return Ok(false);
        }
        self.prepare_dirty(ino)?;
        let times_go = self.prepare_drop_atimes(ino)?;
        self.admit_removal()?;
        self.apply(|core| {
            core.atimes.forget(ino);
            if times_go {
                core.drop_atimes(ino)?;
            }
            let node = core.inodes.prepared(ino)?;
            core.pending.drop_content(node.small.take().as_deref());
            if let Body::Small(pointer) = node.inode.body {
                core.free_block(&pointer);
            }
            core.forget_homed(ino)?;
            core.writeback.let_pass(ino);
            core.inodes.give_back(ino)?;
            core.note_dirty();
            Ok(true)
        })
    }

    /// Holds an inode although its names may go.
    pub fn hold(&mut self, ino: Ino) -> Result<(), Stop> {
        let unlinked = self.node(ino)?.inode.nlink == 0;
        self.holders.hold(ino, unlinked);
        Ok(())
    }

    /// Lets go of an inode.
    pub fn let_go(&mut self, ino: Ino) {
        if self.holders.let_go(ino) {
            self.leftovers.add(ino);
        }
    }
}

#[cfg(test)]
mod tests;
