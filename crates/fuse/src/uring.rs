//! The transport over io_uring: a queue for each processor, served by a thread that is bound to it. A request is carried
//! out on the processor that sent it, and one system call answers it and waits for the next.
//!
//! A queue's thread never waits with a request. It tries each; what would wait goes, with the buffers that it came in, to
//! a thread of the pool, and comes back to be answered:
//!
//! ```text
//! kernel --> queue's thread --> answered, next --> kernel
//!                  |                  ^
//!                  +--> pool --(bell)-+
//! ```
//!
//! The kernel gives a queue as many requests at a time as it has slots. Those that nobody waits for can never take all of
//! them: `MAX_BACKGROUND` is less.
//!
//! The kernel still sends over `/dev/fuse` what needs no answer, and everything until all queues of all processors that
//! the machine could have are there.

mod machine;
mod muster;
mod pool;
mod queue;
mod ring;
mod slot;
mod wander;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::Errno;
use ring::{Bell, Ring};
use wander::{LastClient, Wanderer};

pub use machine::{disable, enable, is_enabled};
pub(crate) use muster::Muster;
use pool::Home;
pub(crate) use pool::Pool;
pub(crate) use queue::Queue;

/// Requests that each processor's queue can have unanswered.
const DEPTH: usize = 16;

/// Requests without anybody waiting for them that the kernel sends at a time: they leave slots of a queue free.
const MAX_BACKGROUND: u16 = DEPTH as u16 - 2;

/// Sizes of a slot's payload, and so of the largest write, in bytes: the first one that fits is taken.
const PAYLOADS: [u32; 2] = [1 << 20, 128 << 10];

/// Why requests cannot travel through io_uring.
#[derive(Debug, thiserror::Error)]
pub enum RingsError {
    /// The buffers would take too much memory.
    #[error(
        "its buffers take {} KiB for {processors} processors, and may take {} KiB",
        needed / 1024,
        allowed / 1024
    )]
    Memory {
        /// Processors that the machine could have.
        processors: usize,
        /// Bytes that the smallest buffers take.
        needed: usize,
        /// Bytes that they may take.
        allowed: usize,
    },
    /// The system gives no rings.
    #[error("the system allows no io_uring: {0}")]
    System(#[from] io::Error),
}

impl From<Errno> for RingsError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Rings for the queues of a mount to come, one for each processor that this process may use. They can do no more than
/// requests take, so that they can be set up before a process gives up what setting up takes.
pub struct Rings {
    rings: Vec<Bound>,
    payload: u32,
}

/// A ring, the processor whose thread serves it, and the queues that it serves.
struct Bound {
    ring: Ring,
    bell: Arc<Bell>,
    processor: usize,
    queues: Vec<u16>,
}

impl Rings {
    /// Sets rings up whose buffers take at most `memory_max` bytes.
    ///
    /// # Errors
    ///
    /// [`RingsError`].
    pub fn set_up(memory_max: usize) -> Result<Self, RingsError> {
        let processors = machine::processors()?;
        let payload = fitting(processors, memory_max)?;
        let rings = machine::shared_out(processors)
            .into_iter()
            .map(|(processor, queues)| {
                let bell = Arc::new(Bell::new()?);
                Ok(Bound {
                    ring: Ring::new(queues.len() * DEPTH, &bell)?,
                    bell,
                    processor,
                    queues,
                })
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self { rings, payload })
    }

    /// Most memory that the buffers take, in bytes. Those that were never used take none.
    #[must_use]
    pub fn memory(&self) -> usize {
        let queues: usize = self.rings.iter().map(|bound| bound.queues.len()).sum();
        buffers(queues, self.payload)
    }

    /// What the kernel is asked for so that requests fit.
    pub(crate) fn fit(&self, config: &mut crate::Config) {
        config.over_io_uring = true;
        config.max_write = self.payload;
        config.max_background = MAX_BACKGROUND;
        config.congestion_threshold = MAX_BACKGROUND * 3 / 4;
    }

    /// The queues of a mount, and the processors to which their threads are to be bound.
    pub(crate) fn queues(self, connection: &Arc<OwnedFd>) -> (Vec<Queue>, Vec<usize>) {
        let processors = self.rings.iter().map(|bound| bound.processor).collect();
        let last = Arc::new(LastClient::default());
        let queue = |(place, bound): (usize, Bound)| {
            let Bound {
                ring, bell, queues, ..
            } = bound;
            let home = Arc::new(Home::new(bell, place));
            let wanderer = Wanderer::new(&last, place);
            Queue::new(
                ring,
                home,
                wanderer,
                Arc::clone(connection),
                &queues,
                self.payload,
            )
        };
        let queues = self.rings.into_iter().enumerate().map(queue).collect();
        (queues, processors)
    }
}

/// Bytes of the buffers of so many queues.
fn buffers(queues: usize, payload: u32) -> usize {
    queues * DEPTH * payload as usize
}

/// The largest payload whose buffers take no more than `allowed` bytes.
fn fitting(processors: usize, allowed: usize) -> Result<u32, RingsError> {
    let fits = |payload: &u32| buffers(processors, *payload) <= allowed;
    PAYLOADS
        .into_iter()
        .find(fits)
        .ok_or_else(|| RingsError::Memory {
            processors,
            needed: buffers(processors, PAYLOADS[PAYLOADS.len() - 1]),
            allowed,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_shrink_before_there_are_no_rings() {
        let largest = |allowed| fitting(2, allowed).ok();
        assert_eq!(largest(32 << 20), Some(1 << 20));
        assert_eq!(largest((32 << 20) - 1), Some(128 << 10));
        assert_eq!(largest(4 << 20), Some(128 << 10));
        assert_eq!(largest((4 << 20) - 1), None);
    }
}
