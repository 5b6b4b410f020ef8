//! Clients that the kernel moves to another processor with each answer.
//!
//! The thread of a queue still runs when its answer wakes the client. So the kernel wakes the client on the processor where it
//! was before, if that is idle (`recent_used_cpu` of its scheduler). There the client asks another queue, whose thread has to
//! be woken, and whose answer moves the client back. Each request then takes twice the time. It ends once that other processor
//! is busy: the client stays. So a thread that lost its client stays awake for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a thread stays awake: longer than a client takes to wake up, to ask and to be answered elsewhere.
pub(super) const LINGER: Duration = Duration::from_micros(200);

/// So many answers to a client that has just come may lose it again: an operation takes a few, and the kernel moves it after the
/// longest, not after the first.
const WATCHED: u32 = 8;

/// How often a thread stays awake in vain before it leaves that to the kernel: one that asks too seldom is never caught.
const TRIES: u32 = 16;
/// How many requests are left to the kernel then; each time twice as many, up to the most.
const REST: u32 = 64;
const REST_MAX: u32 = 4096;

/// The last client that any queue heard of, and where.
#[derive(Debug, Default)]
pub(super) struct LastClient(AtomicU64);

impl LastClient {
    /// A queue has a request of a client's thread, by its number. Whether the request before was of the same thread, and came to
    /// another queue.
    fn comes(&self, thread: u32, place: u32) -> bool {
        let now = u64::from(thread) << 32 | u64::from(place);
        // It guards nothing: whoever sees an old one stays awake for nothing, or does not.
        let before = self.0.swap(now, Ordering::Relaxed);
        // What the kernel asks by itself is of no thread.
        thread != 0 && before >> 32 == u64::from(thread) && before != now
    }
}

/// What the thread of a queue knows of a client that moves.
#[derive(Debug)]
pub(super) struct Wanderer {
    last: Arc<LastClient>,
    /// The processor, by its place among those that have queues.
    place: u32,
    /// Requests since a client came from another queue.
    since: u32,
    /// Whether it was waited for in vain: it has gone, or asks too seldom.
    in_vain: bool,
    tried: u32,
    /// Requests until it is tried again.
    rest: u32,
    next_rest: u32,
}

impl Wanderer {
    pub(super) fn new(last: &Arc<LastClient>, place: usize) -> Self {
        Self {
            last: Arc::clone(last),
            place: place as u32,
            since: WATCHED,
            in_vain: false,
            tried: 0,
            rest: 0,
            next_rest: REST,
        }
    }

    /// A request of a client's thread comes.
    pub(super) fn note(&mut self, thread: u32) {
        self.rest = self.rest.saturating_sub(1);
        if self.last.comes(thread, self.place) {
            (self.since, self.in_vain) = (0, false);
            self.try_again();
        } else {
            self.since = self.since.saturating_add(1);
            if self.since == WATCHED {
                (self.tried, self.next_rest) = (0, REST);
            }
        }
    }

    /// A client came once more, though it was waited for.
    fn try_again(&mut self) {
        if self.rest > 0 {
            return;
        }
        self.tried += 1;
        if self.tried > TRIES {
            self.tried = 0;
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(REST_MAX);
        }
    }

    /// Whether to stay awake for a moment, now that all is answered.
    pub(super) fn lingers(&self) -> bool {
        self.since < WATCHED && self.rest == 0 && !self.in_vain
    }

    /// Nobody asked while the thread stayed awake.
    pub(super) fn note_in_vain(&mut self) {
        self.in_vain = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> [Wanderer; 2] {
        let last = Arc::new(LastClient::default());
        [0, 1].map(|place| Wanderer::new(&last, place))
    }

    #[test]
    fn only_a_client_that_moves_is_waited_for() {
        let [mut here, mut there] = two();
        here.note(7);
        assert!(!here.lingers(), "it has just come");
        here.note(7);
        assert!(!here.lingers(), "it stays");
        there.note(7);
        assert!(there.lingers(), "it moved");
        // Two clients, each on its own processor.
        let [mut here, mut there] = two();
        for _ in 0..10 {
            here.note(7);
            there.note(8);
            assert!(!here.lingers() && !there.lingers());
        }
        // The kernel.
        here.note(0);
        there.note(0);
        assert!(!there.lingers());
    }

    #[test]
    fn it_is_waited_for_until_it_stays() {
        let [mut here, mut there] = two();
        here.note(7);
        // It moves with each third request.
        for _ in 0..5 {
            for queue in [&mut there, &mut here] {
                for _ in 0..3 {
                    queue.note(7);
                    assert!(queue.lingers());
                }
            }
        }
        for _ in 0..WATCHED {
            here.note(7);
        }
        assert!(!here.lingers());
        assert_eq!((here.tried, here.next_rest), (0, REST));
    }

    #[test]
    fn who_asks_too_seldom_is_waited_for_once() {
        let [mut here, mut there] = two();
        here.note(7);
        there.note(7);
        assert!(there.lingers());
        there.note_in_vain();
        there.note(7);
        assert!(!there.lingers());
        here.note(7);
        assert!(here.lingers(), "it moved again");
    }

    #[test]
    fn who_cannot_be_caught_is_left_alone_for_longer_and_longer() {
        let [mut here, mut there] = two();
        let mut lingered = 0;
        for _ in 0..100_000 {
            for queue in [&mut here, &mut there] {
                queue.note(7);
                lingered += u32::from(queue.lingers());
            }
        }
        assert!((TRIES..20_000).contains(&lingered), "{lingered}");
    }
}
