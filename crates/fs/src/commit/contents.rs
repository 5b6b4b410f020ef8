//! What a segment will hold, listed in the order of its body.

use crate::blocks::{Blocks, Stop};
use crate::inodes::{Inodes, Node, trees};
use crate::tracks::Tracks;
use crate::tracks::layout::Layout;
use loamfs_format::kind::{InodeTree, MapTree};
use loamfs_format::node::NODE_SIZE;
use loamfs_format::{Geometry, Ino, InodeBlockNo};
use std::collections::HashSet;

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

/// A tree with dirty nodes: of an inode, or a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeOf {
    Inode(Ino, InodeTree),
    Map(MapTree),
}

/// What a segment will hold, in the order of its body: trees and inode blocks, then small data by directory and in
/// readdir order, then values and images (DESIGN.md, "The log").
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub inode_blocks: Vec<InodeBlockNo>,
    /// Inode blocks that stay where they are, and of which the summary says what changed.
    pub apart: Vec<InodeBlockNo>,
    /// Of how many of these it says the entry.
    pub entries: u64,
    /// Bytes of what it says of their inodes, at most.
    pub deltas: u64,
    pub trees: Vec<(TreeOf, usize)>,
    pub data: Vec<Item>,
    /// Fragments of each block, in the order of the body.
    pub frags: Vec<u32>,
    /// Tracks besides.
    pub tracks: Vec<Layout>,
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

    /// Lists what is dirty.
    pub fn list(
        g: &Geometry,
        blocks: &mut Blocks,
        inodes: &Inodes,
        tracks: &Tracks,
    ) -> Result<Contents, Stop> {
        let mut contents = Contents {
            tracks: tracks.layouts(g, inodes),
            ..Contents::default()
        };
        let changed: Vec<&Node> = changed(inodes).collect();
        for node in &changed {
            contents.add_trees(g, blocks, node)?;
        }
        contents.add_inode_blocks(g, inodes);
        contents.add_small(g, &changed);
        for node in &changed {
            contents.add_values(g, node);
            contents.add_images(g, node);
        }
        Ok(contents)
    }

    fn add_trees(&mut self, g: &Geometry, blocks: &mut Blocks, node: &Node) -> Result<(), Stop> {
        let inode = node.inode();
        for which in InodeTree::ALL {
            let Some((tree, root)) = trees::tree_of(inode, which) else {
                continue;
            };
            let count = tree.dirty_nodes(&root, blocks)?.len();
            if count > 0 {
                self.trees.push((TreeOf::Inode(inode.ino, which), count));
                self.frags.extend(std::iter::repeat_n(node_frags(g), count));
            }
        }
        Ok(())
    }

    /// What fills whole units comes first, so that it leaves holes of whole units once it is superseded.
    fn add_inode_blocks(&mut self, g: &Geometry, inodes: &Inodes) {
        let mut sized: Vec<(InodeBlockNo, u32)> = Vec::new();
        for (block, b) in inodes.dirty_blocks() {
            match inodes.longest_deltas(block, b) {
                Some(bytes) => {
                    self.apart.push(block);
                    self.entries += u64::from(b.says_entry());
                    self.deltas += bytes;
                }
                None if b.live() != 0 => sized.push((block, g.frags_for(b.bytes()) as u32)),
                None => {}
            }
        }
        sized.sort_by_key(|(_, frags)| !u64::from(*frags).is_multiple_of(g.unit_frags()));
        for (block, frags) in sized {
            self.inode_blocks.push(block);
            self.frags.push(frags);
        }
    }

    /// Blocks of all its tracks.
    pub fn track_blocks(&self) -> u64 {
        let files = self.tracks.iter().map(|track| track.files.len() as u64 + 1);
        files.sum()
    }

    /// By directory, and in readdir order, but for what is in tracks.
    fn add_small(&mut self, g: &Geometry, changed: &[&Node]) {
        let files = self.tracks.iter().flat_map(|track| &track.files);
        let settling: HashSet<Ino> = files.map(|(_, file)| file.ino).collect();
        let mut small: Vec<(Ino, u64, Ino, u32)> = Vec::new();
        for node in changed {
            if let Some(data) = node.small()
                && !settling.contains(&node.inode().ino)
            {
                let frags = g.frags_for(data.len() as u64) as u32;
                small.push((node.inode().parent, node.dir_key(), node.inode().ino, frags));
            }
        }
        small.sort_unstable();
        for (_, _, ino, frags) in small {
            self.data.push(Item::Small(ino));
            self.frags.push(frags);
        }
    }

    fn add_values(&mut self, g: &Geometry, node: &Node) {
        for (key, value) in node.values() {
            for (i, part) in value.chunks(g.small_size as usize).enumerate() {
                self.data.push(Item::Value(node.inode().ino, *key, i));
                self.frags.push(g.frags_for(part.len() as u64) as u32);
            }
        }
    }

    fn add_images(&mut self, g: &Geometry, node: &Node) {
        for unit in node.homed().images() {
            self.data.push(Item::Image(node.inode().ino, unit));
            self.frags.push(g.unit_frags() as u32);
        }
    }
}

/// The inodes that changed since the last segment.
fn changed(inodes: &Inodes) -> impl Iterator<Item = &Node> {
    let inos = inodes.dirty_blocks().flat_map(|(block, b)| b.inos(block));
    let nodes = inos.filter_map(|ino| inodes.get(ino));
    nodes.filter(|node| node.is_dirty())
}

/// Fragments of a node.
pub(super) fn node_frags(g: &Geometry) -> u32 {
    g.frags_for(NODE_SIZE as u64) as u32
}
