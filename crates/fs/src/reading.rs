//! Reading files' contents: where they are, and what stands there. Homes are read through the lazy map (Z2).

mod map;
mod seek;
mod taken;
mod written;

pub use map::{Piece, Place};
pub(crate) use seek::Search;
pub(crate) use written::{Housed, Runs};

use crate::atime::waiting::Atimes;
use crate::blocks::{Blocks, Missed, Stop, What};
use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::extents;
use crate::file::regular;
use crate::inodes::{Inodes, Node};
use crate::law::{Law, Rules};
use crate::loader::Loader;
use crate::maps::Maps;
use crate::unit::{UNIT, UnitBytes, unit_of};
use loamfs_format::inode::{Body, mode};
use loamfs_format::superblock::Superblock;
use loamfs_format::{Extent, FragAddr, Geometry, Ino, Pointer, Ssn};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// What a hole, or what lies behind a file's end, reads as.
pub(crate) static ZEROS: LazyLock<UnitBytes> = LazyLock::new(|| [0; UNIT as usize].into());

/// Bytes of a file, where they are in memory.
#[derive(Debug, Clone)]
pub struct Shared {
    bytes: Arc<[u8]>,
    range: Range<usize>,
}

impl Shared {
    /// These of some bytes, if they are there.
    fn part(bytes: Arc<[u8]>, range: Range<usize>) -> Option<Shared> {
        bytes.get(range.clone())?;
        Some(Shared { bytes, range })
    }

    /// What holds them.
    #[must_use]
    pub fn holder(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Where they are in that.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }
}

/// All bytes of some pieces.
pub(crate) fn joined(pieces: &[Shared]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.range.len()).sum());
    for piece in pieces {
        bytes.extend_from_slice(piece.as_ref());
    }
    bytes
}

/// Where the bytes of a unit of homed data are.
#[derive(Debug, Clone)]
enum Source {
    /// In memory.
    Memory(UnitBytes),
    /// On the device.
    Device(Pointer),
    /// Nowhere: a hole.
    Hole,
}

/// What contents are read from. Inodes and blocks come into memory with it, and nothing else changes.
pub(crate) struct Reading<'c> {
    geometry: &'c Geometry,
    law: &'c Law<dyn Rules>,
    sb: &'c mut Superblock,
    maps: &'c Maps,
    blocks: &'c mut Blocks,
    inodes: &'c mut Inodes,
    atimes: &'c mut Atimes,
}

impl Core {
    /// What contents are read from.
    pub fn reading(&mut self) -> Reading<'_> {
        Reading {
            geometry: &self.geometry,
            law: self.env.law(),
            sb: &mut self.sb,
            maps: &self.maps,
            blocks: &mut self.blocks,
            inodes: &mut self.inodes,
            atimes: &mut self.atimes,
        }
    }
}

