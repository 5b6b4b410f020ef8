//! What forming the tracks of a directory takes a disk, against what that saves those who read its files (S3, S4). The prices are those
//! of settling.

use super::settler::Prices;
use super::state::BATCH_MAX;
use crate::commit::CROWDED;
use loamfs_format::FragAddr;
use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::track::head_bytes;
use std::collections::VecDeque;

/// By what emptying groups is priced.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// What is written, for so much that is moved: inode blocks that lead to it change too, and the maps.
    written: (u64, u64),
    /// Ways at the end of a sweep for each group that is emptied into groups, and into holes.
    into_groups: u64,
    into_holes: u64,
}

/// As it comes to until all tracks have formed: most sweeps take a batch of groups, and those into holes take one.
const ALL: Rates = Rates {
    written: (5, 4),
    into_groups: WAYS_OF_A_ROUND / BATCH_MAX as u64,
    into_holes: WAYS_OF_A_ROUND,
};

/// For the next group alone. Sweeps into groups that hardly win anything win nothing together, so that holes are taken sooner.
const NEXT: Rates = Rates {
    written: (4, 3),
    into_groups: WAYS_OF_A_ROUND,
    into_holes: 0,
};

impl Rates {
    /// Fragments that are written for so many that are moved.
    fn written(self, live: u64) -> u64 {
        live.saturating_mul(self.written.0) / self.written.1
    }
}

/// Ways to go for each piece of a group that is emptied.
const WAYS: u64 = 3;

/// Ways for each segment that has tracks: to where the log goes on, and to where tracks stand.
const WAYS_OF_A_SEGMENT: u64 = 2;

/// Ways at the end of a sweep: two checkpoints with their superblocks, and segments that say that all is durable.
const WAYS_OF_A_ROUND: u64 = 8;

/// Of ten fragments that segments write beside tracks, those that are still in use when their group is emptied.
const STALE_LIVE: u64 = 3;

/// How often a group of the log is gone through at most.
const PASSES: usize = 8;

/// Bytes of a file, before any were read.
pub(crate) const USUAL: u64 = 10 << 10;

/// Bytes of a file in the head of its track.
const SLOT: u64 = (head_bytes(1) - head_bytes(0)) as u64;

/// Files that are to settle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settling {
    pub files: u64,
    /// Of their contents.
    pub bytes: u64,
    /// Inode blocks that theirs are among, as far as they are known.
    pub blocks: u64,
    /// What part of the log they are all over, of a thousand.
    pub spread: u64,
    /// Bytes of contents that are read in one sweep over the log.
    pub sweep: u64,
}

/// Where tracks get their groups from: those that are free, and those that emptying groups of the log wins. In fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupsForTracks {
    /// Those that are free, and that nobody else is kept.
    pub spared: u64,
    /// Those that others are kept and lack: they come first.
    pub lacking: u64,
    /// What each of the log holds, the emptiest first.
    pub live: Vec<u64>,
    /// The holes that any segment can be cut into: the mean of them, and all together.
    pub long_hole: u64,
    pub long_room: u64,
    /// Whether segments say what changed in inodes, and write few of their blocks.
    pub says_deltas: bool,
}

impl GroupsForTracks {
    /// Whether the long holes have room for a group, and half as much.
    pub fn has_long_holes(&self, group: u64) -> bool {
        self.long_room >= group + group / 2
    }
}

/// What forming tracks takes, and saves, in microseconds of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormingCost {
    pub cost: u64,
    /// What those reads would not have taken that are taken to come.
    pub saving: u64,
}

impl FormingCost {
    /// Whether it will have paid by then.
    pub fn pays(&self) -> bool {
        self.saving >= self.cost && self.cost > 0
    }

    /// Whether there is anything to win groups from.
    pub fn is_possible(&self) -> bool {
        self.cost < u64::MAX
    }
}

impl Prices {
    /// Whether a seek is what reading in pieces costs.
    pub fn has_seeks(&self) -> bool {
        self.disk.turns()
    }

