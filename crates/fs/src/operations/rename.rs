//! Renames: moving, replacing and swapping names.

use super::make::new_node;
use super::placing::enter;
use super::unlink::{drop_directory, drop_link, refuse_removal};
use super::{Broken, Change, Claim, NAMES_COST, Operation, Plan, changed_names};
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir::FoundEntry;
use crate::error::Error;
use crate::flags::flags_of;
use crate::namespace::{Child, valid_name};
use crate::permission::{self, Parent};
use crate::types::{NewInode, RenameFlags, Timestamp};
use crate::witness::Witness;
use loamfs_format::Ino;
use loamfs_format::inode::mode;

/// A way up that must be looked at before a directory moves: it may not lead through that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Climb {
    /// The directory.
    pub moved: Ino,
    /// Where it is to be.
    pub from: Ino,
}

/// Renames in all its cases, or says which way up must be climbed before.
pub(crate) struct Rename<'w> {
    pub dir: Ino,
    pub name: Vec<u8>,
    pub new_dir: Ino,
    pub new_name: Vec<u8>,
    pub flags: RenameFlags,
    /// Ways up that are known to be free.
    pub climbed: Vec<Climb>,
    pub witness: &'w dyn Witness,
}

/// [`Rename`], prepared.
pub(crate) enum Renaming<'w> {
    Move(Move, &'w dyn Witness),
    Exchange(Exchange, &'w dyn Witness),
}

/// A name that is to move, all of it looked up and read.
pub(crate) struct Move {
    dir: Ino,
    from: FoundEntry,
    new_dir: Ino,
    name: Vec<u8>,
    /// Where the new entry stands.
    key: u64,
    /// What the new name led to.
    replaced: Option<Ino>,
    /// What moves.
    file_type: u32,
    /// What is left in the old place.
    whiteout: Option<(Ino, NewInode)>,
}

/// Two names that are to lead to what the other does.
pub(crate) struct Exchange(Side, Side);

/// One of them.
struct Side {
    dir: Ino,
    found: FoundEntry,
    file_type: u32,
}

impl Side {
    fn child(&self) -> Child {
        Child {
            ino: self.found.ino,
            file_type: self.file_type,
        }
    }

    fn is_dir(&self) -> bool {
        self.file_type == mode::DIRECTORY
    }
}

impl<'w> Operation for Rename<'w> {
    type Change = Renaming<'w>;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Renaming<'w>>, Stop> {
        let (dir, new_dir, flags) = (self.dir, self.new_dir, &self.flags);
        if flags.exchange && (flags.no_replace || flags.whiteout.is_some()) {
            return Err(Error::Invalid("these flags exclude each other").into());
        }
        valid_name(&self.name)?;
        let from = core.names().find_existing(dir, &self.name)?;
        valid_name(&self.new_name)?;
        let to = core.names().find(new_dir, &self.new_name)?;
        let is_dir = core.node(from.ino)?.inode().is_dir();
        if core.directory(new_dir)?.inode().nlink == 0 {
            return Err(Error::NotFound.into());
        }
        if let Some(climb) = self.climb(is_dir, from.ino, new_dir) {
            return Ok(Plan::Done(Some(climb)));
        }
        if let Some(to) = &to {
            if flags.no_replace {
                return Err(Error::Exists.into());
            }
            if to.ino == from.ino {
                return Ok(Plan::Done(None));
            }
        }
        refuse_removal(core, dir, from.ino)?;
        let moved = core.flags(from.ino)?;
        permission::may_enter(core.flags(new_dir)?, moved)?;
        if let Some(to) = &to {
            refuse_removal(core, new_dir, to.ino)?;
        }
        for ino in [dir, new_dir, from.ino] {
            core.prepare_dirty(ino)?;
        }
        if flags.exchange {
            return self.prepare_exchange(core, from, to.ok_or(Error::NotFound)?);
        }
        self.prepare_move(core, from, to)
    }
}

impl<'w> Rename<'w> {
    /// The way up from `to` that must be climbed before a directory moves there from the other.
    fn climb(&self, is_dir: bool, moved: Ino, to: Ino) -> Option<Climb> {
        let climb = Climb { moved, from: to };
        let needed = is_dir && self.dir != self.new_dir;
        (needed && !self.climbed.contains(&climb)).then_some(climb)
    }

    /// Looks up what moving a name needs.
    fn prepare_move(
        &self,
        core: &mut Core,
        from: FoundEntry,
        to: Option<FoundEntry>,
    ) -> Result<Plan<Renaming<'w>>, Stop> {
        let (dir, new_dir) = (self.dir, self.new_dir);
        let moved = core.node(from.ino)?.inode();
        let (is_dir, file_type) = (moved.is_dir(), moved.file_type());
        if let Some(to) = &to {
            match (is_dir, core.node(to.ino)?.inode().is_dir()) {
                (true, false) => return Err(Error::NotDirectory.into()),
                (false, true) => return Err(Error::IsDirectory.into()),
                (true, true) => core.names().prepare_empty(to.ino)?,
                (false, false) => {}
            }
            core.prepare_dirty(to.ino)?;
        }
        let links = core.directory(new_dir)?.inode().nlink;
        if is_dir && dir != new_dir && to.is_none() && links >= core.env.config().links_max {
            return Err(Error::TooManyLinks.into());
        }
        let whiteout = match self.flags.whiteout {
            Some(new) => {
                core.names().prepare_replace(dir, from.key)?;
                let (maps, blocks) = (&core.maps, &mut core.blocks);
                let ino = core
                    .inodes
                    .find_number(maps, blocks, dir, mode::CHARACTER)?;
                Some((ino, new))
            }
            None => {
                core.names().prepare_remove(dir, from.key)?;
                None
            }
        };
        let key = match &to {
            Some(to) => {
                core.names().prepare_replace(new_dir, to.key)?;
                to.key
            }
            None => core.names().prepare_add(new_dir, &self.new_name)?,
        };
        let change = Move {
            dir,
            from,
            new_dir,
            name: self.new_name.clone(),
            key,
            replaced: to.map(|to| to.ino),
            file_type,
            whiteout,
        };
        Ok(Plan::Change(Renaming::Move(change, self.witness)))
    }

    /// Looks up what swapping two names needs.
    fn prepare_exchange(
        &self,
        core: &mut Core,
        from: FoundEntry,
        to: FoundEntry,
    ) -> Result<Plan<Renaming<'w>>, Stop> {
        let side = |core: &mut Core, dir, found: FoundEntry| -> Result<Side, Stop> {
            let file_type = core.node(found.ino)?.inode().file_type();
            Ok(Side {
                dir,
                found,
                file_type,
            })
        };
        let b = side(core, self.new_dir, to)?;
        let a = side(core, self.dir, from)?;
        if let Some(climb) = self.climb(b.is_dir(), b.found.ino, a.dir) {
            return Ok(Plan::Done(Some(climb)));
        }
        let flags = core.flags(b.found.ino)?;
        permission::may_enter(core.flags(a.dir)?, flags)?;
        if a.dir != b.dir && a.is_dir() != b.is_dir() {
            let gains = if b.is_dir() { a.dir } else { b.dir };
            if core.directory(gains)?.inode().nlink >= core.env.config().links_max {
                return Err(Error::TooManyLinks.into());
            }
        }
        core.prepare_dirty(b.found.ino)?;
        core.names().prepare_replace(a.dir, a.found.key)?;
        core.names().prepare_replace(b.dir, b.found.key)?;
        Ok(Plan::Change(Renaming::Exchange(
            Exchange(a, b),
            self.witness,
        )))
    }
}

