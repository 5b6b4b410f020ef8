//! The units of large files, and their bytes.

use std::sync::Arc;

/// Bytes of a unit.
pub(crate) const UNIT: u64 = loamfs_format::superblock::UNIT_SIZE as u64;

/// One unit's bytes.
pub(crate) type UnitBytes = Arc<[u8]>;

/// A unit of some content, zero behind its end.
pub(crate) fn unit_of(content: &[u8], unit: u64) -> UnitBytes {
    let from = content.len().min((unit * UNIT) as usize);
    let to = content.len().min(from + UNIT as usize);
    let part = &content[from..to];
    match part.len() as u64 {
        UNIT => part.into(),
        _ => filled(UNIT as usize, |room| {
            room[..part.len()].copy_from_slice(part)
        }),
    }
}

/// `len` bytes, which are zero but for what `fill` writes: bytes of a file are copied once, to where they stay.
pub(crate) fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Arc<[u8]> {
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    fill(Arc::make_mut(&mut bytes));
    bytes
}
