//! How often the kernel has looked up each inode, which of them must be held, and which have changes that a crash could
//! take.
//!
//! Files are opened without a message, so that an unlinked file is known to be in use only by its
//! lookup count: until FORGET takes the last lookup back, it has to live. Nothing is held in the
//! volume before the last name goes, which keeps lookups cheap and the volume's own table of open
//! files short.
//!
//! All of this is in memory that outlives the daemon, for a successor ([`crate::mount::handover`]). A mount that has
//! touched a million files has a million entries here: an entry takes 27 to 53 bytes.
//!
//! **A request that is sent again** may have been counted, and not answered. So an entry says which request counted it
//! last, and that is taken back first. What the kernel forgets is counted too often if the daemon dies between reading and
//! noting it. Such an inode is held longer than need be, until the mount ends, and never less long.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use loamfs_fuse::{Errno, NodeId, Request};

use crate::mount::handover::table::{self, CHANGES, GONE, LOST, SHARDS};
use crate::mount::handover::{Shard, Survivor};

/// In a count: the volume holds this inode, though it has no name any more.
const HELD: u32 = 1 << 31;
/// Instead of one: the kernel does not have it, but changes of it may not be durable, or were lost. Whoever opens the file
/// again, and syncs it, has to be told.
const KEPT: u32 = 1 << 30;
/// The lookups in a count.
const COUNT: u32 = KEPT - 1;

/// Inodes that are looked at in one go.
const STEP: usize = 1 << 15;

/// What became of an inode that the kernel had from an earlier daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// All that was done to it is there.
    Whole,
    /// Something of that may be missing.
    Lost,
    /// It does not exist.
    Gone,
}

/// The counts of a mount.
pub(super) struct Lookups {
    shards: Vec<Mutex<Shard>>,
    changed: Mutex<Changed>,
}

/// Inodes whose changes may not be durable.
#[derive(Default)]
struct Changed {
    nodes: BTreeSet<NodeId>,
    /// Where looking at them goes on.
    next: u64,
}

impl Lookups {
    /// Those in these tables, which are empty.
    pub fn new(shards: Vec<Shard>) -> Self {
        let lookups = Self {
            shards: shards.into_iter().map(Mutex::new).collect(),
            changed: Mutex::default(),
        };
        // It is never forgotten.
        let root = Survivor {
            node: NodeId::ROOT,
            count: 1,
            request: 0,
            change: 0,
        };
        lookups.shard(NodeId::ROOT).insert(root);
        lookups
    }

    fn shard(&self, node: NodeId) -> MutexGuard<'_, Shard> {
        // Not the bottom bits: the table inside goes by those.
        let index = (table::spread(node) >> 40) as usize % SHARDS;
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel has the inode once more, by this request.
    ///
    /// # Errors
    ///
    /// ENOMEM.
    pub fn count(&self, node: NodeId, request: Request) -> Result<(), Errno> {
        if node == NodeId::ROOT {
            return Ok(());
        }
        let short = short(request);
        let mut shard = self.shard(node);
        if let Some(entry) = shard.get(node) {
            if entry.count & COUNT < COUNT {
                // At once: a daemon may be killed between any two instructions.
                entry.count = (entry.count & !KEPT) + 1;
            }
            entry.request = short;
            return Ok(());
        }
        let new = Survivor {
            node,
            count: 1,
            request: short,
            change: 0,
        };
        match shard.insert(new) {
            true => Ok(()),
            false => Err(Errno::NOMEM),
        }
    }

