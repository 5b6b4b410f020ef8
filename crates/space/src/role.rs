//! What a role means for the space of its groups (H1, H2).

use loamfs_format::group::Role;

/// What is given out in the groups of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cells {
    /// Nothing.
    None,
    /// Units of 4 KiB, of which single fragments can be in use.
    Units,
    /// Whole blocks.
    Blocks,
}

impl Cells {
    /// What groups of this role give out.
    pub(crate) const fn of(role: Role) -> Cells {
        match role {
            Role::Log => Cells::Units,
            Role::Data => Cells::Blocks,
            Role::Free | Role::Track | Role::Section => Cells::None,
        }
    }
}
