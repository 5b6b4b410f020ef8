//! A trace on a disk, phase by phase.
//!
//! - Reads go first: before what waits in the queue, but for writes that they overlap.
//! - A write waits in the queue; one that is forced to the medium (`f`) is done at once, after those that it overlaps.
//!   Zeroes are written like anything else.
//! - A flush empties the queue. A discard takes no time, and changes nothing but what a solid-state disk keeps.
//! - The end of a phase empties the queue too: what a phase wrote is its own.
//! - Phases of the same name are added up.
//! - A phase whose name begins with `setup` moves the state of the disk and is not counted. Requests outside of any
//!   phase are counted, as a phase without a name.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::mechanics::Busy;
use super::preset::Disk;
use super::{Preset, Span};
use crate::trace::{Op, Request, SECTOR, Sum, Trace, is_setup};

/// What a phase came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Its name; empty for requests outside of any phase.
    pub name: String,
    /// Operations that it says it did.
    pub operations: u64,
    /// Seconds that the device was busy.
    pub seconds: f64,
    /// The part of it spent on reads.
    pub reading_seconds: f64,
    /// The part of it spent on writes.
    pub writing_seconds: f64,
    /// The part of it spent on cleaning that could not wait.
    pub cleaning_seconds: f64,
    /// The part of reading and writing in which no byte passed.
    pub positioning_seconds: f64,
    /// How often the arm had to move or to wait.
    pub positionings: u64,
    /// Seconds of cleaning still owed at the end of the phase.
    pub owed_seconds: f64,
    /// Bytes of pages that a solid-state disk programmed.
    #[serde(default)]
    pub programmed_bytes: u64,
    /// Blocks that it erased.
    #[serde(default)]
    pub erased_blocks: u64,
    /// Reads.
    pub read: Sum,
    /// Writes.
    pub written: Sum,
    /// Discards.
    pub discarded: Sum,
    /// Flushes.
    pub flushes: u64,
}

/// What a trace came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Priced {
    /// The disk's name.
    pub preset: String,
    /// Bytes of the device.
    pub size: u64,
    /// Counted phases in their order.
    pub phases: Vec<Tally>,
    /// All of them together; what is owed is owed at the end.
    pub total: Tally,
}

/// Prices a trace on a device of `size` bytes.
pub fn replay(trace: &Trace, preset: Preset, size: u64) -> Priced {
    watch(trace, preset, size, |_, _| {})
}

/// As [`replay`]; each counted request is shown, with the counted seconds up to when the disk has taken it.
pub fn watch(
    trace: &Trace,
    preset: Preset,
    size: u64,
    mut show: impl FnMut(&Request, f64),
) -> Priced {
    let mut meter = Meter::new(preset, size);
    for (phase, requests) in trace.parts() {
        if let Some(phase) = phase {
            meter.begin(&phase.name);
        }
        for request in requests {
            if let Some(seconds) = meter.take(request) {
                show(request, seconds);
            }
        }
        meter.end(phase.map_or(0, |phase| phase.operations));
    }
    meter.priced()
}

/// A disk that is charged request by request.
pub struct Meter {
    preset: Preset,
    size: u64,
    disk: Disk,
    /// Counted phases that are over, and their seconds.
    phases: Vec<Tally>,
    passed: f64,
    /// The phase that goes on, or what is outside of any, and what the arm had spent before it.
    tally: Tally,
    before: Busy,
}

impl Meter {
    /// A new disk under a device of `size` bytes.
    pub fn new(preset: Preset, size: u64) -> Meter {
        Meter {
            preset,
            size,
            disk: preset.disk(size / SECTOR),
            phases: Vec::new(),
            passed: 0.0,
            tally: Tally::default(),
            before: Busy::default(),
        }
    }

    /// Begins a phase.
    pub fn begin(&mut self, name: &str) {
        self.end(0);
        name.clone_into(&mut self.tally.name);
    }

    /// Does a request, or lets it wait. If it counts, returns the counted seconds so far.
    pub fn take(&mut self, request: &Request) -> Option<f64> {
        self.tally.count(request);
        self.disk.take(request);
        let spent = self.disk.surface.busy().since(&self.before).seconds();
        (!is_setup(&self.tally.name)).then_some(self.passed + spent)
    }

