//! What the next segment and the checkpoints behind it take, and whether the log has that much room.

use super::Budget;
use super::worst_case::{Burden, Changed, Keys, Room, Shapes};
use crate::blocks::Blocks;
use crate::checkpoints::Checkpoints;
use crate::inodes::Inodes;
use crate::law::{Law, Rules};
use crate::maps::{Maps, OWNER};
use loamfs_format::group::Role;
use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::kind::MapTree;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::superblock::{Features, INCOMPATIBLE_DELTAS};
use loamfs_format::{Geometry, Ssn};
use loamfs_log::plugging::Cut;
use loamfs_space::{Leaving, Space};

/// Bytes for which it is looked at together whether there is room.
const AHEAD: u64 = 64 << 10;
/// Bytes of a checkpoint that says nothing, with the segment before it.
const CHECKPOINT_LEAST: u64 = 16 << 10;
/// Level of the highest root whose leaves are counted: a deeper tree has more of them than a few segments change.
const COUNTED_LEVEL: u8 = 2;
/// What part of a volume deltas are worth: each is said again by every checkpoint, and has room for that twice.
const DELTAS_PART: u64 = 256;
/// Bytes of a segment that would take many of the smallest holes.
const SCATTERS: u64 = 128 << 10;

/// What was found out about the log's room: it holds until a segment is placed or something is released.
#[derive(Debug, Default)]
pub(crate) struct KnownRoom {
    /// Free fragments of log groups that any segment can use.
    usable: Option<u64>,
    /// What stands on devices that leave.
    leaving: Option<Leaving>,
    /// What leaves the checkpoints their room, by the way of cutting.
    roomy: [Option<Roomy>; 2],
    /// The log's holes.
    holes: Option<Room>,
    /// Keys that changed in the maps of inode blocks and of owners.
    keys: Option<[Keys; 2]>,
}

impl KnownRoom {
    /// Free fragments of log groups that any segment can use, counted if they are not known.
    pub(super) fn usable(&mut self, count: impl FnOnce() -> u64) -> u64 {
        *self.usable.get_or_insert_with(count)
    }

    /// What stands on devices that leave, counted if it is not known.
    pub(super) fn leaving(&mut self, count: impl FnOnce() -> Leaving) -> Leaving {
        *self.leaving.get_or_insert_with(count)
    }
}

/// With so many groups for the log, so many dirty bytes, of blocks of at most so many fragments.
#[derive(Clone, Copy, Debug)]
struct Roomy {
    groups: u64,
    dirty: u64,
    longest: u64,
}

/// What a checkpoint would write, and the room that the log has for it and for a segment before it: what the maps are like,
/// what changed in them since the last one, and the holes.
pub(crate) struct Forecast<'c> {
    geometry: &'c Geometry,
    law: &'c Law<dyn Rules>,
    space: &'c Space,
    maps: &'c Maps,
    blocks: &'c mut Blocks,
    inodes: &'c Inodes,
    checkpoints: &'c Checkpoints,
    known: &'c mut KnownRoom,
    /// Map nodes from which on a checkpoint is due.
    most_nodes: u64,
}

