//! What a walk tells about.

use super::slots::Slotted;
use crate::{Owner, Problem};
use loamfs_format::dirent::Dirent;
use loamfs_format::inode::Inode;
use loamfs_format::kind::{Belongs, InodeTree, MapTree};
use loamfs_format::{BlockKind, Extent, FragAddr, Ino};
use std::ops::AddAssign;

/// What a walk could not see, so that nobody draws conclusions from its absence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Blocks that may be in use.
    pub(crate) space: bool,
    /// Names that may be there.
    pub(crate) names: bool,
    /// Inodes that may live.
    pub(crate) inodes: bool,
    /// Parts of the bitmap.
    pub(crate) bits: bool,
    /// Parts of the owner records.
    pub(crate) owners: bool,
    /// Group descriptors.
    pub(crate) groups: bool,
    /// The kinds of blocks below which all this is, a bit each.
    pub(crate) kinds: u32,
}

impl Lost {
    /// What is out of reach below a block of this kind.
    pub(crate) fn below(kind: BlockKind) -> Lost {
        let mut lost = Lost {
            space: true,
            kinds: 1 << kind as u32,
            ..Lost::default()
        };
        match kind.belongs() {
            Belongs::Inodes | Belongs::Map(MapTree::Ifile) => {
                lost.names = true;
                lost.inodes = true;
            }
            Belongs::Tree(InodeTree::Dir) => lost.names = true,
            Belongs::Map(MapTree::Bitmap) => lost.bits = true,
            Belongs::Map(MapTree::Owner) => lost.owners = true,
            Belongs::Map(MapTree::Group) => lost.groups = true,
            Belongs::Volume
            | Belongs::Part(_)
            | Belongs::Map(MapTree::Lazy)
            | Belongs::Tree(
                InodeTree::Extent | InodeTree::Checksum | InodeTree::Xattr | InodeTree::Track,
            ) => {}
        }
        lost
    }

    /// Whether it is all below nodes of one map.
    pub(crate) fn is_only(&self, map: MapTree) -> bool {
        *self == Lost::below(map.kind())
    }
}

impl AddAssign for Lost {
    fn add_assign(&mut self, more: Lost) {
        self.space |= more.space;
        self.names |= more.names;
        self.inodes |= more.inodes;
        self.bits |= more.bits;
        self.owners |= more.owners;
        self.groups |= more.groups;
        self.kinds |= more.kinds;
    }
}

/// Listens to a walk. A listener overrides what it wants to hear.
pub(crate) trait Visitor {
    /// A range is in use.
    fn claim(&mut self, _extent: Extent, _owner: Owner) {}
    /// The lazy map's entry of this home belongs to a file.
    fn image(&mut self, _home: FragAddr) {}
    /// A directory has an entry.
    fn name(&mut self, _dir: Ino, _entry: &Dirent<'_>) {}
    /// An inode lives.
    fn inode(&mut self, _inode: &Inode, _orphan: bool) {}
    /// A slot of a track is valid.
    fn slot(&mut self, _slot: &Slotted) {}
    /// The head of a track was read.
    fn track(&mut self) {}
    /// An inode lives that has no name and needs none.
    fn reserved(&mut self) {}
    /// Something is wrong by itself.
    fn problem(&mut self, _problem: Problem) {}
    /// Something cannot be seen.
    fn lost(&mut self, _lost: Lost) {}
    /// A node was read.
    fn node(&mut self) {}
    /// Data were read and are what they should be.
    fn data(&mut self, _bytes: u64) {}
    /// An extent may have units that were never written.
    fn unwritten(&mut self, _extent: Extent) {}
    /// That many maps were walked.
    fn maps_done(&mut self, _maps: u64) {}
}
