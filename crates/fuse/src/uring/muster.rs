//! Whether all threads have what they need: either all of them begin, or none.

use std::sync::{Condvar, Mutex, PoisonError};

pub(crate) struct Muster {
    state: Mutex<State>,
    complete: Condvar,
}

struct State {
    missing: usize,
    failed: bool,
}

impl Muster {
    /// Waits for `count` reports.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            state: Mutex::new(State {
                missing: count,
                failed: false,
            }),
            complete: Condvar::new(),
        }
    }

    /// Says how one fared.
    pub(crate) fn report(&self, is_ready: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing = state.missing.saturating_sub(1);
        state.failed |= !is_ready;
        if state.missing == 0 {
            self.complete.notify_all();
        }
    }

    /// Waits for all reports; whether all of them are ready.
    pub(crate) fn all_ready(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .complete
            .wait_while(state, |state| state.missing > 0)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.failed
    }
}
