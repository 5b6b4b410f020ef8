//! A volume in use: the state behind one lock, the device beside it, and the steps that bring changes to it.
//!
//! Lock order: `moving`, `sweeping`, `sealing`, `homes`, `core`; no device is touched while `core` is held. An operation runs under
//! `core`, reads and writes memory only, and is sent back when blocks are missing; they are read without the lock and it
//! runs again. Whoever seals a segment holds `sealing` ([`Sealer`]); sealed segments are written without a lock ([`flight`]). Whoever
//! writes large files' data to their homes shares `homes`, and needs `sealing` only to make room in the next segment: so
//! nobody who waits for a small file waits for a large one (rule 3).

mod atime;
mod background;
mod commit;
mod discard;
mod drive;
mod flight;
mod freeze;
mod info;
mod latch;
mod operations;
mod places;
mod ranges;
mod sealer;
mod space;
mod sync;

pub(crate) use drive::{TRIES, load_groups};
pub(crate) use flight::write_segment;
pub use info::Info;
pub(crate) use sealer::Sealer;

use crate::atime::waiting::Atimes;
use crate::core::Core;
use crate::env::Env;
use crate::error::Error;
use crate::law::{Law, Rules};
use crate::ownership::Ownership;
use crate::reader::Reader;
use crate::recovery::{self, Rebuild, Settings};
use crate::shares::Shares;
use crate::types::AtimeRule;
use commit::End;
use flight::Flight;
use latch::Latch;
use loamfs_device::Device;
use loamfs_format::GroupNo;
use loamfs_log::loss::Loss;
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

/// How a volume is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Change nothing, not even to recover.
    pub read_only: bool,
    /// Bytes for caches and dirty data together.
    pub cache_bytes: usize,
    /// Age at which changes are committed, milliseconds.
    pub commit_age_ms: u64,
    /// Bytes of large files' data that may wait; without it a quarter of the cache, and an eighth of the volume at most.
    pub dirty_max: Option<usize>,
    /// Sealed segments that may wait for the threads of [`Volume::write_behind`]; 0 without such threads. They take
    /// memory beside the caches.
    pub flights: usize,
    /// To whom everything belongs, whatever is stored.
    pub owner: Ownership,
    /// When [`Volume::accessed`] sets an access time.
    pub atime: AtimeRule,
    /// Tell the device at once what was freed, as soon as it may be used again.
    pub discard: bool,
    /// Most links of an inode; less than the 2^31 of the format for tests only.
    pub links_max: u32,
    /// For repair: groups whose bitmaps are right, and not what their descriptors count.
    pub recount: Vec<GroupNo>,
    /// For repair: what is known of maps of which nodes cannot be read.
    pub rebuild: Rebuild,
    /// Write to a volume although rot took segments of its log that were durable: what they held is given up.
    pub accept_loss: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            cache_bytes: 256 << 20,
            commit_age_ms: 5_000,
            dirty_max: None,
            flights: 0,
            owner: Ownership::default(),
            atime: AtimeRule::default(),
            discard: false,
            links_max: recovery::LINKS_MAX,
            recount: Vec::new(),
            rebuild: Rebuild::default(),
            accept_loss: false,
        }
    }
}

/// How far a commit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The segment is sealed, and written or on its way.
    Written,
    /// The segment is written and flushed, with all before it.
    Durable,
}

/// A volume in use. Dropping it without [`Volume::close`] is a crash.
pub struct Volume {
    core: Latch<Core>,
    /// Held by whoever seals segments: see [`Sealer`].
    sealing: Mutex<()>,
    /// Shared by those who write homes; held alone by whoever must have no such write in flight.
    homes: RwLock<()>,
    /// Held by whoever moves a directory to another one.
    moving: Mutex<()>,
    /// Held by whoever writes all homes out.
    sweeping: Mutex<()>,
    /// Told, with `core`, whenever writes of homes are over.
    landed: Condvar,
    device: Arc<dyn Device>,
    reader: Reader,
    flight: Flight,
    flights: usize,
    commit_age: Duration,
    shares: Shares,
    law: Law<dyn Rules>,
    /// What rot took from the log; whoever may write has accepted it.
    loss: Option<Loss>,
}

/// Why a volume is broken after a panic.
const PANICKED: &str = "an operation panicked in the middle";

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").finish_non_exhaustive()
    }
}

