//! Ending a mount from inside its daemon, when a signal asks for it.

use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::thread;

use loamfs_fs::Volume;
use loamfs_fuse::{detach, unmount};
use rustix::mount::UnmountFlags;
use rustix::process::geteuid;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Kind};

/// Unmounts `mountpoint`, and wherever else the same is mounted, when SIGTERM or SIGINT arrives; SIGHUP does the same in the foreground,
/// where it means that the terminal is gone.
///
/// # Errors
///
/// If the system gives no handler or thread.
pub fn on_signal(
    mountpoint: PathBuf,
    device: Option<(u32, u32)>,
    foreground: bool,
    volume: Weak<Volume>,
) -> Result<(), Failure> {
    let failed = |error| Failure::new(Kind::Io, format!("signals cannot be handled: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let run = move || {
        for signal in signals.forever() {
            if signal != SIGHUP || foreground {
                let mut views = views(device);
                let last = views.pop().unwrap_or_else(|| mountpoint.clone());
                views.iter().for_each(|view| leave(view));
                end(&last, &volume);
            }
        }
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(run)
        .map(drop)
        .map_err(failed)
}

/// Where the mount is seen.
fn views(device: Option<(u32, u32)>) -> Vec<PathBuf> {
    let ours = crate::mounts::ours().into_iter();
    let views = ours.filter(|entry| Some(entry.device) == device);
    views.map(|entry| entry.path).collect()
}

/// Unmounts a view that is not the last one.
fn leave(view: &Path) {
    if unmount(view).is_err()
        && let Err(error) = detach(view)
    {
        tracing::warn!("{error}");
    }
}

/// Unmounts; if files are still open, writes everything out and cuts them off, because whoever
/// sends the signal will not wait.
fn end(mountpoint: &Path, volume: &Weak<Volume>) {
    match unmount(mountpoint) {
        Ok(()) => return,
        Err(error) => tracing::warn!("{error}; cutting off who uses it"),
    }
    // Brings dirty pages of mapped files to the daemon while it still listens.
    if let Ok(directory) = std::fs::File::open(mountpoint)
        && let Err(error) = rustix::fs::syncfs(&directory)
    {
        tracing::warn!("cannot sync before the end: {error}");
    }
    let ended = if geteuid().is_root() {
        // FORCE ends the connection although files are open, DETACH the mount.
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
        rustix::mount::unmount(mountpoint, flags).map_err(|error| error.to_string())
    } else {
        cut_off(mountpoint)
    };
    if let Err(error) = ended {
        tracing::warn!("{error}; ending with the mount in use");
        give_up(volume);
    }
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

/// What root does with FORCE an ordinary user does through the control file system.
fn cut_off(mountpoint: &Path) -> Result<(), String> {
    let entry = crate::mounts::ours()
        .into_iter()
        .rfind(|entry| entry.path == mountpoint);
    detach(mountpoint).map_err(|error| error.to_string())?;
    let (_, minor) = entry.ok_or("it is not in the mount table")?.device;
    let abort = format!("/sys/fs/fuse/connections/{minor}/abort");
    std::fs::write(&abort, "1").map_err(|error| format!("{abort}: {error}"))
}
