//! Fights for space that were lost: they are not fought again before something was freed.

use crate::blocks::Blocks;
use crate::checkpoints::Checkpoints;
use crate::core::Core;
use crate::inodes::Inodes;
use crate::pending::Pending;
use crate::reclaim::{Fight, Reclaim};
use loamfs_format::node::NODE_SIZE;
use loamfs_format::{Extent, Geometry};
use loamfs_space::Space;

/// Bytes freed after which a lost fight for space is worth another one, at most.
const EXHAUSTED_WORTH: u64 = 1 << 20;

/// The fights that were lost, and what tells whether another one is worth it.
pub(crate) struct Fights<'c> {
    geometry: &'c Geometry,
    space: &'c Space,
    blocks: &'c Blocks,
    inodes: &'c Inodes,
    pending: &'c Pending,
    checkpoints: &'c Checkpoints,
    reclaim: &'c mut Reclaim,
}

impl Core {
    /// The fights for space that were lost.
    pub fn fights(&mut self) -> Fights<'_> {
        Fights {
            geometry: &self.geometry,
            space: &self.space,
            blocks: &self.blocks,
            inodes: &self.inodes,
            pending: &self.pending,
            checkpoints: &self.checkpoints,
            reclaim: &mut self.reclaim,
        }
    }
}

impl Fights<'_> {
    /// Notes that a fight was lost; returns whether that is new.
    pub fn note_lost(&mut self, fight: Fight) -> bool {
        let new = !self.is_lost(fight);
        let clear = self.clear_frags();
        self.reclaim.lose(fight, clear);
        new
    }

    /// Whether a fight was lost, and nothing much was freed since: then it would end as before.
    pub fn is_lost(&mut self, fight: Fight) -> bool {
        let Some(at) = self.reclaim.lost(fight) else {
            return false;
        };
        let clear = self.clear_frags();
        let worth = (self.geometry.total_frags / 512).min(self.geometry.frags_for(EXHAUSTED_WORTH));
        let lost = clear <= at + worth;
        if lost {
            self.reclaim.lose(fight, at.min(clear));
        } else {
            self.reclaim.forget(fight);
        }
        lost
    }

    /// Fragments that are free once what is dirty is committed and a checkpoint gave the summaries back. Writing a block
    /// anew, or moving it, leaves that as it is.
    pub fn clear_frags(&self) -> u64 {
        let g = self.geometry;
        let sum = |extents: &[Extent]| extents.iter().map(|extent| extent.frags).sum::<u64>();
        let freed = sum(self.blocks.frees()) + sum(self.checkpoints.summaries());
        let nodes = g.frags_for(self.blocks.dirty_count() as u64 * NODE_SIZE as u64);
        let taken = nodes + self.inodes.dirty_frags(g) + g.frags_for(self.pending.content_bytes());
        (self.space.usage().free_frags() + freed).saturating_sub(taken)
    }
}
