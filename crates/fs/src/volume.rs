//! A volume in use: the state behind one lock, the device beside it, and the steps that bring changes to it.
//!
//! Lock order: `commit` before `core`; no device is touched while `core` is held. An operation runs under `core`,
//! reads and writes memory only, and is sent back when blocks are missing; they are read without the lock and it runs
//! again. Everything that writes to the device holds `commit`.

use crate::blocks::{Fetch, Stop};
use crate::core::Core;
use crate::env::Env;
use crate::error::Error;
use crate::mkfs::write_segment;
use crate::reader::{Reader, fetch_into};
use crate::recovery::{self, Settings};
use crate::types::{Attr, DirEntry, NewInode, RenameFlags, SetAttr, StatFs, Timestamp, XattrMode};
use crate::writeback::HomeWrite;
use loamfs_device::{Counters, Device, IoKind, Write};
use loamfs_format::group::Role;
use loamfs_format::ifile::{INO_MAX, ino_at};
use loamfs_format::inode::mode;
use loamfs_format::mutant;
use loamfs_format::{Extent, GroupNo, Ino, InodeBlockNo, Ssn};
use loamfs_log::segment::Segment;
use loamfs_log::superblocks;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Images that one step settles.
const SETTLE_STEP: usize = 1024;
/// Inodes whose leftovers one step looks at.
const LEFTOVERS_STEP: usize = 64;
/// Rounds of compaction in one go: enough to go through a whole log.
const REPLENISH_ROUNDS: usize = 1024;
/// Rounds in a row that may win nothing: a checkpoint takes before it gives.
const IDLE_ROUNDS: usize = 6;
/// Bytes of homed data that share a flush: memory holds them twice meanwhile.
const HOME_ROUND: usize = 16 << 20;
/// How often an operation may be sent back.
const ROUNDS_MAX: u32 = 100_000;
/// How often space is fought for before an operation gets ENOSPC.
const TRIES: u32 = 4;

/// How a volume is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Change nothing, not even to recover.
    pub read_only: bool,
    /// Bytes for caches and dirty data together.
    pub cache_bytes: usize,
    /// Age at which changes are committed, milliseconds.
    pub commit_age_ms: u64,
    /// Bytes of large files' data that may wait; a quarter of the cache without it.
    pub dirty_max: Option<usize>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            cache_bytes: 256 << 20,
            commit_age_ms: 5_000,
            dirty_max: None,
        }
    }
}

/// How far a commit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The segment is written.
    Written,
    /// The segment is written and flushed.
    Durable,
}

/// Figures of a volume in use.
#[derive(Debug, Clone)]
pub struct Info {
    /// Identity.
    pub uuid: [u8; 16],
    /// Label.
    pub label: Vec<u8>,
    /// Bytes of a fragment.
    pub fragment_size: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a group.
    pub group_size: u64,
    /// Groups by role: free, log, data.
    pub groups: [u64; 3],
    /// Fragments of the volume, in use or held back, and held back.
    pub total_frags: u64,
    /// See above.
    pub used_frags: u64,
    /// See above.
    pub held_frags: u64,
    /// Last sealed segment, highest durable one, last checkpoint.
    pub segment: Ssn,
    /// See above.
    pub durable: Ssn,
    /// See above.
    pub checkpoint: Ssn,
    /// Live inodes.
    pub inodes: u64,
    /// Images that have not settled.
    pub images: u64,
    /// Bytes in the block cache.
    pub cached_bytes: u64,
    /// Bytes that wait for a segment, estimated, and of large files' data.
    pub dirty_log_bytes: u64,
    /// See above.
    pub dirty_home_bytes: u64,
    /// Bytes of bitmaps in memory.
    pub bitmap_bytes: u64,
    /// Inodes in memory.
    pub cached_inodes: u64,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Requests, bytes and flushes of the device so far.
    pub device: Counters,
}

/// A volume in use. Dropping it without [`Volume::close`] is a crash.
pub struct Volume {
    core: Mutex<Core>,
    commit: Mutex<()>,
    device: Arc<dyn Device>,
    reader: Reader,
    commit_age_ms: u64,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").finish_non_exhaustive()
    }
}