    /// Ends the phase that goes on, or what is outside of any.
    pub fn end(&mut self, operations: u64) {
        let mut tally = std::mem::take(&mut self.tally);
        // Outside of phases there need not be anything.
        if tally == Tally::default() {
            return;
        }
        tally.operations = operations;
        self.disk.drain();
        let busy = self.disk.surface.busy();
        tally.price(&busy.since(&self.before));
        self.before = busy;
        tally.owed_seconds = self.owed();
        if !is_setup(&tally.name) {
            self.passed += tally.seconds;
            match self
                .phases
                .iter_mut()
                .find(|other| other.name == tally.name)
            {
                Some(other) => *other += &tally,
                None => self.phases.push(tally),
            }
        }
    }

    /// Seconds that the disk has been busy so far, whether they count or not. What waits in its queue is still to come.
    pub fn seconds(&self) -> f64 {
        self.disk.surface.busy().seconds()
    }

    /// What it came to so far; a phase that goes on ends.
    pub fn priced(&mut self) -> Priced {
        self.end(0);
        let mut total = Tally {
            name: "total".into(),
            ..Tally::default()
        };
        for phase in &self.phases {
            total += phase;
        }
        total.owed_seconds = self.owed();
        Priced {
            preset: self.preset.to_string(),
            size: self.size,
            phases: self.phases.clone(),
            total,
        }
    }

    fn owed(&self) -> f64 {
        self.disk.surface.owed()
    }
}

impl Disk {
    /// Does a request, or lets it wait.
    fn take(&mut self, request: &Request) {
        let span = Span::new(request.sector, request.sectors);
        let surface = &mut *self.surface;
        match request.op {
            Op::Read => {
                self.queue.drain(Some(span), surface);
                surface.read(span);
            }
            Op::Write if request.is_forced() => {
                self.queue.drain(Some(span), surface);
                surface.write(span);
            }
            Op::Write => self.queue.push(span, surface),
            Op::Flush => {
                self.queue.drain(None, surface);
                surface.flush();
            }
            Op::Discard => surface.discard(span),
        }
    }

    fn drain(&mut self) {
        self.queue.drain(None, &mut *self.surface);
    }
}

impl Tally {
    fn count(&mut self, request: &Request) {
        match request.op {
            Op::Read => self.read += request,
            Op::Write => self.written += request,
            Op::Discard => self.discarded += request,
            Op::Flush => self.flushes += 1,
        }
    }

    fn price(&mut self, busy: &Busy) {
        self.seconds = busy.seconds();
        self.reading_seconds = busy.reading;
        self.writing_seconds = busy.writing;
        self.cleaning_seconds = busy.cleaning;
        self.positioning_seconds = busy.positioning;
        self.positionings = busy.positionings;
        self.programmed_bytes = busy.programmed;
        self.erased_blocks = busy.erased;
    }
}

