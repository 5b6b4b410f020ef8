//! Space that comes back once what freed it is durable (H14, Z4, rule 5).

use crate::checkpoints::Checkpoints;
use crate::core::Core;
use crate::env::Surroundings;
use crate::freed::Freed;
use crate::law::Step;
use crate::reclaim::Reclaim;
use crate::tracks::Tracks;
use crate::writeback::Writeback;
use loamfs_format::{FragAddr, Geometry};
use loamfs_log::writer::LogWriter;
use loamfs_space::Space;
use std::ops::Range;

/// What is held back, and what says until when.
pub(crate) struct Releasing<'c> {
    geometry: &'c Geometry,
    env: &'c Surroundings,
    space: &'c mut Space,
    log: &'c LogWriter,
    checkpoints: &'c Checkpoints,
    writeback: &'c Writeback,
    freed: &'c mut Freed,
    reclaim: &'c mut Reclaim,
    tracks: &'c mut Tracks,
}

impl Core {
    /// What releases space.
    pub fn releasing(&mut self) -> Releasing<'_> {
        Releasing {
            geometry: &self.geometry,
            env: &self.env,
            space: &mut self.space,
            log: &self.log,
            checkpoints: &self.checkpoints,
            writeback: &self.writeback,
            freed: &mut self.freed,
            reclaim: &mut self.reclaim,
            tracks: &mut self.tracks,
        }
    }
}

impl Releasing<'_> {
    /// Releases space if this step makes any reusable (rule 5).
    pub fn after(&mut self, step: Step) {
        if self.env.law().releases_after(step) {
            self.release();
        }
    }

    /// Space that what is durable now makes reusable (rule 5).
    pub fn release(&mut self) {
        let checkpoints = &self.checkpoints;
        let both = self
            .env
            .law()
            .both_name(checkpoints.named(), checkpoints.last().ssn);
        let copied = checkpoints.copied();
        let both = self.env.law().released_up_to(both, copied);
        self.reclaim.forget_room();
        let newest = self.checkpoints.newest_named();
        let recorded = self.env.law().freed_up_to(self.log.recorded(), newest);
        let recorded = self.env.law().released_up_to(recorded, copied);
        // Nobody settles over what is used again (rule 7).
        let (law, writeback) = (self.env.law(), &self.writeback);
        let busy = |range: Range<FragAddr>| {
            law.keeps_first_write(writeback.is_arriving(&range))
                || law.waits_for_settling(writeback.is_settling(range))
        };
        for padding in self.tracks.take_padding(recorded) {
            if let Err(error) = self.space.abandon(padding) {
                tracing::error!(%error, ?padding, "cannot give an end of a track's window back");
            }
        }
        let freed = self.space.release(recorded, both, busy);
        self.freed.note(&freed, self.geometry);
        let protect = self.geometry.group_of(self.log.tail().next);
        self.space.give_back_empty(Some(protect));
    }
}
