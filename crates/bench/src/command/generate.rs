//! `loamfs-bench generate-man` and `loamfs-bench completions`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use loamfs_console::generate::{Shell, completions, pages};

use super::{Cli, NAME, print};
use crate::Error;

/// Write the manual pages into a directory.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to; it is made if it is not there.
    directory: PathBuf,
}

impl ManArgs {
    pub fn run(self) -> Result<(), Error> {
        let made = fs::create_dir_all(&self.directory);
        made.and_then(|()| pages(&self.directory, Cli::command(), &["loamfs", "bench"]))
            .map_err(Error::at("writing pages into", &self.directory))
    }
}

/// Print completions for a shell.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// Which shell.
    shell: Shell,
}

impl CompletionArgs {
    pub fn run(self) -> Result<(), Error> {
        let script = completions(self.shell, &Cli::command(), NAME);
        print(&format!("{script}\n"))
    }
}
