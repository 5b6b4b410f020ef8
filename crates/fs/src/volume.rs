//! A volume in use: [`Volume`] and its views are what callers ask, and [`Engine`] what works below: the state behind one lock,
//! the device beside it, and the steps that bring changes to it.
//!
//! Lock order: `moving`, `owing`, `sweeping`, `settling`, `emptying`, `sealing`, `renewing`, `homes`, `core` (DESIGN.md, "Locks" says what each is for);
//! no device is touched while `core` is held. An operation runs under `core`, reads and writes memory only, and is sent
//! back when blocks are missing; they are read without the lock and it runs again. Whoever seals a segment holds `sealing`
//! ([`Sealer`]); sealed segments are written without a lock ([`flight`]). Whoever writes large files' data to their homes
//! shares `homes`, and needs `sealing` only to make room in the next segment: so nobody who waits for a small file waits for
//! a large one (rule 3).

mod announce;
mod arm;
mod atime;
mod background;
mod barrier;
mod clean_ahead;
mod cleaning;
mod commit;
mod copying;
mod discard;
mod drive;
mod emptying;
mod flight;
mod forming;
mod freeze;
mod gathering;
mod info;
mod latch;
mod leaving;
mod missing;
mod opening;
mod operations;
mod owed;
mod places;
mod ranges;
mod renewing;
mod scrub;
mod sealer;
mod sections;
mod settling;
mod shrinking;
mod sync;
mod tally;
mod tracks;
mod upkeep;
mod vacating;
mod warming;
mod xattrs;

pub use copying::Copying;
pub use discard::Trimmed;
pub(crate) use drive::{TRIES, load_groups};
pub use emptying::Cleaned;
pub(crate) use flight::write_segment;
pub use info::{Info, MemberInfo, TracksInfo, Unformed};
pub use missing::Lost;
pub use opening::OpenOptions;
pub use operations::Witnessed;
pub use owed::OwedInfo;
pub use ranges::Ranges;
pub use renewing::BehindInfo;
pub use scrub::{Damaged, Scrub, Scrubbed};
pub(crate) use sealer::Sealer;
pub use tracks::{Arranged, Arranging};
pub use upkeep::Upkeep;
pub use xattrs::Xattrs;

use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::law::{Law, Rules};
use crate::reader::Reader;
use crate::shares::Shares;
use crate::writeback::Spare;
use arm::Arm;
use flight::Flight;
use forming::Forming;
use latch::Latch;
use loamfs_device::Device;
use loamfs_format::Extent;
use loamfs_log::loss::Loss;
use owed::Owing;
use renewing::Renewing;
use settling::Quiet;
use std::sync::atomic::AtomicUsize;
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard,
    RwLockWriteGuard, TryLockError,
};
use std::time::Duration;
use tally::Tally;

/// How far a commit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The segment is sealed, and written or on its way.
    Written,
    /// The segment is written and flushed, with all before it.
    Durable,
}

/// A volume in use: a method for each thing that may be asked of names and contents. What concerns it as a whole is asked of
/// [`Volume::upkeep`] and [`Volume::scrub`]. Dropping it without [`Volume::close`] is a crash.
pub struct Volume {
    engine: Engine,
    /// Held by whoever moves a directory to another one.
    moving: Mutex<()>,
    /// What rot took from the log; whoever may write has accepted it.
    loss: Option<Loss>,
}

/// What works below the operations that callers ask for: it runs their steps, brings what they changed to the device, and
/// makes room for them.
pub(crate) struct Engine {
    core: Latch<Core>,
    /// How the first flush failed that did. Whoever met that says so here first: others may get the lock of the state before him.
    failed_flush: OnceLock<Error>,
    turns: Turns,
    /// Told, with `core`, whenever writes of homes are over.
    landed: Condvar,
    device: Arc<dyn Device>,
    /// What its requests took, where it turns.
    arm: Arc<Arm>,
    reader: Reader,
    flight: Flight,
    flights: usize,
    /// Bytes of images that are in memory together on their way home, if that was said.
    settle_bytes: Option<usize>,
    /// Whether nobody asks the device for anything.
    quiet: Mutex<Quiet>,
    forming: Mutex<Forming>,
    owing: Mutex<Owing>,
    /// When somebody last looked which groups hot data may take.
    warmed: Mutex<Option<Duration>>,
    /// Where new homes are put together.
    spare: Spare,
    shares: Shares,
    tally: Tally,
    /// How old changes become before they are committed.
    commit_age: Duration,
    /// How old the copy that is behind becomes before it is renewed.
    renew_age: Duration,
    law: Law<dyn Rules>,
}

