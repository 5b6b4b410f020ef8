//! `loamfs trim`.

use std::path::PathBuf;

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::{human, parse};
use loamfs_fs::Trimmed;
use loamfs_fuse::MountEntry;
use serde_json::json;

use crate::candidates::mounted;
use crate::failure::Failure;
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::progress::StepProgress;
use crate::text::shown_path;
use crate::volume::{Access, Opened};

/// What is counted while it is done.
const NAME: &str = "looking at groups";

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs trim /mnt
      All that is free.
  loamfs trim --minimum 1M volume.img
      Runs of at least 1 MiB, of a volume that is not mounted.";

/// Tell the device which of its space is free.
///
/// Of a volume of several devices each that can is told, and those that cannot are named by number.
///
/// Disks that keep several versions of a block (flash, thin volumes, image files) can use what they
/// need not keep. Safe at any time: what a crash could bring back is not free yet.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TrimArgs {
    /// The device, image file, or the directory on which it is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    volume: PathBuf,
    /// First byte of the volume to look at.
    #[arg(long, short, default_value = "0", value_parser = parse)]
    offset: u64,
    /// Bytes to look at. Default: all.
    #[arg(long, short, value_parser = parse)]
    length: Option<u64>,
    /// Leave out free runs that are shorter.
    #[arg(long, short, default_value = "0", value_parser = parse)]
    minimum: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl TrimArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, or it cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        let range = [self.offset, self.length.unwrap_or(u64::MAX), self.minimum];
        let trimmed = match mounts::find(&self.volume) {
            Some(entry) => mounted_trimmed(&entry, range)?,
            None => self.unmounted(range)?,
        };
        let Trimmed { bytes, unable } = &trimmed;
        if self.json {
            let trimmed = json!({ "bytes": bytes, "unable": unable });
            return print_lines([format!("{trimmed:#}")]);
        }
        let shown = shown_path(&self.volume);
        let trimmed = format!("{shown}: {} trimmed", human(*bytes));
        let unable = unable
            .iter()
            .map(|number| format!("device {number} cannot discard"));
        print_lines(std::iter::once(trimmed).chain(unable))
    }

    fn unmounted(&self, [start, len, least]: [u64; 3]) -> Result<Trimmed, Failure> {
        let opened = Opened::open(&self.volume, Access::Write)?;
        let mut bar = StepProgress::new();
        let mut tell = |done, total| bar.step(1, NAME, done, total);
        let told = opened
            .volume()
            .upkeep()
            .trim_telling(start, len, least, &mut tell);
        bar.finish();
        let told = told.map_err(|error| Failure::volume(&self.volume, &error))?;
        opened.finish()?;
        Ok(told)
    }
}

/// Has the daemon of a mount do it.
fn mounted_trimmed(entry: &MountEntry, range: [u64; 3]) -> Result<Trimmed, Failure> {
    let answer = control::ask_showing(entry, &Request::Trim(range), NAME)?;
    let mut figures = control::all_figures(&answer)?.into_iter();
    Ok(Trimmed {
        bytes: figures.next().unwrap_or(0),
        unable: figures
            .filter_map(|number| number.try_into().ok())
            .collect(),
    })
}
