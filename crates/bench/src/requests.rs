//! What a mount is asked for each operation on small files, by who does it: each request is a way to the daemon and back.

mod person;
mod warm;

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::Error;
use crate::capture::fuse::{Count, Requests};
use crate::lab::{Kind, Lab, Mounted, Tools};
use crate::operation::Operation;

use person::Person;
use warm::{Program, RUNS_BEFORE, make_tree};

/// Bytes of the volume.
const VOLUME: u64 = 1 << 30;

/// What one person's operation on each of some files took.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who did it.
    pub person: &'static str,
    /// What was done.
    pub operation: &'static str,
    /// Files that it was done to.
    pub files: u64,
    /// Requests by their kind.
    pub requests: Requests,
}

impl Row {
    /// The row as cells: requests a file, and of which kinds.
    pub fn cells(&self) -> Vec<String> {
        let files = self.files.max(1) as f64;
        let mut kinds: Vec<(&String, u64)> = self.requests.iter().map(|(k, n)| (k, *n)).collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let each = |(kind, count): &(&String, u64)| format!("{kind} {:.2}", *count as f64 / files);
        let kinds: Vec<String> = kinds.iter().map(each).collect();
        let all: u64 = self.requests.values().sum();
        vec![
            self.operation.to_owned(),
            self.person.to_owned(),
            format!("{:.2}", all as f64 / files),
            kinds.join(", "),
        ]
    }
}

/// Counts the requests of each operation on so many files, by each person.
///
/// # Errors
/// Without root, tracefs or room.
pub fn measure(tools: &Tools, files: u64) -> Result<Vec<Row>, Error> {
    let lab = Lab::new(tools, Kind::Loam, VOLUME)?;
    let mounted = lab.mount()?;
    let mut rows = Vec::new();
    for person in Person::ALL {
        let directory = mounted.path().join(person.name());
        fs::create_dir(&directory).map_err(Error::at("making", &directory))?;
        person.prepare(&directory)?;
        for operation in Operation::ALL {
            rows.push(one(&mounted, &directory, person, operation, files)?);
        }
        rows.extend(third_runs(&directory, person, files)?);
    }
    mounted.unmount()?;
    Ok(rows)
}

fn one(
    mounted: &Mounted,
    directory: &Path,
    person: Person,
    operation: Operation,
    files: u64,
) -> Result<Row, Error> {
    if operation.is_cold() {
        mounted.drop_caches()?;
        // The way to the files is no part of it.
        person.act(|| fs::metadata(directory).map(drop))?;
    }
    let count = Count::start(directory)?;
    person.act(|| operation.on_all(directory, files))?;
    Ok(Row {
        person: person.name(),
        operation: operation.name(),
        files,
        requests: count.stop()?,
    })
}

/// The requests of programs that one person runs for the third time, on files of theirs, or of root's.
fn third_runs(directory: &Path, person: Person, files: u64) -> Result<Vec<Row>, Error> {
    let tree = directory.join("tree");
    let maker = match person {
        Person::Owner => person,
        Person::Root | Person::Guest => Person::Root,
    };
    maker.act(|| make_tree(&tree, files).map_err(io::Error::other))?;
    let run = |program: Program| person.act(|| program.run(&tree).map_err(io::Error::other));
    let mut rows = Vec::new();
    for program in Program::ALL {
        (0..RUNS_BEFORE).try_for_each(|_| run(program))?;
        let count = Count::start(&tree)?;
        run(program)?;
        rows.push(Row {
            person: person.name(),
            operation: program.name(),
            files,
            requests: count.stop()?,
        });
    }
    Ok(rows)
}
