//! Where the log goes on (H10): runs of free units for segments.

use crate::space::{Space, State};
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};

/// Groups named at once in [`Found::Load`]: they stand on the disk one after another.
const LOAD_AHEAD: usize = 4;

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A free run, not claimed by the search.
    Run(Extent),
    /// The bitmaps of these groups must be loaded before the search can go on.
    Load(Vec<GroupNo>),
    /// There is no space.
    Full,
}

impl Space {
    /// Free whole units from `at` on, in fragments, at most `max`; across the borders of loaded log groups. 0 when
    /// `at` is not the start of a unit.
    pub fn log_run(&self, at: FragAddr, max: u64) -> u64 {
        let mut found = 0;
        while found < max && at.0.saturating_add(found) < self.layout.geometry().total_frags {
            let here = at.0 + found;
            let index = self.layout.index(here);
            let group = &self.groups[index];
            let State::Loaded(map) = &group.state else {
                break;
            };
            if group.role != Role::Log {
                break;
            }
            let run = map.run(self.layout.position(here), max - found);
            found += run;
            if run == 0 || self.layout.index(here + run) == index {
                break;
            }
        }
        found
    }

    /// Looks for a free run of `want` fragments in the log, in whole units, and claims a free group for the log if
    /// it has to. Nothing else is claimed: the caller allocates what it uses.
    ///
    /// In this order: the run that continues at `near`; the first one behind it, and around the end of the volume,
    /// in a log group; a free group that is not kept for data, the nearest to the log groups there are, so that
    /// metadata stay together (Z7), and the first one in the middle of a `rotational` device; the largest hole of at
    /// least `least` fragments (smaller ones are left to compaction); a kept group. The run found is at most `want`
    /// long.
    pub fn find_log(&mut self, want: u64, least: u64, near: FragAddr, rotational: bool) -> Found {
        let unit = self.layout.geometry().unit_frags();
        let total = self.layout.geometry().total_frags;
        let want = want.clamp(1, total).next_multiple_of(unit);
        // No hole of a whole group is too small.
        let least = least
            .clamp(1, want)
            .min(self.layout.geometry().group_frags / 2);
        let least = least.next_multiple_of(unit);
        // No group has a longer run; those of neighbours may continue it.
        let cap = want.min(self.layout.geometry().group_frags);
        let near = FragAddr(near.0.min(total).next_multiple_of(unit));
        if self.log_run(near, want) >= want {
            return Found::Run(Extent::new(near, want));
        }
        if let Some(found) = self.next_fit(cap, want, near) {
            return found;
        }
        if let Some(run) = self.claim_run(self.kept_for_data, least, want, near, rotational) {
            return Found::Run(run);
        }
        match self.largest_hole(least, want, near) {
            Found::Full => match self.claim_run(0, least, want, near, rotational) {
                Some(run) => Found::Run(run),
                None => Found::Full,
            },
            found => found,
        }
    }

    /// A run in a free group, which becomes a log group, while more than `kept` of them are left.
    fn claim_run(
        &mut self,
        kept: u64,
        least: u64,
        want: u64,
        near: FragAddr,
        rotational: bool,
    ) -> Option<Extent> {
        while self.free_groups() > kept {
            let index = self.free_group_for_log(near, rotational)?;
            if !self.claim(index, Role::Log) {
                return None;
            }
            // A superblock may leave too little.
            let longest = self.longest(index);
            if longest >= least
                && let Some(run) = self.log_run_in(index, 0, want.min(longest), want)
            {
                return Some(self.grow_log(run, want, kept));
            }
        }
        None
    }

    /// The first run of at least `cap` fragments behind `near`, going around once.
    fn next_fit(&self, cap: u64, want: u64, near: FragAddr) -> Option<Found> {
        let own = self.layout.index_near(near);
        let start = self.layout.start(own);
        if let Some(run) = self.log_run_in(own, near.0 - start, cap, want) {
            return Some(Found::Run(run));
        }
        let least = u32::try_from(cap).ok()?;
        // A group that has only little space left is not worth its bitmap while others have more.
        let worth = if self.free.is_empty() || loamfs_format::mutant::scattered() {
            0
        } else {
            (self.layout.geometry().group_frags / 4) as u32
        };
        let worth = worth.max(least);
        let count = self.groups.len();
        let ahead = |index: usize| (index + count - own) % count;
        let around = |tree: &crate::bitmap::max_tree::MaxTree, from: usize, least: u32| {
            tree.first(from, least).or_else(|| tree.first(0, least))
        };
        let hope = around(&self.log_hopes, own, worth);
        let run = around(&self.log_runs, own + 1, least);
        // The own group's run before `near` comes last.
        let run_ahead = run.map(|index| if index == own { count } else { ahead(index) });
        match (run, hope) {
            (Some(_), Some(hope)) if Some(ahead(hope)) < run_ahead => {
                Some(Found::Load(self.load_ahead(hope, worth)))
            }
            (Some(index), _) => self.log_run_in(index, 0, cap, want).map(Found::Run),
            (None, Some(hope)) => Some(Found::Load(self.load_ahead(hope, worth))),
            (None, None) => None,
        }
    }

