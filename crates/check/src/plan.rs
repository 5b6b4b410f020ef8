//! What a repair would have to change, as plain data.
use loamfs_format::kind::MapTree;

use loamfs_format::ifile::IfileEntry;
use loamfs_format::maps::LazyEntry;
use loamfs_format::summary::Unwritten;
use loamfs_format::{Extent, FragAddr, GroupNo, Ino, InodeBlockNo};
use std::collections::BTreeSet;

/// A repair of what [`Problem::repairable`](crate::Problem::repairable) says; whoever writes the volume applies it as
/// ordinary segments.
///
/// The plan is right for exactly the state that was checked ([`Stats::last`](crate::Stats::last)). Ranges in doubt are
/// left out: nothing is cleared when a part of the metadata could not be read, as what that part uses looks unused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Ranges in use whose bits are clear, by address.
    pub set: Vec<Extent>,
    /// Ranges whose bits are set, but which are nobody's, by address.
    pub clear: Vec<Extent>,
    /// Inodes with names and their right link counts.
    pub links: Vec<(Ino, u32)>,
    /// Live inodes without a name: to be named in a lost+found, or removed.
    pub unnamed: Vec<Ino>,
    /// Groups whose descriptors count something else than the bitmap, which is right.
    pub recount: Vec<GroupNo>,
    /// Nodes of maps that cannot be read, and of which it is known otherwise what they said: the map, the level, and the
    /// lower bound. They are to be taken out. What groups are used for and what is in use is found out from what is left;
    /// what is too much there shows when it is checked again.
    pub nodes: Vec<(MapTree, u8, u64)>,
    /// What the IFILE is to say of blocks of inodes, in the place of such nodes.
    pub inode_blocks: Vec<(InodeBlockNo, IfileEntry)>,
    /// What the lazy map is to say of homes, in the place of such nodes.
    pub images: Vec<(FragAddr, LazyEntry)>,
    /// Nodes of maps of which a copy is damaged, by the map and the lower bound: they are to be written anew.
    pub worn: Vec<(MapTree, u64)>,
    /// Blocks of large files whose owner records are wrong, with the file and the number of the first block.
    pub homes: Vec<(Extent, Ino, u64)>,
    /// Directories of whose tracks something is wrong. Their tables are to be emptied: nodes and heads are freed, and each
    /// settled file that one of their names leads to gets an ordinary body, which points to the same data. What nodes that
    /// cannot be read took shows when it is checked again.
    pub tables: BTreeSet<Ino>,
    /// Files that are to get an ordinary body, since no track has a slot for them.
    pub unsettled: BTreeSet<Ino>,
    /// The first inode block whose number was never given out, where that is said wrongly.
    pub next_inode_block: Option<InodeBlockNo>,
    /// How many inodes live, where that is said wrongly.
    pub inodes: Option<u64>,
    /// What was never written, where that is counted wrongly.
    pub unwritten: Option<Unwritten>,
    /// Whether the plan stops short because there was too much to list; apply it and check again.
    pub truncated: bool,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
            && self.clear.is_empty()
            && self.links.is_empty()
            && self.unnamed.is_empty()
            && self.recount.is_empty()
            && self.homes.is_empty()
            && self.worn.is_empty()
            && self.tables.is_empty()
            && self.unsettled.is_empty()
            && self.next_inode_block.is_none()
            && self.inodes.is_none()
            && self.nodes.is_empty()
            && self.unwritten.is_none()
    }
}
