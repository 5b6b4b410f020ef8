//! The moving parts: how long an arm takes from one place to another, and how fast sectors pass below it.
//!
//! - A sector's place on the stroke is its number divided by the device's sectors: the device fills the whole stroke.
//! - Seeking over a part `d` of the stroke takes `shortest + k * sqrt(d)` up to a third of it, where it takes
//!   `average`. From there it grows linearly to `longest`. (These are the two regimes of Ruemmler and Wilkes, "An
//!   Introduction to Disk Drive Modeling", IEEE Computer, March 1994.) A third is the mean distance of two random places.
//! - Any repositioning then waits half a turn.
//! - A gap ahead of at most one track may instead pass below the arm at the media rate, if that is shorter.
//! - The rate falls linearly with the place; a request passes at the rate of its first sector, and a track is what
//!   passes there in a turn.
//! - A request that begins where the last one ended waits for nothing. The first write after a flush does wait: its
//!   sector has just gone by when it comes. So it pays a full repositioning, of which half a turn is the least.
//!
//! The arm starts at sector 0.

use super::Span;
use crate::trace::SECTOR;

/// Figures of a disk's mechanics. Times in seconds, rates in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mechanics {
    /// Time of a turn.
    pub turn: f64,
    /// Shortest seek.
    pub shortest: f64,
    /// Seek over a third of the stroke.
    pub average: f64,
    /// Seek over all of it.
    pub longest: f64,
    /// Rate at the outer edge, where sector 0 is.
    pub outer: f64,
    /// Rate at the inner edge.
    pub inner: f64,
}

/// Where the seek curve turns from a root to a line.
const THIRD: f64 = 1.0 / 3.0;

impl Mechanics {
    /// Time of a seek over `distance` of the stroke, 0 to 1; none for none.
    pub fn seek(&self, distance: f64) -> f64 {
        if distance <= 0.0 {
            0.0
        } else if distance <= THIRD {
            let k = (self.average - self.shortest) / THIRD.sqrt();
            self.shortest + k * distance.sqrt()
        } else {
            let slope = (self.longest - self.average) / (1.0 - THIRD);
            self.average + slope * (distance - THIRD)
        }
    }

    /// Bytes a second at a place on the stroke, 0 to 1.
    pub fn rate(&self, place: f64) -> f64 {
        self.outer - (self.outer - self.inner) * place.min(1.0)
    }
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A read request.
    Read,
    /// A write request.
    Write,
}

/// Busy time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// For reads.
    pub reading: f64,
    /// For writes.
    pub writing: f64,
    /// For a disk's own cleaning.
    pub cleaning: f64,
    /// The part of reading and writing in which no byte passed.
    pub positioning: f64,
    /// How often the arm had to wait or move.
    pub positionings: u64,
    /// Bytes of pages that a solid-state disk programmed.
    pub programmed: u64,
    /// Blocks that it erased.
    pub erased: u64,
}

impl Busy {
    /// All of it.
    pub fn seconds(&self) -> f64 {
        self.reading + self.writing + self.cleaning
    }

    /// What was added since `before`.
    pub fn since(&self, before: &Busy) -> Busy {
        Busy {
            reading: self.reading - before.reading,
            writing: self.writing - before.writing,
            cleaning: self.cleaning - before.cleaning,
            positioning: self.positioning - before.positioning,
            positionings: self.positionings - before.positionings,
            programmed: self.programmed - before.programmed,
            erased: self.erased - before.erased,
        }
    }
}

/// The arm, and the time that it has spent.
#[derive(Clone, Debug)]
pub struct Arm {
    mechanics: Mechanics,
    /// Sectors of the stroke.
    sectors: u64,
    at: u64,
    missed: bool,
    /// Time so far.
    busy: Busy,
}

impl Arm {
    /// Over sector 0 of `sectors`.
    pub fn new(mechanics: Mechanics, sectors: u64) -> Arm {
        Arm {
            mechanics,
            sectors: sectors.max(1),
            at: 0,
            missed: false,
            busy: Busy::default(),
        }
    }

    /// Time so far.
    pub const fn busy(&self) -> Busy {
        self.busy
    }

    /// The sector that passes next.
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// A flush: the next write will miss its sector.
    pub const fn miss(&mut self) {
        self.missed = true;
    }

    /// Goes to a span and lets it pass.
    pub fn pass(&mut self, span: Span, purpose: Purpose) {
        let missed = purpose == Purpose::Write && std::mem::take(&mut self.missed);
        let wait = self.reposition(span.start, missed);
        let time = wait + self.transfer(span.start, span.sectors());
        match purpose {
            Purpose::Read => self.busy.reading += time,
            Purpose::Write => self.busy.writing += time,
        }
        self.busy.positioning += wait;
        self.busy.positionings += u64::from(wait > 0.0);
        self.at = span.end;
    }

