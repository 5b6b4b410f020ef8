//! Opening and closing: the recovery's own writes, and the last checkpoint.

use super::commit::{self, End};
use super::discard::{self, DISCARDS_AT_LAST};
use super::flight::Flight;
use super::latch::Latch;
use super::tally::Tally;
use super::{Durability, Engine, Sealer, Turns, Upkeep, Volume};
use crate::atime::waiting::Atimes;
use crate::env::Env;
use crate::error::Error;
use crate::ownership::Ownership;
use crate::recovery::{self, Rebuild, Settings};
use crate::shares::Shares;
use crate::types::{AtimeRule, Discard, SettleWhen};
use crate::writeback::Spare;
use loamfs_device::{Device, ObservedDevice};
use loamfs_format::GroupNo;
use loamfs_log::members;
use loamfs_space::{CleaningPolicy, Owed};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
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
    /// Age at which a copy of the log that is behind is renewed, milliseconds.
    pub renew_age_ms: u64,
    /// Bytes of large files' data that may wait; without it a quarter of the cache, and an eighth of the volume at most.
    pub dirty_max: Option<usize>,
    /// Bytes of images that are in memory together on their way home, half of the cache at most; without it half of what the cache
    /// keeps of contents, and more where that has room.
    pub settle_bytes: Option<usize>,
    /// When images settle.
    pub settles: SettleWhen,
    /// When tracks form, but where somebody asks for it: once that pays, which it never does where nothing turns, or not at all.
    pub tracks: SettleWhen,
    /// Keep what is read often of slow devices in free groups of fast ones too, where there are such.
    pub hot: bool,
    /// Which groups are emptied first when nobody waits.
    pub cleaning: CleaningPolicy,
    /// Sealed segments that may wait for the threads of [`Upkeep::write_behind`]; 0 without such threads. They take
    /// memory beside the caches.
    pub flights: usize,
    /// To whom everything belongs, whatever is stored.
    pub owner: Ownership,
    /// When [`Volume::accessed`] sets an access time.
    pub atime: AtimeRule,
    /// Which devices are told what was freed.
    pub discard: Discard,
    /// Most links of an inode; less than the 2^31 of the format for tests only.
    pub links_max: u32,
    /// Read what stands beside small blocks along with them, where that pays. Without it each is read alone: for tests only, whose
    /// volumes are so small that a request brings most of them.
    pub read_around: bool,
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
            renew_age_ms: 30_000,
            dirty_max: None,
            settle_bytes: None,
            settles: SettleWhen::default(),
            tracks: SettleWhen::default(),
            hot: true,
            cleaning: CleaningPolicy::default(),
            flights: 0,
            owner: Ownership::default(),
            atime: AtimeRule::default(),
            discard: Discard::Never,
            links_max: recovery::LINKS_MAX,
            read_around: true,
            recount: Vec::new(),
            rebuild: Rebuild::default(),
            accept_loss: false,
        }
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
            read_around: options.read_around,
            owner: options.owner,
            settles: options.settles,
            tracks: options.tracks,
            hot: options.hot,
            cleaning: options.cleaning,
        };
        let (device, arm) = followed(device, options);
        let (core, reader, loss) = recovery::open(&device, &settings, &env)?;
        arm.begin(core.prices().disk());
        let volume = Volume {
            engine: Engine {
                core: Latch::new(core),
                failed_flush: OnceLock::new(),
                turns: Turns::default(),
                landed: Condvar::new(),
                flight: Flight::default(),
                device,
                arm,
                reader,
                flights: options.flights,
                settle_bytes: options.settle_bytes,
                quiet: Mutex::default(),
                forming: Mutex::default(),
                owing: Mutex::default(),
                warmed: Mutex::default(),
                spare: Spare::default(),
                shares,
                tally: Tally::default(),
                commit_age: Duration::from_millis(options.commit_age_ms),
                renew_age: Duration::from_millis(options.renew_age_ms),
                law: env.law,
            },
            moving: Mutex::new(()),
            loss,
        };
        let owed_max = shares.owed() / Owed::PIECE_BYTES;
        volume.core().space.owed_mut().limit(owed_max);
        if volume.engine.device.rotational() {
            volume.core().writeback.stream_in_batches();
        }
        volume.core().atimes = Atimes::new(options.atime, shares.bytes);
        if !options.read_only {
            let told = discard::told(options.discard, volume.engine.device.as_ref());
            volume.core().freed.tell(told);
            volume.engine.sealer().begin(loss.is_some())?;
        }
        Ok(volume)
    }

    /// Unmounts cleanly: everything is committed, and a checkpoint makes the next mount quick.
    ///
    /// # Errors
    /// [`Error`].
    pub fn close(&self) -> Result<(), Error> {
        let upkeep = self.upkeep();
        let result = upkeep.unmount();
        upkeep.end_write_behind();
        result
    }
}

