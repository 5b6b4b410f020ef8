//! Where owner records say that blocks of inodes are: the bitmap tells which of them count.

use crate::Volume;
use crate::reader::gaps;
use loamfs_format::group::CHUNK_FRAGS;
use loamfs_format::{BlockKind, Extent, FragAddr, InodeBlockNo};
use std::collections::BTreeMap;
use std::ops::Range;

/// The places of blocks, of those in some ranges; `None` where owner records or bitmap are damaged, so that what they do
/// not name may be there all the same.
pub(super) fn places(volume: &Volume<'_>, blocks: &[Range<u64>]) -> Option<BTreeMap<u64, Extent>> {
    if !gaps(volume, volume.map(BlockKind::BitmapNode)).is_empty() {
        return None;
    }
    let mut places = BTreeMap::new();
    for piece in volume.owners(FragAddr(0)) {
        let (extent, owner) = piece.ok()?;
        if owner.kind != BlockKind::InodeBlock {
            continue;
        }
        let block = InodeBlockNo(owner.logical(extent.start, volume.geometry()));
        if blocks.iter().any(|range| range.contains(&block.0)) && is_live(volume, extent.start)? {
            places.insert(block.0, extent);
        }
    }
    Some(places)
}

/// Whether a fragment is in use, and not only held back.
fn is_live(volume: &Volume<'_>, at: FragAddr) -> Option<bool> {
    let state = volume.state();
    if state.held.get(at).is_some() {
        return Some(false);
    }
    if state.allocated.get(at).is_some() {
        return Some(true);
    }
    let chunk = volume.lookup(volume.map(BlockKind::BitmapNode), at.0 / CHUNK_FRAGS);
    match chunk.ok()?.as_deref() {
        None => Some(false),
        Some([]) => Some(true),
        Some(bits) => {
            let bit = at.0 % CHUNK_FRAGS;
            let byte = bits.get((bit / 8) as usize)?;
            Some(byte >> (bit % 8) & 1 != 0)
        }
    }
}