impl Reading<'_> {
    /// An inode that is in memory, as [`Core::node`].
    fn node(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        Loader::new(self.sb, self.maps, self.blocks, self.inodes, self.atimes).node(ino)
    }

    /// A regular file that is in memory.
    fn file(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        regular(self.node(ino)?)
    }

    /// The whole content of a small file, or of a symlink.
    pub fn small_content(&mut self, ino: Ino) -> Result<Arc<[u8]>, Stop> {
        let node = self.node(ino)?;
        if let Some(bytes) = node.small() {
            return Ok(Arc::clone(bytes));
        }
        match &node.inode().body {
            Body::Inline(bytes) => Ok(bytes.as_slice().into()),
            body => match body.small() {
                Some(pointer) => self.blocks.bytes(&pointer, What::Data(ino)),
                None => Ok(Arc::default()),
            },
        }
    }

    /// The target of a symlink.
    pub fn link_target(&mut self, ino: Ino) -> Result<Vec<u8>, Stop> {
        if self.node(ino)?.inode().file_type() != mode::SYMLINK {
            return Err(Error::Invalid("not a symbolic link").into());
        }
        Ok(self.small_content(ino)?.to_vec())
    }

    /// Up to `len` bytes from `offset` on, in pieces that follow each other; fewer at the file's end.
    pub fn read(&mut self, ino: Ino, offset: u64, len: usize) -> Result<Vec<Shared>, Stop> {
        let node = self.file(ino)?;
        let size = node.inode().size;
        let end = offset.saturating_add(len as u64).min(size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if !node.is_large() {
            let content = self.small_content(ino)?;
            let piece = Shared::part(content, offset as usize..end as usize);
            return Ok(vec![piece.ok_or(Corrupt::Missing { ino, what: "data" })?]);
        }
        let (first, last) = (offset / UNIT, (end - 1) / UNIT);
        let mut pieces = Vec::with_capacity((last + 1 - first) as usize);
        let mut missed = Missed::default();
        for (unit, source) in self.sources(ino, first, last + 1)? {
            let content = match source {
                Source::Hole => Arc::clone(&ZEROS),
                Source::Memory(content) => content,
                Source::Device(pointer) => {
                    let found = self.blocks.bytes(&pointer, What::Unit { ino, unit });
                    match missed.note(found)? {
                        Some(content) => content,
                        None => continue,
                    }
                }
            };
            let from = (unit * UNIT).max(offset) - unit * UNIT;
            let to = UNIT.min(end - unit * UNIT);
            let piece = Shared::part(content, from as usize..to as usize);
            pieces.push(piece.ok_or(Corrupt::Missing { ino, what: "data" })?);
        }
        missed.nothing()?;
        Ok(pieces)
    }

    /// Where the units `first .. end` of a large file are, in order.
    fn sources(&mut self, ino: Ino, first: u64, end: u64) -> Result<Vec<(u64, Source)>, Stop> {
        let homed = self.node(ino)?.homed();
        let waiting = |unit| match homed.get(unit) {
            Some(bytes) => (unit, Source::Memory(Arc::clone(bytes))),
            None => (unit, Source::Hole),
        };
        let mut found: Vec<(u64, Source)> = (first..end).map(waiting).collect();
        // Where it would stand on the device does not matter to what is in memory.
        if found
            .iter()
            .all(|(_, source)| matches!(source, Source::Memory(_)))
        {
            return Ok(found);
        }
        let mut runs = Runs::default();
        for (unit, home) in self.homes(ino, first, end)? {
            if let Some((_, source @ Source::Hole)) = found.get_mut((unit - first) as usize) {
                *source = Source::Device(self.stored(ino, unit, home, &mut runs)?);
            }
        }
        Ok(found)
    }

    /// Where on the device the content of a unit is that has this home: there, or in an image.
    pub fn stored(
        &mut self,
        ino: Ino,
        unit: u64,
        home: FragAddr,
        runs: &mut Runs,
    ) -> Result<Pointer, Stop> {
        let (addr, crc, birth) = match self.maps.lazy_map().get(&home) {
            Some(entry) => (entry.image, entry.crc, entry.ssn),
            None if self.maps.lazy_map().doubt().covers(home, ino, unit) => {
                return Err(Corrupt::Doubtful { ino, unit }.into());
            }
            None => (home, runs.of(self, ino, unit)?, Ssn(0)),
        };
        if crc == 0 {
            return Err(Corrupt::Data { ino, unit, addr }.into());
        }
        Ok(Pointer {
            addr,
            frags: self.geometry.unit_frags() as u32,
            stored: UNIT as u32,
            birth,
            checksum: crc.into(),
            ..Pointer::NONE
        })
    }

    /// The homes of units `first .. end`, where they have one that segments show, and that was written.
    pub fn homes(&mut self, ino: Ino, first: u64, end: u64) -> Result<Vec<(u64, FragAddr)>, Stop> {
        let geometry = self.geometry;
        let per_block = geometry.block_units();
        self.node(ino)?;
        let node = self.inodes.prepared(ino)?;
        let found = extents::overlapping(
            node.inode(),
            self.blocks,
            geometry,
            first / per_block,
            end.div_ceil(per_block),
        )?;
        let mut housed = self.housed(ino, &found, &(first..end))?;
        housed.retain(|it| it.written);
        Ok(housed.into_iter().map(|it| (it.unit, it.home)).collect())
    }

    /// The units that have their homes in `place`, from block `first` of the file on, those that were never written among
    /// them.
    pub fn homes_in(&mut self, ino: Ino, place: Extent, first: u64) -> Result<Vec<Housed>, Stop> {
        let geometry = self.geometry;
        self.node(ino)?;
        let node = self.inodes.prepared(ino)?;
        let found = extents::placed_in(node.inode(), self.blocks, geometry, place, first)?;
        let mut homes = self.housed(ino, &found, &(0..u64::MAX))?;
        homes.retain(|it| place.contains(it.home));
        Ok(homes)
    }

    /// The whole content of a unit as its home, or its image, has it.
    pub fn shown_unit(&mut self, ino: Ino, unit: u64) -> Result<UnitBytes, Stop> {
        match self.sources(ino, unit, unit + 1)?.pop() {
            Some((_, Source::Memory(bytes))) => Ok(bytes),
            Some((_, Source::Device(pointer))) => {
                self.blocks.bytes(&pointer, What::Unit { ino, unit })
            }
            _ => Ok(Arc::clone(&ZEROS)),
        }
    }

    /// The content of one unit as a caller would read it, zero behind the file's end.
    pub fn unit_content(&mut self, ino: Ino, unit: u64) -> Result<UnitBytes, Stop> {
        let size = self.node(ino)?.inode().size;
        let valid = size.saturating_sub(unit * UNIT).min(UNIT) as usize;
        // What stands behind the end is nobody's.
        if valid == 0 {
            return Ok(Arc::clone(&ZEROS));
        }
        let content = self.shown_unit(ino, unit)?;
        let whole = content.get(valid..) == ZEROS.get(valid..);
        Ok(match whole {
            true => content,
            false => unit_of(content.get(..valid).unwrap_or(&content), 0),
        })
    }

    /// The units that must become zero when a large file grows to reach `offset` or beyond: those from its end to
    /// the end of its last block, or to `offset`, that have a home. What stands there behind the end is undefined.
    pub fn zeroes_behind(
        &mut self,
        ino: Ino,
        offset: u64,
    ) -> Result<BTreeMap<u64, UnitBytes>, Stop> {
        let size = self.node(ino)?.inode().size;
        let mut units = BTreeMap::new();
        if offset <= size {
            return Ok(units);
        }
        let block = u64::from(self.geometry.block_size);
        let end = offset.min(size.next_multiple_of(block));
        let mut stale: Vec<u64> = self
            .homes(ino, size / UNIT, end.div_ceil(UNIT))?
            .into_iter()
            .map(|(unit, _)| unit)
            .collect();
        let homed = self.node(ino)?.homed();
        let waiting = (size / UNIT..end.div_ceil(UNIT)).filter(|u| homed.get(*u).is_some());
        stale.extend(waiting);
        for unit in stale {
            if (unit + 1) * UNIT > size && !units.contains_key(&unit) {
                let content = self.unit_content(ino, unit)?;
                units.insert(unit, content);
            }
        }
        Ok(units)
    }
}
