//! `loamfs settle`.

use std::path::PathBuf;

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::count;
use serde_json::json;

use crate::candidates::mounted;
use crate::failure::Failure;
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::text::shown_path;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs settle /mnt
      Then large files can be read in order at full speed.";

/// Bring overwritten parts of large files from the log to their places now, instead of when there are many.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SettleArgs {
    /// Where the volume is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    mountpoint: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl SettleArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If no LoamFS is mounted there, or its daemon could not do it.
    pub fn run(self) -> Result<u8, Failure> {
        let entry = mounts::mounted(&self.mountpoint)?;
        let answer = control::ask_showing(&entry, &Request::Settle, "settling")?;
        let [settled, left] = control::figures(&answer)?;
        if self.json {
            let figures = json!({ "settled": settled, "left": left });
            return print_lines([format!("{figures:#}")]);
        }
        let shown = shown_path(&self.mountpoint);
        let settled = count(settled, "part", "parts");
        print_lines([format!("{shown}: {settled} settled, {left} left")])
    }
}
