//! Carrying large files to the devices where their directory says that they should be, piece by piece.

use super::placing::{is_placed_in, is_whole, is_written_back};
use super::unless_damaged;
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir;
use crate::error::Error;
use crate::extents;
use loamfs_format::inode::{FileExtent, Tier, Tiering};
use loamfs_format::{Extent, FragAddr, Geometry, Ino};
use std::ops::Range;

/// Names that are looked at together for a file to carry.
const NAMES_MAX: usize = 256;
/// Extents of a file that are.
const EXTENTS_MAX: usize = 256;
/// Bytes that one step carries at most, as a program would write them.
const PIECE: u64 = 1 << 20;

/// A place in a directory: the key of a name, and a block of its file.
pub(crate) type At = (u64, u64);

/// Has the next piece of a large file of a directory, from a place on, wait for other homes, unless it is where it should be.
pub(crate) struct Carry {
    pub dir: Ino,
    pub from: At,
    pub to: Tiering,
    pub room: Room,
}

/// Bytes that have room on the devices of each tier.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    fast: u64,
    slow: u64,
}

impl Room {
    /// As it is now.
    pub fn of(core: &mut Core) -> Room {
        let geometry = core.geometry;
        let placement = core.space.placement();
        let [fast, slow] = [Tier::Fast, Tier::Slow].map(|tier| placement.room_on(tier));
        let bytes = |frags| geometry.byte_offset(FragAddr(frags));
        Room {
            fast: bytes(fast),
            slow: bytes(slow),
        }
    }

    /// Whether bytes fit.
    fn fits(mut self, tier: Tier, bytes: u64) -> bool {
        bytes <= *self.on(tier)
    }

    fn on(&mut self, tier: Tier) -> &mut u64 {
        match tier {
            Tier::Fast => &mut self.fast,
            Tier::Auto | Tier::Slow => &mut self.slow,
        }
    }

    /// The same without so many bytes on the devices of a tier.
    pub fn without(mut self, tier: Tier, bytes: u64) -> Room {
        let on = self.on(tier);
        *on = on.saturating_sub(bytes);
        self
    }
}

/// What a step came to.
#[derive(Default)]
pub(crate) struct Carried {
    /// Where the next step begins; `None` at the end of the directory.
    pub next: Option<At>,
    /// Whether it was the first piece of its file.
    pub begins: bool,
    pub bytes: u64,
    /// Where they go.
    pub to: Tier,
    /// There is no room for it.
    pub full: bool,
    /// What is where it should be of a file that bypasses the fast devices.
    pub bypasses: Vec<Extent>,
}

/// A part of a file that begins with a block.
enum Part {
    /// It is not where it should be.
    Elsewhere(FileExtent),
    /// It is where it should be, or nowhere, up to a block.
    There(u64),
    /// Nothing follows.
    End,
}

impl Carry {
    /// Takes the step.
    pub fn take(&self, core: &mut Core) -> Result<Carried, Stop> {
        let (mut from, mut bypasses) = (self.from, Vec::new());
        for _ in 0..NAMES_MAX {
            let (node, blocks) = core.loader().directory(self.dir)?;
            let Some(entry) = dir::next(node.inode(), blocks, from.0)? else {
                return Ok(Carried {
                    bypasses,
                    ..Carried::default()
                });
            };
            let (key, ino) = (entry.key, entry.ino);
            let block = match key == from.0 {
                true => from.1,
                false => 0,
            };
            let Some(to) = self.goes_to(core, ino)? else {
                from = (key.saturating_add(1), 0);
                continue;
            };
            match part(core, ino, block, to)? {
                Part::End => from = (key.saturating_add(1), 0),
                Part::There(end) => {
                    bypasses.extend(self.bypass(core, ino, block..end)?);
                    from = (key, end);
                }
                Part::Elsewhere(piece) => {
                    bypasses.extend(self.bypass(core, ino, block..piece.block)?);
                    let Some(moved) = carry(core, ino, &piece, to, self.room)? else {
                        return Ok(Carried {
                            full: true,
                            bypasses,
                            ..Carried::default()
                        });
                    };
                    return Ok(Carried {
                        next: Some((key, moved.next)),
                        begins: moved.bytes > 0 && block == 0,
                        bytes: moved.bytes,
                        to,
                        full: false,
                        bypasses,
                    });
                }
            }
        }
        Ok(Carried {
            next: Some(from),
            bypasses,
            ..Carried::default()
        })
    }

    /// Where blocks of a file are that are to bypass the fast devices, and do.
    fn bypass(&self, core: &mut Core, ino: Ino, blocks: Range<u64>) -> Result<Vec<Extent>, Stop> {
        if self.to != Tiering::Bypass {
            return Ok(Vec::new());
        }
        let found = core
            .reading()
            .extents_from(ino, blocks.start, blocks.end, EXTENTS_MAX)?;
        Ok(found.iter().map(|it| it.pointer.extent()).collect())
    }

