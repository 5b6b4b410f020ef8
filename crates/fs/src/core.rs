//! The state of a volume behind its lock, and what every operation needs of it.

use crate::blocks::{Blocks, Stop};
use crate::env::{Clock, Random};
use crate::error::Error;
use crate::inodes::{Inodes, Node};
use crate::maps::Maps;
use crate::types::{Attr, Timestamp};
use loamfs_format::ifile::{INODES_PER_BLOCK, block_of};
use loamfs_format::inode::{Body, mode};
use loamfs_format::mutant;
use loamfs_format::summary::Record;
use loamfs_format::superblock::{CheckpointRef, Superblock};
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo, Ino, Ssn};
use loamfs_log::writer::LogWriter;
use loamfs_space::Space;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that the lock guards.
pub(crate) struct Core {
    pub sb: Superblock,
    pub geometry: Geometry,
    pub clock: Arc<dyn Clock>,
    pub random: Random,
    pub rotational: bool,
    /// Changes are refused: asked for, or after a write error to the log (rule 12).
    pub read_only: bool,
    pub space: Space,
    pub log: LogWriter,
    pub maps: Maps,
    pub blocks: Blocks,
    pub inodes: Inodes,
    /// The last checkpoint.
    pub base: CheckpointRef,
    /// The checkpoint that each superblock copy names for good.
    pub slots: [Option<Ssn>; 2],
    /// What summaries since the last checkpoint take, its own included.
    pub summaries: Vec<Extent>,
    /// Segments and bytes of summaries since then.
    pub since_segments: u32,
    pub since_summary_bytes: u64,
    /// What else the next segment says.
    pub records: Vec<Record>,
    /// Files with data that segments do not show yet.
    pub homed: BTreeSet<Ino>,
    /// Files whose data must be on the device before the next segment is sealed (rule 3, rename).
    pub barrier: BTreeSet<Ino>,
    /// New homes whose files went while they were written, by batch.
    pub abandoned: BTreeMap<u64, Vec<Extent>>,
    pub next_batch: u64,
    /// Homes of units that are being settled.
    pub settling: BTreeMap<FragAddr, FragAddr>,
    /// Bytes of small files' data and large attributes that the next segment carries.
    pub small_bytes: u64,
    /// When the oldest change that is not sealed was made.
    pub dirty_since: Option<Timestamp>,
    /// Most bytes of large files' data that may wait.
    pub homed_max: u64,
    /// Files to be looked at for leftovers: orphans and pending truncates.
    pub leftovers: BTreeSet<Ino>,
    /// Free fragments of log groups that segments can use, since the last release.
    pub usable_log: Option<u64>,
    /// Free fragments, held back ones included, when the last fight for space was lost.
    pub exhausted: Option<u64>,
    /// Whether the orphans of an earlier mount have been collected.
    pub orphans_seen: bool,
}

impl Core {
    /// An inode that is in memory.
    ///
    /// # Errors
    /// Missing blocks, damage, or [`Error::Stale`].
    pub fn node(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        self.inodes.load(&self.maps, &mut self.blocks, ino)?;
        self.inodes
            .nodes
            .get_mut(&ino)
            .ok_or(Stop::Failed(Error::Stale(ino)))
    }

    /// Brings what dirtying an inode needs into memory.
    pub fn prepare_dirty(&mut self, ino: Ino) -> Result<(), Stop> {
        self.node(ino)?;
        self.inodes
            .load_block(&self.maps, &mut self.blocks, block_of(ino))
    }

    /// The segment that the next seal makes.
    pub fn open_ssn(&self) -> Ssn {
        self.log.tail().ssn.next()
    }

    /// Marks a prepared inode as changed.
    pub fn touch(&mut self, ino: Ino) {
        let ssn = self.open_ssn();
        if let Some(node) = self.inodes.nodes.get_mut(&ino) {
            node.dirty = true;
            node.last = ssn;
            node.inode.ssn = ssn;
        }
        self.inodes.touch_block(block_of(ino));
        self.note_dirty();
    }

    /// Notes that something waits for a segment.
    pub fn note_dirty(&mut self) {
        if self.dirty_since.is_none() {
            self.dirty_since = Some(self.clock.now());
        }
    }

    /// Frees a run of the log with the next segment.
    pub fn free(&mut self, extent: Extent) {
        if extent.frags > 0 {
            self.blocks.frees.push(extent);
            self.note_dirty();
        }
    }