impl Forecast<'_> {
    /// The maps' trees, as far as the volume's sizes tell.
    fn shapes(&self) -> Shapes {
        let images = self.maps.lazy_map().len() + self.maps.lazy_map().changed().len();
        Shapes::of(
            self.geometry,
            self.inodes.totals().next_block.0,
            images as u64,
        )
    }

    /// The same, with the leaves of the largest map: where there are few of them they bound what is dirty.
    fn shapes_as_they_are(&mut self) -> Shapes {
        let (mut shapes, root) = (self.shapes(), self.maps.root(MapTree::Owner));
        if root.level <= COUNTED_LEVEL {
            shapes.count_owner_leaves(OWNER.known_leaves(&root, self.blocks));
        }
        shapes
    }

    /// What sealed segments changed since the last checkpoint, at most, without looking at it.
    fn changed_at_most(&self) -> Changed {
        let (chunks, groups) = self.space.checkpoint().dirty_counts();
        Changed {
            ifile: Keys::scattered(self.maps.changed_ifile().len() as u64),
            bitmap: Keys::scattered(chunks as u64),
            owner: Keys::scattered(self.space.owners().records() as u64),
            group: Keys::scattered(groups as u64),
            lazy: Keys::scattered(self.maps.lazy_map().changed().len() as u64),
            moving: 2 * (self.maps.written_anew() + self.blocks.worn().len()) as u64,
        }
    }

    /// What sealed segments changed since the last checkpoint.
    fn changed(&mut self) -> Changed {
        let one = |key: u64| key..key.saturating_add(1);
        let unit = self.geometry.unit_frags();
        let [ifile, owner] = *self.known.keys.get_or_insert_with(|| {
            let blocks = self.maps.changed_ifile();
            let owners = self.space.owners().iter();
            [
                Keys::of(blocks.map(|block| one(block.0)), 1),
                Keys::of(
                    owners.map(|(extent, _)| extent.start.0..extent.end().0),
                    unit,
                ),
            ]
        });
        let chunks = self.space.checkpoint().dirty_chunks();
        Changed {
            ifile,
            bitmap: Keys::of(chunks.into_iter().map(one), 1),
            owner,
            ..self.changed_at_most()
        }
    }

    /// Map nodes that a checkpoint taken now would write, at most; looks no closer where `enough` tells that already
    /// the rough number will do.
    fn nodes(&mut self, enough: impl Fn(u64) -> bool) -> u64 {
        let rough = self.changed_at_most().nodes(&self.shapes());
        if enough(rough) {
            return rough;
        }
        let shapes = self.shapes_as_they_are();
        self.changed().nodes(&shapes)
    }

    /// What must find a place when `dirty` bytes wait for the next segment.
    fn burden(&self, dirty: u64, longest: u64, changed: Changed, shapes: Shapes) -> Burden {
        let frees = self.blocks.frees().len() as u64;
        Burden {
            bytes: dirty.saturating_sub(self.inodes.deltas().spared()),
            nodes: self.blocks.dirty_count() as u64,
            inode_blocks: self.inodes.dirty_blocks().count() as u64,
            longest,
            frees,
            held: (self.space.held().ranges() + self.checkpoints.summaries().len()) as u64,
            deltas: self.inodes.deltas().bytes_at_most(),
            changed,
            shapes,
        }
    }

    /// Whether so many dirty bytes, of blocks of at most so many fragments, and both checkpoints behind them find room in the
    /// log's holes and in so many free groups; `None` where bitmaps that are not in memory may tell otherwise.
    fn fits(&mut self, groups: u64, dirty: u64, longest: u64, cut: Cut) -> Option<bool> {
        // Of groups that superblocks or the volume's end cut short the longest run counts.
        let mut runs = self.space.uneven().free_runs();
        let whole = groups.saturating_sub(runs.len() as u64);
        let g = self.geometry;
        let (changed, shapes) = (self.changed_at_most(), self.shapes());
        let rough = self.burden(dirty, longest, changed, shapes);
        let mut in_groups = Room::new(g, whole, []).with_law(self.law.clone());
        if rough.fits(&mut in_groups, cut) {
            return Some(true);
        }
        if groups < runs.len() as u64 {
            runs.clear();
        }
        let mut room = self.holes().with_groups(whole);
        runs.into_iter().for_each(|run| room.put(run));
        let shapes = self.shapes_as_they_are();
        let changed = self.changed();
        let burden = self.burden(dirty, longest, changed, shapes);
        match burden.fits(&mut room, cut) {
            false if self.space.free_index(Role::Log).unknown() > 0 => None,
            fits => Some(fits),
        }
    }

    /// Bytes that two checkpoints write, about. Each says all deltas; the second changes fewer nodes, but nodes may be written twice.
    pub fn pair_bytes(&mut self) -> u64 {
        let nodes = self.nodes(|_| false) * NODE_SIZE as u64;
        2 * (self.inodes.deltas().bytes() + nodes + CHECKPOINT_LEAST)
    }

    /// Whether a checkpoint is due (rule 9).
    pub fn checkpoint_due(&mut self) -> bool {
        if !self.law.takes_checkpoints() {
            return false;
        }
        let most = self.most_nodes;
        self.checkpoints.is_chain_long(self.geometry) || self.nodes(|nodes| nodes < most) >= most
    }

    /// Whether so much is held back that checkpoints are worth it which nothing else asks for: a 128th of the volume, and
    /// more than they replace themselves.
    pub fn holds_back_much(&mut self) -> bool {
        let least = (self.geometry.total_frags / 128).max(self.geometry.frags_for(1 << 20));
        self.law.takes_checkpoints() && self.space.held().frags() >= least
    }

    /// The log's holes, and no group.
    fn holes(&mut self) -> Room {
        let (space, geometry, law) = (self.space, self.geometry, self.law);
        let known = self.known.holes.get_or_insert_with(|| {
            let holes = space.cleaning().log_holes();
            let lengths = holes.iter().map(|hole| hole.frags);
            Room::new(geometry, 0, lengths).with_law(law.clone())
        });
        known.clone()
    }
}

