//! Requests to a block device, as they were issued to its driver after the kernel had merged them, in phases.

mod apart;
mod file;
mod issued;
pub mod text;
mod uses;

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

pub use uses::Uses;

/// Bytes of a sector, the unit of the kernel's counts whatever the device's own is.
pub const SECTOR: u64 = 512;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads sectors.
    Read,
    /// Writes sectors, or zeroes.
    Write,
    /// Empties the device's cache.
    Flush,
    /// Gives sectors up.
    Discard,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was issued, in microseconds of a clock that does not jump.
    pub micros: u64,
    /// What it does.
    pub op: Op,
    /// Marks: `s` sync, `a` read ahead, `m` metadata, `f` forced to the medium, `z` zeroes.
    pub marks: String,
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u64,
}

impl Request {
    /// Bytes that it moves or gives up.
    pub const fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR)
    }

    /// The sector behind its last one.
    pub const fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }

    /// Whether it is forced to the medium.
    pub fn is_forced(&self) -> bool {
        self.marks.contains('f')
    }
}

/// A part of a trace that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name, without white space.
    pub name: String,
    /// When it began and ended, in the microseconds of the requests.
    pub micros: (u64, u64),
    /// Operations that were done in it.
    pub operations: u64,
    /// The numbers of its first request and of the one behind its last.
    pub requests: (usize, usize),
}

impl Phase {
    /// Whether it only prepares what is measured.
    pub fn is_setup(&self) -> bool {
        is_setup(&self.name)
    }
}

/// Whether a phase of this name only prepares what is measured.
pub fn is_setup(name: &str) -> bool {
    name.starts_with("setup")
}

/// Requests in the order in which they were issued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Bytes of the device, where that is known.
    pub size: Option<u64>,
    /// The requests.
    pub requests: Vec<Request>,
    /// The phases, which follow each other; there may be requests outside of any.
    pub phases: Vec<Phase>,
}

/// What requests of one kind add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Their number.
    pub requests: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Sum {
    /// Bytes of a mean request, 0 of none.
    pub const fn mean(&self) -> u64 {
        match self.bytes.checked_div(self.requests) {
            Some(mean) => mean,
            None => 0,
        }
    }
}

impl AddAssign<&Request> for Sum {
    fn add_assign(&mut self, request: &Request) {
        self.requests += 1;
        self.bytes += request.bytes();
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

/// A disk with two costs only: a repositioning for each request that does not continue the one before, and the
/// bytes that pass. No cache, no distance; it tells layouts apart, not disks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimpleDisk {
    /// Seconds of a repositioning.
    pub reposition: f64,
    /// Bytes a second.
    pub rate: f64,
}

impl Default for SimpleDisk {
    /// 8 ms and 150 MB/s.
    fn default() -> Self {
        SimpleDisk {
            reposition: 8e-3,
            rate: 150e6,
        }
    }
}

impl Trace {
    /// All requests in their order, cut where phases begin and end.
    pub fn parts(&self) -> Vec<(Option<&Phase>, &[Request])> {
        let mut parts = Vec::new();
        let mut at = 0;
        for phase in &self.phases {
            let (start, end) = phase.requests;
            if at < start {
                parts.push((None, &self.requests[at..start]));
            }
            parts.push((Some(phase), &self.requests[start..end]));
            at = end;
        }
        if at < self.requests.len() {
            parts.push((None, &self.requests[at..]));
        }
        parts
    }

    /// The sector behind the last one that a request concerns.
    pub fn end(&self) -> u64 {
        self.requests.iter().map(Request::end).max().unwrap_or(0)
    }

    /// Bytes of the smallest device that can have got these requests: a power of two, 2 GiB at least.
    pub fn least_size(&self) -> u64 {
        let bytes = self.end().saturating_mul(SECTOR).max(2 << 30);
        bytes.checked_next_power_of_two().unwrap_or(bytes)
    }

    /// What the requests of one kind add up to.
    pub fn sum(&self, op: Op) -> Sum {
        let mut sum = Sum::default();
        for request in self.requests.iter().filter(|r| r.op == op) {
            sum += request;
        }
        sum
    }

    /// Seconds that a [`SimpleDisk`] takes for the reads and writes.
    pub fn seconds(&self, disk: SimpleDisk) -> f64 {
        let mut head = None;
        let mut seconds = 0.0;
        for request in &self.requests {
            if matches!(request.op, Op::Read | Op::Write) {
                if head != Some(request.sector) {
                    seconds += disk.reposition;
                }
                seconds += request.bytes() as f64 / disk.rate;
                head = Some(request.end());
            }
        }
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, sector: u64, sectors: u64) -> Request {
        Request {
            micros: 7,
            op,
            marks: String::new(),
            sector,
            sectors,
        }
    }

    #[test]
    fn kinds_are_added_up_apart() {
        let trace = Trace {
            requests: vec![
                request(Op::Write, 0, 8),
                request(Op::Read, 100, 2),
                request(Op::Write, 8, 24),
                request(Op::Flush, 0, 0),
            ],
            ..Trace::default()
        };
        let written = trace.sum(Op::Write);
        assert_eq!((written.requests, written.bytes), (2, 32 * 512));
        assert_eq!(written.mean(), 16 * 512);
        assert_eq!(trace.sum(Op::Flush).requests, 1);
        assert_eq!(trace.sum(Op::Discard).mean(), 0);
    }

    #[test]
    fn only_what_continues_is_free_of_a_repositioning() {
        let disk = SimpleDisk {
            reposition: 1.0,
            rate: 512.0,
        };
        let trace = Trace {
            requests: vec![
                request(Op::Write, 0, 8),
                request(Op::Flush, 0, 0),
                request(Op::Write, 8, 2),
                request(Op::Read, 9, 1),
                request(Op::Read, 10, 1),
                request(Op::Discard, 0, 500),
            ],
            ..Trace::default()
        };
        assert_eq!(trace.seconds(disk), 2.0 + 12.0);
    }
}
