//! Link counts and lost names.

use super::Done;
use crate::blocks::Stop;
use crate::core::Core;
use crate::namespace::Child;
use crate::operations::{Broken, Change, Claim, NAMES_COST, Operation, Plan};
use loamfs_format::Ino;
use loamfs_format::inode::mode;

/// Corrects an inode's link count, and its orphan bit with it.
#[derive(Clone, Copy)]
pub(super) struct SetLinks {
    pub ino: Ino,
    pub count: u32,
}

impl Operation for SetLinks {
    type Change = SetLinks;

    fn prepare(&self, core: &mut Core) -> Result<Plan<SetLinks>, Stop> {
        core.prepare_dirty(self.ino)?;
        if core.node(self.ino)?.inode().is_dir() && self.count < 2 {
            return Ok(Plan::Done(Done::No("a directory has two links at least")));
        }
        Ok(Plan::Change(*self))
    }
}

impl Change for SetLinks {
    type Done = Done;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<Done, Broken> {
        let (ino, now) = (self.ino, core.env.now());
        let node = core.inodes.prepared(ino)?;
        node.inode_mut().nlink = self.count;
        node.inode_mut().ctime = now;
        core.leftovers.remove(ino);
        core.leftovers.mark(&mut core.inodes, ino)?;
        core.touch(ino)?;
        Ok(Done::Yes)
    }
}

/// Gives an inode that has no name one, and the link count that goes with it.
pub(super) struct Adopt {
    pub parent: Ino,
    pub name: String,
    pub ino: Ino,
    pub links: u32,
}

/// [`Adopt`], prepared.
pub(super) struct Adopting {
    parent: Ino,
    name: String,
    /// Where the name goes.
    key: u64,
    ino: Ino,
    links: u32,
}

impl Operation for Adopt {
    type Change = Adopting;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Adopting>, Stop> {
        let name = self.name.as_bytes();
        core.prepare_dirty(self.ino)?;
        core.prepare_dirty(self.parent)?;
        if core.names().find(self.parent, name)?.is_some() {
            return Ok(Plan::Done(Done::No("the name is taken")));
        }
        Ok(Plan::Change(Adopting {
            parent: self.parent,
            name: self.name.clone(),
            key: core.names().prepare_add(self.parent, name)?,
            ino: self.ino,
            links: self.links,
        }))
    }
}

impl Change for Adopting {
    type Done = Done;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: NAMES_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Done, Broken> {
        let (parent, ino, now) = (self.parent, self.ino, core.env.now());
        let node = core.inodes.prepared(ino)?;
        let file_type = node.inode().file_type();
        node.inode_mut().nlink = self.links;
        node.inode_mut().parent = parent;
        node.inode_mut().ctime = now;
        node.set_dir_key(self.key);
        let child = Child { ino, file_type };
        core.names()
            .add(parent, self.key, child, self.name.as_bytes())?;
        let above = core.inodes.prepared(parent)?;
        let is_dir = u32::from(file_type == mode::DIRECTORY);
        above.inode_mut().nlink = above.inode().nlink.saturating_add(is_dir);
        above.inode_mut().mtime = now;
        above.inode_mut().ctime = now;
        core.leftovers.remove(ino);
        core.leftovers.mark(&mut core.inodes, ino)?;
        core.touch(ino)?;
        core.touch(parent)?;
        Ok(Done::Yes)
    }
}
