//! Who a fragment belongs to, in a form in which two records can be compared fragment by fragment.

use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, Ino};
use std::fmt;

/// The owner of every fragment of a range. It stays the same when the range is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// What the range holds.
    pub kind: BlockKind,
    /// Level of a tree node, else 0.
    pub level: u8,
    /// Owning inode; 0 for the maps and the log.
    pub ino: Ino,
    /// What `logical` becomes when it must not depend on where a range was cut. For homed blocks and images it is the
    /// distance between the place in the file and the place on the volume, in fragments. It is 0 for the pieces of an
    /// attribute's value, whose number the format does not fix. For all others it is the logical number itself.
    pub place: u64,
}

impl Owner {
    /// The owner of a range that starts at `start` with logical number `logical`.
    pub fn new(
        kind: BlockKind,
        level: u8,
        ino: Ino,
        logical: u64,
        start: FragAddr,
        geometry: &Geometry,
    ) -> Owner {
        let place = match kind {
            BlockKind::Homed => logical
                .wrapping_mul(geometry.block_frags())
                .wrapping_sub(start.0),
            BlockKind::Image => logical
                .wrapping_mul(geometry.unit_frags())
                .wrapping_sub(start.0),
            BlockKind::XattrValue => 0,
            _ => logical,
        };
        Owner {
            kind,
            level,
            ino,
            place,
        }
    }

    /// Whether both are blocks of the same large file, wherever in it.
    pub fn is_of_same_file(&self, other: &Owner) -> bool {
        let whose = |owner: &Owner| (owner.kind, owner.ino);
        self.kind == BlockKind::Homed && whose(self) == whose(other)
    }

    /// The logical number of the block or unit at `at`.
    pub fn logical(&self, at: FragAddr, geometry: &Geometry) -> u64 {
        let frags = self.place.wrapping_add(at.0);
        match self.kind {
            BlockKind::Homed => frags / geometry.block_frags().max(1),
            BlockKind::Image => frags / geometry.unit_frags().max(1),
            _ => self.place,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.ino.0) {
            (BlockKind::InodeBlock, _) => write!(f, "inode block {}", self.place),
            (kind, 0) if kind.is_map() => {
                write!(f, "{kind:?} level {} from {} on", self.level, self.place)
            }
            (kind, 0) => write!(f, "{kind:?}"),
            (kind, ino) if kind.is_node() || kind == BlockKind::TrackHead => {
                write!(
                    f,
                    "{kind:?} level {} from {} on of inode {ino}",
                    self.level, self.place
                )
            }
            (kind, ino) => write!(f, "{kind:?} of inode {ino}"),
        }
    }
}

/// A range and whose it is.
pub(crate) type Piece = (Extent, Owner);