/// Runs a step of a core that no volume owns yet, loading groups' bitmaps as it wants them. Such a core has nothing on
/// a device that could be missing.
pub(crate) fn load_groups<T>(
    core: &mut Core,
    mut step: impl FnMut(&mut Core) -> Result<T, Stop>,
) -> Result<T, Error> {
    loop {
        match step(core) {
            Ok(value) => return Ok(value),
            Err(Stop::Load(groups)) => {
                for group in groups {
                    core.space.load(group, Vec::new())?;
                }
            }
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Missing | Stop::Full | Stop::Crowded) => return Err(Error::NoSpace),
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
        let cache_bytes = options.cache_bytes.max(8 << 20);
        let settings = Settings {
            read_only: options.read_only,
            cache_bytes: cache_bytes / 2,
            homed_max: options.dirty_max.unwrap_or(cache_bytes / 4).max(1 << 20) as u64,
        };
        let (core, reader) = recovery::open(&device, &settings, &env)?;
        let volume = Volume {
            core: Mutex::new(core),
            commit: Mutex::new(()),
            device,
            reader,
            commit_age_ms: options.commit_age_ms,
        };
        if !options.read_only {
            volume.begin()?;
        }
        Ok(volume)
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_lock(&self) -> MutexGuard<'_, ()> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Recovery's own writes: the adopted checkpoint is named, then the chain continued with a fresh token.
    fn begin(&self) -> Result<(), Error> {
        let _commit = self.commit_lock();
        let unnamed = {
            let core = self.core();
            core.base.ssn > core.slots[0].max(core.slots[1]).unwrap_or(Ssn(0))
        };
        if unnamed && !mutant::active("adopted-unnamed") {
            self.name_checkpoint()?;
        }
        if mutant::active("no-mount-segment") {
            return Ok(());
        }
        let segment = self.step(|core| core.seal_mount());
        match segment {
            Ok(segment) => {
                self.write_log(&segment)?;
                if mutant::active("accept-early") {
                    return Ok(());
                }
                self.flush()
            }
            // Where an empty segment finds no room a checkpoint does: it frees what it replaces.
            Err(Error::NoSpace) => self.checkpoint_locked(),
            Err(error) => Err(error),
        }
    }

    // ---- running operations ------------------------------------------------------------------------------------

    /// Runs an operation until it ends, reading what it misses and making room where it needs some.
    pub(crate) fn run<T>(&self, op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        self.drive(op, true)
    }

    /// Runs a step of a commit, which cannot wait for one.
    fn step<T>(&self, op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        self.drive(op, false)
    }

    fn drive<T>(
        &self,
        mut op: impl FnMut(&mut Core) -> Result<T, Stop>,
        may_commit: bool,
    ) -> Result<T, Error> {
        let mut retrying = false;
        let (mut tries, mut rounds) = (0, 0);
        let result = loop {
            rounds += 1;
            let mut core = self.core();
            let stop = match op(&mut core) {
                Ok(value) => break Ok(value),
                Err(stop) => stop,
            };
            let wanted = std::mem::take(&mut core.blocks.wanted);
            if !retrying {
                core.blocks.retrying += 1;
                retrying = true;
            }
            drop(core);
            let helped = match stop {
                // Each round reads or commits something; an operation that needs more is a defect, not bad luck.
                _ if rounds > ROUNDS_MAX => {
                    Err(Error::Invalid("the operation does not come to an end"))
                }
                Stop::Failed(error) => Err(error),
                Stop::Missing => self.fetch(&wanted),
                Stop::Load(groups) => self.load(&groups),
                Stop::Crowded if may_commit => self.relieve(),
                Stop::Full if may_commit && self.core().is_exhausted() => Err(Error::NoSpace),
                Stop::Full if may_commit && tries < TRIES => {
                    tries += 1;
                    self.win_space(tries)
                }
                Stop::Full | Stop::Crowded => {
                    if may_commit {
                        self.core().note_exhausted();
                    }
                    Err(Error::NoSpace)
                }
            };
            if let Err(error) = helped {
                break Err(error);
            }
        };
        if retrying {
            let mut core = self.core();
            core.blocks.retrying = core.blocks.retrying.saturating_sub(1);
            core.blocks.unpin();
        }
        result
    }

    fn fetch(&self, wanted: &[Fetch]) -> Result<(), Error> {
        let result = fetch_into(&self.reader, wanted, |fetch, bytes| {
            let taken = self.core().blocks.fetched(fetch, bytes);
            // The block may have been freed and its place reused meanwhile: only a pointer that still stands makes
            // it an error (rule 13).
            match taken {
                Err(_) if matches!(self.core().still_names(fetch), Ok(false)) => Ok(()),
                other => other,
            }
        });
        if let Err(error) = &result {
            tracing::error!(%error, "cannot read a block");
        }
        result
    }

    fn load(&self, groups: &[GroupNo]) -> Result<(), Error> {
        for group in groups {
            self.step(|core| {
                let chunks = core
                    .maps
                    .group_chunks(&mut core.blocks, &core.geometry, *group)?;
                Ok(core.space.load(*group, chunks)?)
            })?;
        }
        Ok(())
    }

    // ---- committing --------------------------------------------------------------------------------------------

    /// Makes room in memory: what waits is committed, and pending truncates are drained.
    fn relieve(&self) -> Result<(), Error> {
        self.tidy(usize::MAX)?;
        let _commit = self.commit_lock();
        let all: Vec<Ino> = self.core().homed.iter().copied().collect();
        self.commit_locked(&all, false, Wait::Written)?;
        self.checkpoint_if_due()
    }

    /// Wins space back before anyone gets ENOSPC (rule 10), each time by dearer means: pending frees become durable,
    /// and reusable by a segment that says so; checkpoints give back maps and summaries; the log is compacted.
    fn win_space(&self, means: u32) -> Result<(), Error> {
        self.tidy(usize::MAX)?;
        let _commit = self.commit_lock();
        let all: Vec<Ino> = self.core().homed.iter().copied().collect();
        self.commit_locked(&all, false, Wait::Durable)?;
        self.commit_locked(&[], true, Wait::Durable)?;
        if means >= 2 {
            self.checkpoint_locked()?;
            self.checkpoint_locked()?;
            self.commit_locked(&[], true, Wait::Durable)?;
        }
        if means >= 3 {
            self.replenish_locked(true)?;
        }
        Ok(())
    }

    /// Compacts the log, then empties groups, while it lacks room for the reserve in holes that segments fit into: a
    /// segment's worth at a time, each made reusable before the next. `more` goes on for as long as anything is won.
    fn replenish_locked(&self, more: bool) -> Result<(), Error> {
        let (mut best, mut idle) = (0, 0);
        for _ in 0..REPLENISH_ROUNDS {
            let (enough, usable, worth) = {
                let mut core = self.core();
                if !core.may_compact() {
                    break;
                }
                let worth = core.geometry.frags_for(core.geometry.segment_max.into());
                let whole = core.space.free_groups() * core.geometry.group_frags;
                // What stands in whole groups serves every role, and so counts twice.
                (core.has_reserve(), core.usable_log() + 2 * whole, worth)
            };
            idle = if usable > best { 0 } else { idle + 1 };
            best = best.max(usable);
            if enough && !more || idle > IDLE_ROUNDS {
                break;
            }
            let ranges = self.core().compactable(worth);
            if self.evacuate_some(&ranges)? == 0 && !self.empty_group()? {
                break;
            }
            self.make_reusable()?;
        }
        Ok(())
    }

    /// Commits what was moved, and lets the places it left be reused.
    fn make_reusable(&self) -> Result<(), Error> {
        let all: Vec<Ino> = self.core().homed.iter().copied().collect();
        self.commit_locked(&all, false, Wait::Durable)?;
        self.commit_locked(&[], true, Wait::Durable)?;
        self.checkpoint_if_due()
    }

    /// Moves everything out of the group that holds least, so that it can take another role (rule 11); returns
    /// whether there was one.
    fn empty_group(&self) -> Result<bool, Error> {
        let Some((group, ranges)) = self.core().emptiest_group() else {
            return Ok(false);
        };
        self.core().space.close_group(Some(group));
        let result = self.move_all(&ranges);
        self.core().space.close_group(None);
        match result {
            // The rest of the volume had no room for it after all; what was moved stays moved.
            Err(Error::NoSpace) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Evacuates ranges segment by segment.
    fn move_all(&self, mut ranges: &[Extent]) -> Result<(), Error> {
        while !ranges.is_empty() {
            let done = self.evacuate_some(ranges)?;
            if done == 0 {
                break;
            }
            ranges = ranges.get(done..).unwrap_or_default();
            self.make_reusable()?;
        }
        Ok(())
    }

    /// Evacuates ranges until as much is dirty as one segment takes; returns how many were looked at.
    fn evacuate_some(&self, ranges: &[Extent]) -> Result<usize, Error> {
        let mut done = 0;
        for range in ranges {
            let moved = self.step(|core| match core.evacuate(*range) {
                Err(Stop::Crowded) => Ok(false),
                other => other.map(|()| true),
            })?;
            if !moved {
                break;
            }
            done += 1;
        }
        Ok(done)
    }

    /// Brings the waiting data of `files` to their homes, then seals and writes a segment.
    fn commit_locked(&self, files: &[Ino], force: bool, wait: Wait) -> Result<(), Error> {
        self.write_homes(files)?;
        // A rename over an existing file waits for the data that it brings (rule 3).
        loop {
            let sealed = self.step(|core| {
                let held_up: Vec<Ino> = core.barrier.iter().copied().collect();
                if !held_up.is_empty() {
                    core.barrier.clear();
                    return Ok(Err(held_up));
                }
                core.seal(force).map(Ok)
            })?;
            match sealed {
                Err(files) => self.write_homes(&files)?,
                Ok(Some(segment)) => {
                    self.write_log(&segment)?;
                    break;
                }
                Ok(None) => break,
            }
        }
        if wait == Wait::Durable && self.undurable() {
            self.flush()?;
        }
        Ok(())
    }

    fn undurable(&self) -> bool {
        let core = self.core();
        core.log.durable() < core.log.tail().ssn
    }

    /// Writes the data that waits now to new homes, flushes, and lets the next segment show it. Files go together, in
    /// rounds of bounded size, so that many of them share a flush.
    fn write_homes(&self, files: &[Ino]) -> Result<(), Error> {
        let mut waiting: Vec<(Ino, usize)> = {
            let core = self.core();
            let rounds = |ino: &Ino| {
                let node = core.inodes.nodes.get(ino)?;
                let rounds = node
                    .homed
                    .dirty
                    .len()
                    .div_ceil(crate::homed::BATCH_UNITS_MAX);
                (rounds > 0).then_some((*ino, rounds))
            };
            files.iter().filter_map(rounds).collect()
        };
        while !waiting.is_empty() {
            let (mut started, mut bytes) = (Vec::new(), 0);
            let mut rest = Vec::new();
            for (ino, rounds) in waiting {
                if bytes >= HOME_ROUND {
                    rest.push((ino, rounds));
                    continue;
                }
                let write = match self.step(|core| core.start_writeback(ino)) {
                    Err(Error::Stale(_)) => continue,
                    Err(error) => {
                        self.write_round(&started)?;
                        return Err(error);
                    }
                    Ok(write) => write,
                };
                if let Some(write) = write {
                    bytes += write.writes.iter().map(|(_, b)| b.len()).sum::<usize>();
                    started.push(write);
                }
                // A round of nothing but overwrites made images, and has nothing to write itself.
                if rounds > 1 {
                    rest.push((ino, rounds - 1));
                }
            }
            self.write_round(&started)?;
            waiting = rest;
        }
        Ok(())
    }

    /// Writes the new homes of some files in the order of their addresses, flushes once, and shows them.
    fn write_round(&self, round: &[HomeWrite]) -> Result<(), Error> {
        if round.is_empty() {
            return Ok(());
        }
        let geometry = self.core().geometry;
        let mut requests: Vec<(usize, Write<'_>)> = Vec::new();
        for (i, home) in round.iter().enumerate() {
            requests.extend(home.writes.iter().map(|(at, bytes)| {
                let offset = geometry.byte_offset(*at);
                (
                    i,
                    Write {
                        offset,
                        data: bytes,
                        kind: IoKind::Homed,
                    },
                )
            }));
        }
        requests.sort_by_key(|(_, write)| write.offset);
        let (owners, writes): (Vec<usize>, Vec<Write<'_>>) = requests.into_iter().unzip();
        let mut failed = vec![None; round.len()];
        for (i, result) in owners.into_iter().zip(self.device.write(&writes)) {
            failed[i] = failed[i].take().or(result.err());
        }
        let flushed = if mutant::active("show-unflushed") {
            None
        } else {
            self.device.flush().err()
        };
        for (home, failed) in round.iter().zip(failed) {
            let error = failed.or_else(|| flushed.clone());
            let shows = self
                .core()
                .home_written(home.ino, home.batch, error.is_none());
            if let Some(error) = error {
                tracing::error!(%error, ino = home.ino.0, "cannot write a large file's data");
            } else if shows {
                self.step(|core| core.show(home.ino))?;
            }
        }
        Ok(())
    }

    /// Writes a sealed segment. A failure makes the volume read-only (rule 12).
    fn write_log(&self, segment: &Segment) -> Result<(), Error> {
        let geometry = self.core().geometry;
        let result = write_segment(self.device.as_ref(), &geometry, segment);
        for (at, bytes) in &segment.writes {
            self.reader
                .written(geometry.byte_offset(*at), bytes.len() as u64);
        }
        let mut core = self.core();
        match result {
            Ok(()) => {
                core.log.written(segment.ssn);
                core.blocks.segment_written(segment.ssn);
                Ok(())
            }
            Err(error) => {
                core.fail_log(&error);
                Err(error)
            }
        }
    }

    /// Flushes the device, and counts as durable what had been written before.
    fn flush(&self) -> Result<(), Error> {
        let prefix = self.core().log.flushable();
        let result = self.device.flush().map_err(Error::from);
        let mut core = self.core();
        if let Err(error) = &result {
            core.fail_log(error);
            return result;
        }
        core.log.flushed(prefix);
        core.release();
        Ok(())
    }

    fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.core().checkpoint_due() {
            self.checkpoint_locked()
        } else {
            Ok(())
        }
    }

    /// Writes a checkpoint and the superblock that names it (rules 5 and 9).
    fn checkpoint_locked(&self) -> Result<(), Error> {
        if self.core().read_only {
            return Err(Error::ReadOnly);
        }
        loop {
            self.step(|core| core.prepare_checkpoint())?;
            self.commit_locked(&[], false, Wait::Written)?;
            // Between the commit and here operations may have run; then the round starts again.
            let sealed = self.step(|core| {
                if core.is_dirty() {
                    return Ok(None);
                }
                core.seal_checkpoint().map(Some)
            })?;
            if let Some(segment) = sealed {
                self.write_log(&segment)?;
                break;
            }
        }
        if !mutant::active("superblock-early") {
            self.flush()?;
        }
        self.name_checkpoint()
    }

    /// Writes the superblock copy that does not hold the newest checkpoint, and flushes it.
    fn name_checkpoint(&self) -> Result<(), Error> {
        let (mut sb, slots, base) = {
            let core = self.core();
            (core.sb.clone(), core.slots, core.base)
        };
        let result = superblocks::write(self.device.as_ref(), &mut sb, &slots, base)
            .map_err(Error::from)
            .and_then(|slot| self.device.flush().map(|()| slot).map_err(Error::from));
        let mut core = self.core();
        match result {
            Ok(slot) => {
                core.slots[slot] = Some(base.ssn);
                core.sb = sb;
                core.release();
                Ok(())
            }
            Err(error) => {
                core.fail_log(&error);
                Err(error)
            }
        }
    }

    /// Settles a bounded number of images at their homes (rule 7).
    fn settle_locked(&self, max: usize) -> Result<(), Error> {
        let due = self.step(|core| core.start_settle(max))?;
        if due.units.is_empty() {
            return Ok(());
        }
        let geometry = self.core().geometry;
        let requests: Vec<Write<'_>> = due
            .units
            .iter()
            .map(|(home, _, bytes)| Write {
                offset: geometry.byte_offset(*home),
                data: bytes,
                kind: IoKind::Settle,
            })
            .collect();
        let results = self.device.write(&requests);
        let flushed = if mutant::active("settled-unflushed") {
            Ok(())
        } else {
            self.device.flush()
        };
        if let Err(error) = flushed {
            self.core().settling.clear();
            return Err(error.into());
        }
        for ((home, image, _), result) in due.units.iter().zip(results) {
            match result {
                Ok(()) => self.step(|core| core.settled(*home, *image))?,
                Err(error) => {
                    // A settle that fails keeps its image (rule 12).
                    tracing::error!(%error, home = home.0, "cannot settle an image");
                    self.core().settling.remove(home);
                }
            }
        }
        Ok(())
    }

    /// Looks after orphans and pending truncates, in bounded steps.
    fn tidy(&self, max: usize) -> Result<(), Error> {
        let mut left = max;
        while left > 0 {
            let Some(ino) = self.core().leftovers.pop_first() else {
                break;
            };
            left -= 1;
            // Removals run on a full volume too; a commit in between makes room in memory.
            while !self.run_removal(|core| core.evict(ino))? {}
            while !self.run_removal(|core| core.drain(ino))? {}
        }
        Ok(())
    }

    /// Runs a removal, committing when too much is dirty.
    fn run_removal<T>(&self, mut op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        loop {
            let mut crowded = false;
            let result = self.step(|core| match op(core) {
                Err(Stop::Crowded) => {
                    crowded = true;
                    Ok(None)
                }
                other => other.map(Some),
            })?;
            if let Some(value) = result {
                return Ok(value);
            }
            if crowded {
                let _commit = self.commit_lock();
                self.commit_locked(&[], false, Wait::Durable)?;
                self.checkpoint_if_due()?;
                if !self.core().has_reserve() {
                    // A removal that ate into the reserve: what it freed is made reusable, then the log compacted.
                    self.commit_locked(&[], true, Wait::Durable)?;
                    self.replenish_locked(false)?;
                }
            }
        }
    }

    // ---- the public interface: names ----------------------------------------------------------------------------

    /// Attributes of what a name leads to; `.` and `..` too.
    ///
    /// # Errors
    /// [`Error`], here and below.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr, Error> {
        self.run(|core| core.lookup(dir, name))
    }

    /// Attributes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Error> {
        self.run(|core| core.attr(ino))
    }

    /// Changes attributes; a new size cuts or extends a file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr, Error> {
        let attr = self.run(|core| core.setattr(ino, set))?;
        if set.size.is_some() {
            self.tidy(LEFTOVERS_STEP)?;
        }
        Ok(attr)
    }

    /// Makes a regular file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr, Error> {
        self.run(|core| core.make(dir, name, mode::REGULAR, new, b""))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr, Error> {
        self.run(|core| core.make(dir, name, mode::DIRECTORY, new, b""))
    }

    /// Makes a special file, or a regular one, of the type bits `file_type`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn mknod(
        &self,
        dir: Ino,
        name: &[u8],
        file_type: u32,
        new: &NewInode,
    ) -> Result<Attr, Error> {
        match file_type {
            mode::REGULAR | mode::FIFO | mode::SOCKET | mode::BLOCK | mode::CHARACTER => {
                self.run(|core| core.make(dir, name, file_type, new, b""))
            }
            _ => Err(Error::Invalid("this type of file cannot be made so")),
        }
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// [`Error`].
    pub fn symlink(
        &self,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        new: &NewInode,
    ) -> Result<Attr, Error> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        self.run(|core| core.make(dir, name, mode::SYMLINK, new, target))
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`Error`].
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Error> {
        self.run(|core| core.link(ino, dir, name))
    }

    /// Takes a name away from what is no directory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<(), Error> {
        self.run(|core| core.unlink(dir, name))?;
        self.tidy(1)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<(), Error> {
        self.run(|core| core.rmdir(dir, name))?;
        self.tidy(1)
    }

    /// Renames, replaces or swaps.
    ///
    /// # Errors
    /// [`Error`].
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Error> {
        self.run(|core| core.rename((dir, name), (new_dir, new_name), flags))?;
        self.tidy(1)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error`].
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        self.run(|core| core.readlink(ino))
    }

    /// Up to `max` entries from a position on, 0 being the start; each says where to go on.
    ///
    /// # Errors
    /// [`Error`].
    pub fn readdir(&self, dir: Ino, position: u64, max: usize) -> Result<Vec<DirEntry>, Error> {
        self.run(|core| core.readdir(dir, position, max))
    }

    // ---- files ---------------------------------------------------------------------------------------------------

    /// Holds an inode, so that it lives on when its last name goes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open_file(&self, ino: Ino) -> Result<(), Error> {
        self.run(|core| core.hold(ino))
    }

    /// Lets go of what [`Volume::open_file`] held.
    ///
    /// # Errors
    /// [`Error`].
    pub fn release_file(&self, ino: Ino) -> Result<(), Error> {
        self.core().let_go(ino);
        if self.core().read_only {
            Ok(())
        } else {
            self.tidy(1)
        }
    }

    /// Reads up to `len` bytes; fewer at the end of the file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.run(|core| core.read(ino, offset, len))
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize, Error> {
        // Pieces, so that one write never exceeds what may be dirty; each is atomic.
        let mut done = 0;
        for piece in data.chunks(256 << 10) {
            let result = self.run(|core| core.write(ino, offset + done as u64, piece));
            match result {
                Ok(()) => done += piece.len(),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Returns when everything that was done to an inode is on the device. `data_only` may leave out what reading
    /// the data back does not need.
    ///
    /// # Errors
    /// [`Error`]; EIO when data could not be written anywhere.
    pub fn fsync(&self, ino: Ino, data_only: bool) -> Result<(), Error> {
        let _ = data_only;
        if self.is_durable(ino)? {
            return self.take_failure(ino);
        }
        let _commit = self.commit_lock();
        // Whoever held the lock may have committed this too: fsyncs that wait together share a segment.
        if !self.is_durable(ino)? {
            if self.core().read_only {
                return Err(Error::ReadOnly);
            }
            self.commit_locked(&[ino], false, Wait::Durable)?;
            self.checkpoint_if_due()?;
        }
        self.take_failure(ino)
    }

    fn is_durable(&self, ino: Ino) -> Result<bool, Error> {
        self.step(|core| {
            let durable = core.log.durable();
            let node = core.node(ino)?;
            let clean = !node.dirty && node.homed.is_clean();
            Ok(clean && node.last <= durable)
        })
    }

    fn take_failure(&self, ino: Ino) -> Result<(), Error> {
        let mut core = self.core();
        let failed = core
            .inodes
            .nodes
            .get_mut(&ino)
            .is_some_and(|n| std::mem::take(&mut n.homed.failed));
        if failed {
            let error = loamfs_device::DeviceError::io(loamfs_device::Op::Write, 0, 0, 5);
            return Err(error.into());
        }
        Ok(())
    }

    /// Returns when everything is on the device.
    ///
    /// # Errors
    /// [`Error`].
    pub fn sync(&self) -> Result<(), Error> {
        self.commit(Wait::Durable)
    }

    // ---- attributes ----------------------------------------------------------------------------------------------

    /// The value of an attribute.
    ///
    /// # Errors
    /// [`Error`].
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.run(|core| core.getxattr(ino, name))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// [`Error`].
    pub fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> Result<(), Error> {
        self.run(|core| core.setxattr(ino, name, value, how))
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Error> {
        self.run(|core| core.listxattr(ino))
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`Error`].
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), Error> {
        self.run(|core| core.removexattr(ino, name))
    }

    // ---- the volume ----------------------------------------------------------------------------------------------

    /// Figures for statfs(2), from memory.
    pub fn statfs(&self) -> StatFs {
        let core = self.core();
        let g = &core.geometry;
        let frag = u64::from(g.fragment_size);
        let waiting = (core.segment_estimate() + core.homed_bytes()) / frag;
        let free = core.space.free_frags().saturating_sub(waiting);
        StatFs {
            fragment_size: g.fragment_size,
            block_size: g.block_size,
            total: g.total_frags,
            free,
            available: free.saturating_sub(core.reserve_bytes() / frag),
            inodes: core.inodes.live,
            inodes_free: (INO_MAX - core.inodes.live).min(free),
        }
    }

    /// Figures of the volume.
    pub fn info(&self) -> Info {
        let core = self.core();
        let g = core.geometry;
        let mut groups = [0; 3];
        for group in 0..g.groups() {
            match core.space.role(GroupNo(group)) {
                Role::Free => groups[0] += 1,
                Role::Log => groups[1] += 1,
                _ => groups[2] += 1,
            }
        }
        Info {
            uuid: core.sb.uuid,
            label: core.sb.label.clone(),
            fragment_size: g.fragment_size,
            block_size: g.block_size,
            group_size: g.group_frags * u64::from(g.fragment_size),
            groups,
            total_frags: g.total_frags,
            used_frags: core.space.used(),
            held_frags: core.space.held_frags(),
            segment: core.log.tail().ssn,
            durable: core.log.durable(),
            checkpoint: core.base.ssn,
            inodes: core.inodes.live,
            images: core.maps.lazy_map.len() as u64,
            cached_bytes: core.blocks.cached_bytes(),
            dirty_log_bytes: core.segment_estimate(),
            dirty_home_bytes: core.homed_bytes(),
            bitmap_bytes: core.space.loaded_bytes() as u64,
            cached_inodes: core.inodes.nodes.len() as u64,
            read_only: core.read_only,
            device: self.device.counters(),
        }
    }

    /// Commits everything that waits.
    ///
    /// # Errors
    /// [`Error`].
    pub fn commit(&self, wait: Wait) -> Result<(), Error> {
        let _commit = self.commit_lock();
        if self.core().read_only {
            return Ok(());
        }
        let all: Vec<Ino> = self.core().homed.iter().copied().collect();
        self.commit_locked(&all, false, wait)?;
        self.checkpoint_if_due()
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// [`Error`].
    pub fn checkpoint(&self) -> Result<(), Error> {
        let _commit = self.commit_lock();
        self.checkpoint_locked()
    }

    /// Settles up to `max` images at their homes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn settle(&self, max: usize) -> Result<(), Error> {
        let _commit = self.commit_lock();
        self.settle_locked(max)
    }

    /// Does what is due by the clock: commit by age, leftovers of an earlier mount, settling, checkpoints.
    ///
    /// # Errors
    /// [`Error`].
    pub fn tick(&self) -> Result<(), Error> {
        if self.core().read_only {
            return Ok(());
        }
        self.collect_orphans()?;
        self.tidy(LEFTOVERS_STEP)?;
        let (old, unsaid, images, images_max) = {
            let core = self.core();
            let now = core.clock.now();
            let old = core
                .dirty_since
                .is_some_and(|since| age_ms(since, now) >= self.commit_age_ms);
            let unsaid = core.space.held_frags() > 0 && core.log.said() < core.log.durable();
            (old, unsaid, core.maps.lazy_map.len(), core.images_max())
        };
        if old {
            self.commit(Wait::Durable)?;
        } else if unsaid && self.core().dirty_since.is_none() {
            self.say_durable()?;
        }
        if images > images_max {
            self.settle(SETTLE_STEP)?;
        }
        self.reclaim()?;
        let _commit = self.commit_lock();
        self.checkpoint_if_due()
    }

    /// Keeps the reserve whole while nobody waits for it.
    fn reclaim(&self) -> Result<(), Error> {
        let low = {
            let core = self.core();
            core.space.free_groups() <= core.reserve_groups()
        };
        if !low {
            return Ok(());
        }
        let _commit = self.commit_lock();
        self.replenish_locked(false)
    }

    /// In idle times a segment that says nothing but `durable` lets freed space be reused.
    fn say_durable(&self) -> Result<(), Error> {
        let _commit = self.commit_lock();
        let frees_wait = {
            let core = self.core();
            let said = core.log.said();
            core.space
                .held()
                .any(|(_, wait)| matches!(wait, loamfs_space::Wait::Durable(ssn) if ssn > said))
        };
        if frees_wait {
            self.commit_locked(&[], true, Wait::Durable)
        } else {
            Ok(())
        }
    }

    /// Finds the orphans that an earlier mount left behind, once.
    fn collect_orphans(&self) -> Result<(), Error> {
        if self.core().orphans_seen {
            return Ok(());
        }
        let mut from = InodeBlockNo(0);
        loop {
            let found = self.step(|core| core.maps.orphans(&mut core.blocks, from, 256))?;
            let mut core = self.core();
            for (block, bits) in &found {
                let orphans = (0..32).filter(|slot| bits & (1 << slot) != 0);
                core.leftovers
                    .extend(orphans.map(|slot| ino_at(*block, slot)));
            }
            match found.last() {
                Some((last, _)) => from = InodeBlockNo(last.0 + 1),
                None => {
                    core.orphans_seen = true;
                    return Ok(());
                }
            }
        }
    }

    /// Unmounts cleanly: everything is committed, and a checkpoint makes the next mount quick.
    ///
    /// # Errors
    /// [`Error`].
    pub fn close(&self) -> Result<(), Error> {
        if self.core().read_only {
            return Ok(());
        }
        self.collect_orphans()?;
        self.tidy(usize::MAX)?;
        let _commit = self.commit_lock();
        let all: Vec<Ino> = self.core().homed.iter().copied().collect();
        self.commit_locked(&all, false, Wait::Durable)?;
        self.checkpoint_locked()
    }
}

fn age_ms(since: Timestamp, now: Timestamp) -> u64 {
    let nanos = |t: Timestamp| i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos);
    u64::try_from((nanos(now) - nanos(since)) / 1_000_000).unwrap_or(0)
}
