//! The arithmetic of a full volume (rule 10): what the next segment, and the two checkpoints behind it, take
//! at most. Whoever gives space back is admitted as long as the log has that much room; everybody else leaves more.
//!
//! A checkpoint writes the map nodes that changed since the one before. How many these are follows from the keys that
//! changed: keys that follow one another stand in the same leaves, and no tree has more leaves than its entries fill.
//! The second checkpoint changes what stands where the first one was put, and nothing else.

use crate::law::{Law, Rules};
use loamfs_format::Geometry;
use loamfs_format::geometry::UNIT_SIZE;
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS, GroupDesc};
use loamfs_format::ifile::IfileEntry;
use loamfs_format::kind::MapTree;
use loamfs_format::maps::{LazyEntry, OwnerRecord};
use loamfs_format::node::{CAPACITY, Child, NODE_SIZE, SLOT_SIZE};
use loamfs_format::summary::{
    ALLOCATE_SIZE, EXTENTS_MAX, FREE_SIZE, IFILE_SIZE, RECORD_SIZE_MAX, ROLE_SIZE, summary_len,
};
use loamfs_log::plugging::{Cut, Fitting};
use std::collections::BTreeMap;

/// What an operation that gives space back dirties at most, in bytes of the log: a path of a tree with the neighbours
/// that it is merged with, a file's inode block and a directory's.
pub const REMOVAL_COST: u64 = REMOVAL_NODES + (40 << 10);
/// The nodes of it.
const REMOVAL_NODES: u64 = 32 << 10;

/// Dirty map nodes that no key accounts for: roots that grow.
const ROOTS: u64 = MapTree::ALL.len() as u64;

/// Groups that are claimed besides those that a segment fills: ends of it, and those that superblocks and devices' ends cut.
const CLAIMS_BESIDES: u64 = 16;

/// Keys of a map that changed: in how many runs of neighbours, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Runs.
    pub runs: u64,
    /// Keys.
    pub count: u64,
}

impl Keys {
    /// So many keys, wherever they are.
    pub const fn scattered(count: u64) -> Keys {
        Keys { runs: count, count }
    }

    /// The runs among ranges of keys that come in order. Ends of units that blocks left, shorter than `unit` keys, part
    /// none; what may still be known of them counts.
    pub fn of(ranges: impl Iterator<Item = std::ops::Range<u64>>, unit: u64) -> Keys {
        let (mut keys, mut end) = (Keys::default(), None);
        for range in ranges {
            keys.count += 1;
            match end.and_then(|end| range.start.checked_sub(end)) {
                Some(gap) if gap < unit => keys.count += gap,
                _ => keys.runs += 1,
            }
            end = Some(range.end);
        }
        keys
    }

    fn and(self, other: Keys) -> Keys {
        Keys {
            runs: self.runs + other.runs,
            count: self.count + other.count,
        }
    }
}

/// What a map's tree may hold: entries at most, and the bytes of one.
#[derive(Clone, Copy, Debug)]
struct Shape {
    entries: u64,
    entry: usize,
    /// Its leaves, where that is known.
    leaves: Option<u64>,
}

impl Shape {
    /// Entries of a leaf that is as empty as merging leaves them, on the average of neighbours.
    fn per_leaf(self) -> u64 {
        ((CAPACITY * 3 / 8) / (SLOT_SIZE + self.entry)).max(1) as u64
    }

    /// Nodes that are dirty after `keys` changed.
    fn dirty(self, keys: Keys) -> u64 {
        if keys.count == 0 {
            return 0;
        }
        // A run has two ends, and what it fills itself.
        let touched = 2 * keys.runs + keys.count / self.per_leaf();
        let grown = keys.count / self.per_leaf() + 2;
        let known = self.leaves.map_or(u64::MAX, |leaves| leaves + grown);
        let mut most = known.min(self.entries / self.per_leaf() + 1);
        let mut level = touched.min(most);
        let mut nodes = level;
        let per_inner = ((CAPACITY * 3 / 8) / (SLOT_SIZE + Child::SIZE)) as u64;
        while most > 1 {
            most = most / per_inner + 1;
            level = level.min(most);
            nodes += level;
        }
        nodes
    }
}

