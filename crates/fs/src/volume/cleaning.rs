//! The fight for space: pending frees, checkpoints, compaction, emptying groups (rules 10 and 11). What is moved the cleaner
//! chooses (`reclaim::cleaner`).

use super::commit::End;
use super::commit::all_written;
use super::drive::Lack;
use super::{Durability, Engine, Sealer};
use crate::core::Core;
use crate::error::Error;
use crate::reclaim::{self, BATCH_MAX, CostLimit, Fight, Goal, IDLE_ROUNDS, SERVED_PART};
use loamfs_format::{Extent, GroupNo};

/// Rounds of compaction in one go: enough to go through a whole log.
const REPLENISH_ROUNDS: usize = 1024;

/// Segments' worth of room that a fight for space wins, so that the next one is some time off; what is cheapest to win
/// comes first, and what was not moved is cheaper to move later.
const WON_AT_ONCE: u32 = 1;

/// Segments' worth of what lives that a fight moves where whole groups are all that can be won, if what waits has room then: where
/// that is dear, nobody waits for more than this takes. On small volumes it is less than a group.
const MOVED_AT_ONCE: u64 = 3;

/// What two checkpoints that free emptied groups win at least, for each byte that they write. Others free them later, for nothing.
const PAIR_WINS: u64 = 4;

/// Bytes that a fight moves until it takes two such checkpoints if they win anything: somebody waits for it, and to move as much takes
/// a disk nearly a second.
const MOVED_LONG: u64 = 64 << 20;

/// How a fight for space stands.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// What is moved has room elsewhere.
    room: bool,
    /// What waits has room.
    served: bool,
    /// Nothing is won any more but at a low price.
    content: bool,
    /// The goal is reached.
    won: bool,
    /// It moved so much that whoever waits has waited for long.
    long: bool,
    /// Fragments that can be used, or could be behind two checkpoints.
    usable: u64,
}

impl Engine {
    /// Makes room in memory: what waits is committed, and pending truncates are drained. Returns why there is no room
    /// all the same, if data of large files that cannot be written take most of it.
    pub(super) fn relieve(&self) -> Result<Option<Error>, Error> {
        self.tidy(usize::MAX)?;
        let unwritten = self.write_out(Durability::Written)?;
        let sealer = self.sealer();
        sealer.checkpoint_if_due()?;
        sealer.keep_reserve()?;
        sealer.clean_ahead_of_segment();
        let mut core = self.core();
        let stuck = core.budget().waiting().bytes > core.writeback.bytes_max() / 2;
        Ok(all_written(unwritten).err().filter(|_| stuck))
    }

    /// Wins space back before anyone gets ENOSPC (rule 10), each time by dearer means: pending frees become durable,
    /// and reusable by a segment that says so; groups are emptied and the log is compacted; checkpoints give back maps
    /// and summaries; the log is given room at any price; everything is moved that can be.
    pub(crate) fn win_space(&self, fight: Fight, means: u32) -> Result<(), Error> {
        self.tidy(usize::MAX)?;
        self.sealer().win_space(fight, means)
    }

    /// Makes way for a removal that would eat into the two checkpoints of the reserve (rule 10): what is dirty is
    /// committed, and both checkpoints give back what it freed and superseded. If there was nothing to give back when it
    /// was tried, what stands scattered is moved together.
    pub(super) fn make_way(&self, settled: bool) -> Result<(), Error> {
        let sealer = self.sealer();
        match settled {
            true => sealer.pack(),
            // Somebody else may have waited for the same.
            false if self.core().budget().is_settled() => Ok(()),
            false => sealer.take_checkpoints(),
        }
    }
}

