//! What the threads of a daemon share, and what it does when its mount begins and ends.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use loamfs_fs::Error;
use loamfs_fuse::{Errno, Negotiated};

use super::emptier::Emptier;
use super::heir::Heirlooms;
use super::log::Log;
use super::scrubber::Scrubber;
use super::spawn;
use super::spec::Spec;
use super::ticker::Ticker;
use super::unmounter::Unmounter;
use crate::adapter::Events;
use crate::output::print_lines;

/// What the threads of a daemon share.
pub struct State {
    /// What carries out background steps, once it may.
    ticker: OnceLock<Ticker>,
    /// What scrubs the volume.
    scrubber: Scrubber,
    /// What empties devices that leave.
    emptier: Emptier,
    log: Log,
    foreground: bool,
    /// Another daemon is to follow one that dies.
    is_supervised: bool,
    /// The device number of the mount.
    device: Option<(u32, u32)>,
    /// What to say when the mount is ready; taken then.
    ready: Mutex<Option<Ready>>,
    /// The volume is being closed, or was.
    is_closing: AtomicBool,
    /// How closing the volume ended.
    closed: Mutex<Option<Result<(), Error>>>,
    unmounter: Arc<Unmounter>,
    /// What to hand to the supervisor when the mount is ready; taken then.
    heirlooms: Mutex<Option<Heirlooms>>,
}

impl State {
    /// That of a daemon which is to say this when it is ready.
    pub fn new(
        spec: &Spec,
        log: &Log,
        (scrubber, emptier): (Scrubber, Emptier),
        ready: Ready,
        device: Option<(u32, u32)>,
        unmounter: &Arc<Unmounter>,
    ) -> Self {
        Self {
            ticker: OnceLock::new(),
            scrubber,
            emptier,
            log: log.clone(),
            foreground: spec.foreground,
            is_supervised: spec.options.is_supervised(),
            device,
            ready: Mutex::new(Some(ready)),
            is_closing: AtomicBool::new(false),
            closed: Mutex::new(None),
            unmounter: Arc::clone(unmounter),
            heirlooms: Mutex::new(None),
        }
    }

    /// What scrubs the volume.
    pub fn scrubber(&self) -> &Scrubber {
        &self.scrubber
    }

    /// What empties devices that leave.
    pub fn emptier(&self) -> &Emptier {
        &self.emptier
    }

    /// What carries out background steps, once it may.
    pub fn ticker(&self) -> &OnceLock<Ticker> {
        &self.ticker
    }

    /// This is to be handed over when the mount is ready.
    pub fn will_hand_over(&self, heirlooms: Heirlooms) {
        let mut waiting = self
            .heirlooms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *waiting = Some(heirlooms);
    }

    /// Whether the volume takes no changes as it is being closed.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// How closing the volume ended, if it has.
    pub fn take_closed(&self) -> Option<Result<(), Error>> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.take()
    }

    /// Hands over what a successor needs, if the mount is to have one.
    fn hand_over(&self, agreed: &Negotiated) -> Result<(), String> {
        let heirlooms = &self.heirlooms;
        let heirlooms = heirlooms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(heirlooms) = heirlooms else {
            return Ok(());
        };
        if !self.is_supervised {
            heirlooms.hand_over_memory(&self.unmounter)?;
        } else if agreed.can_be_taken_over() {
            heirlooms.hand_over(&self.unmounter)?;
        } else {
            heirlooms.hand_over_memory(&self.unmounter)?;
            tracing::warn!(
                "a daemon that dies is not replaced: this kernel sends no requests again, or forgets no names; Linux 6.16 does both"
            );
        }
        Ok(())
    }
}

/// What to say when the mount is ready.
pub struct Ready {
    /// A successor has none: nobody waits for it.
    pub greeting: Option<String>,
    /// The same for the log, in short.
    pub mounted: String,
    /// Where to log without a system log.
    pub fallback_log: Option<PathBuf>,
}

impl Events for State {
    fn ready(&self, agreed: &Negotiated) -> Result<(), Errno> {
        let handed_over = self.hand_over(agreed);
        if !self.foreground {
            let (major, minor) = self.device.unwrap_or_default();
            handed_over
                .and_then(|()| self.unmounter.say(&format!("served {major}:{minor}")))
                .map_err(|error| {
                    tracing::error!("the supervisor: {error}");
                    Errno::IO
                })?;
        }
        let ready = self
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(ready) = ready else {
            return Ok(());
        };
        if self.foreground {
            // Nobody may be reading.
            let greeting = ready.greeting.unwrap_or_default();
            let _ = print_lines([greeting.trim_end().to_owned()]);
        } else {
            self.log.leave_stderr(ready.fallback_log.as_deref());
            match &ready.greeting {
                Some(greeting) => {
                    tracing::info!("{}", ready.mounted);
                    spawn::report_ready(greeting);
                }
                None => spawn::let_go_of_output(),
            }
        }
        self.emptier.start();
        Ok(())
    }

    fn closing(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.scrubber.end();
        self.emptier.end();
        if let Some(ticker) = self.ticker.get() {
            ticker.stop();
        }
    }

    fn closed(&self, result: Result<(), Error>) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }
}
