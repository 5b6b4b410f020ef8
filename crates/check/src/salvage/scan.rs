//! Going over a whole device for what speaks of a volume.

use super::Options;
use super::block_size::Votes;
use super::sightings::{By, Sightings};
use crate::reader::{Io, Link, inode_block_identity, records_of, summary_at};
use crate::{CheckError, Volume};
use loamfs_device::{Device, IoKind, read_exact};
use loamfs_format::ifile::{IfileEntry, block_of, slot_of};
use loamfs_format::inode::{self, Inode};
use loamfs_format::node::{NODE_SIZE, Page};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::summary::{COPY_AT, Header, Record, SegmentKind};
use loamfs_format::superblock::{
    BLOCK_SIZE_MAX, CheckpointRef, Geometry, ScrubMark, Superblock, SuperblockError, UNIT_SIZE,
};
use loamfs_format::{BlockKind, FragAddr, Identity, Ino, InodeBlockNo, Pointer, Ssn, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes looked at together.
const PIECE: u64 = 1 << 20;
/// The longest block that is looked for: 32 inodes.
const TAIL: u64 = 32 * inode::SIZE as u64;
const UNIT: u64 = UNIT_SIZE as u64;
/// Summaries that are remembered, the newest; no checkpoint is as far from the end of a log.
const HEADERS_MAX: usize = 1 << 16;
/// Volumes of which remains are told apart.
const VOLUMES_MAX: usize = 64;

/// What was seen on a device.
pub(super) struct Scan {
    sightings: Sightings,
    /// The log, as far as it was found.
    chain: Vec<Link>,
}

impl Scan {
    /// What was seen of blocks of inodes.
    pub(super) fn into_sightings(self) -> Sightings {
        self.sightings
    }
}

/// Looks for everything that speaks of a volume, and of those blocks of inodes at those places that are `wanted`: any file can
/// look as if it spoke of more than there is memory for.
pub(super) fn scan(
    device: &dyn Device,
    sb: &Superblock,
    wanted: Wanted<'_>,
    options: &mut Options<'_>,
) -> Result<Scan, CheckError> {
    let io = Io {
        device,
        geometry: sb.geometry,
    };
    let mut search = Search {
        io,
        sb,
        wanted,
        sightings: Sightings::default(),
        links: BTreeMap::new(),
    };
    let frag = io.frag() as usize;
    pieces(device, options, &mut |start, len, bytes| {
        for offset in (0..len).step_by(frag) {
            let at = FragAddr((start + offset as u64) / io.frag());
            search.look(at, bytes.get(offset..).unwrap_or_default());
        }
    });
    Ok(search.end())
}

/// Which blocks of inodes, and where, are looked for.
pub(super) type Wanted<'w> = &'w dyn Fn(InodeBlockNo, FragAddr) -> bool;

/// Going over a device.
struct Search<'s, 'd> {
    io: Io<'d>,
    sb: &'s Superblock,
    wanted: Wanted<'s>,
    sightings: Sightings,
    /// The segments with whole summaries, the newest.
    links: BTreeMap<(Ssn, FragAddr), Link>,
}

impl Search<'_, '_> {
    fn look(&mut self, at: FragAddr, here: &[u8]) {
        if at.0.is_multiple_of(self.io.geometry.unit_frags())
            && let Some(link) = segment(&self.io, self.sb, at, here)
            && !self.links.contains_key(&(link.header.ssn, link.at))
        {
            self.links.insert((link.header.ssn, link.at), link);
            if self.links.len() > HEADERS_MAX
                && let Some((_, oldest)) = self.links.pop_first()
            {
                self.hear(&oldest);
            }
        } else if let Some(leaf) = leaf(here) {
            for (block, value) in leaf.iter() {
                if let Some(entry) = IfileEntry::decode(value) {
                    self.add(InodeBlockNo(block), By::Leaf, entry);
                }
            }
        } else if let Some((block, entry)) = inode_block(self.sb, at, here) {
            self.add(block, By::Itself, entry);
        }
    }

    fn add(&mut self, block: InodeBlockNo, by: By, entry: IfileEntry) {
        if (self.wanted)(block, entry.pointer.addr) {
            self.sightings.add(block, by, entry);
        }
    }

    /// Takes in what a segment says.
    fn hear(&mut self, link: &Link) {
        for (block, entry) in entries_of(&self.io, link) {
            self.add(block, By::Summary, entry);
        }
    }

    /// What was found. What segments said that a crash cut off never was, be it in a leaf.
    fn end(mut self) -> Scan {
        let links: Vec<Link> = std::mem::take(&mut self.links).into_values().collect();
        let chain = chain(&links, self.sb.checkpoint);
        let place = |link: &Link| (link.header.ssn, link.at);
        let counts = |link: &&Link| {
            let found = chain.binary_search_by_key(&place(link), place);
            found.is_ok()
        };
        for link in links.iter().filter(|link| !counts(link)) {
            for (block, entry) in entries_of(&self.io, link) {
                self.sightings.remove(block, &entry);
            }
        }
        chain.iter().for_each(|link| self.hear(link));
        Scan {
            sightings: self.sightings,
            chain,
        }
    }
}

/// What a segment says of blocks of inodes.
fn entries_of(io: &Io<'_>, link: &Link) -> Vec<(InodeBlockNo, IfileEntry)> {
    let Ok(records) = records_of(io, link) else {
        return Vec::new();
    };
    let entries = records.iter().filter_map(|record| match record {
        Record::Ifile(block, entry) => Some((block, entry)),
        _ => None,
    });
    entries.collect()
}

impl Scan {
    /// The volume as the newest checkpoint has it of which the root of the IFILE can be read, and what was found behind
    /// that; `None` when nothing was found of the log.
    pub(super) fn volume<'d>(&self, device: &'d dyn Device, sb: &Superblock) -> Option<Volume<'d>> {
        let chain = &self.chain;
        let is_checkpoint = |index: &usize| chain[*index].header.kind == SegmentKind::Checkpoint;
        let mut last = None;
        for base in (0..chain.len()).rev().filter(is_checkpoint) {
            let header = &chain[base].header;
            let mut sb = sb.clone();
            sb.checkpoint = CheckpointRef {
                ssn: header.ssn,
                token: header.token,
                addr: chain[base].at,
            };
            let links = chain[base..].to_vec();
            let Ok(volume) = Volume::assemble(device, sb, links) else {
                continue;
            };
            let root = volume.state().root(BlockKind::IfileNode);
            let identity = root.identity(BlockKind::IfileNode, Ino(0), 0);
            let stands = root.is_empty() || volume.nodes().get(&root.pointer, &identity).is_ok();
            if stands {
                return Some(volume);
            }
            last = last.or(Some(volume));
        }
        last.or_else(|| Volume::assemble(device, sb.clone(), chain.clone()).ok())
    }
}

