//! How fast large files are written and read through mounts, side by side. Each stream has a file of its own. Writing
//! lasts until all of it is durable; nothing is cached when reading begins.

mod stream;

use std::path::PathBuf;

use crate::Error;
use crate::beside::{About, Figure, Report};
use crate::lab::{MemoryDirectory, Throttle, Tools};
use crate::mount::{Stand, Subject, in_turn};

use stream::{Stream, Way};

/// Sizes of writes, in bytes.
const WRITES: [usize; 2] = [4 << 10, 128 << 10];

/// Bytes of a read.
const READ: usize = 128 << 10;

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of all streams together.
    pub bytes: u64,
    /// Numbers of streams that run side by side.
    pub streams: Vec<usize>,
    /// Rounds.
    pub rounds: usize,
    /// The file systems.
    pub subjects: Vec<Subject>,
    /// Those that this machine does not have.
    pub left_out: Vec<Subject>,
    /// Bytes a second that the device reads and writes at most; as fast as memory without it.
    pub throttle: Option<u64>,
    /// What LoamFS is measured with, and where.
    pub tools: Tools,
    /// This program, which serves the ceiling.
    pub bench: PathBuf,
}

/// Measures, and tells meanwhile what is done.
///
/// # Errors
/// Without root or the file systems' programs, or if the kernel cannot slow a device down.
pub fn measure(plan: &Plan, tell: impl Fn(&str)) -> Result<Report, Error> {
    let memory = MemoryDirectory::new(&plan.tools.work)?;
    let tools = Tools {
        work: memory.path().to_owned(),
        ..plan.tools.clone()
    };
    let mut figures = Vec::new();
    for round in 0..plan.rounds {
        for subject in in_turn(&plan.subjects, round) {
            let (at, rounds, name) = (round + 1, plan.rounds, subject.name());
            tell(&format!("round {at} of {rounds}: {name}"));
            let stand = Stand::new(&tools, &plan.bench, subject, volume(plan.bytes))?;
            let throttle = |rate| Throttle::enter(stand.device(), rate);
            let slow = plan.throttle.map(throttle).transpose()?;
            for stream in all(&plan.streams) {
                let rate = stream.run(&stand, plan.bytes)?;
                figures.push(Figure {
                    round,
                    task: stream.name(),
                    file_system: subject,
                    value: rate / 1e6,
                });
            }
            drop(slow);
            stand.close()?;
        }
    }
    let device = match plan.throttle {
        Some(rate) => format!("a device of {} MB/s", rate / 1_000_000),
        None => "a device in memory".into(),
    };
    let absent = plan.left_out.iter().map(|subject| subject.name().into());
    let about = About {
        work: format!("{} MiB on {device}", plan.bytes >> 20),
        unit: "MB/s".into(),
        rounds: plan.rounds,
        options: plan.tools.options.clone(),
        left_out: absent.collect(),
        ..About::here()
    };
    Ok(Report::new(about, &plan.subjects, &figures))
}

/// All ways to write and to read, each with these numbers of streams.
fn all(counts: &[usize]) -> Vec<Stream> {
    let mut all = Vec::new();
    for count in counts {
        for direct in [false, true] {
            let stream = |way| Stream {
                way,
                direct,
                count: *count,
            };
            all.extend(WRITES.map(|size| stream(Way::Write(size))));
            all.push(stream(Way::Read(READ)));
        }
    }
    all
}

/// Bytes of the device: what is rewritten lies there twice for a while.
const fn volume(bytes: u64) -> u64 {
    let needed = (4 * bytes).next_multiple_of(1 << 20);
    if needed < 2 << 30 { 2 << 30 } else { needed }
}
