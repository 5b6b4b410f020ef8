//! What comes of files that were made ready for tracks. That is known once a segment is sealed: they may change before, and tracks may
//! have no place.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What came of some tracks.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    files: AtomicU64,
    bytes: AtomicU64,
    full: AtomicBool,
}

impl Outcome {
    /// A segment has these files of one of them.
    pub fn note_settled(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// One had no place.
    pub fn note_full(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    /// Files that settled since this was last asked, bytes of their contents, and whether any track had no place.
    pub fn take(&self) -> (u64, u64, bool) {
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let full = self.full.swap(false, Ordering::Relaxed);
        (taken(&self.files), taken(&self.bytes), full)
    }
}