/// The trees of a volume's maps.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    ifile: Shape,
    bitmap: Shape,
    owner: Shape,
    group: Shape,
    lazy: Shape,
}

impl Shapes {
    /// Those of a volume with so many inode blocks, and images so far away from their homes.
    pub fn of(g: &Geometry, inode_blocks: u64, images: u64) -> Shapes {
        let shape = |entries, entry| Shape {
            entries,
            entry,
            leaves: None,
        };
        Shapes {
            ifile: shape(inode_blocks, IfileEntry::SIZE),
            bitmap: shape(g.total_frags.div_ceil(CHUNK_FRAGS), CHUNK_BYTES),
            owner: shape(g.total_frags, OwnerRecord::SIZE),
            group: shape(g.groups().into(), GroupDesc::SIZE),
            lazy: shape(images, LazyEntry::SIZE),
        }
    }

    /// The tree of owners has so many leaves, where that is known.
    pub(super) fn count_owner_leaves(&mut self, leaves: Option<u64>) {
        self.owner.leaves = leaves;
    }
}

/// What changed in the maps since the last checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changed {
    /// Inode blocks.
    pub ifile: Keys,
    /// Chunks of bitmaps.
    pub bitmap: Keys,
    /// Addresses of what was placed or freed.
    pub owner: Keys,
    /// Groups.
    pub group: Keys,
    /// Homes with images.
    pub lazy: Keys,
    /// Nodes that are written anew because their place is wanted.
    pub moving: u64,
}

impl Changed {
    /// This, then the other.
    pub fn and(self, other: Changed) -> Changed {
        Changed {
            ifile: self.ifile.and(other.ifile),
            bitmap: self.bitmap.and(other.bitmap),
            owner: self.owner.and(other.owner),
            group: self.group.and(other.group),
            lazy: self.lazy.and(other.lazy),
            moving: self.moving + other.moving,
        }
    }

    /// Nodes that a checkpoint writes.
    pub fn nodes(&self, shapes: &Shapes) -> u64 {
        let maps = [
            (shapes.ifile, self.ifile),
            (shapes.bitmap, self.bitmap),
            (shapes.owner, self.owner),
            (shapes.group, self.group),
            (shapes.lazy, self.lazy),
        ];
        let nodes = maps.map(|(shape, keys)| shape.dirty(keys));
        nodes.iter().sum::<u64>() + self.moving + ROOTS
    }
}

/// What a segment's summary says, as far as its length goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordCounts {
    /// Blocks that it gives places.
    pub blocks: u64,
    /// Inode blocks that it writes, or says to be gone.
    pub inode_blocks: u64,
    /// Bytes of what it says of inodes whose blocks it does not write.
    pub deltas: u64,
    /// Ranges that it frees.
    pub frees: u64,
    /// Anything else.
    pub others: u64,
    /// Groups that change their role, those among them that are claimed for it.
    pub roles: u64,
}

impl RecordCounts {
    /// Bytes of records, at most, with those of the log's own ranges: the next summary's unit, and the summary's, which may be cut
    /// at every unit. What those say themselves makes it longer by less than a 64th.
    pub fn bytes(&self) -> u64 {
        let said = self.blocks * ALLOCATE_SIZE
            + self.inode_blocks * (IFILE_SIZE + FREE_SIZE)
            + self.deltas
            + self.frees * FREE_SIZE
            + self.others * RECORD_SIZE_MAX
            + self.roles * ROLE_SIZE;
        let units = summary_len(said) / u64::from(UNIT_SIZE);
        let own = (units + units / 64 + 2).min(EXTENTS_MAX as u64 + 1);
        said + own * ALLOCATE_SIZE
    }
}

/// Groups that the log claims at most for a segment of so many fragments, and for the window in which its successor begins.
pub fn claims(g: &Geometry, frags: u64) -> u64 {
    let window = g.frags_for(g.segment_max.into());
    ((frags + window) / g.group_frags + CLAIMS_BESIDES).min(g.groups().into())
}

