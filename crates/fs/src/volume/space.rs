//! The fight for space: pending frees, checkpoints, compaction, emptying groups (rules 10 and 11).

use super::{Volume, Wait};
use crate::blocks::Stop;
use crate::error::Error;
use loamfs_format::{Extent, GroupNo};

/// Rounds of compaction in one go: enough to go through a whole log.
const REPLENISH_ROUNDS: usize = 1024;
/// Rounds in a row that may win nothing: what a round leaves is free after the next, and a checkpoint takes before it
/// gives.
const IDLE_ROUNDS: usize = 3;

/// Segments' worth of room that a fight for space wins, so that the next one is some time off; what is cheapest to win
/// comes first, and what was not moved is cheaper to move later.
const WON_AT_ONCE: u32 = 4;

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
        self.keep_reserve()?;
        let core = self.core();
        let stuck = core.homed_bytes() > core.homed_max / 2;
        Ok(unwritten
            .into_iter()
            .map(|(_, e)| e)
            .next()
            .filter(|_| stuck))
    }

    /// Wins space back before anyone gets ENOSPC (rule 10), each time by dearer means: pending frees become durable,
    /// and reusable by a segment that says so; groups are emptied and the log is compacted; checkpoints give back maps
    /// and summaries; everything is moved that can be.
    pub(super) fn win_space(&self, means: u32) -> Result<(), Error> {
        self.tidy(usize::MAX)?;
        let _commit = self.commit_lock();
        self.commit_all(Wait::Durable)?;
        self.commit_locked(&[], true, Wait::Durable)?;
        match means {
            0 | 1 => {}
            2 => self.replenish_locked(Goal::Segments(WON_AT_ONCE))?,
            3 => {
                self.checkpoint_locked()?;
                self.checkpoint_locked()?;
                self.say_reusable()?;
            }
            _ => self.replenish_locked(Goal::All)?,
        }
        Ok(())
    }

    /// Makes the reserve whole again after removals that ate into it: what they freed is made reusable, then groups are
    /// emptied and the log is compacted. Where that was in vain it waits until more was freed.
    pub(super) fn keep_reserve(&self) -> Result<(), Error> {
        {
            let mut core = self.core();
            if core.has_reserve() || core.is_exhausted() {
                return Ok(());
            }
        }
        self.commit_all(Wait::Durable)?;
        self.say_reusable()?;
        self.replenish_locked(Goal::Segments(0))?;
        let mut core = self.core();
        if !core.has_reserve() {
            core.note_exhausted();
        }
        Ok(())
    }

    /// Empties groups and compacts the log while it lacks room for the goal in holes that segments fit into. What a
    /// round leaves may be reused once the segment of the next round says so.
    pub(super) fn replenish_locked(&self, goal: Goal) -> Result<(), Error> {
        let (mut best, mut idle, mut unsaid, mut last) = (0, 0, false, None);
        for _ in 0..REPLENISH_ROUNDS {
            let (room, enough, usable) = {
                let mut core = self.core();
                let whole = core.space.free_groups() * core.geometry.group_frags;
                let enough = match goal {
                    Goal::All => false,
                    Goal::Segments(count) => {
                        let room = u64::from(count) * u64::from(core.geometry.segment_max);
                        core.has_reserve_and(room)
                    }
                };
                // What stands in whole groups serves every role, and so counts twice.
                (core.may_compact(), enough, core.usable_log() + 2 * whole)
            };
            idle = if usable > best { 0 } else { idle + 1 };
            best = best.max(usable);
            if enough || idle > IDLE_ROUNDS {
                break;
            }
            if room && self.move_some(goal, &mut last)? {
                self.commit_all(Wait::Durable)?;
                self.checkpoint_if_due()?;
                unsaid = true;
                // Summaries and map nodes in the way go with a checkpoint.
                if idle > 1 {
                    self.say_reusable()?;
                    self.checkpoint_locked()?;
                }
            } else if unsaid {
                self.say_reusable()?;
                unsaid = false;
            } else {
                break;
            }
        }
        if unsaid { self.say_reusable() } else { Ok(()) }
    }

    /// Moves what is cheapest to move: a whole group, which serves every role then and is read and written without
    /// seeks, else ranges of the log. Returns whether there was anything. `last` is the group that was emptied before.
    fn move_some(&self, goal: Goal, last: &mut Option<GroupNo>) -> Result<bool, Error> {
        let found = self.core().emptiest_group(goal == Goal::All, *last);
        if let Some((group, ranges)) = found {
            *last = Some(group);
            self.core().space.close_group(Some(group));
            let result = self.evacuate_all(&ranges);
            self.core().space.close_group(None);
            return result;
        }
        let ranges = {
            let core = self.core();
            core.compactable(core.geometry.frags_for(core.geometry.segment_max.into()))
        };
        self.evacuate_all(&ranges)
    }

    /// A segment that says that everything is durable lets what was freed be reused.
    fn say_reusable(&self) -> Result<(), Error> {
        self.commit_locked(&[], true, Wait::Durable)?;
        self.checkpoint_if_due()
    }

    /// Makes what lives in ranges dirty, committing whenever a segment is full, as long as there is room for it
    /// elsewhere. Returns whether anything was moved.
    fn evacuate_all(&self, ranges: &[Extent]) -> Result<bool, Error> {
        for range in ranges {
            loop {
                let crowded = self.step(|core| match core.evacuate(*range) {
                    Err(Stop::Crowded) => Ok(true),
                    other => other.map(|()| false),
                })?;
                if !crowded {
                    break;
                }
                self.commit_all(Wait::Durable)?;
                if !self.core().may_compact() {
                    return Ok(true);
                }
            }
        }
        Ok(!ranges.is_empty())
    }
}
