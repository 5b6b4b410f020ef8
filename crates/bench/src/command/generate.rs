//! `loamfs-bench generate-man`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use loamfs_console::Front;
use loamfs_console::generate::{Section, pages};

use super::Cli;
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
        let more = |_: &[&str]| {
            let also = "loamfs(1), loamfs-bench(1)";
            vec![
                Section::exit_status(Front::General),
                Section::new("see also", [(also, "")]),
            ]
        };
        made.and_then(|()| pages(&self.directory, Cli::command(), &["loamfs", "bench"], &more))
            .map_err(Error::at("writing pages into", &self.directory))
    }
}
