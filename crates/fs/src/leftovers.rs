//! What operations leave to be done later: inodes without a name that nobody holds, and pending truncates (H16).

use crate::error::Error;
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
}

impl Leftovers {
    /// A file is to be looked at.
    pub fn add(&mut self, ino: Ino) {
        self.waiting.insert(ino);
    }

    /// It need not be.
    pub fn remove(&mut self, ino: Ino) {
        self.waiting.remove(&ino);
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

    /// It has.
    pub fn note_found(&mut self) {
        self.found = true;
    }

    /// Whether it was tried to reserve the places of superblocks that an older program gave to files.
    pub fn are_places_tried(&self) -> bool {
        self.places_tried
    }

    /// It was.
    pub fn note_places_tried(&mut self) {
        self.places_tried = true;
    }
}
