//! Where a large file's blocks are: extents in the inode, or a tree of them (H19).

use crate::blocks::{Blocks, Stop};
use crate::error::Corrupt;
use crate::tree::Tree;
use loamfs_format::checksum::{CRC_UNITS, CrcRun};
use loamfs_format::inode::{Body, FileExtent, INLINE_EXTENTS_MAX, Inode, TAIL};
use loamfs_format::node::TreeRoot;
use loamfs_format::pointer::RawPointer;
use loamfs_format::summary::Unwritten;
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, Pointer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use zerocopy::{FromBytes, IntoBytes};

/// Extents that one step of a long operation looks at, or frees.
pub(crate) const STEP_EXTENTS: usize = 256;
/// Units whose checksums it looks at, or changes.
pub(crate) const STEP_UNITS: u64 = 8192;

/// The tree of a file's extents.
pub(crate) fn tree(inode: &Inode) -> Tree {
    Tree::of_inode(inode, BlockKind::ExtentNode)
}

/// The tree of a file's checksums.
pub(crate) fn crc_tree(inode: &Inode) -> Tree {
    Tree::of_inode(inode, BlockKind::ChecksumNode)
}

/// Blocks of an extent.
pub(crate) fn blocks_of(extent: &FileExtent, geometry: &Geometry) -> u64 {
    u64::from(extent.pointer.frags) / geometry.block_frags()
}

/// Refuses what cannot be an extent: it has whole blocks on the volume, and ends before the largest file does.
fn sound(inode: &Inode, extent: &FileExtent, geometry: &Geometry) -> Result<(), Stop> {
    let at = extent.pointer.extent();
    let block = geometry.block_frags();
    let blocks_max = (1 << 63) / u64::from(geometry.block_size);
    let ends = extent.block.checked_add(blocks_of(extent, geometry));
    let whole = at.frags > 0 && at.frags.is_multiple_of(block) && at.start.0.is_multiple_of(block);
    if whole
        && extent.pointer.is_some()
        && geometry.holds(at)
        && ends.is_some_and(|end| end <= blocks_max)
    {
        return Ok(());
    }
    let (addr, ino) = (extent.pointer.addr, inode.ino);
    Err(Corrupt::Pointer { addr, ino }.into())
}

fn decode(inode: &Inode, geometry: &Geometry, key: u64, value: &[u8]) -> Result<FileExtent, Stop> {
    let raw =
        RawPointer::ref_from_bytes(value).map_err(|_| Corrupt::MapEntry { map: "extent", key })?;
    let extent = FileExtent {
        block: key,
        pointer: Pointer::decode(raw),
    };
    sound(inode, &extent, geometry)?;
    Ok(extent)
}

/// The extents that overlap blocks `from .. to`, in order.
pub(crate) fn overlapping(
    inode: &Inode,
    blocks: &mut Blocks,
    geometry: &Geometry,
    from: u64,
    to: u64,
) -> Result<Vec<FileExtent>, Stop> {
    first_overlapping(inode, blocks, geometry, from..to, usize::MAX)
}

/// The first `max` of the extents that overlap blocks `range`, in order.
pub(crate) fn first_overlapping(
    inode: &Inode,
    blocks: &mut Blocks,
    geometry: &Geometry,
    Range {
        start: from,
        end: to,
    }: Range<u64>,
    max: usize,
) -> Result<Vec<FileExtent>, Stop> {
    let wanted = |e: &FileExtent| e.block < to && e.block + blocks_of(e, geometry) > from;
    select(inode, blocks, geometry, (from..to, max), wanted)
}

/// The extents that lie in `place`, of those from block `from` on, in order.
pub(crate) fn placed_in(
    inode: &Inode,
    blocks: &mut Blocks,
    geometry: &Geometry,
    place: Extent,
    from: u64,
) -> Result<Vec<FileExtent>, Stop> {
    let wanted = |e: &FileExtent| e.pointer.extent().overlaps(place);
    select(
        inode,
        blocks,
        geometry,
        (from..u64::MAX, usize::MAX),
        wanted,
    )
}

