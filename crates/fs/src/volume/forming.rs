//! Tracks that form in idle times, of directories whose small files were read out of the log for so long that moving them would have
//! paid (DESIGN.md, "Tracks"). Those that stand together move together. A step at a time, which ends where anybody asks for
//! something.

use super::commit::all_written;
use super::info::{TracksInfo, Unformed};
use super::tracks::{Arranger, Arranging};
use super::{Durability, Engine, Upkeep};
use crate::core::Core;
use crate::error::Error;
use crate::reclaim::{CostLimit, Fight, FormingCost, GroupsForTracks, IDLE_ROUNDS};
use crate::tracks::reads::{self, Reads};
use crate::tracks::weigh::{self, Dir};
use loamfs_format::{FragAddr, Ino, InodeBlockNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of contents that settle between two ticks, and that are worth beginning for: less takes a seek for little.
const TOGETHER: u64 = 16 << 20;
/// Steps between two ticks: most are short where directories are small.
const STEPS: usize = 256;
/// Blocks of directories that are weighed at once: those of most reads.
const WEIGHED: usize = 256;
/// Groups of the log are emptied for tracks of which less than so many of a hundred fragments are in use. What that takes was weighed.
const EMPTIED: u32 = 95;
/// Groups that are won together beside those that are lacking: it ends with two checkpoints.
const WON_AT_ONCE: u64 = 4;

/// What forms in idle times.
#[derive(Debug, Default)]
pub(super) struct Forming {
    /// Operations that anybody asked for before the last tick, and requests of the device until its end.
    asked: u64,
    requests: u64,
    /// Cold reads when directories were last weighed.
    weighed: u64,
    under_way: Option<Arranging>,
    /// What is told of it.
    told: TracksInfo,
}

impl Forming {
    /// Whether nobody asked for anything since the last tick.
    fn is_quiet(&mut self, asked: u64, requests: u64) -> bool {
        let is_quiet = self.asked == asked && self.requests == requests;
        self.asked = asked;
        is_quiet
    }

    /// What it came to so far, as told.
    pub fn told(&self) -> TracksInfo {
        self.told
    }
}

/// Bytes that the volume holds.
fn in_use(core: &Core) -> u64 {
    core.geometry
        .byte_offset(FragAddr(core.space.usage().in_use()))
}

/// Directories that are worth it, and what they come to.
#[derive(Debug, Default)]
struct Chosen {
    /// By block, since those that were made together mostly stand together; of each in the order in which they move.
    blocks: BTreeMap<InodeBlockNo, Vec<Ino>>,
    bytes: u64,
    /// Microseconds of a disk.
    cost: u64,
    moving: u64,
    saving: u64,
}

impl Engine {
    /// What forms in idle times.
    pub(super) fn forming(&self) -> MutexGuard<'_, Forming> {
        self.forming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What forms tracks by the clock.
#[derive(Clone, Copy)]
pub(super) struct Former<'v> {
    upkeep: Upkeep<'v>,
}

impl<'v> Upkeep<'v> {
    /// What forms tracks by the clock.
    pub(super) fn former(self) -> Former<'v> {
        Former { upkeep: self }
    }
}

