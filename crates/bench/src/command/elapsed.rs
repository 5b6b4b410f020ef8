//! `loamfs bench elapsed`.

use std::path::PathBuf;

use clap::Args;

use super::rounds::rounds;
use super::volume::VolumeArgs;
use super::{need_root, tell};
use crate::elapsed::{Plan, measure};
use crate::stand::Subject;
use crate::{Error, cleanup};

/// What runs when nobody chooses.
const USUAL: [Subject; 3] = [Subject::LoamFs, Subject::Ceiling, Subject::Ext4];

/// Tell how long programs take on a mount, on a server in memory that does no other work, and on ext4 (root).
///
/// `tar x`, `cp -r`, `rsync -a`, `git clone`, `cargo build`, the third `grep -r` and `rm -rf` work on small files, one after the
/// other, each until the program ends. Images are in memory, so that no disk counts. A program that is not installed is
/// left out, which is said. Figures are seconds, medians over the rounds; ratios are of one round each.
#[derive(Debug, Args)]
pub struct ElapsedArgs {
    /// Files of the tree.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    files: u64,
    /// Rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Only these file systems. Default: loamfs, ceiling and ext4.
    #[arg(long = "fs", value_name = "NAME")]
    subjects: Vec<Subject>,
    /// Directory for mount points. Images and sources are in memory: a few hundred MiB.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    #[command(flatten)]
    volume: VolumeArgs,
}

impl ElapsedArgs {
    /// Measures and tells.
    pub fn run(self) -> Result<(), Error> {
        need_root()?;
        cleanup::on_signals()?;
        let subjects = match self.subjects.as_slice() {
            [] => &USUAL,
            named => named,
        };
        let plan = Plan {
            files: self.files,
            rounds: rounds(&self.volume, &self.work, self.rounds, subjects)?,
        };
        let report = measure(&plan, tell)?;
        self.volume.print(&report, || report.text())
    }
}
