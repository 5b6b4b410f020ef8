//! The trees of an inode, by the kind of their nodes.

use crate::tracks::table;
use crate::tree::Tree;
use crate::{dir, extents, xattrs};
use loamfs_format::BlockKind;
use loamfs_format::inode::{Body, Inode, Table};
use loamfs_format::node::TreeRoot;

/// The kinds of nodes that inodes' trees have, in the order in which a segment holds them.
pub(crate) const KINDS: [BlockKind; 5] = [
    BlockKind::DirNode,
    BlockKind::ExtentNode,
    BlockKind::ChecksumNode,
    BlockKind::XattrNode,
    BlockKind::TrackNode,
];

/// The tree of an inode that has nodes of a kind, and its root; none if it has no such tree.
pub(crate) fn tree_of(inode: &Inode, kind: BlockKind) -> Option<(Tree, TreeRoot)> {
    match (kind, &inode.body) {
        (BlockKind::DirNode, Body::DirTree(root)) => Some((dir::tree(inode), *root)),
        (BlockKind::ExtentNode, Body::ExtentTree(root)) => Some((extents::tree(inode), *root)),
        (BlockKind::ChecksumNode, _) => Some((extents::crc_tree(inode), inode.checksums)),
        (BlockKind::XattrNode, _) => Some((xattrs::tree(inode), inode.xattrs)),
        (BlockKind::TrackNode, _) => match inode.table {
            Table::Tree(root) => Some((table::tree(inode), root)),
            Table::None | Table::Inline(_) => None,
        },
        _ => None,
    }
}

/// Gives the tree that has nodes of a kind another root. Kinds of which inodes have no tree change nothing.
pub(crate) fn set_root(inode: &mut Inode, kind: BlockKind, root: TreeRoot) {
    match kind {
        BlockKind::DirNode => inode.body = Body::DirTree(root),
        BlockKind::ExtentNode => inode.body = Body::ExtentTree(root),
        BlockKind::ChecksumNode => inode.checksums = root,
        BlockKind::XattrNode => inode.xattrs = root,
        BlockKind::TrackNode if root.is_empty() => inode.table = Table::None,
        BlockKind::TrackNode => inode.table = Table::Tree(root),
        _ => {}
    }
}
