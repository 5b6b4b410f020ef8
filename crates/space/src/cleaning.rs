//! What the cleaner may want to move, by cost-benefit (L6): scattered holes, and groups that cost little to empty. What of it
//! is worth it is the cleaning policy, the library's `reclaim::cleaner`.

use crate::groups::{FreeIndex, Groups};
use crate::held::Held;
use crate::role::Cells;
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::cmp::{Ordering, Reverse};

/// Cells of the smallest window that compaction looks at.
const WINDOW_UNITS: u64 = 64;

/// A range whose free space lies in holes too small to plug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The range.
    pub extent: Extent,
    /// Fragments in use or held back: what moving has to read and write, at most.
    pub live: u64,
    /// Free fragments in small holes: what it wins.
    pub scattered: u64,
}

/// In which order groups are emptied for which nobody waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleaningPolicy {
    /// Those first that hold least for what is won.
    Greedy,
    /// Those first that win most for what they cost, weighed by age: (1 - u) * age / (1 + u), u being the part that is in use.
    /// What is old stays as it is longer, and so does the space that is won from it (LFS).
    #[default]
    CostBenefit,
}

/// What it costs to empty a group, and what that wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningCost {
    /// The group.
    pub group: GroupNo,
    /// Fragments in use: what moving has to read and write, at most. What is held back comes by itself.
    pub live: u64,
    /// Free fragments that serve nobody as they are: what it wins.
    pub won: u64,
    /// Fragments that must be free in groups of its role, for what it holds and for what nobody can use while it is emptied.
    pub room: u64,
    /// Fragments that were taken elsewhere since something was placed in it: a hint.
    pub age: u64,
    /// When that was, by [`Cleaning::clock`].
    pub written: u64,
}

impl CleaningPolicy {
    /// All, by their names.
    pub const NAMED: [(&'static str, CleaningPolicy); 2] = [
        ("greedy", CleaningPolicy::Greedy),
        ("cost-benefit", CleaningPolicy::CostBenefit),
    ];

    /// The one of that name.
    pub fn named(name: &str) -> Option<CleaningPolicy> {
        let mut all = CleaningPolicy::NAMED.into_iter();
        all.find_map(|(known, policy)| (known == name).then_some(policy))
    }

    /// Which of two groups is emptied first.
    fn order(self, a: &CleaningCost, b: &CleaningCost) -> Ordering {
        let by_cost = ratio(a.live, a.won, b.live, b.won);
        let by_policy = match self {
            CleaningPolicy::Greedy => by_cost,
            CleaningPolicy::CostBenefit => b.benefit(a).cmp(&a.benefit(b)).then(by_cost),
        };
        by_policy.then(a.group.cmp(&b.group))
    }
}

impl CleaningCost {
    /// Benefit for the cost, times what another one costs.
    fn benefit(&self, other: &CleaningCost) -> u128 {
        let cost = 2 * u128::from(other.live) + u128::from(other.won);
        let won = u128::from(self.won).saturating_mul(u128::from(self.age) + 1);
        won.saturating_mul(cost)
    }
}

/// What is in use once nothing is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Groups of the log, but for those whose devices leave.
    pub log_groups: u64,
    /// Fragments that all of them take when what is worth it was moved together.
    pub log_used: u64,
    /// Fragments of data groups that come free by themselves.
    pub data_going: u64,
    /// Fragments of data groups whose devices leave.
    pub data_leaving: u64,
}

/// What stands on devices that leave, and has to find a place elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Fragments in groups of the log, and of tracks.
    pub log: u64,
    /// Fragments in data groups.
    pub data: u64,
}

/// What cleaning looks at.
#[derive(Clone, Copy, Debug)]
pub struct Cleaning<'a> {
    groups: &'a Groups,
    held: &'a Held,
}

