//! A disk whose sectors are where they always were.

use super::mechanics::{Busy, Purpose};
use super::{Arm, Span, Surface};

/// Sectors in their places.
#[derive(Clone, Debug)]
pub struct Conventional {
    arm: Arm,
}

impl Conventional {
    /// Below an arm that goes over all of them.
    pub const fn new(arm: Arm) -> Conventional {
        Conventional { arm }
    }
}

impl Surface for Conventional {
    fn distance(&self, span: Span) -> u64 {
        span.start.abs_diff(self.arm.at())
    }

    fn write(&mut self, span: Span) {
        self.arm.pass(span, Purpose::Write);
    }

    fn read(&mut self, span: Span) {
        self.arm.pass(span, Purpose::Read);
    }

    fn flush(&mut self) {
        self.arm.miss();
    }

    fn busy(&self) -> Busy {
        self.arm.busy()
    }

    fn owed(&self) -> f64 {
        0.0
    }
}
