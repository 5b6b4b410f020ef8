//! Whether all threads have what they need: either all of them begin, or none. What has to be said first is said before
//! the first begins.

use std::sync::{Condvar, Mutex, PoisonError};

pub(crate) struct Muster<'a> {
    state: Mutex<State>,
    complete: Condvar,
    before: &'a (dyn Fn() + Sync),
}

struct State {
    missing: usize,
    failed: bool,
}

impl<'a> Muster<'a> {
    /// Waits for `count` reports, and calls `before` once all are ready, before anybody learns of it.
    pub(crate) fn new(count: usize, before: &'a (dyn Fn() + Sync)) -> Self {
        Self {
            state: Mutex::new(State {
                missing: count,
                failed: false,
            }),
            complete: Condvar::new(),
            before,
        }
    }

    /// Says how one fared.
    pub(crate) fn report(&self, is_ready: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing = state.missing.saturating_sub(1);
        state.failed |= !is_ready;
        if state.missing == 0 {
            if !state.failed {
                (self.before)();
            }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn what_has_to_be_said_first_is_said_once_before_any_begins() {
        let said = AtomicUsize::new(0);
        let say = || {
            said.fetch_add(1, Ordering::Relaxed);
        };
        let muster = Muster::new(8, &say);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    muster.report(true);
                    assert!(muster.all_ready());
                    assert_eq!(said.load(Ordering::Relaxed), 1);
                });
            }
        });
    }

    #[test]
    fn if_one_has_not_what_it_needs_none_begins_and_nothing_is_said() {
        let muster = Muster::new(3, &|| panic!("none begins"));
        for is_ready in [true, false, true] {
            muster.report(is_ready);
        }
        assert!(!muster.all_ready());
    }
}
