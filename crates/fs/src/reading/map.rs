//! Where a file's content is, for people who look (`loamfs map`).

use super::Reading;
use crate::blocks::Stop;
use crate::error::{Corrupt, Error};
use crate::extents::{self, STEP_EXTENTS, STEP_UNITS};
use crate::inodes::Node;
use crate::unit::UNIT;
use loamfs_format::ifile::{block_of, slot_of};
use loamfs_format::inode::{Body, FileExtent, SIZE, TAIL};
use loamfs_format::{FragAddr, Ino};
use std::collections::BTreeMap;
use std::ops::Range;

/// Where a part of a file's content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it reads as zeros.
    Hole,
    /// In memory only; the next commit writes it.
    Memory,
    /// In the inode from this byte on.
    Inode(u64),
    /// In the inode, of which a segment's summary says what changed (rule 16).
    Summary,
    /// In the log, or in a track, from this byte on: a small file.
    Log(u64),
    /// At home from this byte on.
    Home(u64),
    /// Reserved from this byte on, and never written: it reads as zeros.
    Unwritten(u64),
    /// In the log from byte `image` on, until it settles at byte `home`.
    Image {
        /// Where it is.
        image: u64,
        /// Where it belongs.
        home: u64,
    },
}

/// A part of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Where they are.
    pub place: Place,
}

impl Place {
    /// The place `bytes` bytes on.
    fn ahead(self, bytes: u64) -> Place {
        match self {
            Place::Hole | Place::Memory | Place::Summary => self,
            Place::Inode(at) => Place::Inode(at + bytes),
            Place::Log(at) => Place::Log(at + bytes),
            Place::Home(at) => Place::Home(at + bytes),
            Place::Unwritten(at) => Place::Unwritten(at + bytes),
            Place::Image { image, home } => Place::Image {
                image: image + bytes,
                home: home + bytes,
            },
        }
    }
}

/// Puts a piece behind the others, as part of the last one if it continues that.
pub(crate) fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    if piece.len == 0 {
        return;
    }
    match pieces.last_mut() {
        Some(last) if last.place.ahead(last.len) == piece.place => last.len += piece.len,
        _ => pieces.push(piece),
    }
}