impl Former<'_> {
    fn engine(&self) -> &Engine {
        self.upkeep.engine()
    }

    /// A tick begins. Whether nobody asked for anything since the last one.
    pub(super) fn is_quiet(&self) -> bool {
        let engine = self.engine();
        let requests = engine.sweeper().requests();
        let asked = engine.tally.asked();
        engine.forming().is_quiet(asked, requests)
    }

    /// Whether something may form.
    pub(super) fn may_form(&self) -> bool {
        weigh::matter(&self.engine().core())
    }

    /// A tick ends: its requests were nobody's.
    pub(super) fn end_tick(&self) {
        let requests = self.engine().sweeper().requests();
        self.engine().forming().requests = requests;
    }

    /// Forms some tracks, as long as nobody asks for anything and there is room to spare. A failure is nobody's error.
    pub(super) fn form_in_idle_time(&self) {
        let engine = self.engine();
        let asked = engine.tally.asked();
        let sweeper = engine.sweeper();
        let Some(_turn) = sweeper.may_settle() else {
            return;
        };
        if !self.is_calm() {
            return;
        }
        let waiting = || engine.turns.wait_to_seal.load(Ordering::Relaxed);
        let ends = || engine.tally.asked() != asked || waiting() > 0;
        let under_way = engine.forming().under_way.take();
        let Some(mut arranging) = under_way.or_else(|| self.choose(&ends)) else {
            return;
        };
        if !self.makes_room() {
            let mut forming = engine.forming();
            forming.told.unformed = Unformed::Room;
            forming.under_way = Some(arranging);
            return;
        }
        let (before, ways) = (*arranging.done(), arranging.ways());
        let goes_on = self.form_some(&mut arranging, &ends);
        let done = *arranging.done();
        let mut forming = engine.forming();
        // How scattered they are is known only now.
        let ways = Duration::from_micros(arranging.ways() - ways);
        forming.told.formed_cost += ways;
        let formed = &mut forming.told.formed;
        formed.directories += done.directories - before.directories;
        formed.files += done.files - before.files;
        formed.bytes += done.bytes - before.bytes;
        formed.full = done.full;
        forming.told.unformed = match &goes_on {
            Ok(true) | Err(Error::ReadOnly) => Unformed::UnderWay,
            _ if done.full => Unformed::Room,
            _ => Unformed::default(),
        };
        match goes_on {
            Ok(true) | Err(Error::ReadOnly) => forming.under_way = Some(arranging.at_rest()),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "tracks that are worth it do not form for now"),
        }
    }

    /// Whether nothing waits.
    fn is_calm(&self) -> bool {
        let mut core = self.engine().core();
        let idle = core.pending.since().is_none() && !core.is_dirty();
        idle && !core.space.is_all_log()
            && !core.space.usage().is_emptying()
            && core.budget().has_reserve()
    }

    /// Whether there are groups for some tracks, once those of the log were emptied that are worth it. After a history all of them hold
    /// something, and none is free. Where that was in vain it is not tried again before more was freed.
    fn makes_room(&self) -> bool {
        if self.engine().core().fights().is_lost(Fight::Tracks) {
            return false;
        }
        let before = self.engine().core().reclaim.cleaned();
        let has_room = self.wins_groups();
        let took = {
            let core = self.engine().core();
            let now = core.reclaim.cleaned();
            let (frags, live) = (now.frags - before.frags, now.live - before.live);
            core.prices().emptying(frags, live, in_use(&core))
        };
        // What that takes is known only now.
        self.engine().forming().told.formed_cost += Duration::from_micros(took);
        has_room
    }

    /// Empties groups of the log until there are enough for some tracks. Whether there are.
    fn wins_groups(&self) -> bool {
        let mut in_vain = 0;
        while in_vain < IDLE_ROUNDS {
            let (lacking, group) = {
                let core = self.engine().core();
                (core.cleaner().lacking_to_form(), core.geometry.group_frags)
            };
            if lacking == 0 {
                return true;
            }
            let frags = (lacking + WON_AT_ONCE) * group;
            match self
                .engine()
                .empty_ahead(CostLimit::Emptiest(EMPTIED), frags)
            {
                Ok(won) => in_vain = if won { 0 } else { in_vain + 1 },
                Err(error) => {
                    tracing::warn!(%error, "no groups are emptied for tracks for now");
                    break;
                }
            }
        }
        self.engine().core().fights().note_lost(Fight::Tracks);
        false
    }

    /// Takes some steps.
    fn form_some(&self, arranging: &mut Arranging, ends: &dyn Fn() -> bool) -> Result<bool, Error> {
        // It goes on once there is room again.
        let stops = || ends() || !self.has_groups_to_form();
        let arranger = Arranger::new(self.upkeep, &stops);
        let until = arranging.done().bytes.saturating_add(TOGETHER);
        let mut goes_on = true;
        for _ in 0..STEPS {
            if stops() || !goes_on || arranging.done().bytes >= until {
                break;
            }
            goes_on = arranger.step(arranging)?;
        }
        if !ends() {
            all_written(self.engine().write_out(Durability::Durable)?)?;
        }
        Ok(goes_on)
    }

    /// Whether there are groups for some tracks.
    fn has_groups_to_form(&self) -> bool {
        self.engine().core().cleaner().lacking_to_form() == 0
    }

    /// The directories that are worth it now, if they are enough to begin. Their reads count anew.
    fn choose(&self, ends: &dyn Fn() -> bool) -> Option<Arranging> {
        let Some(all) = self.reads_to_weigh() else {
            // What was found to be too little since is so still.
            let told = &mut self.engine().forming().told;
            if told.directories == 0 {
                told.unformed = Unformed::Reads;
            }
            return None;
        };
        let chosen = self.weigh(ends)?;
        let begins = chosen.bytes >= self.least();
        if begins {
            let mut core = self.engine().core();
            let begun = chosen.blocks.keys();
            begun.for_each(|block| core.tracks.reads().forget(*block));
        }
        let mut forming = self.engine().forming();
        forming.weighed = all;
        let told = forming.told;
        forming.told = match begins {
            true => TracksInfo {
                formed: told.formed,
                formed_cost: told.formed_cost + Duration::from_micros(chosen.moving),
                ..TracksInfo::default()
            },
            false => TracksInfo {
                directories: chosen.blocks.values().flatten().count() as u64,
                bytes: chosen.bytes,
                cost: Duration::from_micros(chosen.cost),
                saving: Duration::from_micros(chosen.saving),
                unformed: match chosen.bytes {
                    0 => Unformed::Reads,
                    _ => Unformed::Bytes,
                },
                ..told
            },
        };
        begins.then(|| Arranging::of(chosen.blocks.into_values().flatten().collect()))
    }

    /// Bytes that are worth beginning for.
    fn least(&self) -> u64 {
        let segment = self.engine().core().geometry.segment_max;
        TOGETHER.min(segment.into())
    }

    /// What forming tracks of so many bytes takes and saves, where others take so many before.
    fn price(&self, bytes: u64, before: u64, reads: u64) -> FormingCost {
        let core = self.engine().core();
        let groups = core.cleaner().groups_for_tracks();
        let groups = GroupsForTracks {
            spared: groups.spared.saturating_sub(before),
            ..groups
        };
        core.prices().forming(bytes, &groups, reads, in_use(&core))
    }

    /// All cold reads so far, if there were enough of them since directories were last weighed: weighing reads a little of each.
    fn reads_to_weigh(&self) -> Option<u64> {
        let all = self.engine().core().tracks.reads().all();
        let since = all - self.engine().forming().weighed;
        self.price(self.least(), 0, since).pays().then_some(all)
    }

    /// Weighs the directories of most reads; `None` if that was ended.
    fn weigh(&self, ends: &dyn Fn() -> bool) -> Option<Chosen> {
        let most = self.engine().core().tracks.reads().most(WEIGHED);
        let mut chosen = Chosen::default();
        for (block, reads) in most {
            if ends() {
                return None;
            }
            self.weigh_block(block, reads, &mut chosen);
        }
        Some(chosen)
    }

    /// Chooses all directories of a block that have files, if that pays for all of them: they stand together, and whoever reads them
    /// one after the other would go to and fro between those that moved and those that did not.
    fn weigh_block(&self, number: InodeBlockNo, reads: Reads, chosen: &mut Chosen) {
        // What cannot be read is left out.
        let look_at = |dir| self.engine().run(|core| weigh::look_at(core, dir));
        let dirs = reads::together(number).filter_map(|dir| look_at(dir).ok().flatten());
        let dirs: Vec<Dir> = dirs.collect();
        if dirs.is_empty() {
            self.engine().core().tracks.reads().forget(number);
        }
        let files: u64 = dirs.iter().map(|dir| dir.files).sum();
        let bytes = files.saturating_mul(reads.bytes_a_file());
        let forming = self.price(bytes, chosen.bytes, reads.cold());
        if forming.pays() {
            chosen.blocks.insert(number, self.in_order(&dirs));
            chosen.bytes += bytes;
            chosen.cost += forming.cost;
            chosen.moving += forming.moving;
            chosen.saving += forming.saving;
        }
    }

    /// Directories of a block: those in the same one in the order in which a listing comes to them, so that their tracks stand in
    /// the order in which they are read together.
    fn in_order(&self, dirs: &[Dir]) -> Vec<Ino> {
        let all: BTreeSet<Ino> = dirs.iter().map(|dir| dir.ino).collect();
        let above: BTreeSet<Ino> = dirs.iter().map(|dir| dir.above).collect();
        let listed = |dir| self.engine().run(|core| weigh::first_below(core, dir));
        let first = above
            .into_iter()
            .flat_map(|dir| listed(dir).unwrap_or_default());
        let mut order: Vec<Ino> = first.filter(|dir| all.contains(dir)).collect();
        let known: BTreeSet<Ino> = order.iter().copied().collect();
        order.extend(all.difference(&known));
        order
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