impl Volume {
    /// Opens a volume: recovers the state of its last segment and, unless read-only, writes one segment that ends
    /// whatever a crash may have left behind it (rule 4).
    ///
    /// # Errors
    /// Why it is no volume, or not one that can be used.
    pub fn open(device: Arc<dyn Device>, options: &OpenOptions, env: Env) -> Result<Volume, Error> {
        let shares = Shares::new(options.cache_bytes);
        let waiting_max = shares.waiting(device.size());
        let settings = Settings {
            read_only: options.read_only,
            shares,
            recount: options.recount.clone(),
            rebuild: options.rebuild.clone(),
            accept_loss: options.accept_loss,
            homed_max: options
                .dirty_max
                .map_or(waiting_max, |bytes| bytes as u64)
                .max(1 << 20),
            links_max: options.links_max.min(recovery::LINKS_MAX),
        };
        let (core, reader, loss) = recovery::open(&device, &settings, &env)?;
        let volume = Volume {
            core: Latch::new(core),
            sealing: Mutex::new(()),
            homes: RwLock::new(()),
            moving: Mutex::new(()),
            sweeping: Mutex::new(()),
            landed: Condvar::new(),
            flight: Flight::new(device.rotational()),
            device,
            reader,
            flights: options.flights,
            commit_age: Duration::from_millis(options.commit_age_ms),
            shares,
            law: env.law,
            loss,
        };
        volume.core().env.config.owner = options.owner;
        volume.core().atimes = Atimes::new(options.atime, shares.bytes);
        if !options.read_only {
            volume.core().leftovers.tell_freed(options.discard);
            volume.sealer().begin()?;
        }
        Ok(volume)
    }

    /// Whether recovery's segment must be a checkpoint: where an empty one would eat into the reserve (rules 4 and 10),
    /// or lengthen a chain that is long enough (rule 9), which crash after crash would do without end.
    fn tight(&self) -> bool {
        let mut core = self.core();
        core.budget().checkpoint_due() || !core.budget().has_reserve()
    }

    /// Unmounts cleanly: everything is committed, and a checkpoint makes the next mount quick.
    ///
    /// # Errors
    /// [`Error`].
    pub fn close(&self) -> Result<(), Error> {
        let result = self.unmount();
        self.end_write_behind();
        result
    }

    fn unmount(&self) -> Result<(), Error> {
        if !self.core().access.is_writable() {
            return self.nothing_waits();
        }
        self.find_leftovers();
        self.tidy_after(usize::MAX);
        let unwritten = self.write_out(Durability::Durable)?;
        self.reserve_places();
        let sealer = self.sealer();
        let end = match unwritten.is_empty() {
            true => End::Closed,
            false => End::Open,
        };
        sealer.checkpoint(end)?;
        self.discard_freed(usize::MAX);
        commit::all_written(unwritten)
    }

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
        let guard = self.homes.read().unwrap_or_else(PoisonError::into_inner);
        (self.watch(), guard)
    }

    fn homes_alone(&self) -> (Watch<'_>, RwLockWriteGuard<'_, ()>) {
        let guard = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        (self.watch(), guard)
    }
}

impl Sealer<'_> {
    /// Recovery's own writes: the adopted checkpoint is named, then the chain continued with a fresh token. A copy that
    /// tells another size or label is written anew before anything depends on the newer one.
    fn begin(&self) -> Result<(), Error> {
        let (unnamed, differ) = {
            let core = self.core();
            let known = &core.checkpoints;
            (
                known.last().ssn > known.newest_named(),
                known.copies_differ(),
            )
        };
        if self.loss.is_some() {
            return self.go_on_without();
        }
        if self.law.mends_copies(differ) || self.law.names_adopted(unnamed) {
            self.name_checkpoint(End::Open)?;
        }
        if !self.law.seals_at_mount() {
            return Ok(());
        }
        if self.law.checkpoint_at_mount(self.tight()) {
            match self.checkpoint(End::Open) {
                // No room for that either: what is left is enough for an empty segment, perhaps.
                Err(Error::NoSpace) => {}
                other => return other,
            }
        }
        let segment = self.step(|core| core.commit().seal_mount())?;
        self.launch(segment)?;
        self.flush()
    }

    /// Gives up what rot took from the log: a checkpoint of what is left, which both superblock copies name before
    /// anything else changes (rule 4).
    fn go_on_without(&self) -> Result<(), Error> {
        self.checkpoint(End::Open)?;
        self.name_checkpoint(End::Open)
    }
}

/// See [`Volume::watch`].
pub(crate) struct Watch<'a>(&'a Volume);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.core().access.break_down(PANICKED);
            self.0.note_landed();
        }
    }
}
