//! What an operation may still take of memory and of the volume before it starts (H17; rules 1 and 10).

use crate::blocks::Stop;
use crate::core::Core;
use crate::reclaim::Fight;
use crate::reserve::{Known, REMOVAL_COST};
use crate::writeback::UNIT;
use loamfs_format::Extent;
use loamfs_format::group::Role;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::summary::EXTENTS_MAX;
use loamfs_log::segment::Cut;

/// Bytes freed after which a lost fight for space is worth another one, at most.
const EXHAUSTED_WORTH: u64 = 1 << 20;

/// Groups whose bitmaps are loaded together, to see what room there is.
const LOADED_AT_ONCE: usize = 8;

/// What a change of a large file makes at most beside its data, in bytes of the log: nodes of its trees.
pub(crate) const NODES_COST: u64 = 16 << 10;

/// What changing a run of checksums makes at most, in bytes of the log: a leaf that is split.
const RUN_COST: u64 = 2 * NODE_SIZE as u64;

/// Data of large files that wait, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// In memory.
    pub bytes: u64,
    /// Of them, overwrites that ride in the next segment.
    images: u64,
    /// What new homes may take.
    pub blocks: u64,
    /// Runs of checksums that first writes of reserved homes change.
    runs: u64,
}

impl Core {
    /// Most bytes of a file that stays in the log.
    pub fn small_max(&self) -> u64 {
        self.geometry.block_size.into()
    }

    /// Bytes of the volume.
    pub fn volume_bytes(&self) -> u64 {
        self.geometry.total_frags * u64::from(self.geometry.fragment_size)
    }

    fn group_bytes(&self) -> u64 {
        self.geometry.group_frags * u64::from(self.geometry.fragment_size)
    }

    /// Images beyond which settling starts by itself: the log is no place for them to stay.
    pub fn images_max(&self) -> usize {
        (self.volume_bytes() >> 20).clamp(4, 4096) as usize
    }

    // ---- memory ------------------------------------------------------------------------------------------------

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

    /// An upper bound of what the next segment holds, in bytes.
    pub fn segment_estimate(&self) -> u64 {
        self.segment_with(&self.waiting())
    }

    fn segment_with(&self, waiting: &Waiting) -> u64 {
        let blocks = self.blocks.dirty_count() as u64 * 4096
            + self.inodes.dirty_bytes
            + self.pending.content_bytes()
            + waiting.images;
        // Records: about 64 bytes for each thing written, and the frees.
        let things = self.blocks.dirty_count() + self.inodes.blocks.len() + self.blocks.frees.len();
        blocks + (things as u64 + self.pending.content_bytes() / 1024) * 64 + 8192
    }

    /// Bytes beyond which the next segment takes nothing more.
    pub fn segment_full(&self) -> u64 {
        u64::from(self.geometry.segment_max) * 3 / 4
    }

    // ---- admission ---------------------------------------------------------------------------------------------

    /// Admits an operation that makes at most `log` bytes and `data` bytes of new content (rules 1 and 10).
    ///
    /// # Errors
    /// Read-only; [`Stop::Crowded`] when a commit must make room in memory, [`Stop::Full`] when space must be won.
    pub fn admit(&mut self, log: u64, data: u64) -> Result<(), Stop> {
        let waiting = self.waiting();
        self.admit_segment(&waiting)?;
        let bytes = waiting.bytes + data;
        if bytes > self.writeback.bytes_max() {
            return Err(Stop::Crowded);
        }
        self.pending
            .press(bytes > self.writeback.bytes_max() / 4 * 3);
        if !self.law.declares() {
            return Ok(());
        }
        let dirty = log + self.segment_with(&waiting) + waiting.runs * RUN_COST;
        if !self.fits_beside(&waiting, log, data)
            || !self.leaves_room(dirty + self.spare_bytes(), Cut::Smallest)?
        {
            return Err(Stop::Full);
        }
        Ok(())
    }

    /// Admits an operation that gives space back: it may use the reserve, but for the two checkpoints by which what it
    /// frees is won.
    ///
    /// # Errors
    /// As [`Core::admit`]; [`Stop::Tight`] when they must come first.
    pub fn admit_removal(&mut self) -> Result<(), Stop> {
        if !self.law.removals_use_reserve() {
            return self.admit(self.geometry.segment_max.into(), 0);
        }
        let waiting = self.waiting();
        self.admit_segment(&waiting)?;
        self.admit_shown(&waiting, 0)
    }

