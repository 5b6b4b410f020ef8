//! Any node of any tree, found by its address alone.

use super::values::{pointer, value};
use super::view::{Key, View, hash, hash32, lines, name, worded};
use crate::{CheckError, Volume};
use loamfs_device::{Device, IoKind, read_exact};
use loamfs_format::node::{NODE_SIZE, Page};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::{BlockKind, FragAddr, Identity, Ino};

/// Any node by its address: what its header says it is, and its entries. Its checksum is not verified, as that
/// stands elsewhere; it is given, for comparison.
///
/// # Errors
/// When the device cannot read it.
pub fn node(
    volume: &Volume<'_>,
    device: &dyn Device,
    at: FragAddr,
) -> Result<Box<dyn View>, CheckError> {
    let offset = volume.geometry().byte_offset(at);
    let bytes = read_exact(device, offset, NODE_SIZE, IoKind::Check)?;
    let Some(identity) = claimed_identity(&bytes) else {
        return Err(CheckError::NoNode { addr: at });
    };
    let page = Page::from_bytes(&bytes, &identity)
        .map_err(|fault| CheckError::Node { addr: at, fault })?;
    let uuid = &volume.superblock().uuid;
    Ok(view!(
        "{kind} level {level} inode {inode} generation {generation} from {from} on: {count} entries, \
         {used} bytes used, {garbage} garbage, checksum {checksum}\n{entries}",
        kind = name(identity.kind),
        level = identity.level,
        inode = identity.ino.0,
        generation = hash32(identity.generation),
        from = Key(identity.kind, identity.logical),
        count = page.count(),
        used = page.used_bytes(),
        garbage = page.garbage(),
        checksum = hash(metadata_checksum(uuid, &identity, page.as_bytes())),
        entries = lines(page.iter().enumerate().map(|(index, (key, bytes))| {
            match page.child(index).filter(|_| identity.level > 0) {
                Some(child) => view!(
                    "from {from} on: {pointer} says {says}",
                    from = Key(identity.kind, key),
                    pointer = pointer(&child.pointer),
                    says = worded(child.aggregate, name(child.aggregate)),
                ),
                None => value(volume, (identity.kind, identity.ino), key, bytes),
            }
        })),
    ))
}

/// Who the header of a node says that it is.
fn claimed_identity(bytes: &[u8]) -> Option<Identity> {
    let word = |at: usize| {
        Some(u64::from_le_bytes(
            bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
        ))
    };
    Some(Identity {
        kind: BlockKind::from_u8(*bytes.get(6)?)?,
        level: *bytes.get(7)?,
        ino: Ino(word(16)?),
        generation: u32::from_le_bytes(bytes.get(24..28)?.try_into().ok()?),
        logical: word(32)?,
    })
}
