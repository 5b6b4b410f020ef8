//! A node store over a simulated disk, for tests.

use super::{Fault, NodePlace, NodeReader, NodeStore, SealedNode, Tree};
use loamfs_format::node::{Page, TreeRoot, is_temporary, temporary};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::{FragAddr, Identity, Pointer, Ssn};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why an operation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nodes must be read first.
    Missing,
    /// The tree is damaged.
    Corrupt(Fault),
    /// The tree asked for a dirty node that there is not.
    Lost(FragAddr),
}

/// Nodes in memory above nodes on a disk, with counts of what the tree did.
pub(crate) struct MemoryStore {
    pub uuid: [u8; 16],
    pub dirty: BTreeMap<FragAddr, Arc<Page>>,
    pub cache: BTreeMap<FragAddr, Arc<Page>>,
    /// Written and not yet freed.
    pub disk: BTreeMap<FragAddr, Vec<u8>>,
    /// Noted by operations that stopped.
    pub wanted: BTreeMap<FragAddr, (Pointer, Identity)>,
    /// Superseded since the last segment.
    pub retired: Vec<(Pointer, Identity)>,
    next_temporary: u64,
    next_addr: u64,
    ssn: Ssn,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore {
            uuid: [7; 16],
            dirty: BTreeMap::new(),
            cache: BTreeMap::new(),
            disk: BTreeMap::new(),
            wanted: BTreeMap::new(),
            retired: Vec::new(),
            next_temporary: 0,
            next_addr: 4,
            ssn: Ssn(1),
        }
    }

    /// Reads what operations wanted, and verifies it.
    pub fn fetch(&mut self) {
        for (addr, (pointer, identity)) in std::mem::take(&mut self.wanted) {
            let bytes = self
                .disk
                .get(&addr)
                .expect("pointer leads to a written node");
            assert_eq!(
                metadata_checksum(&self.uuid, &identity, bytes),
                pointer.checksum
            );
            assert_eq!(pointer.stored as usize, bytes.len());
            self.cache
                .insert(addr, Arc::new(Page::from_bytes(bytes, &identity).unwrap()));
        }
    }

    /// Runs a reading operation, fetching what it misses. Returns its result and how often it was sent back.
    pub fn drive<T>(
        &mut self,
        mut operation: impl FnMut(&mut Self) -> Result<T, Stop>,
    ) -> (T, usize) {
        for rounds in 0..100_000 {
            match operation(self) {
                Ok(result) => return (result, rounds),
                Err(Stop::Missing) => {
                    assert!(!self.wanted.is_empty(), "a stop names what is missing");
                    self.fetch();
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
        panic!("an operation does not end");
    }

    /// Writes all dirty nodes of the tree as one segment and frees what was superseded.
    pub fn seal(&mut self, tree: &Tree, root: &mut TreeRoot) -> Vec<SealedNode> {
        let dirty = tree.dirty_nodes(root, self).unwrap();
        assert_eq!(
            dirty.len(),
            self.dirty.len(),
            "every dirty node is in the tree"
        );
        let (uuid, birth) = (self.uuid, self.ssn);
        let (mut next, mut nodes) = (self.next_addr, Vec::new());
        let assign = |_: &Identity| {
            next += 4;
            NodePlace {
                addr: FragAddr(next),
                frags: 4,
                birth,
            }
        };
        *root = tree
            .finalize(root, self, &uuid, assign, |node| nodes.push(node))
            .unwrap();
        self.next_addr = next;
        self.ssn = self.ssn.next();
        assert!(self.dirty.is_empty());
        assert!(
            dirty
                .iter()
                .map(|node| node.identity)
                .eq(nodes.iter().map(|node| node.identity))
        );
        for node in &nodes {
            self.disk
                .insert(node.pointer.addr, node.page.as_bytes().to_vec());
        }
        for (pointer, _) in std::mem::take(&mut self.retired) {
            self.disk
                .remove(&pointer.addr)
                .expect("a node is retired once, and only if it was written");
            self.cache.remove(&pointer.addr);
        }
        nodes
    }
}

impl NodeReader for MemoryStore {
    type Stop = Stop;

    fn node(&mut self, pointer: &Pointer, identity: &Identity) -> Result<Arc<Page>, Stop> {
        if let Some(page) = self.peek(pointer, identity) {
            return Ok(page);
        }
        if is_temporary(pointer.addr) {
            return Err(Stop::Lost(pointer.addr));
        }
        self.wanted.insert(pointer.addr, (*pointer, *identity));
        Err(Stop::Missing)
    }

    fn fault(&mut self, _: &Pointer, _: &Identity, fault: Fault) -> Stop {
        Stop::Corrupt(fault)
    }
}

impl NodeStore for MemoryStore {
    fn peek(&mut self, pointer: &Pointer, _: &Identity) -> Option<Arc<Page>> {
        let nodes = if is_temporary(pointer.addr) {
            &self.dirty
        } else {
            &self.cache
        };
        nodes.get(&pointer.addr).cloned()
    }

    fn insert(&mut self, page: Page) -> FragAddr {
        let addr = temporary(self.next_temporary);
        self.next_temporary += 1;
        self.dirty.insert(addr, Arc::new(page));
        addr
    }

    fn page_mut(&mut self, temporary: FragAddr) -> Result<&mut Page, Stop> {
        let page = self
            .dirty
            .get_mut(&temporary)
            .ok_or(Stop::Lost(temporary))?;
        assert_eq!(
            Arc::strong_count(page),
            1,
            "the tree holds no page that it changes"
        );
        Ok(Arc::make_mut(page))
    }

    fn take(&mut self, temporary: FragAddr) -> Result<Arc<Page>, Stop> {
        self.dirty.remove(&temporary).ok_or(Stop::Lost(temporary))
    }

    fn retire(&mut self, pointer: &Pointer, identity: &Identity) {
        assert!(!is_temporary(pointer.addr));
        self.retired.push((*pointer, *identity));
    }

    fn sealed(&mut self, node: &SealedNode) {
        self.cache.insert(node.pointer.addr, Arc::clone(&node.page));
    }
}