/// The segments that lead to the newest one, with gaps where some were not found. Segments that a crash cut off share their
/// numbers with those that came after it, and may have higher ones than the newest: they know less to be durable. What leads to
/// the newest is the log, and to what a superblock names. Who went on without segments that were lost took numbers far behind them, and
/// says where it went on.
fn chain(links: &[Link], named: CheckpointRef) -> Vec<Link> {
    let newest = links.iter().max_by_key(|link| age(&link.header));
    let end = newest.map_or(0, |newest| {
        links.partition_point(|link| link.header.ssn <= newest.header.ssn)
    });
    let mut chain: Vec<Link> = Vec::new();
    let known: BTreeSet<Token> = links.iter().map(|link| link.header.token).collect();
    let same = |a: &Link, b: &Link| a.header.ssn == b.header.ssn;
    for of_number in links[..end].chunk_by(same).rev() {
        let next = chain.last().map(|next| &next.header);
        let follows = |next: &Header| of_number.iter().any(|l| l.header.ssn.next() == next.ssn);
        let next = next.filter(|next| follows(next) || known.contains(&next.previous));
        let is_named = |link: &&Link| {
            let header = &link.header;
            (header.ssn, header.token, link.at) == (named.ssn, named.token, named.addr)
        };
        let found = match (of_number.iter().find(is_named), next) {
            (Some(link), next) => {
                if next.is_some_and(|next| next.previous != link.header.token) {
                    chain.clear();
                }
                Some(link)
            }
            (None, Some(next)) => {
                let leads = |link: &&Link| link.header.token == next.previous;
                of_number.iter().find(leads)
            }
            // The newest one, or before a gap: what was written last.
            (None, None) => of_number.iter().max_by_key(|link| age(&link.header)),
        };
        chain.extend(found.cloned());
    }
    chain.reverse();
    chain
}

