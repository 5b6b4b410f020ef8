//! Clean blocks: metadata and content, each in a scan-resistant cache, so that content never drives out metadata.

use crate::hash::NumberHash;
use loamfs_format::node::Page;
use loamfs_format::{Extent, FragAddr, Pointer};
use quick_cache::Weighter;
use quick_cache::unsync::{Cache as Of, DefaultLifecycle};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a clean block is known by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub addr: FragAddr,
    pub checksum: u64,
}

impl Key {
    pub fn of(pointer: &Pointer) -> Key {
        Key {
            addr: pointer.addr,
            checksum: pointer.checksum,
        }
    }
}

/// A clean block.
#[derive(Clone)]
pub(super) enum Block {
    Node(Arc<Page>),
    Bytes(Arc<[u8]>),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Block> for Weight {
    fn weight(&self, _: &Key, block: &Block) -> u64 {
        // 100 bytes stand for the cache's own bookkeeping of an entry.
        100 + match block {
            Block::Node(_) => loamfs_format::node::NODE_SIZE as u64,
            Block::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

type Cache = Of<Key, Block, Weight, NumberHash>;

/// What the bookkeeping of units takes of what they take together, at most.
const UNIT_OVERHEAD: u64 = 32;
/// The part of the cache that metadata and content each have at least.
const LEAST: u64 = 4;
/// The part by which their shares change at once.
const STEP: u64 = 64;

/// The two caches, which share their bytes.
pub(super) struct Caches {
    /// What they may take together.
    bytes: u64,
    metadata: Cache,
    /// Gets what metadata leaves.
    contents: Cache,
    /// By address, the checksum of what `contents` may hold. With it content leaves when its space is freed: dead blocks
    /// would push out the ends of files, which each append needs.
    content_at: BTreeMap<FragAddr, u64>,
}

impl Caches {
    /// Empty ones of so many bytes, of which there are some in any case.
    pub fn new(bytes: usize) -> Caches {
        let bytes = (bytes as u64).max(4 << 20);
        let most = bytes - bytes / LEAST;
        let items = (most / 4096) as usize;
        let hash = NumberHash::default;
        let cache = || Cache::with(items, most, Weight, hash(), DefaultLifecycle::default());
        Caches {
            bytes,
            metadata: cache(),
            contents: cache(),
            content_at: BTreeMap::new(),
        }
    }

    /// Bytes that they hold.
    pub fn held_bytes(&self) -> u64 {
        self.metadata.weight() + self.contents.weight()
    }

    /// Bytes of content that they keep at most, as things are.
    pub fn contents_max(&self) -> u64 {
        self.contents.capacity()
    }

    /// Bytes of content that they take up before they let go of anything for it.
    pub fn contents_free(&self) -> u64 {
        let free = self
            .contents
            .capacity()
            .saturating_sub(self.contents.weight());
        free - free / UNIT_OVERHEAD
    }

    /// A block that one of them holds.
    pub fn get(&self, key: &Key) -> Option<&Block> {
        self.metadata.get(key).or_else(|| self.contents.get(key))
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.metadata.clear();
        self.contents.clear();
        self.content_at.clear();
    }

    /// Nobody asks any more for this block of metadata.
    pub fn forget_metadata(&mut self, key: &Key) {
        self.metadata.remove(key);
    }

    /// Keeps a block of metadata.
    pub fn keep_metadata(&mut self, key: Key, block: Block) {
        self.metadata.insert(key, block);
        let taken = self.metadata.weight().max(self.bytes / LEAST);
        let left = self.bytes - taken;
        if left.abs_diff(self.contents.capacity()) > self.bytes / STEP {
            self.contents.set_capacity(left);
        }
    }

    /// Nobody asks any more for the content that stands there.
    pub fn forget_contents(&mut self, extent: Extent) {
        let there = self.content_at.range(extent.start..extent.end());
        let dead: Vec<Key> = there
            .map(|(&addr, &checksum)| Key { addr, checksum })
            .collect();
        for key in dead {
            self.contents.remove(&key);
            self.content_at.remove(&key.addr);
        }
    }

    /// The content that stands at `from` stands at `to`, too.
    pub fn move_content(&mut self, from: FragAddr, to: FragAddr) {
        if let Some(&checksum) = self.content_at.get(&from)
            && let Some((_, block)) = self.contents.remove(&Key {
                addr: from,
                checksum,
            })
        {
            self.content_at.remove(&from);
            self.keep_content(Key { addr: to, checksum }, block);
        }
    }

    /// Keeps a block of content.
    pub fn keep_content(&mut self, key: Key, block: Block) {
        self.contents.insert(key, block);
        self.content_at.insert(key.addr, key.checksum);
        // The cache does not tell what it lets go.
        if self.content_at.len() > 2 * self.contents.len() + 1024 {
            let contents = &self.contents;
            self.content_at
                .retain(|&addr, &mut checksum| contents.contains_key(&Key { addr, checksum }));
        }
    }
}
