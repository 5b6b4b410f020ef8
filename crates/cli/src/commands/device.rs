//! `loamfs device`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use loamfs_console::complete::ArgValueCompleter;

use super::info;
use crate::candidates::mounted;
use crate::failure::Failure;
use crate::output::print_lines;

/// What to do with devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Show what each holds, and what was asked of it.
    List,
}

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs device list /mnt
      Which devices a mounted volume has.
  loamfs device list --device fast.img disk.img
      Of one that is not mounted, on image files.";

/// Show the devices of a volume.
///
/// Those that are there when the volume is made are all that it has.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DeviceArgs {
    /// What to do.
    action: Action,
    /// A device or image file of the volume, or the directory on which it is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    volume: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl DeviceArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, or its daemon cannot be asked.
    pub fn run(self) -> Result<u8, Failure> {
        let Action::List = self.action;
        let report = info::report(&self.volume)?;
        print_lines(match self.json {
            true => vec![format!("{:#}", report.devices())],
            false => report.device_lines(),
        })
    }
}