    /// What it takes to form tracks of these files in these groups, and what it saves `reads` cold reads, each a seek: a track's
    /// one request brings what the log has in two places. What the volume holds is `in_use` bytes, so that a seek passes over a third of
    /// it.
    pub fn forming(
        &self,
        settling: &Settling,
        groups: &GroupsForTracks,
        reads: u64,
        in_use: u64,
    ) -> FormingCost {
        let beside = self.beside(settling, groups.says_deltas);
        let g = &self.geometry;
        let lacking = g.frags_for(settling.bytes).saturating_sub(groups.spared);
        // What is written beside is soon superseded: groups of it are emptied again, and hold little then.
        let stale = match lacking {
            0 => 0,
            _ => g.frags_for(beside.bytes),
        };
        let won = self
            .winning(lacking.saturating_add(groups.lacking), groups, in_use)
            .saturating_add(self.emptying(stale, stale * STALE_LIVE / 10, in_use, ALL));
        let log = groups.live.iter().sum::<u64>();
        let log = g.byte_offset(FragAddr(log));
        let written = settling.bytes.saturating_add(beside.bytes);
        let moving = self
            .reading(settling, log)
            .saturating_add(self.disk.pass(written))
            .saturating_add(beside.ways.saturating_mul(self.disk.step(in_use / 3)));
        FormingCost {
            cost: won.saturating_add(moving),
            saving: match self.has_seeks() {
                true => reads.saturating_mul(self.disk.step(in_use / 3)),
                false => 0,
            },
        }
    }

    /// What reading contents takes, a sweep over the log after the other: the fewer a sweep brings, the farther apart they are.
    fn reading(&self, settling: &Settling, log: u64) -> u64 {
        let sweeps = settling.bytes.div_ceil(settling.sweep.max(1)).max(1);
        let files = settling.files.div_ceil(sweeps).max(1);
        let span = log / 1000 * settling.spread;
        let gap = (span / files).saturating_sub(settling.bytes / settling.files.max(1));
        let ways = sweeps
            .saturating_mul(files)
            .saturating_mul(self.disk.step(gap));
        ways.saturating_add(self.disk.pass(settling.bytes))
    }

    /// What segments write beside contents: heads of tracks, and inode blocks. A segment takes as many files as fit with the inode
    /// blocks that change for them, so that the farther apart their inodes are the less often a block is written for several.
    fn beside(&self, settling: &Settling, says_deltas: bool) -> Beside {
        let full = u64::from(self.geometry.segment_max) / 4 * 3;
        let a_file = settling.bytes / settling.files.max(1) + SLOT;
        let changed = |files: u64| {
            let blocks = settling.blocks.max(1);
            // Of so many that are drawn some are the same.
            blocks
                .min(blocks.saturating_mul(files) / (blocks + files / 2))
                .max(1)
        };
        let bytes = |files: u64| {
            let most = if says_deltas { CROWDED } else { u64::MAX };
            let inodes = changed(files).min(most).saturating_mul(INODE_BLOCK_MAX);
            files.saturating_mul(a_file).saturating_add(inodes)
        };
        let (mut fits, mut most) = (1, settling.files + 1);
        while most - fits > 1 {
            let middle = fits.midpoint(most);
            match bytes(middle) <= full {
                true => fits = middle,
                false => most = middle,
            }
        }
        let segments = settling.files.div_ceil(fits);
        Beside {
            bytes: segments
                .saturating_mul(bytes(fits))
                .saturating_sub(settling.bytes),
            ways: segments * WAYS_OF_A_SEGMENT,
        }
    }

    /// Whether emptying a group that holds so much takes less for what it wins if that goes into holes of the others: the fuller
    /// it is the less is won where it takes groups, and with the inode blocks that change nothing is.
    pub fn plugs(&self, live: u64, groups: &GroupsForTracks, in_use: u64) -> bool {
        live > 0 && self.emptied(live, groups, in_use, NEXT).plugs
    }

