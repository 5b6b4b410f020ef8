//! Bringing changes to the device: segments, flushes, checkpoints and the superblocks that name them.
//!
//! | what is called commit | what it does |
//! |---|---|
//! | [`Upkeep::commit`] | writes out all that waits, homes too, and takes a checkpoint if one is due |
//! | [`Sealer::commit_all`], [`Sealer::commit_shown`] | the same without the checkpoint; a segment of what segments can show now |
//! | `Core::commit`, the folder `commit` | puts one segment together, in memory |

use super::barrier::Rounds;
use super::{Durability, Engine, Sealer, Upkeep};
use crate::core::Core;
use crate::error::Error;
use crate::law::{self, Failed, Step};
use crate::reclaim::Fight;
use crate::writeback::{NotHome, lacks_space};
use loamfs_format::Ino;
use loamfs_format::superblock::Superblock;
use loamfs_log::segment::Segment;
use loamfs_log::superblocks;
use std::sync::PoisonError;

/// Bytes of segments that a mount may have to verify, since no flush vouches for them (rule 9).
const UNDURABLE_MAX: u64 = 32 << 20;

/// What follows a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// More, perhaps.
    Open,
    /// Nothing: the volume is closed.
    Closed,
}

impl Upkeep<'_> {
    /// Commits everything that waits.
    ///
    /// # Errors
    /// [`Error`]; a large file's, if its data could not be written, after all else was. On a volume that became
    /// read-only, that there is something which cannot be committed any more.
    pub fn commit(&self, durability: Durability) -> Result<(), Error> {
        let engine = self.engine();
        if !engine.core().access.is_writable() {
            return engine.nothing_waits();
        }
        let unwritten = engine.write_out(durability)?;
        let sealer = engine.sealer();
        sealer.checkpoint_if_due()?;
        sealer.keep_reserve()?;
        sealer.clean_ahead_of_segment();
        all_written(unwritten)
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// [`Error`].
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.engine().sealer().checkpoint(End::Open)
    }
}

/// What must come before a checkpoint.
enum First {
    /// The data of these files, for which a segment waits (rule 3).
    Data(Vec<Ino>),
    /// A segment of its own, and a flush.
    Segment,
}

impl Engine {
    /// That a volume which takes no changes has none that are not durable.
    pub(super) fn nothing_waits(&self) -> Result<(), Error> {
        let core = self.core();
        let undurable = core.log.durable() < core.log.tail().ssn;
        let waits = undurable || core.is_dirty() || !core.writeback.files().is_empty();
        match waits || core.access.broken().is_some() {
            true => core.access.check(),
            false => Ok(()),
        }
    }

    /// Commits everything that waits. While large files' data are on their way home others commit what they wait for
    /// (rule 3): only the segment is sealed under the lock.
    pub(super) fn write_out(&self, durability: Durability) -> Result<NotHome, Error> {
        let mut unwritten = {
            // Whoever writes everything out writes in the order of addresses, and is alone therefore.
            let _sweeping = self
                .turns
                .sweeping
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.clean_ahead();
            let waiting = self.core().writeback.take_waiting();
            let brought = self.bring_home(&waiting);
            self.wait_again(&brought);
            brought?
        };
        let sealer = self.sealer();
        sealer.keep_atimes();
        unwritten.append(&mut sealer.commit_shown(false, durability)?);
        Ok(unwritten)
    }

    /// What has not come home is as old as what comes now, if there was no room for it and may be later. Whatever else was in its way
    /// the clock would meet again and again, each time at the price of the homes that it tries (rule 12): such data wait for the
    /// next change or sync.
    fn wait_again(&self, written: &Result<NotHome, Error>) {
        let mut core = self.core();
        let waits = match written {
            Ok(unwritten) => {
                unwritten.iter().any(lacks_space) && !core.fights().is_lost(Fight::Room)
            }
            Err(_) => true,
        };
        if waits {
            core.note_waiting();
        }
    }

    /// Commits everything that waits once the oldest change that is not durable is old enough. Whether that was so. It may be in a
    /// segment that was written, but not flushed, for want of room in memory, or wait for its home while segments are sealed and flushed.
    pub(super) fn commit_by_age(&self) -> Result<bool, Error> {
        let is_due = {
            let core = self.core();
            let now = core.env.elapsed();
            let since = core.undurable_since();
            since.is_some_and(|since| now.saturating_sub(since) >= self.commit_age)
        };
        if is_due {
            // What of large files could not be written waits on, and is the next fsync's error.
            self.write_out(Durability::Durable)?;
        }
        Ok(is_due)
    }

