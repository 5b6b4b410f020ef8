//! Values of the other maps: owner records (BFILE) and the lazy map (MFILE).

use crate::kind::BlockKind;
use crate::types::{FragAddr, Ino, Ssn};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Who a range of fragments was last given to. The value of the owner tree; its key is the first fragment.
/// The bitmap says which of its units still live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// Length in fragments.
    pub frags: u32,
    /// What the range holds.
    pub kind: BlockKind,
    /// Level of a tree node.
    pub level: u8,
    /// Owning inode; 0 for the log itself and the maps.
    pub ino: Ino,
    /// Logical block, 4 KiB unit, inode block or lowest key, by kind.
    pub logical: u64,
}

/// The form on disk, 24 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawOwnerRecord {
    frags: U32,
    kind: u8,
    level: u8,
    flags: U16,
    ino: U64,
    logical: U64,
}

impl OwnerRecord {
    /// Bytes on disk.
    pub const SIZE: usize = size_of::<RawOwnerRecord>();

    /// The form on disk.
    pub fn encode(&self) -> [u8; OwnerRecord::SIZE] {
        let raw = RawOwnerRecord {
            frags: U32::new(self.frags),
            kind: self.kind as u8,
            level: self.level,
            flags: U16::new(0),
            ino: U64::new(self.ino.0),
            logical: U64::new(self.logical),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads the form on disk; `None` when the bytes are no record.
    pub fn decode(bytes: &[u8]) -> Option<OwnerRecord> {
        let raw = RawOwnerRecord::ref_from_bytes(bytes).ok()?;
        Some(OwnerRecord {
            frags: raw.frags.get(),
            kind: BlockKind::from_u8(raw.kind)?,
            level: raw.level,
            ino: Ino(raw.ino.get()),
            logical: raw.logical.get(),
        })
    }
}

/// A homed 4 KiB unit whose newest image is in the log (Z1). The value of the lazy map; its key is the address of
/// the unit's home, S.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LazyEntry {
    /// Address of the image, J.
    pub image: FragAddr,
    /// CRC32C of the image; it alone counts until the image has settled.
    pub crc: u32,
    /// Segment that wrote the image.
    pub ssn: Ssn,
    /// The file that the unit belongs to.
    pub ino: Ino,
    /// Its number in the file, in 4 KiB units.
    pub unit: u64,
}

/// The form on disk, 40 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawLazyEntry {
    image: U64,
    crc: U32,
    reserved: U32,
    ssn: U64,
    ino: U64,
    unit: U64,
}

impl LazyEntry {
    /// Bytes on disk.
    pub const SIZE: usize = size_of::<RawLazyEntry>();

    /// The form on disk.
    pub fn encode(&self) -> [u8; LazyEntry::SIZE] {
        zerocopy::transmute!(self.raw())
    }

    pub(crate) fn raw(&self) -> RawLazyEntry {
        RawLazyEntry {
            image: U64::new(self.image.0),
            crc: U32::new(self.crc),
            reserved: U32::new(0),
            ssn: U64::new(self.ssn.0),
            ino: U64::new(self.ino.0),
            unit: U64::new(self.unit),
        }
    }

    /// Reads the form on disk; `None` when the bytes are no entry.
    pub fn decode(bytes: &[u8]) -> Option<LazyEntry> {
        let raw = RawLazyEntry::ref_from_bytes(bytes).ok()?;
        Some(LazyEntry {
            image: FragAddr(raw.image.get()),
            crc: raw.crc.get(),
            ssn: Ssn(raw.ssn.get()),
            ino: Ino(raw.ino.get()),
            unit: raw.unit.get(),
        })
    }
}