    /// The first run of at least `least` fragments of a loaded log group, followed beyond the group's end.
    fn log_run_in(&self, index: usize, from: u64, least: u64, want: u64) -> Option<Extent> {
        let State::Loaded(map) = &self.groups[index].state else {
            return None;
        };
        if self.groups[index].role != Role::Log || least == 0 {
            return None;
        }
        let at = FragAddr(self.layout.start(index) + map.find(from, least)?);
        Some(Extent::new(at, self.log_run(at, want)))
    }

    fn longest(&self, index: usize) -> u64 {
        match &self.groups[index].state {
            State::Loaded(map) => map.longest(),
            _ => 0,
        }
    }

    /// Claims the free groups behind a run until it is as long as wanted, or `kept` are left.
    fn grow_log(&mut self, run: Extent, want: u64, kept: u64) -> Extent {
        let mut run = run;
        while run.frags < want
            && self.free_groups() > kept
            && self.layout.position(run.end().0) == 0
            && self.claim(self.layout.index(run.end().0), Role::Log)
        {
            let longer = self.log_run(run.start, want);
            if longer == run.frags {
                break;
            }
            run.frags = longer;
        }
        run
    }

    /// The free group that the log should take next.
    fn free_group_for_log(&self, near: FragAddr, rotational: bool) -> Option<usize> {
        let own = self.layout.index_near(near) as u32;
        let nearest = |to: u32| {
            let above = self.free.range(to..).next().copied();
            let below = self.free.range(..to).next_back().copied();
            [above, below]
                .into_iter()
                .flatten()
                .min_by_key(|free| free.abs_diff(to))
        };
        if self.log_groups.is_empty() {
            let middle = self.groups.len() as u32 / 2;
            return nearest(if rotational { middle } else { own }).map(|n| n as usize);
        }
        let mut best: Option<(u32, u32, bool, u32)> = None;
        for &log in &self.log_groups {
            if let Some(free) = nearest(log) {
                // Near the log, then near its head, then ahead of it.
                let rank = (free.abs_diff(log), free.abs_diff(own), free < own, free);
                best = Some(best.map_or(rank, |b| b.min(rank)));
            }
        }
        best.map(|(_, _, _, free)| free as usize)
    }

    /// The largest hole of the loaded groups, if that is large enough.
    fn largest_hole(&self, least: u64, want: u64, near: FragAddr) -> Found {
        let own = self.layout.index_near(near);
        let longest = self.log_runs.max();
        if longest > 0 && u64::from(longest) >= least {
            let index = self
                .log_runs
                .first(own, longest)
                .or_else(|| self.log_runs.first(0, longest));
            let run = index.and_then(|i| self.log_run_in(i, 0, u64::from(longest).min(want), want));
            if let Some(run) = run {
                return Found::Run(run);
            }
        }
        let Ok(least) = u32::try_from(least) else {
            return Found::Full;
        };
        match self
            .log_hopes
            .first(own, least)
            .or_else(|| self.log_hopes.first(0, least))
        {
            Some(index) => Found::Load(self.load_ahead(index, least)),
            None => Found::Full,
        }
    }

    fn load_ahead(&self, first: usize, least: u32) -> Vec<GroupNo> {
        hopes_from(&self.log_hopes, first, least)
    }
}

/// The first few groups from `first` on of which at least `least` can be hoped for.
pub(crate) fn hopes_from(
    hopes: &crate::bitmap::max_tree::MaxTree,
    first: usize,
    least: u32,
) -> Vec<GroupNo> {
    std::iter::successors(Some(first), |&index| hopes.first(index + 1, least))
        .take(LOAD_AHEAD)
        .map(|index| GroupNo(index as u32))
        .collect()
}
