//! The fight for space: pending frees, checkpoints, compaction, emptying groups (rules 10 and 11).

use super::{Volume, Wait};
use crate::blocks::Stop;
use crate::error::Error;
use loamfs_format::Extent;

/// Rounds of compaction in one go: enough to go through a whole log.
const REPLENISH_ROUNDS: usize = 1024;
/// Rounds in a row that may win nothing: a checkpoint takes before it gives.
const IDLE_ROUNDS: usize = 6;

/// Segments' worth of room that a fight for space wins, so that the next one is some time off; what is cheapest to win
/// comes first, and what was not moved is cheaper to move later.
const WON_AT_ONCE: u32 = 2;

/// When reclaim has won enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The reserve is whole, and so many segments of the largest size fit besides.
    Segments(u32),
    /// Nothing is won any more.
    All,
}

impl Volume {
    /// Makes room in memory: what waits is committed, and pending truncates are drained. Returns why there is no room
    /// all the same, if data of large files that cannot be written take most of it.
    pub(super) fn relieve(&self) -> Result<Option<Error>, Error> {
        self.tidy(usize::MAX)?;
        let _commit = self.commit_lock();
        let unwritten = self.commit_all(Wait::Written)?;
        self.checkpoint_if_due()?;
        let core = self.core();
        let stuck = core.homed_bytes() > core.homed_max / 2;
        Ok(unwritten
            .into_iter()
            .map(|(_, e)| e)
            .next()
            .filter(|_| stuck))
    }

    /// Wins space back before anyone gets ENOSPC (rule 10), each time by dearer means: pending frees become durable,
    /// and reusable by a segment that says so; checkpoints give back maps and summaries; the log is compacted.
    pub(super) fn win_space(&self, means: u32) -> Result<(), Error> {
        self.tidy(usize::MAX)?;
        let _commit = self.commit_lock();
        self.commit_all(Wait::Durable)?;
        self.commit_locked(&[], true, Wait::Durable)?;
        if means >= 2 {
            self.checkpoint_locked()?;
            self.checkpoint_locked()?;
            self.commit_locked(&[], true, Wait::Durable)?;
        }
        match means {
            0..=2 => {}
            3 => self.replenish_locked(Goal::Segments(WON_AT_ONCE))?,
            _ => self.replenish_locked(Goal::All)?,
        }
        Ok(())
    }

    /// Compacts the log, then empties groups, while it lacks room for the goal in holes that segments fit into: a
    /// segment's worth at a time, each made reusable before the next.
    pub(super) fn replenish_locked(&self, goal: Goal) -> Result<(), Error> {
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
                let enough = match goal {
                    Goal::All => false,
                    Goal::Segments(count) => {
                        let room = u64::from(count) * u64::from(core.geometry.segment_max);
                        core.has_reserve_and(room)
                    }
                };
                (enough, core.usable_log() + 2 * whole, worth)
            };
            idle = if usable > best { 0 } else { idle + 1 };
            best = best.max(usable);
            if enough || idle > IDLE_ROUNDS {
                break;
            }
            // Where one way wins nothing any more, the other may.
            let compacted = idle % 2 == 0 && self.compact(worth)?;
            let moved = compacted || self.empty_group()? || self.compact(worth)?;
            if !moved {
                break;
            }
            self.make_reusable()?;
            if idle > 0 {
                // Summaries and map nodes in the way go with a checkpoint.
                self.checkpoint_locked()?;
            }
        }
        Ok(())
    }

    /// Evacuates ranges of the log that are worth about `frags` fragments; returns whether there were any.
    fn compact(&self, frags: u64) -> Result<bool, Error> {
        let ranges = self.core().compactable(frags);
        Ok(self.evacuate_some(&ranges)? > 0)
    }

    /// Commits what was moved, and lets the places it left be reused.
    fn make_reusable(&self) -> Result<(), Error> {
        self.commit_all(Wait::Durable)?;
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
}
