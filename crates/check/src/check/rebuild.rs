//! What is known otherwise of what nodes of maps said that cannot be used.
//!
//! A map is only found out anew while everything else that tells of it can be read: nothing is guessed.

use super::draft::Draft;
use super::first::Found;
use super::planner::LIST_MAX;
use super::tell;
use crate::reader::gaps;
use crate::salvage::{is_live, refind};
use crate::{Options, Phase, Problem, Volume};
use loamfs_format::checksum::unit_crc;
use loamfs_format::ifile::ino_at;
use loamfs_format::kind::MapTree;
use loamfs_format::maps::LazyEntry;
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_format::{BlockKind, FragAddr, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// Plans to take out the nodes that cannot be used, where what they said is known.
pub(super) fn plan(
    volume: &Volume<'_>,
    found: &Found,
    report: &mut Draft,
    options: &mut Options<'_>,
) {
    let lost = &found.lost;
    if lost.groups && !lost.bits && !lost.owners {
        take_out(MapTree::Group, "bitmap and owner records", found, report);
    } else if lost.is_only(MapTree::Bitmap) {
        take_out(
            MapTree::Bitmap,
            "owner records and what is in use",
            found,
            report,
        );
    } else if lost.is_only(MapTree::Lazy) {
        if let Some(images) = images(volume) {
            report.plan().set_images(images);
            take_out(MapTree::Lazy, "the images' owner records", found, report);
        }
    } else if lost.is_only(MapTree::Ifile) {
        if options.quick {
            report.skip("where lost inodes are, which only the whole device tells");
        } else {
            search(volume, found, report, options);
        }
    }
}

/// Looks for the inodes below nodes of the IFILE that cannot be used.
fn search(volume: &Volume<'_>, found: &Found, report: &mut Draft, options: &mut Options<'_>) {
    let unknown = gaps(volume, volume.map(BlockKind::IfileNode));
    let mut tell = |done, total| tell(options, Phase::Search, done, total);
    let Some(inodes) = refind(volume, &unknown, LIST_MAX, &mut tell) else {
        return;
    };
    report.plan().set_inode_blocks(inodes.entries);
    for block in inodes.gone {
        let (first, last) = (ino_at(block, 0), ino_at(block, 31));
        report.add(Problem::InodesLost { block, first, last });
    }
    let blocks = inodes.unproved;
    if blocks > 0 {
        report.add(Problem::InodesUnproved { blocks });
    }
    take_out(
        MapTree::Ifile,
        "the inodes, where owner records say that they are",
        found,
        report,
    );
}

fn take_out(map: MapTree, from: &'static str, found: &Found, report: &mut Draft) {
    let nodes = found.nodes.iter().filter(|(of, ..)| *of == map).copied();
    if report.plan().take_out(nodes) {
        report.add(Problem::MapKnown {
            kind: map.kind(),
            from,
        });
    }
}

/// The entries that the lazy map should have for images that are in use, and that no entry names. `None` where they are
/// not known for certain.
fn images(volume: &Volume<'_>) -> Option<Vec<(FragAddr, LazyEntry)>> {
    let known: Vec<_> = volume.lazy(FragAddr(0)).flatten().collect();
    let homes: BTreeSet<u64> = known.iter().map(|(home, _)| *home).collect();
    let named: BTreeSet<FragAddr> = known.iter().map(|(_, entry)| entry.image).collect();
    let (geometry, mut count) = (volume.geometry(), 0);
    let mut wanted: BTreeMap<Ino, BTreeMap<u64, FragAddr>> = BTreeMap::new();
    for piece in volume.owners(FragAddr(0)) {
        let (extent, owner) = piece.ok()?;
        if owner.kind != BlockKind::Image {
            continue;
        }
        for at in (extent.start.0..extent.end().0).step_by(geometry.unit_frags() as usize) {
            let image = FragAddr(at);
            if named.contains(&image) || !is_live(volume, image)? {
                continue;
            }
            let unit = owner.logical(image, geometry);
            let other = wanted.entry(owner.ino).or_default().insert(unit, image);
            count += 1;
            if other.is_some() || count > LIST_MAX {
                return None;
            }
        }
    }
    let mut entries = Vec::with_capacity(count);
    for (ino, units) in wanted {
        entries.extend(of_file(volume, ino, units)?);
    }
    let is_new = entries.iter().all(|(home, _)| !homes.contains(&home.0));
    is_new.then_some(entries)
}

/// The entries for units of a file that have images.
fn of_file(
    volume: &Volume<'_>,
    ino: Ino,
    mut units: BTreeMap<u64, FragAddr>,
) -> Option<Vec<(FragAddr, LazyEntry)>> {
    let geometry = volume.geometry();
    let (per_block, unit_frags) = (geometry.block_units(), geometry.unit_frags());
    let inode = volume.inode(ino).ok()?;
    let mut entries = Vec::new();
    for extent in volume.extents(&inode) {
        let extent = extent.ok()?;
        let first = extent.block.checked_mul(per_block)?;
        let count = u64::from(extent.pointer.frags) / unit_frags;
        let here: Vec<u64> = units
            .range(first..first.saturating_add(count))
            .map(|(unit, _)| *unit)
            .collect();
        for unit in here {
            let image = units.remove(&unit)?;
            let home = FragAddr(extent.pointer.addr.0 + (unit - first) * unit_frags);
            let bytes = volume.io().read(image, UNIT_SIZE as usize).ok()?;
            let entry = LazyEntry {
                image,
                crc: unit_crc(&bytes),
                // All that is known: it was there at the checkpoint.
                ssn: volume.base().header.ssn,
                ino,
                unit,
            };
            entries.push((home, entry));
        }
    }
    // An image of a unit without a home is nobody's.
    units.is_empty().then_some(entries)
}
