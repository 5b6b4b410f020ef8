//! What a segment will hold, listed in the order of its body.

use crate::blocks::Stop;
use crate::core::Core;
use crate::tree::Tree;
use crate::{dir, extents, xattrs};
use loamfs_format::ifile::ino_at;
use loamfs_format::inode::Body;
use loamfs_format::node::{NODE_SIZE, TreeRoot};
use loamfs_format::{BlockKind, Ino, InodeBlockNo};

/// A block that the segment will hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// Data of a small file.
    Small(Ino),
    /// A piece of an attribute's value: inode, key, piece.
    Value(Ino, u64, usize),
    /// An image: inode, unit.
    Image(Ino, u64),
}

/// A tree with dirty nodes and its owner; `None` for a map.
#[derive(Debug, Clone, Copy)]
pub(super) enum TreeOf {
    Directory(Ino),
    Extents(Ino),
    Checksums(Ino),
    Xattrs(Ino),
    Map(BlockKind),
}

/// What a segment will hold, in the order of its body: trees and inode blocks, then small data by directory and in
/// readdir order, then values and images (DESIGN.md, "The log").
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub inode_blocks: Vec<InodeBlockNo>,
    pub trees: Vec<(TreeOf, usize)>,
    pub data: Vec<Item>,
    /// Fragments of each block, in the order of the body.
    pub frags: Vec<u32>,
}

impl Contents {
    /// Nodes of maps, so many of each, of so many fragments.
    pub fn of_maps(trees: Vec<(TreeOf, usize)>, frags: u32) -> Contents {
        let nodes = trees.iter().map(|(_, count)| count).sum();
        Contents {
            trees,
            frags: vec![frags; nodes],
            ..Contents::default()
        }
    }
}

impl Core {
    /// Lists what is dirty, in the order of the body.
    pub(super) fn contents(&mut self) -> Result<Contents, Stop> {
        let mut contents = Contents::default();
        let geometry = self.geometry;
        let mut inos: Vec<Ino> = Vec::new();
        let mut inode_blocks: Vec<(InodeBlockNo, u32)> = Vec::new();
        for (block, b) in self.inodes.blocks.iter().filter(|(_, b)| b.dirty) {
            if b.live != 0 {
                let bytes = b.live.count_ones() as usize * loamfs_format::inode::SIZE;
                inode_blocks.push((*block, geometry.frags_for(bytes as u64) as u32));
            }
            inos.extend(
                (0..32)
                    .filter(|s| b.live & (1 << s) != 0)
                    .map(|s| ino_at(*block, s)),
            );
        }
        inos.retain(|ino| self.inodes.nodes.get(ino).is_some_and(|node| node.dirty));
        let node_frags = self.node_frags();
        for ino in &inos {
            for (of, tree, root) in self.trees_of(*ino) {
                let count = tree.dirty_nodes(&root, &mut self.blocks)?.len();
                if count > 0 {
                    contents.trees.push((of, count));
                    contents
                        .frags
                        .extend(std::iter::repeat_n(node_frags, count));
                }
            }
        }
        // What fills whole units comes first, so that it leaves holes of whole units once it is superseded.
        inode_blocks
            .sort_by_key(|(_, frags)| !u64::from(*frags).is_multiple_of(geometry.unit_frags()));
        for (block, frags) in inode_blocks {
            contents.inode_blocks.push(block);
            contents.frags.push(frags);
        }
        let mut small: Vec<(Ino, u64, Ino, u32)> = Vec::new();
        for ino in &inos {
            let Some(node) = self.inodes.nodes.get(ino) else {
                continue;
            };
            if let Some(data) = &node.small {
                let frags = geometry.frags_for(data.len() as u64) as u32;
                small.push((node.inode.parent, node.dir_key, *ino, frags));
            }
        }
        small.sort_unstable();
        for (_, _, ino, frags) in small {
            contents.data.push(Item::Small(ino));
            contents.frags.push(frags);
        }
        let piece = geometry.block_size as usize;
        for ino in &inos {
            let Some(node) = self.inodes.nodes.get(ino) else {
                continue;
            };
            for (key, value) in &node.values {
                for (i, part) in value.chunks(piece).enumerate() {
                    contents.data.push(Item::Value(*ino, *key, i));
                    contents
                        .frags
                        .push(geometry.frags_for(part.len() as u64) as u32);
                }
            }
            for unit in node.homed().images() {
                contents.data.push(Item::Image(*ino, unit));
                contents.frags.push(geometry.unit_frags() as u32);
            }
        }
        Ok(contents)
    }

    pub(super) fn trees_of(&self, ino: Ino) -> Vec<(TreeOf, Tree, TreeRoot)> {
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return Vec::new();
        };
        let inode = &node.inode;
        let mut trees = Vec::new();
        match inode.body {
            Body::DirTree(root) => trees.push((TreeOf::Directory(ino), dir::tree(inode), root)),
            Body::ExtentTree(root) => {
                trees.push((TreeOf::Extents(ino), extents::tree(inode), root));
            }
            _ => {}
        }
        trees.push((
            TreeOf::Checksums(ino),
            extents::crc_tree(inode),
            inode.checksums,
        ));
        trees.push((TreeOf::Xattrs(ino), xattrs::tree(inode), inode.xattrs));
        trees
    }

    pub(super) fn node_frags(&self) -> u32 {
        self.geometry.frags_for(NODE_SIZE as u64) as u32
    }
}

pub(super) fn same_tree(a: TreeOf, b: TreeOf) -> bool {
    matches!(
        (a, b),
        (TreeOf::Directory(_), TreeOf::Directory(_))
            | (TreeOf::Extents(_), TreeOf::Extents(_))
            | (TreeOf::Checksums(_), TreeOf::Checksums(_))
            | (TreeOf::Xattrs(_), TreeOf::Xattrs(_))
    )
}
