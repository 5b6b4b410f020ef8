//! `loamfs bench mount`.

use std::path::PathBuf;

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::rounds::{once, rounds};
use super::volume::VolumeArgs;
use super::{need_root, tell};
use crate::mount::{Plan, measure};
use crate::stand::Subject;
use crate::{Error, cleanup};

/// Compare a mount with the most that its way through the kernel allows, and with file systems of the kernel (root).
///
/// Clients make, look at, list, read, rewrite, rename and remove small files, each in a directory of its own. Every file
/// system does all of it once a round, on a loop device in memory, so that no disk counts. Rates are compared within a round;
/// what is told are medians. The default takes half an hour on two processors.
///
/// The ceiling is a server in memory behind the same dispatcher, which does no other work. The kernel must ask it for the same as
/// LoamFS: that is counted first, and the exit code is 1 where it does not.
///
/// Which processor the kernel puts a daemon's threads on is chance, and they stay there: a request to another processor than the
/// client's costs several times as much. With `--processors 1` there is no such chance.
///
/// CPU time is that of the clients and of the daemon, and in parentheses the part of both that was in the kernel. The kernel's
/// own threads are not in it.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// Files of each client.
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    files: u64,
    /// Rounds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Numbers of clients that work side by side, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4], value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: Vec<u32>,
    /// Bind clients and daemons to so many processors.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    processors: Option<u32>,
    /// Only these file systems. Default: all that are installed; bindfs lies over ext4.
    #[arg(long = "fs", value_name = "NAME")]
    subjects: Vec<Subject>,
    /// Directory for mount points. Images are in memory: a few hundred MiB.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    #[command(flatten)]
    volume: VolumeArgs,
}

impl MountArgs {
    /// Measures and tells; `false` if the kernel asks LoamFS and the ceiling server for different things.
    pub fn run(self) -> Result<bool, Error> {
        need_root()?;
        if let Some(count) = self.processors {
            // Before any thread or daemon is started: they inherit it.
            bind(count as usize)?;
        }
        cleanup::on_signals()?;
        let plan = Plan {
            files: self.files,
            clients: once(self.clients.iter().map(|count| *count as usize)),
            rounds: rounds(&self.volume, &self.work, self.rounds, &self.subjects)?,
        };
        let report = measure(&plan, tell)?;
        self.volume.print(&report, || report.text())?;
        if !report.is_sound() {
            tell(
                "the kernel asks LoamFS and the ceiling server for different things: their rates cannot be compared",
            );
        }
        Ok(report.is_sound())
    }
}

/// Binds this process, and what it starts, to the first of the processors that it may use.
fn bind(count: usize) -> Result<(), Error> {
    let failed = |errno: rustix::io::Errno| Error::Io {
        what: "choosing processors".into(),
        source: errno.into(),
    };
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let mut chosen = CpuSet::new();
    let processors = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
    processors.take(count).for_each(|number| chosen.set(number));
    sched_setaffinity(None, &chosen).map_err(failed)
}
