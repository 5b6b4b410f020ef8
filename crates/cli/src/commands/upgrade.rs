//! `loamfs upgrade`.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_fuse::MountEntry;
use serde_json::{Value, json};

use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::text::shown_path;

/// How long a successor is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs upgrade /mnt
      After the package was upgraded, while programs use the mount.";

/// Have the program that is installed now serve a mount, without unmounting it.
///
/// The daemon brings everything to the device and ends; a new one goes on with the mount. Who uses it waits for that
/// moment. Where a daemon that dies would not be replaced, this cannot be done either.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct UpgradeArgs {
    /// Where the volume is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    mountpoint: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl UpgradeArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If no LoamFS is mounted there, or its daemon cannot be replaced.
    pub fn run(self) -> Result<u8, Failure> {
        let entry = mounts::mounted(&self.mountpoint)?;
        let before = daemon(&entry)?;
        let start = Instant::now();
        control::ask(&entry, &Request::Upgrade)?;
        let after = successor(&entry, &before)?;
        let seconds = start.elapsed().as_secs_f64();
        let shown = shown_path(&entry.path);
        if self.json {
            let value = json!({
                "mountpoint": entry.path.to_string_lossy(),
                "daemon_before": before,
                "daemon": after,
                "seconds": seconds,
            });
            return print_lines([format!("{value:#}")]);
        }
        print_lines([format!(
            "another daemon serves {shown}; that took {seconds:.2} s"
        )])
    }
}

/// The number of the process that serves a mount.
///
/// # Errors
///
/// If it cannot be asked.
pub(super) fn daemon(entry: &MountEntry) -> Result<Value, Failure> {
    let answer = control::ask(entry, &Request::Info)?;
    let report: Value = serde_json::from_str(&answer).unwrap_or_default();
    Ok(report["daemon"].clone())
}

/// Waits for another one.
///
/// # Errors
///
/// If none comes.
pub(super) fn successor(entry: &MountEntry, before: &Value) -> Result<Value, Failure> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match daemon(entry) {
            Ok(after) if after != *before && !after.is_null() => return Ok(after),
            // None listens for a moment.
            _ => thread::sleep(PAUSE),
        }
        if let Some(failure) = control::unmounted(entry) {
            return Err(failure);
        }
    }
    let shown = shown_path(&entry.path);
    let text = format!("no daemon has followed that of {shown}; its log says why");
    Err(Failure::new(Kind::Io, text))
}
