//! Tracks that form in idle times, of directories whose small files were read out of the log for so long that moving them would have
//! paid (DESIGN.md, "Tracks"). Those that stand together move together. A step at a time, which ends where anybody asks for
//! something.

use super::commit::all_written;
use super::info::{TracksInfo, Unformed};
use super::tracks::{Arranger, Arranging};
use super::{Durability, Engine, Upkeep};
use crate::core::Core;
use crate::error::Error;
use crate::reclaim::{
    CostLimit, Fight, FormingCost, GroupsForTracks, IDLE_ROUNDS, Plugging, Settling, USUAL,
};
use crate::tracks::reads::{self, Reads};
use crate::tracks::weigh::{self, Dir};
use loamfs_format::ifile::INODES_PER_BLOCK;
use loamfs_format::{FragAddr, Ino, InodeBlockNo};
use std::collections::{BTreeMap, BTreeSet};
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
/// Rounds in a row that may win nothing where groups are emptied into holes: what is left of a group comes later.
const PLUGGED_ROUNDS: usize = 16;
/// Groups that are won together beside those that are lacking: it ends with two checkpoints.
const WON_AT_ONCE: u64 = 4;

/// So many times as many rounds in a row may win no more than was won before.
const TO_AND_FRO: usize = 4;

/// Rounds that empty groups of the log.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    /// Groups that were free, at most.
    most: u64,
    /// How many of them in a row have won none, and how many came since the most were free.
    in_vain: usize,
    since: usize,
}

impl Rounds {
    /// Before the first, with so many free groups.
    const fn from(free: u64) -> Rounds {
        Rounds {
            most: free,
            in_vain: 0,
            since: 0,
        }
    }

    /// One has won some, or none, and so many are free then.
    fn note(&mut self, won: bool, free: u64) {
        self.in_vain = if won { 0 } else { self.in_vain + 1 };
        self.since = if free > self.most { 0 } else { self.since + 1 };
        self.most = self.most.max(free);
    }