/// By what a segment is newer than another one: what it knows to be durable, which is never itself, its number, and its time.
fn age(header: &Header) -> (Ssn, Ssn, i64) {
    let durable = header.durable.0.min(header.ssn.0.saturating_sub(1));
    (Ssn(durable), header.ssn, header.dynamic.sealed)
}

/// The segment whose header, or the second copy of one, is in a unit.
fn segment(io: &Io<'_>, sb: &Superblock, at: FragAddr, bytes: &[u8]) -> Option<Link> {
    let unit = bytes.get(..UNIT as usize)?;
    let header = match Header::decode(unit) {
        Ok(header) if stands(&header, at) => header,
        _ => {
            let copy = Header::decode_copy(unit.get(COPY_AT..)?).ok()?;
            let end = at.0.checked_add(io.geometry.unit_frags())?;
            copy.extents.last().filter(|last| last.end().0 == end)?;
            copy
        }
    };
    let known = !sb.has_second_copies() || header.code == header.code_under(&sb.log_key);
    if header.uuid != sb.uuid || !known {
        return None;
    }
    summary_at(io, sb, header)
}

fn stands(header: &Header, at: FragAddr) -> bool {
    header
        .extents
        .first()
        .is_some_and(|extent| extent.start == at)
}

/// What looks like a leaf of the IFILE.
fn leaf(bytes: &[u8]) -> Option<Page> {
    let low = bytes.get(32..40)?;
    let identity = Identity {
        kind: BlockKind::IfileNode,
        level: 0,
        ino: Ino(0),
        generation: 0,
        logical: u64::from_le_bytes(low.try_into().ok()?),
    };
    Page::from_bytes(bytes.get(..NODE_SIZE)?, &identity).ok()
}

/// What looks like a block of inodes: inodes of one block, by rising numbers. Its checksum is that of what is there.
pub(super) fn inode_block(
    sb: &Superblock,
    at: FragAddr,
    bytes: &[u8],
) -> Option<(InodeBlockNo, IfileEntry)> {
    let first = one_inode(bytes.get(..inode::SIZE)?)?;
    let block = block_of(first.ino);
    let mut entry = IfileEntry::default();
    for bytes in bytes.chunks_exact(inode::SIZE) {
        let Some(inode) = one_inode(bytes).filter(|inode| block_of(inode.ino) == block) else {
            break;
        };
        let bit = 1u32 << slot_of(inode.ino);
        if entry.live >= bit {
            break;
        }
        entry.live |= bit;
        if inode.nlink == 0 || inode.truncating != u64::MAX {
            entry.orphan |= bit;
        }
        entry.ssn = entry.ssn.max(inode.ssn);
    }
    entry.packed = entry.live;
    let stored = entry.live.count_ones() as usize * inode::SIZE;
    let checksum = metadata_checksum(&sb.uuid, &inode_block_identity(block), bytes.get(..stored)?);
    entry.pointer = Pointer {
        addr: at,
        frags: sb.geometry.frags_for(stored as u64) as u32,
        stored: stored as u32,
        birth: entry.ssn,
        checksum,
        ..Pointer::NONE
    };
    Some((block, entry))
}

fn one_inode(bytes: &[u8]) -> Option<Inode> {
    // Most bytes that are none are told by their first eight: a number ends at 2^40.
    let number = bytes.get(..8)?;
    if number[5..] != [0; 3] || number[..5] == [0; 5] {
        return None;
    }
    let inode = Inode::decode(bytes).ok()?;
    let lives = inode.ino.0 > 1 && inode.generation != 0 && inode.file_type() != 0;
    (lives && inode.encode() == *bytes).then_some(inode)
}

/// What the remains of a volume say of its sizes.
#[derive(Clone, Copy, Default)]
struct Remains {
    fragment_size: u32,
    /// When its last segment was sealed.
    sealed: i64,
    /// What tells how long blocks of large files are.
    votes: Votes,
    /// Behind the highest fragment of which something speaks.
    end: u64,
}

