//! Ends a test that hangs, and says which case it was.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What runs now, and since when.
type Current = Option<(String, Instant)>;

/// Watches over the cases that one thread runs.
#[derive(Clone, Debug)]
pub struct Watchdog {
    current: Arc<Mutex<Current>>,
}

impl Watchdog {
    /// Starts to watch; a case that takes longer than `limit` ends the process.
    pub fn start(limit: Duration) -> Self {
        let current = Arc::new(Mutex::new(None));
        let watched = Arc::downgrade(&current);
        std::thread::spawn(move || {
            while let Some(current) = watched.upgrade() {
                bark(&current, limit);
                drop(current);
                std::thread::sleep(Duration::from_millis(500).min(limit));
            }
        });
        Self { current }
    }

    /// A case begins, or nothing runs any more.
    pub fn enter(&self, case: Option<String>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = case.map(|case| (case, Instant::now()));
    }
}

fn bark(current: &Mutex<Current>, limit: Duration) {
    let current = current.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((case, since)) = current
        .as_ref()
        .filter(|(_, since)| since.elapsed() > limit)
    {
        eprintln!("hangs for {} s: {case}", since.elapsed().as_secs());
        // A thread that hangs cannot be ended otherwise.
        std::process::exit(3);
    }
}
