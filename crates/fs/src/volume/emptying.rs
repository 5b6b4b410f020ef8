//! Emptying groups of the log before anybody needs them: because the volume's owner asks for it, and in idle times when few
//! are free. Others seal segments between the steps, and one flush serves all groups that are emptied together.

use super::{Durability, Engine, Sealer, Upkeep};
use crate::core::Core;
use crate::error::Error;
use crate::reclaim::{CostLimit, Fight, Plugging, Spared};
use loamfs_format::{Extent, GroupNo};
use std::sync::PoisonError;

/// Pieces of groups that are moved before others may seal a segment: each is as large as a segment.
const PIECES: usize = 4;
/// The same in idle times: whoever asks for something meanwhile waits for the disk as long as that takes.
const IDLE_PIECES: usize = 1;

/// What cleaning came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Groups of the log that were gone through.
    pub groups: u64,
    /// Groups that are free, and were not before.
    pub freed: u64,
    /// Bytes that were moved.
    pub moved: u64,
    /// Bytes of large files that stood scattered and stand in the order of the file.
    pub gathered: u64,
    /// Groups that still hold less, which could not be emptied, or were not since it was told to stop.
    pub left: u64,
}

impl Upkeep<'_> {
    /// Empties the groups of the log of which less than `percent` of a hundred is in use, some at a time. Each is tried once,
    /// so it ends. `tell` is called between the steps with the number of groups that were gone through, and of all that are
    /// known; it says whether to go on.
    ///
    /// # Errors
    /// [`Error`]. What was emptied before stays empty.
    pub fn clean(
        &self,
        percent: u32,
        tell: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Cleaned, Error> {
        let engine = self.engine();
        self.core().access.check()?;
        // What was freed and waits comes by itself.
        self.commit(Durability::Durable)?;
        engine.sealer().say_reusable()?;
        let moved = |core: &Core| {
            core.geometry
                .byte_offset(loamfs_format::FragAddr(core.reclaim.cleaned().live))
        };
        let (free, before, written) = {
            let core = self.core();
            let written = core.space.cleaning().clock();
            (core.space.free_groups(), moved(&core), written)
        };
        let limit = CostLimit::LessFull(percent.min(100));
        let mut tried = Vec::new();
        let gathered = engine.gather_all(&mut || tell(0, 0))?;
        if gathered > 0 {
            // What it leaves is free, or thinner.
            engine.give_emptied_back()?;
        }
        loop {
            let groups = tried.as_slice();
            let spared = Spared { groups, written };
            let left = engine.left_to_empty(limit, spared)?;
            let done = tried.len() as u64;
            if left == 0 || !tell(done, done + left) {
                break;
            }
            let groups = engine.empty_some(limit, u64::MAX, spared, (PIECES, &|| false))?;
            if groups.is_empty() {
                break;
            }
            tried.extend(groups);
            tried.sort_unstable();
        }
        if !tried.is_empty() {
            engine.give_emptied_back()?;
        }
        let groups = &[];
        let left = engine.left_to_empty(limit, Spared { groups, written })?;
        let core = self.core();
        Ok(Cleaned {
            groups: tried.len() as u64,
            freed: core.space.free_groups().saturating_sub(free),
            moved: moved(&core).saturating_sub(before),
            gathered,
            left,
        })
    }
}

impl Engine {
    /// Empties some groups if few are free, and it takes a disk less than to plug the holes that are left, until somebody asks for
    /// anything. Where that was in vain it is not tried again before more was freed. A failure is nobody's error.
    pub(super) fn empty_in_idle_time(&self) {
        let is_asked = self.asked_from_now_on();
        let (limit, frags) = {
            let mut core = self.core();
            let idle = core.pending.since().is_none() && !core.is_dirty();
            let lacking = core.cleaner().lacking_in_idle_time();
            if !idle
                || lacking == 0
                || core.reclaim.is_ahead_over()
                || core.space.usage().is_emptying()
            {
                return;
            }
            if core.fights().is_lost(Fight::Ahead) || !core.budget().may_compact() {
                return;
            }
            let prices = core.prices();
            let frags = lacking * core.geometry.group_frags;
            let limit = core.cleaner().cheaper_than_plugging(&prices, frags);
            (limit, frags)
        };
        match self.empty_ahead(limit, frags, &is_asked) {
            Err(error) => {
                tracing::warn!(%error, "groups of the log are not emptied ahead any more");
                self.core().reclaim.stop_ahead();
            }
            Ok(false) if !is_asked() => {
                self.core().fights().note_lost(Fight::Ahead);
            }
            Ok(_) => {}
        }
    }

