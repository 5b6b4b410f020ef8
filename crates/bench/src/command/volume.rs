//! How commands are told with which LoamFS to measure, and how to tell what was found.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{loamfs, print};
use crate::Error;
use crate::lab::Tools;

/// A measurement of LoamFS on volumes of its own.
#[derive(Debug, Args)]
pub struct VolumeArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The loamfs program. Default: that of this program's version.
    #[arg(long, value_name = "FILE")]
    loamfs: Option<PathBuf>,
    /// Mount options for LoamFS.
    #[arg(short, long)]
    options: Option<String>,
}

impl VolumeArgs {
    /// What to work with in a directory.
    ///
    /// # Errors
    /// If the program or the directory is not found.
    pub fn tools(&self, work: &Path) -> Result<Tools, Error> {
        Ok(Tools {
            work: std::path::absolute(work).map_err(Error::at("finding", work))?,
            loamfs: self.loamfs.clone().map_or_else(loamfs, Ok)?,
            options: self.options.clone(),
            traces: None,
            device: None,
        })
    }

    /// Prints what was found, as JSON or as text.
    ///
    /// # Errors
    /// As the system says.
    pub fn print(
        &self,
        found: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        match self.json {
            true => print(&json(found)),
            false => print(&text()),
        }
    }
}

/// A value as JSON for people, with the end of its last line.
pub fn json(found: &impl Serialize) -> String {
    serde_json::to_string_pretty(found).unwrap_or_default() + "\n"
}
