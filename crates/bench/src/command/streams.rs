//! `loamfs bench streams`.

use std::path::PathBuf;

use clap::Args;

use super::rounds::{once, rounds};
use super::volume::VolumeArgs;
use super::{need_root, tell};
use crate::stand::Subject;
use crate::streams::{Plan, measure};
use crate::{Error, cleanup};

/// What runs when nobody chooses. The ceiling server has no device that could slow it down.
const IN_MEMORY: [Subject; 3] = [Subject::LoamFs, Subject::Ceiling, Subject::Ext4];
const THROTTLED: [Subject; 2] = [Subject::LoamFs, Subject::Ext4];

/// Tell how fast large files are written and read on a mount, on a server in memory that does no other work, and on ext4 (root).
///
/// Files are written 4 and 128 KiB at a time, until all of it is durable, and read from no cache, through the kernel's cache
/// and past it (O_DIRECT). Images are in memory; with `--throttle` the kernel's block cgroups slow the device down.
/// Figures are MB/s of all streams together, medians over the rounds; ratios are of one round each.
#[derive(Debug, Args)]
pub struct StreamsArgs {
    /// MiB of all streams together.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    mib: u64,
    /// Numbers of streams that run side by side, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4], value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: Vec<u32>,
    /// Rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// MB that the device reads and writes a second at most.
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    throttle: Option<u64>,
    /// Only these file systems. Default: loamfs, ext4 and, without --throttle, ceiling.
    #[arg(long = "fs", value_name = "NAME")]
    subjects: Vec<Subject>,
    /// Directory for mount points. Images are in memory: twice what is written.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    #[command(flatten)]
    volume: VolumeArgs,
}

impl StreamsArgs {
    /// Measures and tells.
    pub fn run(self) -> Result<(), Error> {
        need_root()?;
        cleanup::on_signals()?;
        let subjects = match (self.subjects.as_slice(), self.throttle) {
            ([], None) => &IN_MEMORY,
            ([], Some(_)) => &THROTTLED[..],
            (named, _) => named,
        };
        let plan = Plan {
            bytes: self.mib << 20,
            streams: once(self.streams.iter().map(|count| *count as usize)),
            throttle: self.throttle.map(|rate| rate * 1_000_000),
            rounds: rounds(&self.volume, &self.work, self.rounds, subjects)?,
        };
        let report = measure(&plan, tell)?;
        self.volume.print(&report, || report.text())
    }
}
