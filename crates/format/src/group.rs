//! Group descriptors and bitmap chunks, values of the BFILE (H4). They are what the segment usage array is to LFS (L6): the
//! descriptor counts what is in use of a group, and `space::groups` keeps its age in memory.

use crate::types::FragAddr;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a group is used for (FORMAT.md, "Group descriptor").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Nothing yet; takes a role when one is needed.
    #[default]
    Free = 0,
    /// Metadata, small files and log images, in fragments.
    Log = 1,
    /// Blocks of large files.
    Data = 2,
    /// Tracks: small files of a directory, with their attributes ([`crate::track`]).
    Track = 3,
    /// Copies of hot files on a fast device: the sections of hybridFS and its write-through cache (Y2 to Y6). Not built: the
    /// number is kept for them.
    Section = 4,
}

impl Role {
    /// All roles, by number.
    pub const ALL: [Role; 5] = [
        Role::Free,
        Role::Log,
        Role::Data,
        Role::Track,
        Role::Section,
    ];

    /// The role with this number on disk.
    pub fn from_u8(raw: u8) -> Option<Role> {
        Role::ALL.into_iter().find(|role| *role as u8 == raw)
    }
}

/// Fragments that one bitmap chunk covers.
pub const CHUNK_FRAGS: u64 = 512;
/// Bytes of a bitmap chunk, the value of the bitmap tree; its key is the chunk's first fragment / 512.
/// A set bit is a fragment in use or held back (rule 5). A chunk that is absent is wholly clear, one of length 0 wholly
/// set; any other has these bytes, bit 0 of byte 0 first.
pub const CHUNK_BYTES: usize = 64;

/// A group descriptor, the value of the group tree; its key is the group's number. Absent: free and empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDesc {
    /// Use.
    pub role: Role,
    /// Fragments whose bit is set.
    pub used: u64,
    /// Directories anchored here (H9).
    pub directories: u32,
}

/// The form on disk, 32 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawGroupDesc {
    role: u8,
    mirror_slot: u8,
    reserved: [u8; 2],
    directories: U32,
    used: U64,
    reserved2: [u8; 16],
}

impl GroupDesc {
    /// Bytes on disk.
    pub const SIZE: usize = size_of::<RawGroupDesc>();

    /// The form on disk.
    pub fn encode(&self) -> [u8; GroupDesc::SIZE] {
        let raw = RawGroupDesc {
            role: self.role as u8,
            mirror_slot: 0,
            reserved: [0; 2],
            directories: U32::new(self.directories),
            used: U64::new(self.used),
            reserved2: [0; 16],
        };
        zerocopy::transmute!(raw)
    }

    /// Reads the bytes on disk; `None` when they are no descriptor.
    pub fn decode(bytes: &[u8]) -> Option<GroupDesc> {
        let raw = RawGroupDesc::ref_from_bytes(bytes).ok()?;
        Some(GroupDesc {
            role: Role::from_u8(raw.role)?,
            used: raw.used.get(),
            directories: raw.directories.get(),
        })
    }
}

/// The key of the bitmap chunk that holds `addr`.
pub const fn chunk_key(addr: FragAddr) -> u64 {
    addr.0 / CHUNK_FRAGS
}
