//! `loamfs bench claims`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::volume::VolumeArgs;
use super::{need_root, tell};
use crate::claims::{Claim, Scale};
use crate::lab::Tools;
use crate::{Error, cleanup, table};

/// Compare what the project promises with what is measured; exit code 1 if anything does not hold (root).
#[derive(Debug, Args)]
pub struct ClaimsArgs {
    /// Only these, instead of all that promise something.
    #[arg(long, value_name = "NAME")]
    only: Vec<Claim>,
    /// This many files instead of each claim's own number; the bounds stay.
    #[arg(long)]
    files: Option<u64>,
    /// Directory for images and mount points, on a file system with direct I/O and some 10 GiB of room.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Keep the traces in this directory.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    #[command(flatten)]
    volume: VolumeArgs,
}

impl ClaimsArgs {
    /// Whether all that were asked for hold.
    pub fn run(self) -> Result<bool, Error> {
        need_root()?;
        cleanup::on_signals()?;
        let tools = Tools {
            traces: self.traces,
            ..self.volume.tools(&self.work)?
        };
        let scale = Scale { files: self.files };
        let promises = Claim::value_variants()
            .iter()
            .filter(|claim| claim.is_promise());
        let chosen: Vec<Claim> = if self.only.is_empty() {
            promises.copied().collect()
        } else {
            self.only
        };
        let mut rows = Vec::new();
        for claim in chosen {
            // Minutes pass; whoever waits wants to know for what.
            tell(&format!("{} ...", table::name(&claim)));
            rows.extend(claim.run(&tools, scale)?);
        }
        self.volume.print(&rows, || table::text(&rows))?;
        Ok(rows.iter().all(|row| row.holds != Some(false)))
    }
}
