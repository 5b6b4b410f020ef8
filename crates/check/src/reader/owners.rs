//! The owner records as they stand now: those of the checkpoint, cut where something was allocated since.

use super::Volume;
use super::tree::Entries;
use crate::owner::Piece;
use crate::{MapFault, Owner};
use loamfs_format::maps::OwnerRecord;
use loamfs_format::{BlockKind, Extent, FragAddr, Ino};
use std::iter::Peekable;

/// The owner records by address, none overlapping. Damaged parts are errors, and the walk goes on behind them.
pub struct Owners<'v> {
    volume: &'v Volume<'v>,
    tree: Entries<'v>,
    newer: Peekable<Box<dyn Iterator<Item = Piece> + 'v>>,
    /// What is left of the record that was read last.
    rest: Option<Piece>,
    /// Where the last record of the tree ends, and its range.
    last: Extent,
    /// Where the last newer record ends: older ones before it do not count.
    shadow: FragAddr,
}

impl<'v> Owners<'v> {
    /// The records that end behind `from`, as far as they are found: a record of the tree that starts more than its
    /// greatest length before `from` cannot reach it.
    pub(crate) fn new(volume: &'v Volume<'v>, from: FragAddr) -> Owners<'v> {
        // The last record that starts at `from` or before is found by descending to it.
        let first = volume
            .nodes()
            .floor_key(volume.map(BlockKind::OwnerNode), from.0)
            .unwrap_or(from.0);
        let newer: Box<dyn Iterator<Item = Piece> + 'v> =
            Box::new(volume.state().allocated.from(from));
        Owners {
            volume,
            tree: Entries::new(volume, volume.map(BlockKind::OwnerNode), first),
            newer: newer.peekable(),
            rest: None,
            last: Extent::default(),
            shadow: FragAddr(0),
        }
    }

    /// The next record of the tree.
    fn old(&mut self) -> Option<Result<Piece, MapFault>> {
        if let Some(rest) = self.rest.take() {
            return Some(Ok(rest));
        }
        let entry = match self.tree.next()? {
            Ok(entry) => entry,
            Err(fault) => return Some(Err(fault)),
        };
        let geometry = self.volume.geometry();
        let start = FragAddr(entry.key());
        let record = OwnerRecord::decode(entry.value())
            .map(|record| (Extent::new(start, record.frags.into()), record))
            .filter(|(extent, _)| extent.frags > 0 && geometry.holds(*extent));
        let Some((extent, record)) = record else {
            let kind = BlockKind::OwnerNode;
            return Some(Err(MapFault::Entry {
                kind,
                ino: Ino(0),
                key: start.0,
            }));
        };
        let before = std::mem::replace(&mut self.last, extent);
        if before.overlaps(extent) {
            self.last = if before.end() > extent.end() {
                before
            } else {
                extent
            };
            self.rest =
                cut(extent, before.end()).map(|left| (left, owner(&record, start, geometry)));
            return Some(Err(MapFault::OwnerOverlap {
                first: before,
                second: extent,
            }));
        }
        Some(Ok((extent, owner(&record, start, geometry))))
    }
}

fn owner(record: &OwnerRecord, start: FragAddr, geometry: &loamfs_format::Geometry) -> Owner {
    Owner::new(
        record.kind,
        record.level,
        record.ino,
        record.logical,
        start,
        geometry,
    )
}

/// What is left of a range from `at` on.
fn cut(extent: Extent, at: FragAddr) -> Option<Extent> {
    let start = extent.start.max(at);
    (start < extent.end()).then(|| Extent::new(start, extent.end().0 - start.0))
}

impl Iterator for Owners<'_> {
    type Item = Result<Piece, MapFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let old = match self.old() {
                Some(Err(fault)) => return Some(Err(fault)),
                Some(Ok((extent, owner))) => match cut(extent, self.shadow) {
                    Some(extent) => Some((extent, owner)),
                    None => continue,
                },
                None => None,
            };
            let newer = self.newer.peek().map(|(extent, _)| *extent);
            let Some((extent, owner)) = old else {
                return self.newer.next().map(Ok);
            };
            match newer {
                Some(newer) if newer.start <= extent.start => {
                    self.rest = Some((extent, owner));
                    self.shadow = newer.end();
                    return self.newer.next().map(Ok);
                }
                Some(newer) if newer.start < extent.end() => {
                    self.rest = cut(extent, newer.start).map(|left| (left, owner));
                    let here = Extent::new(extent.start, newer.start.0 - extent.start.0);
                    return Some(Ok((here, owner)));
                }
                _ => return Some(Ok((extent, owner))),
            }
        }
    }
}
