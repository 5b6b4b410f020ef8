//! Taking names away.

use super::{Broken, Change, Claim, Operation, Plan, changed_names};
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir::FoundEntry;
use crate::error::Error;
use crate::namespace::valid_name;
use crate::permission;
use crate::types::Timestamp;
use crate::witness::Witness;
use loamfs_format::Ino;
use loamfs_format::summary::Record;

/// Takes a name away from something that is no directory.
pub(crate) struct Unlink<'w> {
    pub dir: Ino,
    pub name: Vec<u8>,
    pub witness: &'w dyn Witness,
}

/// Removes an empty directory.
pub(crate) struct Rmdir<'w> {
    pub dir: Ino,
    pub name: Vec<u8>,
    pub witness: &'w dyn Witness,
}

/// [`Unlink`] or [`Rmdir`], prepared.
pub(crate) struct Unlinking<'w> {
    dir: Ino,
    found: FoundEntry,
    is_dir: bool,
    witness: &'w dyn Witness,
}

impl<'w> Unlinking<'w> {
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
        witness: &'w dyn Witness,
    ) -> Result<Plan<Self>, Stop> {
        core.prepare_dirty(dir)?;
        core.prepare_dirty(found.ino)?;
        core.names().prepare_remove(dir, found.key)?;
        Ok(Plan::Change(Unlinking {
            dir,
            found,
            is_dir,
            witness,
        }))
    }
}

impl<'w> Operation for Unlink<'w> {
    type Change = Unlinking<'w>;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Unlinking<'w>>, Stop> {
        let found = Unlinking::find(core, self.dir, &self.name)?;
        if core.node(found.ino)?.inode().is_dir() {
            return Err(Error::IsDirectory.into());
        }
        Unlinking::prepare(core, self.dir, found, false, self.witness)
    }
}

impl<'w> Operation for Rmdir<'w> {
    type Change = Unlinking<'w>;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Unlinking<'w>>, Stop> {
        if self.name == b".." {
            return Err(Error::NotEmpty.into());
        }
        let found = Unlinking::find(core, self.dir, &self.name)?;
        core.names().prepare_empty(found.ino)?;
        Unlinking::prepare(core, self.dir, found, true, self.witness)
    }
}

impl Change for Unlinking<'_> {
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
        match self.is_dir {
            true => drop_directory(core, ino, now, self.witness)?,
            false => drop_link(core, ino, now, self.witness)?,
        }
        Ok(())
    }
}

/// Flags may forbid that a directory loses a name of an inode.
pub(super) fn refuse_removal(core: &mut Core, dir: Ino, ino: Ino) -> Result<(), Stop> {
    let flags = core.flags(ino)?;
    Ok(permission::may_remove(core.flags(dir)?, flags)?)
}

/// One name less; without any, the inode is an orphan until nobody holds it, as a witness may.
pub(super) fn drop_link(
    core: &mut Core,
    ino: Ino,
    now: Timestamp,
    witness: &dyn Witness,
) -> Result<(), Stop> {
    let node = core.inodes.prepared(ino)?;
    let (generation, left) = (
        node.inode().generation,
        node.inode().nlink.saturating_sub(1),
    );
    node.inode_mut().nlink = left;
    node.inode_mut().ctime = now;
    if witness.loses_name(ino, generation, left == 0) {
        core.leftovers.holders().hold(ino, left == 0);
    }
    core.leftovers.mark(&mut core.inodes, ino)?;
    core.touch(ino)
}

/// A directory without a name: it is an orphan until nobody holds it.
pub(super) fn drop_directory(
    core: &mut Core,
    ino: Ino,
    now: Timestamp,
    witness: &dyn Witness,
) -> Result<(), Stop> {
    let node = core.inodes.prepared(ino)?;
    let anchor = node.inode().anchor;
    node.inode_mut().nlink = 1;
    core.space.anchored(anchor, -1);
    core.pending.say(Record::Anchored(anchor, -1));
    drop_link(core, ino, now, witness)
}