    /// Admits what may use the reserve, with first writes that wait and those in `runs` more runs of checksums.
    fn admit_shown(&mut self, waiting: &Waiting, runs: u64) -> Result<(), Stop> {
        let shown = (waiting.runs + runs) * RUN_COST;
        let dirty = REMOVAL_COST + self.segment_with(waiting) + shown;
        match self.leaves_room(dirty, Cut::Longest)? {
            true => Ok(()),
            // Fewer at a time.
            false if waiting.runs > 0 => Err(Stop::Crowded),
            false => Err(Stop::Tight),
        }
    }

    /// Admits first writes of `bytes` bytes of reserved space, in so many runs of checksums. Like what gives space back
    /// they may use all but the two checkpoints; what showing them makes was kept free, and has a place with what waits.
    ///
    /// # Errors
    /// As [`Core::admit_removal`].
    pub fn admit_first(&mut self, bytes: u64, runs: u64) -> Result<(), Stop> {
        let waiting = self.waiting();
        self.admit_segment(&waiting)?;
        let bytes = waiting.bytes + bytes;
        if bytes > self.writeback.bytes_max() {
            return Err(Stop::Crowded);
        }
        self.pending
            .press(bytes > self.writeback.bytes_max() / 4 * 3);
        self.admit_shown(&waiting, runs)
    }

    /// As [`Core::leaves_checkpoints_cut`], with the bitmaps that it takes. Who takes space leaves what the dearer way of
    /// cutting needs, so that removals, for which the other one will do, have room to begin with.
    fn leaves_room(&mut self, dirty: u64, cut: Cut) -> Result<bool, Stop> {
        let fits = self.leaves_checkpoints_cut(dirty, cut);
        fits.ok_or_else(|| Stop::Load(self.space.cleaning().unloaded_log_groups(LOADED_AT_ONCE)))
    }

    /// Room that others leave to removals besides: so much of it is dirtied before the checkpoints come again.
    pub(crate) fn spare_bytes(&self) -> u64 {
        u64::from(self.geometry.segment_max)
            .min(self.volume_bytes() / 64)
            .max(2 * REMOVAL_COST)
    }

    fn admit_segment(&mut self, waiting: &Waiting) -> Result<(), Stop> {
        self.access.check()?;
        let estimate = self.segment_with(waiting);
        if estimate > self.segment_full() {
            return Err(Stop::Crowded);
        }
        self.pending.press(estimate > self.segment_full() / 8 * 7);
        Ok(())
    }

    /// Whether the content of a small file of `size` bytes goes to a data group because the log is nearly full (H18,
    /// rule 10): what is left of the log is for metadata.
    pub fn spills(&mut self, size: u64) -> bool {
        let room =
            self.space.free_index(Role::Data).frags() * u64::from(self.geometry.fragment_size);
        let block = u64::from(self.geometry.block_size);
        let waiting = self.waiting();
        room >= waiting.blocks + block
            && !self.fits_beside(&waiting, size + self.spill_margin(), 0)
            && self.fits_beside(&waiting, NODES_COST, block)
    }

    /// Bytes of the log that small files leave to metadata while data groups have room.
    fn spill_margin(&self) -> u64 {
        self.reserve_bytes() / 2
    }

    // ---- space -------------------------------------------------------------------------------------------------

    /// Whether `log` more bytes in the log and `data` more bytes in data groups, besides what is dirty and what waits,
    /// would leave the reserve alone.
    pub fn space_fits(&mut self, log: u64, data: u64) -> bool {
        self.fits_beside(&self.waiting(), log, data)
    }

    fn fits_beside(&mut self, waiting: &Waiting, log: u64, data: u64) -> bool {
        let frag = u64::from(self.geometry.fragment_size);
        let for_data = self.groups_for_data(waiting, data);
        let dirty = log + self.segment_with(waiting);
        // Blocks are not split, so that the ends of holes are lost.
        let dirty = dirty + dirty / 2;
        let in_log = self.log_room(for_data) * frag;
        let groups = |bytes: u64| bytes.saturating_sub(in_log).div_ceil(self.group_bytes());
        // Data never takes the last groups, whatever room the log has besides: the log takes others for what is dirty.
        let for_log = if for_data > 0 {
            groups(dirty) + self.groups_kept_from_data()
        } else {
            groups(dirty + self.reserve_bytes())
        };
        for_log + for_data <= self.space.free_groups()
    }

    /// Fragments of log groups to be counted on. Once the reserve's groups are all that is left, these are holes that
    /// segments can be cut into.
    fn log_room(&mut self, for_data: u64) -> u64 {
        if self.space.free_groups() > self.reserve_groups() + for_data + 1 {
            self.space.free_index(Role::Log).frags()
        } else {
            self.usable_log()
        }
    }

