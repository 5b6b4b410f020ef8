//! Flags and projects of inodes.

use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::permission;
use crate::types::InodeFlags;
use loamfs_format::Ino;
use loamfs_format::inode::{Inode, flag};

/// Bytes of the log that a change of an inode makes at most: its block.
const INODE_COST: u64 = 32 << 10;

/// What an inode in memory has.
pub(crate) fn flags_of(inode: &Inode) -> InodeFlags {
    InodeFlags {
        bits: inode.flags,
        project: inode.project,
    }
}

impl Core {
    /// An inode's flags and project.
    pub fn flags(&mut self, ino: Ino) -> Result<InodeFlags, Stop> {
        Ok(flags_of(&self.node(ino)?.inode))
    }

    /// Sets an inode's flags and project. Who may do so is the caller's to know.
    pub fn set_flags(&mut self, ino: Ino, flags: InodeFlags) -> Result<(), Stop> {
        if flags.bits & !flag::ALL != 0 {
            return Err(Error::Unsupported.into());
        }
        let before = self.flags(ino)?;
        permission::may_set_flags(before, flags)?;
        self.prepare_dirty(ino)?;
        self.admit(INODE_COST, 0)?;
        self.apply(|core| {
            let now = core.clock.now();
            let node = core.inodes.prepared(ino)?;
            node.inode.flags = permission::flags_of(node.inode.mode, flags.bits);
            node.inode.project = flags.project;
            node.inode.ctime = now;
            core.touch(ino)
        })
    }
}
