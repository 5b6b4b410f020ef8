//! What follows from a volume's sizes: limits, the reserve, and what is promised to first writes of reserved space.

use super::worst_case::REMOVAL_COST;
use crate::law::{Law, Rules};
use loamfs_format::Geometry;
use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::summary::{EXTENTS_MAX, Unwritten};

/// Bytes of the log that the first writes of an extent take at most, whatever its length: two leaves of checksums.
const EXTENT_COST: u64 = 2 * NODE_SIZE as u64;
/// The same, for each unit: a run of checksums in a leaf that is half empty, shared by its units.
const UNIT_COST: u64 = 9;

/// Bytes for each hole of a segment that is cut into short ones: less than most blocks have, since a summary takes holes too.
const PLUGGED: u64 = 8 << 10;

/// Map nodes from which on a checkpoint is due, at least.
const CHECKPOINT_NODES: u64 = 64;

/// Map nodes that the segment before a checkpoint changes besides. The forecast may reckon with more.
const SEGMENT_NODES: u64 = 16;

/// One of so many groups is left to cleaning where everything is in the log. NILFS2 leaves a twentieth.
const CLEANING_PART: u64 = 16;

/// Bytes that a round wins at most where everything is in the log.
const WON_TOGETHER: u64 = 8 << 20;

/// Bytes of a segment that the reserve has room for, where segments may be that long.
const RESERVED_SEGMENT: u64 = 8 << 20;

/// The sizes of a volume, and how much of it was never written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes<'c> {
    geometry: &'c Geometry,
    law: &'c Law<dyn Rules>,
    unwritten: Unwritten,
    all_log: bool,
}

