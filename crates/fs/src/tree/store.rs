//! What the tree needs from its surroundings.

use super::SealedNode;
use loamfs_format::node::Page;
use loamfs_format::{FragAddr, Identity, Pointer};
use std::sync::Arc;

/// Where reading functions get nodes from.
pub trait NodeReader {
    /// Why an operation stopped: a node must be read first, or is damaged.
    type Stop;

    /// The node at `pointer`: from dirty memory if its address is temporary, else from the cache. What came from a
    /// device was verified against its pointer's checksum and by [`Page::from_bytes`].
    ///
    /// # Errors
    /// A stop when the node is not in memory, after making a note that it is wanted, or cannot be had.
    fn node(&mut self, pointer: &Pointer, identity: &Identity) -> Result<Arc<Page>, Self::Stop>;

    /// The stop for a tree whose nodes, each fine by itself, do not fit together at this node.
    fn fault(&mut self, pointer: &Pointer, identity: &Identity, fault: Fault) -> Self::Stop;
}

/// Where changing functions keep nodes.
pub trait NodeStore: NodeReader {
    /// Like [`NodeReader::node`], but a node that is not in memory is not wanted either.
    fn peek(&mut self, pointer: &Pointer, identity: &Identity) -> Option<Arc<Page>>;

    /// Takes in a new dirty node, under a fresh temporary address.
    fn insert(&mut self, page: Page) -> FragAddr;

    /// A dirty node, for change. Whoever still holds it by [`NodeReader::node`] keeps it as it was.
    ///
    /// # Errors
    /// A stop when there is no such node, which is a defect: the tree asks only for nodes that it inserted.
    fn page_mut(&mut self, temporary: FragAddr) -> Result<&mut Page, Self::Stop>;

    /// Takes a dirty node out: to be sealed, or because it vanished before it was ever written.
    ///
    /// # Errors
    /// A stop when there is no such node, as from [`NodeStore::page_mut`].
    fn take(&mut self, temporary: FragAddr) -> Result<Arc<Page>, Self::Stop>;

    /// A node on a device is superseded: the next segment frees its space.
    fn retire(&mut self, pointer: &Pointer, identity: &Identity);

    /// A node that was taken out to be sealed has its place and is clean from now on.
    fn sealed(&mut self, node: &SealedNode);
}

/// How nodes contradict each other, or a request the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The store gave another node than its parent names.
    #[error("another node than its parent names")]
    Identity,
    /// A node without entries.
    #[error("empty node")]
    Empty,
    /// A key that belongs to the next node.
    #[error("node holds key {last}, but the next one begins at {end}")]
    Range {
        /// Highest key of the node.
        last: u64,
        /// Lowest key that it must not hold.
        end: u64,
    },
    /// A record of a child that cannot be read.
    #[error("record of child {index} is not valid")]
    Child {
        /// Index of the record.
        index: usize,
    },
    /// A tree that cannot grow any higher.
    #[error("tree is too high")]
    Height,
    /// A value longer than [`loamfs_format::node::VALUE_MAX`].
    #[error("value of {len} bytes")]
    Value {
        /// Its length.
        len: usize,
    },
}
