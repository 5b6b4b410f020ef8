//! All inodes, in parts with a lock each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loamfs_fuse::{Errno, FileAttr, FileKind, NodeId};

use super::directory::Directory;
use super::node::{Body, Node};

/// Parts. Numbers are given in order, so that neighbours are in different ones.
const SHARDS: usize = 64;

type Shard = HashMap<NodeId, Arc<Node>>;

/// The inodes.
pub struct Table {
    shards: Vec<Mutex<Shard>>,
    last: AtomicU64,
}

impl Table {
    /// An empty root directory.
    pub fn new() -> Table {
        let table = Table {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            last: AtomicU64::new(NodeId::ROOT.0),
        };
        let attr = FileAttr {
            mode: 0o755,
            nlink: 2,
            ..FileAttr::default()
        };
        let body = Body::Directory(Directory::default(), NodeId::ROOT);
        let root = Node::new(NodeId::ROOT, FileKind::Directory, attr, body);
        // The kernel knows it without a lookup.
        root.state().look_up();
        table.shard(root.id()).insert(root.id(), Arc::new(root));
        table
    }

    fn shard(&self, id: NodeId) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[(id.0 % SHARDS as u64) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An inode.
    ///
    /// # Errors
    /// ESTALE if there is none of this number.
    pub fn get(&self, id: NodeId) -> Result<Arc<Node>, Errno> {
        self.shard(id).get(&id).cloned().ok_or(Errno::STALE)
    }

    /// Makes an inode.
    pub fn make(&self, kind: FileKind, attr: FileAttr, body: Body) -> Arc<Node> {
        let id = NodeId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let node = Arc::new(Node::new(id, kind, attr, body));
        self.shard(id).insert(id, Arc::clone(&node));
        node
    }

    /// Drops an inode that nobody can reach any more.
    pub fn drop_if_gone(&self, node: &Node) {
        if node.state().is_gone() {
            self.shard(node.id()).remove(&node.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_goes_with_its_last_name_and_lookup() {
        let table = Table::new();
        let attr = FileAttr {
            nlink: 1,
            ..FileAttr::default()
        };
        let node = table.make(FileKind::Fifo, attr, Body::Special);
        node.state().look_up();
        node.state().count_names(-1);
        table.drop_if_gone(&node);
        assert!(table.get(node.id()).is_ok(), "the kernel knows it");
        node.state().forget(1);
        table.drop_if_gone(&node);
        assert_eq!(table.get(node.id()).err(), Some(Errno::STALE));
        assert!(table.get(NodeId::ROOT).is_ok());
    }
}
