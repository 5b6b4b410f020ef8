//! A part of the table of lookups, in memory that outlives the daemon.
//!
//! A daemon may be killed between any two instructions. An entry is there when its count is not zero, so the count is
//! written last, and taken away first. Whoever moves an entry has it twice for a moment; a reader takes the first.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use loamfs_fuse::NodeId;
use rustix::fs::{FallocateFlags, fallocate};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Sizes of a table as powers of two, in entries. Each has a place of its own, behind the smaller ones.
const LEVEL_MIN: u64 = 7;
const LEVEL_MAX: u64 = 22;

/// Parts of the table, with a lock each.
pub const SHARDS: usize = 64;

/// An inode that the kernel knows, in 32-bit words, so that none is lost to padding.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// The two halves of its number, the lower one first.
    pub node: [u32; 2],
    /// Lookups, and a bit of the daemon's own.
    pub count: u32,
    /// The request that counted last, in short.
    pub request: u32,
    /// Which of its changes may not be durable: see `adapter::lookups`.
    pub change: u32,
}

impl Entry {
    fn of(node: NodeId) -> Self {
        // The halves are cut off on purpose.
        Self {
            node: [node.0 as u32, (node.0 >> 32) as u32],
            ..Self::default()
        }
    }

    pub fn node(&self) -> NodeId {
        NodeId(u64::from(self.node[0]) | u64::from(self.node[1]) << 32)
    }
}

/// So many inodes with neighbouring numbers stand side by side, as a power of two. They are mostly of one directory, and are
/// counted together when that is listed: so they share lines of the processor's cache, which that waits for.
const TOGETHER: u32 = 3;

/// A number that stands for an inode: above its lowest bits the same for inodes that stand side by side.
pub fn spread(node: NodeId) -> u64 {
    let within = node.0 & ((1 << TOGETHER) - 1);
    mix(node.0 >> TOGETHER) << TOGETHER | within
}

/// Spreads neighbouring numbers over all bits (the finaliser of MurmurHash3, by Austin Appleby).
fn mix(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

/// What an earlier daemon left of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    pub node: NodeId,
    pub count: u32,
    pub request: u32,
    pub change: u32,
}

/// What stands for changes that were lost with an earlier daemon: whoever syncs the file has to be told.
pub const LOST: u32 = u32::MAX - 1;
/// The same of an inode that is gone with them.
pub const GONE: u32 = u32::MAX;
/// The last number of a change.
pub const CHANGES: u32 = LOST - 1;

impl Survivor {
    /// Whether changes of it may not have been durable when the daemon ended.
    pub fn is_undurable(&self) -> bool {
        (1..=CHANGES).contains(&self.change)
    }

    /// The same, if all that the earlier daemon itself did was durable when it ended.
    #[must_use]
    pub fn without_changes(self) -> Self {
        let change = if self.change > CHANGES {
            self.change
        } else {
            0
        };
        Self { change, ..self }
    }
}

/// One part of the table.
pub struct Shard {
    file: Arc<File>,
    /// Where it is in the file.
    at: u64,
    level: &'static mut u64,
    entries: &'static mut [Entry],
    used: usize,
    /// The number of the last change of one of its inodes.
    change: u32,
}

impl Shard {
    /// Bytes of the memory file that it may take.
    pub const BYTES: usize = size_of::<Entry>() << (LEVEL_MAX + 1);

    /// The part in these bytes, which are at `at` of the file.
    pub fn new(
        file: Arc<File>,
        at: u64,
        level: &'static mut u64,
        bytes: &'static mut [u8],
    ) -> Option<Self> {
        *level = (*level).clamp(LEVEL_MIN, LEVEL_MAX);
        Some(Self {
            file,
            at,
            level,
            entries: <[Entry]>::mut_from_bytes(bytes).ok()?,
            used: 0,
            change: 0,
        })
    }

    /// What is in it.
    pub fn survivors(&self) -> Vec<Survivor> {
        let there = self.table().iter().filter(|entry| entry.count != 0);
        there
            .map(|entry| Survivor {
                node: entry.node(),
                count: entry.count,
                request: entry.request,
                change: entry.change,
            })
            .collect()
    }

