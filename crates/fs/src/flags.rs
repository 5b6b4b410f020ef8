//! Flags and projects of inodes.

use crate::blocks::Stop;
use crate::core::Core;
use crate::types::InodeFlags;
use loamfs_format::Ino;
use loamfs_format::inode::Inode;

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
        Ok(flags_of(self.node(ino)?.inode()))
    }
}
