//! Why a range cannot be marked, or a group not be loaded.

use loamfs_format::group::Role;
use loamfs_format::{Extent, GroupNo};

/// A request that does not fit the state of the volume's space. Nothing has been changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// Empty, or not on the volume.
    #[error("the range {extent:?} is empty or leaves the volume")]
    Range {
        /// The range.
        extent: Extent,
    },
    /// There is no such group.
    #[error("there is no group {group}")]
    Group {
        /// Its number.
        group: GroupNo,
    },
    /// The group's bitmap must be loaded first.
    #[error("the bitmap of group {group} is not loaded")]
    NotLoaded {
        /// The group.
        group: GroupNo,
    },
    /// The group's role does not allow it.
    #[error("group {group} has the role {role:?}")]
    Role {
        /// The group.
        group: GroupNo,
        /// Its role.
        role: Role,
    },
    /// A fragment of the range is in use, held back, or reserved for a superblock.
    #[error("the range {extent:?} is not wholly free")]
    InUse {
        /// The range.
        extent: Extent,
    },
    /// A fragment of the range is not in use, or was freed before, or belongs to a superblock.
    #[error("the range {extent:?} is not wholly in use")]
    NotInUse {
        /// The range.
        extent: Extent,
    },
    /// A range in a data group is not made of whole blocks.
    #[error("the range {extent:?} is not made of whole blocks")]
    Misaligned {
        /// The range.
        extent: Extent,
    },
    /// The bitmap on disk disagrees with the group's descriptor.
    #[error(
        "group {group} has {bitmap} fragments set in its bitmap, and {descriptor} by its descriptor"
    )]
    Usage {
        /// The group.
        group: GroupNo,
        /// Fragments in use by the descriptor and what happened since.
        descriptor: u64,
        /// Fragments set in the bitmap, after what happened since.
        bitmap: u64,
    },
}