    /// Takes back what an earlier daemon counted for a request that it did not answer. Returns inodes that were held and
    /// that the kernel has no more, as [`forget`](Self::forget).
    pub fn take_back(&self, request: Request) -> Vec<NodeId> {
        let mut counted = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for entry in shard.iter_mut() {
                if entry.request == short(request) && entry.node() != NodeId::ROOT {
                    entry.request = 0;
                    counted.push(entry.node());
                }
            }
        }
        counted.retain(|node| self.forget(*node, 1));
        counted
    }

    /// Takes back what this request counted of an inode, and nobody will for it any more. As [`forget`](Self::forget).
    pub fn take_back_of(&self, node: NodeId, request: Request) -> bool {
        if let Some(entry) = self.shard(node).get(node)
            && entry.request == short(request)
        {
            entry.request = 0;
        }
        self.forget(node, 1)
    }

    /// Takes back lookups. True if those were the last ones of an inode that was held: the caller
    /// then lets go of it.
    pub fn forget(&self, node: NodeId, lookups: u64) -> bool {
        if node == NodeId::ROOT {
            return false;
        }
        let mut shard = self.shard(node);
        let Some(entry) = shard.get(node) else {
            return false;
        };
        let left = u64::from(entry.count & COUNT).saturating_sub(lookups);
        let held = entry.count & HELD;
        if left == 0 {
            match held == 0 && (1..=LOST).contains(&entry.change) {
                true => {
                    entry.request = 0;
                    entry.count = KEPT;
                }
                false => shard.remove(node),
            }
            return held != 0;
        }
        // Not more than before, so it fits.
        entry.count = left as u32 | held;
        false
    }

    /// Notes that the volume is to hold an inode, if the kernel knows it and it is not held yet. Returns whether it is now.
    pub fn hold(&self, node: NodeId) -> bool {
        let mut shard = self.shard(node);
        let entry = shard.get(node);
        entry
            .filter(|entry| entry.count & (HELD | KEPT) == 0)
            .is_some_and(|entry| {
                entry.count |= HELD;
                true
            })
    }

    /// Forgets everything, and returns what was held.
    pub fn take_held(&self) -> Vec<NodeId> {
        let mut held = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for entry in shard.iter_mut() {
                if entry.count & HELD != 0 {
                    held.push(entry.node());
                }
                entry.count &= !HELD;
            }
        }
        held
    }

    // ---- changes -----------------------------------------------------------------------------------------------

    /// An inode was changed, and that is not known to be durable.
    pub fn note_change(&self, node: NodeId) {
        let before = self.shard(node).note_change(node);
        if before == Some(0) {
            let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
            changed.nodes.insert(node);
        }
    }

    /// The last change of an inode that is not known to be durable, for [`note_durable`](Self::note_durable).
    pub fn change(&self, node: NodeId) -> u32 {
        self.shard(node).get(node).map_or(0, |entry| entry.change)
    }

    /// What had been done to an inode by `change` is durable.
    pub fn note_durable(&self, node: NodeId, change: u32) {
        if change <= CHANGES {
            self.settle(node, change);
        }
    }

    /// Nothing more is to be told of an inode if its change is still this one. Returns whether it was.
    fn settle(&self, node: NodeId, change: u32) -> bool {
        let mut shard = self.shard(node);
        let entry = shard.get(node).filter(|entry| entry.change == change);
        let Some(entry) = entry else {
            return false;
        };
        entry.change = 0;
        if entry.count == KEPT {
            shard.remove(node);
        }
        true
    }

    /// Whether something that was done to an inode was lost, and nobody has been told. Now somebody is.
    pub fn tell_loss(&self, node: NodeId) -> bool {
        self.settle(node, LOST)
    }

    /// Looks at some of the inodes that were changed, and takes note of those of which all `is_durable`.
    pub fn look_after_changes(&self, is_durable: impl Fn(NodeId) -> bool) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let from = NodeId(changed.next);
        let looked: Vec<NodeId> = changed.nodes.range(from..).take(STEP).copied().collect();
        changed.next = match looked.last() {
            Some(last) if looked.len() == STEP => last.0.saturating_add(1),
            _ => 0,
        };
        // Whoever changes one meanwhile puts it there again.
        for node in &looked {
            changed.nodes.remove(node);
        }
        drop(changed);
        for node in looked {
            let change = self.change(node);
            if change != 0 && is_durable(node) {
                self.note_durable(node, change);
            }
            if (1..=CHANGES).contains(&self.change(node)) {
                let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
                changed.nodes.insert(node);
            }
        }
    }

    /// Whether no inode has changes that may not be durable.
    pub fn are_durable(&self) -> bool {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.nodes.is_empty()
    }

    /// Inodes of which changes may not be durable.
    pub fn undurable(&self) -> u64 {
        let shards = self.shards.iter();
        let counts = shards.map(|shard| {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let changed = |entry: &&mut table::Entry| (1..=CHANGES).contains(&entry.change);
            shard.iter_mut().filter(changed).count() as u64
        });
        counts.sum()
    }

    // ---- succession --------------------------------------------------------------------------------------------

    /// Takes an inode over that the kernel had from an earlier daemon. Of one with changes that may not have been durable
    /// `fate` tells what became of it. Returns that.
    ///
    /// # Errors
    ///
    /// ENOMEM.
    pub fn take_over(
        &self,
        survivor: Survivor,
        fate: impl FnOnce() -> Fate,
    ) -> Result<Fate, Errno> {
        let fate = match survivor.change {
            0 => Fate::Whole,
            GONE => Fate::Gone,
            LOST => Fate::Lost,
            _ => fate(),
        };
        let change = match fate {
            Fate::Whole => 0,
            Fate::Lost => LOST,
            Fate::Gone => GONE,
        };
        let new = Survivor {
            count: survivor.count & !HELD,
            change,
            ..survivor
        };
        let mut shard = self.shard(new.node);
        if let Some(entry) = shard.get(new.node) {
            entry.change = change;
            return Ok(fate);
        }
        let is_over = new.count == 0 || new.count == KEPT && fate != Fate::Lost;
        match is_over || shard.insert(new) {
            true => Ok(fate),
            false => Err(Errno::NOMEM),
        }
    }
}

/// A request's number in short: those that are under way together differ in it.
fn short(request: Request) -> u32 {
    // The lowest bit says that it is an interrupt.
    (request.unique >> 1) as u32
}

#[cfg(test)]
mod tests;
