//! The trees of an inode, by what they hold.

use crate::tracks::table;
use crate::tree::Tree;
use crate::{dir, extents, xattrs};
use loamfs_format::inode::{Body, Inode, Table};
use loamfs_format::kind::InodeTree;
use loamfs_format::node::TreeRoot;

/// A tree of an inode, and its root; none if the inode has no such tree.
pub(crate) fn tree_of(inode: &Inode, which: InodeTree) -> Option<(Tree, TreeRoot)> {
    match which {
        InodeTree::Dir => match inode.body {
            Body::DirTree(root) => Some((dir::tree(inode), root)),
            _ => None,
        },
        InodeTree::Extent => match inode.body {
            Body::ExtentTree(root) => Some((extents::tree(inode), root)),
            _ => None,
        },
        InodeTree::Checksum => Some((extents::crc_tree(inode), inode.checksums)),
        InodeTree::Xattr => Some((xattrs::tree(inode), inode.xattrs)),
        InodeTree::Track => match inode.table {
            Table::Tree(root) => Some((table::tree(inode), root)),
            Table::None | Table::Inline(_) => None,
        },
    }
}

/// Gives a tree of an inode another root.
pub(crate) fn set_root(inode: &mut Inode, which: InodeTree, root: TreeRoot) {
    match which {
        InodeTree::Dir => inode.body = Body::DirTree(root),
        InodeTree::Extent => inode.body = Body::ExtentTree(root),
        InodeTree::Checksum => inode.checksums = root,
        InodeTree::Xattr => inode.xattrs = root,
        InodeTree::Track if root.is_empty() => inode.table = Table::None,
        InodeTree::Track => inode.table = Table::Tree(root),
    }
}
