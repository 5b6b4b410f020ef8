//! The threads that write behind the operations of a mounted volume.

use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use loamfs_fs::Volume;

use crate::failure::{Failure, Kind};

/// One commits while the other writes what it sealed.
pub const COUNT: usize = 2;

/// Runs `Upkeep::write_behind` on a few threads.
pub struct Writers {
    volume: Weak<Volume>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Starts the threads. They keep the volume alive until it is closed or [`Writers::stop`] is called.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(volume: &Arc<Volume>) -> Result<Self, Failure> {
        let mut writers = Self {
            volume: Arc::downgrade(volume),
            threads: Vec::new(),
        };
        for _ in 0..COUNT {
            let volume = Arc::clone(volume);
            let thread = thread::Builder::new()
                .name("writer".into())
                .spawn(move || volume.upkeep().write_behind());
            match thread {
                Ok(thread) => writers.threads.push(thread),
                Err(error) => {
                    writers.stop();
                    let text = format!("no thread can be started: {error}");
                    return Err(Failure::new(Kind::Io, text));
                }
            }
        }
        Ok(writers)
    }

    /// Ends the threads after what they are writing.
    pub fn stop(self) {
        if let Some(volume) = self.volume.upgrade() {
            volume.upkeep().end_write_behind();
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a writing thread panicked");
            }
        }
    }
}