    /// Frees a home with the next segment, and with it the images of its units (rule 7, revoke).
    pub fn free_home(&mut self, extent: Extent) {
        let homes: Vec<FragAddr> = self
            .maps
            .lazy_map
            .range(extent.start..extent.end())
            .map(|(home, _)| *home)
            .collect();
        for home in &homes {
            if let Some(entry) = self.maps.lazy_map.remove(home) {
                self.maps.lazy_dirty.insert(*home);
                self.free(Extent::new(entry.image, self.geometry.unit_frags()));
            }
        }
        if !homes.is_empty() && !mutant::active("no-revoke") {
            self.records.push(Record::Revoke(extent));
        }
        self.free(extent);
    }

    /// Most bytes of a file that stays in the log.
    pub fn small_max(&self) -> u64 {
        self.geometry.block_size.into()
    }

    /// An upper bound of what the next segment holds, in bytes.
    pub fn segment_estimate(&self) -> u64 {
        let images: u64 = self
            .homed
            .iter()
            .filter_map(|ino| self.inodes.nodes.get(ino))
            .map(|node| node.homed.images.len() as u64 * 4096)
            .sum();
        let blocks = self.blocks.dirty_count() as u64 * 4096
            + self.inodes.dirty_bytes
            + self.small_bytes
            + images;
        // Records: about 64 bytes for each thing written, and the frees.
        let things = self.blocks.dirty_count() + self.inodes.blocks.len() + self.blocks.frees.len();
        blocks + (things as u64 + self.small_bytes / 1024) * 64 + 8192
    }

    /// Admits an operation that makes at most `log` bytes and `data` bytes of new content (rules 1 and 10).
    ///
    /// # Errors
    /// Read-only; [`Stop::Crowded`] when a commit must make room in memory, [`Stop::Full`] when space must be won.
    pub fn admit(&mut self, log: u64, data: u64) -> Result<(), Stop> {
        self.admit_removal()?;
        let waiting: u64 = self.homed_bytes();
        if waiting + data > self.homed_max {
            return Err(Stop::Crowded);
        }
        let fits = self.space_fits(log, data + self.homed_reserved());
        if !fits && !mutant::active("undeclared") {
            return Err(Stop::Full);
        }
        Ok(())
    }

    /// Admits an operation that gives space back: it may use the reserve.
    pub fn admit_removal(&mut self) -> Result<(), Stop> {
        if self.read_only {
            return Err(Error::ReadOnly.into());
        }
        if self.segment_estimate() > u64::from(self.geometry.segment_max) * 3 / 4 {
            return Err(Stop::Crowded);
        }
        if mutant::active("removal-declares") && !self.space_fits(16 << 10, 0) {
            return Err(Stop::Full);
        }
        Ok(())
    }

    /// Bytes of large files' data that wait.
    pub fn homed_bytes(&self) -> u64 {
        self.homed
            .iter()
            .filter_map(|ino| self.inodes.nodes.get(ino))
            .map(|node| node.homed.bytes())
            .sum()
    }

    /// Bytes that new homes for what waits may take.
    fn homed_reserved(&self) -> u64 {
        let blocks: u64 = self
            .homed
            .iter()
            .filter_map(|ino| self.inodes.nodes.get(ino))
            .map(|node| node.homed.dirty_blocks)
            .sum();
        blocks * u64::from(self.geometry.block_size)
    }

    /// Bytes that only deletes, checkpoints and compaction may use: two checkpoints of the largest size with their next
    /// addresses, and a segment of deletes before each (rule 10).
    pub fn reserve_bytes(&self) -> u64 {
        let g = &self.geometry;
        let checkpoint = u64::from(g.checkpoint_nodes_max) * 4096 + 64 * 1024;
        let bounded = checkpoint.min(self.volume_bytes() / 16);
        if mutant::active("small-reserve") {
            return 0;
        }
        2 * (bounded + u64::from(g.segment_max).min(self.volume_bytes() / 64))
    }

    /// Bytes of the volume.
    pub fn volume_bytes(&self) -> u64 {
        self.geometry.total_frags * u64::from(self.geometry.fragment_size)
    }

