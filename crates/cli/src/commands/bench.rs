//! `loamfs bench`: a program of its own, since it takes much that no volume needs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use loamfs_console::sibling;

use crate::failure::{Failure, Kind};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs bench run --suite papers --scale small --out results.json
      Needs root and 5 GiB; takes three to ten minutes.
  loamfs bench report results.json --html report.html
      A page of what was measured.";

/// Measure file systems by what they ask of a disk, and price that on disks of a model.
///
/// This starts the program loamfs-bench, and takes its arguments; see loamfs-bench(1).
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_long_help = EXAMPLES)]
pub struct BenchArgs {
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

impl BenchArgs {
    /// Becomes that program.
    ///
    /// # Errors
    ///
    /// If it is not there, in this version.
    pub fn run(self) -> Result<u8, Failure> {
        let program = sibling::find("loamfs-bench", "libexec")
            .map_err(|missing| Failure::new(Kind::NoInput, missing.to_string()))?;
        // This comes back only if it fails.
        let error = Command::new(&program).args(self.arguments).exec();
        Err(Failure::io(&program, &error))
    }
}
