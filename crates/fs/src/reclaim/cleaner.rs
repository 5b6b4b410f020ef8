//! The cleaning policy: which groups and ranges are worth moving, when, and how long, by cost-benefit: what moving takes
//! against what it wins (L4, L6; LFS, section 4.3.4). What each would cost, and win, `space::cleaning` tells, in the order of a
//! policy. `volume::cleaning` carries it out.

use super::forming_cost::GroupsForTracks;
use super::plugging_cost::{PluggingCost, Written};
use super::settler::Prices;
use super::state::{BATCH_MAX, CutInto, Reclaim};
use crate::budget::Sizes;
use crate::checkpoints::Checkpoints;
use crate::core::Core;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo};
use loamfs_log::writer::LogWriter;
use loamfs_space::{Candidate, Cells, CleaningCost, CleaningPolicy, Outlook, Space, role};

/// Bytes of the smallest hole that is not worth compacting on a disk whose seeks are dear.
const HOLE_MIN: u64 = 128 << 10;
/// Fragments that are worth moving at most, for each that this wins, when an operation waits for room.
const COST_MAX: u64 = 7;
/// A group that holds so many fragments for each that it wins, in relation to another, costs hardly more.
const ALIKE: (u64, u64) = (5, 4);
/// What part of a segment is won together where that is dear.
const DEAR_PART: u64 = 4;
/// What part of a segment must fit for what waits to go on for a while. Where that takes anything, no more is won.
pub(crate) const SERVED_PART: u64 = 8;
/// Where groups are written when they are clean, those are emptied in idle times of which less than so many of a hundred
/// fragments are in use: they win more than half of what they take.
const IDLE_EMPTIER: u32 = 60;
/// There the last means before ENOSPC ([`CostLimit::Any`]) empties those of which less than so many of a hundred are: they take 32 for
/// one that they win.
const LAST_FULLEST: u32 = 97;
/// A segment that is cut into fewer holes takes hardly longer than one that is whole.
pub(crate) const HOLES_MANY: u64 = 16;
/// In idle times one of so many groups is kept free.
const IDLE_PART: u64 = 16;
/// Rounds in a row that may win nothing: what a round leaves is free after the next, and a checkpoint takes before it
/// gives.
pub(crate) const IDLE_ROUNDS: usize = 3;
/// The same before an operation gets ENOSPC.
const LAST_ROUNDS: usize = 8;

/// What moving may cost, against what it wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostLimit {
    /// There is room for what waits, but not for much more, or in holes that cost a seek each: five fragments, if that wins
    /// three.
    Low,
    /// An operation waits for it: [`COST_MAX`] fragments, if that wins one.
    High,
    /// The operation gets ENOSPC else: what serves as it is may be moved too.
    Any,
    /// The same for overwrites, which need little: ranges of the log whose free space serves nobody come before all else.
    Lent,
    /// Nobody waits for it: what takes a disk less than to plug holes instead.
    Cheaper(PluggingCost),
    /// Nobody waits for it: groups of which less than so many of a hundred fragments are in use.
    LessFull(u32),
    /// The same, the emptiest first: what is won is used at once.
    Emptiest(u32),
}

impl CostLimit {
    /// Whether moving `live` fragments is worth it where that wins `won`.
    fn allows(self, live: u64, won: u64) -> bool {
        let (most, least) = match self {
            CostLimit::Low => (5, 3),
            CostLimit::High | CostLimit::Lent | CostLimit::Any => (COST_MAX, 1),
            CostLimit::Cheaper(plugging) => return plugging.costs_more(live, won),
            CostLimit::LessFull(percent) | CostLimit::Emptiest(percent) => {
                return live * 100 < (live + won) * u64::from(percent);
            }
        };
        live * least <= won * most
    }
}

/// What free space of a group is worth, by the length of its holes, in fragments.
#[derive(Clone, Copy, Debug)]
struct Holes {
    /// The shortest that serve as they are.
    least: u64,
    /// The longest that do not count as room.
    most: u64,
}

/// Groups that are not emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spared<'a> {
    /// These, in their order: it was tried before.
    pub groups: &'a [GroupNo],
    /// Those in which something was placed later, by the clock of `space::cleaning`: what was moved is there.
    pub written: u64,
}