/// Locks that guard no state: each says whose turn it is to do something.
#[derive(Debug, Default)]
struct Turns {
    /// Held by whoever seals segments: see [`Sealer`].
    sealing: Mutex<()>,
    /// How many wait for that.
    wait_to_seal: AtomicUsize,
    /// Shared by those who write homes; held alone by whoever must have no such write in flight.
    homes: RwLock<()>,
    /// Held by whoever writes all homes out.
    sweeping: Mutex<()>,
    /// Held by whoever empties groups step by step, while others seal.
    emptying: Mutex<()>,
    /// Held by whoever settles for a reader, or by the clock.
    settling: Mutex<()>,
    /// Held by whoever renews the copy that is behind.
    renewing: Mutex<Renewing>,
    /// Held by whoever makes a copy of what the leading device holds, gives it up, or renews it by the clock: all write to one place.
    copying: Mutex<()>,
    /// Shared by what is done by the clock; held alone by whoever freezes the volume, for which not all of that asks before it writes.
    ticking: RwLock<()>,
}

/// Why a volume is broken after a panic.
const PANICKED: &str = "an operation panicked in the middle";

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").finish_non_exhaustive()
    }
}

impl Volume {
    /// The state.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.engine.core()
    }

    /// As [`Engine::run`], for somebody who asked for it.
    pub(crate) fn run<T>(&self, op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        self.run_told(op).map(|(done, _)| done)
    }

    /// The same; and whether a device was asked for blocks.
    fn run_told<T>(
        &self,
        op: impl FnMut(&mut Core) -> Result<T, Stop>,
    ) -> Result<(T, bool), Error> {
        self.engine.tally.note_asked();
        self.engine.run_told(op)
    }
}

impl Engine {
    /// The state. A panic while it was held left it half changed.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|poisoned| {
            let mut core = poisoned.into_inner();
            let _ = core.access.break_down(PANICKED);
            core
        })
    }

    pub(crate) fn device(&self) -> &dyn Device {
        self.device.as_ref()
    }

    /// What it goes by.
    pub(crate) fn law(&self) -> &Law<dyn Rules> {
        &self.law
    }

    /// Bytes of large files' data that are written to their homes together, at most.
    pub(crate) fn round_bytes(&self) -> usize {
        self.shares.round()
    }

    /// Where new homes are put together.
    pub(crate) fn spare(&self) -> &Spare {
        &self.spare
    }

    /// Homes are about to be written: no hot data stand in their groups from here on.
    pub(crate) fn yield_to(&self, homes: &[Extent]) {
        self.reader.yield_to(homes.iter().copied());
    }

    /// These homes hold something new, which nobody has read yet: what was read there before, perhaps while its owner gave it
    /// up, is not found any more, whatever checksum it has.
    pub(crate) fn forget_tenants(&self, homes: &[Extent]) {
        self.core().blocks.forget_tenants(homes);
        self.reader.overwritten(homes);
    }

    /// Writes of homes are over.
    pub(crate) fn note_landed(&self) {
        self.landed.notify_all();
    }

    /// Waits until writes of homes are over.
    pub(crate) fn wait_landed<'a>(&self, core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        self.landed
            .wait(core)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks the volume down if this thread panics before it is dropped, in work that goes on without the state's lock.
    /// It is dropped before the lock under which that work goes on: who gets that next finds the volume broken.
    fn watch(&self) -> Watch<'_> {
        Watch(self)
    }

    pub(crate) fn homes_shared(&self) -> (Watch<'_>, RwLockReadGuard<'_, ()>) {
        let guard = self
            .turns
            .homes
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        (self.watch(), guard)
    }

    /// The same as [`Engine::homes_alone`], unless some are being written.
    fn homes_alone_at_once(&self) -> Option<(Watch<'_>, RwLockWriteGuard<'_, ()>)> {
        let guard = match self.turns.homes.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some((self.watch(), guard))
    }

    fn warmed(&self) -> MutexGuard<'_, Option<Duration>> {
        self.warmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn homes_alone(&self) -> (Watch<'_>, RwLockWriteGuard<'_, ()>) {
        let guard = self
            .turns
            .homes
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        (self.watch(), guard)
    }
}

/// See [`Engine::watch`].
pub(crate) struct Watch<'a>(&'a Engine);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.core().access.break_down(PANICKED);
            self.0.note_landed();
        }
    }
}
