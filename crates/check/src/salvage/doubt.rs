//! Units whose newest images nobody knows, as a part of the lazy map cannot be read.
//!
//! A home may hold what an image has long replaced, under a checksum that is as old. Only the map tells; but a unit of
//! which no owner record names an image never had one.

use crate::Volume;
use crate::reader::gaps;
use loamfs_format::{BlockKind, FragAddr, Ino};
use std::collections::BTreeSet;
use std::ops::Range;

/// Units with images that are remembered.
const IMAGES_MAX: usize = 1 << 22;

/// What is not known of the lazy map.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// Homes whose entries cannot be read.
    homes: Vec<Range<u64>>,
    /// Units that have, or had, an image.
    images: BTreeSet<(Ino, u64)>,
}

impl Doubt {
    /// What is in doubt; `None` where nothing tells which units had images.
    pub(super) fn new(volume: &Volume<'_>) -> Option<Doubt> {
        if !volume.has_maps() {
            return None;
        }
        let homes = gaps(volume, volume.map(BlockKind::LazyNode));
        let images = match homes.is_empty() {
            true => BTreeSet::new(),
            false => images(volume)?,
        };
        Some(Doubt { homes, images })
    }

    /// Whether the unit with this home, of which no entry is known, may have one all the same.
    pub(super) fn covers(&self, volume: &Volume<'_>, home: FragAddr, ino: Ino, unit: u64) -> bool {
        let state = volume.state();
        self.homes.iter().any(|range| range.contains(&home.0))
            && !state.lazy.contains_key(&home.0)
            && state.revoked.get(home).is_none()
            && state.allocated.get(home).is_none()
            && self.images.contains(&(ino, unit))
    }
}

fn images(volume: &Volume<'_>) -> Option<BTreeSet<(Ino, u64)>> {
    let (geometry, mut images) = (volume.geometry(), BTreeSet::new());
    for piece in volume.owners(FragAddr(0)) {
        let (extent, owner) = piece.ok()?;
        if owner.kind == BlockKind::Image {
            let first = owner.logical(extent.start, geometry);
            let units = extent.frags.div_ceil(geometry.unit_frags());
            images.extend((first..first.saturating_add(units)).map(|unit| (owner.ino, unit)));
        }
        if images.len() > IMAGES_MAX {
            return None;
        }
    }
    Some(images)
}