    /// Whether `log` more bytes in the log and `data` bytes in data groups would leave the reserve alone.
    fn space_fits(&mut self, log: u64, data: u64) -> bool {
        let free = self.space.log_space();
        let frag = u64::from(self.geometry.fragment_size);
        let group = self.geometry.group_frags * frag;
        let need_log = log + self.segment_estimate() + self.reserve_bytes();
        // Once the reserve's groups are all that is left, only holes that a block fits into count.
        let spare = self.space.free_groups() > self.reserve_groups() + 1;
        let in_groups = if spare {
            free.loaded + free.unloaded
        } else {
            self.usable_log()
        };
        let short_log = need_log.saturating_sub(in_groups * frag);
        let short_data = data.saturating_sub(free.data * frag);
        let (for_log, for_data) = (short_log.div_ceil(group), short_data.div_ceil(group));
        // Data never takes the last groups, whatever room the log has besides.
        let kept = if for_data > 0 {
            self.reserve_groups()
        } else {
            0
        };
        for_log.max(kept) + for_data <= self.space.free_groups()
    }

    /// Groups that data never takes, so that deletes and checkpoints find whole ones.
    pub fn reserve_groups(&self) -> u64 {
        let group = self.geometry.group_frags * u64::from(self.geometry.fragment_size);
        self.reserve_bytes().div_ceil(group).max(1)
    }

    /// Whether the log has room for the reserve besides what is dirty.
    pub fn has_reserve(&mut self) -> bool {
        self.space_fits(0, 0)
    }

    /// Notes that fighting for space ended in ENOSPC.
    pub fn note_exhausted(&mut self) {
        self.exhausted = Some(self.space.free_frags());
    }

    /// Whether nothing much was freed since: then the fight would end as before.
    pub fn is_exhausted(&self) -> bool {
        let worth = self.geometry.total_frags / 512;
        self.exhausted
            .is_some_and(|at| self.space.free_frags() <= at + worth)
    }

    /// Whether half the reserve is left: compaction, which takes before it gives, leaves that to deletes.
    pub fn may_compact(&mut self) -> bool {
        let whole = self.space.free_groups() * self.geometry.group_frags;
        let bytes = (self.usable_log() + whole) * u64::from(self.geometry.fragment_size);
        bytes >= self.reserve_bytes() / 2 + self.segment_estimate()
    }

    /// Free fragments of log groups in holes that any block fits into.
    pub fn usable_log(&mut self) -> u64 {
        // A whole inode block may be longer than a block.
        let inodes = INODES_PER_BLOCK * loamfs_format::inode::SIZE as u64;
        let least = self
            .geometry
            .block_frags()
            .max(self.geometry.frags_for(inodes));
        let space = &self.space;
        *self
            .usable_log
            .get_or_insert_with(|| space.log_usable(least))
    }
    /// Images beyond which settling starts by itself: the log is no place for them to stay.
    pub fn images_max(&self) -> usize {
        (self.volume_bytes() >> 20).clamp(4, 4096) as usize
    }

    /// Whether anything waits for a segment.
    pub fn is_dirty(&self) -> bool {
        !self.blocks.frees.is_empty()
            || !self.records.is_empty()
            || self.inodes.blocks.values().any(|b| b.dirty)
    }

    /// What stat shows.
    pub fn attr(&mut self, ino: Ino) -> Result<Attr, Stop> {
        let frag = u64::from(self.geometry.fragment_size);
        let node = self.node(ino)?;
        let i = &node.inode;
        let waiting = node.homed.bytes() + node.small.as_ref().map_or(0, |s| s.len() as u64);
        let content = match i.body {
            Body::DirTree(_) => i.size,
            _ => (i.frags * frag).max(waiting),
        };
        Ok(Attr {
            ino,
            generation: i.generation,
            mode: i.mode,
            nlink: i.nlink,
            uid: i.uid,
            gid: i.gid,
            rdev: i.rdev,
            size: i.size,
            blocks: content.div_ceil(512),
            atime: i.atime,
            mtime: i.mtime,
            ctime: i.ctime,
            btime: i.btime,
        })
    }

    /// A directory that is in memory.
    ///
    /// # Errors
    /// [`Error::NotDirectory`] besides what [`Core::node`] gives.
    pub fn directory(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        let node = self.node(ino)?;
        if !node.inode.is_dir() {
            return Err(Error::NotDirectory.into());
        }
        Ok(node)
    }

    /// Where a directory's large files are placed.
    pub fn anchor_of(&self, dir: Ino) -> GroupNo {
        self.inodes
            .nodes
            .get(&dir)
            .map_or(GroupNo(0), |node| node.inode.anchor)
    }
}

/// The `DT_*` number of a mode.
pub(crate) const fn dirent_type(mode_bits: u32) -> u8 {
    ((mode_bits & mode::TYPE) >> 12) as u8
}
