//! The right to seal.

use super::{Engine, Watch};
use crate::commit::SealsAlone;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often, and how long apart, it is looked whether others wait for the right to seal: a tenth of a second in all.
const LOOKS: u32 = 100;
/// See above.
const LOOK: Duration = Duration::from_millis(1);

/// The right to seal segments, to count them as durable, and to write superblocks. One has it at a time; what needs it is
/// a method of it. A flush of the device alone needs none.
pub(crate) struct Sealer<'a> {
    engine: &'a Engine,
    // The watch ends first: who gets the right after a panic finds the volume broken.
    _watch: Watch<'a>,
    _alone: MutexGuard<'a, ()>,
}

impl SealsAlone for Sealer<'_> {}

impl Deref for Sealer<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl Engine {
    /// Waits for the right to seal.
    pub(crate) fn sealer(&self) -> Sealer<'_> {
        self.turns.wait_to_seal.fetch_add(1, Ordering::Relaxed);
        let alone = self
            .turns
            .sealing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.turns.wait_to_seal.fetch_sub(1, Ordering::Relaxed);
        Sealer {
            engine: self,
            _watch: self.watch(),
            _alone: alone,
        }
    }

    /// Who seals step after step, and is in no hurry, lets those go first who wait for the right to: a lock by itself goes to
    /// whoever is awake.
    pub(crate) fn let_others_seal(&self) {
        for _ in 0..LOOKS {
            if self.turns.wait_to_seal.load(Ordering::Relaxed) == 0 {
                break;
            }
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Volume;
    use crate::{Env, MkfsOptions, OpenOptions, mkfs};
    use loamfs_device::{Device, MemoryDevice};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, TryLockError};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::with_default;
    use tracing::{Event, Metadata, Subscriber};

    /// Notes whether the right to seal was taken when something was said, as that a volume is broken.
    struct Listener {
        volume: Arc<Volume>,
        taken: Arc<AtomicBool>,
    }

    impl Subscriber for Listener {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn event(&self, _: &Event<'_>) {
            let taken = matches!(
                self.volume.engine.turns.sealing.try_lock(),
                Err(TryLockError::WouldBlock)
            );
            self.taken.store(taken, Ordering::Relaxed);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_volume_is_broken_before_the_right_to_seal_goes_on_to_others() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
        mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
        let (volume, taken) = (Arc::new(volume), Arc::new(AtomicBool::new(false)));
        let listener = Listener {
            volume: volume.clone(),
            taken: taken.clone(),
        };
        with_default(listener, || {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _sealer = volume.engine.sealer();
                panic!("while a segment is sealed");
            }));
            assert!(panicked.is_err());
        });
        assert!(volume.info().access.broken().is_some());
        assert!(taken.load(Ordering::Relaxed));
    }
}
