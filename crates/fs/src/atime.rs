//! When inodes were read: beside the inodes, in the atime file (a reserved inode), so that a read never rewrites one.
//!
//! An inode in memory has the time that counts. One that changed since the last segment takes it along; of the others
//! the new times wait here until they are put into the file's tree. A time there counts as long as the inode is the one
//! of which it was taken, which the segment of its last change tells.

use crate::blocks::{Blocks, Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::extents;
use crate::inodes::{Inodes, Node};
use crate::maps::Maps;
use crate::tree::Tree;
use loamfs_format::Ino;
use loamfs_format::atime::{ATIME_INO, Atime, AtimeRun, is_atime_file};
use loamfs_format::ifile::{block_of, slot_of};
use loamfs_format::node::TreeRoot;
use loamfs_format::superblock::{COMPATIBLE_ATIME, Superblock};

mod file;
pub(crate) mod waiting;

use waiting::{Atimes, File};

/// What brings inodes into memory, with the access times that count.
pub(crate) struct Loader<'c> {
    /// It says whether there is such a file.
    sb: &'c mut Superblock,
    maps: &'c Maps,
    blocks: &'c mut Blocks,
    inodes: &'c mut Inodes,
    atimes: &'c mut Atimes,
}

impl Core {
    /// What brings inodes into memory.
    pub fn loader(&mut self) -> Loader<'_> {
        Loader::new(
            &mut self.sb,
            &self.maps,
            &mut self.blocks,
            &mut self.inodes,
            &mut self.atimes,
        )
    }
}

impl<'c> Loader<'c> {
    /// What of these parts brings inodes into memory.
    pub fn new(
        sb: &'c mut Superblock,
        maps: &'c Maps,
        blocks: &'c mut Blocks,
        inodes: &'c mut Inodes,
        atimes: &'c mut Atimes,
    ) -> Loader<'c> {
        Loader {
            sb,
            maps,
            blocks,
            inodes,
            atimes,
        }
    }

    /// The same, for one more inode.
    pub fn again(&mut self) -> Loader<'_> {
        Loader::new(self.sb, self.maps, self.blocks, self.inodes, self.atimes)
    }

    /// The key of names' hashes.
    pub fn hash_key(&self) -> [u8; 16] {
        self.sb.hash_key
    }

    /// An inode, brought into memory if it is not there.
    ///
    /// # Errors
    /// Missing blocks, damage, or [`Error::Stale`].
    pub fn node(self, ino: Ino) -> Result<&'c mut Node, Stop> {
        self.with_blocks(ino).map(|(node, _)| node)
    }

    /// As [`Loader::node`], with the blocks that its trees are read from.
    pub fn with_blocks(mut self, ino: Ino) -> Result<(&'c mut Node, &'c mut Blocks), Stop> {
        if !self.inodes.nodes.contains_key(&ino) {
            self.load(ino)?;
        }
        Ok((self.inodes.loaded(ino)?, self.blocks))
    }

    /// As [`Loader::with_blocks`], for an inode that was prepared.
    ///
    /// # Errors
    /// As [`Inodes::prepared`].
    pub fn prepared(self, ino: Ino) -> Result<(&'c mut Node, &'c mut Blocks), Stop> {
        Ok((self.inodes.prepared(ino)?, self.blocks))
    }

    /// As [`Loader::with_blocks`], for a directory.
    ///
    /// # Errors
    /// [`Error::NotDirectory`] besides what [`Loader::node`] gives.
    pub fn directory(self, ino: Ino) -> Result<(&'c mut Node, &'c mut Blocks), Stop> {
        let (node, blocks) = self.with_blocks(ino)?;
        if !node.inode.is_dir() {
            return Err(Error::NotDirectory.into());
        }
        Ok((node, blocks))
    }

    /// Brings what dirtying an inode needs into memory.
    pub fn prepare_dirty(mut self, ino: Ino) -> Result<(), Stop> {
        self.again().node(ino)?;
        self.inodes
            .load_block(self.maps, self.blocks, block_of(ino))
    }

    /// Brings an inode into memory, with the access time that counts.
    fn load(&mut self, ino: Ino) -> Result<(), Stop> {
        let mut missed = Missed::default();
        let kept = missed.note(self.kept(ino))?.flatten();
        missed.note(self.inodes.load(self.maps, self.blocks, ino))?;
        if let Err(stop) = missed.nothing() {
            self.inodes.nodes.remove(&ino);
            return Err(stop);
        }
        if let Some(node) = self.inodes.nodes.get_mut(&ino)
            && let Some(kept) = kept.filter(|kept| kept.counts(node.inode.ssn))
        {
            node.inode.atime = kept.time;
        }
        Ok(())
    }

    /// The access time that is kept of an inode, if any. Damage of the file is no error: the inode's own time counts.
    fn kept(&mut self, ino: Ino) -> Result<Option<Atime>, Stop> {
        if ino == ATIME_INO {
            return Ok(None);
        }
        if let Some(waiting) = self.atimes.waiting.get(&ino) {
            return Ok(Some(*waiting));
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
    fn tree(&mut self) -> Result<Option<(Tree, TreeRoot)>, Stop> {
        if matches!(self.atimes.file, File::Absent | File::Unusable) {
            return Ok(None);
        }
        let loaded = self.inodes.load(self.maps, self.blocks, ATIME_INO);
        if matches!(loaded, Err(Stop::Failed(Error::Stale(_)))) {
            self.atimes.file = File::Absent;
            return Ok(None);
        }
        self.atimes.unless_damaged(loaded)?;
        let node = self.inodes.nodes.get(&ATIME_INO);
        let Some(inode) = node
            .map(|node| &node.inode)
            .filter(|inode| is_atime_file(inode))
        else {
            self.atimes.file = File::Unusable;
            return Ok(None);
        };
        self.atimes.file = File::There;
        self.sb.compatible |= COMPATIBLE_ATIME;
        Ok(Some((extents::crc_tree(inode), inode.checksums)))
    }
}
