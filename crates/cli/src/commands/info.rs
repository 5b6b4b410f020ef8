//! `loamfs info`.

use std::path::{Path, PathBuf};

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_fs::{Env, OpenOptions, Volume};
use loamfs_fuse::MountEntry;

use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::report::{Identity, Report};
use crate::text::shown_path;
use crate::volume::{Access, open_device};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs info /mnt
      What the volume and its daemon do.
  loamfs info --json volume.img
      Of a volume that is not mounted, for a program to read.";

/// Show space, groups, segments, caches and device requests of a volume.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct InfoArgs {
    /// The device, image file, or the directory on which it is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    volume: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl InfoArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, or its daemon cannot be asked.
    pub fn run(self) -> Result<u8, Failure> {
        let report = report(&self.volume)?;
        let text = if self.json {
            report.to_json()
        } else {
            Ok(report.to_text())
        };
        let text = text.map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
        print_lines([text])
    }
}

/// What there is to say of a volume: its daemon's word if it is mounted.
///
/// # Errors
///
/// If there is none, or its daemon cannot be asked.
pub fn report(volume: &Path) -> Result<Report, Failure> {
    // Not asked of a mount, which may not answer.
    let is_dir = || std::fs::symlink_metadata(volume).is_ok_and(|metadata| metadata.is_dir());
    match mounts::find(volume) {
        Some(entry) => ask(&entry),
        None if is_dir() => Err(mounts::none_on(volume)),
        None => look(volume),
    }
}

fn look(volume: &Path) -> Result<Report, Failure> {
    let failed = |error| Failure::volume(volume, &error);
    let device = open_device(volume, Access::Degraded)?;
    let identity = Identity::read(&*device).map_err(failed)?;
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let opened = Volume::open(device, &options, Env::system()).map_err(failed)?;
    Ok(Report::new(&opened, &identity, volume, None))
}

/// Asks the daemon that serves a mount.
fn ask(entry: &MountEntry) -> Result<Report, Failure> {
    let answer = control::ask(entry, &Request::Info)?;
    Report::from_json(&answer).ok_or_else(|| {
        let shown = shown_path(&entry.path);
        Failure::new(
            Kind::Io,
            format!("the daemon of {shown} answers what this program does not understand"),
        )
    })
}
