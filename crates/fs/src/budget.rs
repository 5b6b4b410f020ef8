//! The budget of space: what operations, segments and checkpoints may take of memory and of the volume (rules 1 and 10).
//!
//! [`Budget`] is a view of the state: it borrows what decides of that, and changes nothing but what it finds out and whom
//! it presses.
//! [`Sizes`] is what follows from the volume's sizes alone. [`worst_case`] is the arithmetic, which knows of no state.

mod admission;
mod available;
mod fights;
mod forecast;
mod room;
mod sizes;
pub mod worst_case;

pub(crate) use admission::NODES_COST;
pub(crate) use forecast::KnownRoom;
pub(crate) use sizes::Sizes;

use crate::unit::UNIT;
use admission::TABLES_COST;

use crate::access::Access;
use crate::blocks::Blocks;
use crate::checkpoints::Checkpoints;
use crate::core::Core;
use crate::inodes::Inodes;
use crate::law::{Law, Rules};
use crate::maps::Maps;
use crate::pending::Pending;
use crate::reclaim::Reclaim;
use crate::writeback::Writeback;
use loamfs_format::Geometry;
use loamfs_format::node::NODE_SIZE;
use loamfs_log::writer::LogWriter;
use loamfs_space::Space;

/// Bytes that a segment says of each thing that it writes or frees, about.
const RECORD: u64 = 64;

/// What there is to give, and what waits for it.
pub(crate) struct Budget<'c> {
    sizes: Sizes<'c>,
    /// Bytes of the log that an operation makes besides, where directories may have tracks.
    tables: u64,
    geometry: &'c Geometry,
    law: &'c Law<dyn Rules>,
    access: &'c Access,
    space: &'c Space,
    log: &'c LogWriter,
    maps: &'c Maps,
    /// Nodes of the maps are looked at, which moves them up in the cache.
    blocks: &'c mut Blocks,
    inodes: &'c Inodes,
    /// It is told when much waits.
    pending: &'c mut Pending,
    writeback: &'c Writeback,
    checkpoints: &'c Checkpoints,
    /// What was found out.
    reclaim: &'c mut Reclaim,
}

/// Data of large files that wait, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// In memory.
    pub bytes: u64,
    /// Of them, overwrites that ride in the next segment.
    pub images: u64,
    /// What new homes may take.
    pub blocks: u64,
    /// Runs of checksums that first writes of reserved homes change.
    pub runs: u64,
}

impl Core {
    /// The budget as things stand.
    pub fn budget(&mut self) -> Budget<'_> {
        Budget {
            sizes: Sizes::new(
                &self.geometry,
                self.env.law(),
                self.inodes.totals().unwritten,
                self.space.is_all_log(),
            ),
            tables: if self.sb.has_tracks() { TABLES_COST } else { 0 },
            geometry: &self.geometry,
            law: self.env.law(),
            access: &self.access,
            space: &self.space,
            log: &self.log,
            maps: &self.maps,
            blocks: &mut self.blocks,
            inodes: &self.inodes,
            pending: &mut self.pending,
            writeback: &self.writeback,
            checkpoints: &self.checkpoints,
            reclaim: &mut self.reclaim,
        }
    }

    /// What follows from the volume's sizes.
    pub fn sizes(&self) -> Sizes<'_> {
        Sizes::new(
            &self.geometry,
            self.env.law(),
            self.inodes.totals().unwritten,
            self.space.is_all_log(),
        )
    }
}

impl Budget<'_> {
    /// Counts the data of large files that wait.
    pub fn waiting(&self) -> Waiting {
        let totals = self.writeback.totals();
        Waiting {
            bytes: totals.units * UNIT,
            images: totals.images * UNIT,
            blocks: totals.blocks * u64::from(self.geometry.block_size),
            runs: totals.runs,
        }
    }

    /// An upper bound of what the next segment is long, in bytes, if it says what changed in inode blocks where it may.
    pub fn segment_length(&self) -> u64 {
        self.length_with(&self.waiting())
    }

    /// The same, with so much waiting. A checkpoint that found no place leaves nodes of maps, which no other segment writes.
    fn length_with(&self, waiting: &Waiting) -> u64 {
        let of_maps = self.blocks.dirty_of_maps() as u64 * (NODE_SIZE as u64 + RECORD);
        let spared = self.inodes.deltas().spared() + of_maps;
        self.segment_with(waiting).saturating_sub(spared)
    }

    /// An upper bound of what the next segment holds, in bytes, whatever it says of inode blocks.
    pub fn segment_estimate(&self) -> u64 {
        self.segment_with(&self.waiting())
    }

    /// The same, with so much waiting.
    fn segment_with(&self, waiting: &Waiting) -> u64 {
        let blocks = self.blocks.dirty_count() as u64 * NODE_SIZE as u64
            + self.inodes.dirty_bytes()
            + self.pending.content_bytes()
            + waiting.images;
        let things =
            self.blocks.dirty_count() + self.inodes.block_count() + self.blocks.frees().len();
        blocks + (things as u64 + self.pending.content_bytes() / 1024) * RECORD + 8192
    }
}
