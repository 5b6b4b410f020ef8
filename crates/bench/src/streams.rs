//! How fast large files are written and read through mounts, side by side. Each stream has a file of its own. Writing
//! lasts until all of it is durable; nothing is cached when reading begins.

mod stream;

use crate::Error;
use crate::beside::{About, Figure, Report};
use crate::lab::Throttle;
use crate::rounds::Rounds;

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
    /// Bytes a second that the device reads and writes at most; as fast as memory without it.
    pub throttle: Option<u64>,
    /// On what, and how often.
    pub rounds: Rounds,
}

/// Measures, and tells meanwhile what is done.
///
/// # Errors
/// Without root or the file systems' programs, or if the kernel cannot slow a device down.
pub fn measure(plan: &Plan, tell: impl Fn(&str)) -> Result<Report, Error> {
    let mut figures = Vec::new();
    let rounds = plan.rounds.in_memory()?;
    rounds.run(volume(plan.bytes), tell, |round, stand| {
        let throttle = |rate| Throttle::enter(stand.device(), rate);
        // Ends before the file system is unmounted.
        let _slow = plan.throttle.map(throttle).transpose()?;
        for stream in all(&plan.streams) {
            let rate = stream.run(stand, plan.bytes)?;
            figures.push(Figure {
                round,
                task: stream.name(),
                file_system: stand.subject(),
                value: rate / 1e6,
            });
        }
        Ok(())
    })?;
    let device = match plan.throttle {
        Some(rate) => format!("a device of {} MB/s", rate / 1_000_000),
        None => "a device in memory".into(),
    };
    let work = format!("{} MiB on {device}", plan.bytes >> 20);
    let about = About::of(&plan.rounds, work, "MB/s");
    Ok(Report::new(about, &plan.rounds.subjects, &figures))
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