    /// Whether the next one would be in vain too. Where each wins what the one before it took, they go to and fro.
    const fn are_over(&self, patience: usize) -> bool {
        self.in_vain >= patience || self.since >= patience * TO_AND_FRO
    }
}

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
        let ends = engine.asked_from_now_on();
        let sweeper = engine.sweeper();
        let Some(_turn) = sweeper.may_settle() else {
            return;
        };
        if !self.is_calm() {
            return;
        }
        let under_way = engine.forming().under_way.take();
        let Some(arranging) = under_way.or_else(|| self.choose(&ends)) else {
            return;
        };
        let before = engine.arm.took();
        self.go_on_with(arranging, &ends);
        // Nobody else has asked the disk for much meanwhile.
        let took = Duration::from_micros(engine.arm.took() - before);
        engine.forming().told.formed_cost += took;
    }

    /// Goes on with what is under way, if there is room for it.
    fn go_on_with(&self, mut arranging: Arranging, ends: &dyn Fn() -> bool) {
        let engine = self.engine();
        let lacked = self.lacking() > 0;
        if !self.makes_room() {
            let mut forming = engine.forming();
            forming.told.unformed = Unformed::Room;
            forming.under_way = Some(arranging);
            return;
        }
        if lacked {
            arranging.note_room();
        }
        let before = *arranging.done();
        let goes_on = self.form_some(&mut arranging, ends);
        let done = *arranging.done();
        let mut forming = engine.forming();
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
        let is_lost = self.engine().core().fights().is_lost(Fight::Tracks);
        !is_lost && self.wins_groups()
    }

    /// Empties groups of the log until there are enough for some tracks. Whether there are.
    fn wins_groups(&self) -> bool {
        if self.lacking() == 0 {
            return true;
        }
        if let Err(error) = self.engine().load_log() {
            tracing::warn!(%error, "no groups are emptied for tracks for now");
            return false;
        }
        let patience = match self.engine().core().sb.has_deltas() {
            true => PLUGGED_ROUNDS,
            false => IDLE_ROUNDS,
        };
        let mut rounds = Rounds::from(self.engine().core().space.free_groups());
        while !rounds.are_over(patience) {
            let lacking = self.lacking();
            if lacking == 0 {
                return true;
            }
            let engine = self.engine();
            let group_frags = engine.core().geometry.group_frags;
            let frags = (lacking + WON_AT_ONCE) * group_frags;
            let more = rounds.in_vain as u64 * group_frags;
            // What was emptied into groups won none.
            let won = match self.plugging(rounds.in_vain > 0) {
                None => engine.empty_ahead(CostLimit::Emptiest(EMPTIED), frags, &|| false),
                Some(Plugging::Long) => engine.plug_ahead(Plugging::Long, frags),
                // What the checkpoints behind it write may take all that one group wins. Those fill it first, and it is emptied
                // again: so each round that wins none is followed by one that empties a group more.
                Some(Plugging::Short) => engine.plug_ahead(Plugging::Short, 1 + more),
            };
            match won {
                Ok(won) => rounds.note(won, engine.core().space.free_groups()),
                Err(error) => {
                    tracing::warn!(%error, "no groups are emptied for tracks for now");
                    break;
                }
            }
        }
        self.engine().core().fights().note_lost(Fight::Tracks);
        false
    }

    /// Groups that are lacking for some tracks.
    fn lacking(&self) -> u64 {
        self.engine().core().cleaner().lacking_to_form()
    }

    /// Into which holes the next group is emptied, if it is emptied into any.
    fn plugging(&self, must: bool) -> Option<Plugging> {
        let core = self.engine().core();
        let groups = core.cleaner().groups_for_tracks();
        let least = *groups.live.iter().find(|live| **live > 0)?;
        let plugging = match groups.has_long_holes(core.geometry.group_frags) {
            true => Plugging::Long,
            false => Plugging::Short,
        };
        let plugs =
            must && groups.says_deltas || core.prices().plugs(least, &groups, in_use(&core));
        plugs.then_some(plugging)
    }

    /// Takes some steps.
    fn form_some(&self, arranging: &mut Arranging, ends: &dyn Fn() -> bool) -> Result<bool, Error> {
        // It goes on once there is room again.
        let stops = || ends() || !self.has_groups_to_form();
        let arranger = Arranger::new(self.upkeep, &stops);
        let until = arranging.ready_bytes().saturating_add(TOGETHER);
        let mut goes_on = true;
        for _ in 0..STEPS {
            if stops() || !goes_on || arranging.ready_bytes() >= until {
                break;
            }
            goes_on = arranger.step(arranging)?;
        }
        if !ends() {
            all_written(self.engine().write_out(Durability::Durable)?)?;
            arranging.note_settled();
        }
        Ok(goes_on)
    }

    /// Whether there are groups for some tracks.
    fn has_groups_to_form(&self) -> bool {
        self.engine().core().cleaner().lacking_to_form() == 0
    }

    /// The directories that are worth it now, if they are enough to begin. Their reads count anew.
    fn choose(&self, ends: &dyn Fn() -> bool) -> Option<Arranging> {
        let (all, some) = self.reads_to_weigh();
        if !some.pays() {
            // What was found to be too little since is so still.
            let told = &mut self.engine().forming().told;
            if told.directories == 0 {
                told.unformed = match some.is_possible() {
                    true => Unformed::Reads,
                    false => Unformed::Room,
                };
            }
            return None;
        }
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
                formed_estimate: told.formed_estimate + Duration::from_micros(chosen.cost),
                formed_cost: told.formed_cost,
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

    /// What forming tracks of these files takes and saves, where others take so many bytes before.
    fn price(
        &self,
        settling: &Settling,
        groups: &GroupsForTracks,
        before: u64,
        reads: u64,
    ) -> FormingCost {
        let sweep = self.engine().sweeper().settle_bytes();
        let core = self.engine().core();
        let before = core.geometry.frags_for(before);
        let groups = GroupsForTracks {
            spared: groups.spared.saturating_sub(before),
            ..groups.clone()
        };
        let settling = Settling { sweep, ..*settling };
        core.prices()
            .forming(&settling, &groups, reads, in_use(&core))
    }

    /// Files of these directories, each of so many bytes.
    fn settling(&self, dirs: &[Dir], bytes_a_file: u64) -> Settling {
        let files: u64 = dirs.iter().map(|dir| dir.files).sum();
        let low = dirs.iter().map(|dir| dir.blocks.0.0).min().unwrap_or(0);
        let high = dirs.iter().map(|dir| dir.blocks.1.0).max().unwrap_or(0);
        let blocks = high - low + 1;
        let all = self.engine().core().inodes.totals().next_block.0.max(1);
        Settling {
            files,
            bytes: files.saturating_mul(bytes_a_file),
            blocks: blocks.min(files),
            spread: (blocks * 1000 / all).clamp(1, 1000),
            sweep: 0,
        }
    }

    /// Where tracks get their groups from.
    fn groups(&self) -> GroupsForTracks {
        self.engine().core().cleaner().groups_for_tracks()
    }

    /// All cold reads so far, and what those since directories were last weighed are for as many tracks as are worth beginning for:
    /// weighing reads a little of each directory.
    fn reads_to_weigh(&self) -> (u64, FormingCost) {
        let all = self.engine().core().tracks.reads().all();
        let since = all - self.engine().forming().weighed;
        let files = self.least() / USUAL;
        let least = Settling {
            files,
            bytes: self.least(),
            blocks: files / INODES_PER_BLOCK,
            spread: 1,
            sweep: 0,
        };
        let groups = self.groups();
        (all, self.price(&least, &groups, 0, since))
    }

    /// Weighs the directories of most reads; `None` if that was ended.
    fn weigh(&self, ends: &dyn Fn() -> bool) -> Option<Chosen> {
        let most = self.engine().core().tracks.reads().most(WEIGHED);
        let (mut chosen, groups) = (Chosen::default(), self.groups());
        for (block, reads) in most {
            if ends() {
                return None;
            }
            self.weigh_block(block, reads, &groups, &mut chosen);
        }
        Some(chosen)
    }

    /// Chooses all directories of a block that have files, if that pays for all of them: they stand together, and whoever reads them
    /// one after the other would go to and fro between those that moved and those that did not.
    fn weigh_block(
        &self,
        number: InodeBlockNo,
        reads: Reads,
        groups: &GroupsForTracks,
        chosen: &mut Chosen,
    ) {
        // What cannot be read is left out.
        let look_at = |dir| self.engine().run(|core| weigh::look_at(core, dir));
        let dirs = reads::together(number).filter_map(|dir| look_at(dir).ok().flatten());
        let dirs: Vec<Dir> = dirs.collect();
        if dirs.is_empty() {
            self.engine().core().tracks.reads().forget(number);
        }
        let settling = self.settling(&dirs, reads.bytes_a_file());
        let forming = self.price(&settling, groups, chosen.bytes, reads.cold());
        if forming.pays() {
            chosen.blocks.insert(number, self.in_order(&dirs));
            chosen.bytes += settling.bytes;
            chosen.cost += forming.cost;
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