/// Puts a superblock together from what summaries say: of the volume that was written to last, unless the caller knows.
pub(super) fn guess(
    device: &dyn Device,
    options: &mut Options<'_>,
) -> Result<Superblock, CheckError> {
    let wanted = options.uuid;
    let mut volumes: BTreeMap<[u8; 16], Remains> = BTreeMap::new();
    pieces(device, options, &mut |start, len, bytes| {
        for offset in (0..len).step_by(UNIT as usize) {
            let at = start + offset as u64;
            let Some(header) = bytes
                .get(offset..)
                .and_then(|unit| Header::decode(unit).ok())
            else {
                continue;
            };
            if wanted.is_some_and(|uuid| uuid != header.uuid)
                || (volumes.len() >= VOLUMES_MAX && !volumes.contains_key(&header.uuid))
            {
                continue;
            }
            if let Some(found) = remains(device, at, &header) {
                let all = volumes.entry(header.uuid).or_default();
                all.fragment_size = found.fragment_size;
                all.sealed = all.sealed.max(found.sealed);
                all.votes.add(&found.votes);
                all.end = all.end.max(found.end);
            }
        }
    });
    let last = volumes.into_iter().max_by_key(|(_, found)| found.sealed);
    let (uuid, found) = last.ok_or(CheckError::Superblock(SuperblockError::Magic))?;
    Ok(superblock(device, uuid, found, options.block_size))
}

/// What a summary at a byte of the device says, if it is one that stands there.
fn remains(device: &dyn Device, at: u64, header: &Header) -> Option<Remains> {
    let first = header.extents.first()?.start.0;
    let size = at.checked_div(first)?;
    let fragment_size = u32::try_from(size).ok()?;
    let is_size = fragment_size.is_power_of_two() && (512..=4096).contains(&fragment_size);
    if !is_size || size.checked_mul(first)? != at {
        return None;
    }
    let sb = superblock(
        device,
        header.uuid,
        Remains {
            fragment_size,
            end: u64::MAX,
            ..Remains::default()
        },
        None,
    );
    let io = Io {
        device,
        geometry: sb.geometry,
    };
    let link = summary_at(&io, &sb, header.clone())?;
    let ends = header.extents.iter().map(|extent| extent.end().0);
    let mut found = Remains {
        fragment_size,
        sealed: header.dynamic.sealed,
        votes: Votes::default(),
        end: ends.max()?,
    };
    for record in records_of(&io, &link).ok()?.iter() {
        if let Record::Allocate(a) = record {
            found.end = found.end.max(a.extent.end().0);
        }
        vote(&io, &record, &mut found.votes);
    }
    Some(found)
}

/// Adds what a record, and the inodes that it leads to, tell of the length of blocks.
fn vote(io: &Io<'_>, record: &Record, votes: &mut Votes) {
    let fragment_size = io.geometry.fragment_size;
    match record {
        Record::Allocate(a) => {
            let len = io.bytes(a.extent).unwrap_or_default();
            match a.kind {
                BlockKind::Homed => votes.home(io.geometry.byte_offset(a.extent.start), len),
                BlockKind::InodeBlock => {
                    let read = io.read(a.extent.start, len.min(TAIL) as usize);
                    let bytes = read.map(|bytes| bytes.to_vec()).unwrap_or_default();
                    let inodes = bytes.chunks_exact(inode::SIZE).filter_map(one_inode);
                    inodes.for_each(|inode| votes.file(&inode, fragment_size));
                }
                _ => {}
            }
        }
        // Of those that came since, it says all.
        Record::Delta(delta) if delta.is_whole() => {
            let mut bytes = [0; inode::SIZE];
            let whole = delta.apply(&mut bytes).then(|| one_inode(&bytes));
            if let Some(inode) = whole.flatten() {
                votes.file(&inode, fragment_size);
            }
        }
        _ => {}
    }
}

