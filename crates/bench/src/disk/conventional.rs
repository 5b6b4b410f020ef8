//! A disk whose sectors are where they always were.

use super::mechanics::Purpose;
use super::{Arm, Span, Surface};

/// Sectors in their places.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conventional;

impl Surface for Conventional {
    fn target(&self, span: Span) -> u64 {
        span.start
    }

    fn write(&mut self, arm: &mut Arm, span: Span) {
        arm.pass(span, Purpose::Write);
    }

    fn read(&mut self, arm: &mut Arm, span: Span) {
        arm.pass(span, Purpose::Read);
    }

    fn owed(&self, _: &Arm) -> f64 {
        0.0
    }
}