impl<'a> Spared<'a> {
    /// None.
    pub const NONE: Spared<'static> = Spared::groups(&[]);

    /// These alone.
    pub const fn groups(groups: &'a [GroupNo]) -> Spared<'a> {
        let written = u64::MAX;
        Spared { groups, written }
    }

    fn has(self, cheap: &CleaningCost) -> bool {
        cheap.written > self.written || self.groups.binary_search(&cheap.group).is_ok()
    }
}

/// When the cleaner has won enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The reserve is whole, and a little fits besides; if these are any, whole groups are free, and at a low price so many segments of the
    /// largest size fit. Where whole groups are all that can be won, these segments fit, or a little does and much was moved for it.
    Segments(u32),
    /// A part of a segment fits, whatever that costs.
    Dear,
    /// Nothing is won any more.
    All,
    /// Overwrites can go on for a while; whatever that costs, if it is `dear`.
    Lend { dear: bool },
}

impl Goal {
    /// What the next round may cost; if that moves nothing, the one behind it, and so on. `content` says whether nothing is won any
    /// more but at a low price.
    pub fn limits(self, content: bool) -> &'static [CostLimit] {
        match self {
            Goal::Dear | Goal::All => &[CostLimit::Any],
            Goal::Lend { dear: true } => &[CostLimit::Lent],
            Goal::Segments(_) if content => &[CostLimit::Low],
            Goal::Segments(_) | Goal::Lend { .. } => &[CostLimit::Low, CostLimit::High],
        }
    }

    /// Rounds in a row that may win nothing.
    pub fn patience(self) -> usize {
        match self {
            Goal::Dear | Goal::All | Goal::Lend { dear: true } => LAST_ROUNDS,
            Goal::Segments(_) | Goal::Lend { .. } => IDLE_ROUNDS,
        }
    }
}

/// Whether it pays to go on as before, which won so many fragments and moved so many.
pub(crate) fn pays(won: u64, moved: u64) -> bool {
    won * COST_MAX >= moved
}

/// As many of these groups, from the first one on, as win so many fragments, and find so much room elsewhere.
fn batch(groups: &[CleaningCost], frags: u64, room: u64) -> &[CleaningCost] {
    let (mut won, mut taken) = (0, 0);
    let some = groups.iter().take(BATCH_MAX).take_while(|cheap| {
        let enough = won >= frags;
        won += cheap.won;
        taken += cheap.room;
        !enough && taken <= room
    });
    &groups[..some.count()]
}

/// Groups that win as much as the cheapest, and cost hardly more, but lie nearest to each other: they are read, and then
/// written, with fewer seeks. What is left is not much dearer later.
fn nearest(found: &[CleaningCost], cheapest: &[CleaningCost], room: u64) -> Vec<CleaningCost> {
    let Some(dearest) = cheapest.last() else {
        return Vec::new();
    };
    let frags = cheapest.iter().map(|cheap| cheap.won).sum::<u64>();
    let alike = |cheap: &&CleaningCost| {
        let (a, b) = (cheap.live * dearest.won, dearest.live * cheap.won);
        a.saturating_mul(ALIKE.1) <= b.saturating_mul(ALIKE.0)
    };
    let mut alike: Vec<CleaningCost> = found.iter().filter(alike).copied().collect();
    alike.sort_unstable_by_key(|cheap| cheap.group);
    // Groups that differ in size win more or less.
    let wanted = frags - frags / 16;
    let runs = (0..alike.len()).map(|first| batch(&alike[first..], wanted, room));
    let enough = |run: &&[CleaningCost]| run.iter().map(|cheap| cheap.won).sum::<u64>() >= wanted;
    let span = |run: &&[CleaningCost]| match (run.first(), run.last()) {
        (Some(first), Some(last)) => last.group.0 - first.group.0,
        _ => u32::MAX,
    };
    runs.filter(enough)
        .min_by_key(span)
        .unwrap_or(cheapest)
        .to_vec()
}

