//! The right to seal.

use super::{Volume, Watch};
use std::ops::Deref;
use std::sync::{MutexGuard, PoisonError};

/// The right to seal segments, to count them as durable, and to write superblocks. One has it at a time; what needs it is
/// a method of it. A flush of the device alone needs none.
pub(crate) struct Sealer<'a> {
    volume: &'a Volume,
    _alone: MutexGuard<'a, ()>,
    _watch: Watch<'a>,
}

impl Deref for Sealer<'_> {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        self.volume
    }
}

impl Volume {
    /// Waits for the right to seal.
    pub(crate) fn sealer(&self) -> Sealer<'_> {
        Sealer {
            volume: self,
            _alone: self.sealing.lock().unwrap_or_else(PoisonError::into_inner),
            _watch: self.watch(),
        }
    }
}
