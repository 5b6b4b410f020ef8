//! Bringing inodes into memory, with the access times that count.

mod kept;

use crate::atime::waiting::Atimes;
use crate::blocks::{Blocks, Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::inodes::{Inodes, Node};
use crate::maps::Maps;
use loamfs_format::atime::Atime;
use loamfs_format::ifile::block_of;
use loamfs_format::inode::Inode;
use loamfs_format::superblock::Superblock;
use loamfs_format::{Geometry, Ino, InodeBlockNo, Ssn};

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

    /// The volume's number.
    pub fn uuid(&self) -> [u8; 16] {
        self.sb.uuid
    }

    /// The volume's sizes.
    pub fn geometry(&self) -> Geometry {
        self.sb.geometry
    }

    /// The inodes in memory.
    pub fn inodes(&mut self) -> &mut Inodes {
        self.inodes
    }

    /// Brings an inode block into memory that is about to change.
    pub fn load_block(&mut self, block: InodeBlockNo) -> Result<(), Stop> {
        self.inodes.load_block(self.maps, self.blocks, block)
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
        if self.inodes.get(ino).is_none() {
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
        if !node.inode().is_dir() {
            return Err(Error::NotDirectory.into());
        }
        Ok((node, blocks))
    }

    /// Brings what dirtying an inode needs into memory.
    pub fn prepare_dirty(mut self, ino: Ino) -> Result<(), Stop> {
        self.again().node(ino)?;
        self.load_block(block_of(ino))?;
        self.prepare_unsettle(ino)
    }

    /// Brings an inode into memory, with the access time that counts.
    fn load(&mut self, ino: Ino) -> Result<(), Stop> {
        let (inode, last) = self.stored(ino)?;
        self.inodes.take_in(Node::new(inode, last));
        Ok(())
    }

    /// An inode that is not in memory, with the access time that counts, and the segment that has it. It does not come into
    /// memory by that.
    pub fn stored(&mut self, ino: Ino) -> Result<(Inode, Ssn), Stop> {
        let mut missed = Missed::default();
        let kept = missed.note(self.kept(ino))?.flatten();
        let stored = missed.note(self.inodes.stored(self.maps, self.blocks, ino))?;
        missed.nothing()?;
        let (mut inode, last) = stored.ok_or(Stop::Missing)?;
        with_time(&mut inode, kept);
        Ok((inode, last))
    }

    /// That an inode which a track brought is the one that its block has.
    pub(crate) fn check_stored(&self, ino: Ino) -> Result<(), Stop> {
        self.inodes.check_stored(ino)
    }
}

/// The access time that is kept of an inode is its own, if it counts.
pub(crate) fn with_time(inode: &mut Inode, kept: Option<Atime>) {
    if let Some(kept) = kept.filter(|kept| kept.counts(inode.ssn)) {
        inode.atime = kept.time;
    }
}