/// What is in use once nothing is held back and `going` is free too, and all was cleaned that is worth it to an operation
/// which waits for room.
pub(crate) fn outlook(space: &Space, going: &[Extent]) -> Outlook {
    space.cleaning().outlook(going, COST_MAX)
}

/// What is looked at to choose what is moved.
pub(crate) struct Cleaner<'c> {
    geometry: &'c Geometry,
    sizes: Sizes<'c>,
    space: &'c Space,
    log: &'c LogWriter,
    checkpoints: &'c Checkpoints,
    reclaim: &'c Reclaim,
    policy: CleaningPolicy,
    says_deltas: bool,
}

/// What the budget says of the room for what is moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    /// Free fragments of log groups that any segment can use.
    pub usable_log: u64,
    /// Bytes of data that wait for new homes.
    pub waiting_bytes: u64,
    /// Free groups that these take.
    pub groups_awaited: u64,
}

impl Core {
    /// What the cleaner looks at.
    pub fn cleaner(&self) -> Cleaner<'_> {
        Cleaner {
            geometry: &self.geometry,
            sizes: self.sizes(),
            space: &self.space,
            log: &self.log,
            checkpoints: &self.checkpoints,
            reclaim: &self.reclaim,
            policy: self.env.config().cleaning,
            says_deltas: self.sb.has_deltas(),
        }
    }
}

