//! Signals, in the processes beside a daemon.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, Kind};

/// Signals that end a daemon are sent to this process too; it ends with the daemon.
///
/// # Errors
///
/// If they cannot be handled.
pub fn outlive() -> Result<(), Failure> {
    let noted = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&noted)).map_err(|error| {
            Failure::new(Kind::Io, format!("signals cannot be handled: {error}"))
        })?;
    }
    Ok(())
}
