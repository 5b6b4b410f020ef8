//! What a role means for the space of its groups (H1, H2). Which role serves a request its caller names.

use loamfs_format::Geometry;
use loamfs_format::group::Role;

/// What is given out in the groups of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Nothing.
    None,
    /// Units of 4 KiB, of which single fragments can be in use: what a segment writes. It fits into holes of any length, so
    /// only the bitmap tells what emptying a group wins.
    Units,
    /// Whole blocks: homes. Any free one serves.
    Blocks,
}

/// What is true of all groups of a role.
struct Traits {
    cells: Cells,
    /// Whether segments go on there, one behind the other.
    segments: bool,
}

/// The table: an entry a role.
const fn traits(role: Role) -> Traits {
    let (cells, segments) = match role {
        Role::Free => (Cells::None, false),
        Role::Log => (Cells::Units, true),
        Role::Data => (Cells::Blocks, false),
        Role::Track => (Cells::Units, false),
        Role::Section => (Cells::None, false),
    };
    Traits { cells, segments }
}

/// The roles whose groups hold something.
pub fn in_use() -> impl Iterator<Item = Role> {
    let roles = Role::ALL.into_iter();
    roles.filter(|role| Cells::of(*role) != Cells::None)
}

/// The roles in whose groups the log goes on.
pub(crate) fn of_segments() -> impl Iterator<Item = Role> {
    let roles = Role::ALL.into_iter();
    roles.filter(|role| traits(*role).segments)
}

impl Cells {
    /// What groups of this role give out.
    pub const fn of(role: Role) -> Cells {
        traits(role).cells
    }

    /// Fragments that are the least in use of such a group: those that one owner record tells apart.
    pub fn finest(self, geometry: &Geometry) -> u64 {
        match self {
            Cells::Blocks => geometry.block_frags(),
            Cells::Units | Cells::None => 1,
        }
    }
}
