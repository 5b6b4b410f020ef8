//! What forming the tracks of a directory takes a disk, against what that saves those who read its files (S3, S4). The prices are those
//! of settling.

use super::settler::Prices;
use loamfs_format::FragAddr;

/// What passes below the arm for each byte of contents: it is read and written, and with inodes, names, tables and the ways between
/// that comes to half as much again.
const PASSED: u64 = 3;

/// What is written, for so much that is moved to empty a group: inode blocks that lead to it change too, and the maps.
const WRITTEN: (u64, u64) = (4, 3);

/// Ways to go for each piece of a group that is emptied.
const WAYS: u64 = 3;

/// Bytes of whole groups for tracks: those that are free, and those that emptying groups of the log wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupsForTracks {
    /// Those that are free, and that nobody else is kept.
    pub spared: u64,
    /// Those of the log, and what of them is in use.
    pub log: u64,
    pub log_used: u64,
}

/// What forming tracks takes, and saves, in microseconds of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormingCost {
    pub cost: u64,
    /// What of it is for contents: without groups that have to be won.
    pub moving: u64,
    /// What those reads would not have taken that are taken to come.
    pub saving: u64,
}

impl FormingCost {
    /// Whether it will have paid by then.
    pub fn pays(&self) -> bool {
        self.saving >= self.cost && self.cost > 0
    }
}

impl Prices {
    /// Whether a seek is what reading in pieces costs.
    pub fn has_seeks(&self) -> bool {
        self.disk.turns()
    }

    /// What it takes to form tracks of `bytes` of contents in these groups, and what it saves `reads` cold reads, each a seek: a track's
    /// one request brings what the log has in two places. What the volume holds is `in_use` bytes, so that a seek passes over a third of
    /// it.
    pub fn forming(
        &self,
        bytes: u64,
        groups: &GroupsForTracks,
        reads: u64,
        in_use: u64,
    ) -> FormingCost {
        let won = self.winning(bytes.saturating_sub(groups.spared), groups, in_use);
        let moving = self.disk.pass(bytes.saturating_mul(PASSED));
        FormingCost {
            cost: won.saturating_add(moving),
            moving,
            saving: match self.has_seeks() {
                true => reads.saturating_mul(self.disk.step(in_use / 3)),
                false => 0,
            },
        }
    }

    /// What it takes to go from one piece of so many bytes to the next, in the order of their addresses: all that reading them costs beside
    /// what passes below the arm.
    pub fn ways(&self, pieces: impl Iterator<Item = (FragAddr, u64)>) -> u64 {
        let (mut ways, mut end) = (0u64, None);
        for (at, bytes) in pieces {
            let start = self.geometry.byte_offset(at);
            let gap = end.map_or(start, |end| start.saturating_sub(end));
            ways = ways.saturating_add(self.disk.step(gap));
            end = Some(start.saturating_add(bytes));
        }
        ways
    }

    /// What emptying groups takes that have so many fragments, of which so many are moved: all are read. For each piece of a group it
    /// goes to that, to what leads to its contents, and to where these are written.
    pub fn emptying(&self, frags: u64, live: u64, in_use: u64) -> u64 {
        let g = &self.geometry;
        let piece = g.frags_for(g.segment_max.into()).max(1);
        let pieces = g.group_frags.div_ceil(piece);
        let ways = frags.saturating_mul(pieces * WAYS) / g.group_frags.max(1);
        let written = live.saturating_mul(WRITTEN.0) / WRITTEN.1;
        let passed = g.byte_offset(FragAddr(frags.saturating_add(written)));
        let ways = ways.saturating_mul(self.disk.step(in_use / 3));
        self.disk.pass(passed).saturating_add(ways)
    }

    /// What it takes to win so many bytes of whole groups out of the log, while what moves into tracks leaves it: on the average half
    /// of what is in use now is there.
    fn winning(&self, bytes: u64, groups: &GroupsForTracks, in_use: u64) -> u64 {
        let live = groups.log_used / 2;
        let won = groups.log.saturating_sub(live);
        let part = |of: u64| {
            let part = (u128::from(bytes) * u128::from(of)).checked_div(won.into());
            part.and_then(|bytes| u64::try_from(bytes).ok())
        };
        let frags = |bytes| self.geometry.frags_for(bytes);
        match (bytes, part(groups.log), part(live)) {
            (0, ..) => 0,
            (_, Some(all), Some(live)) => self.emptying(frags(all), frags(live), in_use),
            // There is nothing to win it from.
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Disk;
    use crate::fixture::volume;

    /// Prices of a volume of 8 GiB that holds two, and has groups enough.
    fn forming(rotational: bool, bytes: u64, reads: u64) -> FormingCost {
        let groups = GroupsForTracks {
            spared: 6 << 30,
            log: 2 << 30,
            log_used: 2 << 30,
        };
        prices(rotational).forming(bytes, &groups, reads, 2 << 30)
    }

    fn prices(rotational: bool) -> Prices {
        let geometry = volume(64 << 20, &crate::OpenOptions::default())
            .core()
            .geometry;
        let disk = Disk::of(8 << 30, None, rotational);
        Prices { geometry, disk }
    }

    #[test]
    fn the_fuller_the_log_is_the_more_groups_for_tracks_cost() {
        let cost = |spared: u64, percent: u64| {
            let groups = GroupsForTracks {
                spared,
                log: 1 << 30,
                log_used: (1 << 30) / 100 * percent,
            };
            let forming = prices(true).forming(100 << 20, &groups, 1, 2 << 30);
            forming.cost
        };
        let free = cost(100 << 20, 90);
        assert_eq!(free, cost(1 << 30, 10));
        assert!(free < cost(50 << 20, 50) && cost(50 << 20, 50) < cost(0, 50));
        assert!(cost(0, 50) < cost(0, 90) && cost(0, 90) < 6 * free);
        let none = GroupsForTracks::default();
        assert!(!prices(true).forming(1 << 20, &none, 100, 2 << 30).pays());
    }

    #[test]
    fn as_many_reads_pay_as_have_cost_what_moving_takes() {
        // A hundred files of 10 KiB, and ten thousand: two reads of a hundred.
        let (few, many) = (1 << 20, 100 << 20);
        assert!(!forming(true, few, 1).pays());
        assert!(forming(true, few, 2).pays());
        assert!(!forming(true, many, 100).pays());
        assert!(forming(true, many, 200).pays());
        assert!(!FormingCost::default().pays());
    }

    #[test]
    fn ways_between_pieces_cost_what_is_between_them() {
        let at = |frags: u64| (FragAddr(frags), 4096u64);
        let ways = |pieces: &[(FragAddr, u64)]| prices(true).ways(pieces.iter().copied());
        let near = ways(&[at(0), at(4), at(8)]);
        assert_eq!((near, ways(&[])), (0, 0));
        let far = ways(&[at(0), at(100_000), at(200_000)]);
        assert_eq!(far, 2 * ways(&[at(0), at(100_000)]));
        assert!(far > ways(&[at(0), at(10_000), at(20_000)]));
    }

    #[test]
    fn where_nothing_turns_nothing_pays() {
        assert!(!forming(false, 1 << 20, 1 << 40).pays());
    }
}