/// A device whose arm is followed where tracks may form by the clock: `info` tells what that took.
fn followed(
    device: Arc<dyn Device>,
    options: &OpenOptions,
) -> (Arc<dyn Device>, Arc<super::arm::Arm>) {
    let arm = Arc::default();
    let forms = options.tracks == SettleWhen::Pays && !options.read_only;
    if !forms || !device.rotational() {
        return (device, arm);
    }
    let device = ObservedDevice::new(device, Arc::clone(&arm));
    (Arc::new(device), arm)
}

impl Upkeep<'_> {
    fn unmount(&self) -> Result<(), Error> {
        let engine = self.engine();
        if !engine.core().access.is_writable() {
            return engine.nothing_waits();
        }
        self.find_leftovers();
        engine.tidy_after(usize::MAX);
        let unwritten = engine.write_out(Durability::Durable)?;
        engine.sweeper().settle_at_last();
        self.reserve_places();
        let sealer = engine.sealer();
        let end = match unwritten.is_empty() {
            true => End::Closed,
            false => End::Open,
        };
        sealer.checkpoint(end)?;
        let renewed = sealer.renew_closed(end);
        sealer.discard_freed(DISCARDS_AT_LAST);
        sealer.warm_at_last();
        commit::all_written(unwritten)?;
        renewed
    }
}

impl Sealer<'_> {
    /// Recovery's own writes: the adopted checkpoint is named, then the chain continued with a fresh token. A copy that
    /// tells another size or label is written anew before anything depends on the newer one. What rot took is given up,
    /// if that was accepted.
    fn begin(&self, accepts_loss: bool) -> Result<(), Error> {
        let (unnamed, differ) = {
            let core = self.core();
            let known = &core.checkpoints;
            (
                known.last().ssn > known.newest_named(),
                known.copies_differ(),
            )
        };
        if accepts_loss {
            self.go_on_without()?;
            return self.identify();
        }
        if self.law.mends_copies(differ) || self.law.names_adopted(unnamed) {
            self.name_checkpoint(End::Open)?;
        }
        self.identify()?;
        if !self.law.seals_at_mount() {
            return Ok(());
        }
        if self.law.checkpoint_at_mount(self.must_checkpoint()) {
            match self.checkpoint(End::Open).and_then(|()| self.renew()) {
                // No room for that either: what is left is enough for an empty segment, perhaps.
                Err(Error::NoSpace) => {}
                other => return other,
            }
        }
        let segment = self.step(|core| core.commit(self).seal_mount())?;
        self.launch(segment)?;
        self.flush()
    }

    /// Has the devices that do not lead say whose they are, behind the one that does.
    pub(super) fn identify(&self) -> Result<(), Error> {
        let sb = self.core().sb.clone();
        self.heed(members::identify(self.device(), &sb))
    }

    /// Whether recovery's segment must be a checkpoint: where an empty one would eat into the reserve (rules 4 and 10),
    /// or lengthen a chain that is long enough (rule 9), which crash after crash would do without end.
    fn must_checkpoint(&self) -> bool {
        let mut core = self.core();
        core.budget().forecast().checkpoint_due() || !core.budget().has_reserve()
    }

    /// Gives up what rot took from the log: a checkpoint of what is left, which both superblock copies name before
    /// anything else changes (rule 4).
    fn go_on_without(&self) -> Result<(), Error> {
        self.checkpoint(End::Open)?;
        self.name_checkpoint(End::Open)
    }
}
