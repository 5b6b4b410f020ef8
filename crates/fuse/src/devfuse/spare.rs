//! Which threads may wait for a device: all but the last that is free.
//!
//! However long a device keeps the others, the last free thread goes on reading requests. It answers what takes memory
//! alone, so that `df` never hangs; the rest it hands over to whoever gets free. Since handing over costs a copy and
//! a wake, it waits a moment first.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the last free thread waits for another one before the threads count as stalled.
const PATIENCE: Duration = Duration::from_millis(50);

/// Bytes of requests that wait for a thread; a thread that would hand over more of them waits for the device itself.
const WAITING_MAX: usize = 8 << 20;

/// What the threads of a mount share; `T` is a request that was read.
pub(super) struct Spare<T> {
    state: Mutex<State<T>>,
    freed: Condvar,
}

struct State<T> {
    /// Threads that read requests, or are about to.
    free: usize,
    /// Threads that carry one out.
    busy: usize,
    /// All but one are busy, and have been for a while.
    stalled: bool,
    /// Requests for whoever gets free, with their sizes.
    waiting: VecDeque<(usize, T)>,
    waiting_bytes: usize,
}

impl<T> Spare<T> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                free: 0,
                busy: 0,
                stalled: false,
                waiting: VecDeque::new(),
                waiting_bytes: 0,
            }),
            freed: Condvar::new(),
        }
    }

    /// One more thread is free.
    pub(super) fn join(&self) {
        self.lock().free += 1;
    }

    /// A free thread ends.
    pub(super) fn leave(&self) {
        self.lock().free -= 1;
    }

    /// A thread has read a request of `bytes` that may wait for a device. Returns whether it carries it out; otherwise
    /// it has handed over what `hand` returned, and is free.
    pub(super) fn start(&self, bytes: usize, hand: impl FnOnce() -> T) -> bool {
        let mut state = self.lock();
        state.free -= 1;
        if !state.stalled {
            let last = |state: &mut State<T>| state.free == 0 && state.busy > 0;
            let waited = self.freed.wait_timeout_while(state, PATIENCE, last);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Without a busy thread nobody would come for it.
        let last = state.free == 0 && state.busy > 0;
        if !last || state.waiting_bytes + bytes > WAITING_MAX {
            state.busy += 1;
            return true;
        }
        state.stalled = true;
        state.waiting.push_back((bytes, hand()));
        state.waiting_bytes += bytes;
        state.free += 1;
        false
    }

    /// A busy thread is done. Returns what it carries out next; without that it is free.
    pub(super) fn done(&self) -> Option<T> {
        let mut state = self.lock();
        if let Some((bytes, request)) = state.waiting.pop_front() {
            state.waiting_bytes -= bytes;
            return Some(request);
        }
        state.busy -= 1;
        state.free += 1;
        state.stalled = false;
        drop(state);
        self.freed.notify_one();
        None
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_free_thread_hands_over_and_who_is_done_takes_it() {
        let spare = Spare::new();
        spare.join();
        spare.join();
        assert!(spare.start(1, || unreachable!()));
        assert!(!spare.start(1, || "read"));
        assert!(!spare.start(1, || "write"));
        assert_eq!(spare.done(), Some("read"));
        assert_eq!(spare.done(), Some("write"));
        assert_eq!(spare.done(), None);
        assert!(spare.start(1, || unreachable!()));
    }

    #[test]
    fn a_thread_alone_carries_out_all() {
        let spare: Spare<()> = Spare::new();
        spare.join();
        assert!(spare.start(1, || unreachable!()));
        assert_eq!(spare.done(), None);
        assert!(spare.start(1, || unreachable!()));
    }

    #[test]
    fn what_waits_is_bounded() {
        let spare = Spare::new();
        spare.join();
        spare.join();
        assert!(spare.start(1, || unreachable!()));
        assert!(!spare.start(WAITING_MAX, || ()));
        assert!(spare.start(1, || unreachable!()));
    }
}
