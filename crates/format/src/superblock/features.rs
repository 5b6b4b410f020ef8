//! Features: what a program must know that reads the volume, or writes to it.

use super::{Superblock, SuperblockError};

/// What a program must know of a volume: who writes to it, and who reads it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Bits of [`Superblock::ro_compatible`].
    pub ro_compatible: u64,
    /// Bits of [`Superblock::incompatible`].
    pub incompatible: u64,
}

impl Features {
    /// Features that who reads must know.
    pub const fn incompatible(bits: u64) -> Features {
        Features {
            ro_compatible: 0,
            incompatible: bits,
        }
    }

    /// Features that who writes must know.
    pub const fn ro_compatible(bits: u64) -> Features {
        Features {
            ro_compatible: bits,
            incompatible: 0,
        }
    }

    /// These and the others.
    #[must_use]
    pub const fn and(self, others: Features) -> Features {
        Features {
            ro_compatible: self.ro_compatible | others.ro_compatible,
            incompatible: self.incompatible | others.incompatible,
        }
    }

    /// Whether all the others are among these.
    pub fn have(self, others: Features) -> bool {
        self.and(others) == self
    }
}

/// Compatible feature: access times are kept in the atime file ([`crate::atime`]).
pub const COMPATIBLE_ATIME: u64 = 1;
/// Incompatible feature: directories may have tracks ([`crate::track`]).
pub const INCOMPATIBLE_TRACKS: u64 = 1;
/// Incompatible feature: extents may have units that were never written ([`crate::Pointer::unwritten`]).
pub const INCOMPATIBLE_UNWRITTEN: u64 = 2;
/// Incompatible feature: the volume has a table of devices.
pub const INCOMPATIBLE_DEVICES: u64 = 4;
/// Incompatible feature: segments may say what changed in inodes whose blocks they do not write ([`crate::delta`]).
pub const INCOMPATIBLE_DELTAS: u64 = 8;
/// Incompatible feature: inodes may come to blocks, and leave them, that segments do not write ([`crate::ifile::IfileEntry::packed`]).
/// Volumes that have it have [`INCOMPATIBLE_DELTAS`].
pub const INCOMPATIBLE_LAZY_INODES: u64 = 32;
/// Incompatible feature: blocks of large files have 4 KiB, however long small files may be ([`crate::Geometry::small_size`]).
pub const INCOMPATIBLE_TAILS: u64 = 16;
/// Incompatible feature: large files may have checksums in their inodes ([`crate::inode::Inode::crcs`]).
pub const INCOMPATIBLE_SHORT_CHECKSUMS: u64 = 64;
/// Incompatible features that this code knows.
pub const INCOMPATIBLE_KNOWN: u64 = INCOMPATIBLE_UNWRITTEN
    | INCOMPATIBLE_TRACKS
    | INCOMPATIBLE_DEVICES
    | INCOMPATIBLE_DELTAS
    | INCOMPATIBLE_LAZY_INODES
    | INCOMPATIBLE_TAILS
    | INCOMPATIBLE_SHORT_CHECKSUMS;
