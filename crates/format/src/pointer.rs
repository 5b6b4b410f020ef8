//! Pointers to blocks in the log, and the checksums that they carry.
//!
//! Metadata are checksummed with XXH3-64 under a seed made of the volume's UUID and the block's identity, so that
//! a misplaced or stale block never passes for the right one. File data are checksummed without an identity, so
//! that extents can be shared (FORMAT.md, "Pointer").

use crate::geometry::Geometry;
use crate::kind::BlockKind;
use crate::types::{Extent, FragAddr, Ino, Ssn};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Who a metadata block is: the seed of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// What the block is.
    pub kind: BlockKind,
    /// Level of a tree node, leaves are 0; 0 for other blocks.
    pub level: u8,
    /// The owning inode, or 0 for blocks of the maps and inode blocks.
    pub ino: Ino,
    /// Generation of the owning inode, or 0.
    pub generation: u32,
    /// Logical block, inode block number, or the lowest key of a tree node.
    pub logical: u64,
}

/// The checksum of a metadata block: XXH3-64 seeded with the volume's UUID and the block's identity.
pub fn metadata_checksum(uuid: &[u8; 16], identity: &Identity, bytes: &[u8]) -> u64 {
    let mut seed = [0u8; 40];
    seed[..16].copy_from_slice(uuid);
    seed[16..18].copy_from_slice(&[identity.kind as u8, identity.level]);
    seed[20..24].copy_from_slice(&identity.generation.to_le_bytes());
    seed[24..32].copy_from_slice(&identity.ino.0.to_le_bytes());
    seed[32..].copy_from_slice(&identity.logical.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, xxhash_rust::xxh3::xxh3_64(&seed))
}

/// The checksum of file data in the log: XXH3-64 without an identity.
pub fn data_checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// A pointer on disk, 40 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawPointer {
    /// First fragment; see [`Pointer::addr`].
    pub addr: U64,
    /// Length on the device, in fragments.
    pub frags: U32,
    /// Bytes that the block's content takes.
    pub stored: U32,
    /// Segment that first wrote the block.
    pub birth: U64,
    /// Compression algorithm; 0: none. Reserved.
    pub compression: u8,
    /// Bit 0: shared, reserved. Bit 1: [`Pointer::unwritten`]. Other bits are reserved and zero.
    pub flags: u8,
    /// Encryption key id; 0: none. Reserved.
    pub key_id: U16,
    /// Reserved, zero.
    pub reserved: U32,
    /// Checksum field; 0 for homed data, which has a checksum tree.
    pub checksum: U64,
}

/// Where a block is and what its bytes must hash to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// First fragment. Address 0 holds the boot area, so it serves as "no block".
    pub addr: FragAddr,
    /// Length on the device, in fragments. A node of a map may be there twice, one copy behind the other.
    pub frags: u32,
    /// Bytes that the content takes, at most `frags` fragments.
    pub stored: u32,
    /// Segment that first wrote the block.
    pub birth: Ssn,
    /// [`metadata_checksum`] or [`data_checksum`] of the stored bytes; 0 for homed data.
    pub checksum: u64,
    /// Of an extent: units without a checksum were never written, and read as zeros.
    pub unwritten: bool,
}

/// The flag of [`Pointer::unwritten`].
const UNWRITTEN: u8 = 2;

impl Pointer {
    /// The pointer that names no block.
    pub const NONE: Pointer = Pointer {
        addr: FragAddr(0),
        frags: 0,
        stored: 0,
        birth: Ssn(0),
        checksum: 0,
        unwritten: false,
    };

    /// Whether the pointer names a block.
    pub const fn is_some(&self) -> bool {
        self.addr.0 != 0
    }

    /// The fragments that the block takes.
    pub const fn extent(&self) -> Extent {
        Extent {
            start: self.addr,
            frags: self.frags as u64,
        }
    }

    /// Where the copies of the block of this kind are that it names.
    pub fn copies(
        &self,
        kind: BlockKind,
        geometry: &Geometry,
    ) -> impl Iterator<Item = Extent> + use<> {
        geometry.copies(kind, self.extent(), self.stored)
    }

    /// The form on disk.
    pub fn encode(&self) -> RawPointer {
        RawPointer {
            addr: U64::new(self.addr.0),
            frags: U32::new(self.frags),
            stored: U32::new(self.stored),
            birth: U64::new(self.birth.0),
            compression: 0,
            flags: if self.unwritten { UNWRITTEN } else { 0 },
            key_id: U16::new(0),
            reserved: U32::new(0),
            checksum: U64::new(self.checksum),
        }
    }

    /// Reads the form on disk. Compressed, encrypted and shared blocks belong to incompatible features that a
    /// reader of this version refuses at mount, so those fields are not looked at here.
    pub fn decode(raw: &RawPointer) -> Pointer {
        Pointer {
            addr: FragAddr(raw.addr.get()),
            frags: raw.frags.get(),
            stored: raw.stored.get(),
            birth: Ssn(raw.birth.get()),
            checksum: raw.checksum.get(),
            unwritten: raw.flags & UNWRITTEN != 0,
        }
    }
}
