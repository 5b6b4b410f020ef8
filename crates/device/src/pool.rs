//! A few threads that help with batches of reads.
//!
//! A batch is a list of jobs that own all they need. The caller works through
//! the list itself and so do the helpers, so a batch always makes progress, even
//! where no thread could be started. Helpers start with the first batch that has
//! more than one job: a volume that is only checked or created never has any.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::lock;

/// A piece of work that is run once, by whoever gets to it first.
pub(crate) trait Job: Send + 'static {
    fn run(&mut self);
}

/// A batch that several threads empty together.
struct Batch<J> {
    jobs: Mutex<VecDeque<J>>,
}

impl<J: Job> Batch<J> {
    fn work(&self, mut done: impl FnMut(J)) {
        loop {
            // Bound first, so that the lock is not held while the job runs.
            let next = lock(&self.jobs).pop_front();
            let Some(mut job) = next else { return };
            job.run();
            done(job);
        }
    }
}

/// An invitation to help with a batch, and where finished jobs go.
type Ticket<J> = (Arc<Batch<J>>, Sender<J>);

struct Queue<J> {
    state: Mutex<State<J>>,
    arrived: Condvar,
}

struct State<J> {
    tickets: VecDeque<Ticket<J>>,
    threads: Vec<JoinHandle<()>>,
    started: bool,
    closed: bool,
}

/// The helpers of one device.
pub(crate) struct Pool<J: Job> {
    queue: Arc<Queue<J>>,
    size: usize,
}

impl<J: Job> Pool<J> {
    /// A pool of at most `size` helpers, none of which runs yet.
    pub fn new(size: usize) -> Self {
        let state = State {
            tickets: VecDeque::new(),
            threads: Vec::new(),
            started: false,
            closed: false,
        };
        let queue = Queue {
            state: Mutex::new(state),
            arrived: Condvar::new(),
        };
        Self {
            queue: Arc::new(queue),
            size,
        }
    }

    /// Runs all jobs and gives them back, in any order. A job whose helper died
    /// is missing.
    pub fn run(&self, jobs: Vec<J>) -> Vec<J> {
        let count = jobs.len();
        let batch = Arc::new(Batch {
            jobs: Mutex::new(jobs.into()),
        });
        let mut finished = Vec::with_capacity(count);
        let (sender, receiver) = mpsc::channel();
        self.invite(&batch, sender, count.saturating_sub(1));
        batch.work(|job| finished.push(job));
        // The rest is in the hands of helpers. Tickets that no helper has taken
        // are void by now, but would keep the channel open: withdraw them.
        self.withdraw(&batch);
        while finished.len() < count {
            match receiver.recv() {
                Ok(job) => finished.push(job),
                Err(_) => break,
            }
        }
        finished
    }

    fn invite(&self, batch: &Arc<Batch<J>>, sender: Sender<J>, useful: usize) {
        let helpers = useful.min(self.size);
        if helpers == 0 {
            return;
        }
        let mut state = lock(&self.queue.state);
        if !state.started {
            state.started = true;
            state.threads = (0..self.size).map_while(|_| self.start()).collect();
        }
        let helpers = helpers.min(state.threads.len());
        for _ in 0..helpers {
            state.tickets.push_back((Arc::clone(batch), sender.clone()));
        }
        drop(state);
        for _ in 0..helpers {
            self.queue.arrived.notify_one();
        }
    }

    fn withdraw(&self, batch: &Arc<Batch<J>>) {
        lock(&self.queue.state)
            .tickets
            .retain(|(other, _)| !Arc::ptr_eq(other, batch));
    }

    fn start(&self) -> Option<JoinHandle<()>> {
        let queue = Arc::clone(&self.queue);
        thread::Builder::new()
            .name("loamfs-io".into())
            .spawn(move || help(&queue))
            .ok()
    }
}

fn help<J: Job>(queue: &Queue<J>) {
    let mut state = lock(&queue.state);
    loop {
        if let Some((batch, done)) = state.tickets.pop_front() {
            drop(state);
            batch.work(|job| {
                // The caller is gone only if it panicked.
                let _ = done.send(job);
            });
            drop(done);
            state = lock(&queue.state);
        } else if state.closed {
            return;
        } else {
            state = queue
                .arrived
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<J: Job> Drop for Pool<J> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.queue.arrived.notify_all();
        for thread in threads {
            // A helper that panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    struct Square(u64);

    impl Job for Square {
        fn run(&mut self) {
            self.0 *= self.0;
        }
    }

    /// Finishes only when as many jobs run at once as the barrier asks for.
    struct Meet(Arc<Barrier>);

    impl Job for Meet {
        fn run(&mut self) {
            self.0.wait();
        }
    }

    struct Dies(bool);

    impl Job for Dies {
        fn run(&mut self) {
            // Only helpers die: a panic of the caller is the test's own.
            if thread::current().name() == Some("loamfs-io") {
                panic!("on purpose");
            }
            self.0 = true;
            thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn every_job_runs_once_with_and_without_helpers() {
        for size in [0, 1, 4] {
            let pool = Pool::new(size);
            for count in [0, 1, 2, 100] {
                let finished = pool.run((0..count).map(Square).collect());
                let mut values: Vec<_> = finished.into_iter().map(|job| job.0).collect();
                values.sort_unstable();
                assert_eq!(values, (0..count).map(|i| i * i).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn jobs_of_a_batch_run_at_the_same_time() {
        let pool = Pool::new(3);
        let barrier = Arc::new(Barrier::new(4));
        let jobs = (0..4).map(|_| Meet(Arc::clone(&barrier))).collect();
        assert_eq!(pool.run(jobs).len(), 4);
    }

    #[test]
    fn a_dying_helper_loses_its_job_and_hangs_nobody() {
        let pool = Pool::new(2);
        for _ in 0..3 {
            let finished = pool.run((0..50).map(|_| Dies(false)).collect());
            assert!(finished.len() >= 48, "{}", finished.len());
            assert!(finished.iter().all(|job| job.0));
        }
    }
}