/// The units of extents, of those in a range, and their homes, in order.
pub(crate) fn units(
    extents: &[FileExtent],
    geometry: &Geometry,
    range: Range<u64>,
) -> Vec<(u64, FragAddr)> {
    let per_block = geometry.block_units();
    let mut homes = Vec::new();
    for extent in extents {
        let start = extent.block * per_block;
        let stop = start + blocks_of(extent, geometry) * per_block;
        for unit in start.max(range.start)..stop.min(range.end) {
            let addr = extent.pointer.addr.0 + (unit - start) * geometry.unit_frags();
            homes.push((unit, FragAddr(addr)));
        }
    }
    homes
}

/// The first `max` of the extents that begin before the end of a range of blocks, the last one before it among them, and are
/// `wanted`.
fn select(
    inode: &Inode,
    blocks: &mut Blocks,
    geometry: &Geometry,
    (range, max): (Range<u64>, usize),
    wanted: impl Fn(&FileExtent) -> bool,
) -> Result<Vec<FileExtent>, Stop> {
    let (from, to) = (range.start, range.end);
    let found = match &inode.body {
        Body::Extents(extents) => {
            for extent in extents {
                sound(inode, extent, geometry)?;
            }
            let overlapping = extents.iter().filter(|e| wanted(e));
            overlapping.take(max).copied().collect()
        }
        Body::ExtentTree(root) => {
            let tree = tree(inode);
            let start = tree.prev(root, blocks, from)?;
            let start = start.map_or(from, |entry| entry.key());
            let (mut found, mut bad) = (Vec::new(), None);
            let _ = tree.scan(root, blocks, start, |key, value| {
                if key >= to || found.len() >= max {
                    return ControlFlow::Break(());
                }
                match decode(inode, geometry, key, value) {
                    Ok(extent) if wanted(&extent) => found.push(extent),
                    Ok(_) => {}
                    Err(stop) => bad = Some(stop),
                }
                ControlFlow::Continue(())
            })?;
            bad.map_or(Ok(found), Err)?
        }
        _ => Vec::new(),
    };
    // Images settle at these homes.
    let stray = |extent: &&FileExtent| !blocks.gives(extent.pointer.extent());
    match found.iter().find(stray) {
        Some(stray) => {
            let (addr, ino) = (stray.pointer.addr, inode.ino);
            Err(Corrupt::Pointer { addr, ino }.into())
        }
        None => Ok(found),
    }
}

/// The part of an extent that lies in blocks `from .. to`.
pub(crate) fn clip(extent: &FileExtent, geometry: &Geometry, from: u64, to: u64) -> FileExtent {
    let block_frags = geometry.block_frags();
    let start = extent.block.max(from);
    let end = (extent.block + blocks_of(extent, geometry))
        .min(to)
        .max(start);
    let addr = FragAddr(extent.pointer.addr.0 + (start - extent.block) * block_frags);
    let frags = ((end - start) * block_frags) as u32;
    FileExtent {
        block: start,
        pointer: Pointer {
            addr,
            frags,
            ..extent.pointer
        },
    }
}

/// The runs of blocks that some extents have, which come in order.
pub(crate) fn runs(extents: &[FileExtent], geometry: &Geometry) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for extent in extents {
        let end = extent.block + blocks_of(extent, geometry);
        match runs.last_mut().filter(|(_, last)| *last == extent.block) {
            Some((_, last)) => *last = end,
            None => runs.push((extent.block, end)),
        }
    }
    runs
}

/// How the extents of a file change when blocks `from .. to` get new homes, or none.
#[derive(Debug, Default)]
pub(crate) struct ExtentChange {
    /// Extents to put, by key; some replace what is there.
    put: Vec<FileExtent>,
    /// Keys to remove.
    remove: Vec<u64>,
    /// Homes that become free.
    freed: Vec<Extent>,
    /// What of the extents to be changed was never written, before and after.
    unwritten: (Unwritten, Unwritten),
}

impl ExtentChange {
    /// Homes that become free.
    pub fn into_freed(self) -> Vec<Extent> {
        self.freed
    }

    /// What of the extents to be changed was never written, before and after.
    pub fn unwritten(&self) -> (Unwritten, Unwritten) {
        self.unwritten
    }