    fn capacity(&self) -> usize {
        1 << *self.level
    }

    fn table(&self) -> &[Entry] {
        &self.entries[self.capacity()..2 * self.capacity()]
    }

    fn table_mut(&mut self) -> &mut [Entry] {
        let capacity = self.capacity();
        &mut self.entries[capacity..2 * capacity]
    }

    /// All that are there.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.table_mut().iter_mut().filter(|entry| entry.count != 0)
    }

    /// Where an inode is, or else the free place for it.
    fn find(&self, node: NodeId) -> Result<usize, usize> {
        let (table, mask) = (self.table(), self.capacity() - 1);
        let wanted = Entry::of(node).node;
        let mut at = spread(node) as usize & mask;
        loop {
            match &table[at] {
                entry if entry.count == 0 => return Err(at),
                entry if entry.node == wanted => return Ok(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    pub fn get(&mut self, node: NodeId) -> Option<&mut Entry> {
        let at = self.find(node).ok()?;
        Some(&mut self.table_mut()[at])
    }

    /// Notes a change of an inode that is there, unless one of its changes was lost. Returns what was noted before.
    pub fn note_change(&mut self, node: NodeId) -> Option<u32> {
        let next = self.change % CHANGES + 1;
        let entry = self.get(node).filter(|entry| entry.change <= CHANGES)?;
        let before = std::mem::replace(&mut entry.change, next);
        self.change = next;
        Some(before)
    }

    /// Puts an inode there that is not; its count is not zero. Returns whether there was room.
    pub fn insert(&mut self, new: Survivor) -> bool {
        if self.used >= self.capacity() / 4 * 3 && !self.resize(*self.level + 1) {
            return false;
        }
        let Err(at) = self.find(new.node) else {
            return true;
        };
        let entry = &mut self.table_mut()[at];
        *entry = Entry {
            request: new.request,
            change: new.change,
            ..Entry::of(new.node)
        };
        compiler_fence(Ordering::SeqCst);
        entry.count = new.count;
        self.used += 1;
        true
    }

    /// Takes an inode out. Those behind it that stand there for want of their own place move up.
    pub fn remove(&mut self, node: NodeId) {
        let Ok(mut hole) = self.find(node) else {
            return;
        };
        let mask = self.capacity() - 1;
        self.used -= 1;
        let table = self.table_mut();
        table[hole].count = 0;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = table[at];
            if entry.count == 0 {
                break;
            }
            let home = spread(entry.node()) as usize & mask;
            // Whether the way from its home to where it stands leads over the hole.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                table[hole] = Entry { count: 0, ..entry };
                compiler_fence(Ordering::SeqCst);
                table[hole].count = entry.count;
                compiler_fence(Ordering::SeqCst);
                table[at].count = 0;
                hole = at;
            }
        }
        if self.used < self.capacity() / 16 && *self.level > LEVEL_MIN {
            self.resize(*self.level - 1);
        }
    }

    /// Moves all to the table of another size. The old one counts until the new one is complete.
    fn resize(&mut self, level: u64) -> bool {
        if level > LEVEL_MAX {
            return false;
        }
        let old = self.capacity();
        let (from, to, mask);
        if level > *self.level {
            let (low, high) = self.entries.split_at_mut(2 * old);
            (from, to, mask) = (&mut low[old..], &mut high[..2 * old], 2 * old - 1);
        } else {
            let (low, high) = self.entries.split_at_mut(old);
            (from, to, mask) = (&mut high[..old], &mut low[old / 2..], old / 2 - 1);
        }
        to.fill(Entry::default());
        for entry in from.iter().filter(|entry| entry.count != 0) {
            let mut at = spread(entry.node()) as usize & mask;
            while to[at].count != 0 {
                at = (at + 1) & mask;
            }
            to[at] = *entry;
        }
        compiler_fence(Ordering::SeqCst);
        *self.level = level;
        let start = self.at + (old * size_of::<Entry>()) as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Its memory is not given back then.
        let _ = fallocate(&self.file, flags, start, (old * size_of::<Entry>()) as u64);
        true
    }
}
