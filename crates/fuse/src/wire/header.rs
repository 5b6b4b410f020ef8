//! The headers in front of every request and every reply.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// In front of every request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InHeader {
    /// Length of the whole request, this header included.
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) nodeid: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    /// Length of the extensions at the end of the request, in units of 8 bytes.
    pub(crate) total_extlen: u16,
    pub(crate) padding: u16,
}

/// In `unique` of a request that the kernel sends once more (`FUSE_UNIQUE_RESEND`).
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// In front of every reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct OutHeader {
    /// Length of the whole reply, this header included.
    pub(crate) len: u32,
    /// Zero, or a negated errno.
    pub(crate) error: i32,
    pub(crate) unique: u64,
}

/// Size of [`InHeader`].
pub(crate) const IN_HEADER_LEN: usize = size_of::<InHeader>();
/// Size of [`OutHeader`].
pub(crate) const OUT_HEADER_LEN: usize = size_of::<OutHeader>();

const _: () = assert!(IN_HEADER_LEN == 40 && OUT_HEADER_LEN == 16);
