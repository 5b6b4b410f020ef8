//! The access times that are kept in the file of them.

use super::Loader;
use crate::atime::waiting::File;
use crate::blocks::Stop;
use crate::error::Error;
use crate::extents;
use crate::tree::Tree;
use loamfs_format::Ino;
use loamfs_format::atime::{ATIME_INO, Atime, AtimeRun, is_atime_file};
use loamfs_format::ifile::{block_of, slot_of};
use loamfs_format::node::TreeRoot;
use loamfs_format::superblock::COMPATIBLE_ATIME;

impl Loader<'_> {
    /// The access time that is kept of an inode, if any. Damage of the file is no error: the inode's own time counts.
    pub(crate) fn kept(&mut self, ino: Ino) -> Result<Option<Atime>, Stop> {
        if ino == ATIME_INO {
            return Ok(None);
        }
        if let Some(waiting) = self.atimes.get(ino) {
            return Ok(Some(waiting));
        }
        let Some((tree, root)) = self.tree()? else {
            return Ok(None);
        };
        let found = tree.get(&root, self.blocks, block_of(ino).0);
        let entry = self.atimes.unless_damaged(found)?.flatten();
        let run = entry.and_then(|entry| AtimeRun::decode(entry.value()));
        Ok(run.unwrap_or_default().0[slot_of(ino) as usize])
    }

    /// The atime file's tree; `None` without one that can be used.
    pub fn tree(&mut self) -> Result<Option<(Tree, TreeRoot)>, Stop> {
        if matches!(self.atimes.file(), File::Absent | File::Unusable) {
            return Ok(None);
        }
        let loaded = self.inodes.load(self.maps, self.blocks, ATIME_INO);
        if matches!(loaded, Err(Stop::Failed(Error::Stale(_)))) {
            self.atimes.set_file(File::Absent);
            return Ok(None);
        }
        self.atimes.unless_damaged(loaded)?;
        let node = self.inodes.get(ATIME_INO);
        let Some(inode) = node
            .map(|node| node.inode())
            .filter(|inode| is_atime_file(inode))
        else {
            self.atimes.set_file(File::Unusable);
            return Ok(None);
        };
        self.atimes.set_file(File::There);
        self.sb.compatible |= COMPATIBLE_ATIME;
        Ok(Some((extents::crc_tree(inode), inode.checksums)))
    }
}