impl Sealer<'_> {
    /// As [`Engine::win_space`], of what was tidied.
    pub(super) fn win_space(&self, fight: Fight, means: u32) -> Result<(), Error> {
        self.commit_all(Durability::Durable)?;
        self.commit_shown(true, Durability::Durable)?;
        let (cheap, dear) = match fight {
            Fight::Lent => (Goal::Lend { dear: false }, Goal::Lend { dear: true }),
            _ => (Goal::Segments(WON_AT_ONCE), Goal::Dear),
        };
        match means {
            0 | 1 => {
                let served = self.replenish(cheap)?;
                // What moving left behind comes with two checkpoints.
                if !served && self.core().budget().forecast().holds_back_much() {
                    self.free_held()?;
                }
            }
            2 => {
                self.free_held()?;
            }
            3 => self.replenish_packing(dear)?,
            _ => {
                let usable_and_moved =
                    |core: &mut Core| (core.budget().usable(), core.reclaim.cleaned().live);
                let (usable, moved) = usable_and_moved(&mut self.core());
                self.replenish_packing(Goal::All)?;
                let mut core = self.core();
                let (now, all_moved) = usable_and_moved(&mut core);
                // Whoever comes next would move as much again, for as little.
                if !reclaim::pays(now.saturating_sub(usable), all_moved - moved) {
                    core.fights().note_lost(fight);
                }
            }
        }
        Ok(())
    }

    /// As [`Sealer::replenish`]; segments take holes before they take whole groups.
    fn replenish_packing(&self, goal: Goal) -> Result<(), Error> {
        self.core().reclaim.pack(true);
        let packed = self.replenish(goal);
        self.core().reclaim.pack(false);
        packed.map(drop)
    }

    /// Moves together what stands scattered, range by range, since there is no room to empty whole groups into, until
    /// removals can go on for a while.
    fn pack(&self) -> Result<(), Error> {
        self.core().reclaim.pack(true);
        let packed = self.pack_ranges();
        let mut core = self.core();
        core.reclaim.pack(false);
        core.mover().open_groups();
        packed
    }

    fn pack_ranges(&self) -> Result<(), Error> {
        let (mut best, mut idle, mut packed) = (0, 0, Vec::new());
        for _ in 0..REPLENISH_ROUNDS {
            self.load_emptiest()?;
            let ranges = {
                let mut core = self.core();
                let goal = core.budget().segment_estimate() + 2 * core.sizes().spare_bytes();
                if core.budget().leaves_checkpoints_for_any(goal) == Some(true) {
                    return Ok(());
                }
                let usable = core.budget().usable_for_any();
                tracing::debug!(usable, best, idle, "packing the log");
                idle = if usable > best { 0 } else { idle + 1 };
                best = best.max(usable);
                let spare = core.geometry.frags_for(core.sizes().spare_bytes());
                let ranges = core.cleaner().useless(spare, &packed);
                packed.extend(
                    ranges
                        .first()
                        .map(|range| core.geometry.group_of(range.start)),
                );
                core.mover().close_groups_of(&ranges);
                ranges
            };
            if ranges.is_empty() || idle > IDLE_ROUNDS {
                break;
            }
            let moved = self.evacuate_with_homes(&ranges, |_| true);
            self.core().mover().open_groups();
            moved?;
            self.take_checkpoints()?;
        }
        Ok(())
    }

    /// Commits, and takes two checkpoints: nothing is held back then but what the second superseded.
    pub(super) fn take_checkpoints(&self) -> Result<(), Error> {
        self.commit_shown(false, Durability::Durable)?;
        self.name_in_both()
    }

    /// What waits for both superblock copies to name another checkpoint is free, and reusable.
    pub(super) fn free_held(&self) -> Result<(), Error> {
        self.name_in_both()?;
        self.say_reusable()
    }

    /// Makes the reserve whole again after removals that ate into it: what they freed is made reusable, then groups are
    /// emptied and the log is compacted. Where that was in vain it waits until more was freed.
    pub(super) fn keep_reserve(&self) -> Result<(), Error> {
        {
            let mut core = self.core();
            if core.budget().has_reserve() || core.fights().is_lost(Fight::Reserve) {
                return Ok(());
            }
        }
        self.commit_all(Durability::Durable)?;
        self.say_reusable()?;
        self.replenish(Goal::Segments(0))?;
        let mut core = self.core();
        if !core.budget().has_reserve() {
            core.fights().note_lost(Fight::Reserve);
        }
        Ok(())
    }

    /// Empties groups and compacts the log while it lacks room for the goal in holes that segments fit into. Returns whether
    /// there is room for what waits now.
    pub(super) fn replenish(&self, goal: Goal) -> Result<bool, Error> {
        let (mut best, mut idle, mut drained) = (0, 0, false);
        let before = self.core().reclaim.cleaned().live;
        for _ in 0..REPLENISH_ROUNDS {
            let standing = self.standing(goal, before);
            tracing::debug!(?goal, ?standing, "winning space");
            idle = if standing.usable > best { 0 } else { idle + 1 };
            best = best.max(standing.usable);
            if standing.won || idle > goal.patience() {
                break;
            }
            let wins = if standing.long { 1 } else { PAIR_WINS };
            if self.free_emptied(wins)? {
                continue;
            }
            let limits = goal.limits(standing.content);
            if !standing.room || !self.move_first(limits)? {
                if goal != Goal::All || drained {
                    break;
                }
                // What stays where it is are summaries and maps, until both superblock copies name a later checkpoint.
                self.free_held()?;
                drained = true;
                continue;
            }
            drained = false;
            // Summaries and map nodes in the way go with a checkpoint.
            if idle > 1 {
                self.checkpoint(End::Open)?;
            }
        }
        let served = self.standing(goal, before).served;
        if !served && self.free_emptied(1)? {
            return Ok(self.standing(goal, before).served);
        }
        Ok(served)
    }

    /// Takes the checkpoints that free groups out of which all else was moved, if that wins more than so many times what they write.
    /// Returns whether it did.
    fn free_emptied(&self, times: u64) -> Result<bool, Error> {
        let pays = {
            let mut core = self.core();
            let won = core.budget().emptied() * u64::from(core.geometry.fragment_size);
            won > 0 && core.budget().forecast().pair_bytes() < won / times
        };
        if pays {
            self.free_held()?;
        }
        Ok(pays)
    }

    /// How a fight stands that began when so many fragments were moved.
    fn standing(&self, goal: Goal, before: u64) -> Standing {
        let mut core = self.core();
        let whole_groups = core.space.free_groups() >= core.sizes().groups_to_move_into();
        let segment = u64::from(core.geometry.segment_max);
        // Where groups are written when they are clean, the next fight needs some to empty others into.
        let all_log = core.space.is_all_log();
        let clean = !all_log || core.space.free_groups() >= core.sizes().groups_kept_from_data();
        let round = core.sizes().won_together();
        let much = MOVED_AT_ONCE * core.geometry.frags_for(round);
        let moved = core.reclaim.cleaned().live - before;
        let moved_much = moved >= much;
        let long = moved >= core.geometry.frags_for(MOVED_LONG);
        let mut fits = |bytes| core.budget().goes_on(bytes);
        let (served, won) = match goal {
            Goal::All => (false, false),
            // Others come later, when what was not moved is cheaper to move, and whoever fights now waits for it.
            Goal::Dear => (false, clean && fits(segment / SERVED_PART)),
            Goal::Lend { .. } => {
                let part = segment / SERVED_PART;
                let lends = fits(part) || matches!(core.budget().may_lend(part), Ok(true));
                (lends, lends)
            }
            // Nobody waits for it: idle times win whole groups.
            Goal::Segments(0) => (fits(0), fits(segment / SERVED_PART)),
            Goal::Segments(count) => {
                let (all, served) = (u64::from(count) * round, fits(segment / SERVED_PART));
                let won = match all_log {
                    true => served && (moved_much || fits(all)),
                    false => whole_groups && fits(all),
                };
                (served, won)
            }
        };
        Standing {
            room: core.budget().may_compact(),
            served,
            // A segment's worth is won together there, or moving much would come again soon.
            content: served && (!all_log || goal == Goal::Segments(0)),
            won,
            long,
            usable: core.budget().won(),
        }
    }

    /// Moves what the first limit allows that allows anything. Returns whether one does.
    fn move_first(&self, limits: &[CostLimit]) -> Result<bool, Error> {
        for limit in limits {
            if self.move_some(*limit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves what the cleaner chooses, and makes what was won usable. Returns whether there was anything.
    fn move_some(&self, limit: CostLimit) -> Result<bool, Error> {
        self.load_emptiest()?;
        let (groups, ranges) = {
            let mut core = self.core();
            let elsewhere = core.budget().elsewhere();
            let (groups, ranges) = core.cleaner().choose(limit, &elsewhere);
            if !groups.is_empty() {
                core.mover().close_groups(&groups);
            }
            (groups, ranges)
        };
        tracing::debug!(?limit, ?groups, ranges = ranges.len(), "moving");
        if ranges.is_empty() {
            return Ok(false);
        }
        let moved = self
            .evacuate_with_homes(&ranges, |core| core.budget().may_compact())
            .and_then(|_| self.commit_all(Durability::Durable));
        {
            let mut core = self.core();
            core.mover().open_groups();
            core.mover().leave_unmoved();
        }
        moved?;
        // What was won is known, and used, only then; another round costs far more.
        self.say_reusable()?;
        self.note_left(&groups)?;
        Ok(true)
    }

    /// All was moved out of these groups that could be.
    fn note_left(&self, groups: &[GroupNo]) -> Result<(), Error> {
        self.step(|core| {
            let leftover = core.mover().left_in(groups)?;
            let (clock, until) = (core.space.cleaning().clock(), core.open_ssn());
            let named = core.checkpoints.named();
            core.reclaim.note_left(leftover, clock, until, named);
            Ok(())
        })
    }

    /// Loads bitmaps of the log's emptiest groups: holes, and what is cheap to move, are seen there only. Returns the groups whose
    /// were loaded.
    pub(super) fn load_emptiest(&self) -> Result<Vec<GroupNo>, Error> {
        let unseen = self.core().space.cleaning().unloaded_log_groups(BATCH_MAX);
        self.load(&unseen)?;
        Ok(unseen)
    }

    /// A segment that says that everything is durable lets what was freed be reused, once each copy of the log has it.
    pub(super) fn say_reusable(&self) -> Result<(), Error> {
        self.commit_shown(true, Durability::Durable)?;
        self.checkpoint_if_due()?;
        self.renew()
    }

    /// Commits what the mover made dirty without waiting for large files' data that others wrote, if it moved none.
    pub(super) fn commit_moved(&self, durability: Durability) -> Result<(), Error> {
        let homes = self.core().space.is_all_log();
        match homes {
            true => self.commit_all(durability).map(drop),
            false => self.commit_shown(false, durability).map(drop),
        }
    }

    /// As [`Sealer::evacuate_all`] with what waits of large files written out whenever a segment is full.
    pub(super) fn evacuate_with_homes(
        &self,
        ranges: &[Extent],
        may_go_on: impl Fn(&mut Core) -> bool,
    ) -> Result<Option<Error>, Error> {
        self.evacuate_all(ranges, may_go_on, || {
            self.commit_all(Durability::Written).map(drop)
        })
    }

    /// Makes what lives in ranges dirty, committing by `commit` whenever a segment is full, as long as there is room for it
    /// elsewhere. As much as the reader holds is read in one sweep; what its owners are, all at once. What is damaged stays: this
    /// answers what is wrong with the first of it.
    pub(super) fn evacuate_all(
        &self,
        ranges: &[Extent],
        may_go_on: impl Fn(&mut Core) -> bool,
        commit: impl Fn() -> Result<(), Error>,
    ) -> Result<Option<Error>, Error> {
        let most = self.core().geometry.frags_for(self.reader.sweep_max());
        let (mut sum, mut damage) = (0, None);
        let fit = |range: &Extent, next: &Extent| {
            sum += range.frags;
            let fits = sum + next.frags <= most;
            sum = if fits { sum } else { 0 };
            fits
        };
        for ranges in ranges.chunk_by(fit) {
            let content = self.step(|core| core.mover().begin_cleaning(ranges))?;
            self.reader.sweep(&content);
            self.step(|core| core.mover().meet_owners(ranges))?;
            // What has no place while all is packed must not keep the rest.
            let packing = self.core().reclaim.is_packing();
            let together = if packing { 1 } else { ranges.len() };
            for ranges in ranges.chunks(together) {
                let mut tight = false;
                loop {
                    let moved = self.step_unless_crowded(|core| core.mover().evacuate(ranges))?;
                    let lack = match moved {
                        Ok(damaged) => {
                            damage = damage.or(damaged);
                            break;
                        }
                        Err(lack) => lack,
                    };
                    match lack {
                        Lack::Memory => {
                            let last = self.core().log.tail().ssn;
                            commit()?;
                            // It had nothing to write: what waits for homes takes the room.
                            if self.core().log.tail().ssn == last {
                                return Ok(damage);
                            }
                        }
                        Lack::Space { .. } if tight && self.core().reclaim.is_packing() => break,
                        Lack::Space { .. } if tight => return Ok(damage),
                        Lack::Space { .. } => self.take_checkpoints()?,
                    }
                    tight = lack != Lack::Memory;
                    if !may_go_on(&mut self.core()) {
                        return Ok(damage);
                    }
                }
                // Homes that move wait in memory.
                let much = {
                    let mut core = self.core();
                    core.budget().waiting().bytes > core.writeback.bytes_max()
                };
                if much {
                    commit()?;
                }
            }
        }
        if let Some(error) = &damage {
            tracing::warn!(%error, "what is damaged is not moved");
        }
        Ok(damage)
    }
}
