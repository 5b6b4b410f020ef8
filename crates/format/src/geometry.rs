//! The sizes that shape a volume, and the arithmetic of addresses that follows from them.

use crate::kind::BlockKind;
use crate::types::{Extent, FragAddr, GroupNo};

/// Bytes of the unit in which the log is written, and of a checksummed unit of homed data.
pub const UNIT_SIZE: u32 = 4096;
/// Largest block, bytes.
pub const BLOCK_SIZE_MAX: u32 = 1 << 20;
/// Most groups of a volume: what the largest volume has in groups of the largest size. Bounds what they take in memory.
pub const GROUPS_MAX: u64 = 1 << 20;

/// Sizes that shape a volume, fixed at mkfs but for `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a fragment: a power of two, 512 to 4,096.
    pub fragment_size: u32,
    /// Bytes of a block of large files: a power of two, 4 KiB to 1 MiB, at least a fragment.
    pub block_size: u32,
    /// Most bytes of a small file, and of a piece of an attribute's value: a power of two, 4 KiB to 1 MiB, at least a block.
    pub small_size: u32,
    /// Fragments of a group: a power of two.
    pub group_frags: u64,
    /// Fragments of the volume.
    pub total_frags: u64,
    /// Most bytes of a segment.
    pub segment_max: u32,
    /// A checkpoint is taken at the latest after this many segments.
    pub checkpoint_segments_max: u32,
    /// ... or this many bytes of summaries.
    pub checkpoint_summary_max: u32,
    /// ... or this many dirty map nodes.
    pub checkpoint_nodes_max: u32,
}

impl Geometry {
    /// Fragments of a block.
    pub const fn block_frags(&self) -> u64 {
        (self.block_size / self.fragment_size) as u64
    }

    /// Fragments of the longest small file.
    pub const fn small_frags(&self) -> u64 {
        (self.small_size / self.fragment_size) as u64
    }

    /// Where a block is whose content takes `stored` bytes: nodes of maps may be there twice, one copy behind the other.
    pub fn copies(
        &self,
        kind: BlockKind,
        extent: Extent,
        stored: u32,
    ) -> impl Iterator<Item = Extent> + use<> {
        let one = self.frags_for(stored.into());
        let twice = kind.is_map() && one > 0 && extent.frags == 2 * one;
        let (frags, count) = if twice { (one, 2) } else { (extent.frags, 1) };
        (0..count).map(move |copy| Extent {
            start: FragAddr(extent.start.0.saturating_add(copy * frags)),
            frags,
        })
    }

    /// Fragments of a unit of [`UNIT_SIZE`] bytes.
    pub const fn unit_frags(&self) -> u64 {
        (UNIT_SIZE / self.fragment_size) as u64
    }

    /// Units of [`UNIT_SIZE`] bytes of a block.
    pub const fn block_units(&self) -> u64 {
        (self.block_size / UNIT_SIZE) as u64
    }

    /// Number of groups; the last one may be cut short by the end of the volume.
    pub const fn groups(&self) -> u32 {
        self.total_frags.div_ceil(self.group_frags) as u32
    }

    /// The fragments of a group.
    pub fn group_extent(&self, group: GroupNo) -> Extent {
        let start = u64::from(group.0).saturating_mul(self.group_frags);
        Extent::new(
            FragAddr(start),
            self.group_frags.min(self.total_frags.saturating_sub(start)),
        )
    }

    /// The group that holds `addr`.
    pub fn group_of(&self, addr: FragAddr) -> GroupNo {
        GroupNo((addr.0 / self.group_frags) as u32)
    }

    /// The groups that hold something of a run, which is not empty.
    pub fn groups_with(&self, run: Extent) -> impl Iterator<Item = GroupNo> + use<> {
        let last = FragAddr(run.end().0.saturating_sub(1));
        (self.group_of(run.start).0..=self.group_of(last).0).map(GroupNo)
    }

    /// Whether the run lies on the volume.
    pub fn holds(&self, extent: Extent) -> bool {
        extent
            .start
            .0
            .checked_add(extent.frags)
            .is_some_and(|end| end <= self.total_frags)
    }

    /// Fragments that hold `bytes` bytes.
    pub const fn frags_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.fragment_size as u64)
    }

    /// Byte of an address, counted over all devices of the volume.
    pub const fn byte_offset(&self, addr: FragAddr) -> u64 {
        addr.0.saturating_mul(self.fragment_size as u64)
    }

    /// Checks that every size is one that the format allows.
    ///
    /// # Errors
    /// Names the first field out of range.
    pub fn validate(&self) -> Result<(), OutOfRange> {
        let bad = |field| Err(OutOfRange { field });
        if !self.fragment_size.is_power_of_two() || !(512..=4096).contains(&self.fragment_size) {
            return bad("fragment size");
        }
        let of_blocks =
            |size: u32| size.is_power_of_two() && (UNIT_SIZE..=BLOCK_SIZE_MAX).contains(&size);
        if !of_blocks(self.block_size)
            || !of_blocks(self.small_size)
            || self.block_size > self.small_size
        {
            return bad("block size");
        }
        if !self.group_frags.is_power_of_two()
            || self.group_frags < 8 * self.small_frags()
            || self.group_frags > (1 << 28) / u64::from(self.fragment_size)
        {
            return bad("group size");
        }
        let bytes_max = 1u64 << 48;
        if self.total_frags < 4 * self.group_frags.min(64)
            || self.total_frags > bytes_max / u64::from(self.fragment_size)
            || self.total_frags.div_ceil(self.group_frags) > GROUPS_MAX
        {
            return bad("volume size");
        }
        if !self.segment_max.is_multiple_of(UNIT_SIZE)
            || !(1 << 16..=1 << 28).contains(&self.segment_max)
        {
            return bad("segment size");
        }
        if !(2..=65_536).contains(&self.checkpoint_segments_max) {
            return bad("segments of a checkpoint");
        }
        if !(UNIT_SIZE..=1 << 26).contains(&self.checkpoint_summary_max) {
            return bad("summary bytes of a checkpoint");
        }
        if !(8..=1 << 20).contains(&self.checkpoint_nodes_max) {
            return bad("nodes of a checkpoint");
        }
        Ok(())
    }
}

/// A size that the format does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the superblock's {field} is out of range")]
pub struct OutOfRange {
    /// Which.
    pub field: &'static str,
}
