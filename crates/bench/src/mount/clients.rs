//! Clients that begin together: threads of this process, each with files of its own. The calling thread is the first.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::cpu;

/// What clients took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// From the first one's beginning to the last one's end.
    pub time: Duration,
    /// CPU time of all, in nanoseconds.
    pub cpu: u64,
}

/// One client's.
struct One {
    start: Instant,
    end: Instant,
    cpu: u64,
}

/// Has so many clients work, each with its number from 0 on.
///
/// # Errors
/// What one of them met.
pub fn together(
    count: usize,
    work: impl Fn(usize) -> io::Result<()> + Sync,
) -> Result<Taken, Error> {
    let barrier = Barrier::new(count);
    let client = |number| {
        barrier.wait();
        let (start, before) = (Instant::now(), cpu::of_this_thread());
        work(number)?;
        Ok(One {
            start,
            end: Instant::now(),
            cpu: cpu::of_this_thread() - before,
        })
    };
    let done: io::Result<Vec<One>> = thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> = (1..count)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        // The first one is the calling thread: a new one would be put where the daemon's threads are not.
        let first = client(0);
        let ends = threads.into_iter().map(|thread| {
            let broken = |_| Err(io::Error::other("a client broke off"));
            thread.join().unwrap_or_else(broken)
        });
        std::iter::once(first).chain(ends).collect()
    });
    let clients = done.map_err(|source| Error::Io {
        what: "working on the mount".into(),
        source,
    })?;
    let start = clients.iter().map(|client| client.start).min();
    let end = clients.iter().map(|client| client.end).max();
    Ok(Taken {
        time: start.zip(end).map_or(Duration::ZERO, |(a, b)| b - a),
        cpu: clients.iter().map(|client| client.cpu).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_works_once_and_the_slowest_counts() {
        let sum = AtomicUsize::new(0);
        let taken = together(3, |number| {
            sum.fetch_add(number + 1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(if number == 1 { 20 } else { 0 }));
            Ok(())
        });
        assert!(taken.unwrap().time >= Duration::from_millis(20));
        assert_eq!(sum.into_inner(), 6);
    }

    #[test]
    fn what_one_meets_is_told() {
        let taken = together(2, |number| match number {
            0 => Ok(()),
            _ => Err(io::Error::other("no")),
        });
        assert!(taken.unwrap_err().to_string().contains("no"));
    }
}
