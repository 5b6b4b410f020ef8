//! What an emulated machine is to do, and what it answers.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::lab::Kind;
use crate::suite::{Case, Outcome, Scale};
use crate::trace::text::ParseError;
use crate::trace::{Trace, Uses};

/// A run of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The workload.
    pub case: Case,
    /// The file system.
    pub kind: Kind,
    /// How large.
    pub scale: Scale,
    /// What follows from chance follows from this.
    pub seed: u64,
}

/// An outcome, as it is passed on.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    trace: String,
    size: Option<u64>,
    seconds: Vec<f64>,
    uses: Vec<Uses>,
    disturbed: bool,
}

/// Writes what came of a job over the beginning of `path`.
pub fn write_answer(outcome: &Result<Outcome, Error>, path: &Path) -> Result<(), Error> {
    let answer = match outcome {
        Ok(outcome) => Ok(Answer {
            trace: outcome.trace.to_string(),
            size: outcome.trace.size,
            seconds: outcome.seconds.clone(),
            uses: outcome.uses.clone(),
            disturbed: outcome.disturbed,
        }),
        Err(error) => Err(error.to_string()),
    };
    let text = serde_json::to_string(&answer).unwrap_or_default();
    let write = || {
        let mut file = File::options().write(true).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(Error::at("writing", path))
}

/// What came of a job, from the beginning of `path`; `None` if there is nothing.
pub fn read_answer(path: &Path) -> Option<Result<Outcome, Error>> {
    let file = BufReader::new(File::open(path).ok()?);
    let mut values = serde_json::Deserializer::from_reader(file).into_iter();
    let answer: Result<Answer, String> = values.next()?.ok()?;
    Some(answer.map_err(Error::Emulated).and_then(|answer| {
        let trace = answer.trace.parse();
        let trace = trace.map_err(|error: ParseError| Error::Trace(error.to_string()))?;
        Ok(Outcome {
            parts: Vec::new(),
            trace: Trace {
                size: answer.size,
                ..trace
            },
            seconds: answer.seconds,
            // Its clock counts instructions.
            spent: Vec::new(),
            uses: answer.uses,
            disturbed: answer.disturbed,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of 1 MiB on which an answer was written.
    fn disk(outcome: Option<Result<Outcome, Error>>) -> tempfile::NamedTempFile {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(1 << 20).unwrap();
        if let Some(outcome) = outcome {
            write_answer(&outcome, disk.path()).unwrap();
        }
        disk
    }

    #[test]
    fn an_outcome_arrives_as_it_was_sent() {
        let text = "P 1 make -1\n2 Ws 0 8\n3 F 0 0\nP 4 make 7\n";
        let trace = Trace {
            size: Some(1 << 20),
            ..text.parse().unwrap()
        };
        let uses = vec![Uses::marked(&trace.requests, &[])];
        let sent = Outcome {
            parts: Vec::new(),
            trace: trace.clone(),
            seconds: vec![0.25],
            spent: Vec::new(),
            uses: uses.clone(),
            disturbed: true,
        };
        let disk = disk(Some(Ok(sent)));
        let found = read_answer(disk.path()).unwrap().unwrap();
        assert_eq!((found.trace, found.uses), (trace, uses));
        assert_eq!((found.seconds, found.disturbed), (vec![0.25], true));
    }

    #[test]
    fn an_error_arrives_in_its_words_and_silence_is_none() {
        let disk_with_error = disk(Some(Err(Error::Lacking("no room".into()))));
        let error = read_answer(disk_with_error.path()).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "in the emulated machine: no room");
        assert!(read_answer(disk(None).path()).is_none());
    }
}