    /// Emptying a group that holds so much, by the way that takes less for what it wins. Where inode blocks are written for what moves
    /// holes do not pay: each content takes two, and that leaves more short holes than it fills, so that it never ends.
    fn emptied(&self, live: u64, groups: &GroupsForTracks, in_use: u64, rates: Rates) -> Emptied {
        let g = &self.geometry;
        let written = rates.written(live);
        let into_groups = Emptied {
            cost: self.emptying(g.group_frags, live, in_use, rates),
            won: g.group_frags.saturating_sub(written),
            plugs: false,
        };
        if !groups.says_deltas {
            return into_groups;
        }
        let blocks = match groups.has_long_holes(g.group_frags) {
            true => written / groups.long_hole.max(1) + 1,
            false => live / g.frags_for(USUAL).max(1),
        };
        let between = g.byte_offset(FragAddr(g.total_frags)) / blocks.max(1);
        let ways = blocks.saturating_mul(self.disk.write_step(between));
        let into_holes = Emptied {
            cost: self
                .disk
                .pass(g.byte_offset(FragAddr(g.group_frags + written)))
                + ways
                + rates.into_holes * self.disk.step(in_use / 3),
            won: g.group_frags,
            plugs: true,
        };
        let worth = |one: &Emptied, other: &Emptied| u128::from(one.cost) * u128::from(other.won);
        match worth(&into_groups, &into_holes) <= worth(&into_holes, &into_groups) {
            true => into_groups,
            false => into_holes,
        }
    }

    /// What emptying groups takes that have so many fragments, of which so many are moved: all are read. For each piece of a group it
    /// goes to that, to what leads to its contents, and to where these are written.
    fn emptying(&self, frags: u64, live: u64, in_use: u64, rates: Rates) -> u64 {
        let g = &self.geometry;
        let piece = g.frags_for(g.segment_max.into()).max(1);
        let pieces = g.group_frags.div_ceil(piece);
        let groups = frags / g.group_frags.max(1);
        let ways = groups * (pieces * WAYS + rates.into_groups);
        let written = rates.written(live);
        let passed = g.byte_offset(FragAddr(frags.saturating_add(written)));
        let ways = ways.saturating_mul(self.disk.step(in_use / 3));
        self.disk.pass(passed).saturating_add(ways)
    }

    /// What it takes to win so many fragments of whole groups out of the log, the emptiest first, while what moves into tracks leaves
    /// it. What is moved fills others, which are gone through in their turn.
    fn winning(&self, frags: u64, groups: &GroupsForTracks, in_use: u64) -> u64 {
        let mut log = Log::of(groups, self.geometry.group_frags);
        let (mut won, mut cost) = (0u64, 0u64);
        let mut now = groups.clone();
        for _ in 0..PASSES * groups.live.len() {
            if won >= frags {
                break;
            }
            let live = log.take_emptiest();
            let emptied = self.emptied(live, &now, in_use, ALL);
            won += emptied.won;
            cost = cost.saturating_add(emptied.cost);
            match emptied.plugs {
                true => {
                    now.long_room = now.long_room.saturating_sub(live);
                    log.plug(live);
                }
                false => log.fill(live),
            }
            log.form(groups.spared + won.saturating_sub(groups.lacking));
        }
        match won >= frags {
            true => cost,
            // There is nothing to win it from.
            false => u64::MAX,
        }
    }
}

/// The log while tracks form: files leave all of its groups alike, and what was moved last stands densest.
#[derive(Debug)]
struct Log {
    /// Of a group.
    frags: u64,
    /// What all held before.
    all: u64,
    /// What of that is left.
    left: u64,
    /// The groups, the emptiest first: what each held when so much was left.
    groups: VecDeque<(u64, u64)>,
    /// What was moved, and fills no group yet.
    filled: u64,
}

impl Log {
    /// As it is before, in groups of so many fragments.
    fn of(groups: &GroupsForTracks, frags: u64) -> Log {
        let all = groups.live.iter().sum();
        Log {
            frags,
            all,
            left: all,
            groups: groups.live.iter().map(|live| (*live, all)).collect(),
            filled: 0,
        }
    }

    /// A group is emptied. What it held.
    fn take_emptiest(&mut self) -> u64 {
        let (held, of) = self.groups.pop_front().unwrap_or_default();
        part(held, of, self.left).min(self.frags)
    }

    /// So much was moved into other groups.
    fn fill(&mut self, live: u64) {
        self.filled += ALL.written(live);
        while self.filled >= self.frags {
            self.filled -= self.frags;
            let held = self.frags * ALL.written.1 / ALL.written.0;
            self.groups.push_back((held, self.left));
        }
    }

