//! Finding places for what a segment holds.

use super::Commit;
use super::contents::Contents;
use crate::blocks::Stop;
use crate::budget::worst_case::RecordCounts;
use crate::reclaim::Fight;
use loamfs_format::group::Role;
use loamfs_format::summary::SegmentKind;
use loamfs_log::segment::{PlaceError, SegmentBody, SegmentPlace, place};
use loamfs_log::writer::Tail;

impl Commit<'_> {
    /// Takes places for all blocks and for the summary.
    pub(super) fn place(
        &mut self,
        tail: &Tail,
        contents: &Contents,
        kind: SegmentKind,
    ) -> Result<SegmentPlace, Stop> {
        let held = if kind == SegmentKind::Checkpoint {
            self.core.space.held().ranges() + self.core.checkpoints.summaries().len()
        } else {
            0
        };
        let freed = self.core.blocks.frees().len()
            + self.core.blocks.retires().len()
            + contents.frags.len()
            + contents.track_blocks() as usize;
        let tracks: Vec<u64> = contents.tracks.iter().map(|track| track.frags).collect();
        let records = RecordCounts {
            blocks: contents.frags.len() as u64 + contents.track_blocks(),
            inode_blocks: self.core.inodes.block_count() as u64,
            frees: freed as u64,
            others: (self.core.pending.records().len() + held + contents.data.len()) as u64,
            roles: if self.core.space.has_role_changes() {
                self.core.geometry.groups().into()
            } else {
                0
            },
        };
        let records_max = records.bytes();
        // Of a log that lives on its reserve whole groups go last: what was superseded left holes of the same sizes.
        let waiting = self.core.budget().groups_awaited();
        let tight =
            self.core.budget().is_tight(waiting) && self.core.space.law().gathers_segments();
        let cut = tight.then(|| self.core.budget().cut());
        let kept = if self.core.reclaim.is_packing() || tight {
            self.core.space.free_groups()
        } else {
            waiting
        };
        self.core.space.placement().keep_for_data(kept);
        let result = place(
            &mut self.core.space,
            &self.core.geometry,
            tail.next,
            records_max,
            SegmentBody {
                frags: &contents.frags,
                aligned: contents.frags.len() - contents.data.len(),
                tracks: &tracks,
            },
            (self.core.env.config().rotational, cut),
        );
        match result {
            Ok(placement) => {
                self.core.reclaim.forget(Fight::Place);
                Ok(placement)
            }
            Err(PlaceError::Load(groups)) => Err(Stop::Load(groups)),
            Err(PlaceError::Full) => {
                if self.core.fights().note_lost(Fight::Place) {
                    tracing::error!(
                        blocks = contents.frags.len(),
                        frags = contents.frags.iter().sum::<u32>(),
                        free_groups = self.core.space.free_groups(),
                        log = self.core.space.free_index(Role::Log).frags(),
                        held = self.core.space.held().frags(),
                        "no room for a segment"
                    );
                }
                Err(Stop::Full)
            }
            Err(PlaceError::Space(error)) => Err(error.into()),
        }
    }
}
