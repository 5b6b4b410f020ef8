//! `loamfs unmount`.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_device::{DeviceError, FileDevice, FileOptions, Mode};
use loamfs_fuse::{MountEntry, detach, find_mount, unmount};
use serde_json::{Value, json};

use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Ended, Served, Waiter};
use crate::mount::lost::Lost;
use crate::mounts::{self, SUBTYPE};
use crate::output::{note, print_lines};
use crate::text::shown_path;

/// How long a daemon that cannot be asked is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long a daemon that follows another one is waited for, where the mount seems to be in use.
const SUCCESSION_MAX: Duration = Duration::from_secs(30);
/// How long a mount must be in use that a daemon serves.
const AFTER: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(20);

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs unmount /mnt
      Returns when everything is on the device.
  loamfs umount volume.img
      The same, by the image file.";

/// Unmount a volume; returns when all is on the device, unless it is mounted elsewhere too.
#[derive(Debug, Args)]
#[command(visible_alias = "umount", after_long_help = EXAMPLES)]
pub struct UnmountArgs {
    /// Where it is mounted, or its device or image file.
    #[arg(value_name = "MOUNTPOINT", add = ArgValueCompleter::new(mounted))]
    volume: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl UnmountArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If it is in use, or could not be written out.
    pub fn run(self) -> Result<u8, Failure> {
        let shown = shown_path(&self.volume);
        let found = find_mount(&self.volume, SUBTYPE.as_ref())
            .map_err(|error| Failure::usage(cannot_find(&self.volume, &error)))?;
        let start = Instant::now();
        let Some(entry) = found.or_else(|| mounts::find_source(&self.volume)) else {
            return Err(Failure::usage(format!(
                "no LoamFS is mounted on {shown}; name the directory that it is mounted on"
            )));
        };
        match control::served(&entry) {
            Served::Now => {}
            Served::Later => {
                // Whoever asked is still waiting for an answer, and so keeps it in use.
                detach(&entry.path).map_err(|error| refused(&entry.path, &error))?;
                wait_for_lock(&entry)?;
                return self.after_death(&entry, start, &had_died(&shown));
            }
            Served::NoMore => {
                crate::mount::clear_dead(&entry)?;
                return self.after_death(&entry, start, &had_died(&shown));
            }
        }
        // Before, because afterwards the daemon may be gone too soon.
        let waiter = Waiter::new(&entry);
        unmount_unused(&entry)?;
        if mounts::ours()
            .iter()
            .any(|other| other.device == entry.device)
        {
            // It is mounted elsewhere too, and stays that.
            return self.say(&entry, start, None, None);
        }
        match waiter.map(Waiter::wait) {
            Ok(Ended::Closed(said)) => {
                let requests = serde_json::from_str(&said).ok();
                self.say(&entry, start, None, requests)
            }
            Ok(Ended::Failed(why)) => {
                Err(Failure::new(Kind::Io, format!("unmounting {shown}: {why}")))
            }
            // It goes on as long as the kernel waits for the volume to be closed.
            Ok(Ended::Followed) => {
                wait_for_lock(&entry)?;
                match Lost::of(&entry) {
                    None => self.say(&entry, start, None, None),
                    Some(lost) => self.after_death(&entry, start, &died(&shown, Some(lost))),
                }
            }
            // So may another one here.
            Ok(Ended::Died) => {
                wait_for_lock(&entry)?;
                self.after_death(&entry, start, &died(&shown, Lost::of(&entry)))
            }
            Err(_) => {
                if mounts::is_trusted(&entry) {
                    wait_for_lock(&entry)?;
                }
                self.say(&entry, start, None, None)
            }
        }
    }

    /// A daemon died, and the mount is gone: that is a success only if nothing was lost.
    fn after_death(&self, entry: &MountEntry, start: Instant, died: &str) -> Result<u8, Failure> {
        let lost = Lost::of(entry);
        Lost::forget(entry.device);
        self.say(entry, start, Some(lost.unwrap_or_default()), None)?;
        match lost.and_then(|lost| lost.words()) {
            Some(words) => Err(Failure::new(Kind::Io, format!("{died}; {words}"))),
            None => {
                note(&format!("loamfs: {died}"));
                Ok(0)
            }
        }
    }

    /// With `--json`, what was unmounted, how long that took, what was lost with a daemon that died, and the requests since it
    /// was mounted.
    fn say(
        &self,
        entry: &MountEntry,
        start: Instant,
        died: Option<Lost>,
        requests: Option<Value>,
    ) -> Result<u8, Failure> {
        if !self.json {
            return Ok(0);
        }
        let value = json!({
            "device": entry.source.to_string_lossy(),
            "mountpoint": entry.path.to_string_lossy(),
            "type": entry.fstype.to_string_lossy(),
            "daemon_died": died.is_some(),
            "lost": died.map(|lost| json!({ "files": lost.files, "bytes": lost.bytes })),
            "seconds": start.elapsed().as_secs_f64(),
            "requests": requests,
        });
        print_lines([format!("{value:#}")])
    }
}

/// That a daemon died before.
fn had_died(shown: &str) -> String {
    format!("the daemon of {shown} had died; the next mount recovers the volume")
}

/// That a daemon died, by what it lost.
fn died(shown: &str, lost: Option<Lost>) -> String {
    let closed = match lost {
        Some(lost) if lost.is_followed => "another one closed it",
        _ => "the next mount recovers it",
    };
    format!("the daemon of {shown} died while it closed the volume; {closed}")
}

/// Why it cannot be told what is mounted there.
fn cannot_find(mountpoint: &Path, error: &loamfs_fuse::Error) -> String {
    match error {
        loamfs_fuse::Error::Path { source, .. } => Failure::io(mountpoint, source).to_string(),
        error => error.to_string(),
    }
}

fn refused(mountpoint: &Path, error: &loamfs_fuse::Error) -> Failure {
    let shown = shown_path(mountpoint);
    if is_busy(error) {
        return Failure::new(
            Kind::Busy,
            format!(
                "{shown} is in use; end the programs that `fuser -vm {shown}` shows, and try again"
            ),
        );
    }
    Failure::new(Kind::Io, error.to_string())
}

/// Unmounts. Whoever asks for a mount while one daemon follows another keeps it in use until it is answered: `loamfs upgrade`
/// does. So nobody is believed to use it before that is over.
fn unmount_unused(entry: &MountEntry) -> Result<(), Failure> {
    let mut since = Instant::now();
    let end = since + SUCCESSION_MAX;
    loop {
        let Err(error) = unmount(&entry.path) else {
            return Ok(());
        };
        let now = Instant::now();
        if control::is_between(entry) {
            since = now;
        }
        if !is_busy(&error) || now.duration_since(since) > AFTER || now > end {
            return Err(refused(&entry.path, &error));
        }
        thread::sleep(PAUSE);
    }
}

fn is_busy(error: &loamfs_fuse::Error) -> bool {
    error.to_string().contains("busy")
}

/// Waits for a daemon that cannot be asked, by the lock that it holds on the device.
fn wait_for_lock(entry: &MountEntry) -> Result<(), Failure> {
    let path = Path::new(&entry.source);
    let mut options = FileOptions::new(Mode::ReadOnly);
    options.lock_wait = PATIENCE;
    match FileDevice::open_with(path, &options) {
        Err(error @ DeviceError::Busy { .. }) => Err(Failure::device(path, &error)),
        // A loop device that has detached, or a device that the caller may not read: then umount
        // itself is all that can be said.
        _ => Ok(()),
    }
}
