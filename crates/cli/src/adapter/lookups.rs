//! How often the kernel has looked up each inode, and which of them must be held.
//!
//! Files are opened without a message, so that an unlinked file is known to be in use only by its
//! lookup count: until FORGET takes the last lookup back, it has to live. Nothing is held in the
//! volume before the last name goes, which keeps lookups cheap and the volume's own table of open
//! files short.
//!
//! A mount that has touched a million files has a million entries here: an entry takes 12 bytes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use loamfs_fuse::NodeId;

/// Parts with a lock each.
const SHARDS: usize = 64;

/// In a count: the volume holds this inode, though it has no name any more.
const HELD: u32 = 1 << 31;

/// A node id in 32-bit halves, so that an entry needs no padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key([u32; 2]);

impl Key {
    fn new(node: NodeId) -> Self {
        // The halves are cut off on purpose.
        Self([node.0 as u32, (node.0 >> 32) as u32])
    }

    fn node(self) -> NodeId {
        NodeId(u64::from(self.0[0]) | u64::from(self.0[1]) << 32)
    }

    fn mixed(self) -> u64 {
        mix(self.node().0)
    }
}

/// Spreads neighbouring numbers over all bits (the finaliser of MurmurHash3, by Austin Appleby).
fn mix(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

/// Hashes the two halves of a [`Key`]. The ids are our own, so nobody can choose colliding ones.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | self.0 >> 56 ^ u64::from(byte);
        }
    }

    fn write_u32(&mut self, half: u32) {
        self.0 = self.0 << 32 | u64::from(half);
    }

    fn finish(&self) -> u64 {
        mix(self.0)
    }
}

type Shard = HashMap<Key, u32, BuildHasherDefault<KeyHasher>>;

/// The counts of a mount.
pub(super) struct Lookups {
    shards: Vec<Mutex<Shard>>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Lookups {
    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        // Not the top or bottom bits: the table inside sorts by those.
        let index = (key.mixed() >> 40) as usize % SHARDS;
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel has the inode once more. The root is not counted: it is never forgotten.
    pub(super) fn count(&self, node: NodeId) {
        if node == NodeId::ROOT {
            return;
        }
        let key = Key::new(node);
        let mut shard = self.shard(key);
        let count = shard.entry(key).or_insert(0);
        if *count & !HELD < !HELD {
            *count += 1;
        }
    }

    /// Takes back lookups. True if those were the last ones of an inode that was held: the caller
    /// then lets go of it.
    pub(super) fn forget(&self, node: NodeId, lookups: u64) -> bool {
        let key = Key::new(node);
        let mut shard = self.shard(key);
        let Some(count) = shard.get_mut(&key) else {
            return false;
        };
        let left = u64::from(*count & !HELD).saturating_sub(lookups);
        let held = *count & HELD != 0;
        if left == 0 {
            shard.remove(&key);
            if shard.capacity() > 1_024 && shard.len() < shard.capacity() / 8 {
                shard.shrink_to_fit();
            }
            return held;
        }
        // Not more than before, so it fits.
        *count = left as u32 | if held { HELD } else { 0 };
        false
    }

    /// Has `open` hold the inode if the kernel knows it and it is not held yet.
    pub(super) fn hold<E>(
        &self,
        node: NodeId,
        open: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let key = Key::new(node);
        let mut shard = self.shard(key);
        if let Some(count) = shard.get_mut(&key)
            && *count & HELD == 0
        {
            open()?;
            *count |= HELD;
        }
        Ok(())
    }

    /// Forgets everything, and returns what was held.
    pub(super) fn take_held(&self) -> Vec<NodeId> {
        let mut held = Vec::new();
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            let ids = shard.iter().filter(|(_, count)| **count & HELD != 0);
            held.extend(ids.map(|(key, _)| key.node()));
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0x1234_5600_0000_0021);

    fn hold(lookups: &Lookups, node: NodeId) -> bool {
        let mut opened = false;
        let result: Result<(), ()> = lookups.hold(node, || {
            opened = true;
            Ok(())
        });
        result.unwrap();
        opened
    }

    #[test]
    fn a_held_inode_is_released_with_its_last_lookup() {
        let lookups = Lookups::default();
        lookups.count(NODE);
        lookups.count(NODE);
        assert!(hold(&lookups, NODE));
        assert!(!hold(&lookups, NODE), "held once only");
        assert!(!lookups.forget(NODE, 1));
        assert!(lookups.forget(NODE, 1));
        assert!(!lookups.forget(NODE, 1), "gone");
    }

    #[test]
    fn what_the_kernel_does_not_know_is_not_held() {
        let lookups = Lookups::default();
        assert!(!hold(&lookups, NODE));
        lookups.count(NODE);
        assert!(!lookups.forget(NODE, 1), "never held");
    }

    #[test]
    fn an_error_leaves_it_not_held() {
        let lookups = Lookups::default();
        lookups.count(NODE);
        assert_eq!(lookups.hold(NODE, || Err(5)), Err(5));
        assert!(!lookups.forget(NODE, 9));
    }

    #[test]
    fn ending_returns_what_is_held() {
        let lookups = Lookups::default();
        for id in 0..1_000 {
            lookups.count(NodeId(id + 32));
        }
        assert!(hold(&lookups, NodeId(40)));
        lookups.count(NodeId::ROOT);
        assert_eq!(lookups.take_held(), [NodeId(40)]);
        assert!(lookups.take_held().is_empty());
    }

    #[test]
    fn neighbours_spread_over_the_shards() {
        let lookups = Lookups::default();
        for id in 0..6_400 {
            lookups.count(NodeId(id + 32));
        }
        for shard in &lookups.shards {
            let len = shard.lock().unwrap().len();
            assert!((50..200).contains(&len), "{len}");
        }
    }
}
