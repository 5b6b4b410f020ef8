//! Finding places for what a segment holds.

use super::Commit;
use super::contents::{Contents, Item};
use crate::blocks::Stop;
use crate::budget::worst_case::{RecordCounts, claims};
use crate::reclaim::{CutInto, Fight, HOLES_MANY, Plugging};
use loamfs_format::group::Role;
use loamfs_format::summary::SegmentKind;
use loamfs_log::plugging::Cut;
use loamfs_log::segment::{PlaceError, SegmentBody, SegmentPlace, place};
use loamfs_log::writer::Tail;

/// Records for which recovery's segment has room besides, so that it is always longer than the unit that was reserved for it: that it
/// takes nothing which was freed (rule 5) is tried with it.
const RECOVERED: usize = 64;

impl Commit<'_> {
    /// Takes places for all blocks and for the summary.
    pub(super) fn place(
        &mut self,
        tail: &Tail,
        contents: &Contents,
        kind: SegmentKind,
    ) -> Result<SegmentPlace, Stop> {
        let tracks: Vec<u64> = contents.tracks.iter().map(|track| track.frags).collect();
        let records_max = self.records_of(contents, kind).bytes();
        let cut = self.keep_groups();
        let placement = place(
            &mut self.core.space,
            &self.core.geometry,
            tail.next,
            records_max,
            SegmentBody {
                frags: &contents.frags,
                aligned: contents.frags.len() - contents.data.len(),
                tracks: &tracks,
            },
            cut,
        );
        let placement = placement.map_err(|error| self.found_no_place(error, contents))?;
        self.core.reclaim.forget(Fight::Place);
        // A short one tells nothing of those that are long.
        if kind == SegmentKind::Normal && contents.frags.len() as u64 >= HOLES_MANY {
            self.core.reclaim.note_cut(CutInto {
                holes: placement.extents.len() as u64,
                frags: placement.extents.iter().map(|extent| extent.frags).sum(),
            });
        }
        Ok(placement)
    }

    /// The most records that the summary will have.
    fn records_of(&self, contents: &Contents, kind: SegmentKind) -> RecordCounts {
        let core = &self.core;
        let blocks = contents.frags.len() as u64 + contents.track_blocks();
        let besides = match kind {
            SegmentKind::Checkpoint => {
                let held = core.space.held().ranges() + core.checkpoints.summaries().len();
                held + core.maps.roots().len()
            }
            SegmentKind::Normal => 0,
            SegmentKind::Mount => RECOVERED,
        };
        let images = contents.data.iter();
        let images = images.filter(|item| matches!(item, Item::Image(..)));
        let frags = contents.frags.iter().map(|frags| u64::from(*frags));
        let tracks = contents.tracks.iter().map(|track| track.frags);
        let written = core.inodes.dirty_blocks().count();
        let superseded = core.blocks.frees().len() + core.blocks.retires().len();
        RecordCounts {
            blocks,
            inode_blocks: written.saturating_sub(contents.apart.len()) as u64 + contents.entries,
            deltas: match kind {
                SegmentKind::Checkpoint => core.inodes.deltas().bytes(),
                SegmentKind::Normal | SegmentKind::Mount => contents.deltas,
            },
            frees: superseded as u64 + blocks,
            others: (core.pending.records().len() + besides + images.count()) as u64,
            roles: match core.space.has_role_changes() {
                true => core.geometry.groups().into(),
                false => claims(&core.geometry, frags.chain(tracks).sum()),
            },
        }
    }

    /// Keeps free groups for data that wait. Of a log that lives on its reserve whole groups go last: what was superseded
    /// left holes of the same sizes, and the segment is cut to fit them.
    fn keep_groups(&mut self) -> Option<Cut> {
        if let Some(plugging) = self.core.reclaim.plugging() {
            let all = self.core.space.free_groups();
            self.core.space.placement().keep_for_data(all);
            return (plugging == Plugging::Short).then_some(Cut::Smallest);
        }
        let waiting = self.core.budget().groups_awaited();
        let short = self.core.budget().lives_on_reserve(waiting)
            && self.core.space.law().gathers_segments()
            && (self.core.reclaim.is_packing() || !self.core.budget().lends_groups());
        let kept = match self.core.reclaim.is_packing() || short {
            true => self.core.space.free_groups(),
            false => waiting,
        };
        self.core.space.placement().keep_for_data(kept);
        short.then(|| self.core.budget().cut())
    }

    fn found_no_place(&mut self, error: PlaceError, contents: &Contents) -> Stop {
        match error {
            PlaceError::Load(groups) => Stop::Load(groups),
            PlaceError::Space(error) => error.into(),
            // It is placed without some of them.
            PlaceError::Full if !contents.tracks.is_empty() => Stop::Full,
            PlaceError::Full => {
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
                Stop::Full
            }
        }
    }
}