impl Budget<'_> {
    /// What checkpoints take, and whether they are due.
    pub fn forecast(&mut self) -> Forecast<'_> {
        Forecast {
            geometry: self.geometry,
            law: self.law,
            space: self.space,
            maps: self.maps,
            blocks: self.blocks,
            inodes: self.inodes,
            checkpoints: self.checkpoints,
            known: self.reclaim.known(),
            most_nodes: self.sizes.checkpoint_nodes(),
        }
    }

    /// Whether `dirty` bytes of a segment and the two checkpoints behind it find room in the log, cut in one way or the
    /// other; `None` where that shows only in bitmaps that are not in memory. Where no hole is left that a full inode block
    /// fits into, those count that are in memory: what is about to be changed was brought there.
    pub fn leaves_checkpoints(&mut self, dirty: u64) -> Option<bool> {
        let fits = self.leaves_checkpoints_for_any(dirty);
        if fits != Some(false) {
            return fits;
        }
        let longest = self.longest_in_memory();
        match longest < self.longest_of_any(0) {
            true => self.leaves_checkpoints_for(dirty, longest),
            false => fits,
        }
    }

    /// The same, whatever inode blocks change.
    pub fn leaves_checkpoints_for_any(&mut self, dirty: u64) -> Option<bool> {
        self.leaves_checkpoints_for(dirty, self.longest_of_any(0))
    }

    fn leaves_checkpoints_for(&mut self, dirty: u64, longest: u64) -> Option<bool> {
        match self.leaves_checkpoints_cut(dirty, longest, Cut::Longest) {
            Some(false) => self.leaves_checkpoints_cut(dirty, longest, Cut::Smallest),
            fits => fits,
        }
    }

    /// Bytes of deltas from which on segments write inode blocks (rule 16): none are said before both superblock copies tell
    /// programs of them. Where the log is short they are said all the same: the block would take more, in whatever room there is.
    pub fn deltas_most(&self) -> u64 {
        let told = Features::incompatible(INCOMPATIBLE_DELTAS);
        match self.checkpoints.is_announced(told) && self.access.is_writable() {
            true => {
                let most = u64::from(self.geometry.checkpoint_summary_max);
                (self.sizes.volume_bytes() / DELTAS_PART).clamp(most / 4, most)
            }
            false => 0,
        }
    }

    /// Bytes of dead inodes that may stay in blocks (rule 16): as many as deltas may be, and none where the log lives on its
    /// reserve. There a removal whose inode stays in its block would give nothing back that a segment has room in.
    pub fn dead_most(&mut self) -> u64 {
        let waiting = self.groups_awaited();
        match self.lives_on_reserve(waiting) {
            true => 0,
            false => self.deltas_most(),
        }
    }

    /// Free fragments of log groups in holes that any block fits into.
    pub fn usable_for_any(&self) -> u64 {
        self.space.cleaning().log_usable(self.longest_of_any(0))
    }

    /// Fragments of the longest block that the next segment may hold with so many more bytes of content, whatever inode
    /// blocks there are.
    pub(super) fn longest_of_any(&self, more: u64) -> u64 {
        let g = self.geometry;
        self.longest_content(more).max(g.frags_for(INODE_BLOCK_MAX))
    }

    /// The same of the inode blocks that there are.
    fn longest_in_memory(&self) -> u64 {
        let g = self.geometry;
        let inodes = g.frags_for(self.inodes.longest_block());
        self.longest_content(0).max(g.unit_frags()).max(inodes)
    }

    fn longest_content(&self, more: u64) -> u64 {
        let g = self.geometry;
        let content = self.pending.content_bytes() + more;
        g.frags_for(content.min(g.small_size.into()))
    }

    /// As [`Budget::leaves_checkpoints`], if segments are cut in this way and have no longer block.
    pub fn leaves_checkpoints_cut(&mut self, dirty: u64, longest: u64, cut: Cut) -> Option<bool> {
        let groups = self.groups_for_log();
        let covers = |it: Roomy| it.groups == groups && dirty <= it.dirty && longest <= it.longest;
        if self.reclaim.known().roomy[cut as usize].is_some_and(covers) {
            return Some(true);
        }
        // Looked at for a few operations together.
        let ahead = dirty.next_multiple_of(AHEAD);
        for dirty in [ahead, dirty] {
            let fits = self.forecast().fits(groups, dirty, longest, cut);
            if fits == Some(true) {
                self.reclaim.known().roomy[cut as usize] = Some(Roomy {
                    groups,
                    dirty,
                    longest,
                });
            }
            if fits != Some(false) {
                return fits;
            }
        }
        Some(false)
    }

    /// Free groups but those that data which wait will take.
    fn groups_for_log(&self) -> u64 {
        self.space
            .free_groups()
            .saturating_sub(self.groups_awaited())
    }

    /// How the next segment is cut when the log is tight: into the smallest holes, as long as both checkpoints behind it
    /// find room all the same. While groups are emptied a large one is rather cut into the longest: more of these come with
    /// each group, and a hundred extents cost a hundred seeks.
    pub fn cut(&mut self) -> Cut {
        let (groups, longest) = (self.groups_for_log(), self.longest_in_memory());
        let dirty = self.segment_estimate();
        let scatters = self.space.usage().is_emptying() && dirty >= SCATTERS;
        let mut forecast = self.forecast();
        let mut fits = |cut: &Cut| forecast.fits(groups, dirty, longest, *cut) == Some(true);
        let rather = if scatters {
            [Cut::Longest, Cut::Smallest]
        } else {
            [Cut::Smallest, Cut::Longest]
        };
        rather
            .into_iter()
            .find(|cut| fits(cut))
            .unwrap_or(Cut::Longest)
    }

    /// Whether the next segment may take whole groups though the log lives on its reserve: what empties groups gives as many
    /// back, and in holes it costs a seek for each. Both checkpoints must find room without them.
    pub fn lends_groups(&mut self) -> bool {
        let dirty = self.segment_estimate();
        let taken = (dirty + dirty / 8).div_ceil(self.sizes.group_bytes());
        let (groups, longest) = (self.groups_for_log(), self.longest_in_memory());
        self.space.usage().is_emptying()
            && dirty >= SCATTERS
            && groups >= taken
            && self
                .forecast()
                .fits(groups - taken, dirty, longest, Cut::Longest)
                == Some(true)
    }

    /// Whether both checkpoints were just taken, and nothing changed since: there is nothing that they could give back.
    pub fn is_settled(&self) -> bool {
        let tail = self.log.tail().ssn;
        let before = Ssn(tail.0.saturating_sub(1));
        let named = |checkpoint: Option<Ssn>| checkpoint >= Some(before);
        let is_copied = self
            .checkpoints
            .copied()
            .is_none_or(|copied| copied >= before);
        self.pending.since().is_none()
            && is_copied
            && self.checkpoints.named().into_iter().all(named)
    }

    /// Whether the log lives on its reserve: whether it has less room than half the reserve, besides what is dirty and the two checkpoints, where data
    /// that wait need so many whole groups.
    pub fn lives_on_reserve(&mut self, waiting: u64) -> bool {
        let half = self.sizes.reserve_bytes() / 2;
        let (dirty, longest) = (self.segment_estimate() + half, self.longest_of_any(0));
        self.space.free_groups() <= self.sizes.reserve_groups() + waiting
            && self.leaves_checkpoints_cut(dirty, longest, Cut::Longest) != Some(true)
    }
}