/// Adds a later one's figures; what is owed is owed at its end.
impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        self.owed_seconds = other.owed_seconds;
        self.operations += other.operations;
        self.seconds += other.seconds;
        self.reading_seconds += other.reading_seconds;
        self.writing_seconds += other.writing_seconds;
        self.cleaning_seconds += other.cleaning_seconds;
        self.positioning_seconds += other.positioning_seconds;
        self.positionings += other.positionings;
        self.programmed_bytes += other.programmed_bytes;
        self.erased_blocks += other.erased_blocks;
        self.read += other.read;
        self.written += other.written;
        self.discarded += other.discarded;
        self.flushes += other.flushes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::preset::HARD_DISK;
    use super::*;

    const SIZE: u64 = 1 << 30;
    const SECTORS: u64 = SIZE / SECTOR;
    const HALF_TURN: f64 = 60.0 / 7200.0 / 2.0;

    fn priced(preset: Preset, lines: &[&str]) -> Priced {
        let trace: Trace = lines.join("\n").parse().unwrap();
        replay(&trace, preset, SIZE)
    }

    fn seconds(lines: &[&str]) -> f64 {
        priced(Preset::Reference, lines).total.seconds
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 2e-6, "{a} {b}");
    }

    /// Seconds from the end of 8 sectors at `from` through 8 sectors at `to`.
    fn far(from: u64, to: u64) -> f64 {
        let part = to.abs_diff(from + 8) as f64 / SECTORS as f64;
        HARD_DISK.seek(part) + HALF_TURN + block(to)
    }

    fn block(at: u64) -> f64 {
        4096.0 / HARD_DISK.rate(at as f64 / SECTORS as f64)
    }

    #[test]
    fn random_reads_cost_their_seeks_and_half_a_turn_each() {
        let third = SECTORS / 3;
        let lines = [
            "0 R 0 8".to_owned(),
            format!("1 R {third} 8"),
            format!("2 R {} 8", 2 * third),
            format!("3 R {third} 8"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        close(
            seconds(&lines),
            block(0) + far(0, third) + far(third, 2 * third) + far(2 * third, third),
        );
    }

    #[test]
    fn writes_are_sorted_and_merged_but_not_across_a_flush() {
        let sorted = block(0) + far(0, 100_000) + far(100_000, 900_000);
        close(
            seconds(&["0 W 900000 8", "0 W 100000 8", "0 W 0 8", "0 F 0 0"]),
            sorted,
        );
        close(seconds(&["0 W 8 8", "0 W 0 8"]), 2.0 * block(0));
        close(
            seconds(&["0 W 0 8", "0 F 0 0", "0 W 8 8"]),
            2.0 * block(0) + HALF_TURN,
        );
    }

    #[test]
    fn a_read_goes_before_writes_but_for_those_that_it_overlaps() {
        let lines = ["0 W 900000 8", "0 R 0 8", "0 R 8 8"];
        close(seconds(&lines), 2.0 * block(0) + far(8, 900_000));
        let lines = ["0 W 0 8", "0 W 900000 8", "0 R 900004 4"];
        // There, back over half a block, and to the start.
        let back = HARD_DISK.seek(4.0 / SECTORS as f64) + HALF_TURN + block(900_000) / 2.0;
        let there = HARD_DISK.seek(900_000.0 / SECTORS as f64) + HALF_TURN + block(900_000);
        close(seconds(&lines), there + back + far(900_000, 0));
    }

    #[test]
    fn a_forced_write_does_not_wait() {
        let there = HARD_DISK.seek(900_000.0 / SECTORS as f64) + HALF_TURN + block(900_000);
        close(
            seconds(&["0 W 0 8", "0 Wf 900000 8"]),
            there + far(900_000, 0),
        );
        close(
            seconds(&["0 W 0 8", "0 W 900000 8"]),
            block(0) + far(0, 900_000),
        );
    }

    #[test]
    fn setup_moves_the_arm_and_is_not_counted() {
        let lines = [
            "P 0 setup -1",
            "1 W 100000 8",
            "P 2 setup 1",
            "P 3 read -1",
            "4 R 100008 8",
            "P 5 read 7",
            "6 F 0 0",
        ];
        let priced = priced(Preset::Reference, &lines);
        let names: Vec<&str> = priced.phases.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["read", ""]);
        close(priced.total.seconds, block(100_008));
        assert_eq!(priced.total.written, Sum::default());
        assert_eq!(
            (priced.total.read.requests, priced.total.read.bytes),
            (1, 4096)
        );
        assert_eq!((priced.total.operations, priced.total.flushes), (7, 1));
    }

    #[test]
    fn what_is_not_cleaned_is_owed() {
        let lines = ["0 W 0 8", "0 W 300000 8", "0 W 300100 8"];
        let priced = priced(Preset::ReferenceShingled, &lines);
        assert_eq!(priced.total.cleaning_seconds, 0.0);
        // Two bands of 30 MiB, three passes each, at nearly 200 MB/s.
        let least = 2.0 * 3.0 * f64::from(30 << 20) / 200e6;
        assert!(priced.total.owed_seconds > least && priced.total.owed_seconds < 1.1 * least);
        // The cache's end is where the arm is: no seek at all.
        assert_eq!(priced.total.positionings, 0);
    }
}
