//! `loamfs bench fill`.

use std::path::PathBuf;

use clap::Args;

use super::print;
use crate::Error;
use crate::claims::fill;

/// Fill a file system with files of some size, and print their number: one of several such processes.
#[derive(Debug, Args)]
pub struct FillArgs {
    directory: PathBuf,
    bytes: usize,
}

impl FillArgs {
    pub fn run(self) -> Result<(), Error> {
        let count = fill(&self.directory, self.bytes)?;
        print(&format!("{count}\n"))
    }
}
