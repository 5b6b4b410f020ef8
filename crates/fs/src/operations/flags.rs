//! Setting flags and projects.

use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::permission;
use crate::types::InodeFlags;
use loamfs_format::Ino;
use loamfs_format::inode::flag;

/// Bytes of the log that a change of an inode makes at most: its block.
pub(super) const INODE_COST: u64 = 32 << 10;

/// Sets an inode's flags and project. Who may do so is the caller's to know.
#[derive(Clone, Copy)]
pub(crate) struct SetFlags {
    pub ino: Ino,
    pub flags: InodeFlags,
}

/// [`SetFlags`], prepared.
pub(crate) struct SettingFlags(SetFlags);

impl Operation for SetFlags {
    type Change = SettingFlags;

    fn prepare(&self, core: &mut Core) -> Result<Plan<SettingFlags>, Stop> {
        if self.flags.bits & !flag::ALL != 0 {
            return Err(Error::Unsupported.into());
        }
        permission::may_set_flags(core.flags(self.ino)?, self.flags)?;
        core.prepare_dirty(self.ino)?;
        Ok(Plan::Change(SettingFlags(*self)))
    }
}

impl Change for SettingFlags {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: INODE_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let SetFlags { ino, flags } = self.0;
        let now = core.env.now();
        let node = core.inodes.prepared(ino)?;
        node.inode_mut().flags = permission::flags_of(node.inode().mode, flags.bits);
        node.inode_mut().project = flags.project;
        node.inode_mut().ctime = now;
        Ok(core.touch(ino)?)
    }
}