impl Change for Renaming<'_> {
    type Done = Option<Climb>;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: NAMES_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Option<Climb>, Broken> {
        match self {
            Renaming::Move(change, witness) => change.apply(core, witness)?,
            Renaming::Exchange(change, witness) => change.apply(core, witness)?,
        }
        Ok(None)
    }
}

impl Move {
    fn apply(self, core: &mut Core, witness: &dyn Witness) -> Result<(), Stop> {
        let (dir, new_dir, key) = (self.dir, self.new_dir, self.key);
        let (ino, now) = (self.from.ino, core.env.now());
        tell_move(core, ino, witness)?;
        let file_type = self.file_type;
        let child = Child { ino, file_type };
        // New keys go in before the old one goes out.
        match self.replaced {
            Some(_) => core.names().replace(new_dir, key, child, &self.name)?,
            None => core.names().add(new_dir, key, child, &self.name)?,
        }
        match self.whiteout {
            Some((white, new)) => leave_whiteout(core, dir, &self.from, white, &new)?,
            None => core.names().remove(dir, &self.from)?,
        }
        if let Some(old) = self.replaced {
            replaced(core, new_dir, old, ino, now, witness)?;
        }
        if self.file_type == mode::DIRECTORY && dir != new_dir {
            core.inodes.add_links(dir, -1)?;
            core.inodes.add_links(new_dir, 1)?;
        }
        moved(core, ino, new_dir, key, now)?;
        changed_names(core, dir, now)?;
        changed_names(core, new_dir, now)
    }
}