/// Read-only compatible feature: blocks of large files may be in groups of the log, and whoever places new things puts them
/// there.
pub const RO_COMPATIBLE_ALL_LOG: u64 = 1;
/// Read-only compatible feature: the places at which readers look for copies and this volume has none are reserved too
/// ([`Superblock::other_places`]).
pub const RO_COMPATIBLE_PLACES: u64 = 2;
/// Read-only compatible feature: what tells rot in the log from its end is there, and is kept up by who writes: the
/// superblock's `log_key`, `durable` and `clean`, and the codes and second copies of summaries.
pub const RO_COMPATIBLE_SECOND_COPIES: u64 = 4;
/// Read-only compatible feature: directories may say where small files go ([`crate::inode::Placement`]), and pass it on.
pub const RO_COMPATIBLE_PLACEMENT: u64 = 8;
/// Read-only compatible feature: directories may say on which devices large files go ([`crate::inode::Tiering`]), and pass it on.
pub const RO_COMPATIBLE_TIER: u64 = 16;
/// Read-only compatible feature: what the leading device holds may stand a second time on another one ([`Superblock::copy`]).
pub const RO_COMPATIBLE_COPY: u64 = 32;
/// Read-only compatible feature: what directories say of that may be a size ([`crate::inode::Limit`]).
pub const RO_COMPATIBLE_LIMIT: u64 = 64;
/// Read-only compatible feature: another device may have an older checkpoint of what the leading one holds ([`Superblock::behind`]).
pub const RO_COMPATIBLE_BEHIND: u64 = 128;
/// Read-only compatible feature: what directories say of that may be that their files bypass the fast devices, or are written back from
/// them ([`crate::inode::Tiering`]).
pub const RO_COMPATIBLE_WRITE_BACK: u64 = 256;
/// Read-only compatible feature: devices may have sections ([`super::Section`]), by which blocks of large files are given out.
pub const RO_COMPATIBLE_SECTIONS: u64 = 512;
/// Read-only compatible features that this code knows.
pub const RO_COMPATIBLE_KNOWN: u64 = RO_COMPATIBLE_ALL_LOG
    | RO_COMPATIBLE_PLACES
    | RO_COMPATIBLE_SECOND_COPIES
    | RO_COMPATIBLE_PLACEMENT
    | RO_COMPATIBLE_TIER
    | RO_COMPATIBLE_COPY
    | RO_COMPATIBLE_LIMIT
    | RO_COMPATIBLE_BEHIND
    | RO_COMPATIBLE_WRITE_BACK
    | RO_COMPATIBLE_SECTIONS;

impl Superblock {
    /// What a program must know of the volume.
    pub const fn features(&self) -> Features {
        Features {
            ro_compatible: self.ro_compatible,
            incompatible: self.incompatible,
        }
    }

    /// The same, of which a program must know these features and no others.
    #[must_use]
    pub fn with_features(&self, features: Features) -> Superblock {
        Superblock {
            ro_compatible: features.ro_compatible,
            incompatible: features.incompatible,
            ..self.clone()
        }
    }

    /// Whether the volume has what tells rot in the log from its end.
    pub const fn has_second_copies(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_SECOND_COPIES != 0
    }

    /// Whether blocks of large files are in groups of the log.
    pub const fn is_all_log(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_ALL_LOG != 0
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

    /// Whether segments may say what changed in inodes whose blocks they do not write.
    pub const fn has_deltas(&self) -> bool {
        self.incompatible & INCOMPATIBLE_DELTAS != 0
    }

    /// Whether inodes may come to blocks, and leave them, that segments do not write.
    pub const fn has_lazy_inodes(&self) -> bool {
        self.incompatible & INCOMPATIBLE_LAZY_INODES != 0
    }

    /// Whether blocks of large files have 4 KiB, however long small files may be.
    pub const fn has_tails(&self) -> bool {
        self.incompatible & INCOMPATIBLE_TAILS != 0
    }

    /// Whether large files may have checksums in their inodes.
    pub const fn has_short_checksums(&self) -> bool {
        self.incompatible & INCOMPATIBLE_SHORT_CHECKSUMS != 0
    }

    /// Whether [`Superblock::other_places`] are reserved.
    pub const fn reserves_places(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_PLACES != 0
    }

    /// Whether directories may say where small files go.
    pub const fn has_placement(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_PLACEMENT != 0
    }

    /// Whether directories may say on which devices large files go.
    pub const fn has_tier(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_TIER != 0
    }

    /// Whether directories may say that files bypass the fast devices, or are written back from them.
    pub const fn may_write_back(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_WRITE_BACK != 0
    }

    /// Whether what the leading device holds may stand a second time.
    pub const fn may_have_copy(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_COPY != 0
    }

    /// Whether another device may have an older checkpoint of what the leading one holds.
    pub const fn may_be_behind(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_BEHIND != 0
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
