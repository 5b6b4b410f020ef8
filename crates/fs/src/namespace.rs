//! Names: create, remove, link, rename, list. Each operation first looks up and reserves, then changes memory and
//! cannot fail (DESIGN.md section 9).

use crate::blocks::Stop;
use crate::core::{Core, dirent_type};
use crate::dir::{self, Found};
use crate::error::Error;
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::law;
use crate::permission::{self, Born, Parent};
use crate::types::{Attr, DirEntry, NewInode, RenameFlags, SetAttr, SetTime, Timestamp};
use crate::xattrs::Put;
use loamfs_format::dirent::{Dirent, NAME_MAX};
use loamfs_format::inode::{Body, Inode, ROOT_INO, TAIL, mode};
use loamfs_format::summary::Record;
use loamfs_format::{GroupNo, Ino};

/// Longest target of a symlink.
const TARGET_MAX: usize = 4095;
/// What a change of names makes at most, in bytes of the log: nodes of two directories, and inode blocks.
pub(crate) const NAMES_COST: u64 = 96 << 10;

/// Levels of a way up that one step goes.
const CLIMB_STEP: u32 = 256;

/// A way up that must be looked at before a directory moves: it may not lead through that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Climb {
    /// The directory.
    pub moved: Ino,
    /// Where it is to be.
    pub from: Ino,
}

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
        let node = self.node(ino)?;
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

    /// Renames in all its cases, or says which way up must be `climbed` before.
    pub fn rename(
        &mut self,
        (dir, name): (Ino, &[u8]),
        (new_dir, new_name): (Ino, &[u8]),
        flags: RenameFlags,
        climbed: &[Climb],
    ) -> Result<Option<Climb>, Stop> {
        if flags.exchange && (flags.no_replace || flags.whiteout.is_some()) {
            return Err(Error::Invalid("these flags exclude each other").into());
        }
        valid_name(name)?;
        let from = self.find_existing(dir, name)?;
        valid_name(new_name)?;
        let to = self.find(new_dir, new_name)?;
        let (moved_dir, moved_type) = {
            let node = self.node(from.ino)?;
            (node.inode.is_dir(), node.inode.file_type())
        };
        if self.directory(new_dir)?.inode.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        let climb = Climb {
            moved: from.ino,
            from: new_dir,
        };
        if moved_dir && dir != new_dir && !climbed.contains(&climb) {
            return Ok(Some(climb));
        }
        if let Some(to) = &to {
            if flags.no_replace {
                return Err(Error::Exists.into());
            }
            if to.ino == from.ino {
                return Ok(None);
            }
        }
        self.refuse_removal(dir, from.ino)?;
        let moved = self.flags(from.ino)?;
        permission::may_enter(self.flags(new_dir)?, moved)?;
        if let Some(to) = &to {
            self.refuse_removal(new_dir, to.ino)?;
        }
        for ino in [dir, new_dir, from.ino] {
            self.prepare_dirty(ino)?;
        }
        if flags.exchange {
            let to = to.ok_or(Error::NotFound)?;
            return self.exchange((dir, &from), (new_dir, &to), climbed);
        }
        if let Some(to) = &to {
            let target_dir = self.node(to.ino)?.inode.is_dir();
            match (moved_dir, target_dir) {
                (true, false) => return Err(Error::NotDirectory.into()),
                (false, true) => return Err(Error::IsDirectory.into()),
                (true, true) => self.prepare_empty(to.ino)?,
                (false, false) => {}
            }
            self.prepare_dirty(to.ino)?;
        }
        let parent_links = self.directory(new_dir)?.inode.nlink;
        if moved_dir && dir != new_dir && to.is_none() && parent_links >= self.links_max {
            return Err(Error::TooManyLinks.into());
        }
        let whiteout = match &flags.whiteout {
            Some(new) => {
                self.prepare_replace_entry(dir, from.key)?;
                let ino = self.inodes.find_number(&self.maps, &mut self.blocks, dir)?;
                Some((ino, new))
            }
            None => {
                self.prepare_remove_entry(dir, from.key)?;
                None
            }
        };
        let key = match &to {
            Some(to) => {
                self.prepare_replace_entry(new_dir, to.key)?;
                to.key
            }
            None => self.prepare_entry(new_dir, new_name)?,
        };
        self.admit(NAMES_COST, 0)?;
        self.apply(|core| {
            let now = core.clock.now();
            // New keys go in before the old one goes out.
            let entry = (from.ino, moved_type, new_name);
            match &to {
                Some(_) => core.replace_entry(new_dir, key, entry)?,
                None => core.add_entry(new_dir, key, from.ino, moved_type, new_name)?,
            }
            match whiteout {
                Some((ino, new)) => core.leave_whiteout(dir, &from, ino, new)?,
                None => core.remove_entry(dir, &from)?,
            }
            if let Some(to) = &to {
                core.replaced(new_dir, to.ino, from.ino, now)?;
            }
            if moved_dir && dir != new_dir {
                core.add_links(dir, -1)?;
                core.add_links(new_dir, 1)?;
            }
            core.moved(from.ino, new_dir, key, now)?;
            core.changed_names(dir, now)?;
            core.changed_names(new_dir, now)?;
            Ok(None)
        })
    }

    /// A name that led to `old` leads to `new` since a rename.
    fn replaced(&mut self, dir: Ino, old: Ino, new: Ino, now: Timestamp) -> Result<(), Stop> {
        if self.inodes.prepared(old)?.inode.is_dir() {
            self.add_links(dir, -1)?;
            self.drop_directory(old, now)?;
        } else {
            self.drop_link(old, now)?;
        }
        // A rename over an existing file starts the write-out of what is dirty then (rule 3).
        let homed = self.inodes.prepared(new)?.homed();
        if !homed.is_clean() && law::rename_waits() {
            let upto = homed.puts();
            self.writeback.hold_up(new, upto);
        }
        self.seal_before_growth(new)
    }

    /// Puts a whiteout, a character device of number 0, where a name was: an overlay sees that nothing is there.
    fn leave_whiteout(
        &mut self,
        dir: Ino,
        from: &Found,
        ino: Ino,
        new: &NewInode,
    ) -> Result<(), Stop> {
        let (parent, new) = (self.directory(dir)?, NewInode { rdev: 0, ..*new });
        let parent = Parent {
            mode: parent.inode.mode,
            gid: parent.inode.gid,
            flags: flags_of(&parent.inode),
            default: None,
        };
        let born = permission::born(parent, mode::CHARACTER | new.mode, new.umask, new.gid);
        let mut node = self.new_node(dir, ino, &born, &new);
        node.dir_key = from.key;
        self.inodes.take_number(dir, node)?;
        self.replace_entry(dir, from.key, (ino, mode::CHARACTER, &from.name))?;
        self.touch(ino)
    }

    fn add_links(&mut self, dir: Ino, delta: i32) -> Result<(), Stop> {
        let node = self.inodes.prepared(dir)?;
        node.inode.nlink = node.inode.nlink.saturating_add_signed(delta);
        Ok(())
    }

    fn moved(&mut self, ino: Ino, parent: Ino, key: u64, now: Timestamp) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        node.inode.parent = parent;
        node.inode.ctime = now;
        node.dir_key = key;
        self.touch(ino)
    }

    /// Swaps what two names lead to.
    fn exchange(
        &mut self,
        a: (Ino, &Found),
        b: (Ino, &Found),
        climbed: &[Climb],
    ) -> Result<Option<Climb>, Stop> {
        let ((dir_a, a), (dir_b, b)) = (a, b);
        let node_b = self.node(b.ino)?;
        let (b_dir, b_type) = (node_b.inode.is_dir(), node_b.inode.file_type());
        let node_a = self.node(a.ino)?;
        let (a_dir, a_type) = (node_a.inode.is_dir(), node_a.inode.file_type());
        let climb = Climb {
            moved: b.ino,
            from: dir_a,
        };
        if b_dir && dir_a != dir_b && !climbed.contains(&climb) {
            return Ok(Some(climb));
        }
        let flags = self.flags(b.ino)?;
        permission::may_enter(self.flags(dir_a)?, flags)?;
        if dir_a != dir_b && a_dir != b_dir {
            let gains = if b_dir { dir_a } else { dir_b };
            if self.directory(gains)?.inode.nlink >= self.links_max {
                return Err(Error::TooManyLinks.into());
            }
        }
        self.prepare_dirty(b.ino)?;
        self.prepare_replace_entry(dir_a, a.key)?;
        self.prepare_replace_entry(dir_b, b.key)?;
        self.admit(NAMES_COST, 0)?;
        self.apply(|core| {
            let now = core.clock.now();
            core.replace_entry(dir_a, a.key, (b.ino, b_type, &a.name))?;
            core.replace_entry(dir_b, b.key, (a.ino, a_type, &b.name))?;
            if dir_a != dir_b {
                let delta = i32::from(b_dir) - i32::from(a_dir);
                core.add_links(dir_a, delta)?;
                core.add_links(dir_b, -delta)?;
            }
            core.moved(a.ino, dir_b, b.key, now)?;
            core.moved(b.ino, dir_a, a.key, now)?;
            core.changed_names(dir_a, now)?;
            core.changed_names(dir_b, now)?;
            Ok(None)
        })
    }

    /// Looks at the way up from `at` for a directory that is about to move there, as it must not move below itself. Goes at
    /// most [`CLIMB_STEP`] levels further, and keeps those when it is sent back; true when the root is reached.
    pub fn climb(&mut self, moved: Ino, at: &mut Ino) -> Result<bool, Stop> {
        for _ in 0..CLIMB_STEP {
            if *at == moved {
                return Err(Error::Invalid("a directory cannot move into itself").into());
            }
            if *at == ROOT_INO {
                return Ok(true);
            }
            *at = self.directory(*at)?.inode.parent;
        }
        Ok(false)
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