    /// This, and another one of other extents.
    pub fn and(&mut self, other: ExtentChange) {
        let sum = |a: Unwritten, b: Unwritten| Unwritten {
            extents: a.extents + b.extents,
            frags: a.frags + b.frags,
        };
        self.put.extend(other.put);
        self.remove.extend(other.remove);
        self.freed.extend(other.freed);
        self.unwritten.0 = sum(self.unwritten.0, other.unwritten.0);
        self.unwritten.1 = sum(self.unwritten.1, other.unwritten.1);
    }
}

/// What of some extents was never written.
fn unwritten<'e>(extents: impl IntoIterator<Item = &'e FileExtent>) -> Unwritten {
    let mut count = Unwritten::default();
    for extent in extents.into_iter().filter(|e| e.pointer.unwritten) {
        count.extents += 1;
        count.frags += u64::from(extent.pointer.frags);
    }
    count
}

/// Works out the change by which an extent of which all was written is like any other, and reads what [`apply`] will need.
pub(crate) fn prepare_written(
    inode: &Inode,
    blocks: &mut Blocks,
    extent: FileExtent,
) -> Result<ExtentChange, Stop> {
    if let Body::ExtentTree(root) = &inode.body {
        tree(inode).prepare_put(root, blocks, extent.block)?;
    }
    let pointer = Pointer {
        unwritten: false,
        ..extent.pointer
    };
    Ok(ExtentChange {
        put: vec![FileExtent { pointer, ..extent }],
        unwritten: (unwritten([&extent]), Unwritten::default()),
        ..ExtentChange::default()
    })
}

/// Works out the change that gives the blocks in `ranges` (in order, not overlapping) the homes `new`, or none, and
/// reads what [`apply`] will need.
pub(crate) fn prepare(
    inode: &Inode,
    blocks: &mut Blocks,
    geometry: &Geometry,
    ranges: &[(u64, u64)],
    new: &[FileExtent],
) -> Result<ExtentChange, Stop> {
    // An extent that ends right before a range is looked at too: a new home that continues it lengthens it.
    let mut touched: BTreeMap<u64, FileExtent> = BTreeMap::new();
    for (from, to) in ranges {
        let found = overlapping(inode, blocks, geometry, from.saturating_sub(1), *to)?;
        touched.extend(found.into_iter().map(|e| (e.block, e)));
    }
    let (mut pieces, mut freed) = (Vec::new(), Vec::new());
    for old in touched.values() {
        take_out(old, geometry, ranges, &mut pieces, &mut freed);
    }
    pieces.extend_from_slice(new);
    let put = joined(pieces, geometry);
    let is_put = |key: &u64| put.iter().any(|e| e.block == *key);
    let change = ExtentChange {
        unwritten: (unwritten(touched.values()), unwritten(&put)),
        remove: touched.keys().copied().filter(|key| !is_put(key)).collect(),
        freed,
        put,
    };
    if let Body::ExtentTree(root) = &inode.body {
        let tree = tree(inode);
        for extent in &change.put {
            tree.prepare_put(root, blocks, extent.block)?;
        }
        for key in &change.remove {
            tree.prepare_remove(root, blocks, *key)?;
        }
    }
    Ok(change)
}

/// Takes `ranges` out of an extent: what lies in them is freed, and what lies beside them are pieces that stay.
fn take_out(
    old: &FileExtent,
    geometry: &Geometry,
    ranges: &[(u64, u64)],
    pieces: &mut Vec<FileExtent>,
    freed: &mut Vec<Extent>,
) {
    let (mut at, end) = (old.block, old.block + blocks_of(old, geometry));
    let inside = |(from, to): &&(u64, u64)| *from < end && *to > old.block;
    for (from, to) in ranges.iter().filter(inside) {
        if *from > at {
            pieces.push(clip(old, geometry, at, *from));
        }
        freed.push(clip(old, geometry, *from, *to).pointer.extent());
        at = *to;
    }
    if at < end {
        pieces.push(clip(old, geometry, at, end));
    }
}

