//! A device on which others come first: what threads do at the same time, in an order that the test chooses.

use loamfs_device::{Counters, Device, DeviceError, IoKind, Member, MemoryDevice, Op, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What comes first.
pub type Hook = Box<dyn FnOnce() + Send>;

/// What a hook says: who waits for one that is not met waits no longer than a minute.
///
/// # Errors
/// It says nothing.
pub fn told<T>(by: &Receiver<T>) -> Result<T, RecvTimeoutError> {
    by.recv_timeout(Duration::from_secs(60))
}

/// A hook, and how many requests of a kind pass before it.
struct Waiting {
    kind: Option<IoKind>,
    skip: u64,
    hook: Hook,
}

/// A device on which others come first: once, before the request of a kind that is so many requests away.
pub struct Busy {
    memory: MemoryDevice,
    hook: Mutex<Option<Waiting>>,
    /// Batches of reads that come back with a wrong byte each.
    garbled: Mutex<u32>,
    /// What comes before the flush that is so many flushes away.
    flush: Mutex<Option<(u64, Hook)>>,
    /// Flushes that fail.
    failing: Mutex<u32>,
}

impl std::fmt::Debug for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Busy").finish_non_exhaustive()
    }
}

impl Busy {
    /// A device on which nobody comes first yet.
    pub fn new(memory: MemoryDevice) -> Busy {
        Busy {
            memory,
            hook: Mutex::new(None),
            garbled: Mutex::new(0),
            flush: Mutex::new(None),
            failing: Mutex::new(0),
        }
    }

    /// What is on the device now.
    pub fn fork(&self) -> MemoryDevice {
        self.memory.fork()
    }

    /// Runs `hook` on another thread before a request of that kind, after `skip` of them; the request waits for it.
    pub fn at(&self, kind: Option<IoKind>, skip: u64, hook: Hook) {
        *lock(&self.hook) = Some(Waiting { kind, skip, hook });
    }

    /// The same before a flush, after `skip` of them.
    pub fn at_flush(&self, skip: u64, hook: Hook) {
        *lock(&self.flush) = Some((skip, hook));
    }

    /// Whether a hook was never reached; it is gone then.
    pub fn idle(&self) -> bool {
        lock(&self.hook).take().is_some() || lock(&self.flush).take().is_some()
    }

    /// Has so many flushes fail.
    pub fn fail_flushes(&self, flushes: u32) {
        *lock(&self.failing) = flushes;
    }

    /// Gives so many batches of reads a wrong byte each.
    pub fn garble(&self, batches: u32) {
        *lock(&self.garbled) = batches;
    }

    fn meet(&self, kinds: impl Iterator<Item = IoKind>) {
        let hook = {
            let mut slot = lock(&self.hook);
            let Some(waiting) = slot.take() else {
                return;
            };
            let wanted = |kind: &IoKind| waiting.kind.is_none_or(|wanted| wanted == *kind);
            let matching = kinds.filter(wanted).count() as u64;
            if matching <= waiting.skip {
                let skip = waiting.skip - matching;
                *slot = Some(Waiting { skip, ..waiting });
                return;
            }
            waiting.hook
        };
        carry_out(hook);
    }

    fn meet_flush(&self) {
        let mut slot = lock(&self.flush);
        match slot.take() {
            Some((0, hook)) => {
                drop(slot);
                carry_out(hook);
            }
            Some((skip, hook)) => *slot = Some((skip - 1, hook)),
            None => {}
        }
    }
}

fn carry_out(hook: Hook) {
    if let Err(panic) = thread::spawn(hook).join() {
        std::panic::resume_unwind(panic);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for Busy {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn sector_size(&self) -> u32 {
        self.memory.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.memory.write_align()
    }

    fn rotational(&self) -> bool {
        self.memory.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        self.meet(batch.iter().map(|read| read.kind));
        self.memory.read(batch);
        let mut garbled = lock(&self.garbled);
        if *garbled > 0 && !batch.is_empty() {
            *garbled -= 1;
            for read in batch {
                read.buffer.iter_mut().for_each(|byte| *byte ^= 1);
            }
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        self.meet(batch.iter().map(|write| write.kind));
        self.memory.write(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.meet_flush();
        let mut failing = lock(&self.failing);
        if *failing > 0 {
            *failing -= 1;
            return Err(DeviceError::io(Op::Flush, 0, 0, 5));
        }
        self.memory.flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        self.memory.discard(ranges)
    }

    fn counters(&self) -> Counters {
        self.memory.counters()
    }

    fn members(&self) -> &[Member] {
        self.memory.members()
    }
}
