//! One more name.

use super::placing::enter;
use super::{Broken, Change, Claim, NAMES_COST, Operation, Plan, changed_names};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::flags::flags_of;
use crate::namespace::{Child, valid_name};
use crate::permission;
use crate::stat;
use crate::types::Attr;
use loamfs_format::Ino;

/// Gives an inode one more name.
pub(crate) struct Link {
    pub ino: Ino,
    pub dir: Ino,
    pub name: Vec<u8>,
}

/// [`Link`], prepared.
pub(crate) struct Linking {
    ino: Ino,
    dir: Ino,
    name: Vec<u8>,
    /// Where its entry stands.
    key: u64,
    file_type: u32,
}

impl Operation for Link {
    type Change = Linking;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Linking>, Stop> {
        let (ino, dir, name) = (self.ino, self.dir, &self.name);
        valid_name(name)?;
        let node = core.visible(ino)?;
        if node.inode().is_dir() {
            return Err(Error::NotPermitted.into());
        }
        let (nlink, file_type) = (node.inode().nlink, node.inode().file_type());
        if nlink == 0 && !core.leftovers.holders().is_nameless(ino) {
            return Err(Error::NotFound.into());
        }
        if nlink >= core.env.config().links_max {
            return Err(Error::TooManyLinks.into());
        }
        if core.names().find(dir, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        let parent = core.directory(dir)?.inode();
        if parent.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        let into = flags_of(parent);
        let flags = core.flags(ino)?;
        permission::may_change(flags)?;
        permission::may_enter(into, flags)?;
        core.prepare_dirty(ino)?;
        core.prepare_dirty(dir)?;
        Ok(Plan::Change(Linking {
            ino,
            dir,
            key: core.names().prepare_add(dir, name)?,
            name: name.clone(),
            file_type,
        }))
    }
}

impl Change for Linking {
    type Done = Attr;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: NAMES_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Attr, Broken> {
        let (ino, dir, key) = (self.ino, self.dir, self.key);
        let now = core.env.now();
        let file_type = self.file_type;
        core.names()
            .add(dir, key, Child { ino, file_type }, &self.name)?;
        changed_names(core, dir, now)?;
        let node = core.inodes.prepared(ino)?;
        node.inode_mut().nlink += 1;
        node.inode_mut().ctime = now;
        if core.leftovers.holders().take_nameless(ino) {
            node.inode_mut().parent = dir;
            node.set_dir_key(key);
            enter(core, ino, dir)?;
        }
        core.leftovers.mark(&mut core.inodes, ino)?;
        core.touch(ino)?;
        Ok(stat::attr(core, ino)?)
    }
}
