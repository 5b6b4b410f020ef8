//! What comes of files that were made ready for tracks. That is known once a segment is sealed: they may change before, and tracks may
//! have no place.

use loamfs_format::Ino;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What came of some tracks.
#[derive(Debug)]
pub(crate) struct Outcome {
    files: AtomicU64,
    bytes: AtomicU64,
    /// Fragments of the shortest track that had no place, since any room was made.
    no_place_for: AtomicU64,
    unplaced: Mutex<Unplaced>,
}

/// Directories with tracks that had no place, and where the first of these begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unplaced(BTreeMap<Ino, u64>);

impl Unplaced {
    /// One of a directory, which begins there, had none.
    pub fn note(&mut self, dir: Ino, low: u64) {
        let first = self.0.entry(dir).or_insert(low);
        *first = low.min(*first);
    }

    /// Nor had these.
    pub fn note_all(&mut self, others: &Unplaced) {
        others.0.iter().for_each(|(dir, low)| self.note(*dir, *low));
    }

    /// Where the first one of a directory begins.
    pub fn first(&self, dir: Ino) -> Option<u64> {
        self.0.get(&dir).copied()
    }

    /// The directories.
    pub fn dirs(&self) -> impl Iterator<Item = Ino> {
        self.0.keys().copied()
    }

    /// Whether all had a place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome {
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            no_place_for: AtomicU64::new(u64::MAX),
            unplaced: Mutex::default(),
        }
    }
}

impl Outcome {
    /// A segment has these files of one of them.
    pub fn note_settled(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// None of so many fragments has a place.
    pub fn note_no_place_for(&self, frags: u64) {
        self.no_place_for.fetch_min(frags, Ordering::Relaxed);
    }

    /// One had no place: that of a directory which begins there.
    pub fn note_unplaced(&self, dir: Ino, low: u64) {
        let unplaced = self.unplaced.lock();
        unplaced
            .unwrap_or_else(PoisonError::into_inner)
            .note(dir, low);
    }

    /// Whether one that is no longer has no place.
    pub fn has_no_place_for(&self, frags: u64) -> bool {
        frags >= self.no_place_for.load(Ordering::Relaxed)
    }

    /// Room was made: any may have a place.
    pub fn note_room(&self) {
        self.no_place_for.store(u64::MAX, Ordering::Relaxed);
    }

    /// Files that settled since this was last asked, bytes of their contents, and those that had no place.
    pub fn take(&self) -> (u64, u64, Unplaced) {
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let unplaced = self.unplaced.lock();
        let unplaced = std::mem::take(&mut *unplaced.unwrap_or_else(PoisonError::into_inner));
        (taken(&self.files), taken(&self.bytes), unplaced)
    }
}
