//! The lock of a volume's state. It is held for microseconds at a time, and to be put to sleep and woken takes longer than
//! that: who finds it taken looks again for a while before.

use std::hint;
use std::sync::{LockResult, Mutex, MutexGuard, TryLockError};
use std::thread;

/// How often it is looked at again, and how many pauses of the processor lie between: some 20 microseconds in all, within
/// which nearly every operation on memory ends.
const LOOKS: u32 = 64;
const PAUSES: u32 = 8;

/// A lock for what is held shortly.
pub(super) struct Latch<T> {
    value: Mutex<T>,
    /// How often to look again: never where the holder has no other processor to go on with.
    looks: u32,
}

impl<T> Latch<T> {
    pub fn new(value: T) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            value: Mutex::new(value),
            looks: if processors > 1 { LOOKS } else { 0 },
        }
    }

    /// As [`Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        for _ in 0..self.looks {
            match self.value.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => (0..PAUSES).for_each(|_| hint::spin_loop()),
            }
        }
        self.value.lock()
    }
}
