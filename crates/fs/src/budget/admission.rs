//! What an operation may still take of memory and of the volume before it starts (H17; rules 1 and 10).

use super::worst_case::REMOVAL_COST;
use super::{Budget, Waiting};
use crate::blocks::Stop;
use crate::reclaim::Plugging;
use loamfs_format::group::Role;
use loamfs_format::node::NODE_SIZE;
use loamfs_log::plugging::Cut;

/// Groups whose bitmaps are loaded together, to see what room there is.
const LOADED_AT_ONCE: usize = 8;

/// What a change of a large file makes at most beside its data, in bytes of the log: nodes of its trees.
pub(crate) const NODES_COST: u64 = 16 << 10;

/// What changing a run of checksums makes at most, in bytes of the log: a leaf that is split.
const RUN_COST: u64 = 2 * NODE_SIZE as u64;

/// What masking a file's slot and counting names makes at most, in bytes of the log: two paths of tables of tracks, and the
/// inode block of a directory that does not change else.
pub(super) const TABLES_COST: u64 = 8 * NODE_SIZE as u64 + (20 << 10);

/// Inode blocks that wait for a segment take so many segments of memory at most.
const BLOCKS_MAX: u64 = 4;

impl Budget<'_> {
    /// Admits an operation that makes at most `log` bytes and `data` bytes of new content (rules 1 and 10).
    ///
    /// # Errors
    /// Read-only; [`Stop::Crowded`] when a commit must make room in memory, [`Stop::Full`] when space must be won.
    pub fn admit(&mut self, log: u64, data: u64) -> Result<(), Stop> {
        let (waiting, log) = (self.waiting(), log + self.tables);
        self.admit_segment(&waiting)?;
        self.admit_data(waiting.bytes + data)?;
        if !self.law.declares() {
            return Ok(());
        }
        let dirty = log + self.segment_with(&waiting) + waiting.runs * RUN_COST;
        let fits = self.fits_beside(&waiting, log, data) && self.leaves_spare(log, dirty)?;
        if data > 0 {
            self.reclaim.note_homes(data, fits);
        }
        match fits {
            true => Ok(()),
            false => Err(Stop::Full),
        }
    }

    /// Admits an operation that gives space back: it may use the reserve, but for the two checkpoints by which what it
    /// frees is won.
    ///
    /// # Errors
    /// As [`Budget::admit`]; [`Stop::Tight`] when they must come first.
    pub fn admit_removal(&mut self) -> Result<(), Stop> {
        if !self.law.removals_use_reserve() {
            return self.admit(self.geometry.segment_max.into(), 0);
        }
        let waiting = self.waiting();
        self.admit_segment(&waiting)?;
        self.admit_shown(&waiting, 0)
    }

    /// Admits an operation that makes at most `log` bytes of new content, and gives back as much with the same segment. The
    /// reserve lends it what is missing ([`Budget::may_lend`]), but where groups are written when they are clean: there whole ones must be
    /// won.
    ///
    /// # Errors
    /// As [`Budget::admit`]; [`Stop::Lent`] when some of it must be won back.
    pub fn admit_overwrite(&mut self, log: u64) -> Result<(), Stop> {
        match self.admit(log, 0) {
            Err(Stop::Full) if !self.space.is_all_log() => {}
            admitted => return admitted,
        }
        match self.may_lend(log)? {
            true => Ok(()),
            false => Err(Stop::Lent),
        }
    }

    /// Whether the reserve lends so many bytes to overwrites, besides what is dirty: it keeps half of it, without which
    /// nothing can be moved, room for a group that is emptied, and what removals begin with.
    pub fn may_lend(&mut self, log: u64) -> Result<bool, Stop> {
        let (waiting, log) = (self.waiting(), log + self.tables);
        let dirty = log + self.segment_with(&waiting) + waiting.runs * RUN_COST;
        let group = self.sizes.group_bytes();
        Ok(self.leaves_half(dirty + group) && self.leaves_spare(log, dirty)?)
    }

    /// Admits what may use the reserve, with first writes that wait and those in `runs` more runs of checksums.
    fn admit_shown(&mut self, waiting: &Waiting, runs: u64) -> Result<(), Stop> {
        let shown = (waiting.runs + runs) * RUN_COST;
        let dirty = REMOVAL_COST + self.tables + self.segment_with(waiting) + shown;
        let fits = self.leaves_checkpoints(dirty);
        match self.known(fits)? {
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
    /// As [`Budget::admit_removal`].
    pub fn admit_first(&mut self, bytes: u64, runs: u64) -> Result<(), Stop> {
        let waiting = self.waiting();
        self.admit_segment(&waiting)?;
        self.admit_data(waiting.bytes + bytes)?;
        self.admit_shown(&waiting, runs)
    }

    /// Whether so many dirty bytes, `log` of them new, leave removals something to begin with: what cutting into the
    /// smallest holes needs, and blocks of any length, though for them less will do.
    fn leaves_spare(&mut self, log: u64, dirty: u64) -> Result<bool, Stop> {
        let (dirty, longest) = (dirty + self.sizes.spare_bytes(), self.longest_of_any(log));
        let fits = self.leaves_checkpoints_cut(dirty, longest, Cut::Smallest);
        self.known(fits)
    }

    /// What may show in bitmaps only, with the bitmaps that it takes.
    fn known(&self, fits: Option<bool>) -> Result<bool, Stop> {
        fits.ok_or_else(|| Stop::Load(self.space.cleaning().unloaded_log_groups(LOADED_AT_ONCE)))
    }

    fn admit_segment(&mut self, waiting: &Waiting) -> Result<(), Stop> {
        self.access.check()?;
        if self.writeback.is_closed() {
            return Err(Stop::Crowded);
        }
        let estimate = self.length_with(waiting);
        let full = match self.reclaim.plugging() {
            Some(Plugging::Short) => self.sizes.plugging_full(),
            Some(Plugging::Long) | None => self.sizes.segment_full(),
        };
        // Blocks of which a segment says little are in memory all the same.
        let blocks = self.inodes.dirty_bytes();
        if estimate > full || blocks > BLOCKS_MAX * u64::from(self.geometry.segment_max) {
            return Err(Stop::Crowded);
        }
        self.pending.press(estimate > full / 8 * 7);
        Ok(())
    }

    /// Admits so many bytes of large files that wait in memory.
    fn admit_data(&mut self, bytes: u64) -> Result<(), Stop> {
        let most = self.writeback.bytes_max();
        if bytes > most {
            return Err(Stop::Crowded);
        }
        self.pending.press(bytes > most / 4 * 3);
        Ok(())
    }

    /// Whether the content of a small file of `size` bytes goes to a data group because the log is nearly full (H18,
    /// rule 10): what is left of the log is for metadata.
    pub fn spills(&mut self, size: u64) -> bool {
        let (room, leaving) = (
            self.space.free_index(Role::Data).frags(),
            self.leaving().data,
        );
        let room = room.saturating_sub(leaving) * u64::from(self.geometry.fragment_size);
        let blocks = size.next_multiple_of(self.geometry.block_size.into());
        let waiting = self.waiting();
        room >= waiting.blocks + blocks
            && !self.fits_beside(&waiting, size + self.sizes.spill_margin(), 0)
            && self.fits_beside(&waiting, NODES_COST, blocks)
    }
}