/// Fragments of a checkpoint of so many nodes, that names so many held ranges, and has so many bytes of deltas.
fn checkpoint_frags(g: &Geometry, nodes: u64, held: u64, deltas: u64) -> u64 {
    let records = RecordCounts {
        blocks: nodes,
        deltas,
        frees: 2 * nodes,
        others: held + ROOTS,
        roles: g.groups().into(),
        ..RecordCounts::default()
    };
    g.frags_for(nodes * NODE_SIZE as u64 + summary_len(records.bytes()))
}

/// Into how many extents a segment of so many units is cut at most that takes so many holes, its successor's unit and
/// what its predecessor reserved among them.
fn extents_of(units: u64, holes: u64) -> u64 {
    (units.min(EXTENTS_MAX as u64) + 1).min(holes + 2)
}

/// Where segments are placed, in fragments: holes, and whole groups when no hole is large enough.
#[derive(Clone, Debug)]
pub struct Room {
    geometry: Geometry,
    /// How many there are of each length.
    holes: BTreeMap<u64, u64>,
    groups: u64,
    law: Law<dyn Rules>,
}

impl Room {
    /// So many free groups of the volume, and these holes.
    pub fn new(g: &Geometry, groups: u64, holes: impl IntoIterator<Item = u64>) -> Room {
        let mut room = Room {
            geometry: *g,
            holes: BTreeMap::new(),
            groups,
            law: Law::default(),
        };
        holes.into_iter().for_each(|hole| room.put(hole));
        room
    }

    /// The same holes, and so many free groups.
    #[must_use]
    pub(super) fn with_groups(self, groups: u64) -> Room {
        Room { groups, ..self }
    }

    /// The same under a law that somebody else has chosen.
    #[must_use]
    pub fn with_law(self, law: Law<dyn Rules>) -> Room {
        Room { law, ..self }
    }

    /// One hole more.
    pub(super) fn put(&mut self, hole: u64) {
        if hole > 0 {
            *self.holes.entry(hole).or_default() += 1;
        }
    }

    /// The hole that is taken next of those of at least `least`, or else a group.
    fn pop(&mut self, fitting: &Fitting, least: u64) -> Option<u64> {
        let Some(hole) = fitting.choose(&self.holes, least) else {
            self.groups = self.groups.checked_sub(1)?;
            return Some(self.geometry.group_frags);
        };
        match self.holes.get_mut(&hole) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.holes.remove(&hole)),
        }
        Some(hole)
    }

    /// Takes a segment out that is cut in this way, and the unit of its successor's summary, as placing does, and returns
    /// of how many holes; `None` if it has no place. Holes must fit the longest block, and those that may still be taken
    /// must hold all that is left.
    ///
    /// Blocks longer than a unit are not split. The end of a hole that is left is shorter than the block that goes to the next
    /// one. So holes hold at least half of their length, and all of it but a block less a fragment each. Where a segment would have more
    /// extents than it may in the smallest holes, it is cut into the longest.
    pub fn take(&mut self, parts: Parts, cut: Cut) -> Option<u64> {
        if cut == Cut::Longest {
            return self.take_cut(parts, cut);
        }
        let (holes, groups) = (self.holes.clone(), self.groups);
        let taken = self.take_cut(parts, cut);
        taken.or_else(|| {
            (self.holes, self.groups) = (holes, groups);
            self.take_cut(parts, Cut::Longest)
        })
    }

    fn take_cut(&mut self, parts: Parts, cut: Cut) -> Option<u64> {
        let unit = self.geometry.unit_frags();
        let successor = if self.law.counts_successor() { unit } else { 0 };
        let Parts {
            nodes,
            others,
            longest,
        } = parts;
        let others = others.next_multiple_of(unit);
        let nodes = nodes.next_multiple_of(unit) + successor;
        let fitting = Fitting::new(&self.geometry, cut, longest, others);
        // The first extent is the one that the predecessor reserved.
        let mut extents = EXTENTS_MAX as u64 - 1;
        let first = self.take_part(&fitting, &mut extents, nodes, unit, others)?;
        Some(first + self.take_part(&fitting, &mut extents, others, longest, 0)?)
    }

    /// Takes so many fragments of blocks of at most `longest`, before so many `behind` them.
    fn take_part(
        &mut self,
        fitting: &Fitting,
        extents: &mut u64,
        content: u64,
        longest: u64,
        behind: u64,
    ) -> Option<u64> {
        let unit = self.geometry.unit_frags();
        let end = if longest > unit { longest - 1 } else { 0 };
        let (mut taken, mut holes) = (0, 0);
        loop {
            let need = (content + holes * end).min(2 * content);
            if taken >= need {
                self.put(taken - need);
                return Some(holes);
            }
            let least = match self.law.counts_holes_that_serve() {
                true => (need - taken + behind).div_ceil(*extents).max(longest),
                false => 1,
            };
            taken += self.pop(fitting, least)?;
            holes += 1;
            *extents = (*extents - 1).max(1);
        }
    }
}

