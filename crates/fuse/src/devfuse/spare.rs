//! Which threads read requests, and which may wait for a device.
//!
//! A few threads read: the kernel wakes each reader in turn, whichever processor it was on last, so that more of them only
//! have requests travel between processors. A reader answers what takes memory alone, and goes on reading. Before it
//! waits for a device it gives its turn to another thread.
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
    /// Told when another thread may read.
    turns: Condvar,
    readers_max: usize,
}

struct State<T> {
    /// Threads whose turn it is to read requests.
    readers: usize,
    /// Threads that read requests, or could.
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
    /// Of a mount that so many threads read of at a time, at least one.
    pub(super) fn new(readers_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                readers: 0,
                free: 0,
                busy: 0,
                stalled: false,
                waiting: VecDeque::new(),
                waiting_bytes: 0,
            }),
            freed: Condvar::new(),
            turns: Condvar::new(),
            readers_max: readers_max.max(1),
        }
    }

    /// How many threads read at a time.
    pub(super) fn readers_max(&self) -> usize {
        self.readers_max
    }

    /// One more thread is free. Returns when it is its turn to read.
    pub(super) fn join(&self) {
        let mut state = self.lock();
        state.free += 1;
        self.wait_for_turn(state);
    }

    /// A reader ends.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.free -= 1;
        state.readers -= 1;
        drop(state);
        self.turns.notify_one();
    }

    fn wait_for_turn(&self, state: MutexGuard<'_, State<T>>) {
        let full = |state: &mut State<T>| state.readers >= self.readers_max;
        let waited = self.turns.wait_while(state, full);
        waited.unwrap_or_else(PoisonError::into_inner).readers += 1;
    }

    /// A reader has read a request of `bytes` that may wait for a device. Returns whether it carries it out, and another
    /// one may read; otherwise it has handed over what `hand` returned, and goes on reading.
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
            state.readers -= 1;
            drop(state);
            self.turns.notify_one();
            return true;
        }
        state.stalled = true;
        state.waiting.push_back((bytes, hand()));
        state.waiting_bytes += bytes;
        state.free += 1;
        false
    }

    /// A busy thread is done. Returns what it carries out next; without that it is free, and it is its turn to read again.
    pub(super) fn done(&self) -> Option<T> {
        let mut state = self.lock();
        if let Some((bytes, request)) = state.waiting.pop_front() {
            state.waiting_bytes -= bytes;
            return Some(request);
        }
        state.busy -= 1;
        state.free += 1;
        state.stalled = false;
        self.freed.notify_one();
        self.wait_for_turn(state);
        None
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_device_gives_its_turn_away() {
        let spare: Spare<()> = Spare::new(1);
        let read = AtomicBool::new(false);
        spare.join();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                spare.join();
                assert!(read.load(Ordering::SeqCst));
                spare.leave();
            });
            read.store(true, Ordering::SeqCst);
            assert!(spare.start(1, || unreachable!()));
            other.join().unwrap();
            assert_eq!(spare.done(), None);
        });
    }

    #[test]
    fn the_last_free_thread_hands_over_and_who_is_done_takes_it() {
        let spare = Spare::new(2);
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
        let spare: Spare<()> = Spare::new(2);
        spare.join();
        assert!(spare.start(1, || unreachable!()));
        assert_eq!(spare.done(), None);
        assert!(spare.start(1, || unreachable!()));
    }

    #[test]
    fn what_waits_is_bounded() {
        let spare = Spare::new(2);
        spare.join();
        spare.join();
        assert!(spare.start(1, || unreachable!()));
        assert!(!spare.start(WAITING_MAX, || ()));
        assert!(spare.start(1, || unreachable!()));
    }
}
