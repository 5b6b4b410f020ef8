//! The small volumes that tests run on.

use std::fmt;

use loamfs_fs::MkfsOptions;

/// Size and shape of a volume and of the device under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the device.
    pub size: u64,
    /// Bytes of its sectors.
    pub sector: u32,
    /// Bytes of a fragment.
    pub fragment: u32,
    /// Bytes of a block: files up to this size are small.
    pub block: u32,
    /// Bytes of a group.
    pub group: u64,
    /// Most bytes of a segment.
    pub segment_max: u32,
    /// Most segments between checkpoints.
    pub checkpoint_segments_max: u32,
    /// Most dirty map nodes between checkpoints; `None` for what mkfs chooses.
    pub checkpoint_nodes_max: Option<u32>,
}

impl Geometry {
    /// So small that checkpoints and the reuse of space come within a few
    /// operations.
    pub const TINY: Self = Self {
        size: 4 << 20,
        sector: 4096,
        fragment: 1024,
        block: 4096,
        group: 256 << 10,
        segment_max: 64 << 10,
        checkpoint_segments_max: 4,
        checkpoint_nodes_max: None,
    };

    /// The default fragment and block, on sectors of 512 bytes.
    pub const SMALL: Self = Self {
        size: 8 << 20,
        sector: 512,
        fragment: 1024,
        block: 16384,
        group: 512 << 10,
        segment_max: 128 << 10,
        checkpoint_segments_max: 8,
        checkpoint_nodes_max: None,
    };

    /// Fragments as large as the log's unit, few dirty nodes a checkpoint.
    pub const COARSE: Self = Self {
        size: 8 << 20,
        sector: 4096,
        fragment: 4096,
        block: 16384,
        group: 1 << 20,
        segment_max: 256 << 10,
        checkpoint_segments_max: 6,
        checkpoint_nodes_max: Some(64),
    };

    /// Room for many files: what the long model runs use.
    pub const ROOMY: Self = Self {
        size: 64 << 20,
        sector: 4096,
        fragment: 1024,
        block: 16384,
        group: 1 << 20,
        segment_max: 1 << 20,
        checkpoint_segments_max: 64,
        checkpoint_nodes_max: None,
    };

    /// As [`ROOMY`](Self::ROOMY), with the smallest block.
    pub const ROOMY_FINE: Self = Self {
        block: 4096,
        segment_max: 256 << 10,
        checkpoint_segments_max: 16,
        ..Self::ROOMY
    };

    /// What mkfs is asked for.
    pub fn mkfs_options(&self) -> MkfsOptions {
        MkfsOptions {
            block_size: self.block,
            fragment_size: self.fragment,
            group_size: Some(self.group),
            segment_max: Some(self.segment_max),
            checkpoint_segments_max: Some(self.checkpoint_segments_max),
            checkpoint_nodes_max: self.checkpoint_nodes_max,
            // That is a matter of the kind of volume (`loam::VOLUMES`).
            deltas: false,
            tails: false,
            ..MkfsOptions::default()
        }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} KiB (sector {}, fragment {}, block {}, group {} KiB, segments {} KiB)",
            self.size >> 10,
            self.sector,
            self.fragment,
            self.block,
            self.group >> 10,
            self.segment_max >> 10
        )
    }
}