    /// Free groups that become data groups when all that waits, and `more` bytes, gets new homes.
    pub fn groups_for_data(&self, waiting: &Waiting, more: u64) -> u64 {
        let (frag, ragged) = (
            u64::from(self.geometry.fragment_size),
            self.space.uneven().ragged(),
        );
        let room = self
            .space
            .free_index(Role::Data)
            .frags()
            .saturating_sub(ragged.data);
        let short = (waiting.blocks + more).saturating_sub(room * frag);
        if short == 0 {
            return 0;
        }
        (short + ragged.free * frag).div_ceil(self.group_bytes())
    }

    /// Bytes that only deletes, checkpoints and compaction may use: two checkpoints of the largest size with their next
    /// addresses, and a segment of deletes before each (rule 10); and what first writes of reserved space will take.
    pub fn reserve_bytes(&self) -> u64 {
        let g = &self.geometry;
        let checkpoint = u64::from(g.checkpoint_nodes_max) * 4096 + 64 * 1024;
        let bounded = checkpoint.min(self.volume_bytes() / 16);
        if !self.law.keeps_reserve() {
            return 0;
        }
        2 * (bounded + u64::from(g.segment_max).min(self.volume_bytes() / 64))
            + self.promised_bytes()
    }

    /// Groups that hold the reserve, so that deletes and checkpoints find whole ones.
    pub fn reserve_groups(&self) -> u64 {
        self.reserve_bytes().div_ceil(self.group_bytes()).max(1)
    }

    /// Groups that data never takes: the reserve's, and on all but small volumes one of 128 besides, or cleaning has none
    /// to move into once a volume was filled.
    pub fn groups_kept_from_data(&self) -> u64 {
        self.reserve_groups() + u64::from(self.geometry.groups()) / 128
    }

    /// Free groups that the mover and the next segment find, where groups can be emptied cheaply: in holes they would
    /// cost a seek for each.
    pub fn groups_to_move_into(&self) -> u64 {
        let two = 2 * u64::from(self.geometry.segment_max);
        (two.div_ceil(self.group_bytes()) + 1).min(self.reserve_groups())
    }

    /// Whether the log has room for the reserve besides what is dirty.
    pub fn has_reserve(&mut self) -> bool {
        self.space_fits(0, 0)
    }

    /// Whether half the reserve is left: compaction, which takes before it gives, leaves that to deletes.
    pub fn may_compact(&mut self) -> bool {
        let bytes = self.usable() * u64::from(self.geometry.fragment_size);
        bytes >= self.reserve_bytes() / 2 + self.segment_estimate()
    }

    /// Free fragments that any segment can be cut into: in holes of the log, and in whole groups.
    pub fn usable(&mut self) -> u64 {
        self.usable_log() + self.space.free_groups() * self.geometry.group_frags
    }

    /// Free fragments of log groups in holes that any segment can be cut into.
    pub fn usable_log(&mut self) -> u64 {
        let least = self.hole_least();
        let space = &self.space;
        *self
            .known
            .usable
            .get_or_insert_with(|| space.cleaning().log_usable(least))
    }

    /// What is known of the log's room holds no more.
    pub fn forget_room(&mut self) {
        self.known = Known::default();
    }

    /// Fragments of the smallest hole to be counted on: any block fits into it, and the largest segment or checkpoint
    /// is cut into half the extents that it may have, at most.
    pub fn hole_least(&self) -> u64 {
        let g = &self.geometry;
        let nodes = u64::from(g.checkpoint_nodes_max) * 4096;
        let longest = nodes
            .min(self.volume_bytes() / 16)
            .max(g.segment_max.into());
        let cut = longest / (EXTENTS_MAX as u64 / 2);
        g.frags_for(cut)
            .max(g.block_frags())
            .max(g.inode_block_frags())
    }

    // ---- a fight for space that was lost -----------------------------------------------------------------------

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
        let g = &self.geometry;
        let sum = |extents: &[Extent]| extents.iter().map(|extent| extent.frags).sum::<u64>();
        let freed = sum(&self.blocks.frees) + sum(self.checkpoints.summaries());
        let nodes = g.frags_for(self.blocks.dirty_count() as u64 * NODE_SIZE as u64);
        let taken = nodes + self.inodes.dirty_frags(g) + g.frags_for(self.pending.content_bytes());
        (self.space.free_frags() + freed).saturating_sub(taken)
    }
}