impl<'a> Cleaning<'a> {
    pub(crate) fn new(groups: &'a Groups, held: &'a Held) -> Cleaning<'a> {
        Cleaning { groups, held }
    }

    fn log(self) -> &'a FreeIndex {
        self.groups.of(Role::Log)
    }

    /// Ranges of loaded log groups most of whose free space lies in holes shorter than `hole_max` fragments, where
    /// plugging would cost more in seeks than moving the rest (DESIGN.md, "One mover"). The cheapest come first.
    pub fn compact_candidates(self, hole_max: u64) -> Vec<Candidate> {
        let geometry = self.groups.layout().geometry();
        let window = hole_max
            .saturating_mul(8)
            .max(WINDOW_UNITS * geometry.unit_frags())
            .min(geometry.group_frags)
            .next_power_of_two();
        let log = self.log().groups().iter();
        let mut found: Vec<_> = log
            .flat_map(|group| self.windows(*group as usize, hole_max.max(1), window))
            .collect();
        found.sort_by(|a, b| {
            ratio(a.live, a.scattered, b.live, b.scattered).then(a.extent.cmp(&b.extent))
        });
        found
    }

    /// The windows of a group that are worth compacting.
    fn windows(self, index: usize, hole_max: u64, window: u64) -> Vec<Candidate> {
        let Some(map) = self.groups.group(index).map() else {
            return Vec::new();
        };
        let unit = self.groups.layout().geometry().unit_frags();
        let group = self.groups.layout().extent(index);
        let windows = group.frags.div_ceil(window);
        let mut large = vec![0u64; windows as usize];
        for hole in map.holes().filter(|hole| hole.end - hole.start >= hole_max) {
            for at in hole.start / window..=(hole.end - 1) / window {
                let (start, end) = (at * window, (at + 1) * window);
                large[at as usize] += hole.end.min(end) - hole.start.max(start);
            }
        }
        let candidate = |(at, large): (u64, u64)| {
            let (start, end) = (at * window, ((at + 1) * window).min(group.frags));
            let live = map.used_in(start..end);
            let scattered = (end - start).saturating_sub(live + large);
            let extent = Extent::new(FragAddr(group.start.0 + start), end - start);
            let worth = scattered >= unit && scattered > large && live > 0;
            worth.then_some(Candidate {
                extent,
                live,
                scattered,
            })
        };
        (0..windows).zip(large).filter_map(candidate).collect()
    }

    /// The time by which ages are told: fragments that were taken since the checkpoint that the volume was opened with.
    pub fn clock(self) -> u64 {
        self.groups.clock()
    }

    /// Free fragments of log groups in holes of at least `least` fragments: what segments can still be placed in.
    /// Groups that are not loaded count with all that is free in them.
    pub fn log_usable(self, least: u64) -> u64 {
        let log = self.log();
        let groups = log.groups().iter().map(|group| *group as usize);
        let groups = groups.filter(|index| !self.groups.is_home_head(*index));
        let in_group = |index: usize| self.groups.group(index).free_in_holes(least);
        groups.map(in_group).sum::<u64>() + log.unknown()
    }

    /// The holes of log groups in which segments may be placed. What bitmaps that are not in memory say is left out.
    pub fn log_holes(self) -> Vec<Extent> {
        let groups = self.log().groups().iter().map(|group| *group as usize);
        let open = groups
            .filter(|index| !self.groups.is_closed(*index) && !self.groups.is_home_head(*index));
        let holes = open.flat_map(|index| {
            let start = self.groups.layout().start(index);
            let holes = self.groups.group(index).map().into_iter();
            holes
                .flat_map(|map| map.holes())
                .map(move |hole| Extent::new(FragAddr(start + hole.start), hole.end - hole.start))
        });
        holes.collect()
    }

    /// At most `count` log groups whose bitmaps are not in memory, those with most space first.
    pub fn unloaded_log_groups(self, count: usize) -> Vec<GroupNo> {
        let free = |group: &u32| {
            let index = *group as usize;
            let absent = self.groups.group(index).map().is_none();
            let free = self.groups.unused(index);
            (absent && free > 0).then_some((Reverse(free), GroupNo(*group)))
        };
        let mut found: Vec<_> = self.log().groups().iter().filter_map(free).collect();
        found.sort_unstable();
        let found = found.into_iter().take(count);
        found.map(|(_, group)| group).collect()
    }

    /// Fragments that each group of the log holds, the emptiest first. What is held back comes free by itself.
    pub fn log_live(self) -> Vec<u64> {
        let staying = self.staying(&[]);
        let log = self.log().groups().iter().map(|group| *group as usize);
        let live = log.map(|index| {
            let taken = self.groups.group(index).taken();
            taken.saturating_sub(staying[index])
        });
        let mut live: Vec<u64> = live.collect();
        live.sort_unstable();
        live
    }

    /// The groups of a role that hold something, in the order of a policy. What emptying one wins is what is free in holes
    /// shorter than `hole_max` fragments (the others serve as they are).
    /// Meanwhile holes of at least `least` fragments serve nobody. Groups that hold nothing but what cannot be moved, which
    /// is what is held back, and `fixed`, are not worth it. Log groups must be loaded to be known.
    pub fn cheapest_groups(
        self,
        role: Role,
        policy: CleaningPolicy,
        hole_max: u64,
        least: u64,
        fixed: &[Extent],
    ) -> Vec<CleaningCost> {
        let cells = Cells::of(role);
        let staying = self.staying(fixed);
        let mut found: Vec<CleaningCost> = self
            .groups
            .numbered()
            .filter(|(_, group)| group.role() == role && !group.is_empty())
            .filter(|(number, _)| !self.groups.is_home_head(*number as usize))
            // What is free on a device that leaves is no room.
            .filter(|(number, _)| !self.groups.layout().is_leaving(*number as usize))
            .filter(|(_, group)| cells != Cells::Units || group.map().is_some())
            .map(|(number, group)| {
                let live = group.taken().saturating_sub(staying[number as usize]);
                let unused = self.groups.unused(number as usize);
                let won = unused.saturating_sub(group.free_in_holes(hole_max));
                CleaningCost {
                    group: GroupNo(number),
                    live,
                    won,
                    room: match cells {
                        // Any free block serves until the group is emptied.
                        Cells::Blocks | Cells::None => live + won,
                        // Blocks do not fit the ends of holes.
                        Cells::Units => live + live / 4 + group.free_in_holes(least),
                    },
                    age: self.groups.age(number as usize),
                    written: group.written(),
                }
            })
            .filter(|cost| cost.won > 0 && cost.live > 0)
            .collect();
        found.sort_by(|a, b| policy.order(a, b));
        found
    }

    /// What is in use once nothing is held back and `going` is free too, if groups of the log are worth emptying that hold
    /// at most `dear` fragments for each that is free.
    pub fn outlook(self, going: &[Extent], dear: u64) -> Outlook {
        let going = self.staying(going);
        let frags = self.groups.layout().geometry().group_frags;
        let mut outlook = Outlook::default();
        for ((index, group), going) in self.groups.numbered().zip(going) {
            let index = index as usize;
            let leaves = self.groups.layout().is_leaving(index);
            match Cells::of(group.role()) {
                Cells::Units => {
                    let live = group.used().saturating_sub(going);
                    let worth = live <= frags.saturating_sub(live).saturating_mul(dear);
                    outlook.log_groups += u64::from(!leaves);
                    outlook.log_used += match worth {
                        // Blocks do not fit the ends of holes.
                        true => (live + live / 8).min(frags),
                        false => frags,
                    };
                }
                Cells::Blocks if leaves => outlook.data_leaving += self.to_move(index, going),
                Cells::Blocks => outlook.data_going += going,
                Cells::None => {}
            }
        }
        outlook
    }

    /// What stands on devices that leave, but for what is held back.
    pub fn leaving(self) -> Leaving {
        let (layout, mut leaving) = (self.groups.layout(), Leaving::default());
        if layout.leaving().is_empty() {
            return leaving;
        }
        let going = self.staying(&[]);
        for index in layout.leaving().iter().cloned().flatten() {
            let frags = self.to_move(index, going[index]);
            match Cells::of(self.groups.group(index).role()) {
                Cells::Units => leaving.log += frags,
                Cells::Blocks => leaving.data += frags,
                Cells::None => {}
            }
        }
        leaving
    }

    /// Fragments of a group whose device leaves that have to find another place, of which so many are going.
    fn to_move(self, index: usize, going: u64) -> u64 {
        let used = self.groups.group(index).used();
        let reserved = self.groups.layout().unmapped_in(index);
        used.saturating_sub(reserved + going)
    }

    /// Fragments of each group that no move frees.
    fn staying(self, fixed: &[Extent]) -> Vec<u64> {
        let layout = self.groups.layout();
        let mut staying = vec![0; layout.groups()];
        let held = self.held.iter().map(|(extent, _)| extent);
        for extent in held.chain(fixed.iter().copied()) {
            for (index, _, part) in layout.parts(extent.start.0..extent.end().0) {
                staying[index] += part.frags;
            }
        }
        staying
    }
}

/// Compares a / b with c / d without dividing.
fn ratio(a: u64, b: u64, c: u64, d: u64) -> Ordering {
    (u128::from(a) * u128::from(d)).cmp(&(u128::from(c) * u128::from(b)))
}
