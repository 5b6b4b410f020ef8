//! Where superblock copies stand, and what nobody else is given for their sake.

use super::{SIZE, Superblock};
use crate::geometry::Geometry;
use crate::types::{Extent, FragAddr};

/// Places of the two copies on a device of at least [`SMALL_DEVICE`] bytes.
pub const OFFSETS: [u64; 2] = [64 << 10, 8 << 20];
/// Places of the two copies on a smaller device.
pub const OFFSETS_SMALL: [u64; 2] = [64 << 10, 128 << 10];
/// Below this many bytes a device has its copies at [`OFFSETS_SMALL`].
pub const SMALL_DEVICE: u64 = 16 << 20;
/// Every place at which a copy may stand; mount probes them all.
pub const PROBES: [u64; 3] = [64 << 10, 128 << 10, 8 << 20];

/// Offsets of the two copies on a device of `bytes` bytes.
pub const fn offsets(bytes: u64) -> [u64; 2] {
    if bytes < SMALL_DEVICE {
        OFFSETS_SMALL
    } else {
        OFFSETS
    }
}

impl Superblock {
    /// Bytes of the volume.
    pub const fn volume_bytes(&self) -> u64 {
        let geometry = &self.geometry;
        geometry.byte_offset(FragAddr(geometry.total_frags))
    }

    /// Whether a range may be given to anybody: it lies on the volume, and no superblock copy in it.
    pub fn gives(&self, extent: Extent) -> bool {
        let reserved = self.reserved_extents();
        self.geometry.holds(extent) && !reserved.iter().any(|r| r.overlaps(extent))
    }

    /// The fragments that the superblock copies take, allocated for good: everything up to the end of each copy's
    /// block of [`crate::geometry::UNIT_SIZE`] bytes; the first also covers the boot area before it.
    pub fn copy_extents(&self) -> [Extent; 2] {
        let frag = u64::from(self.geometry.fragment_size);
        let [first, second] = offsets(self.volume_bytes());
        [
            Extent::new(FragAddr(0), (first + SIZE as u64) / frag),
            Extent::new(FragAddr(second / frag), SIZE as u64 / frag),
        ]
    }

    /// The fragments at which readers look for a copy, though a volume of this size has none there; as far as it reaches
    /// them.
    pub fn other_places(&self) -> Vec<Extent> {
        let Geometry {
            fragment_size,
            total_frags,
            ..
        } = self.geometry;
        let frag = u64::from(fragment_size);
        let own = offsets(self.volume_bytes());
        PROBES
            .into_iter()
            .filter(|at| !own.contains(at) && at / frag < total_frags)
            .map(|at| {
                let frags = (SIZE as u64 / frag).min(total_frags - at / frag);
                Extent::new(FragAddr(at / frag), frags)
            })
            .collect()
    }

    /// All fragments that no segment allocates.
    pub fn reserved_extents(&self) -> Vec<Extent> {
        let mut extents = self.copy_extents().to_vec();
        if self.reserves_places() {
            extents.extend(self.other_places());
        }
        extents.extend(self.gaps());
        extents
    }
}