/// What a segment holds, in fragments: first nodes and its summary, then other blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Blocks of a unit, and what may be cut anywhere.
    pub nodes: u64,
    /// All others.
    pub others: u64,
    /// The longest of them.
    pub longest: u64,
}

impl Parts {
    /// Nodes alone.
    pub fn of_nodes(nodes: u64) -> Parts {
        Parts {
            nodes,
            ..Parts::default()
        }
    }
}

/// What must find a place before anything that is dirty, or held back, is free.
#[derive(Clone, Copy, Debug)]
pub struct Burden {
    /// Bytes of the next segment at most, what the removal dirties that asks among them.
    pub bytes: u64,
    /// Tree nodes in it.
    pub nodes: u64,
    /// Inode blocks in it.
    pub inode_blocks: u64,
    /// Fragments of its longest block.
    pub longest: u64,
    /// Ranges that it frees.
    pub frees: u64,
    /// Ranges that are held back.
    pub held: u64,
    /// Bytes of what a checkpoint says of inodes whose blocks were not written.
    pub deltas: u64,
    /// What is for the next checkpoint.
    pub changed: Changed,
    /// The maps.
    pub shapes: Shapes,
}

impl Burden {
    /// Takes the next segment out of `room`, then the two checkpoints behind it, all cut in the same way. Returns whether
    /// all of it has a place.
    pub fn fits(&self, room: &mut Room, cut: Cut) -> bool {
        !room.law.keeps_reserve() || self.try_to_place(room, cut).is_some()
    }

    fn try_to_place(&self, room: &mut Room, cut: Cut) -> Option<()> {
        let g = room.geometry;
        let unit = g.unit_frags();
        let blocks = self.inode_blocks + 2;
        let frees = self.frees + 16;
        // Nodes are whole units.
        let nodes = (self.nodes * NODE_SIZE as u64 + REMOVAL_NODES).min(self.bytes);
        let parts = Parts {
            nodes: g.frags_for(nodes),
            others: g.frags_for(self.bytes - nodes),
            longest: self.longest,
        };
        let holes = room.take(parts, cut)?;
        let extents = extents_of(g.frags_for(self.bytes).div_ceil(unit), holes);
        let next = Changed {
            ifile: Keys::scattered(blocks),
            bitmap: Keys::scattered(frees + extents),
            owner: Keys {
                runs: extents,
                count: g.frags_for(self.bytes),
            },
            group: Keys::scattered(frees + extents),
            ..Changed::default()
        };
        let nodes = self.changed.and(next).nodes(&self.shapes);
        let held = self.held + frees;
        let first = checkpoint_frags(&g, nodes, held, self.deltas);
        let holes = room.take(Parts::of_nodes(first), cut)?;
        if !room.law.counts_both_checkpoints() {
            return Some(());
        }
        // What was held back comes free between the two.
        let extents = extents_of(first.div_ceil(unit), holes);
        let touched = Keys::scattered(held + 2 * nodes + extents);
        let behind = Changed {
            owner: Keys {
                runs: extents,
                count: nodes + extents,
            },
            bitmap: touched,
            group: touched,
            ..Changed::default()
        };
        let nodes_behind = behind.nodes(&self.shapes);
        let second = checkpoint_frags(&g, nodes_behind, held + 2 * nodes, self.deltas);
        room.take(Parts::of_nodes(second), cut)?;
        // A segment that says what is durable may come between.
        room.take(Parts::of_nodes(unit), cut).map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
