//! Carrying large files of a directory to the devices where it says that they should be, piece by piece.

use super::placing::is_placed_in;
use super::unless_damaged;
use crate::blocks::Stop;
use crate::core::Core;
use crate::dir;
use crate::extents;
use loamfs_format::inode::{FileExtent, Tier, Tiering};
use loamfs_format::{FragAddr, Geometry, Ino};

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

    fn on(&mut self, tier: Tier) -> &mut u64 {
        match tier {
            Tier::Fast => &mut self.fast,
            Tier::Auto | Tier::Slow => &mut self.slow,
        }
    }

    /// The same without what a step has taken.
    pub fn without(mut self, carried: &Carried) -> Room {
        let on = self.on(carried.to);
        *on = on.saturating_sub(carried.bytes);
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
}

/// A part of a file that begins with a block.
enum Part {
    /// It is not on the devices of this tier, where it should be.
    Elsewhere(FileExtent, Tier),
    /// It is where it should be, or nowhere, up to a block.
    There(u64),
    /// Nothing follows.
    End,
}

impl Carry {
    /// Takes the step.
    pub fn take(&self, core: &mut Core) -> Result<Carried, Stop> {
        let mut from = self.from;
        for _ in 0..NAMES_MAX {
            let (node, blocks) = core.loader().directory(self.dir)?;
            let Some(entry) = dir::next(node.inode(), blocks, from.0)? else {
                return Ok(Carried::default());
            };
            let (key, ino) = (entry.key, entry.ino);
            let block = match key == from.0 {
                true => from.1,
                false => 0,
            };
            match self.part(core, ino, block)? {
                Part::End => from = (key.saturating_add(1), 0),
                Part::There(end) => from = (key, end),
                Part::Elsewhere(piece, to) => {
                    let frags = FragAddr(piece.pointer.frags.into());
                    let bytes = core.geometry.byte_offset(frags);
                    let mut room = self.room;
                    if bytes > *room.on(to) {
                        return Ok(Carried {
                            full: true,
                            ..Carried::default()
                        });
                    }
                    let moved = core.mover().carry(ino, &piece).map(Some);
                    let moved = unless_damaged(ino, moved)?.is_some();
                    let end = piece.block + extents::blocks_of(&piece, &core.geometry);
                    return Ok(Carried {
                        next: Some((key, end)),
                        begins: moved && block == 0,
                        bytes: if moved { bytes } else { 0 },
                        to,
                        full: false,
                    });
                }
            }
        }
        Ok(Carried {
            next: Some(from),
            ..Carried::default()
        })
    }

    /// The next part of a file from a block on.
    fn part(&self, core: &mut Core, ino: Ino, block: u64) -> Result<Part, Stop> {
        let to = match core.node(ino) {
            Ok(node) if is_placed_in(node.inode(), self.dir) => self.to.of_size(node.inode().size),
            Ok(_) | Err(Stop::Failed(_)) => return Ok(Part::End),
            Err(stop) => return Err(stop),
        };
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
            return Ok(Part::Elsewhere(piece, to));
        }
        let end = |last: &FileExtent| last.block + extents::blocks_of(last, geometry);
        Ok(found
            .last()
            .map_or(Part::End, |last| Part::There(end(last))))
    }
}

/// An extent from a block on in pieces of at most `longest` blocks, each of which lies in one group and so on one device.
fn pieces(
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