    /// Flushes the device. After one that failed none is trusted again, whatever it was for: anything that was written
    /// before may be lost, and a later one would not tell (rule 12). Nor would one that was under way meanwhile.
    pub(crate) fn flush_device(&self) -> Result<(), Error> {
        self.device
            .flush()
            .map_err(|error| self.fail_flush(error.into()))?;
        self.check_flushes()
    }

    /// That no flush has failed: one that is over does not tell of what another one lost.
    ///
    /// # Errors
    /// Why the log failed.
    pub(super) fn check_flushes(&self) -> Result<(), Error> {
        if !self.law.heeds(Failed::Flush) {
            return Ok(());
        }
        let mut core = self.core();
        if let Some(error) = self.failed_flush.get() {
            core.access.fail_log(error);
        }
        core.access.check_log()
    }

    /// A flush failed. Returns how.
    fn fail_flush(&self, error: Error) -> Error {
        // Another one's that is over may be looked at before this thread has the state.
        let _ = self.failed_flush.set(error.clone());
        let _ = self.check_flushes();
        error
    }

    /// What came of something that flushes devices by itself, whose flushes count as those of the volume.
    pub(super) fn heed<T>(&self, done: Result<T, impl Into<Error>>) -> Result<T, Error> {
        done.map_err(|error| match error.into() {
            error if error.is_of_flush() => self.fail_flush(error),
            error => error,
        })
    }
}

