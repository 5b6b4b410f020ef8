//! The kernel's FUSE ABI, version 7.31 to 7.45: opcodes, flag bits and the
//! fixed-size structures that start a request or a reply.
//!
//! Field names follow the kernel's, so that its documentation can be read
//! beside this code. Everything is in native byte order, because both sides
//! are on one machine. Structures are declared with explicit padding, and the
//! derive on each refuses padding that is not written down, so what is sent
//! never carries uninitialised bytes.

pub(crate) mod flags;
pub(crate) mod header;
pub(crate) mod input;
pub(crate) mod opcode;
pub(crate) mod output;

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version this crate knows.
pub(crate) const MINOR: u32 = 45;
/// Oldest minor version this crate serves: the first with every structure in
/// today's size (Linux 5.4).
pub(crate) const MINOR_MIN: u32 = 31;
/// Smallest buffer with which the kernel lets anyone read the device.
pub(crate) const READ_BUFFER_MIN: usize = 8192;
