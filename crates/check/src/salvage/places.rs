//! Where owner records say that blocks of inodes are: the bitmap tells which of them count.

use super::sightings::{By, Sightings};
use super::{Options, scan};
use crate::Volume;
use crate::reader::gaps;
use loamfs_format::group::CHUNK_FRAGS;
use loamfs_format::ifile::{IfileEntry, slot_of};
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_format::{BlockKind, Extent, FragAddr, InodeBlockNo};
use std::collections::BTreeSet;
use std::ops::Range;

/// The places of blocks, of those in some ranges; `None` where owner records or bitmap are damaged, so that what they do
/// not name may be there all the same.
pub(super) fn places(
    volume: &Volume<'_>,
    blocks: &[Range<u64>],
) -> Option<Vec<(InodeBlockNo, Extent)>> {
    if !gaps(volume, volume.map(BlockKind::BitmapNode)).is_empty() {
        return None;
    }
    let mut places = Vec::new();
    for piece in volume.owners(FragAddr(0)) {
        let (extent, owner) = piece.ok()?;
        if owner.kind != BlockKind::InodeBlock {
            continue;
        }
        let block = InodeBlockNo(owner.logical(extent.start, volume.geometry()));
        if blocks.iter().any(|range| range.contains(&block.0)) && is_live(volume, extent.start)? {
            places.push((block, extent));
        }
    }
    Some(places)
}

/// Blocks of inodes of which the IFILE does not tell.
pub(crate) struct Refound {
    /// Those that were found, and what the IFILE should say of them.
    pub(crate) entries: Vec<(InodeBlockNo, IfileEntry)>,
    /// How many of them nothing tells a checksum of.
    pub(crate) unproved: u64,
    /// Those that are not where they were.
    pub(crate) gone: Vec<InodeBlockNo>,
}

/// Finds the blocks of inodes in some ranges, at most so many, by where owner records and bitmap say that they are. `None`
/// where these do not say it for certain.
pub(crate) fn refind(
    volume: &Volume<'_>,
    blocks: &[Range<u64>],
    most: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Option<Refound> {
    let mut places = places(volume, blocks)?;
    // The log tells of these.
    places.retain(|(block, _)| !volume.state().ifile.contains_key(&block.0));
    let distinct: BTreeSet<InodeBlockNo> = places.iter().map(|(block, _)| *block).collect();
    if distinct.len() != places.len() || places.len() > most {
        return None;
    }
    let mut options = Options {
        uuid: None,
        block_size: None,
        progress,
    };
    let at: BTreeSet<_> = places
        .iter()
        .map(|(block, extent)| (*block, extent.start))
        .collect();
    let wanted = |block, addr| at.contains(&(block, addr));
    let device = volume.io().device;
    let seen = scan::scan(device, volume.superblock(), &wanted, &mut options);
    let seen = seen.ok()?.into_sightings();
    let mut found = Refound {
        entries: Vec::with_capacity(places.len()),
        unproved: 0,
        gone: Vec::new(),
    };
    for (block, extent) in places {
        match at_its_place(volume, block, extent, &seen) {
            Some((by, entry)) => {
                found.unproved += u64::from(by == By::Itself);
                let entry = without_the_nameless(volume, block, entry);
                if entry.live != 0 {
                    found.entries.push((block, entry));
                }
            }
            None => found.gone.push(block),
        }
    }
    Some(found)
}

/// Whether a fragment is in use, and not only held back.
pub(crate) fn is_live(volume: &Volume<'_>, at: FragAddr) -> Option<bool> {
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

/// The newest entry that the IFILE may have had of a block, which stands at this place and of which the log does not tell.
pub(super) fn at_its_place(
    volume: &Volume<'_>,
    block: InodeBlockNo,
    extent: Extent,
    seen: &Sightings,
) -> Option<(By, IfileEntry)> {
    // What a segment from the base on said would be known: what seems to be from one was cut off.
    let base = volume.base().header.ssn;
    let here = seen.at(block, extent.start).into_iter();
    here.map(|s| (s.by, s.entry))
        .filter(|(_, entry)| entry.ssn < base)
        .chain(at_place(volume, block, extent).map(|entry| (By::Itself, entry)))
        .find_map(|(by, entry)| Some((by, sound(volume, block, entry)?)))
}

/// An entry that the IFILE may have had, with the inodes that came since, if the block has what it says.
pub(super) fn sound(
    volume: &Volume<'_>,
    block: InodeBlockNo,
    entry: IfileEntry,
) -> Option<IfileEntry> {
    let entry = with_those_that_came(volume, block, entry);
    is_sound(volume, block, &entry).then_some(entry)
}

/// An entry that the IFILE may have had: of inodes that came since the block was written, those of which the log says all.
fn with_those_that_came(volume: &Volume<'_>, block: InodeBlockNo, entry: IfileEntry) -> IfileEntry {
    let said = volume.state().deltas.get(&block.0).into_iter().flatten();
    let came = said.filter(|delta| delta.is_whole());
    let came = came.fold(0, |came, delta| came | 1 << slot_of(delta.ino()));
    let live = entry.live & entry.packed | came;
    IfileEntry {
        live,
        orphan: entry.orphan & live,
        ..entry
    }
}

/// Whether the block is there, with the inodes that the entry says.
pub(super) fn is_sound(volume: &Volume<'_>, block: InodeBlockNo, entry: &IfileEntry) -> bool {
    let read = volume.inode_blocks(&[(block, *entry)]).pop();
    read.is_some_and(|(_, read)| {
        read.is_ok_and(|block| block.inodes().all(|(_, _, inode)| inode.is_ok()))
    })
}

/// The entry without inodes that have no name, but where the log tells of them. Nothing in a block tells those that still go from
/// those that went, and what these had may be others' by now: who goes frees it. What nobody has is freed all the same.
fn without_the_nameless(volume: &Volume<'_>, block: InodeBlockNo, entry: IfileEntry) -> IfileEntry {
    let said = volume.state().deltas.get(&block.0).into_iter().flatten();
    let said = said.fold(0, |said, delta| said | 1 << slot_of(delta.ino()));
    let read = volume.inode_blocks(&[(block, entry)]).pop();
    let inodes = read.and_then(|(_, read)| read.ok());
    let nameless = |slot: &u32| {
        let inode = inodes.as_ref().map(|block| block.inode(*slot));
        matches!(inode, Some(Ok(inode)) if inode.nlink == 0)
    };
    let gone = (0..32)
        .filter(nameless)
        .fold(0, |gone, slot| gone | 1 << slot);
    let live = entry.live & !(gone & !said);
    IfileEntry {
        live,
        orphan: entry.orphan & live,
        ..entry
    }
}

/// The block that should be at a place, if what is there looks like it.
fn at_place(volume: &Volume<'_>, block: InodeBlockNo, extent: Extent) -> Option<IfileEntry> {
    let sb = volume.superblock();
    let bytes = volume.io().bytes(extent)?.min(4 * u64::from(UNIT_SIZE));
    let bytes = volume.io().read(extent.start, bytes as usize).ok()?;
    let (found, entry) = scan::inode_block(sb, extent.start, &bytes)?;
    (found == block && u64::from(entry.pointer.frags) == extent.frags).then_some(entry)
}