    /// Empties groups of the log that are worth it, a batch at most or until it `ends`, and gives them back. Whether more groups are
    /// free then.
    pub(super) fn empty_ahead(
        &self,
        limit: CostLimit,
        frags: u64,
        ends: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let free = self.core().space.free_groups();
        let groups = self.empty_some(limit, frags, Spared::NONE, (IDLE_PIECES, ends))?;
        if !groups.is_empty() && !ends() {
            self.give_emptied_back()?;
        }
        Ok(self.core().space.free_groups() > free)
    }

    /// Empties the groups of the log that hold least, until these win `frags` fragments, into holes of the others: that costs ways, but
    /// no whole group is taken for what is moved. Whether more groups are free then.
    pub(super) fn plug_ahead(&self, plugging: Plugging, frags: u64) -> Result<bool, Error> {
        let free = self.core().space.free_groups();
        self.core().reclaim.plug(Some(plugging));
        let limit = CostLimit::Emptiest(100);
        let emptied = self.empty_some(limit, frags, Spared::NONE, (PIECES, &|| false));
        self.core().reclaim.plug(None);
        if !emptied?.is_empty() {
            self.give_emptied_back()?;
        }
        Ok(self.core().space.free_groups() > free)
    }

    /// Loads the bitmaps of all groups of the log: which hold least, and where holes are, is seen there only.
    pub(super) fn load_log(&self) -> Result<(), Error> {
        let mut before = Vec::new();
        loop {
            let unseen = self.sealer().load_emptiest()?;
            if unseen.is_empty() || unseen == before {
                return Ok(());
            }
            before = unseen;
        }
    }

    /// How many groups of the log are worth it, of those whose bitmaps are in memory. If none of these is, others are loaded
    /// until one is: what is in use of a group need not be what would have to be moved.
    fn left_to_empty(&self, limit: CostLimit, spared: Spared<'_>) -> Result<u64, Error> {
        let mut before = Vec::new();
        loop {
            let unseen = self.sealer().load_emptiest()?;
            let left = self.core().cleaner().emptiable(limit, spared);
            if left > 0 || unseen.is_empty() || unseen == before {
                return Ok(left);
            }
            before = unseen;
        }
    }

    /// Empties groups of the log, but those that are spared, that are worth it and win `frags` fragments, a batch at most. Returns
    /// them. So many pieces are moved in a step; it may end before one, and what was moved before is elsewhere.
    fn empty_some(
        &self,
        limit: CostLimit,
        frags: u64,
        spared: Spared<'_>,
        (together, ends): (usize, &dyn Fn() -> bool),
    ) -> Result<Vec<GroupNo>, Error> {
        // One batch at a time: the end of one opens the groups of all.
        let _emptying = self
            .turns
            .emptying
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (groups, pieces) = self.sealer().begin_to_empty(limit, frags, spared)?;
        if groups.is_empty() {
            return Ok(groups);
        }
        let mut pieces = pieces.chunks(together).take_while(|_| !ends());
        let moved = pieces.try_for_each(|pieces| {
            self.let_others_seal();
            // The clock, which does both, is here until all of it is moved.
            self.commit_by_age()?;
            self.sealer().move_pieces(pieces)
        });
        let sealer = self.sealer();
        let durable = moved.and_then(|()| sealer.commit_moved(Durability::Durable));
        {
            let mut core = self.core();
            core.mover().open_groups();
            core.mover().leave_unmoved();
        }
        durable?;
        sealer.say_reusable()?;
        Ok(groups)
    }