/// The pieces in order, those joined that continue each other on the device, too.
fn joined(mut pieces: Vec<FileExtent>, geometry: &Geometry) -> Vec<FileExtent> {
    pieces.sort_by_key(|e| e.block);
    let mut joined: Vec<FileExtent> = Vec::new();
    for piece in pieces {
        let continues = |last: &&mut FileExtent| {
            let (before, behind) = (&last.pointer, &piece.pointer);
            last.block + blocks_of(last, geometry) == piece.block
                && before.extent().end() == behind.addr
                && before.unwritten == behind.unwritten
                && before.frags.checked_add(behind.frags).is_some()
        };
        match joined.last_mut().filter(continues) {
            Some(last) => last.pointer.frags += piece.pointer.frags,
            None => joined.push(piece),
        }
    }
    joined
}

/// Makes a prepared change.
pub(crate) fn apply(
    inode: &mut Inode,
    blocks: &mut Blocks,
    change: &ExtentChange,
) -> Result<(), Stop> {
    if let Body::ExtentTree(mut root) = inode.body {
        let tree = tree(inode);
        for extent in &change.put {
            tree.put(
                &mut root,
                blocks,
                extent.block,
                extent.pointer.encode().as_bytes(),
            )?;
        }
        for key in &change.remove {
            tree.remove(&mut root, blocks, *key)?;
        }
        inode.body = if root.is_empty() {
            Body::Empty
        } else {
            Body::ExtentTree(root)
        };
    } else {
        let mut map: BTreeMap<u64, FileExtent> = match &inode.body {
            Body::Extents(extents) => extents.iter().map(|e| (e.block, *e)).collect(),
            _ => BTreeMap::new(),
        };
        map.retain(|key, _| !change.remove.contains(key));
        map.extend(change.put.iter().map(|e| (e.block, *e)));
        store(inode, blocks, map.into_values().collect())?;
    }
    leave_room(inode, blocks)
}

/// Keeps extents in the inode while they fit, else plants a tree.
fn store(inode: &mut Inode, blocks: &mut Blocks, extents: Vec<FileExtent>) -> Result<(), Stop> {
    let body = Body::Extents(extents);
    let fits = body.len() + inode.inline_xattrs.len() <= TAIL;
    inode.body = match body {
        Body::Extents(extents) if extents.is_empty() => Body::Empty,
        Body::Extents(extents) if !fits || extents.len() > INLINE_EXTENTS_MAX => {
            plant(inode, blocks, &extents)?
        }
        body => body,
    };
    Ok(())
}

fn plant(inode: &Inode, blocks: &mut Blocks, extents: &[FileExtent]) -> Result<Body, Stop> {
    let (tree, mut root) = (tree(inode), TreeRoot::EMPTY);
    for extent in extents {
        tree.put(
            &mut root,
            blocks,
            extent.block,
            extent.pointer.encode().as_bytes(),
        )?;
    }
    Ok(Body::ExtentTree(root))
}

/// The checksums of units, by unit; 0 stands for "none".
pub(crate) fn crc_run(inode: &Inode, blocks: &mut Blocks, key: u64) -> Result<CrcRun, Stop> {
    if inode.checksums.is_empty() {
        return Ok(inode.inline_run(key));
    }
    match crc_tree(inode).get(&inode.checksums, blocks, key)? {
        None => Ok(CrcRun::default()),
        Some(entry) => Ok(CrcRun::decode(entry.value()).ok_or(Corrupt::MapEntry {
            map: "checksum",
            key,
        })?),
    }
}

/// The key of the first run from one on that has a checksum.
pub(crate) fn next_run(inode: &Inode, blocks: &mut Blocks, key: u64) -> Result<Option<u64>, Stop> {
    if inode.checksums.is_empty() {
        return Ok((key == 0 && !inode.crcs.is_empty()).then_some(0));
    }
    let next = crc_tree(inode).next(&inode.checksums, blocks, key)?;
    Ok(next.map(|entry| entry.key()))
}

/// New values of runs of checksums, worked out before they are put.
#[derive(Debug, Default)]
pub(crate) struct CrcChange {
    runs: BTreeMap<u64, CrcRun>,
    /// Whether they may stand in the inode.
    short: bool,
}