impl Sealer<'_> {
    /// Commits everything that waits, and lets nobody else commit meanwhile.
    pub(super) fn commit_all(&self, durability: Durability) -> Result<NotHome, Error> {
        let waiting = self.core().writeback.take_waiting();
        let written = self.write_homes(&waiting, Some(self));
        self.wait_again(&written);
        let mut unwritten = written?;
        self.keep_atimes();
        unwritten.append(&mut self.commit_shown(false, durability)?);
        Ok(unwritten)
    }

    /// Seals a segment of what segments can show now. Files whose data stay where they are do not hold the others up.
    pub(super) fn commit_shown(
        &self,
        force: bool,
        durability: Durability,
    ) -> Result<NotHome, Error> {
        let (unwritten, ()) = self.commit_and(force, durability, |_| ())?;
        Ok(unwritten)
    }

    /// As [`Sealer::commit_shown`]; returns what `look` saw when the segment was sealed.
    pub(super) fn commit_and<T>(
        &self,
        force: bool,
        durability: Durability,
        look: impl Fn(&Core) -> T,
    ) -> Result<(NotHome, T), Error> {
        self.core().access.check()?;
        // A rename over an existing file waits for the data that it brings (rule 3).
        let (mut unwritten, mut rounds) = (NotHome::new(), Rounds::of(self));
        let (segment, seen) = loop {
            let sealed = self.step(|core| {
                let held_up = core.held_up();
                if !held_up.is_empty() {
                    return Ok(Err(held_up));
                }
                let segment = core.commit(self).seal(force)?;
                Ok(Ok((segment, look(core))))
            })?;
            match sealed {
                Ok(sealed) => break sealed,
                Err(files) => unwritten.append(&mut self.pass(&files, &mut rounds)?),
            }
        };
        if let Some(segment) = segment {
            self.launch_in_order(segment)?;
        }
        if self.must_flush(durability) {
            self.flush()?;
        }
        Ok((unwritten, seen))
    }

    /// Writes out what files hold the next segment up by; those that fail hold nothing up any more. After some rounds nothing is
    /// changed before the segment is sealed, so that no more files come.
    fn pass(&self, files: &[Ino], rounds: &mut Rounds<'_>) -> Result<NotHome, Error> {
        let failed = self.write_homes(files, Some(self))?;
        let mut core = self.core();
        let over = |ino: &Ino| failed.iter().any(|(of, _)| of == ino);
        core.writeback.let_pass_if(over);
        rounds.pass(&mut core);
        drop(core);
        Ok(failed)
    }

    /// Seals a segment of the images that there are, to make room for more, unless it had to wait for files' data.
    pub(crate) fn seal_early(&self) -> Result<(), Error> {
        let sealed = self.step(|core| {
            if core.held_up().is_empty() {
                core.commit(self).seal(false)
            } else {
                Ok(None)
            }
        })?;
        sealed.map_or(Ok(()), |segment| self.launch_in_order(segment))
    }

    /// Launches a segment. Behind a superblock the arm of a shingled disk stands at its cache: of the segments that wait then it may take
    /// a later one first, and the band of an earlier one is written anew. So the first one is flushed by itself.
    fn launch_in_order(&self, segment: Segment) -> Result<(), Error> {
        let is_parted = {
            let core = self.core();
            let is_first = segment.ssn == core.checkpoints.newest_named().next();
            is_first && core.sb.disk.is_some_and(|disk| disk.shingled)
        };
        self.launch(segment)?;
        match is_parted {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Whether a commit ends with a flush: the caller waits for one, or another segment of the largest size would
    /// leave too much undurable.
    fn must_flush(&self, durability: Durability) -> bool {
        let core = self.core();
        let undurable = core.log.undurable_bytes();
        let next = u64::from(core.geometry.segment_max);
        let full = undurable + next > UNDURABLE_MAX && self.law.bounds_undurable();
        undurable > 0 && (durability == Durability::Durable || full)
    }

    /// Flushes the device after all segments are written, and counts them as durable.
    pub(super) fn flush(&self) -> Result<(), Error> {
        self.land()?;
        let prefix = self.core().log.flushable();
        self.flush_device()?;
        let mut core = self.core();
        core.log.flushed(prefix);
        let durable = core.log.durable();
        core.pending.flushed(durable);
        core.releasing().after(Step::Flushed);
        Ok(())
    }

    pub(super) fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.core().budget().forecast().checkpoint_due() {
            self.checkpoint(End::Open)?;
        }
        let many = self.core().has_many_held();
        match many {
            true => self.renew(),
            false => Ok(()),
        }
    }

    /// Two checkpoints, so that both superblock copies name one from here on: what is in the superblock stands in both, and
    /// nothing is held back but what the second supersedes.
    pub(super) fn name_in_both(&self) -> Result<(), Error> {
        self.checkpoint(End::Open)?;
        let is_behind = self.core().is_behind();
        match is_behind {
            // What waits for both waits for a copy too.
            true => self.renew(),
            false => self.checkpoint(End::Open),
        }
    }

    /// Writes a checkpoint and the superblock that names it (rules 5 and 9).
    pub(super) fn checkpoint(&self, end: End) -> Result<(), Error> {
        self.core().access.check()?;
        self.step(|core| core.commit(self).prepare_checkpoint())?;
        self.commit_shown(false, Durability::Written)?;
        let mut rounds = Rounds::of(self);
        while let Some(first) = self.seal_checkpoint()? {
            match first {
                First::Data(files) => drop(self.pass(&files, &mut rounds)?),
                First::Segment => drop(self.commit_shown(false, Durability::Durable)?),
            }
        }
        self.flush()?;
        self.name_checkpoint(end)
    }

    /// Seals what operations have changed since the last segment, and a checkpoint behind it: whoever waited until nothing is
    /// dirty would wait for them. Returns what must come first, if anything.
    fn seal_checkpoint(&self) -> Result<Option<First>, Error> {
        let mut sealed = Vec::new();
        let first = self.step(|core| {
            if core.is_dirty() {
                let files = core.held_up();
                if !files.is_empty() {
                    return Ok(Some(First::Data(files)));
                }
                if !self.takes_along(core) {
                    return Ok(Some(First::Segment));
                }
                sealed.extend(core.commit(self).seal(false)?);
            }
            if core.is_dirty() {
                return Ok(Some(First::Segment));
            }
            sealed.push(core.commit(self).seal_checkpoint()?);
            Ok(None)
        });
        for segment in sealed {
            self.launch(segment)?;
        }
        first
    }

    /// Whether what may be undurable leaves room for one segment more before the checkpoint.
    fn takes_along(&self, core: &mut Core) -> bool {
        let both = core.budget().segment_length() + u64::from(core.geometry.segment_max);
        let fits = core.log.undurable_bytes() + both <= UNDURABLE_MAX;
        fits || !self.law.bounds_undurable()
    }

    /// Writes the superblock copy that does not hold the newest checkpoint, and flushes it.
    pub(super) fn name_checkpoint(&self, end: End) -> Result<(), Error> {
        self.core().access.check()?;
        self.write_superblock(end)
    }

    /// The same, also of a volume that was closed.
    pub(super) fn write_superblock(&self, end: End) -> Result<(), Error> {
        let (mut sb, named, base) = {
            let core = self.core();
            let sb = Superblock {
                durable: core.log.durable(),
                clean: end == End::Closed && core.log.tail().ssn == core.checkpoints.last().ssn,
                ..core.sb.clone()
            };
            (sb, core.checkpoints.named(), core.checkpoints.last())
        };
        let law = law::of_log(&self.law);
        let result = superblocks::write(self.device.as_ref(), &mut sb, &named, base, &law)
            .map_err(Error::from)
            .and_then(|copy| self.flush_device().map(|()| copy));
        let mut core = self.core();
        match result {
            Ok(copy) => {
                core.checkpoints.name(copy, base.ssn);
                // What follows would not be looked for.
                if sb.clean {
                    core.access.end();
                }
                // What a scrub noted meanwhile stands in the next one.
                let scrub = core.sb.scrub;
                core.sb = Superblock { scrub, ..sb };
                core.releasing().after(Step::Named);
                Ok(())
            }
            Err(error) => {
                core.access.fail_log(&error);
                Err(error)
            }
        }
    }
}

