//! Who a fragment belongs to, in a form in which two records can be compared fragment by fragment.
use loamfs_format::kind::{Belongs, Logical, Part};

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
        let place = match kind.logical() {
            Logical::Block => logical
                .wrapping_mul(geometry.block_frags())
                .wrapping_sub(start.0),
            Logical::Unit => logical
                .wrapping_mul(geometry.unit_frags())
                .wrapping_sub(start.0),
            Logical::Piece => 0,
            Logical::Number | Logical::Hash => logical,
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
        match self.kind.logical() {
            Logical::Block => frags / geometry.block_frags().max(1),
            Logical::Unit => frags / geometry.unit_frags().max(1),
            Logical::Piece | Logical::Number | Logical::Hash => self.place,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, level, place) = (self.kind, self.level, self.place);
        let has_keys = match kind.belongs() {
            Belongs::Inodes => return write!(f, "inode block {place}"),
            Belongs::Map(_) | Belongs::Tree(_) => true,
            Belongs::Part(Part::Track) => true,
            Belongs::Part(Part::Small | Part::Value | Part::Image | Part::Home) => false,
            Belongs::Volume => false,
        };
        write!(f, "{kind:?}")?;
        if has_keys {
            write!(f, " level {level} from {place} on")?;
        }
        match self.ino {
            Ino(0) => Ok(()),
            Ino(ino) => write!(f, " of inode {ino}"),
        }
    }
}

/// A range and whose it is.
pub(crate) type Piece = (Extent, Owner);
