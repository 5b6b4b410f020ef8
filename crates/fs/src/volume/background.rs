//! What is done by the clock, and what an earlier operation or mount has left to do.

use super::commit::{End, all_written};
use super::drive::{Lack, Ways};
use super::{Durability, Engine, Sealer, Upkeep};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::operations::drain::Drain;
use crate::operations::evict::{Evict, Evicted};
use crate::patience;
use crate::types::Attr;
use loamfs_format::ifile::ino_at;
use loamfs_format::{Ino, InodeBlockNo, Ssn};
use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Requests by which devices are told of what was freed in one step.
const DISCARDS: usize = 256;
/// Checkpoints in a row that give space back.
const GIVE_BACK_ROUNDS: usize = 6;
/// Inodes whose leftovers one step looks at.
pub(super) const LEFTOVERS_STEP: usize = 64;

impl Upkeep<'_> {
    /// Does what is due by the clock: commit by age, leftovers of an earlier mount, settling, checkpoints,
    /// emptying groups while few are free, large files in order, hot data, what is owed to slow devices, and tracks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn tick(&self) -> Result<(), Error> {
        let engine = self.engine();
        engine.spare().free();
        let ticking = engine.turns.ticking.read();
        let _ticking = ticking.unwrap_or_else(PoisonError::into_inner);
        if !self.core().access.is_writable() {
            return Ok(());
        }
        let quiet = self.former().is_quiet();
        self.find_leftovers();
        engine.tidy_after(LEFTOVERS_STEP);
        self.reserve_places();
        let is_unrecorded = {
            let core = self.core();
            core.space.held().frags() > 0 && core.log.recorded() < core.log.durable()
        };
        let committed = engine.commit_by_age()?;
        if !committed && is_unrecorded && self.core().pending.since().is_none() {
            engine.sealer().say_durable()?;
        }
        let settles = engine.sweeper().settle_in_time()?;
        engine.discard_in_steps(DISCARDS);
        let sealer = engine.sealer();
        sealer.keep_reserve()?;
        sealer.clean_ahead_of_segment();
        sealer.checkpoint_if_due()?;
        sealer.give_back()?;
        sealer.warm();
        drop(sealer);
        if let Err(error) = engine.renew_in_time() {
            tracing::error!(%error, "the copy of the log that is behind cannot be renewed");
        }
        self.pay_back(quiet && !settles);
        if quiet {
            engine.empty_in_idle_time();
        }
        self.gather_in_idle_time(quiet && !settles);
        if quiet && !settles && self.former().may_form() {
            self.former().form_in_idle_time();
        }
        self.former().end_tick();
        Ok(())
    }

    /// Settles up to `max` images at their homes (rule 7). On a read-only volume it does nothing. One that fails keeps its
    /// image (rule 12), and is not tried again before the next mount, unless that may pass, as a lack of memory does. Others
    /// commit meanwhile, and wait for no lock of a sweep; but their flushes take along what of it is not flushed: 4 MiB at most, or 16 MiB
    /// if nobody else had made anything durable since the sweep began.
    ///
    /// # Errors
    /// [`Error`].
    pub fn settle(&self, max: usize) -> Result<(), Error> {
        self.engine().sweeper().settle(max)
    }

    /// Orphans and pending truncates that wait for [`Upkeep::tick`], which looks after some of them at a time.
    pub fn leftovers(&self) -> usize {
        self.core().leftovers.waiting()
    }

    /// Holds all inodes without a name that a crash has left and of which `is_known` says that somebody still has them. To
    /// be called before the first [`Upkeep::tick`], which removes what nobody holds. Each is let go of as what
    /// [`crate::Volume::open_file`] held. Those that cannot be read are left alone.
    pub fn hold_orphans(&self, mut is_known: impl FnMut(&Attr) -> bool) {
        self.find_leftovers();
        let waiting = self.core().leftovers.list();
        for ino in waiting {
            let Ok(attr) = self.volume().getattr(ino) else {
                continue;
            };
            if attr.nlink == 0 && is_known(&attr) {
                // Whether it may be given a name again the kernel knows.
                self.core().leftovers.holders().hold_nameless(ino);
            }
        }
    }

    /// Finds what an earlier mount left over, once: orphans and pending truncates.
    pub(super) fn find_leftovers(&self) {
        if self.core().leftovers.are_found() {
            return;
        }
        let mut from = Some(InodeBlockNo(0));
        while let Some(at) = from {
            from = match self
                .engine()
                .step(|core| core.maps.orphans(&mut core.blocks, at))
            {
                Ok((found, next)) => {
                    let slots = |(block, bits): (InodeBlockNo, u32)| {
                        let set = (0..32).filter(move |slot| bits & (1 << slot) != 0);
                        set.map(move |slot| ino_at(block, slot))
                    };
                    let found = found.into_iter().flat_map(slots);
                    found.for_each(|ino| self.core().leftovers.add(ino));
                    next
                }
                Err(error) => {
                    tracing::error!(%error, "cannot find what an earlier mount left over");
                    None
                }
            };
        }
        self.core().leftovers.note_found();
    }
}