    /// So much was moved into holes of all groups.
    fn plug(&mut self, live: u64) {
        let share = live / self.groups.len().max(1) as u64;
        for (held, of) in &mut self.groups {
            *held += part(share, self.left, *of);
        }
    }

    /// So much has left it for tracks.
    fn form(&mut self, frags: u64) {
        self.left = self.all.saturating_sub(frags);
    }
}

/// So much of a whole, of another whole; nothing of none.
fn part(some: u64, whole: u64, other: u64) -> u64 {
    let part = u128::from(some) * u128::from(other);
    let part = part.checked_div(whole.into());
    part.map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX))
}

/// A group that was emptied.
#[derive(Clone, Copy, Debug)]
struct Emptied {
    cost: u64,
    /// Fragments of whole groups.
    won: u64,
    /// What it held went into holes of others.
    plugs: bool,
}

/// What is written beside contents.
#[derive(Clone, Copy, Debug)]
struct Beside {
    bytes: u64,
    ways: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Disk;
    use crate::fixture::volume;
    use loamfs_format::Geometry;

    /// So many bytes of files of 10 KiB, made one after the other.
    fn together(bytes: u64) -> Settling {
        let files = bytes / (10 << 10);
        Settling {
            files,
            bytes,
            blocks: files.div_ceil(32),
            spread: 1,
            sweep: 64 << 20,
        }
    }

    /// Prices of a volume of 8 GiB that holds two, and has groups enough.
    fn forming(rotational: bool, bytes: u64, reads: u64) -> FormingCost {
        prices(rotational).forming(&together(bytes), &enough(), reads, 2 << 30)
    }

    /// Groups for all that is tried here.
    fn enough() -> GroupsForTracks {
        GroupsForTracks {
            spared: 6 << 20,
            live: vec![1 << 14; 128],
            ..GroupsForTracks::default()
        }
    }

    fn prices(rotational: bool) -> Prices {
        let device = volume(64 << 20, &crate::OpenOptions::default());
        let geometry = Geometry {
            group_frags: 1 << 14,
            segment_max: 16 << 20,
            ..device.core().geometry
        };
        let disk = Disk::of(8 << 30, None, rotational);
        Prices { geometry, disk }
    }

    #[test]
    fn the_fuller_the_log_is_the_more_groups_for_tracks_cost() {
        let group = 1 << 14;
        let cost = |spared: u64, percent: u64| {
            let live = vec![group * percent / 100; 64];
            let groups = GroupsForTracks {
                spared,
                live,
                ..GroupsForTracks::default()
            };
            let all = &together(100 << 20);
            prices(true).forming(all, &groups, 1, 2 << 30).cost
        };
        let free = cost(1 << 20, 60);
        assert_eq!(free, cost(1 << 20, 10));
        assert!(free < cost(50 << 10, 50) && cost(50 << 10, 50) < cost(0, 50));
        assert!(cost(0, 50) < cost(0, 70) && cost(0, 70) < cost(0, 90));
        let none = GroupsForTracks::default();
        let none = prices(true).forming(&together(1 << 20), &none, 100, 2 << 30);
        assert!(!none.pays());
    }

    /// It took all groups to be as full as the mean of them.
    #[test]
    fn the_emptiest_groups_are_what_winning_some_costs() {
        let group = 1 << 14;
        let cost = |live: Vec<u64>| {
            let groups = GroupsForTracks {
                live,
                ..GroupsForTracks::default()
            };
            prices(true)
                .forming(&together(50 << 20), &groups, 1, 2 << 30)
                .cost
        };
        let alike = cost(vec![group / 2; 64]);
        let half = cost([vec![0; 32], vec![group; 32]].concat());
        assert!(half < alike, "{half}, {alike}");
    }

    /// Fragments of a file that [`FilesOfALog`] moves, and of what is written for it: a quarter more.
    const FILE: (u64, u64) = (8, 10);

