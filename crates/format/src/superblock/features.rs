//! Features: what a program must know that reads the volume, or writes to it.

use super::{Superblock, SuperblockError};

/// Compatible feature: access times are kept in the atime file ([`crate::atime`]).
pub const COMPATIBLE_ATIME: u64 = 1;
/// Incompatible feature: directories may have tracks ([`crate::track`]).
pub const INCOMPATIBLE_TRACKS: u64 = 1;
/// Incompatible feature: extents may have units that were never written ([`crate::Pointer::unwritten`]).
pub const INCOMPATIBLE_UNWRITTEN: u64 = 2;
/// Incompatible feature: the volume has a table of devices.
pub const INCOMPATIBLE_DEVICES: u64 = 4;
/// Incompatible features that this code knows.
pub const INCOMPATIBLE_KNOWN: u64 =
    INCOMPATIBLE_UNWRITTEN | INCOMPATIBLE_TRACKS | INCOMPATIBLE_DEVICES;
/// Read-only compatible feature: the places at which readers look for copies and this volume has none are reserved too
/// ([`Superblock::other_places`]).
pub const RO_COMPATIBLE_PLACES: u64 = 2;
/// Read-only compatible feature: what tells rot in the log from its end is there, and is kept up by who writes: the
/// superblock's `log_key`, `durable` and `clean`, and the codes and second copies of summaries.
pub const RO_COMPATIBLE_SECOND_COPIES: u64 = 4;
/// Read-only compatible features that this code knows.
pub const RO_COMPATIBLE_KNOWN: u64 = RO_COMPATIBLE_PLACES | RO_COMPATIBLE_SECOND_COPIES;

impl Superblock {
    /// Whether the volume has what tells rot in the log from its end.
    pub const fn has_second_copies(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_SECOND_COPIES != 0
    }

    /// Whether directories may have tracks.
    pub const fn has_tracks(&self) -> bool {
        self.incompatible & INCOMPATIBLE_TRACKS != 0
    }

    /// Whether files may have extents that were never written.
    pub const fn has_unwritten(&self) -> bool {
        self.incompatible & INCOMPATIBLE_UNWRITTEN != 0
    }

    /// Whether the volume has a table of devices.
    pub const fn has_devices(&self) -> bool {
        self.incompatible & INCOMPATIBLE_DEVICES != 0
    }

    /// Whether [`Superblock::other_places`] are reserved.
    pub const fn reserves_places(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_PLACES != 0
    }

    /// Checks that this code may write to the volume.
    ///
    /// # Errors
    /// [`SuperblockError::ReadOnly`].
    pub fn may_write(&self) -> Result<(), SuperblockError> {
        match self.ro_compatible & !RO_COMPATIBLE_KNOWN {
            0 => Ok(()),
            unknown => Err(SuperblockError::ReadOnly { unknown }),
        }
    }
}
