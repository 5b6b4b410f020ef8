//! One step on one file system, measured once.

use std::path::PathBuf;

use super::clients::together;
use crate::Error;
use crate::cpu::Cpu;
use crate::operation::Operation;
use crate::stand::{Stand, Subject};
use crate::suite::Drops;

/// How many files there are at once.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Of each client.
    pub files: u64,
    /// Clients.
    pub clients: usize,
}

impl Size {
    /// Bytes of a volume that has room for them: 16 KiB a file, and not less than 2 GiB.
    pub fn volume(self) -> u64 {
        let files = self.files.saturating_mul(self.clients as u64);
        files.saturating_mul(16 << 10).max(2 << 30)
    }
}

/// What a step took.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The round, from 0.
    pub round: usize,
    /// The file system.
    pub subject: Subject,
    /// Clients.
    pub clients: usize,
    /// The step.
    pub step: Operation,
    /// Operations of all clients.
    pub operations: u64,
    /// Seconds that passed.
    pub seconds: f64,
    /// CPU time of the clients.
    pub client: Cpu,
    /// CPU time of the daemon.
    pub daemon: Cpu,
    /// Whether somebody else dropped caches meanwhile.
    pub disturbed: bool,
}

impl Sample {
    /// Takes all steps in a round with so many clients, whose directories have names of their own.
    ///
    /// # Errors
    /// What the file system says.
    pub fn take_all(
        stand: &Stand,
        name: &str,
        (round, clients): (usize, usize),
        files: u64,
    ) -> Result<Vec<Sample>, Error> {
        let directories = stand.directories(name, clients)?;
        let take = |step| Sample::take(stand, round, &directories, step, files);
        Operation::timed().map(take).collect()
    }

    fn take(
        stand: &Stand,
        round: usize,
        directories: &[PathBuf],
        step: Operation,
        files: u64,
    ) -> Result<Sample, Error> {
        prepare(stand, directories, step, files)?;
        let drops = Drops::new()?;
        let before = accounts(stand)?;
        let taken = together(directories.len(), |client| {
            (0..step.passes()).try_for_each(|_| step.on_all(&directories[client], files))
        })?;
        let after = accounts(stand)?;
        let disturbed = drops.disturbed()?;
        if step.changes() {
            // Not in the time of the next step.
            stand.sync()?;
        }
        Ok(Sample {
            round,
            subject: stand.subject(),
            clients: directories.len(),
            step,
            operations: files * step.passes() * directories.len() as u64,
            seconds: taken.time.as_secs_f64(),
            client: Cpu {
                all: taken.cpu,
                ..after.0 - before.0
            },
            daemon: after.1 - before.1,
            disturbed,
        })
    }

    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

/// CPU time of this process, whose threads the clients are, and of the daemon.
fn accounts(stand: &Stand) -> Result<(Cpu, Cpu), Error> {
    let daemon = stand.daemon().map(Cpu::of).transpose()?;
    Ok((Cpu::of(std::process::id())?, daemon.unwrap_or_default()))
}

/// Makes caches as the step wants them.
pub fn prepare(
    stand: &Stand,
    directories: &[PathBuf],
    step: Operation,
    files: u64,
) -> Result<(), Error> {
    if step.is_cold() {
        stand.drop_caches()?;
        // The way to the files is no part of it.
        for directory in directories {
            let found = rustix::fs::stat(directory);
            found.map_err(|errno| Error::at("looking at", directory)(errno.into()))?;
        }
    }
    if step == Operation::Stat {
        // The kernel is to know them.
        together(directories.len(), |client| {
            step.on_all(&directories[client], files)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_take_a_larger_volume() {
        let size = |files, clients| Size { files, clients }.volume();
        assert_eq!(size(4_000, 4), 2 << 30);
        assert_eq!(size(1 << 20, 4), 64 << 30);
    }
}