/// The first of what could not be written, as an error.
pub(super) fn all_written(unwritten: NotHome) -> Result<(), Error> {
    match unwritten.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Durability, UNDURABLE_MAX};
    use crate::fixture::{file, made};
    use crate::{Env, MkfsOptions, OpenOptions, SetAttr, Volume, mkfs};
    use loamfs_device::{Device, Effect, FaultyDevice, MemoryDevice, Op, Request};
    use loamfs_format::ifile::INODES_PER_BLOCK;
    use loamfs_format::superblock::DiskFigures;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    /// A volume of which the next flush fails, and how many there were since.
    fn failing() -> (Volume, Arc<AtomicU32>) {
        const NONE: u32 = u32::MAX;
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
        mkfs(&memory, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let flushes = Arc::new(AtomicU32::new(NONE));
        let seen = Arc::clone(&flushes);
        let plan = move |request: &Request| {
            let counts = request.op == Op::Flush && seen.load(Ordering::SeqCst) != NONE;
            (counts && seen.fetch_add(1, Ordering::SeqCst) == 0).then_some(Effect::Fail)
        };
        let device = Arc::new(FaultyDevice::with_plan(memory, plan));
        let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
        flushes.store(0, Ordering::SeqCst);
        (volume, flushes)
    }

    /// Whoever met it waits for the lock of the state, and is not the next who gets it.
    #[test]
    fn a_flush_that_failed_is_known_before_whoever_met_it_has_the_state() {
        for round in 0..50 {
            let (volume, flushes) = failing();
            let core = volume.core();
            thread::scope(|scope| {
                let flush = || scope.spawn(|| volume.engine.flush_device().is_ok());
                let first = flush();
                while flushes.load(Ordering::SeqCst) < 1 {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(2));
                let second = flush();
                while flushes.load(Ordering::SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                drop(core);
                let trusted = [first, second].map(|flush| flush.join().unwrap());
                assert_eq!(trusted, [false; 2], "round {round}");
            });
        }
    }

    /// How often a device of such a disk is flushed while three segments are sealed behind a superblock, after each of them.
    fn flushes_behind_a_superblock(disk: DiskFigures, seal: fn(&Volume)) -> [u64; 3] {
        let how = MkfsOptions {
            disk: Some(disk),
            ..MkfsOptions::default()
        };
        let volume = made(64 << 20, &how, &OpenOptions::default());
        let flushes = || volume.engine.device.counters().flushes();
        volume.upkeep().checkpoint().unwrap();
        let before = flushes();
        [b"a", b"b", b"c"].map(|name| {
            file(&volume, name);
            let tail = volume.core().log.tail().ssn;
            seal(&volume);
            assert!(volume.core().log.tail().ssn > tail);
            flushes() - before
        })
    }

    /// Whatever seals it.
    #[test]
    fn on_a_shingled_disk_the_first_segment_behind_a_superblock_is_flushed_by_itself() {
        let commit = |volume: &Volume| volume.upkeep().commit(Durability::Written).unwrap();
        let early = |volume: &Volume| volume.engine.sealer().seal_early().unwrap();
        for seal in [commit, early] {
            assert_eq!(
                flushes_behind_a_superblock(DiskFigures::SHINGLED, seal),
                [1; 3]
            );
            assert_eq!(
                flushes_behind_a_superblock(DiskFigures::usual(true), seal),
                [0; 3]
            );
        }
    }

    /// Their blocks were counted, so that a checkpoint waited for a segment, and for the next one while others went on.
    #[test]
    fn changes_that_are_said_in_few_bytes_ride_before_a_checkpoint() {
        let volume = made(2 << 30, &MkfsOptions::default(), &OpenOptions::default());
        let files: Vec<_> = (0..1200 * INODES_PER_BLOCK)
            .map(|number| file(&volume, format!("file {number}").as_bytes()))
            .collect();
        volume.sync().unwrap();
        let touched = SetAttr {
            uid: Some(7),
            ..SetAttr::default()
        };
        for ino in files.iter().step_by(INODES_PER_BLOCK as usize) {
            volume.setattr(*ino, &touched).unwrap();
        }
        let sealer = volume.engine.sealer();
        let mut core = volume.core();
        assert!(core.budget().segment_estimate() > UNDURABLE_MAX / 2);
        assert!(sealer.takes_along(&mut core));
    }
}