impl<'c> Sizes<'c> {
    /// Those of a volume of which so much was never written, and where everything is in the log or not.
    pub fn new(
        geometry: &'c Geometry,
        law: &'c Law<dyn Rules>,
        unwritten: Unwritten,
        all_log: bool,
    ) -> Sizes<'c> {
        Sizes {
            geometry,
            law,
            unwritten,
            all_log,
        }
    }

    /// Most bytes of a file that stays in the log.
    pub fn small_max(self) -> u64 {
        self.geometry.small_size.into()
    }

    /// Bytes of the volume.
    pub fn volume_bytes(self) -> u64 {
        self.geometry.total_frags * u64::from(self.geometry.fragment_size)
    }

    /// Bytes of a group.
    pub(super) fn group_bytes(self) -> u64 {
        self.geometry.group_frags * u64::from(self.geometry.fragment_size)
    }

    /// Map nodes from which on a checkpoint is due (rule 9): any checkpoint changes some, and on small volumes one would be due
    /// again at once.
    pub(super) fn checkpoint_nodes(self) -> u64 {
        u64::from(self.geometry.checkpoint_nodes_max).max(CHECKPOINT_NODES)
    }

    /// Images beyond which settling starts by itself, whether it pays or not: a sixteenth of the volume, and no more than a
    /// mount reads in a moment.
    pub fn images_max(self) -> usize {
        (self.volume_bytes() >> 16).clamp(4, 65_536) as usize
    }

    /// Bytes that a round of moving wins: a segment. Where groups are written when they are clean much more is moved for it, and whoever
    /// waits for that waits no longer where segments are longer.
    pub fn won_together(self) -> u64 {
        let segment = u64::from(self.geometry.segment_max);
        match self.all_log {
            true => segment.min(WON_TOGETHER),
            false => segment,
        }
    }

    /// Bytes beyond which the next segment takes nothing more.
    pub fn segment_full(self) -> u64 {
        u64::from(self.geometry.segment_max) * 3 / 4
    }

    /// The same where each block goes into a short hole: a segment has no more extents.
    pub fn plugging_full(self) -> u64 {
        self.segment_full().min(EXTENTS_MAX as u64 * PLUGGED)
    }

    /// Bytes of the longest segment that the reserve has room for: half of the longest that there may be, or more. What is
    /// changed again soon is written once by longer ones; a larger reserve would be everybody's.
    fn reserved_segment(self) -> u64 {
        let most = u64::from(self.geometry.segment_max);
        let least = (self.volume_bytes() / 256).max(RESERVED_SEGMENT);
        most.min(least.max(most / 2))
    }

    /// Room that others leave to removals besides: so much of it is dirtied before the checkpoints come again.
    pub fn spare_bytes(self) -> u64 {
        u64::from(self.geometry.segment_max)
            .min(self.volume_bytes() / 64)
            .max(2 * REMOVAL_COST)
    }

    /// Bytes of the log that small files leave to metadata while data groups have room: half of the reserve, with what is
    /// counted besides for ends of holes ([`Budget::space_fits`](super::Budget::space_fits)).
    pub(super) fn spill_margin(self) -> u64 {
        self.reserve_bytes() / 3
    }

    /// Bytes that only deletes, checkpoints and compaction may use: two checkpoints of the largest size with their next
    /// addresses, and a segment of deletes before each (rule 10); and what first writes of reserved space will take.
    pub fn reserve_bytes(self) -> u64 {
        let nodes = self.checkpoint_nodes() + SEGMENT_NODES;
        let checkpoint = nodes * NODE_SIZE as u64 + 64 * 1024;
        let bounded = checkpoint.min(self.volume_bytes() / 16);
        if !self.law.keeps_reserve() {
            return 0;
        }
        2 * (bounded + self.reserved_segment().min(self.volume_bytes() / 64))
            + self.promised_bytes()
    }

    /// Groups that hold the reserve, so that deletes and checkpoints find whole ones.
    pub fn reserve_groups(self) -> u64 {
        self.reserve_bytes().div_ceil(self.group_bytes()).max(1)
    }

    /// Groups that data never takes: the reserve's, and [`Sizes::groups_for_cleaning`], or it has none to move into once a volume was
    /// filled. Where everything is in the log, what is cleaned leaves whole groups anyway.
    pub fn groups_kept_from_data(self) -> u64 {
        match self.all_log {
            true => self.reserve_groups(),
            false => self.reserve_groups() + self.groups_for_cleaning(),
        }
    }

    /// Groups that nobody is promised besides the reserve's, on all but small volumes: cleaning moves less where it has room. Where
    /// everything is in the log it has no other.
    pub fn groups_for_cleaning(self) -> u64 {
        let part = match self.all_log {
            true => CLEANING_PART,
            false => 128,
        };
        u64::from(self.geometry.groups()) / part
    }

    /// Free groups that the mover and the next segment find, where groups can be emptied cheaply: in holes they would
    /// cost a seek for each.
    pub fn groups_to_move_into(self) -> u64 {
        let two = 2 * u64::from(self.geometry.segment_max);
        (two.div_ceil(self.group_bytes()) + 1).min(self.reserve_groups())
    }

    /// Fragments of the smallest hole to be counted on: any block fits into it. The largest checkpoint, and segment that the
    /// reserve has room for, is cut into half the extents that it may have, at most; a longer one into no more than it may have.
    pub fn hole_least(self) -> u64 {
        let g = self.geometry;
        let nodes = u64::from(g.checkpoint_nodes_max) * 4096;
        let longest = nodes
            .min(self.volume_bytes() / 16)
            .max(self.reserved_segment());
        let cut = longest / (EXTENTS_MAX as u64 / 2);
        g.frags_for(cut)
            .max(g.small_frags())
            .max(g.frags_for(INODE_BLOCK_MAX))
    }

    /// Bytes of the log that are kept free for checksums of what was never written.
    fn promised_bytes(self) -> u64 {
        self.promise_of(self.unwritten)
    }

    /// The same for so much of it.
    pub fn promise_of(self, count: Unwritten) -> u64 {
        let units = count.frags / self.geometry.unit_frags();
        count.extents * EXTENT_COST + units * UNIT_COST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MkfsOptions;

    /// That of a volume of so many bytes.
    fn geometry_of(bytes: u64) -> Geometry {
        crate::mkfs::geometry(bytes, &MkfsOptions::default()).unwrap()
    }

    fn sizes(geometry: &Geometry) -> Sizes<'_> {
        static LAW: std::sync::LazyLock<Law<dyn Rules>> = std::sync::LazyLock::new(Law::default);
        Sizes::new(geometry, &LAW, Unwritten::default(), false)
    }

    /// A reserve for the longest segments took 16 MiB from everybody on volumes of 2 GiB.
    #[test]
    fn segments_of_16_mib_take_no_larger_reserve_from_2_gib() {
        let long = geometry_of(2 << 30);
        let short = Geometry {
            segment_max: 8 << 20,
            ..long
        };
        assert_eq!(long.segment_max, 16 << 20);
        let (long, short) = (sizes(&long), sizes(&short));
        assert!(long.segment_full() > short.segment_full());
        assert_eq!(long.reserve_bytes(), short.reserve_bytes());
        assert_eq!(long.hole_least(), short.hole_least());
    }

    #[test]
    fn the_longest_segment_may_be_cut_into_the_smallest_holes() {
        for mib in [2_u64, 64, 1 << 10, 1536, 2 << 10, 3 << 10, 4 << 10, 1 << 20] {
            let made = geometry_of(mib << 20);
            for longer in [1, 16] {
                let geometry = Geometry {
                    segment_max: made.segment_max * longer,
                    ..made
                };
                let longest = geometry.frags_for(geometry.segment_max.into());
                let holes = sizes(&geometry).hole_least() * EXTENTS_MAX as u64;
                // What is cut off is less than a fragment a hole.
                assert!(
                    longest <= holes + EXTENTS_MAX as u64,
                    "{mib} MiB x {longer}"
                );
            }
        }
    }
}
