//! The cleaner's policies: which ranges and groups are worth moving, by cost and benefit (LFS, section
//! 4.3.4; no age is known).

use super::{BATCH_MAX, COST_MAX, CostLimit};
use crate::budget::Sizes;
use crate::checkpoints::Checkpoints;
use crate::core::Core;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo};
use loamfs_log::writer::LogWriter;
use loamfs_space::{Candidate, CleaningCost, Space};

/// Bytes of the smallest hole that is not worth compacting on a disk whose seeks are dear.
const HOLE_MIN: u64 = 128 << 10;

/// What is looked at to choose what is moved.
pub(crate) struct Cleaner<'c> {
    geometry: &'c Geometry,
    sizes: Sizes<'c>,
    space: &'c Space,
    log: &'c LogWriter,
    checkpoints: &'c Checkpoints,
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
        }
    }
}

impl Cleaner<'_> {
    /// Log ranges to be compacted, the cheapest that are worth it, until about `frags` free fragments are won; in the
    /// order of their addresses, so that neighbours are read without a seek.
    pub fn compactable(&self, frags: u64) -> Vec<Extent> {
        let hole_max = self.geometry.frags_for(HOLE_MIN);
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
            if won >= frags || candidate.used > candidate.scattered.saturating_mul(most) {
                break;
            }
            won += candidate.scattered;
            ranges.extend(self.pieces(candidate.extent));
        }
        ranges.sort_unstable();
        ranges
    }

    /// Groups of one role that are cheapest to empty and worth it, as many as win `frags` fragments and whose content
    /// has room elsewhere; `but` some. Emptied, they can take any role. In the order of their addresses, so that
    /// neighbours are read without a seek.
    pub fn groups_to_empty(
        &self,
        limit: CostLimit,
        frags: u64,
        but: &[GroupNo],
        elsewhere: &Elsewhere,
    ) -> Vec<GroupNo> {
        let log = self.cheapest_of(Role::Log, limit, frags, but, elsewhere);
        let data = self.cheapest_of(Role::Data, limit, frags, but, elsewhere);
        let used = |groups: &[CleaningCost]| groups.first().map_or(u64::MAX, |cheap| cheap.used);
        let found = if used(&log) <= used(&data) { log } else { data };
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
        match role {
            Role::Log => log,
            Role::Data if log > 0 => self
                .space
                .free_index(Role::Data)
                .frags()
                .saturating_sub(given),
            Role::Data | Role::Free | Role::Track | Role::Section => 0,
        }
    }

    fn cheapest_of(
        &self,
        role: Role,
        limit: CostLimit,
        frags: u64,
        but: &[GroupNo],
        elsewhere: &Elsewhere,
    ) -> Vec<CleaningCost> {
        let g = self.geometry;
        let next = g.group_of(self.log.tail().next);
        let room = self.room_for(role, elsewhere);
        // Data that wait need whole groups, a segment only holes that are long enough.
        let hole_max = match elsewhere.groups_awaited {
            0 if role == Role::Log && limit != CostLimit::Any => g.frags_for(HOLE_MIN),
            _ => u64::MAX,
        };
        let (most, least) = match limit {
            CostLimit::Low => (5, 3),
            CostLimit::High | CostLimit::Any => (COST_MAX, 1),
        };
        let least_hole = self.sizes.hole_least();
        let (mut won, mut taken) = (0, 0);
        self.space
            .cleaning()
            .cheapest_groups(role, hole_max, least_hole, self.checkpoints.summaries())
            .into_iter()
            .filter(|cheap| cheap.group != next && !but.contains(&cheap.group))
            .take_while(|cheap| {
                let enough = won >= frags;
                won += cheap.won;
                // Homes are of whole blocks: all that is free in a data group serves until it is emptied.
                taken += match role {
                    Role::Data => cheap.used + cheap.won,
                    Role::Log => cheap.used + cheap.used / 4 + cheap.closed,
                    // Nothing moves these.
                    Role::Free | Role::Track | Role::Section => return false,
                };
                !enough && cheap.used * least <= cheap.won * most && taken <= room
            })
            .take(BATCH_MAX)
            .collect()
    }

    /// A range in pieces for one step each: what is missing of a piece is read in a few batches, in the order of its
    /// addresses.
    pub fn pieces(&self, extent: Extent) -> Vec<Extent> {
        let step = self.geometry.frags_for(self.geometry.segment_max.into());
        (extent.start.0..extent.end().0)
            .step_by(step as usize)
            .map(|start| Extent::new(FragAddr(start), step.min(extent.end().0 - start)))
            .collect()
    }
}
