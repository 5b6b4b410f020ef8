//! Whether the kernel asks LoamFS and the ceiling server for the same: without that they could not be compared.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::sample::prepare;
use crate::Error;
use crate::capture::fuse::{Count, Requests};
use crate::operation::Operation;
use crate::stand::{Stand, Subject};
use crate::suite::Drops;

/// How often a pass is repeated in which somebody else dropped caches.
const ATTEMPTS: u32 = 5;

/// What one client's step asked both for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The step.
    pub operation: Operation,
    /// Files.
    pub files: u64,
    /// Requests to LoamFS by their kind.
    pub loamfs: Requests,
    /// Requests to the ceiling server.
    pub ceiling: Requests,
    /// Whether they are the same, but for what chance does.
    pub equal: bool,
}

impl Compared {
    fn new(operation: Operation, files: u64, loamfs: Requests, ceiling: Requests) -> Compared {
        let kinds: BTreeSet<&String> = loamfs.keys().chain(ceiling.keys()).collect();
        let of = |requests: &Requests, kind: &str| requests.get(kind).copied().unwrap_or(0);
        let near =
            |kind: &&String| of(&loamfs, kind).abs_diff(of(&ceiling, kind)) <= allowed(files);
        Compared {
            operation,
            files,
            equal: kinds.iter().all(near),
            loamfs,
            ceiling,
        }
    }
}

/// By how many requests of a kind the two may differ.
///
/// One in a hundred files, and two: the kernel may forget an inode that it could have kept, and looks it up again then; and
/// it lists in pieces that need not end at the same name. A request more for each file is a hundred times that.
const fn allowed(files: u64) -> u64 {
    2 + files / 100
}

/// Counts on both, with one client.
///
/// # Errors
/// Without root or tracefs.
pub fn compare(
    open: impl Fn(Subject) -> Result<Stand, Error>,
    files: u64,
) -> Result<Vec<Compared>, Error> {
    let loamfs = undisturbed(|| open(Subject::LoamFs), files)?;
    let ceiling = undisturbed(|| open(Subject::Ceiling), files)?;
    let pairs = Operation::timed().zip(loamfs.into_iter().zip(ceiling));
    Ok(pairs
        .map(|(step, (loamfs, ceiling))| Compared::new(step, files, loamfs, ceiling))
        .collect())
}

/// The requests of each step, counted while nobody else dropped caches.
fn undisturbed(
    open: impl Fn() -> Result<Stand, Error>,
    files: u64,
) -> Result<Vec<Requests>, Error> {
    for _ in 0..ATTEMPTS {
        let stand = open()?;
        let counted = count(&stand, files)?;
        stand.close()?;
        if let Some(counted) = counted {
            return Ok(counted);
        }
    }
    Err(Error::Lacking(format!(
        "caches were dropped by somebody else during each of {ATTEMPTS} passes"
    )))
}

/// The requests of each step; `None` if somebody else dropped caches.
fn count(stand: &Stand, files: u64) -> Result<Option<Vec<Requests>>, Error> {
    let directories = stand.directories("counted", 1)?;
    let mut counted = Vec::new();
    for step in Operation::timed() {
        prepare(stand, &directories, step, files)?;
        let drops = Drops::new()?;
        let count = Count::start(&directories[0])?;
        let done = step.on_all(&directories[0], files);
        let requests = count.stop()?;
        done.map_err(Error::at("working in", &directories[0]))?;
        if drops.disturbed()? {
            return Ok(None);
        }
        if step.changes() {
            stand.sync()?;
        }
        counted.push(requests);
    }
    Ok(Some(counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(kinds: &[(&str, u64)]) -> Requests {
        let owned = kinds
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), *count));
        owned.collect()
    }

    #[test]
    fn a_request_more_for_each_file_is_a_difference() {
        let loamfs = requests(&[("LOOKUP", 400), ("READ", 400)]);
        let equal = |ceiling: &[(&str, u64)]| {
            Compared::new(Operation::ColdRead, 400, loamfs.clone(), requests(ceiling)).equal
        };
        assert!(equal(&[("LOOKUP", 400), ("READ", 400)]));
        assert!(equal(&[("LOOKUP", 406), ("READ", 400), ("GETATTR", 6)]));
        assert!(!equal(&[("LOOKUP", 407), ("READ", 400)]));
        assert!(!equal(&[("LOOKUP", 400)]));
        assert!(!equal(&[("LOOKUP", 400), ("READ", 400), ("GETATTR", 7)]));
    }
}
