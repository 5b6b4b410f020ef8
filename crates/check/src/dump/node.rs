//! Any node of any tree, found by its address alone.

use super::values::value;
use super::{line, pointer};
use crate::{CheckError, Volume};
use loamfs_device::{Device, IoKind, read_exact};
use loamfs_format::node::{NODE_SIZE, Page};
use loamfs_format::{BlockKind, FragAddr, Identity, Ino};

/// Any node by its address: what its header says it is, and its entries. Its checksum is not verified, as that
/// stands elsewhere; it is given, for comparison.
///
/// # Errors
/// When the device cannot read it.
pub fn node(volume: &Volume<'_>, device: &dyn Device, at: FragAddr) -> Result<String, CheckError> {
    let offset = volume.geometry().byte_offset(at);
    let bytes = read_exact(device, offset, NODE_SIZE, IoKind::Check)?;
    let Some(identity) = claimed_identity(&bytes) else {
        return Err(CheckError::NoNode { addr: at });
    };
    let page = Page::from_bytes(&bytes, &identity)
        .map_err(|fault| CheckError::Node { addr: at, fault })?;
    Ok(entries(volume, &identity, &page))
}

fn entries(volume: &Volume<'_>, identity: &Identity, page: &Page) -> String {
    let mut out = String::new();
    let uuid = &volume.superblock().uuid;
    line(
        &mut out,
        format_args!(
            "{:?} level {} inode {} generation {:08x} from {} on: {} entries, {} bytes used, {} garbage, checksum {:016x}",
            identity.kind,
            identity.level,
            identity.ino,
            identity.generation,
            identity.logical,
            page.count(),
            page.used_bytes(),
            page.garbage(),
            loamfs_format::pointer::metadata_checksum(uuid, identity, page.as_bytes())
        ),
    );
    for (index, (key, bytes)) in page.iter().enumerate() {
        match page.child(index).filter(|_| identity.level > 0) {
            Some(child) => line(
                &mut out,
                format_args!(
                    "from {key} on: {} says {:?}",
                    pointer(&child.pointer),
                    child.aggregate
                ),
            ),
            None => line(&mut out, value(identity.kind, identity.ino, key, bytes)),
        }
    }
    out
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
