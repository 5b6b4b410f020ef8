//! Taking names away.

use super::{Broken, Change, Claim, Operation, Plan, changed_names};
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir::FoundEntry;
use crate::error::Error;
use crate::namespace::valid_name;
use crate::permission;
use crate::types::Timestamp;
use loamfs_format::Ino;
use loamfs_format::summary::Record;

/// Takes a name away from something that is no directory.
pub(crate) struct Unlink {
    pub dir: Ino,
    pub name: Vec<u8>,
}

/// Removes an empty directory.
pub(crate) struct Rmdir {
    pub dir: Ino,
    pub name: Vec<u8>,
}

/// [`Unlink`] or [`Rmdir`], prepared.
pub(crate) struct Unlinking {
    dir: Ino,
    found: FoundEntry,
    is_dir: bool,
}

impl Unlinking {
    /// Looks a name up that may be taken away.
    fn find(core: &mut Core, dir: Ino, name: &[u8]) -> Result<FoundEntry, Stop> {
        valid_name(name)?;
        let found = core.names().find_existing(dir, name)?;
        refuse_removal(core, dir, found.ino)?;
        Ok(found)
    }

    fn prepare(
        core: &mut Core,
        dir: Ino,
        found: FoundEntry,
        is_dir: bool,
    ) -> Result<Plan<Self>, Stop> {
        core.prepare_dirty(dir)?;
        core.prepare_dirty(found.ino)?;
        core.names().prepare_remove(dir, found.key)?;
        Ok(Plan::Change(Unlinking { dir, found, is_dir }))
    }
}

impl Operation for Unlink {
    type Change = Unlinking;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Unlinking>, Stop> {
        let found = Unlinking::find(core, self.dir, &self.name)?;
        if core.node(found.ino)?.inode().is_dir() {
            return Err(Error::IsDirectory.into());
        }
        Unlinking::prepare(core, self.dir, found, false)
    }
}

impl Operation for Rmdir {
    type Change = Unlinking;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Unlinking>, Stop> {
        if self.name == b".." {
            return Err(Error::NotEmpty.into());
        }
        let found = Unlinking::find(core, self.dir, &self.name)?;
        core.names().prepare_empty(found.ino)?;
        Unlinking::prepare(core, self.dir, found, true)
    }
}

impl Change for Unlinking {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let (dir, ino) = (self.dir, self.found.ino);
        let now = core.env.now();
        core.names().remove(dir, &self.found)?;
        if self.is_dir {
            core.inodes.add_links(dir, -1)?;
        }
        changed_names(core, dir, now)?;
        if self.is_dir {
            drop_directory(core, ino, now)?;
        } else {
            drop_link(core, ino, now)?;
        }
        Ok(())
    }
}

/// Flags may forbid that a directory loses a name of an inode.
pub(super) fn refuse_removal(core: &mut Core, dir: Ino, ino: Ino) -> Result<(), Stop> {
    let flags = core.flags(ino)?;
    Ok(permission::may_remove(core.flags(dir)?, flags)?)
}

/// One name less; without any, the inode is an orphan until nobody holds it.
pub(super) fn drop_link(core: &mut Core, ino: Ino, now: Timestamp) -> Result<(), Stop> {
    let node = core.inodes.prepared(ino)?;
    node.inode_mut().nlink = node.inode().nlink.saturating_sub(1);
    node.inode_mut().ctime = now;
    core.leftovers.mark(&mut core.inodes, ino)?;
    core.touch(ino)
}

/// A directory without a name: it is an orphan until nobody holds it.
pub(super) fn drop_directory(core: &mut Core, ino: Ino, now: Timestamp) -> Result<(), Stop> {
    let node = core.inodes.prepared(ino)?;
    let anchor = node.inode().anchor;
    node.inode_mut().nlink = 1;
    core.space.anchored(anchor, -1);
    core.pending.say(Record::Anchored(anchor, -1));
    drop_link(core, ino, now)
}
