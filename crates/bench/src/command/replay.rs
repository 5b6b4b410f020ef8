//! `loamfs bench replay`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use loamfs_console::size::human;

use super::print;
use super::volume::json;
use crate::Error;
use crate::disk::{Preset, Priced, Tally, replay};
use crate::table::columns;
use crate::trace::{SECTOR, Trace};

/// Price a trace on a disk of the model: the time that the disk is busy with it.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The trace, as `run --traces` writes it, packed or not.
    file: PathBuf,
    /// The disk.
    #[arg(long, value_name = "NAME", default_value = "reference")]
    preset: Preset,
    /// Bytes of the device that was traced; it fills the disk's whole stroke. Default: what the trace says; if it does
    /// not, the smallest power of two that holds all requests, 2 GiB at least.
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ReplayArgs {
    pub fn run(self) -> Result<(), Error> {
        let trace = Trace::read(&self.file)?;
        let known = self.size.or(trace.size);
        let bytes = known.unwrap_or_else(|| trace.least_size());
        if trace.end() > bytes / SECTOR {
            return Err(Error::Lacking(format!(
                "a device of {bytes} bytes is too small for these requests; give a larger --size"
            )));
        }
        let priced = replay(&trace, self.preset, bytes);
        print(&if self.json {
            json(&priced)
        } else {
            text(&priced)
        })
    }
}

fn text(priced: &Priced) -> String {
    let head = [
        "phase", "seconds", "reads", "of", "writes", "of", "flushes", "moves", "moving",
        "cleaning", "owed",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(priced.phases.iter().chain([&priced.total]).map(row));
    let mut out = format!("{} of {}\n", priced.preset, human(priced.size));
    // Writing to a string does not fail.
    let _ = write!(out, "{}", columns(&rows, 1));
    out
}

fn row(tally: &Tally) -> Vec<String> {
    let name = if tally.name.is_empty() {
        "(none)"
    } else {
        &tally.name
    };
    vec![
        name.to_owned(),
        format!("{:.3}", tally.seconds),
        tally.read.requests.to_string(),
        human(tally.read.bytes),
        tally.written.requests.to_string(),
        human(tally.written.bytes),
        tally.flushes.to_string(),
        tally.positionings.to_string(),
        format!("{:.3}", tally.positioning_seconds),
        format!("{:.3}", tally.cleaning_seconds),
        format!("{:.3}", tally.owed_seconds),
    ]
}