    /// On which devices the blocks of a file should be, if it is one of the directory's.
    fn goes_to(&self, core: &mut Core, ino: Ino) -> Result<Option<Tier>, Stop> {
        match core.node(ino) {
            Ok(node) if is_placed_in(node.inode(), self.dir) => {
                Ok(Some(self.to.of_size(node.inode().size)))
            }
            Ok(_) | Err(Stop::Failed(_)) => Ok(None),
            Err(stop) => Err(stop),
        }
    }
}

/// Has the next piece of a large file that is written back, from a block on, wait for homes on slow devices.
pub(crate) struct PayBack {
    pub ino: Ino,
    pub from: u64,
    pub room: Room,
}

/// What such a step came to.
pub(crate) enum Paid {
    /// A piece waits, or nothing; it goes on behind it.
    Piece(Piece),
    /// Nothing of it is on fast devices behind that, or can be moved now.
    All,
    /// It is not written back, or is no more.
    Nothing,
    /// There is no room on slow devices.
    Full,
}

impl PayBack {
    /// Takes the step.
    pub fn take(&self, core: &mut Core) -> Result<Paid, Stop> {
        let PayBack { ino, from, room } = *self;
        match core.node(ino) {
            Ok(node) if is_whole(node.inode()) => {}
            Ok(_) => return Ok(Paid::All),
            Err(Stop::Failed(Error::Stale(_))) => return Ok(Paid::Nothing),
            Err(Stop::Failed(_)) => return Ok(Paid::All),
            Err(stop) => return Err(stop),
        }
        if !is_written_back(core, ino)? {
            return Ok(Paid::Nothing);
        }
        Ok(match part(core, ino, from, Tier::Slow)? {
            Part::End => Paid::All,
            Part::There(next) => Paid::Piece(Piece { next, bytes: 0 }),
            Part::Elsewhere(piece) => {
                carry(core, ino, &piece, Tier::Slow, room)?.map_or(Paid::Full, Paid::Piece)
            }
        })
    }
}

/// A piece of a file that was carried.
pub(crate) struct Piece {
    /// The block behind it.
    pub next: u64,
    /// What of it moves.
    pub bytes: u64,
}

/// Has a piece of a file wait for homes on the devices of a tier; none where it has no room there.
fn carry(
    core: &mut Core,
    ino: Ino,
    piece: &FileExtent,
    to: Tier,
    room: Room,
) -> Result<Option<Piece>, Stop> {
    let frags = FragAddr(piece.pointer.frags.into());
    let bytes = core.geometry.byte_offset(frags);
    if !room.fits(to, bytes) {
        return Ok(None);
    }
    let moved = core.mover().carry(ino, piece).map(Some);
    let moved = unless_damaged(ino, moved)?.is_some();
    Ok(Some(Piece {
        next: piece.block + extents::blocks_of(piece, &core.geometry),
        bytes: if moved { bytes } else { 0 },
    }))
}

/// The next part of a file from a block on, which should be on the devices of a tier.
fn part(core: &mut Core, ino: Ino, block: u64, to: Tier) -> Result<Part, Stop> {
    let found = core
        .reading()
        .extents_from(ino, block, u64::MAX, EXTENTS_MAX);
    let Some(found) = unless_damaged(ino, found.map(Some))? else {
        return Ok(Part::End);
    };
    let (geometry, usage) = (&core.geometry, core.space.usage());
    // A step of more than may wait would be sent back for ever.
    let longest = PIECE.min(core.writeback.bytes_max() / 2) / u64::from(geometry.block_size);
    let is_elsewhere = |piece: &FileExtent| !usage.is_on(to, piece.pointer.addr);
    let mut pieces = found
        .iter()
        .flat_map(|extent| pieces(extent, block, longest.max(1), geometry));
    if let Some(piece) = pieces.find(is_elsewhere) {
        return Ok(Part::Elsewhere(piece));
    }
    let end = |last: &FileExtent| last.block + extents::blocks_of(last, geometry);
    Ok(found
        .last()
        .map_or(Part::End, |last| Part::There(end(last))))
}

/// An extent from a block on in pieces of at most `longest` blocks, each of which lies in one group and so on one device.
pub(crate) fn pieces(
    extent: &FileExtent,
    from: u64,
    longest: u64,
    geometry: &Geometry,
) -> impl Iterator<Item = FileExtent> + use<> {
    let (extent, geometry) = (*extent, *geometry);
    let end = extent.block + extents::blocks_of(&extent, &geometry);
    let mut at = extent.block.max(from);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let rest = extents::clip(&extent, &geometry, at, end);
        let group = geometry.group_extent(geometry.group_of(rest.pointer.addr));
        let within = group.end().0.saturating_sub(rest.pointer.addr.0) / geometry.block_frags();
        let piece = extents::clip(&rest, &geometry, at, at + within.clamp(1, longest));
        at += extents::blocks_of(&piece, &geometry);
        Some(piece)
    })
}
