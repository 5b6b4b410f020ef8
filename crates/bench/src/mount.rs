//! How fast operations on small files are through a mount, beside a server that does no other work and beside file
//! systems of the kernel: by the clock and by CPU time of this machine.

mod clients;
mod count;
mod plan;
mod report;
mod sample;
mod tables;

use crate::Error;
use crate::stand::Subject;

pub use count::Compared;
pub use plan::Plan;
pub use report::{Cell, Report};

pub(crate) use clients::together;

use sample::{Sample, Size};

/// Files of the pass that counts requests, at most: what the kernel asks of a file does not depend on their number.
const COUNTED_FILES: u64 = 400;

/// Files of the pass before those that count, at most.
const WARM_UP_FILES: u64 = 1_000;

/// Counts requests, measures, and tells meanwhile what is done.
///
/// # Errors
/// Without root, tracefs, or the file systems' programs.
pub fn measure(plan: &Plan, tell: impl Fn(&str)) -> Result<Report, Error> {
    let rounds = plan.rounds.in_memory()?;
    let size = Size {
        files: plan.files,
        clients: plan.clients.iter().copied().max().unwrap_or(1),
    };
    let volume = size.volume();
    let mut requests = Vec::new();
    if [Subject::LoamFs, Subject::Ceiling]
        .iter()
        .all(|subject| plan.rounds.subjects.contains(subject))
    {
        tell("counting requests");
        let open = |subject| rounds.stand(subject, volume);
        requests = count::compare(open, plan.files.min(COUNTED_FILES))?;
    }
    let mut samples = Vec::new();
    rounds.run(volume, tell, |round, stand| {
        // Does not count: memory is touched for the first time, by the kernel and by the daemon.
        Sample::take_all(stand, "warm-up", (round, 1), plan.files.min(WARM_UP_FILES))?;
        for clients in &plan.clients {
            let run = (round, *clients);
            samples.extend(Sample::take_all(stand, "client", run, plan.files)?);
        }
        Ok(())
    })?;
    Ok(Report::new(requests, &samples, plan))
}
