//! What operations leave to be done later: orphans, inodes without a name, which go once nobody holds them (H16), and
//! pending truncates.

use crate::blocks::Stop;
use crate::error::Error;
use crate::holders::Holders;
use crate::inodes::Inodes;
use loamfs_format::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// Files to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    waiting: BTreeSet<Ino>,
    /// Those that are damaged, and why they stay as they are until the next mount.
    unfinished: BTreeMap<Ino, Error>,
    /// Whether what an earlier mount left over has been found.
    found: bool,
    /// Whether it was tried to reserve the places of superblocks that an older program gave to files.
    places_tried: bool,
    /// Who holds inodes: what has no name goes once nobody does.
    holders: Holders,
}

impl Leftovers {
    /// Who holds inodes.
    pub fn holders(&mut self) -> &mut Holders {
        &mut self.holders
    }

    /// A file is to be looked at.
    pub fn add(&mut self, ino: Ino) {
        self.waiting.insert(ino);
    }

    /// It need not be.
    pub fn remove(&mut self, ino: Ino) {
        self.waiting.remove(&ino);
    }

    /// One less holds an inode, which goes if that was the last one and it has no name.
    pub fn let_go(&mut self, ino: Ino) {
        if self.holders.let_go(ino) {
            self.add(ino);
        }
    }

    /// Files that are to be looked at.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The files that are to be looked at, as they are now.
    pub fn list(&self) -> Vec<Ino> {
        self.waiting.iter().copied().collect()
    }

    /// The next one.
    pub fn next(&mut self) -> Option<Ino> {
        self.waiting.pop_first()
    }

    /// A file cannot be finished; returns whether that is new.
    pub fn give_up(&mut self, ino: Ino, why: Error) -> bool {
        self.unfinished.insert(ino, why).is_none()
    }

    /// Why a file cannot be finished, if that was tried.
    pub fn given_up(&self, ino: Ino) -> Option<&Error> {
        self.unfinished.get(&ino)
    }

    /// Whether what an earlier mount left over has been found.
    pub fn are_found(&self) -> bool {
        self.found
    }

    /// Notes that what an earlier mount left over has been found.
    pub fn note_found(&mut self) {
        self.found = true;
    }

    /// Whether it was tried to reserve the places of superblocks that an older program gave to files.
    pub fn are_places_tried(&self) -> bool {
        self.places_tried
    }

    /// Notes that it was tried to reserve those places.
    pub fn note_places_tried(&mut self) {
        self.places_tried = true;
    }

    /// Sets the mark by which the next mount finds an inode that something is left to do for, or takes it away: the
    /// inode has no name, or a truncate of it is pending. The inode must be prepared.
    pub fn mark(&mut self, inodes: &mut Inodes, ino: Ino) -> Result<(), Stop> {
        let node = inodes.prepared(ino)?;
        let unlinked = node.inode().nlink == 0;
        let truncated = node.inode().truncating != u64::MAX;
        self.holders.note_unlinked(ino, unlinked);
        inodes.set_orphan(ino, unlinked || truncated)?;
        match truncated || unlinked && !self.holders.hold_it(ino) {
            true => self.add(ino),
            false => self.remove(ino),
        }
        Ok(())
    }

    /// Says that a file can grow again only when its pending truncate is over, which the driver sees to.
    pub fn wait_for_drain(&mut self, ino: Ino) -> Stop {
        if let Some(error) = self.given_up(ino) {
            return Stop::Failed(error.clone());
        }
        self.add(ino);
        Stop::Crowded
    }
}
