//! Nodes of trees, each verified against its pointer.

use super::cache::Cache;
use super::tree::TreeSpec;
use super::{Io, node_fault};
use crate::{BlockFault, PointerFault};
use loamfs_format::node::{NODE_SIZE, Page};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::{BlockKind, Extent, Identity, Pointer, Ssn};
use std::sync::Arc;

/// The nodes of a volume, of which some are in memory.
pub(crate) struct Nodes<'d> {
    io: Io<'d>,
    uuid: [u8; 16],
    /// The last segment that counts.
    last: Ssn,
    cache: Cache,
}

impl<'d> Nodes<'d> {
    /// Keeps at most `most` nodes in memory.
    pub(super) fn new(io: Io<'d>, uuid: [u8; 16], last: Ssn, most: usize) -> Nodes<'d> {
        Nodes {
            io,
            uuid,
            last,
            cache: Cache::new(most),
        }
    }

    /// A node, verified against its pointer and as what it should be.
    ///
    /// # Errors
    /// What is wrong with the pointer or the node.
    pub(crate) fn get(
        &self,
        pointer: &Pointer,
        identity: &Identity,
    ) -> Result<Arc<Page>, BlockFault> {
        if let Some(page) = self.cache.get(pointer.addr, identity, pointer.checksum) {
            return Ok(page);
        }
        self.check_node(pointer, identity.kind)?;
        let mut first = None;
        for copy in pointer.copies(identity.kind, &self.io.geometry) {
            let node = match self.io.read(copy.start, NODE_SIZE) {
                Ok(bytes) => self.accept(pointer, identity, &bytes),
                Err(error) => Err(error.into()),
            };
            match node {
                Ok(node) => return Ok(node),
                Err(fault) => drop(first.get_or_insert(fault)),
            }
        }
        Err(first.unwrap_or(PointerFault::None.into()))
    }

    /// Those of some nodes of which a copy cannot be used, though there is another one.
    pub(crate) fn worn(&self, nodes: &[(Pointer, Identity)]) -> Vec<(Pointer, Identity)> {
        let (mut whose, mut ranges) = (Vec::new(), Vec::new());
        for (pointer, identity) in nodes {
            let copies: Vec<Extent> = pointer.copies(identity.kind, &self.io.geometry).collect();
            for copy in copies.iter().filter(|_| copies.len() > 1) {
                whose.push((*pointer, *identity));
                ranges.push((copy.start, NODE_SIZE));
            }
        }
        let read = whose.into_iter().zip(self.io.read_all(&ranges));
        let bad = read.filter(|((pointer, identity), bytes)| {
            !bytes.as_ref().is_ok_and(|bytes| {
                metadata_checksum(&self.uuid, identity, bytes) == pointer.checksum
            })
        });
        bad.map(|(node, _)| node).collect()
    }

    /// Reads nodes into the cache with one batch of requests, by rising addresses. Those that cannot be used are left
    /// for [`Nodes::get`] to explain.
    pub(crate) fn prefetch(&self, nodes: &[(Pointer, Identity)]) {
        let mut wanted: Vec<&(Pointer, Identity)> = nodes
            .iter()
            .filter(|(pointer, identity)| {
                self.check_node(pointer, identity.kind).is_ok()
                    && self
                        .cache
                        .get(pointer.addr, identity, pointer.checksum)
                        .is_none()
            })
            .collect();
        wanted.sort_by_key(|(pointer, _)| pointer.addr);
        wanted.truncate(self.cache.capacity() / 2);
        if wanted.len() < 2 {
            return;
        }
        let ranges: Vec<_> = wanted
            .iter()
            .map(|(pointer, _)| (pointer.addr, NODE_SIZE))
            .collect();
        for ((pointer, identity), bytes) in wanted.into_iter().zip(self.io.read_all(&ranges)) {
            if let Ok(bytes) = bytes {
                let _ = self.accept(pointer, identity, &bytes);
            }
        }
    }

    fn check_node(&self, pointer: &Pointer, kind: BlockKind) -> Result<(), BlockFault> {
        let fault = node_fault(&self.io.geometry, self.last, pointer, kind);
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn accept(
        &self,
        pointer: &Pointer,
        identity: &Identity,
        bytes: &[u8],
    ) -> Result<Arc<Page>, BlockFault> {
        let found = metadata_checksum(&self.uuid, identity, bytes);
        if found != pointer.checksum {
            return Err(BlockFault::Checksum {
                expected: pointer.checksum,
                found,
            });
        }
        let page = Arc::new(Page::from_bytes(bytes, identity)?);
        self.cache.put(pointer.addr, *identity, found, &page);
        Ok(page)
    }

    /// The greatest key of a tree that is not above `key`, as far as the nodes on the way to it can be used.
    pub(crate) fn floor_key(&self, spec: TreeSpec, key: u64) -> Option<u64> {
        let TreeSpec {
            kind,
            ino,
            generation,
            root,
        } = spec;
        let identity = root.identity(kind, ino, generation);
        // The way down, and once to the left when the leaf has only greater keys; faults end it early.
        let mut nodes = 3 * (usize::from(root.level) + 1);
        if root.is_empty() {
            None
        } else {
            self.floor_at(&root.pointer, &identity, key, &mut nodes)
        }
    }

    fn floor_at(
        &self,
        pointer: &Pointer,
        identity: &Identity,
        key: u64,
        nodes: &mut usize,
    ) -> Option<u64> {
        *nodes = nodes.checked_sub(1)?;
        let page = self.get(pointer, identity).ok()?;
        let last = page.floor(key)?;
        let Some(level) = identity.level.checked_sub(1) else {
            return page.key(last);
        };
        (0..=last).rev().find_map(|index| {
            let child = Identity {
                level,
                logical: page.key(index)?,
                ..*identity
            };
            self.floor_at(&page.child(index)?.pointer, &child, key, nodes)
        })
    }
}
