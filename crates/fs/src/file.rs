//! Reading, writing and resizing regular files: in the inode, in the log, or at home (H1, H6, H8).

use crate::admission::NODES_COST;
use crate::blocks::{Missed, Stop, What};
use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::extents;
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::law;
use crate::permission;
use crate::writeback::{UNIT, UnitBytes};
use loamfs_format::inode::{Body, FileExtent, TAIL};
use loamfs_format::maps::CRC_UNITS;
use loamfs_format::node::TreeRoot;
use loamfs_format::{Extent, FragAddr, Ino, Pointer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest file: 8 EiB less one byte, as off_t has it.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Behind every block that a file can have.
const BLOCK_END: u64 = 1 << 52;
/// Extents that one step of a truncate frees.
const DRAIN_EXTENTS: usize = 256;
/// Leaves of a tree that one step of a truncate frees.
const DRAIN_LEAVES: usize = 32;

/// How a file gets another size.
enum Resize {
    /// It has that size.
    Nothing,
    /// A small file stays small, with this content.
    Small(Vec<u8>),
    /// A small file of this content leaves the log.
    Leave(Arc<[u8]>),
    /// A large file grows: these units become zero behind its end.
    Grow(BTreeMap<u64, Vec<u8>>),
    /// A file on its way home turns back, with this content.
    Return(Vec<u8>),
    /// A large file shrinks.
    Cut,
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

impl Node {
    /// Whether the content is kept in blocks at home, or is on its way there.
    pub fn is_large(&self) -> bool {
        !self.homed().is_clean()
            || matches!(self.inode.body, Body::Extents(_) | Body::ExtentTree(_))
            || self.small.is_none() && self.inode.size > 0 && self.inode.body == Body::Empty
    }

    /// Whether the file is on its way home, while segments still show its small form.
    pub fn is_moving(&self) -> bool {
        !self.homed().is_clean() && matches!(self.inode.body, Body::Inline(_) | Body::Small(_))
    }

    /// The first unit that segments do not show, or not whole: none while they show the small form.
    pub fn hidden_from(&self) -> u64 {
        if self.is_moving() {
            0
        } else {
            self.shown_size / UNIT
        }
    }

    /// Most bytes that can stand in the inode.
    fn inline_max(&self) -> usize {
        TAIL - self.inode.inline_xattrs.len().min(TAIL)
    }
}

impl Core {
    /// A regular file that is in memory.
    pub fn file(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        let node = self.node(ino)?;
        if node.inode.is_dir() {
            return Err(Error::IsDirectory.into());
        }
        if !node.inode.is_file() {
            return Err(Error::Invalid("not a regular file").into());
        }
        Ok(node)
    }

    /// The whole content of a small file, or of a symlink.
    pub fn small_content(&mut self, ino: Ino) -> Result<Arc<[u8]>, Stop> {
        let node = self.node(ino)?;
        if let Some(bytes) = &node.small {
            return Ok(Arc::clone(bytes));
        }
        match &node.inode.body {
            Body::Inline(bytes) => Ok(bytes.as_slice().into()),
            Body::Small(pointer) => {
                let pointer = *pointer;
                self.blocks.bytes(&pointer, What::Data(ino))
            }
            _ => Ok(Arc::default()),
        }
    }

    /// Reads up to `len` bytes from `offset` on; fewer at the file's end.
    pub fn read(&mut self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, Stop> {
        let node = self.file(ino)?;
        let size = node.inode.size;
        let end = offset.saturating_add(len as u64).min(size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if !node.is_large() {
            let content = self.small_content(ino)?;
            let part = content.get(offset as usize..end as usize);
            return Ok(part.ok_or(Corrupt::Missing { ino, what: "data" })?.to_vec());
        }
        let (first, last) = (offset / UNIT, (end - 1) / UNIT);
        let mut bytes = vec![0u8; (end - offset) as usize];
        let mut missed = Missed::default();
        for (unit, source) in self.sources(ino, first, last + 1)? {
            let content = match source {
                Source::Hole => continue,
                Source::Memory(content) => content,
                Source::Device(pointer) => {
                    let found = self.blocks.bytes(&pointer, What::Unit { ino, unit });
                    match missed.note(found)? {
                        Some(content) => content,
                        None => continue,
                    }
                }
            };
            let from = (unit * UNIT).max(offset);
            let to = ((unit + 1) * UNIT).min(end);
            let within = (from - unit * UNIT) as usize..(to - unit * UNIT) as usize;
            if let Some(part) = content.get(within) {
                bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        missed.nothing()?;
        Ok(bytes)
    }

    /// Where the units `first .. end` of a large file are; holes may be left out.
    fn sources(&mut self, ino: Ino, first: u64, end: u64) -> Result<Vec<(u64, Source)>, Stop> {
        let mut sources = BTreeMap::new();
        for (unit, home) in self.homes(ino, first, end)? {
            sources.insert(unit, home);
        }
        let unit_frags = self.geometry.unit_frags() as u32;
        let node = self.node(ino)?;
        let (inode, homed) = (node.inode.clone(), node.homed());
        let mut found: Vec<(u64, Source)> = Vec::new();
        let mut wanted = Vec::new();
        for unit in first..end {
            match (homed.get(unit), sources.get(&unit)) {
                (Some(bytes), _) => found.push((unit, Source::Memory(Arc::clone(bytes)))),
                (None, Some(home)) => wanted.push((unit, *home)),
                (None, None) => found.push((unit, Source::Hole)),
            }
        }
        let mut run: Option<(u64, loamfs_format::maps::CrcRun)> = None;
        for (unit, home) in wanted {
            let (addr, crc) = match self.maps.lazy_map.get(&home) {
                Some(entry) => (entry.image, entry.crc),
                None if self.maps.doubt.covers(home, ino, unit) => {
                    return Err(Corrupt::Doubtful { ino, unit }.into());
                }
                None => {
                    let key = unit / CRC_UNITS;
                    if run.as_ref().is_none_or(|(of, _)| *of != key) {
                        run = Some((key, extents::crc_run(&inode, &mut self.blocks, key)?));
                    }
                    let crc = run
                        .as_ref()
                        .map_or(0, |(_, r)| r.0[(unit % CRC_UNITS) as usize]);
                    (home, crc)
                }
            };
            if crc == 0 {
                return Err(Corrupt::Data { ino, unit, addr }.into());
            }
            let pointer = Pointer {
                addr,
                frags: unit_frags,
                stored: UNIT as u32,
                checksum: crc.into(),
                ..Pointer::NONE
            };
            found.push((unit, Source::Device(pointer)));
        }
        Ok(found)
    }

    /// The homes of units `first .. end`, where they have one that segments show.
    pub fn homes(&mut self, ino: Ino, first: u64, end: u64) -> Result<Vec<(u64, FragAddr)>, Stop> {
        let geometry = self.geometry;
        let per_block = geometry.block_units();
        self.node(ino)?;
        let node = self.inodes.prepared(ino)?;
        let found = extents::overlapping(
            &node.inode,
            &mut self.blocks,
            &geometry,
            first / per_block,
            end.div_ceil(per_block),
        )?;
        Ok(extents::units(&found, &geometry, first..end))
    }

    /// The units that have their homes in `place`, from block `first` of the file on.
    pub fn homes_in(
        &mut self,
        ino: Ino,
        place: Extent,
        first: u64,
    ) -> Result<Vec<(u64, FragAddr)>, Stop> {
        let geometry = self.geometry;
        self.node(ino)?;
        let node = self.inodes.prepared(ino)?;
        let found = extents::placed_in(&node.inode, &mut self.blocks, &geometry, place, first)?;
        let mut homes = extents::units(&found, &geometry, 0..u64::MAX);
        homes.retain(|(_, home)| place.contains(*home));
        Ok(homes)
    }

    /// The whole content of a unit as its home, or its image, has it.
    pub fn shown_unit(&mut self, ino: Ino, unit: u64) -> Result<UnitBytes, Stop> {
        match self.sources(ino, unit, unit + 1)?.pop() {
            Some((_, Source::Memory(bytes))) => Ok(bytes),
            Some((_, Source::Device(pointer))) => {
                self.blocks.bytes(&pointer, What::Unit { ino, unit })
            }
            _ => Ok(vec![0; UNIT as usize].into()),
        }
    }

    /// The content of one unit as a caller would read it, zero behind the file's end.
    pub fn unit_content(&mut self, ino: Ino, unit: u64) -> Result<Vec<u8>, Stop> {
        let size = self.node(ino)?.inode.size;
        let valid = size.saturating_sub(unit * UNIT).min(UNIT) as usize;
        // What stands behind the end is nobody's.
        if valid == 0 {
            return Ok(vec![0; UNIT as usize]);
        }
        let mut content = match self.sources(ino, unit, unit + 1)?.pop() {
            Some((_, Source::Memory(bytes))) => bytes.to_vec(),
            Some((_, Source::Device(pointer))) => self
                .blocks
                .bytes(&pointer, What::Unit { ino, unit })?
                .to_vec(),
            _ => vec![0; UNIT as usize],
        };
        if let Some(behind) = content.get_mut(valid..) {
            behind.fill(0);
        }
        Ok(content)
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<(), Stop> {
        let node = self.file(ino)?;
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        if data.is_empty() {
            return Ok(());
        }
        let (size, large) = (node.inode.size, node.is_large());
        permission::may_write(flags_of(&node.inode), offset, size)?;
        let new_size = size.max(end);
        if node.inode.truncating != u64::MAX && end > size {
            return Err(self.wait_for_drain(ino));
        }
        self.prepare_dirty(ino)?;
        if large || new_size > self.small_max() || self.spills(new_size) {
            self.write_large(ino, offset, data)?;
        } else {
            self.admit(new_size + 8192, 0)?;
            let mut content = self.small_content(ino)?.to_vec();
            content.resize(new_size as usize, 0);
            content[offset as usize..end as usize].copy_from_slice(data);
            self.apply(|core| {
                core.set_small(ino, content)?;
                core.changed_content(ino)
            })?;
        }
        Ok(())
    }

    /// The content of a file changed: times, and the set-user-id bits that a write takes away are the front end's.
    pub fn changed_content(&mut self, ino: Ino) -> Result<(), Stop> {
        let small_max = self.small_max();
        let now = self.clock.now();
        let node = self.inodes.prepared(ino)?;
        node.inode.mtime = now;
        node.inode.ctime = now;
        // A file that spilled is as much up to date as one in the log: the next segment shows it (rule 2).
        if node.inode.size <= small_max && node.homed().is_dirty() {
            let upto = node.homed().puts();
            self.writeback.hold_up(ino, upto);
        }
        self.touch(ino)
    }

    /// Gives a small file its whole content. The inode must be prepared.
    pub fn set_small(&mut self, ino: Ino, content: Vec<u8>) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        let mut freed = None;
        node.seal_first &= content.len() > node.inline_max();
        self.pending.drop_content(node.small.take().as_deref());
        node.inode.size = content.len() as u64;
        if content.len() <= node.inline_max() {
            if let Body::Small(pointer) = node.inode.body {
                freed = Some(pointer);
            }
            node.shown_size = node.inode.size;
            node.inode.frags = 0;
            node.inode.body = if content.is_empty() {
                Body::Empty
            } else {
                Body::Inline(content)
            };
        } else {
            self.pending.add_content(content.len());
            node.small = Some(content.into());
        }
        if let Some(pointer) = freed {
            self.free_block(&pointer);
        }
        Ok(())
    }

    /// Moves the content of a small file among the units of a large one (H8). What segments show of it stays until
    /// those are at home.
    fn leave_small(&mut self, ino: Ino, content: &[u8]) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        self.pending.drop_content(node.small.take().as_deref());
        node.change_homed(&mut self.writeback, |homed| {
            for (bytes, unit) in content.chunks(UNIT as usize).zip(0..) {
                let mut whole = vec![0; UNIT as usize];
                whole[..bytes.len()].copy_from_slice(bytes);
                homed.put(unit, whole.into(), Some(unit * UNIT), per_block);
            }
        });
        Ok(())
    }

    fn write_large(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<(), Stop> {
        let end = offset + data.len() as u64;
        let block = u64::from(self.geometry.block_size);
        self.admit(
            NODES_COST,
            (data.len() as u64).next_multiple_of(block) + 2 * block,
        )?;
        let node = self.file(ino)?;
        let (size, large) = (node.inode.size, node.is_large());
        self.may_go_home(ino)?;
        let mut units = if large {
            self.zeroes_behind(ino, offset)?
        } else {
            BTreeMap::new()
        };
        let small = if large {
            None
        } else {
            Some(self.small_content(ino)?)
        };
        for unit in offset / UNIT..end.div_ceil(UNIT) {
            let (start, stop) = ((unit * UNIT).max(offset), ((unit + 1) * UNIT).min(end));
            let part = &data[(start - offset) as usize..(stop - offset) as usize];
            let whole = part.len() as u64 == UNIT;
            let mut content = match (&small, units.remove(&unit)) {
                _ if whole => Vec::new(),
                (_, Some(zeroed)) => zeroed,
                (Some(small), None) => {
                    let old = small.get((unit * UNIT) as usize..).unwrap_or_default();
                    old[..old.len().min(UNIT as usize)].to_vec()
                }
                (None, None) => self.unit_content(ino, unit)?,
            };
            if whole {
                content = part.to_vec();
            } else {
                content.resize(UNIT as usize, 0);
                let within = (start - unit * UNIT) as usize;
                content[within..within + part.len()].copy_from_slice(part);
            }
            units.insert(unit, content);
        }
        self.apply(|core| {
            if let Some(content) = small {
                core.leave_small(ino, &content)?;
            }
            core.put_units(ino, units, size.max(end))?;
            core.changed_content(ino)
        })
    }

    /// Takes in new contents of whole units of a large file, which is `size` bytes long with them.
    pub fn put_units(
        &mut self,
        ino: Ino,
        units: BTreeMap<u64, Vec<u8>>,
        size: u64,
    ) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        let old = std::mem::replace(&mut node.inode.size, size);
        node.change_homed(&mut self.writeback, |homed| {
            for (unit, bytes) in units {
                let hides = size > old && (unit + 1) * UNIT > old;
                let hides = hides.then(|| old.max(unit * UNIT));
                homed.put(unit, bytes.into(), hides, per_block);
            }
        });
        Ok(())
    }

    /// The units that must become zero when a large file grows to reach `offset` or beyond: those from its end to
    /// the end of its last block, or to `offset`, that have a home. What stands there behind the end is undefined.
    fn zeroes_behind(&mut self, ino: Ino, offset: u64) -> Result<BTreeMap<u64, Vec<u8>>, Stop> {
        let size = self.node(ino)?.inode.size;
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

    /// Sets a file's size. A large file's blocks behind it go in steps: see [`Core::drain`].
    pub fn resize(&mut self, ino: Ino, size: u64) -> Result<(), Stop> {
        if size > SIZE_MAX {
            return Err(Error::TooLarge.into());
        }
        let node = self.file(ino)?;
        if node.inode.truncating != u64::MAX && size > node.inode.size {
            return Err(self.wait_for_drain(ino));
        }
        let (old, large) = (node.inode.size, node.is_large());
        self.prepare_dirty(ino)?;
        if size > old {
            let small_max = self.small_max();
            // What stands behind the old end of a large file becomes zero; a small one leaves the log.
            let at_home = large || size > small_max;
            let data = if at_home { 2 * small_max } else { 0 };
            self.admit(size.min(small_max) + NODES_COST, data)?;
        } else {
            self.admit_removal()?;
        }
        let resized = self.prepare_resize(ino, size)?;
        self.apply(|core| {
            core.apply_resize(ino, size, resized)?;
            if size == 0 && old > 0 {
                let node = core.inodes.prepared(ino)?;
                node.inode.version = node.inode.version.wrapping_add(1);
                // What is written now replaces what was there: no segment shows the cut without it (rule 3).
                if law::cut_waits() {
                    core.writeback.hold_up(ino, u64::MAX);
                }
            }
            core.changed_content(ino)
        })
    }

    /// Reads what giving a file another size needs. The inode is prepared.
    fn prepare_resize(&mut self, ino: Ino, size: u64) -> Result<Resize, Stop> {
        let small_max = self.small_max();
        let node = self.node(ino)?;
        let (old, large, moving) = (node.inode.size, node.is_large(), node.is_moving());
        if !large && size <= small_max {
            let mut content = self.small_content(ino)?.to_vec();
            content.resize(size as usize, 0);
            Ok(Resize::Small(content))
        } else if size > old {
            self.may_go_home(ino)?;
            Ok(match large {
                true => Resize::Grow(self.zeroes_behind(ino, size)?),
                false => Resize::Leave(self.small_content(ino)?),
            })
        } else if size == old {
            Ok(Resize::Nothing)
        } else if size <= small_max && moving {
            // On its way home the file has become small again: what segments show is still the small form.
            Ok(Resize::Return(self.read(ino, 0, size as usize)?))
        } else {
            Ok(Resize::Cut)
        }
    }

    fn apply_resize(&mut self, ino: Ino, size: u64, resize: Resize) -> Result<(), Stop> {
        match resize {
            Resize::Nothing => Ok(()),
            Resize::Small(content) => self.set_small(ino, content),
            Resize::Leave(content) => {
                self.leave_small(ino, &content)?;
                self.put_units(ino, BTreeMap::new(), size)
            }
            Resize::Grow(units) => self.put_units(ino, units, size),
            Resize::Return(content) => {
                self.forget_homed(ino)?;
                self.set_small(ino, content)
            }
            Resize::Cut => self.cut(ino, size),
        }
    }

    /// Cuts a large file's data that waits, and records the target for the rest (rule 1).
    fn cut(&mut self, ino: Ino, size: u64) -> Result<(), Stop> {
        let end = size.div_ceil(UNIT);
        let per_block = self.geometry.block_units();
        if self.inodes.prepared(ino)?.homed().flies_over(end..u64::MAX) {
            self.abandon_batch(ino);
        }
        let node = self.inodes.prepared(ino)?;
        node.change_homed(&mut self.writeback, |homed| {
            homed.drop_units(end..u64::MAX, per_block);
            homed.show_at_most(size);
        });
        let moving = matches!(node.inode.body, Body::Inline(_) | Body::Small(_));
        node.inode.size = size;
        if moving {
            // The small form that segments show goes with the move to home or back to small.
        } else {
            node.shown_size = node.shown_size.min(size);
            if !matches!(node.inode.body, Body::Empty) {
                node.inode.truncating = size;
            }
        }
        self.mark_leftover(ino)?;
        self.leftovers.add(ino);
        Ok(())
    }

    /// Frees a bounded number of blocks behind a file's pending target; returns whether the drain is over. A file
    /// that has become small goes back to the log then (H8).
    pub fn drain(&mut self, ino: Ino) -> Result<bool, Stop> {
        self.admit_removal()?;
        let node = match self.node(ino) {
            Err(Stop::Failed(Error::Stale(_))) => return Ok(true),
            other => other?,
        };
        if !node.inode.is_file() {
            return Ok(true);
        }
        if node.inode.truncating == u64::MAX {
            return self.return_to_log(ino).map(|()| true);
        }
        self.prepare_dirty(ino)?;
        let geometry = self.geometry;
        let node = self.inodes.prepared(ino)?;
        let keep = node.inode.truncating.div_ceil(geometry.block_size.into());
        let last = self.last_extents(ino, keep)?;
        let node = self.inodes.prepared(ino)?;
        let crc_tree = extents::crc_tree(&node.inode);
        let crc_keep = keep * geometry.block_units();
        if let Some(first) = last.last().map(|e| e.block.max(keep)) {
            let change = extents::prepare(
                &node.inode,
                &mut self.blocks,
                &geometry,
                &[(first, BLOCK_END)],
                &[],
            )?;
            return self.apply(|core| {
                let node = core.inodes.prepared(ino)?;
                extents::apply(&mut node.inode, &mut core.blocks, &change)?;
                node.change_homed(&mut core.writeback, |homed| {
                    homed.unimage(first * geometry.block_units(), u64::MAX);
                    homed.recount(geometry.block_units());
                });
                core.free_homes(ino, change.freed)?;
                core.touch(ino)?;
                Ok(false)
            });
        }
        let mut root = node.inode.checksums;
        let from = crc_keep.div_ceil(CRC_UNITS);
        crc_tree.prepare_trim(&root, &mut self.blocks, from, DRAIN_LEAVES)?;
        let edge = if crc_keep.is_multiple_of(CRC_UNITS) || root.is_empty() {
            BTreeMap::new()
        } else {
            let stale = crc_keep..crc_keep.next_multiple_of(CRC_UNITS);
            extents::prepare_crcs(&node.inode, &mut self.blocks, stale.map(|unit| (unit, 0)))?
        };
        self.apply(|core| {
            let blocks = &mut core.blocks;
            let trimmed = crc_tree.trim_step(&mut root, blocks, from, DRAIN_LEAVES, |_, _| {})?;
            let node = core.inodes.prepared(ino)?;
            node.inode.checksums = root;
            if trimmed.done {
                if !node.inode.checksums.is_empty() {
                    extents::apply_crcs(&mut node.inode, blocks, &edge)?;
                }
                node.inode.truncating = u64::MAX;
                core.mark_leftover(ino)?;
            }
            core.touch(ino)?;
            Ok(false)
        })
    }

    /// The last extents of a file that reach beyond block `keep`, last first, a bounded number.
    fn last_extents(&mut self, ino: Ino, keep: u64) -> Result<Vec<FileExtent>, Stop> {
        let geometry = self.geometry;
        let node = self.inodes.prepared(ino)?;
        let beyond = |e: &FileExtent| e.block + extents::blocks_of(e, &geometry) > keep;
        match &node.inode.body {
            Body::Extents(_) => {
                let inode = &node.inode;
                let mut found =
                    extents::overlapping(inode, &mut self.blocks, &geometry, keep, BLOCK_END)?;
                found.reverse();
                Ok(found)
            }
            Body::ExtentTree(root) => {
                let tree = extents::tree(&node.inode);
                let mut found = Vec::new();
                let mut from = BLOCK_END;
                while found.len() < DRAIN_EXTENTS
                    && let Some(entry) = tree.prev(root, &mut self.blocks, from)?
                {
                    let inode = &node.inode;
                    let here = extents::overlapping(
                        inode,
                        &mut self.blocks,
                        &geometry,
                        entry.key(),
                        entry.key() + 1,
                    )?;
                    let Some(extent) = here.into_iter().find(beyond) else {
                        break;
                    };
                    found.push(extent);
                    let Some(next) = entry.key().checked_sub(1) else {
                        break;
                    };
                    from = next;
                }
                Ok(found)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Moves a large file that has shrunk to a block or less back to the log, unless it is about to go.
    fn return_to_log(&mut self, ino: Ino) -> Result<(), Stop> {
        let small_max = self.small_max();
        let node = self.file(ino)?;
        if !node.is_large() || node.inode.size > small_max || node.inode.nlink == 0 {
            return Ok(());
        }
        let size = node.inode.size as usize;
        self.prepare_dirty(ino)?;
        let content = if size == 0 {
            Vec::new()
        } else {
            self.read(ino, 0, size)?
        };
        let geometry = self.geometry;
        let node = self.inodes.prepared(ino)?;
        let moving = matches!(node.inode.body, Body::Inline(_) | Body::Small(_));
        let crc_tree = extents::crc_tree(&node.inode);
        let mut root = node.inode.checksums;
        crc_tree.prepare_trim(&root, &mut self.blocks, 0, usize::MAX)?;
        let change = if moving {
            extents::Change::default()
        } else {
            extents::prepare(
                &node.inode,
                &mut self.blocks,
                &geometry,
                &[(0, BLOCK_END)],
                &[],
            )?
        };
        self.apply(|core| {
            core.forget_homed(ino)?;
            let (node, blocks) = (core.inodes.prepared(ino)?, &mut core.blocks);
            if !moving {
                crc_tree.trim_step(&mut root, blocks, 0, usize::MAX, |_, _| {})?;
                node.inode.checksums = TreeRoot::EMPTY;
                extents::apply(&mut node.inode, blocks, &change)?;
                node.inode.frags = 0;
                node.shown_size = 0;
            }
            for home in change.freed {
                core.free_home(home);
            }
            core.set_small(ino, content)?;
            // Its homes go with the next segment.
            core.seal_before_growth(ino)?;
            core.touch(ino)
        })
    }

    /// Has the small content of a file sealed before it may go home, while segments would show it without (rule 3).
    pub fn seal_before_growth(&mut self, ino: Ino) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        node.seal_first = node.small.is_some();
        Ok(())
    }

    /// Sends back an operation that takes a file home before a segment shows its small content.
    fn may_go_home(&mut self, ino: Ino) -> Result<(), Stop> {
        if law::stays_small(self.node(ino)?.seal_first) {
            return Err(Stop::Crowded);
        }
        Ok(())
    }
}
