//! `loamfs generate-man` and `loamfs completions`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use loamfs_console::generate::{Shell, completions, page, pages};

use super::Cli;
use crate::failure::Failure;
use crate::helpers::Helper;
use crate::output::print_lines;

/// Write the manual pages into a directory.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to; it is made if it is not there.
    directory: PathBuf,
}

/// Print completions for a shell.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// Which shell.
    shell: Shell,
    /// For which name of the program.
    #[arg(default_value = "loamfs", value_parser = ["loamfs", "mkfs.loamfs", "fsck.loamfs", "mount.loamfs"])]
    name: String,
}

impl ManArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If a page cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        let written = self.write();
        written.map_err(|error| Failure::io(&self.directory, &error))?;
        Ok(0)
    }

    fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        pages(&self.directory, Cli::command(), &["loamfs"])?;
        Helper::ALL
            .into_iter()
            .try_for_each(|helper| page(&self.directory, helper.definition(), helper.name(), "8"))
    }
}

impl CompletionArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        let helper = Helper::from_name(Some(&OsString::from(&self.name)));
        let command = helper.map_or_else(Cli::command, Helper::definition);
        print_lines([completions(self.shell, &command, &self.name)])
    }
}
