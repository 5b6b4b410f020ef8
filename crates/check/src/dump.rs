//! Any structure of a volume as text, one thing a line.
//!
//! What cannot be read is said in the place where it would stand, so that a damaged volume can be looked at too.

mod inode;
mod log;
mod space;

pub use inode::{directory, extents, ifile, inode};
pub use log::{segment, segments, superblock};
pub use space::{groups, lazy, owners};

use crate::{CheckError, Volume};
use loamfs_device::Device;
use loamfs_format::node::{NODE_SIZE, Page};
use loamfs_format::{BlockKind, FragAddr, Ino};
use std::fmt::{Display, Write};

/// Adds a line; writing to a string cannot fail.
pub(crate) fn line(out: &mut String, text: impl Display) {
    let _ = writeln!(out, "{text}");
}

/// Any node by its address: what its header says it is, and its entries. Its checksum is not verified, as that
/// stands elsewhere.
///
/// # Errors
/// When the device cannot read it.
pub fn node(volume: &Volume<'_>, device: &dyn Device, at: FragAddr) -> Result<String, CheckError> {
    let offset = volume.geometry().byte_offset(at);
    let bytes = loamfs_device::read_exact(device, offset, NODE_SIZE, loamfs_device::IoKind::Check)?;
    Ok(
        match claimed_identity(&bytes).map(|identity| Page::from_bytes(&bytes, &identity)) {
            Some(Ok(page)) => page.to_string(),
            Some(Err(fault)) => format!("{at}: {fault}\n"),
            None => format!("{at}: no node\n"),
        },
    )
}

/// Who the header of a node says that it is.
fn claimed_identity(bytes: &[u8]) -> Option<loamfs_format::Identity> {
    let word = |at: usize| {
        Some(u64::from_le_bytes(
            bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
        ))
    };
    Some(loamfs_format::Identity {
        kind: BlockKind::from_u8(*bytes.get(6)?)?,
        level: *bytes.get(7)?,
        ino: Ino(word(16)?),
        generation: u32::from_le_bytes(bytes.get(24..28)?.try_into().ok()?),
        logical: word(32)?,
    })
}

/// Bytes as text, with what is not printable escaped.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
