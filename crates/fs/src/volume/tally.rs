//! What is counted of those who use a volume, since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Bytes of contents that were written.
    written: AtomicU64,
    /// Operations that somebody asked for.
    asked: AtomicU64,
    /// The longest wait for room, in nanoseconds.
    longest: AtomicU64,
}

impl Tally {
    /// Somebody wrote so many bytes of contents.
    pub fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Somebody asked for an operation.
    pub fn note_asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Operations that were asked for.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// An operation waited so long until there was room for it, in memory or on the device.
    pub fn note_wait(&self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Bytes of contents that were written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The longest wait for room.
    pub fn longest_wait(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }
}