impl CrcChange {
    /// What a unit's checksum becomes, if it is of one of the runs.
    pub fn of(&self, unit: u64) -> Option<u32> {
        let run = self.runs.get(&(unit / CRC_UNITS))?;
        Some(run.0[(unit % CRC_UNITS) as usize])
    }

    /// Those that an inode has behind it, if they may stand there and it has no tree of them.
    fn in_inode(&self, inode: &Inode) -> Option<Vec<u32>> {
        if !self.short || !inode.checksums.is_empty() {
            return None;
        }
        let first = self.runs.get(&0).cloned();
        let first = first.unwrap_or_else(|| inode.inline_run(0));
        let mut others = self.runs.range(1..);
        let alone = others.all(|(_, run)| run.used().is_empty());
        let fits = alone && inode.has_room_for_crcs(first.used().len());
        fits.then(|| first.used().to_vec())
    }
}

/// Works out how a file's checksums change when `units` get new ones (0: none), and reads what [`apply_crcs`] will need. They may
/// stand in the inode where the volume is `short`.
pub(crate) fn prepare_crcs(
    inode: &Inode,
    blocks: &mut Blocks,
    short: bool,
    units: impl IntoIterator<Item = (u64, u32)>,
) -> Result<CrcChange, Stop> {
    let mut runs: BTreeMap<u64, CrcRun> = BTreeMap::new();
    for (unit, crc) in units {
        let key = unit / CRC_UNITS;
        let run = match runs.entry(key) {
            std::collections::btree_map::Entry::Occupied(run) => run.into_mut(),
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(crc_run(inode, blocks, key)?)
            }
        };
        run.0[(unit % CRC_UNITS) as usize] = crc;
    }
    let (tree, root) = (crc_tree(inode), &inode.checksums);
    let mut absent = BTreeSet::new();
    for (key, run) in &runs {
        if !run.used().is_empty() {
            tree.prepare_put(root, blocks, *key)?;
        } else if crc_run(inode, blocks, *key)?.used().is_empty() {
            absent.insert(*key);
        } else {
            tree.prepare_remove(root, blocks, *key)?;
        }
    }
    // When its leaf has gone for other reasons, the search for what is not there ends in one that nobody has read.
    runs.retain(|key, _| !absent.contains(key));
    Ok(CrcChange { runs, short })
}

/// Puts prepared checksums.
pub(crate) fn apply_crcs(
    inode: &mut Inode,
    blocks: &mut Blocks,
    change: &CrcChange,
) -> Result<(), Stop> {
    if let Some(crcs) = change.in_inode(inode) {
        inode.crcs = crcs;
        return Ok(());
    }
    plant_crcs(inode, blocks)?;
    let (tree, mut root) = (crc_tree(inode), inode.checksums);
    for (key, run) in &change.runs {
        if let Some(value) = run.encode() {
            tree.put(&mut root, blocks, *key, &value)?;
        }
    }
    for (key, run) in &change.runs {
        if run.used().is_empty() {
            tree.remove(&mut root, blocks, *key)?;
        }
    }
    inode.checksums = root;
    Ok(())
}

/// Leaves a file the checksums of its first units.
pub(crate) fn cut_crcs(inode: &mut Inode, units: u64) {
    let keep = usize::try_from(units).unwrap_or(usize::MAX);
    inode.crcs.truncate(keep);
    inode.crcs = CrcRun::of(&inode.crcs).used().to_vec();
}

/// Gives the checksums in an inode a tree where extents and attributes need their room.
pub(crate) fn leave_room(inode: &mut Inode, blocks: &mut Blocks) -> Result<(), Stop> {
    match inode.has_room_for_crcs(inode.crcs.len()) {
        true => Ok(()),
        false => plant_crcs(inode, blocks),
    }
}

/// Moves the checksums in an inode to a tree. Beside one that is there they say nothing.
fn plant_crcs(inode: &mut Inode, blocks: &mut Blocks) -> Result<(), Stop> {
    if inode.checksums.is_empty()
        && let Some(value) = inode.inline_run(0).encode()
    {
        let mut root = TreeRoot::EMPTY;
        crc_tree(inode).put(&mut root, blocks, 0, &value)?;
        inode.checksums = root;
    }
    inode.crcs.clear();
    Ok(())
}
