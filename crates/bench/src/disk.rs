//! Disks that replay a trace on a virtual clock. What counts is the time that the device is busy: requests come in the
//! order in which they were issued, each as soon as the one before allows, and nobody thinks in between.
//!
//! - [`mechanics`]: an arm, a spindle, zones;
//! - [`queue`]: writes that wait, merged and taken nearest first;
//! - [`conventional`], [`shingled`] and [`flash`]: what is done with a request that has its turn;
//! - [`mod@replay`]: a trace priced, phase by phase;
//! - [`device`]: a device of ours priced while it is used;
//! - [`preset`]: the disks that have names.
//!
//! A zoned disk would be another [`Surface`] and another [`Preset`].

pub mod conventional;
pub mod device;
pub mod flash;
pub mod mechanics;
pub mod preset;
pub mod queue;
pub mod replay;
pub mod shingled;

pub use device::{PricedDevice, VirtualDisk};
pub use mechanics::{Arm, Busy, Mechanics};
pub use preset::Preset;
pub use replay::{Priced, Tally, replay, watch};

/// Sectors that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
}

impl Span {
    /// `sectors` sectors from `start` on.
    pub const fn new(start: u64, sectors: u64) -> Span {
        Span {
            start,
            end: start.saturating_add(sectors),
        }
    }

    /// Their number.
    pub const fn sectors(&self) -> u64 {
        self.end - self.start
    }

    /// Whether they share a sector.
    pub const fn overlaps(&self, other: &Span) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// What a disk does with a request that has its turn.
pub trait Surface: Send {
    /// How far the next thing to do is from a write, in sectors: the nearest goes first.
    fn distance(&self, span: Span) -> u64;
    /// Writes.
    fn write(&mut self, span: Span);
    /// Reads.
    fn read(&mut self, span: Span);
    /// All that was written is on the medium for good.
    fn flush(&mut self);
    /// Nobody wants to know any more what stands there.
    fn discard(&mut self, _: Span) {}
    /// Time that it has spent.
    fn busy(&self) -> Busy;
    /// Seconds of cleaning that are still to be done some time.
    fn owed(&self) -> f64;
}