    /// A log as it is, file by file, while groups are emptied and files leave it for tracks.
    struct FilesOfALog {
        frags: u64,
        /// Which group each stands in, until it has left.
        at: Vec<Option<usize>>,
        /// Files of each group; `None` where it was emptied.
        held: Vec<Option<u64>>,
        /// The group that is being filled, and fragments that were written to it.
        open: (usize, u64),
        left: usize,
    }

    impl FilesOfALog {
        fn new(frags: u64, groups: usize, percent: u64) -> FilesOfALog {
            let each = frags * percent / 100 / FILE.0;
            FilesOfALog {
                frags,
                at: (0..groups * each as usize)
                    .map(|file| Some(file / each as usize))
                    .collect(),
                held: [vec![Some(each); groups], vec![None]].concat(),
                open: (groups, 0),
                left: 0,
            }
        }

        /// Empties the group that holds least, but not the one that is being filled. How many files it held.
        fn empty_one(&mut self) -> u64 {
            let all = (0..self.held.len()).filter(|group| *group != self.open.0);
            let known = all.filter_map(|group| Some((self.held[group]?, group)));
            let (count, emptiest) = known.min().unwrap();
            self.held[emptiest] = None;
            for file in 0..self.at.len() {
                if self.at[file] != Some(emptiest) {
                    continue;
                }
                if self.open.1 + FILE.1 > self.frags {
                    self.held.push(None);
                    self.open = (self.held.len() - 1, 0);
                }
                self.at[file] = Some(self.open.0);
                *self.held[self.open.0].get_or_insert(0) += 1;
                self.open.1 += FILE.1;
            }
            count
        }

        /// Files leave it, all over it, until so many have.
        fn form(&mut self, files: usize) {
            while self.left < files && self.left < self.at.len() {
                let file = self.left * 7919 % self.at.len();
                if let Some(group) = self.at[file].take() {
                    self.held[group] = self.held[group].map(|held| held - 1);
                }
                self.left += 1;
            }
        }
    }

    /// It took the log to grow emptier by what it won of it: at 82 % of a volume it said a third of what forming took.
    #[test]
    fn groups_are_won_as_a_log_is_emptied_file_by_file() {
        let (prices, in_use) = (prices(true), 2 << 30);
        let frags = prices.geometry.group_frags;
        let bytes = |frags| prices.geometry.byte_offset(FragAddr(frags));
        for (percent, groups) in [(40, 20), (55, 30), (65, 30), (72, 40)] {
            let mut log = FilesOfALog::new(frags, 64, percent);
            let (mut won, mut took) = (0, 0);
            while won < groups * frags {
                let files = log.empty_one();
                let written = files * FILE.1;
                won += frags - written;
                // A group is a piece: three ways, and an eighth of the eight at the end of a sweep of eight.
                took += prices.disk.pass(bytes(frags + written)) + 4 * prices.disk.step(in_use / 3);
                log.form((won / FILE.0) as usize);
            }
            let all = GroupsForTracks {
                live: vec![frags * percent / 100; 64],
                ..GroupsForTracks::default()
            };
            let said = prices.winning(groups * frags, &all, in_use);
            let apart = said.abs_diff(took) * 100 / took;
            assert!(apart < 10, "{percent} %: {said} for {took}");
        }
    }

    #[test]
    fn files_that_were_made_apart_take_more_ways_and_inode_blocks() {
        let near = together(100 << 20);
        let far = Settling {
            blocks: near.files,
            spread: 1000,
            ..near
        };
        let cost = |settling: &Settling| prices(true).forming(settling, &enough(), 1, 2 << 30).cost;
        assert!(2 * cost(&near) < cost(&far));
    }

    #[test]
    fn as_many_reads_pay_as_have_cost_what_moving_takes() {
        // A hundred files of 10 KiB, and ten thousand: two reads of a hundred.
        let (few, many) = (1 << 20, 100 << 20);
        assert!(!forming(true, few, 1).pays());
        assert!(forming(true, few, 5).pays());
        assert!(!forming(true, many, 100).pays());
        assert!(forming(true, many, 300).pays());
        assert!(!FormingCost::default().pays());
    }

    #[test]
    fn where_nothing_turns_nothing_pays() {
        assert!(!forming(false, 1 << 20, 1 << 40).pays());
    }
}
