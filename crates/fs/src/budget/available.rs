//! The room that is shown: what data of large files can take before they get ENOSPC, cleaning included.
//!
//! It follows from what is in use once all that is dirty is committed and two checkpoints were taken, so that neither
//! changes it. What was promised to data that waits, and what is reserved, is not in it.

use super::Budget;
use super::worst_case::REMOVAL_COST;
use crate::core::Core;
use crate::reclaim;
use crate::unit::UNIT;
use loamfs_format::Extent;
use loamfs_format::checksum::{CRC_UNITS, CrcRun};
use loamfs_format::group::Role;
use loamfs_space::Outlook;

/// Groups that are partly empty while the log is packed.
const IN_MOTION: u64 = 4;
/// Blocks that writing leaves: admission counts two more than are written, and what does not fit around a superblock twice.
const LEFT_BLOCKS: u64 = 5;

/// The room that is shown.
pub(crate) struct Available<'c>(Budget<'c>);

impl Core {
    /// The room that is shown.
    pub fn available(&mut self) -> Available<'_> {
        Available(self.budget())
    }
}

impl Available<'_> {
    /// Bytes that a large file can take; `in_vain` says that the fight for such room was lost.
    pub fn bytes(&mut self, in_vain: bool) -> u64 {
        let (room, leaving) = self.room(in_vain);
        room.saturating_sub(leaving)
    }

    /// Bytes that lack for what devices hold that leave.
    pub fn lacking_bytes(&mut self, in_vain: bool) -> u64 {
        let (room, leaving) = self.room(in_vain);
        leaving.saturating_sub(room)
    }

    /// Bytes that data of large files can take, and those of them that stand on devices which leave.
    fn room(&mut self, in_vain: bool) -> (u64, u64) {
        let g = self.0.geometry;
        let frag = u64::from(g.fragment_size);
        let going: Vec<Extent> = self
            .0
            .blocks
            .frees()
            .iter()
            .chain(self.0.checkpoints.summaries())
            .copied()
            .collect();
        let outlook = reclaim::outlook(self.0.space, &going);
        let (waiting, ragged) = (self.0.waiting(), self.0.space.uneven().ragged());
        let data = self.0.space.free_index(Role::Data).frags() + outlook.data_going;
        let ragged = ragged.data + ragged.free;
        let claimable = self.0.space.free_groups() + outlook.log_groups;
        let room = |metadata: u64| {
            let log = self.log_groups(&outlook, g.frags_for(metadata), in_vain);
            // Groups that are kept from data are won back from it.
            let sizes = self.0.sizes;
            let kept = log + sizes.reserve_groups() + sizes.groups_for_cleaning();
            let kept = kept * g.group_frags + ragged;
            let blocks = (data + claimable * g.group_frags).saturating_sub(kept);
            let left = LEFT_BLOCKS * u64::from(g.small_size);
            (blocks * frag).saturating_sub(waiting.blocks + left)
        };
        (room(metadata_of(room(0))), outlook.data_leaving * frag)
    }

    /// Groups that the log needs for good with `metadata` more fragments, a segment, and the room that removals find at
    /// least: groups that hold little are emptied into others.
    fn log_groups(&self, outlook: &Outlook, metadata: u64, in_vain: bool) -> u64 {
        let g = self.0.geometry;
        let growth = metadata + g.frags_for(u64::from(g.segment_max) + 4 * REMOVAL_COST);
        let need = (outlook.log_used + growth).div_ceil(g.group_frags);
        let packed = need + IN_MOTION.min(outlook.log_used.div_ceil(g.group_frags));
        match in_vain {
            // Cleaning was in vain.
            true => need.max(outlook.log_groups),
            false => need.max(packed.min(outlook.log_groups)),
        }
    }
}

/// Bytes of the trees of a large file of so many bytes, at most: checksums in leaves that are half full, and as much again
/// for the nodes above them and the file's extents.
fn metadata_of(bytes: u64) -> u64 {
    let runs = bytes / UNIT / CRC_UNITS;
    4 * runs * size_of::<CrcRun>() as u64
}