impl Exchange {
    fn apply(self, core: &mut Core, witness: &dyn Witness) -> Result<(), Stop> {
        let Exchange(a, b) = self;
        // What was asked for first comes last: that is what a witness remembers.
        tell_move(core, b.found.ino, witness)?;
        tell_move(core, a.found.ino, witness)?;
        let now = core.env.now();
        let mut names = core.names();
        names.replace(a.dir, a.found.key, b.child(), &a.found.name)?;
        names.replace(b.dir, b.found.key, a.child(), &b.found.name)?;
        if a.dir != b.dir {
            let delta = i32::from(b.is_dir()) - i32::from(a.is_dir());
            core.inodes.add_links(a.dir, delta)?;
            core.inodes.add_links(b.dir, -delta)?;
        }
        moved(core, a.found.ino, b.dir, b.found.key, now)?;
        moved(core, b.found.ino, a.dir, a.found.key, now)?;
        changed_names(core, a.dir, now)?;
        changed_names(core, b.dir, now)
    }
}

/// A name that led to `old` leads to `new` since a rename.
fn replaced(
    core: &mut Core,
    dir: Ino,
    old: Ino,
    new: Ino,
    now: Timestamp,
    witness: &dyn Witness,
) -> Result<(), Stop> {
    if core.inodes.prepared(old)?.inode().is_dir() {
        core.inodes.add_links(dir, -1)?;
        drop_directory(core, old, now, witness)?;
    } else {
        drop_link(core, old, now, witness)?;
    }
    // A rename over an existing file starts the write-out of what is dirty then (rule 3).
    let homed = core.inodes.prepared(new)?.homed();
    if !homed.is_clean() && core.env.law().rename_waits() {
        let upto = homed.puts();
        core.writeback.hold_up(new, upto);
    }
    core.inodes.seal_before_growth(new)
}

/// Puts a whiteout, a character device of number 0, where a name was: an overlay sees that nothing is there.
fn leave_whiteout(
    core: &mut Core,
    dir: Ino,
    from: &FoundEntry,
    ino: Ino,
    new: &NewInode,
) -> Result<(), Stop> {
    let (parent, new) = (core.directory(dir)?, NewInode { rdev: 0, ..*new });
    let parent = Parent {
        mode: parent.inode().mode,
        gid: parent.inode().gid,
        flags: flags_of(parent.inode()),
        default: None,
    };
    let born = permission::born(parent, mode::CHARACTER | new.mode, new.umask, new.gid);
    let mut node = new_node(core, dir, ino, &born, &new);
    node.set_dir_key(from.key);
    core.inodes.take_number(dir, node)?;
    let file_type = mode::CHARACTER;
    let child = Child { ino, file_type };
    core.names().replace(dir, from.key, child, &from.name)?;
    core.touch(ino)
}

fn tell_move(core: &mut Core, ino: Ino, witness: &dyn Witness) -> Result<(), Stop> {
    witness.moves(ino, core.inodes.prepared(ino)?.inode().generation);
    Ok(())
}

fn moved(core: &mut Core, ino: Ino, parent: Ino, key: u64, now: Timestamp) -> Result<(), Stop> {
    let node = core.inodes.prepared(ino)?;
    node.inode_mut().parent = parent;
    node.inode_mut().ctime = now;
    node.set_dir_key(key);
    enter(core, ino, parent)?;
    core.touch(ino)
}

#[cfg(test)]
mod tests;