    /// What is left in groups that were emptied are summaries: two checkpoints give them back.
    fn give_emptied_back(&self) -> Result<(), Error> {
        let sealer = self.sealer();
        sealer.take_checkpoints()?;
        sealer.say_reusable()
    }
}

impl Sealer<'_> {
    /// Closes groups of the log that are worth emptying, but those that are spared, and win `frags` fragments. Returns them, and
    /// their pieces; none while there is no room to move anything to.
    pub(super) fn begin_to_empty(
        &self,
        limit: CostLimit,
        frags: u64,
        spared: Spared<'_>,
    ) -> Result<(Vec<GroupNo>, Vec<Extent>), Error> {
        self.load_emptiest()?;
        let mut core = self.core();
        if !core.budget().may_compact() {
            return Ok(Default::default());
        }
        let mut elsewhere = core.budget().elsewhere();
        if core.reclaim.plugging() == Some(Plugging::Short) {
            elsewhere.usable_log = core.budget().usable_for_any();
        }
        let (groups, pieces) = core
            .cleaner()
            .log_groups_to_empty(limit, frags, spared, &elsewhere);
        if !groups.is_empty() {
            core.mover().close_groups(&groups);
        }
        Ok((groups, pieces))
    }

    /// Moves what lives in pieces of groups that are still being emptied. Whoever fought for space between two steps opened
    /// them; what is placed there since is not in the way of anybody, and they may have another role.
    fn move_pieces(&self, pieces: &[Extent]) -> Result<(), Error> {
        let pieces: Vec<Extent> = {
            let core = self.core();
            // Nor was it frozen, or closed, between two steps.
            core.access.check()?;
            let closed = |piece: &Extent| {
                core.space
                    .usage()
                    .is_closed(core.geometry.group_of(piece.start))
            };
            pieces.iter().copied().filter(closed).collect()
        };
        self.evacuate_all(
            &pieces,
            |core| core.budget().may_compact(),
            || self.commit_moved(Durability::Written),
        )
        .map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::env::{Clock, ManualClock};
    use crate::reclaim::BATCH_MAX;
    use crate::{Env, Ino, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
    use loamfs_device::{Device, FaultyDevice, MemoryDevice, Op, Request};
    use loamfs_format::group::Role;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    fn make(volume: &Volume, name: &str, number: usize, bytes: usize) -> Ino {
        let name = format!("{name}{number}");
        let made = volume.create(ROOT_INO, name.as_bytes(), &NewInode::of_mode(0o644));
        let ino = made.unwrap().ino;
        volume.write(ino, 0, &vec![number as u8; bytes]).unwrap();
        ino
    }

    fn remove(volume: &Volume, name: &str, number: usize) {
        let name = format!("{name}{number}");
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
    }

    /// A volume of 128 MiB with few free groups. What its log holds is thin, and the holes of its data groups are short. With
    /// the small files that are left.
    fn crowded(rotational: bool) -> (Arc<dyn Device>, Volume, Vec<(usize, Ino)>) {
        let device = MemoryDevice::new(128 << 20).with_rotational(rotational);
        let device: Arc<dyn Device> = Arc::new(device);
        mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = Volume::open(Arc::clone(&device), &OpenOptions::default(), Env::fixed(2));
        let volume = volume.unwrap();
        let small: Vec<(usize, Ino)> = (0..5_500)
            .map(|number| (number, make(&volume, "small", number, 6_000)))
            .collect();
        volume.sync().unwrap();
        let long = |volume: &Volume| volume.core().space.free_index(Role::Data).longest() >= 128;
        let mut large = 0;
        while volume.core().cleaner().lacking_in_idle_time() == 0 || long(&volume) {
            make(&volume, "large", large, 64 << 10);
            large += 1;
            volume.sync().unwrap();
        }
        for number in (0..large).step_by(2) {
            remove(&volume, "large", number);
        }
        let (stay, go): (Vec<_>, Vec<_>) =
            small.into_iter().partition(|(number, _)| number % 16 == 0);
        for (number, _) in go {
            remove(&volume, "small", number);
        }
        volume.sync().unwrap();
        (device, volume, stay)
    }

    #[test]
    fn in_idle_times_groups_are_emptied_before_space_is_short_and_that_ends() {
        let (device, volume, files) = crowded(true);
        let free = volume.info().groups[0];
        let (lacking, longest) = {
            let core = volume.core();
            let longest = core.space.free_index(Role::Data).longest();
            (core.cleaner().lacking_in_idle_time(), longest)
        };
        for _ in 0..16 {
            volume.upkeep().tick().unwrap();
        }
        let groups = volume.info().groups;
        let cleaned = volume.info().cleaned_frags;
        assert!(
            cleaned > 0 && groups[0] > free,
            "{free} were free, {lacking} lacking, holes of {longest}: {groups:?}, {cleaned}"
        );
        let written = device.counters().total().writes;
        for _ in 0..16 {
            volume.upkeep().tick().unwrap();
        }
        assert_eq!(device.counters().total().writes, written);
        for (number, ino) in files {
            let content = vec![number as u8; 6_000];
            assert_eq!(volume.read(ino, 0, 6_000).unwrap(), content);
        }
    }

    /// They were emptied behind each commit by the clock, whoever was at work.
    #[test]
    fn while_somebody_asks_for_something_no_group_is_emptied_ahead() {
        let (_, volume, files) = crowded(true);
        for (_, ino) in files.iter().take(16) {
            volume.getattr(*ino).unwrap();
            volume.upkeep().tick().unwrap();
        }
        assert_eq!(volume.info().cleaned_frags, 0);
        // Nor is a batch gone through that somebody comes into.
        let turns = std::cell::Cell::new(0);
        let ends = || turns.replace(turns.get() + 1) > 0;
        let limit = CostLimit::LessFull(60);
        let some = volume
            .engine
            .empty_some(limit, u64::MAX, Spared::NONE, (PIECES, &ends));
        assert!(some.unwrap().len() > 1);
        let some = volume.info().cleaned_frags;
        let group = volume.core().geometry.group_frags;
        assert!(some > 0 && some <= group, "{some} of groups of {group}");
    }

    /// What was moved took a free group for each that was won, though there were holes.
    #[test]
    fn groups_are_emptied_into_holes_of_others_and_no_free_one_is_taken() {
        for plugging in [Plugging::Long, Plugging::Short] {
            let (device, volume, files) = crowded(true);
            volume.engine.load_log().unwrap();
            let free = volume.info().groups[0];
            // What a round leaves is free after the next.
            let won = (0..8).any(|_| volume.engine.plug_ahead(plugging, 1).unwrap());
            let info = volume.info();
            let groups = info.groups;
            assert!(won && groups[0] >= free, "{plugging:?}: {groups:?}");
            assert!(info.cleaned_live_frags > 0, "{plugging:?}");
            for (number, ino) in files {
                let content = vec![number as u8; 6_000];
                assert_eq!(volume.read(ino, 0, 6_000).unwrap(), content);
            }
            volume.sync().unwrap();
            let report = loamfs_check::check(device.as_ref(), &mut Default::default());
            assert_eq!(report.problems, []);
        }
    }

    #[test]
    fn where_nothing_turns_idle_times_stay_idle() {
        let (_, volume, _) = crowded(false);
        for _ in 0..16 {
            volume.upkeep().tick().unwrap();
        }
        assert_eq!(volume.info().cleaned_frags, 0);
    }

    /// What `begin` chose, which is begun.
    fn begun(volume: &Volume) -> Vec<Extent> {
        let limit = CostLimit::LessFull(60);
        let begun = volume
            .engine
            .sealer()
            .begin_to_empty(limit, u64::MAX, Spared::NONE);
        let (groups, pieces) = begun.unwrap();
        assert!(!groups.is_empty() && !pieces.is_empty());
        pieces
    }

    /// A change waited for its commit as long as a batch of groups took.
    #[test]
    fn commits_by_age_come_between_the_steps_of_a_batch() {
        const SECOND: u64 = 1_000_000_000;
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
        // Whole blocks of inodes, so that there is much to write.
        let options = MkfsOptions {
            deltas: false,
            ..MkfsOptions::default()
        };
        mkfs(&memory, &options, &Env::fixed(1)).unwrap();
        let clock = Arc::new(ManualClock::new(1));
        let flushes = Arc::new(Mutex::new(None));
        let (ticks, noted) = (Arc::clone(&clock), Arc::clone(&flushes));
        // Each write takes a second; when the first flush comes is noted.
        let plan = move |request: &Request| {
            match request.op {
                Op::Write => ticks.advance(SECOND),
                Op::Flush => drop(noted.lock().unwrap().get_or_insert(ticks.elapsed())),
                _ => {}
            }
            None
        };
        let device = Arc::new(FaultyDevice::with_plan(memory, plan));
        let env = Env::seeded(clock.clone(), 2);
        let volume = Volume::open(device, &OpenOptions::default(), env).unwrap();
        for number in 0..10_000 {
            make(&volume, "small", number, 6_000);
        }
        for number in (0..10_000).filter(|number| number % 2 != 0) {
            remove(&volume, "small", number);
        }
        let ino = make(&volume, "changed", 0, 6_000);
        volume.sync().unwrap();
        volume.write(ino, 0, &[1; 6_000]).unwrap();
        *flushes.lock().unwrap() = None;
        let began = clock.elapsed();
        let limit = CostLimit::LessFull(60);
        let groups = volume
            .engine
            .empty_some(limit, u64::MAX, Spared::NONE, (PIECES, &|| false));
        let took = clock.elapsed() - began;
        assert_eq!(groups.unwrap().len(), BATCH_MAX);
        assert!(took > Duration::from_secs(20), "{took:?}");
        let first = flushes.lock().unwrap().unwrap() - began;
        assert!(first < Duration::from_secs(12), "{first:?} of {took:?}");
    }

    #[test]
    fn groups_that_somebody_opened_meanwhile_stay_as_they_are() {
        let (_, volume, _) = crowded(false);
        let pieces = begun(&volume);
        volume.core().mover().open_groups();
        volume.engine.sealer().move_pieces(&pieces).unwrap();
        assert_eq!(volume.info().cleaned_frags, 0);
        let pieces = begun(&volume);
        volume.engine.sealer().move_pieces(&pieces).unwrap();
        assert!(volume.info().cleaned_frags > 0);
    }

    #[test]
    fn a_volume_that_is_frozen_meanwhile_stays_at_rest() {
        let (_, volume, _) = crowded(false);
        let pieces = begun(&volume);
        volume.upkeep().freeze().unwrap();
        let moved = volume.engine.sealer().move_pieces(&pieces);
        assert!(matches!(moved, Err(Error::ReadOnly)), "{moved:?}");
        assert!(!volume.core().is_dirty());
        volume.sync().unwrap();
    }

    #[test]
    fn groups_behind_those_that_are_spared_are_found() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
        mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = Volume::open(Arc::clone(&device), &OpenOptions::default(), Env::fixed(2));
        let volume = volume.unwrap();
        for number in 0..16_000 {
            make(&volume, "small", number, 6_000);
        }
        for number in (0..16_000).step_by(2) {
            remove(&volume, "small", number);
        }
        volume.close().unwrap();
        let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(3)).unwrap();
        let mut emptiest = volume
            .core()
            .space
            .cleaning()
            .unloaded_log_groups(BATCH_MAX);
        emptiest.sort_unstable();
        assert_eq!(emptiest.len(), BATCH_MAX);
        let spared = Spared::groups(&emptiest);
        let left = volume
            .engine
            .left_to_empty(CostLimit::LessFull(80), spared)
            .unwrap();
        assert!(left > 0);
    }
}
