//! The thread that carries out a mounted volume's background steps.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use loamfs_fs::Volume;

use crate::failure::{Failure, Kind};

/// How often the volume is asked for what is due. Commits by age are late by at most this.
const PERIOD: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Shared {
    stop: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn stop(&self) -> MutexGuard<'_, bool> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `Upkeep::tick` every half second.
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Ticker {
    /// Starts the thread, which has `look` look at the volume each time. It does not keep the volume alive.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(
        volume: Weak<Volume>,
        look: impl Fn(&Volume) + Send + 'static,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let inner = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ticker".into())
            .spawn(move || run(&inner, &volume, &look))
            .map_err(|error| {
                Failure::new(Kind::Io, format!("no thread can be started: {error}"))
            })?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread, and waits for the step that it is in.
    pub fn stop(&self) {
        *self.shared.stop() = true;
        self.shared.changed.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the background thread panicked");
        }
    }
}

/// Does what is due, and goes on as long as that leaves less to be done of what was removed.
fn catch_up(volume: &Volume) -> Result<(), loamfs_fs::Error> {
    let mut before = usize::MAX;
    loop {
        volume.upkeep().tick()?;
        let left = volume.upkeep().leftovers();
        if left == 0 || left >= before {
            return Ok(());
        }
        before = left;
    }
}

fn run(shared: &Shared, volume: &Weak<Volume>, look: &dyn Fn(&Volume)) {
    let mut last_error = String::new();
    loop {
        let waited = shared
            .changed
            .wait_timeout_while(shared.stop(), PERIOD, |stop| !*stop);
        let (stop, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *stop {
            return;
        }
        drop(stop);
        let Some(volume) = volume.upgrade() else {
            return;
        };
        // An error that lasts is logged once.
        match catch_up(&volume) {
            Ok(()) => last_error.clear(),
            Err(error) => {
                let text = error.to_string();
                if text != last_error {
                    tracing::error!("background work failed: {text}");
                    last_error = text;
                }
            }
        }
        look(&volume);
    }
}
