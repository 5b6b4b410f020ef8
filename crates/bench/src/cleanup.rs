//! What must be undone however a run ends: by return, by error, or by a signal.

use std::sync::{Mutex, MutexGuard, PoisonError};

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Error;

type Undo = Box<dyn FnOnce() + Send>;

/// Steps that are not undone yet, in the order in which they were done.
static STEPS: Mutex<Vec<(u64, Undo)>> = Mutex::new(Vec::new());

fn steps() -> MutexGuard<'static, Vec<(u64, Undo)>> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A step that is undone when this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Guard(u64);

/// Notes how a step is undone.
pub fn later(undo: impl FnOnce() + Send + 'static) -> Guard {
    let mut steps = steps();
    let number = steps.last().map_or(0, |(last, _)| last + 1);
    steps.push((number, Box::new(undo)));
    Guard(number)
}

impl Drop for Guard {
    fn drop(&mut self) {
        let step = {
            let mut steps = steps();
            let found = steps.iter().position(|(number, _)| *number == self.0);
            found.map(|index| steps.remove(index))
        };
        if let Some((_, undo)) = step {
            undo();
        }
    }
}

/// From now on a signal that ends the process undoes all steps first, the last one first.
///
/// # Errors
/// If the system gives no handler or thread.
pub fn on_signals() -> Result<(), Error> {
    let failed = |source| Error::Io {
        what: "handling signals".into(),
        source,
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            // The lock is kept, so that nothing new begins meanwhile.
            let mut steps = steps();
            while let Some((_, undo)) = steps.pop() {
                undo();
            }
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .map(drop)
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_dropped_guard_undoes_its_own_step_once() {
        let count = Arc::new(AtomicU32::new(0));
        let step = |by: u32| {
            let count = Arc::clone(&count);
            later(move || {
                count.fetch_add(by, Ordering::Relaxed);
            })
        };
        let (first, second) = (step(1), step(10));
        drop(first);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let third = step(100);
        drop(second);
        drop(third);
        assert_eq!(count.load(Ordering::Relaxed), 111);
    }
}