/// A superblock for a volume of which only this is known. It names no checkpoint.
fn superblock(
    device: &dyn Device,
    uuid: [u8; 16],
    found: Remains,
    block_size: Option<u32>,
) -> Superblock {
    let frag = u64::from(found.fragment_size);
    let block_size = block_size.unwrap_or_else(|| found.votes.elected());
    let block_size = block_size.clamp(UNIT_SIZE, BLOCK_SIZE_MAX);
    let most = (1u64 << 48) / frag;
    let total_frags = (device.size() / frag).max(found.end).min(most);
    Superblock {
        copied: Ssn(0),
        copied_at: 0,
        uuid,
        membership_epoch: 0,
        device: 0,
        devices: Vec::new(),
        geometry: Geometry {
            fragment_size: found.fragment_size,
            block_size,
            small_size: BLOCK_SIZE_MAX,
            group_frags: (256 << 20) / frag,
            total_frags,
            segment_max: 1 << 28,
            checkpoint_segments_max: 1 << 16,
            checkpoint_summary_max: 1 << 26,
            checkpoint_nodes_max: 1 << 20,
        },
        checksum_algorithm: 1,
        compatible: 0,
        ro_compatible: 0,
        incompatible: 0,
        checkpoint: CheckpointRef {
            ssn: Ssn(0),
            token: Token(0),
            addr: FragAddr(0),
        },
        hash_key: [0; 16],
        label: Vec::new(),
        created: 0,
        avg_file_size: 0,
        files_per_dir: 0,
        profile: Vec::new(),
        disk: None,
        scrub: ScrubMark::default(),
        log_key: [0; 16],
        durable: Ssn(0),
        clean: false,
    }
}

/// What can be read of a piece.
fn by_units(device: &dyn Device, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    for (from, unit) in (at..)
        .step_by(UNIT as usize)
        .zip(bytes.chunks_mut(UNIT as usize))
    {
        if let Ok(read) = read_exact(device, from, unit.len(), IoKind::Check) {
            unit.copy_from_slice(&read);
        }
    }
    bytes
}

/// Shows all of a device piece by piece: where a piece starts, its length, and its bytes with some of what follows.
/// What cannot be read is zeros.
fn pieces(device: &dyn Device, options: &mut Options<'_>, show: &mut dyn FnMut(u64, usize, &[u8])) {
    let size = device.size() / UNIT * UNIT;
    let mut at = 0;
    while at < size {
        (options.progress)(at, size);
        let len = PIECE.min(size - at);
        let whole = (len + TAIL).min(size - at);
        match read_exact(device, at, whole as usize, IoKind::Check) {
            Ok(bytes) => show(at, len as usize, &bytes),
            Err(_) => show(at, len as usize, &by_units(device, at, whole)),
        }
        at += len;
    }
    (options.progress)(size, size);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use loamfs_device::MemoryDevice;

    /// A file may hold what looks like leaves of the IFILE with all numbers that there are.
    #[test]
    fn what_nobody_asks_for_is_not_remembered() {
        let device = MemoryDevice::new(4 << 20);
        let mut block = 0;
        for at in (0..4 << 20).step_by(NODE_SIZE) {
            let mut page = Page::new(&Identity {
                kind: BlockKind::IfileNode,
                level: 0,
                ino: Ino(0),
                generation: 0,
                logical: block,
            });
            let entry = IfileEntry {
                pointer: Pointer {
                    addr: FragAddr(block),
                    frags: 1,
                    stored: inode::SIZE as u32,
                    ..Pointer::NONE
                },
                live: 1,
                packed: 1,
                ..IfileEntry::default()
            };
            while page.insert(block, &entry.encode()).is_ok() {
                block += 1;
            }
            device.poke(at as u64, page.as_bytes()).unwrap();
        }
        let sb = superblock(
            &device,
            [7; 16],
            Remains {
                fragment_size: 1024,
                ..Remains::default()
            },
            None,
        );
        let count = |wanted: Wanted<'_>| {
            let mut options = Options {
                uuid: None,
                block_size: None,
                progress: &mut |_, _| {},
            };
            let scan = scan(&device, &sb, wanted, &mut options).unwrap();
            scan.into_sightings().blocks(0).count() as u64
        };
        assert_eq!(count(&|_, _| true), block);
        assert_eq!(count(&|block, _| (10..13).contains(&block.0)), 3);
    }
}
