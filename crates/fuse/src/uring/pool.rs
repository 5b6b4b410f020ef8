//! Threads for requests that wait: a queue's thread does not.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::machine;
use super::ring::Bell;
use super::slot::Slot;
use crate::{Errno, Reply, Worker};

/// A request that would have waited, in its slot.
pub(super) struct Parked {
    pub(super) slot: Slot,
    pub(super) number: usize,
    pub(super) home: Arc<Home>,
}

/// Where a queue finds what the pool has answered.
pub(super) struct Home {
    answered: Mutex<Vec<(usize, Slot)>>,
    bell: Arc<Bell>,
    /// Which of the processors with queues it is.
    place: usize,
}

impl Home {
    pub(super) fn new(bell: Arc<Bell>, place: usize) -> Self {
        Self {
            answered: Mutex::default(),
            bell,
            place,
        }
    }

    fn give(&self, number: usize, slot: Slot) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.push((number, slot));
        // With more than one, the bell has rung for those before.
        if answered.len() == 1 {
            self.bell.ring();
        }
    }

    /// What was answered since.
    pub(super) fn take(&self) -> Vec<(usize, Slot)> {
        std::mem::take(&mut *self.answered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The requests that wait for a thread. Each thread is bound to a processor: where one is idle, a request is carried out
/// on the processor that sent it.
pub(crate) struct Pool {
    processors: Vec<usize>,
    state: Mutex<State>,
    /// Tells an idle thread of each processor that it was called.
    called: Vec<Condvar>,
}

struct State {
    parked: VecDeque<Parked>,
    /// Threads of each processor that nobody has called.
    idle: Vec<usize>,
    /// Those that somebody has called, and that have not come yet.
    coming: Vec<usize>,
    closed: bool,
}

impl State {
    /// Calls an idle thread, of this processor if there is one; which processor's it is.
    fn call(&mut self, place: usize) -> Option<usize> {
        let is_idle = |place: &usize| self.idle.get(*place).is_some_and(|idle| *idle > 0);
        let chosen = Some(place)
            .filter(is_idle)
            .or_else(|| (0..self.idle.len()).find(is_idle))?;
        self.idle[chosen] -= 1;
        self.coming[chosen] += 1;
        Some(chosen)
    }
}

impl Pool {
    /// A pool without threads for queues of these processors.
    pub(crate) fn new(processors: Vec<usize>) -> Self {
        let none = vec![0; processors.len()];
        Self {
            called: processors.iter().map(|_| Condvar::new()).collect(),
            processors,
            state: Mutex::new(State {
                parked: VecDeque::new(),
                idle: none.clone(),
                coming: none,
                closed: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn park(&self, parked: Parked) {
        let place = parked.home.place;
        let mut state = self.state();
        state.parked.push_back(parked);
        // Without an idle thread, the next one that gets idle finds it.
        if let Some(place) = state.call(place) {
            drop(state);
            self.called[place].notify_one();
        }
    }

    /// Carries requests out until the pool is closed, as one of its threads, which are counted from 0.
    pub(crate) fn work(&self, thread: usize, worker: &Worker) {
        let place = thread % self.processors.len();
        machine::bind(self.processors[place]);
        let mut reply = Reply::new();
        while let Some(parked) = self.next(place) {
            let Parked {
                mut slot,
                number,
                home,
            } = parked;
            let handled = slot.request().map(|raw| worker.handle(&raw, &mut reply));
            match handled {
                Ok(_) => slot.answer(&reply),
                Err(_) => slot.refuse(Errno::IO),
            }
            reply.clear();
            home.give(number, slot);
        }
    }

    /// A request, when there is one; `None` when none comes any more.
    fn next(&self, place: usize) -> Option<Parked> {
        let mut state = self.state();
        loop {
            if let Some(parked) = state.parked.pop_front() {
                return Some(parked);
            }
            if state.closed {
                return None;
            }
            state.idle[place] += 1;
            state = self.called[place]
                .wait_while(state, |state| state.coming[place] == 0 && !state.closed)
                .unwrap_or_else(PoisonError::into_inner);
            state.coming[place] = state.coming[place].saturating_sub(1);
        }
    }

    /// Ends its threads, when nothing is left to do.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.called.iter().for_each(Condvar::notify_all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_the_same_processor_is_called_first_and_each_once() {
        let mut state = State {
            parked: VecDeque::new(),
            idle: vec![1, 2],
            coming: vec![0, 0],
            closed: false,
        };
        let called = [1, 1, 1, 1].map(|place| state.call(place));
        assert_eq!(called, [Some(1), Some(1), Some(0), None]);
        assert_eq!((state.idle, state.coming), (vec![0, 0], vec![1, 2]));
    }
}
