//! An allocator that counts, and ends the process with a message when too much is in use.

#![allow(
    unsafe_code,
    reason = "an allocator is nothing else; every call goes to the system's unchanged"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The system's allocator with a limit.
#[derive(Debug)]
pub struct Meter {
    used: AtomicUsize,
    limit: AtomicUsize,
    case: AtomicU64,
}

impl Meter {
    /// Without a limit.
    #[expect(clippy::new_without_default, reason = "statics need a constant")]
    pub const fn new() -> Self {
        Self {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            case: AtomicU64::new(0),
        }
    }

    /// From now on at most `more` bytes beside those in use; `case` is named when that is not enough.
    pub fn allow(&self, more: usize, case: u64) {
        self.case.store(case, Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        self.limit
            .store(used.saturating_add(more), Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        if used.saturating_add(bytes) > self.limit.load(Ordering::Relaxed) {
            // What follows allocates, too.
            self.limit.store(usize::MAX, Ordering::Relaxed);
            let case = self.case.load(Ordering::Relaxed);
            let trace = std::backtrace::Backtrace::force_capture();
            eprintln!("seed {case}: {used} bytes are in use, {bytes} more are asked for\n{trace}");
            std::process::exit(3);
        }
    }
}

// SAFETY: every method calls the system allocator with the caller's arguments, and returns what it returned.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.take(size);
        self.used.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.realloc(at, layout, size) }
    }
}