impl Engine {
    /// What says whether somebody has asked for anything since, or waits for the right to seal, or did when it was asked before: what
    /// that ended is over.
    pub(super) fn asked_from_now_on(&self) -> impl Fn() -> bool + use<'_> {
        let (asked, over) = (self.tally.asked(), Cell::new(false));
        move || {
            let waits = || self.turns.wait_to_seal.load(Ordering::Relaxed) > 0;
            over.set(over.get() || self.tally.asked() != asked || waits());
            over.get()
        }
    }

    /// Looks after up to `max` orphans and pending truncates. One that is damaged is named in the log and left as it is:
    /// it is nobody's error who happens to be there.
    ///
    /// # Errors
    /// That there is no room even to give space back, or that the log failed.
    pub(super) fn tidy(&self, max: usize) -> Result<(), Error> {
        for _ in 0..max {
            let ino = {
                let mut core = self.core();
                if !core.access.is_writable() {
                    break;
                }
                core.leftovers.next()
            };
            let Some(ino) = ino else {
                break;
            };
            match patience::apart(|| finish(self, ino)) {
                Ok(()) => {}
                // Who has time comes for it.
                Err(Error::WouldWait) => {
                    self.core().leftovers.add(ino);
                    break;
                }
                Err(error @ (Error::NoSpace | Error::ReadOnly)) => {
                    self.core().leftovers.add(ino);
                    return Err(error);
                }
                Err(error) => {
                    let mut core = self.core();
                    if !core.access.is_writable() {
                        return Err(error);
                    }
                    let text = error.to_string();
                    if core.leftovers.give_up(ino, error) {
                        tracing::error!(
                            error = text,
                            ino = ino.0,
                            "cannot finish removing or cutting a file"
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks after what an operation that is over has left, which is no part of its success.
    pub(super) fn tidy_after(&self, max: usize) {
        if let Err(error) = self.tidy(max) {
            tracing::warn!(%error, "what is left of files that were removed or cut waits");
        }
    }

    /// Runs a removal, committing when too much is dirty.
    pub(super) fn run_removal<T>(
        &self,
        mut op: impl FnMut(&mut Core) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        let mut ways = Ways::default();
        loop {
            let mut last = Ssn(0);
            let done = self.step_unless_crowded(|core| {
                last = core.log.tail().ssn;
                op(core)
            });
            let lack = match done? {
                Ok(value) => return Ok(value),
                Err(lack) => lack,
            };
            patience::wait()?;
            match lack {
                Lack::Memory => {
                    if !self.sealer().make_room_in_memory(last)? {
                        ways.count_in_vain()?;
                    }
                }
                Lack::Space { settled } => {
                    ways.count(settled)?;
                    self.make_way(settled)?;
                }
            }
        }
    }
}

impl Sealer<'_> {
    /// Commits what is dirty, for whoever was crowded behind segment `last`. Whether he or others had anything to write: else what waits
    /// for homes takes the room, or a checkpoint must give some back.
    fn make_room_in_memory(&self, last: Ssn) -> Result<bool, Error> {
        self.commit_shown(false, Durability::Durable)?;
        self.checkpoint_if_due()?;
        self.keep_reserve()?;
        let had_some = || self.core().log.tail().ssn > last;
        if had_some() {
            return Ok(true);
        }
        let unwritten = self.commit_all(Durability::Durable)?;
        if had_some() {
            return Ok(true);
        }
        all_written(unwritten)?;
        match self.checkpoint(End::Open) {
            // Room was made all the same, or the next time there is none.
            Ok(()) | Err(Error::NoSpace) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// In idle times a segment that says nothing but `durable` lets freed space be reused.
    fn say_durable(&self) -> Result<(), Error> {
        let frees_wait = {
            let core = self.core();
            let recorded = core.log.recorded();
            core.space
                .held()
                .iter()
                .any(|(_, wait)| matches!(wait, loamfs_space::Wait::Durable(ssn) if ssn > recorded))
        };
        if frees_wait {
            self.commit_shown(true, Durability::Durable)?;
        }
        Ok(())
    }

    /// In idle times checkpoints give back what waits for them, if it is much: after many files were removed it is a large
    /// part of the maps. The first lets go of it, the second makes it free, and so it is with what these two left behind.
    fn give_back(&self) -> Result<(), Error> {
        // What waits for a copy a checkpoint does not give back.
        if self.core().budget().is_settled() || self.core().is_behind() {
            return Ok(());
        }
        for _ in 0..GIVE_BACK_ROUNDS {
            let due = {
                let mut core = self.core();
                let idle = core.pending.since().is_none() && !core.is_dirty();
                idle && core.budget().forecast().holds_back_much()
            };
            if !due {
                break;
            }
            self.checkpoint(End::Open)?;
        }
        Ok(())
    }
}

/// Removes an orphan that nobody holds, or ends a pending truncate.
fn finish(engine: &Engine, ino: Ino) -> Result<(), Error> {
    // Removals run on a full volume too; a commit in between makes room in memory.
    let mut step = |core: &mut Core| match core.perform(&Evict { ino })? {
        Evicted::More => Ok(false),
        Evicted::Gone => Ok(true),
        Evicted::Stays => core.perform(&Drain { ino }),
    };
    while !engine.run_removal(&mut step)? {}
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::blocks::Stop;
    use crate::env::ManualClock;
    use crate::error::Error;
    use crate::fixture::{file, made, volume};
    use crate::{Durability, Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
    use loamfs_device::{Buffer, Device, Effect, FaultyDevice, IoKind, MemoryDevice, Op, Rule};
    use loamfs_format::ifile::INODES_PER_BLOCK;
    use loamfs_format::kind::MapTree;
    use loamfs_format::node::NODE_SIZE;
    use std::sync::Arc;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use std::time::Duration;

    /// A clock, and a volume that goes by it.
    fn clocked() -> (Arc<ManualClock>, Volume) {
        clocked_on(Arc::new(MemoryDevice::new(64 << 20)))
    }

    fn clocked_on(device: Arc<dyn Device>) -> (Arc<ManualClock>, Volume) {
        mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let clock = Arc::new(ManualClock::new(1));
        let env = Env::seeded(clock.clone(), 2);
        let volume = Volume::open(device, &OpenOptions::default(), env).unwrap();
        (clock, volume)
    }

    /// Who had too much in memory committed it without a flush. If that was the last change, none ever came.
    #[test]
    fn what_was_committed_to_make_room_in_memory_is_flushed_by_age() {
        let (clock, volume) = clocked();
        let inos: Vec<_> = (0..30).map(|n| file(&volume, &[b'a' + n])).collect();
        volume.sync().unwrap();
        // What waits for a segment to say that it is free has one flushed, too. A first write frees nothing, and its inode is a delta.
        for _ in 0..4 {
            volume.upkeep().tick().unwrap();
        }
        volume.write(inos[7], 0, &[7; 128 << 10]).unwrap();
        clock.advance(3_000_000_000);
        volume.engine.relieve().unwrap();
        let sealed = volume.core().log.tail().ssn;
        volume.upkeep().tick().unwrap();
        assert!(volume.core().log.durable() < sealed);
        clock.advance(2_000_000_000);
        volume.upkeep().tick().unwrap();
        assert!(volume.core().log.durable() >= sealed);
    }

    /// Each try keeps the homes on which it failed, until the volume was full by itself.
    #[test]
    fn data_that_cannot_be_written_are_not_tried_by_the_clock_alone() {
        let faulty = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(64 << 20))));
        let (clock, volume) = clocked_on(faulty.clone());
        let ino = file(&volume, b"large");
        volume.sync().unwrap();
        let fails = Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Homed);
        faulty.set_rules(vec![fails]);
        volume.write(ino, 0, &[7; 1 << 20]).unwrap();
        let mut free = Vec::new();
        for _ in 0..20 {
            clock.advance(5_000_000_000);
            volume.upkeep().tick().unwrap();
            free.push(volume.core().space.usage().free_frags());
        }
        assert!(free[3..].iter().all(|now| *now >= free[3]), "{free:?}");
        assert!(volume.sync().is_err(), "nobody is told");
        faulty.set_rules(Vec::new());
        volume.sync().unwrap();
        assert_eq!(volume.read(ino, 0, 1 << 20).unwrap(), [7; 1 << 20]);
    }

    /// Another file's fsyncs took its age away, so that it waited without end.
    #[test]
    fn a_large_file_is_written_out_by_age_whatever_else_is_synced() {
        let (clock, volume) = clocked();
        let (large, other) = (file(&volume, b"large"), file(&volume, b"other"));
        volume.sync().unwrap();
        let waits = || volume.core().writeback.totals().units > 0;
        let fsync = |byte: u8| {
            volume.write(other, 0, &[byte; 100]).unwrap();
            volume.fsync(other, false).unwrap();
        };
        volume.write(large, 0, &[7; 1 << 20]).unwrap();
        for byte in 0..4 {
            fsync(byte);
            clock.advance(1_000_000_000);
            volume.upkeep().tick().unwrap();
            assert!(waits());
        }
        fsync(4);
        clock.advance(1_000_000_000);
        volume.upkeep().tick().unwrap();
        assert!(!waits());
        // What comes then is young again; and the last fsync leaves nothing else to do.
        clock.advance(4_000_000_000);
        volume.write(large, 0, &[8; 1 << 20]).unwrap();
        fsync(5);
        clock.advance(4_000_000_000);
        volume.upkeep().tick().unwrap();
        assert!(waits());
        clock.advance(1_000_000_000);
        volume.upkeep().tick().unwrap();
        assert!(!waits());
    }

    #[test]
    fn memory_goes_back_when_nothing_is_written_any_more() {
        let volume = volume(64 << 20, &OpenOptions::default());
        let mut buffer = Buffer::zeroed(4096);
        buffer[0] = 7;
        volume.engine.spare().keep(buffer);
        volume.core().access.end();
        volume.upkeep().tick().unwrap();
        assert_eq!(volume.engine.spare().take(4096)[0], 0);
    }

    fn with_short_segments(bytes: u64) -> Volume {
        let how = MkfsOptions {
            segment_max: Some(128 << 10),
            ..MkfsOptions::default()
        };
        made(bytes, &how, &OpenOptions::default())
    }

    /// A volume whose next segment would be full of map nodes: a checkpoint has put together more than a segment holds, and found no
    /// place. Segments of operations do not write them.
    fn crowded_by_maps() -> Volume {
        let volume = with_short_segments(256 << 20);
        let large = file(&volume, b"large");
        for number in 0..8000 {
            let ino = file(&volume, format!("file {number}").as_bytes());
            volume.write(ino, 0, &[1; 5000]).unwrap();
        }
        volume.sync().unwrap();
        let frags = volume.core().geometry.total_frags;
        let all = (0..frags).step_by(64).map(|key| (MapTree::Owner, key));
        volume.core().maps.write_anew(all);
        volume.write(large, 0, &[2; 1 << 20]).unwrap();
        let sealer = volume.engine.sealer();
        sealer
            .step(|core| core.commit(&sealer).prepare_checkpoint())
            .unwrap();
        drop(sealer);
        {
            let core = &mut *volume.core();
            core.maps
                .apply(&mut core.blocks, &core.space, &core.geometry)
                .unwrap();
        }
        {
            let core = volume.core();
            let of_maps = core.blocks.dirty_of_maps() * NODE_SIZE;
            assert!(of_maps as u64 > core.sizes().segment_full(), "{of_maps}");
        }
        volume
    }

    /// Whether something comes to an end.
    fn ends(work: impl FnOnce(&Volume) + Send + 'static) {
        let volume = crowded_by_maps();
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            work(&volume);
            end.send(())
        });
        let ended = ended.recv_timeout(Duration::from_secs(60));
        assert_ne!(ended, Err(RecvTimeoutError::Timeout), "it goes on and on");
        ended.unwrap();
    }

    /// Of blocks of inodes that no segment needs, what they would have taken in one was counted on.
    #[test]
    fn files_without_names_that_go_at_once_crowd_nobody() {
        let volume = with_short_segments(64 << 20);
        // Once all blocks of inodes are full, the next file is in a new one.
        for number in 0..INODES_PER_BLOCK {
            file(&volume, format!("file {number}").as_bytes());
            volume.sync().unwrap();
            for _ in 0..100 {
                let new = NewInode::of_mode(0o644);
                let unnamed = volume.create_unnamed(ROOT_INO, &new).unwrap();
                volume.release_file(unnamed.ino).unwrap();
                volume.upkeep().commit(Durability::Written).unwrap();
                assert!(volume.core().inodes.dirty_bytes() < 64 << 10);
            }
        }
    }

    #[test]
    fn a_removal_ends_where_a_checkpoint_found_no_place() {
        ends(|volume| volume.unlink(ROOT_INO, b"file 7").unwrap());
    }

    #[test]
    fn a_write_out_ends_where_a_checkpoint_found_no_place() {
        ends(|volume| volume.sync().unwrap());
    }

    /// Of overwrites more wait than a segment holds.
    #[test]
    fn overwrites_that_no_segment_holds_together_are_written() {
        ends(|volume| {
            let large = volume.lookup(ROOT_INO, b"large").unwrap().ino;
            volume.sync().unwrap();
            volume.write(large, 0, &[3; 1 << 20]).unwrap();
            volume.sync().unwrap();
        });
    }

    #[test]
    fn a_removal_for_which_no_commit_makes_room_is_refused() {
        ends(|volume| {
            let refused = volume.engine.run_removal(|_| Err::<(), _>(Stop::Crowded));
            assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        });
    }
}
