//! The small process above a daemon: it unmounts when the daemon asks for it, and should that die, its mount goes, as no
//! one else would clear it.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use loamfs_fuse::{find_mount, is_dead};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use super::log::Log;
use super::spec::Spec;
use super::{control, spawn, stale, unmounter};
use crate::failure::{Failure, Kind};
use crate::mounts::{self, SUBTYPE};
use crate::text::shown_path;

/// Starts the daemon with `arguments`, and waits for its end; returns its exit code.
///
/// # Errors
///
/// If it cannot be started.
pub fn run(spec: &Spec, log: &Log, arguments: &[OsString]) -> Result<u8, Failure> {
    outlive_signals()?;
    if let Some(file) = &spec.options.daemon.log {
        log.to_file(file)?;
    }
    let failed = |error| Failure::new(Kind::Io, format!("the daemon cannot be started: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let started = spawn::own(arguments).stdin(OwnedFd::from(theirs)).spawn();
    let mut child = started.map_err(failed)?;
    // Whoever waits for the daemon waits for the end of what it says.
    spawn::let_go_of_output();
    log.leave_stderr(control::log_file("guard").as_deref());
    unmounter::serve(&ours);
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        clear(spec, status);
    }
    Ok(code_of(status))
}

/// Signals that end a daemon are sent to this process too; it ends with the daemon.
///
/// # Errors
///
/// If they cannot be handled.
pub fn outlive_signals() -> Result<(), Failure> {
    let noted = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&noted)).map_err(|error| {
            Failure::new(Kind::Io, format!("signals cannot be handled: {error}"))
        })?;
    }
    Ok(())
}

fn clear(spec: &Spec, status: ExitStatus) {
    let Ok(Some(entry)) = find_mount(&spec.mountpoint, SUBTYPE.as_ref()) else {
        return;
    };
    if !is_dead(&entry.path) {
        return;
    }
    tracing::error!(
        "the daemon of {} died ({status}); the next mount recovers the volume",
        shown_path(&entry.path)
    );
    let views = mounts::ours().into_iter().rev();
    for view in views.filter(|view| view.device == entry.device) {
        if let Err(failure) = stale::clear_one(&view) {
            tracing::error!("{failure}");
        }
    }
}

/// As a shell has it: a signal counts from 128 on.
fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
