//! Verified nodes, by address.

use loamfs_format::node::Page;
use loamfs_format::{FragAddr, Identity};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bounded cache of nodes. When it is full it starts anew: walks go forward, so what is old is seldom wanted again,
/// and the few inner nodes that are come back with one read each.
#[derive(Debug)]
pub(crate) struct Cache {
    pages: Mutex<HashMap<FragAddr, Cached>>,
    capacity: usize,
}

#[derive(Debug)]
struct Cached {
    identity: Identity,
    checksum: u64,
    page: Arc<Page>,
}

impl Cache {
    pub(crate) fn new(capacity: usize) -> Cache {
        Cache {
            pages: Mutex::default(),
            capacity: capacity.max(64),
        }
    }

    /// Nodes that fit.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The node at `addr`, if it is the one with this identity and checksum.
    pub(crate) fn get(
        &self,
        addr: FragAddr,
        identity: &Identity,
        checksum: u64,
    ) -> Option<Arc<Page>> {
        let pages = self.lock();
        let found = pages.get(&addr)?;
        (found.identity == *identity && found.checksum == checksum).then(|| Arc::clone(&found.page))
    }

    /// Keeps a verified node.
    pub(crate) fn put(&self, addr: FragAddr, identity: Identity, checksum: u64, page: &Arc<Page>) {
        let mut pages = self.lock();
        if pages.len() >= self.capacity {
            pages.clear();
        }
        pages.insert(
            addr,
            Cached {
                identity,
                checksum,
                page: Arc::clone(page),
            },
        );
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FragAddr, Cached>> {
        // A map of finished entries is usable whatever happened to its last holder.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
