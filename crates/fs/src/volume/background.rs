//! What is done by the clock, and what an earlier operation or mount has left to do.

use super::{Volume, Wait};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::types::Timestamp;
use loamfs_format::InodeBlockNo;
use loamfs_format::ifile::ino_at;

/// Images that one step settles.
const SETTLE_STEP: usize = 1024;
/// Inodes whose leftovers one step looks at.
pub(super) const LEFTOVERS_STEP: usize = 64;

impl Volume {
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
            // What of large files could not be written waits on, and is the next fsync's error.
            let _commit = self.commit_lock();
            self.commit_all(Wait::Durable)?;
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
            self.commit_locked(&[], true, Wait::Durable)?;
        }
        Ok(())
    }

    /// Finds the orphans that an earlier mount left behind, once.
    pub(super) fn collect_orphans(&self) -> Result<(), Error> {
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

    /// Looks after orphans and pending truncates, in bounded steps.
    pub(super) fn tidy(&self, max: usize) -> Result<(), Error> {
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
}

fn age_ms(since: Timestamp, now: Timestamp) -> u64 {
    let nanos = |t: Timestamp| i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos);
    u64::try_from((nanos(now) - nanos(since)) / 1_000_000).unwrap_or(0)
}
