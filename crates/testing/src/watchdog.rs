//! Ends a test that hangs, and says which case it was.
//!
//! How long a case takes says nothing on a machine that others use too. What hangs does not come any further: so whoever runs
//! a case says [`step`] now and then, and each step may take as long as a case could.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

thread_local! {
    /// Steps of this thread's cases.
    static STEPS: Arc<AtomicU64> = Arc::default();
}

/// The case that this thread runs has come further.
pub fn step() {
    STEPS.with(|steps| steps.fetch_add(1, Ordering::Relaxed));
}

/// What runs now, how far it was when it was looked at, and since when.
type Current = Option<(String, u64, Instant)>;

/// Watches over the cases that one thread runs.
#[derive(Clone, Debug)]
pub struct Watchdog {
    current: Arc<Mutex<Current>>,
    steps: Arc<AtomicU64>,
}

impl Watchdog {
    /// Starts to watch over this thread; a case that takes longer than `limit` for a step ends the process.
    pub fn start(limit: Duration) -> Self {
        let current = Arc::new(Mutex::new(None));
        let steps = STEPS.with(Arc::clone);
        let (watched, counted) = (Arc::downgrade(&current), Arc::clone(&steps));
        std::thread::spawn(move || {
            while let Some(current) = watched.upgrade() {
                bark(&current, counted.load(Ordering::Relaxed), limit);
                drop(current);
                std::thread::sleep(Duration::from_millis(500).min(limit));
            }
        });
        Self { current, steps }
    }

    /// A case begins, or nothing runs any more.
    pub fn enter(&self, case: Option<String>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = self.steps.load(Ordering::Relaxed);
        *current = case.map(|case| (case, steps, Instant::now()));
    }
}

fn bark(current: &Mutex<Current>, steps: u64, limit: Duration) {
    let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((case, since)) = hanging(&mut current, steps, limit) {
        eprintln!("hangs for {} s: {case}", since.elapsed().as_secs());
        // A thread that hangs cannot be ended otherwise.
        std::process::exit(3);
    }
}

/// The case that came no further for so long, and since when.
fn hanging(current: &mut Current, steps: u64, limit: Duration) -> Option<(&str, Instant)> {
    let (case, before, since) = current.as_mut()?;
    if *before != steps {
        (*before, *since) = (steps, Instant::now());
        return None;
    }
    (since.elapsed() >= limit).then_some((case, *since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_hangs_that_takes_no_step_however_long_it_takes_for_all() {
        let mut current = Some(("case".to_owned(), 0, Instant::now()));
        let mut hangs = |steps| hanging(&mut current, steps, Duration::ZERO).is_some();
        assert_eq!([hangs(1), hangs(2), hangs(2)], [false, false, true]);
        assert!(hanging(&mut None, 0, Duration::ZERO).is_none());
    }

    #[test]
    fn steps_count_for_who_takes_them() {
        let own = Watchdog::start(Duration::from_secs(600));
        let taken = |watchdog: &Watchdog| watchdog.steps.load(Ordering::Relaxed);
        let before = taken(&own);
        std::thread::spawn(step).join().ok();
        assert_eq!(taken(&own), before);
        step();
        assert_eq!(taken(&own), before + 1);
    }
}
