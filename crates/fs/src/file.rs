//! Contents of regular files: in the inode, in the log, or at home (H1, H6, H8). Reading them, and the steps of which
//! changes of them are made.

use crate::blocks::{Missed, Stop, What};
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::extents;
use crate::inodes::Node;
use crate::unwritten::Housed;
use crate::writeback::{UNIT, UnitBytes};
use loamfs_format::inode::{Body, TAIL};
use loamfs_format::maps::CRC_UNITS;
use loamfs_format::{Extent, FragAddr, Ino, Pointer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Largest file: 8 EiB less one byte, as off_t has it.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
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

/// Whether segments show a file's blocks, or would if it had any.
pub(crate) fn at_home(node: &Node) -> bool {
    let blocks = matches!(
        node.inode.body,
        Body::Empty | Body::Extents(_) | Body::ExtentTree(_)
    );
    blocks && node.small.is_none()
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

    /// The homes of units `first .. end`, where they have one that segments show, and that was written.
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
        let found = extents::placed_in(&node.inode, &mut self.blocks, &geometry, place, first)?;
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

    /// The content of a file changed: times, and the set-user-id bits that a write takes away are the front end's.
    pub fn changed_content(&mut self, ino: Ino) -> Result<(), Stop> {
        let small_max = self.sizes().small_max();
        let now = self.env.now();
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
            self.freeing().block(&pointer);
        }
        Ok(())
    }

    /// Moves the content of a small file among the units of a large one (H8). What segments show of it stays until
    /// those are at home.
    pub fn leave_small(&mut self, ino: Ino, content: &[u8]) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        self.pending.drop_content(node.small.take().as_deref());
        node.change_homed(&mut self.writeback, |homed| {
            for (bytes, unit) in content.chunks(UNIT as usize).zip(0..) {
                let mut whole = vec![0; UNIT as usize];
                whole[..bytes.len()].copy_from_slice(bytes);
                homed.put(unit, whole.into(), (Some(unit * UNIT), false), per_block);
            }
        });
        Ok(())
    }

    /// Takes the content of a small file out of the log, so that it can have blocks once it is at home.
    pub fn take_home(&mut self, ino: Ino) -> Result<(), Stop> {
        if self.file(ino)?.is_moving() {
            return Ok(());
        }
        self.may_go_home(ino)?;
        self.prepare_dirty(ino)?;
        let content = self.small_content(ino)?;
        let data = 2 * self.sizes().small_max();
        self.budget().admit(NODES_COST, data)?;
        self.apply(|core| {
            core.leave_small(ino, &content)?;
            core.changed_content(ino)
        })
    }

    /// Takes in new contents of whole units of a large file, which is `size` bytes long with them. Some have a home that
    /// is `reserved`.
    pub fn put_units(
        &mut self,
        ino: Ino,
        units: BTreeMap<u64, UnitBytes>,
        size: u64,
        reserved: &BTreeSet<u64>,
    ) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        let old = std::mem::replace(&mut node.inode.size, size);
        node.change_homed(&mut self.writeback, |homed| {
            for (unit, bytes) in units {
                let hides = size > old && (unit + 1) * UNIT > old;
                let hides = hides.then(|| old.max(unit * UNIT));
                let reserved = reserved.contains(&unit);
                homed.put(unit, bytes, (hides, reserved), per_block);
            }
        });
        Ok(())
    }

    /// The units that must become zero when a large file grows to reach `offset` or beyond: those from its end to
    /// the end of its last block, or to `offset`, that have a home. What stands there behind the end is undefined.
    pub fn zeroes_behind(
        &mut self,
        ino: Ino,
        offset: u64,
    ) -> Result<BTreeMap<u64, UnitBytes>, Stop> {
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
                units.insert(unit, content.into());
            }
        }
        Ok(units)
    }

    /// Sends back an operation that takes a file home before a segment shows its small content.
    pub fn may_go_home(&mut self, ino: Ino) -> Result<(), Stop> {
        let seal_first = self.node(ino)?.seal_first;
        if self.env.law.stays_small(seal_first) {
            return Err(Stop::Crowded);
        }
        Ok(())
    }
}
