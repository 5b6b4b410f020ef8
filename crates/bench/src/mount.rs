//! How fast operations on small files are through a mount, beside a server that does no other work and beside file
//! systems of the kernel: by the clock and by CPU time of this machine.
//!
//! Every file system runs once a round, each round begins with another one, and figures of one round are compared with each
//! other alone: what disturbs the machine for minutes disturbs all of them. Images lie in memory, so that no disk counts.

mod clients;
mod count;
mod report;
mod sample;
mod stand;
mod tables;

use std::path::PathBuf;

use crate::Error;
use crate::lab::{MemoryDirectory, Tools};

pub use count::Compared;
pub use report::{About, Cell, Report};
pub use stand::{Stand, Subject};

pub(crate) use clients::together;
pub(crate) use stand::is_program;

use sample::{Sample, Size};

/// Files of the pass that counts requests, at most: what the kernel asks of a file does not depend on their number.
const COUNTED_FILES: u64 = 400;

/// Files of the pass before those that count, at most.
const WARM_UP_FILES: u64 = 1_000;

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files of each client.
    pub files: u64,
    /// Rounds.
    pub rounds: usize,
    /// Numbers of clients that work side by side.
    pub clients: Vec<usize>,
    /// The file systems.
    pub subjects: Vec<Subject>,
    /// Those that were to be measured too, but that this machine does not have.
    pub left_out: Vec<Subject>,
    /// What LoamFS is measured with, and where. The ceiling server follows its options as far as requests depend on them.
    pub tools: Tools,
    /// This program, which serves the ceiling.
    pub bench: PathBuf,
}

/// Counts requests, measures, and tells meanwhile what is done.
///
/// # Errors
/// Without root, tracefs, or the file systems' programs.
pub fn measure(plan: &Plan, tell: impl Fn(&str)) -> Result<Report, Error> {
    let memory = MemoryDirectory::new(&plan.tools.work)?;
    let tools = Tools {
        work: memory.path().to_owned(),
        ..plan.tools.clone()
    };
    let size = Size {
        files: plan.files,
        clients: plan.clients.iter().copied().max().unwrap_or(1),
    };
    let open = |subject| Stand::new(&tools, &plan.bench, subject, size.volume());
    let mut requests = Vec::new();
    if [Subject::LoamFs, Subject::Ceiling]
        .iter()
        .all(|subject| plan.subjects.contains(subject))
    {
        tell("counting requests");
        requests = count::compare(open, plan.files.min(COUNTED_FILES))?;
    }
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for subject in in_turn(&plan.subjects, round) {
            tell(&format!(
                "round {} of {}: {}",
                round + 1,
                plan.rounds,
                subject.name()
            ));
            let stand = open(subject)?;
            // Does not count: memory is touched for the first time, by the kernel and by the daemon.
            Sample::take_all(&stand, "warm-up", (round, 1), plan.files.min(WARM_UP_FILES))?;
            for clients in &plan.clients {
                samples.extend(Sample::take_all(
                    &stand,
                    "client",
                    (round, *clients),
                    plan.files,
                )?);
            }
            stand.close()?;
        }
    }
    Ok(Report::new(About::of(plan), requests, &samples, plan))
}

/// The file systems of a round, which begins with another one each time, and goes the other way round every second time: so
/// none runs always behind the same one.
pub(crate) fn in_turn(subjects: &[Subject], round: usize) -> Vec<Subject> {
    let mut turned = subjects.to_vec();
    turned.rotate_left(round % subjects.len().max(1));
    if round % 2 == 1 {
        turned[1..].reverse();
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one() {
        let all = [Subject::LoamFs, Subject::Ceiling, Subject::Ext4];
        let first: Vec<Subject> = (0..4).map(|round| in_turn(&all, round)[0]).collect();
        assert_eq!(first, [all[0], all[1], all[2], all[0]]);
        assert_eq!(in_turn(&all, 1), [all[1], all[0], all[2]]);
        assert_eq!(in_turn(&all, 2), [all[2], all[0], all[1]]);
        assert_eq!(in_turn(&all[..1], 1), [all[0]]);
    }
}
