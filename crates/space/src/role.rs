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

impl Cells {
    /// What groups of this role give out.
    pub const fn of(role: Role) -> Cells {
        match role {
            Role::Log | Role::Track => Cells::Units,
            Role::Data => Cells::Blocks,
            Role::Free | Role::Section => Cells::None,
        }
    }

    /// Fragments that are the least in use of such a group: those that one owner record tells apart.
    pub fn finest(self, geometry: &Geometry) -> u64 {
        match self {
            Cells::Blocks => geometry.block_frags(),
            Cells::Units | Cells::None => 1,
        }
    }
}