impl Cleaner<'_> {
    /// What is cheapest to move: whole groups, which serve every role then and are read and written without seeks, and their
    /// pieces; when all else failed, ranges of the log alone. About a segment's worth is won, of what is dear a part of it.
    pub fn choose(&self, limit: CostLimit, elsewhere: &Elsewhere) -> (Vec<GroupNo>, Vec<Extent>) {
        let segment = self.geometry.frags_for(self.sizes.won_together());
        let frags = match limit {
            CostLimit::High => segment / DEAR_PART,
            CostLimit::Lent => segment / SERVED_PART,
            _ => segment,
        };
        // Data that wait need whole groups.
        if limit == CostLimit::Lent && elsewhere.groups_awaited == 0 {
            let ranges = self.compactable(frags, self.sizes.hole_least());
            if !ranges.is_empty() {
                return (Vec::new(), ranges);
            }
        }
        let groups = self.groups_to_empty(limit, frags, elsewhere);
        let extents = groups
            .iter()
            .map(|group| self.geometry.group_extent(*group));
        let ranges = match (groups.is_empty(), limit) {
            (false, _) => extents.flat_map(|extent| self.pieces(extent)).collect(),
            (true, CostLimit::Any | CostLimit::Lent) => {
                self.compactable(frags, self.geometry.frags_for(HOLE_MIN))
            }
            (true, _) => Vec::new(),
        };
        (groups, ranges)
    }

    /// Free groups that data which wait lack, if the holes of data groups are shorter than all of them together.
    fn groups_lacking_ahead(&self, waiting: u64) -> u64 {
        let g = self.geometry;
        let wanted = waiting.div_ceil(g.group_frags) + self.sizes.groups_kept_from_data() + 1;
        match waiting > self.longest_hole() {
            true => wanted.saturating_sub(self.space.free_groups()),
            false => 0,
        }
    }

    /// The longest hole of data groups, as far as their bitmaps are known.
    fn longest_hole(&self) -> u64 {
        self.space.free_index(Role::Data).longest().into()
    }

    /// Whether groups may be worth emptying for so many bytes of data that wait.
    pub fn would_clean_ahead(&self, waiting_bytes: u64) -> bool {
        let lacking = self.groups_lacking_ahead(self.geometry.frags_for(waiting_bytes));
        // Nothing is plugged where groups are written when they are clean.
        lacking > 0 && !self.space.is_all_log()
    }

    /// What emptying groups of the log may cost for so many bytes of data that wait, and the fragments that are lacking. It may
    /// cost what takes a disk less than plugging holes with them.
    pub fn lacking_ahead(&self, prices: &Prices, waiting_bytes: u64) -> (CostLimit, u64) {
        let g = self.geometry;
        let waiting = g.frags_for(waiting_bytes);
        let limit =
            CostLimit::Cheaper(prices.plugging(self.longest_hole(), waiting, Written::WITH_BLOCKS));
        (limit, self.groups_lacking_ahead(waiting) * g.group_frags)
    }

    /// Groups of the log but some, and their pieces, that are worth emptying, until they win `frags` fragments.
    pub fn log_groups_to_empty(
        &self,
        limit: CostLimit,
        frags: u64,
        but: Spared<'_>,
        elsewhere: &Elsewhere,
    ) -> (Vec<GroupNo>, Vec<Extent>) {
        let found = self.cheapest_of(Role::Log, limit, frags, but, elsewhere);
        let mut groups: Vec<GroupNo> = found.into_iter().map(|cheap| cheap.group).collect();
        groups.sort_unstable();
        let extents = groups
            .iter()
            .map(|group| self.geometry.group_extent(*group));
        let ranges = extents.flat_map(|extent| self.pieces(extent)).collect();
        (groups, ranges)
    }

    /// How many groups of the log but some are worth emptying, as far as their bitmaps are known.
    pub fn emptiable(&self, limit: CostLimit, but: Spared<'_>) -> u64 {
        self.worth_emptying(
            Role::Log,
            limit,
            but,
            Holes {
                least: 0,
                most: u64::MAX,
            },
        )
        .count() as u64
    }

    /// Free groups that are lacking when nobody does anything: what segments and data keep for themselves, and a sixteenth of
    /// all for what is written next.
    pub fn lacking_in_idle_time(&self) -> u64 {
        self.wanted_in_idle_time()
            .saturating_sub(self.space.free_groups())
    }

    /// Free groups that are lacking for tracks to form, a segment of them at a time with what leads there. It is less than idle
    /// times leave, since what was moved makes as much room.
    pub fn lacking_to_form(&self) -> u64 {
        self.wanted_to_form()
            .saturating_sub(self.space.free_groups())
    }

    fn wanted_to_form(&self) -> u64 {
        self.sizes.groups_kept_from_data() + self.sizes.groups_to_move_into()
    }

    /// Out of what tracks get their groups.
    pub fn groups_for_tracks(&self) -> GroupsForTracks {
        let spared = self
            .space
            .free_groups()
            .saturating_sub(self.wanted_to_form());
        // Nothing else is emptied into them.
        let (count, room) = match self.says_deltas {
            true => self.long_holes(),
            false => (0, 0),
        };
        GroupsForTracks {
            spared: spared.saturating_mul(self.geometry.group_frags),
            lacking: self.lacking_to_form() * self.geometry.group_frags,
            live: self.space.cleaning().log_live(),
            long_hole: room / count.max(1),
            long_room: room,
            says_deltas: self.says_deltas,
        }
    }

    /// The holes of the log that any segment can be cut into: how many, and how much room that is.
    fn long_holes(&self) -> (u64, u64) {
        let least = self.sizes.hole_least();
        let holes = self.space.cleaning().log_holes();
        let long = holes.iter().filter(|hole| hole.frags >= least);
        long.fold((0, 0), |(count, room), hole| (count + 1, room + hole.frags))
    }

    /// Whether so many fragments of large files may be written anew, beside those that they take the place of, so that segments
    /// and what is cleaned next have their groups.
    pub fn may_gather(&self, frags: u64) -> bool {
        let groups = frags.div_ceil(self.geometry.group_frags) + 1;
        self.space.free_groups() >= self.wanted_to_form() + groups
    }

    fn wanted_in_idle_time(&self) -> u64 {
        self.sizes.groups_kept_from_data() + 1 + u64::from(self.geometry.groups()) / IDLE_PART
    }

    /// What emptying groups may cost, so that it takes a disk less than to write `frags` fragments into holes: those of data
    /// groups, or of the log where there are none. Where no hole is written to, what wins more than half of it.
    pub fn cheaper_than_plugging(&self, prices: &Prices, frags: u64) -> CostLimit {
        if self.space.is_all_log() {
            return CostLimit::LessFull(IDLE_EMPTIER);
        }
        let data = self.space.free_index(Role::Data);
        let hole = match data.groups().is_empty() {
            true => self.space.free_index(Role::Log).longest().into(),
            false => self.longest_hole(),
        };
        CostLimit::Cheaper(prices.plugging(hole, frags, Written::WITH_BLOCKS))
    }

    /// What emptying groups may cost, so that it takes a disk less than to cut the next segment into as many holes as the last one, and
    /// the fragments of that; none where holes were few, or cost too little.
    pub fn cheaper_than_cutting(&self, prices: &Prices) -> Option<(CostLimit, u64)> {
        let CutInto { holes, frags } = self.reclaim.last_cut();
        if holes < HOLES_MANY || self.space.is_all_log() {
            return None;
        }
        let written = match self.says_deltas {
            true => Written::WITH_DELTAS,
            false => Written::WITH_BLOCKS,
        };
        let plugging = prices.plugging(frags / holes, frags, written);
        // Else no group is worth it, however little it holds.
        let may_pay = plugging.costs_more(0, self.geometry.group_frags);
        may_pay.then_some((CostLimit::Cheaper(plugging), frags))
    }

    /// Log ranges to be compacted, the cheapest that are worth it, until about `frags` fragments are won that are free in holes
    /// of less than `hole_max`; in the order of their addresses, so that neighbours are read without a seek.
    fn compactable(&self, frags: u64, hole_max: u64) -> Vec<Extent> {
        let found = self.space.cleaning().compact_candidates(hole_max);
        self.pieces_of(found, frags, COST_MAX)
    }

    /// Ranges of one group, neither the one where the log goes on nor one `but` which, whose free space no block fits into,
    /// whatever moving them costs.
    pub fn useless(&self, frags: u64, but: &[GroupNo]) -> Vec<Extent> {
        let group_of = |extent: Extent| self.geometry.group_of(extent.start);
        let next = self.geometry.group_of(self.log.tail().next);
        let mut found = self
            .space
            .cleaning()
            .compact_candidates(self.sizes.hole_least());
        found.retain(|candidate| {
            let group = group_of(candidate.extent);
            group != next && !but.contains(&group)
        });
        if let Some(first) = found.first().map(|cheapest| group_of(cheapest.extent)) {
            found.retain(|candidate| group_of(candidate.extent) == first);
        }
        self.pieces_of(found, frags, u64::MAX)
    }

    /// The first candidates that win `frags` fragments, at most `most` moved for one that is won.
    fn pieces_of(&self, candidates: Vec<Candidate>, frags: u64, most: u64) -> Vec<Extent> {
        let mut won = 0;
        let mut ranges = Vec::new();
        for candidate in candidates {
            if won >= frags || candidate.live > candidate.scattered.saturating_mul(most) {
                break;
            }
            won += candidate.scattered;
            ranges.extend(self.pieces(candidate.extent));
        }
        ranges.sort_unstable();
        ranges
    }

    /// Groups of one role that are cheapest to empty and worth it, as many as win `frags` fragments and whose content
    /// has room elsewhere. Emptied, they can take any role. In the order of their addresses, so that neighbours are read
    /// without a seek.
    fn groups_to_empty(&self, limit: CostLimit, frags: u64, elsewhere: &Elsewhere) -> Vec<GroupNo> {
        let but = Spared::NONE;
        let found = role::in_use().map(|role| self.cheapest_of(role, limit, frags, but, elsewhere));
        let live =
            |groups: &Vec<CleaningCost>| groups.iter().map(|it| it.live).min().unwrap_or(u64::MAX);
        let found = found.min_by_key(live).unwrap_or_default();
        let mut groups: Vec<GroupNo> = found.into_iter().map(|cheap| cheap.group).collect();
        groups.sort_unstable();
        groups
    }

    /// Fragments that content of a role finds elsewhere when groups are emptied.
    fn room_for(&self, role: Role, elsewhere: &Elsewhere) -> u64 {
        let g = self.geometry;
        let unknown = self.space.free_index(Role::Log).unknown();
        let in_log = elsewhere.usable_log.saturating_sub(unknown);
        let usable = in_log + self.space.free_groups() * g.group_frags;
        let log = usable.saturating_sub(g.frags_for(self.sizes.reserve_bytes() / 2));
        // Data that wait were given room before.
        let given = elsewhere.waiting_bytes / u64::from(g.fragment_size);
        match Cells::of(role) {
            Cells::Units => log,
            // What moves homes is written to the log.
            Cells::Blocks if log > 0 => self.space.free_index(role).frags().saturating_sub(given),
            Cells::Blocks | Cells::None => 0,
        }
    }

    /// Whether what is emptied may hold blocks of large files that have groups of their own.
    fn moves_homes(&self) -> bool {
        self.space.is_all_log() && (self.space.home_room() > 0 || self.reclaim.are_homes_refused())
    }

    fn cheapest_of(
        &self,
        role: Role,
        limit: CostLimit,
        frags: u64,
        but: Spared<'_>,
        elsewhere: &Elsewhere,
    ) -> Vec<CleaningCost> {
        let g = self.geometry;
        let room = self.room_for(role, elsewhere);
        // Before ENOSPC what has room is moved, though homes have none.
        let room = match self.moves_homes() && limit != CostLimit::Any {
            true => room.min(self.space.room_for_moved_homes()),
            false => room,
        };
        // Data that wait need whole groups, a segment only holes that are long enough.
        let hole_max = match elsewhere.groups_awaited {
            _ if self.space.is_all_log() => u64::MAX,
            0 if Cells::of(role) == Cells::Units
                && matches!(limit, CostLimit::Low | CostLimit::High) =>
            {
                g.frags_for(HOLE_MIN)
            }
            _ => u64::MAX,
        };
        let least = match self.space.is_all_log() {
            true => u64::MAX,
            false => self.sizes.hole_least(),
        };
        let holes = Holes {
            least,
            most: hole_max,
        };
        let found: Vec<CleaningCost> = self.worth_emptying(role, limit, but, holes).collect();
        let cheapest = batch(&found, frags, room);
        match limit {
            CostLimit::Low | CostLimit::High | CostLimit::Lent | CostLimit::Any => {
                nearest(&found, cheapest, room)
            }
            CostLimit::Cheaper(_) | CostLimit::LessFull(_) | CostLimit::Emptiest(_) => {
                cheapest.to_vec()
            }
        }
    }

    /// The groups of a role that are worth emptying. Those in `but` are left out, and the one in which the log goes on.
    fn worth_emptying(
        &self,
        role: Role,
        limit: CostLimit,
        but: Spared<'_>,
        holes: Holes,
    ) -> impl Iterator<Item = CleaningCost> {
        let next = self.geometry.group_of(self.log.tail().next);
        // Who waits for room gets what is cheapest now.
        let (policy, again) = match limit {
            CostLimit::Cheaper(_) | CostLimit::LessFull(_) => (self.policy, true),
            CostLimit::Emptiest(_) => (CleaningPolicy::Greedy, true),
            CostLimit::Low | CostLimit::High | CostLimit::Lent | CostLimit::Any => {
                (CleaningPolicy::Greedy, false)
            }
        };
        let fixed = self.checkpoints.summaries();
        let cleaning = self.space.cleaning();
        let found = cleaning.cheapest_groups(role, policy, holes.most, holes.least, fixed);
        let (reclaim, named) = (self.reclaim, self.checkpoints.named());
        let spared = move |cheap: &CleaningCost| {
            cheap.group == next || but.has(cheap) || !again && reclaim.is_left(cheap, named)
        };
        // Where no hole is written to, groups are all that can be won.
        let limit = match limit {
            CostLimit::Any if self.space.is_all_log() => CostLimit::LessFull(LAST_FULLEST),
            limit => limit,
        };
        // By age the dear ones do not come last.
        found
            .into_iter()
            .filter(move |cheap| limit.allows(cheap.live, cheap.won) && !spared(cheap))
    }

    /// A range in pieces for one step each: what is missing of a piece is read in a few batches, in the order of its
    /// addresses.
    fn pieces(&self, extent: Extent) -> Vec<Extent> {
        let step = self.geometry.frags_for(self.geometry.segment_max.into());
        (extent.start.0..extent.end().0)
            .step_by(step as usize)
            .map(|start| Extent::new(FragAddr(start), step.min(extent.end().0 - start)))
            .collect()
    }
}
