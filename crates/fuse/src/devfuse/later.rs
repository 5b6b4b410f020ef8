//! Requests that are put off: a successor first has the kernel forget what was lost with the server before, and who asks
//! for that waits.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was put off; `T` is a request that was read.
pub(super) struct Later<T>(Mutex<State<T>>);

struct State<T> {
    has_begun: bool,
    requests: VecDeque<T>,
}

impl<T> Default for Later<T> {
    fn default() -> Self {
        Self(Mutex::new(State {
            has_begun: false,
            requests: VecDeque::new(),
        }))
    }
}

impl<T> Later<T> {
    /// Puts off what `hand` returns, unless it is too late for that. Returns whether it did.
    pub(super) fn put_off(&self, hand: impl FnOnce() -> T) -> bool {
        let mut state = self.lock();
        if !state.has_begun {
            state.requests.push_back(hand());
        }
        !state.has_begun
    }

    /// Nothing more is put off.
    pub(super) fn begin(&self) {
        self.lock().has_begun = true;
    }

    /// Whether nothing is put off any more.
    pub(super) fn has_begun(&self) -> bool {
        self.lock().has_begun
    }

    /// What is to be carried out next, once that has begun.
    pub(super) fn next(&self) -> Option<T> {
        let mut state = self.lock();
        match state.has_begun {
            true => state.requests.pop_front(),
            false => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_off_is_carried_out_in_order_once_it_has_begun() {
        let later = Later::default();
        assert!(later.put_off(|| 1));
        assert!(later.put_off(|| 2));
        assert_eq!(later.next(), None);
        later.begin();
        assert!(!later.put_off(|| 3));
        assert_eq!(
            [later.next(), later.next(), later.next()],
            [Some(1), Some(2), None]
        );
    }
}