    /// Rewrites a span in `passes` passes, without positioning, and ends behind it.
    pub fn clean(&mut self, span: Span, passes: f64) {
        self.busy.cleaning += self.cleaning(span, passes);
        self.at = span.end;
    }

    /// Seconds that [`Arm::clean`] would take.
    pub fn cleaning(&self, span: Span, passes: f64) -> f64 {
        passes * self.transfer(span.start, span.sectors())
    }

    fn reposition(&self, to: u64, missed: bool) -> f64 {
        if to == self.at && !missed {
            return 0.0;
        }
        let distance = to.abs_diff(self.at);
        let part = distance as f64 / self.sectors as f64;
        let wait = self.mechanics.seek(part) + self.mechanics.turn / 2.0;
        let over = self.transfer(self.at, distance);
        if to > self.at && !missed && over <= self.mechanics.turn {
            wait.min(over)
        } else {
            wait
        }
    }

    fn transfer(&self, start: u64, sectors: u64) -> f64 {
        let place = start as f64 / self.sectors as f64;
        (sectors * SECTOR) as f64 / self.mechanics.rate(place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::preset::HARD_DISK;
    use super::*;

    /// 1 GiB.
    const SECTORS: u64 = 1 << 21;
    const HALF_TURN: f64 = 60.0 / 7200.0 / 2.0;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }

    fn arm() -> Arm {
        Arm::new(HARD_DISK, SECTORS)
    }

    #[test]
    fn the_seek_curve_goes_through_its_three_points() {
        close(HARD_DISK.seek(0.0), 0.0);
        close(HARD_DISK.seek(1e-30), 0.8e-3);
        close(HARD_DISK.seek(1.0 / 3.0), 8.5e-3);
        close(HARD_DISK.seek(1.0), 16e-3);
        // A quarter of the root's range is half of its rise; two thirds lie in the middle of the line.
        close(HARD_DISK.seek(1.0 / 12.0), 0.8e-3 + 7.7e-3 / 2.0);
        close(HARD_DISK.seek(2.0 / 3.0), 12.25e-3);
    }

    #[test]
    fn what_follows_passes_at_the_media_rate() {
        let mut arm = arm();
        for start in (0..SECTORS).step_by(2048) {
            arm.pass(Span::new(start, 2048), Purpose::Read);
        }
        // 2^30 bytes; the mean of 1 / rate from 200 to 150 MB/s is ln(200 / 150) / 50 s/MB.
        let seconds = (1_u64 << 30) as f64 / 1e6 * (4.0_f64 / 3.0).ln() / 50.0;
        assert!((arm.busy.seconds() / seconds - 1.0).abs() < 1e-3);
        assert_eq!(arm.busy.positionings, 0);
    }

    #[test]
    fn a_far_block_costs_its_seek_and_half_a_turn() {
        let mut arm = arm();
        arm.pass(Span::new(SECTORS / 3, 8), Purpose::Read);
        let rate = 200e6 - 50e6 / 3.0;
        let time = arm.busy.reading;
        assert!((time - (8.5e-3 + HALF_TURN + 4096.0 / rate)).abs() < 1e-6);
        assert_eq!(arm.at(), SECTORS / 3 + 8);
    }

    #[test]
    fn a_gap_ahead_passes_if_that_is_shorter() {
        // 100 KB take 0.5 ms to pass, less than any repositioning.
        let gap = 100_000 / SECTOR;
        let mut ahead = arm();
        ahead.pass(Span::new(gap, 1), Purpose::Read);
        close(ahead.busy.positioning, (gap * SECTOR) as f64 / 200e6);
        // 1.6 MB are within a track of 1.67 MB, but take 8 ms.
        let gap = 1_600_000 / SECTOR;
        let part = gap as f64 / SECTORS as f64;
        let mut far = arm();
        far.pass(Span::new(gap, 1), Purpose::Read);
        close(far.busy.positioning, HARD_DISK.seek(part) + HALF_TURN);
        // There is no passing backwards.
        let mut back = arm();
        back.pass(Span::new(0, 9), Purpose::Read);
        back.pass(Span::new(8, 1), Purpose::Read);
        let part = 1.0 / SECTORS as f64;
        close(back.busy.positioning, HARD_DISK.seek(part) + HALF_TURN);
    }

    #[test]
    fn the_first_write_after_a_flush_waits_half_a_turn() {
        let mut arm = arm();
        arm.pass(Span::new(0, 8), Purpose::Write);
        arm.miss();
        // A read in between is not concerned.
        arm.pass(Span::new(8, 8), Purpose::Read);
        close(arm.busy.positioning, 0.0);
        arm.pass(Span::new(16, 8), Purpose::Write);
        close(arm.busy.positioning, HALF_TURN);
        arm.pass(Span::new(24, 8), Purpose::Write);
        close(arm.busy.positioning, HALF_TURN);
    }
}
