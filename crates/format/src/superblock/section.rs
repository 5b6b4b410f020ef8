//! The section of a device: how its blocks of large files are given out (hybridFS, section III.B).

use super::{DeviceEntry, Superblock};
use crate::geometry::Geometry;

/// The smallest flash block and extent, bytes, as a power of two.
const LEAST: u8 = 12;
/// The largest.
const MOST: u8 = 26;

/// Sizes of a section, powers of two. Whole extents are given out, which begin where flash blocks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Bytes of a flash block, as a power of two.
    flash_block: u8,
    /// Bytes of an extent, likewise.
    extent: u8,
}

/// A size as a power of two, if it is one that a section may have.
fn power(bytes: u64) -> Option<u8> {
    let power = bytes.checked_ilog2().filter(|_| bytes.is_power_of_two())?;
    u8::try_from(power).ok().filter(is_power)
}

fn is_power(power: &u8) -> bool {
    (LEAST..=MOST).contains(power)
}

impl Section {
    /// One of flash blocks and extents of so many bytes: powers of two from 4 KiB to 64 MiB.
    pub fn new(flash_block: u64, extent: u64) -> Option<Section> {
        Some(Section {
            flash_block: power(flash_block)?,
            extent: power(extent)?,
        })
    }

    /// Bytes of a flash block.
    pub const fn flash_block(self) -> u64 {
        1 << self.flash_block
    }

    /// Bytes of an extent.
    pub const fn extent(self) -> u64 {
        1 << self.extent
    }

    /// The byte of an entry for this, or for none.
    pub(super) fn encode(section: Option<Section>) -> u8 {
        let nibble = |power: u8| (power + 1).saturating_sub(LEAST);
        section.map_or(0, |it| nibble(it.extent) << 4 | nibble(it.flash_block))
    }

    /// What such a byte says; `None` if nothing may say it.
    pub(super) fn decode(raw: u8) -> Option<Option<Section>> {
        let section = Section {
            flash_block: (raw & 15) + LEAST - 1,
            extent: (raw >> 4) + LEAST - 1,
        };
        match raw {
            0 => Some(None),
            _ => [section.flash_block, section.extent]
                .iter()
                .all(is_power)
                .then_some(Some(section)),
        }
    }

    /// How many bytes into each group of a device the first flash block begins, if a block does there, and extents and flash blocks
    /// fit into groups.
    fn first(self, entry: &DeviceEntry, geometry: &Geometry) -> Option<u64> {
        let fragment = u64::from(geometry.fragment_size);
        let group = geometry.group_frags.checked_mul(fragment)?;
        let first = entry.offset.wrapping_neg() % self.flash_block();
        let fits = self.flash_block() <= group && self.extent() <= group;
        (fits && first.is_multiple_of(geometry.block_size.into())).then_some(first)
    }

    /// Whether a device of such groups can have it.
    pub fn fits(self, entry: &DeviceEntry, geometry: &Geometry) -> bool {
        self.first(entry, geometry).is_some()
    }
}

impl Superblock {
    /// The devices that have a section, each with the sizes of that, and how many bytes into each of its groups the first flash block
    /// begins.
    pub fn sections(&self) -> impl Iterator<Item = (&DeviceEntry, Section, u64)> {
        self.devices.iter().filter_map(|entry| {
            let section = entry.section?;
            let first = section.first(entry, &self.geometry)?;
            Some((entry, section, first))
        })
    }
}
