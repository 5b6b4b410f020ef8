//! Ending a mount from inside its daemon, when a signal asks for it.

use std::sync::{Arc, Weak};
use std::thread;

use loamfs_fs::Volume;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::unmounter::{Unmounter, Wish};
use crate::failure::{Failure, Kind};

/// Has the mount of this device number unmounted, wherever it is seen, when SIGTERM or SIGINT arrives; SIGHUP does the
/// same in the foreground, where it means that the terminal is gone.
///
/// # Errors
///
/// If the system gives no handler or thread.
pub fn on_signal(
    unmounter: Arc<Unmounter>,
    device: Option<(u32, u32)>,
    foreground: bool,
    volume: Weak<Volume>,
) -> Result<(), Failure> {
    let failed = |error| Failure::new(Kind::Io, format!("signals cannot be handled: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let run = move || {
        for signal in signals.forever() {
            if signal != SIGHUP || foreground {
                let ended = match device {
                    Some(device) => unmounter.ask(Wish::End, device),
                    None => Err("the mount table does not have it".to_owned()),
                };
                if let Err(error) = ended {
                    tracing::warn!("{error}; ending with the mount in use");
                    give_up(&volume);
                }
            }
        }
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(run)
        .map(drop)
        .map_err(failed)
}

/// Who uses the mount cannot be cut off from it, so the daemon goes: what was written until now
/// is made durable, and the next mount recovers as after a crash.
fn give_up(volume: &Weak<Volume>) {
    let result = volume.upgrade().map_or(Ok(()), |volume| volume.sync());
    match result {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            tracing::error!("cannot write everything out: {error}");
            std::process::exit(1);
        }
    }
}
