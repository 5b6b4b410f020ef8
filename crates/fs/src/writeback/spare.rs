//! The buffer in which a round of homes is put together, for the next round.

use super::homed::BATCH_UNITS_MAX;
use crate::unit::UNIT;
use loamfs_device::Buffer;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a longer one go back to the system: files together have rounds that long, one that is written from front to
/// back does not.
const KEPT_MAX: usize = BATCH_UNITS_MAX * UNIT as usize;

/// A buffer that nobody uses, if there is one. Each page of a new one costs a fault, which takes longer than to fill it.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    buffer: Mutex<Option<Buffer>>,
}

impl Spare {
    fn buffer(&self) -> MutexGuard<'_, Option<Buffer>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of so many bytes at least, with whatever is in it.
    pub fn take(&self, bytes: usize) -> Buffer {
        let kept = self.buffer().take();
        match kept.filter(|buffer| buffer.len() >= bytes) {
            Some(buffer) => buffer,
            None => Buffer::zeroed(bytes),
        }
    }

    /// Keeps a buffer for the next who wants one.
    pub fn keep(&self, buffer: Buffer) {
        if buffer.len() <= KEPT_MAX {
            *self.buffer() = Some(buffer);
        }
    }

    /// Gives the memory back.
    pub fn free(&self) {
        *self.buffer() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_long_enough_is_used_again() {
        let spare = Spare::default();
        let mut buffer = spare.take(8192);
        buffer[0] = 7;
        spare.keep(buffer);
        assert_eq!(spare.take(4096)[0], 7);
        spare.keep(Buffer::zeroed(4096));
        assert_eq!(spare.take(8192).len(), 8192);
        spare.keep(Buffer::zeroed(KEPT_MAX + 1));
        assert!(spare.buffer().is_none());
    }
}
