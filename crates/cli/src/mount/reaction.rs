//! What the supervisor does when something failed and the volume takes no changes any more: it runs the program of
//! `on-error=`, and has the kernel show the mount as read-only. That it can only once no file is open for writing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use loamfs_fuse::{MountFlags, MountOptions, find_mount, remount};
use rustix::process::geteuid;

use super::options::Options;
use super::spawn;
use super::spec::Spec;
use crate::mounts::SUBTYPE;
use crate::text::shown_path;

/// How often the kernel is asked.
const PAUSE: Duration = Duration::from_secs(1);

/// Begins with it; it ends when all is done, or when the daemon that said so has ended. `shown` says from then on that the
/// mount is shown as read-only for this.
pub fn begin(spec: &Spec, why: &str, is_over: Arc<AtomicBool>, shown: Arc<AtomicBool>) {
    let (spec, why) = (spec.clone(), why.to_owned());
    let act = move || {
        if let Some(program) = &spec.options.daemon.on_error {
            run(program, &spec, &why);
        }
        if geteuid().is_root() {
            show_read_only(&spec.mountpoint, &is_over, &shown);
        }
    };
    if let Err(error) = thread::Builder::new().name("reaction".into()).spawn(act) {
        tracing::error!("nothing is done about the failure: {error}");
    }
}

/// Has the kernel show a mount as writable again, if it is read-only for a failure that is over.
pub fn end(spec: &Spec, shown: &Arc<AtomicBool>) {
    if !shown.swap(false, Ordering::SeqCst) {
        return;
    }
    let mountpoint = spec.mountpoint.clone();
    // The daemon may be asked for something on the way.
    let act = move || match show(&mountpoint, false) {
        Some(Ok(())) => {
            tracing::info!("the mount on {} is writable again", shown_path(&mountpoint))
        }
        Some(Err(error)) => tracing::error!("the mount stays read-only: {error}"),
        None => {}
    };
    if let Err(error) = thread::Builder::new().name("reaction".into()).spawn(act) {
        tracing::error!("the mount stays read-only: {error}");
    }
}

fn run(program: &Path, spec: &Spec, why: &str) {
    let ran = spawn::other(program)
        .env("LOAMFS_MOUNTPOINT", &spec.mountpoint)
        .env("LOAMFS_DEVICE", &spec.device)
        .env("LOAMFS_REASON", why)
        .status();
    match ran {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::warn!("{} ended with {status}", shown_path(program)),
        Err(error) => tracing::error!("{} cannot be run: {error}", shown_path(program)),
    }
}

fn show_read_only(mountpoint: &Path, is_over: &AtomicBool, shown: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        match show(mountpoint, true) {
            None => return,
            Some(Ok(())) => {
                tracing::info!("the mount on {} is read-only now", shown_path(mountpoint));
                shown.store(true, Ordering::SeqCst);
                // Its successor may have been quicker.
                if is_over.load(Ordering::SeqCst) && shown.swap(false, Ordering::SeqCst) {
                    let _ = show(mountpoint, false);
                }
                return;
            }
            Some(Err(_)) => thread::sleep(PAUSE),
        }
    }
}

/// Has the kernel show a mount as read-only, or not; nothing if there is none.
fn show(mountpoint: &Path, read_only: bool) -> Option<Result<(), loamfs_fuse::Error>> {
    let entry = find_mount(mountpoint, SUBTYPE.as_ref()).ok().flatten()?;
    let shown = entry.options.to_string_lossy().into_owned();
    // What a remount has changed stays so.
    let mut flags = Options::parse_known([shown.as_str()]).kernel.flags;
    flags.set(MountFlags::RDONLY, read_only);
    let options = MountOptions {
        flags,
        ..MountOptions::default()
    };
    Some(remount(&entry.path, &options))
}
