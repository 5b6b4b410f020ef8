//! The owner records that are newer than the last checkpoint (FORMAT.md, "Owner record").

use crate::range_map::{Piece, RangeMap};
use loamfs_format::kind::Logical;
use loamfs_format::summary::Allocation;
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, Ino};
use std::ops::Range;

/// Who a range of fragments belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// What the range holds.
    pub kind: BlockKind,
    /// Level of a tree node; 0 for everything else.
    pub level: u8,
    /// Owning inode; 0 for the log itself and the maps.
    pub ino: Ino,
    /// Logical block, 4 KiB unit, inode block or lowest key, by kind.
    pub logical: u64,
}

impl From<&Allocation> for Owner {
    /// Whom a segment gives a range.
    fn from(given: &Allocation) -> Owner {
        Owner {
            kind: given.kind,
            level: given.level,
            ino: given.ino,
            logical: given.logical,
        }
    }
}

impl Owner {
    /// Fragments after which the logical number is one higher, as a power of two: that of homed data counts
    /// blocks, that of images units, and other objects stay one however they are cut.
    const fn step(self, geometry: &Geometry) -> Option<u32> {
        match self.kind.logical() {
            Logical::Block => Some(geometry.block_frags().trailing_zeros()),
            Logical::Unit => Some(geometry.unit_frags().trailing_zeros()),
            Logical::Piece | Logical::Number | Logical::Hash => None,
        }
    }

    /// The owner of what begins `frags` fragments behind the start of a record.
    pub fn further(self, frags: u64, geometry: &Geometry) -> Owner {
        Entry::new(self, geometry).tail(frags).owner
    }

    /// What a record of `extent` still says once `taken`, which it overlaps, is somebody else's: its parts in front of that
    /// and behind it.
    pub fn without(
        self,
        extent: Extent,
        taken: Extent,
        geometry: &Geometry,
    ) -> impl Iterator<Item = (Extent, Owner)> {
        let part = |range: Range<u64>| (!range.is_empty()).then(|| extent_of(&range));
        let (start, end) = (extent.start.0, extent.end().0);
        let front = part(start..taken.start.0).map(|front| (front, self));
        let entry = Entry::new(self, geometry);
        let skip = entry.tail_start(taken.end().0.saturating_sub(start));
        let behind = part(start.saturating_add(skip)..end);
        let behind = behind.map(|behind| (behind, entry.tail(skip).owner));
        front.into_iter().chain(behind)
    }
}

/// An owner that can be cut without looking the geometry up.
#[derive(Clone, Copy, Debug)]
struct Entry {
    owner: Owner,
    step: Option<u8>,
}

impl Entry {
    fn new(owner: Owner, geometry: &Geometry) -> Entry {
        let step = owner.step(geometry).map(|step| step as u8);
        Entry { owner, step }
    }
}

impl Piece for Entry {
    fn tail(self, frags: u64) -> Entry {
        let blocks = self.step.map_or(0, |step| frags >> step);
        let logical = self.owner.logical.saturating_add(blocks);
        Entry {
            owner: Owner {
                logical,
                ..self.owner
            },
            ..self
        }
    }

    /// A block or unit that lost its beginning is dead, and nothing could be said of the rest of it.
    fn tail_start(self, frags: u64) -> u64 {
        self.step
            .map_or(frags, |step| frags.next_multiple_of(1 << step))
    }
}

/// New owner records, by address.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    ranges: RangeMap<Entry>,
}

impl Owners {
    /// Gives a range to an owner, in place of all that the records said of it.
    pub(crate) fn insert(&mut self, extent: Extent, owner: Owner, geometry: &Geometry) {
        let range = extent.start.0..extent.end().0;
        if !self.ranges.is_free(&range) {
            self.ranges.cut(range.clone(), |_, _| ());
        }
        self.ranges.insert(range, Entry::new(owner, geometry));
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.ranges.len()
    }

    /// All records, by address. Each replaces all records in the tree that it overlaps.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, Owner)> {
        self.ranges
            .iter()
            .map(|(range, entry)| (extent_of(&range), entry.owner))
    }

    /// The records that overlap a range, whole, by address. What they leave open is as the owner tree has it.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = (Extent, Owner)> {
        self.ranges
            .overlapping(extent.start.0..extent.end().0)
            .map(|(range, entry)| (extent_of(&range), entry.owner))
    }

    /// Forgets all records: a checkpoint has them.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

fn extent_of(range: &Range<u64>) -> Extent {
    Extent::new(FragAddr(range.start), range.end - range.start)
}
