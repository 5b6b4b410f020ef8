//! Renames: moving, replacing and swapping names.

use super::{NAMES_COST, valid_name};
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir::Found;
use crate::error::Error;
use crate::flags::flags_of;
use crate::law;
use crate::permission::{self, Parent};
use crate::types::{NewInode, RenameFlags, Timestamp};
use loamfs_format::Ino;
use loamfs_format::inode::{ROOT_INO, mode};

/// Levels of a way up that one step goes.
pub(super) const CLIMB_STEP: u32 = 256;

/// A way up that must be looked at before a directory moves: it may not lead through that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Climb {
    /// The directory.
    pub moved: Ino,
    /// Where it is to be.
    pub from: Ino,
}

/// A name that is to move, all of it looked up and read.
struct Move<'a> {
    dir: Ino,
    from: Found,
    new_dir: Ino,
    name: &'a [u8],
    /// Where the new entry stands.
    key: u64,
    /// What the new name led to.
    replaced: Option<Ino>,
    /// What moves.
    file_type: u32,
    /// What is left in the old place.
    whiteout: Option<(Ino, &'a NewInode)>,
}

impl Core {
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
        let is_dir = self.node(from.ino)?.inode.is_dir();
        if self.directory(new_dir)?.inode.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        let climb = Climb {
            moved: from.ino,
            from: new_dir,
        };
        if is_dir && dir != new_dir && !climbed.contains(&climb) {
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
        let step = self.prepare_move((dir, from), (new_dir, new_name, to), &flags)?;
        self.admit(NAMES_COST, 0)?;
        self.apply(|core| core.apply_move(step))?;
        Ok(None)
    }

    /// Looks up and reads what moving a name needs.
    fn prepare_move<'a>(
        &mut self,
        (dir, from): (Ino, Found),
        (new_dir, name, to): (Ino, &'a [u8], Option<Found>),
        flags: &'a RenameFlags,
    ) -> Result<Move<'a>, Stop> {
        let moved = &self.node(from.ino)?.inode;
        let (is_dir, file_type) = (moved.is_dir(), moved.file_type());
        if let Some(to) = &to {
            match (is_dir, self.node(to.ino)?.inode.is_dir()) {
                (true, false) => return Err(Error::NotDirectory.into()),
                (false, true) => return Err(Error::IsDirectory.into()),
                (true, true) => self.prepare_empty(to.ino)?,
                (false, false) => {}
            }
            self.prepare_dirty(to.ino)?;
        }
        let links = self.directory(new_dir)?.inode.nlink;
        if is_dir && dir != new_dir && to.is_none() && links >= self.links_max {
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
            None => self.prepare_entry(new_dir, name)?,
        };
        Ok(Move {
            dir,
            from,
            new_dir,
            name,
            key,
            replaced: to.map(|to| to.ino),
            file_type,
            whiteout,
        })
    }

    fn apply_move(&mut self, step: Move<'_>) -> Result<(), Stop> {
        let (dir, new_dir, key) = (step.dir, step.new_dir, step.key);
        let (ino, now) = (step.from.ino, self.clock.now());
        // New keys go in before the old one goes out.
        match step.replaced {
            Some(_) => self.replace_entry(new_dir, key, (ino, step.file_type, step.name))?,
            None => self.add_entry(new_dir, key, ino, step.file_type, step.name)?,
        }
        match step.whiteout {
            Some((white, new)) => self.leave_whiteout(dir, &step.from, white, new)?,
            None => self.remove_entry(dir, &step.from)?,
        }
        if let Some(old) = step.replaced {
            self.replaced(new_dir, old, ino, now)?;
        }
        if step.file_type == mode::DIRECTORY && dir != new_dir {
            self.add_links(dir, -1)?;
            self.add_links(new_dir, 1)?;
        }
        self.moved(ino, new_dir, key, now)?;
        self.changed_names(dir, now)?;
        self.changed_names(new_dir, now)
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

    pub(super) fn add_links(&mut self, dir: Ino, delta: i32) -> Result<(), Stop> {
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
}