impl Reading<'_> {
    /// Where a regular file's content is from byte `from` on, as far as a bounded step sees; and where to go on, `None`
    /// at the end of the file.
    pub fn map(&mut self, ino: Ino, from: u64) -> Result<(Vec<Piece>, Option<u64>), Stop> {
        let node = self.file(ino)?;
        let (size, large) = (node.inode().size, node.is_large());
        if from >= size {
            return Ok((Vec::new(), None));
        }
        if large {
            return self.map_large(ino, from, size);
        }
        let piece = Piece {
            offset: 0,
            len: size,
            place: self.small_place(ino)?,
        };
        Ok((vec![piece], None))
    }

    /// Where a small file's content is.
    fn small_place(&mut self, ino: Ino) -> Result<Place, Stop> {
        let node = self.file(ino)?;
        let (changed, body) = (node.small().is_some(), node.inode().body.clone());
        let dirty = changed || node.is_dirty() && matches!(body, Body::Inline(_));
        Ok(match body {
            _ if dirty => Place::Memory,
            Body::Inline(_) if self.inodes.deltas().has(ino) => Place::Summary,
            Body::Inline(_) => {
                let entry = self.maps.ifile_entry(self.blocks, block_of(ino))?;
                self.blocks.check(&entry.pointer, ino)?;
                let missing = Corrupt::Missing {
                    ino,
                    what: "its place in the inode block",
                };
                let within = entry.offset_of(slot_of(ino)).ok_or(missing)? + (SIZE - TAIL);
                Place::Inode(self.geometry.byte_offset(entry.pointer.addr) + within as u64)
            }
            body => match body.small() {
                Some(pointer) => {
                    self.blocks.check(&pointer, ino)?;
                    Place::Log(self.geometry.byte_offset(pointer.addr))
                }
                None => Place::Hole,
            },
        })
    }

    fn map_large(
        &mut self,
        ino: Ino,
        from: u64,
        size: u64,
    ) -> Result<(Vec<Piece>, Option<u64>), Stop> {
        let geometry = self.geometry;
        let block = u64::from(geometry.block_size);
        let (first, end) = (from / block, size.div_ceil(block));
        let found = self.extents_from(ino, first, end, STEP_EXTENTS)?;
        let stop = match found.last() {
            Some(last) if found.len() == STEP_EXTENTS => {
                (last.block + extents::blocks_of(last, geometry)).min(end)
            }
            _ => end,
        };
        let per_block = geometry.block_units();
        // What was written is told by checksums there.
        let stop = match found.iter().any(|extent| extent.pointer.unwritten) {
            true => stop.min(first + (STEP_UNITS / per_block).max(1)),
            false => stop,
        };
        let units = from / UNIT..stop * per_block;
        let elsewhere = self.elsewhere(ino, &found, &units)?;
        let mut pieces = Vec::new();
        let mut at = units.start;
        for extent in &found {
            let start = (extent.block * per_block).clamp(at, units.end);
            let blocks = extents::blocks_of(extent, geometry);
            let end = ((extent.block + blocks) * per_block).clamp(start, units.end);
            lay(&mut pieces, at..start, Place::Hole, &elsewhere);
            let home = Place::Home(geometry.byte_offset(extent.pointer.addr));
            let ahead = (start - (extent.block * per_block).min(start)) * UNIT;
            lay(&mut pieces, start..end, home.ahead(ahead), &elsewhere);
            at = end;
        }
        lay(&mut pieces, at..units.end, Place::Hole, &elsewhere);
        let next = (stop * block).min(size);
        cut(&mut pieces, from..next);
        Ok((pieces, (next < size).then_some(next)))
    }

    /// The units of a file whose newest content is not where its extents say: in memory, or in the log.
    fn elsewhere(
        &mut self,
        ino: Ino,
        extents: &[FileExtent],
        units: &Range<u64>,
    ) -> Result<BTreeMap<u64, Place>, Stop> {
        let geometry = self.geometry;
        let unit_frags = geometry.unit_frags();
        let mut found = BTreeMap::new();
        for extent in extents {
            let at = extent.pointer.extent();
            for (home, entry) in self.maps.lazy_map().within(at) {
                let unit =
                    extent.block * geometry.block_units() + (home.0 - at.start.0) / unit_frags;
                let bytes = |addr: FragAddr| geometry.byte_offset(addr);
                let (image, home) = (bytes(entry.image), bytes(*home));
                found.insert(unit, Place::Image { image, home });
            }
        }
        let unwritten = extents.iter().filter(|extent| extent.pointer.unwritten);
        for it in self.housed(ino, &unwritten.copied().collect::<Vec<_>>(), units)? {
            if !it.written {
                found.insert(it.unit, Place::Unwritten(geometry.byte_offset(it.home)));
            }
        }
        let Some(node) = self.inodes.get(ino) else {
            return Err(Error::Stale(ino).into());
        };
        found.extend(waiting(node, units).map(|unit| (unit, Place::Memory)));
        Ok(found)
    }
}

/// The units in a range that are in memory only.
fn waiting<'a>(node: &'a Node, units: &Range<u64>) -> impl Iterator<Item = u64> + use<'a> {
    node.homed().units_in(units)
}

/// Adds the units of a range that lie from `place` on, but for those that are elsewhere.
fn lay(pieces: &mut Vec<Piece>, units: Range<u64>, place: Place, elsewhere: &BTreeMap<u64, Place>) {
    let mut at = units.start;
    let mut add = |range: Range<u64>, place: Place| {
        let piece = Piece {
            offset: range.start * UNIT,
            len: (range.end - range.start) * UNIT,
            place,
        };
        push(pieces, piece);
    };
    for (unit, other) in elsewhere.range(units.clone()) {
        add(at..*unit, place.ahead((at - units.start) * UNIT));
        add(*unit..unit + 1, *other);
        at = unit + 1;
    }
    add(at..units.end, place.ahead((at - units.start) * UNIT));
}

/// Leaves the part of some pieces that lies in a range of bytes.
fn cut(pieces: &mut Vec<Piece>, range: Range<u64>) {
    for piece in pieces.iter_mut() {
        let start = piece.offset.max(range.start);
        let end = (piece.offset + piece.len).min(range.end).max(start);
        piece.place = piece.place.ahead(start - piece.offset);
        (piece.offset, piece.len) = (start, end - start);
    }
    pieces.retain(|piece| piece.len > 0);
}
