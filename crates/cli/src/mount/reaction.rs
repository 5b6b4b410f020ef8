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

/// Begins with it; it ends when all is done, or when the daemon that said so has ended.
pub fn begin(spec: &Spec, why: &str, is_over: Arc<AtomicBool>) {
    let (spec, why) = (spec.clone(), why.to_owned());
    let act = move || {
        if let Some(program) = &spec.options.daemon.on_error {
            run(program, &spec, &why);
        }
        if geteuid().is_root() {
            show_read_only(&spec.mountpoint, &is_over);
        }
    };
    if let Err(error) = thread::Builder::new().name("reaction".into()).spawn(act) {
        tracing::error!("nothing is done about the failure: {error}");
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

fn show_read_only(mountpoint: &Path, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let Ok(Some(entry)) = find_mount(mountpoint, SUBTYPE.as_ref()) else {
            return;
        };
        let shown = entry.options.to_string_lossy().into_owned();
        // What a remount has changed stays so.
        let mut flags = Options::parse_known([shown.as_str()]).kernel.flags;
        flags.insert(MountFlags::RDONLY);
        let options = MountOptions {
            flags,
            ..MountOptions::default()
        };
        if remount(&entry.path, &options).is_ok() {
            tracing::info!("the mount on {} is read-only now", shown_path(&entry.path));
            return;
        }
        thread::sleep(PAUSE);
    }
}
