//! `loamfs bench report`.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::Error;
use crate::report::page;
use crate::results::Results;

/// Write a page that shows results beside the papers' figures: one file that needs nothing else.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The file of results.
    results: PathBuf,
    /// The page.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
}

impl ReportArgs {
    pub fn run(self) -> Result<(), Error> {
        let results = Results::read(&self.results)?;
        fs::write(&self.html, page(&results)).map_err(Error::at("writing", &self.html))
    }
}
