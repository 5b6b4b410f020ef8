//! The blocks of a volume, and for each the place where its checksum stands.

use std::collections::BTreeMap;

use loamfs_check::Volume;
use loamfs_device::{Image, MemoryDevice};
use loamfs_format::dirent::KEYS_END;
use loamfs_format::inode::{self, Body, Inode, Table};
use loamfs_format::node::TreeRoot;
use loamfs_format::pointer::{RawPointer, data_checksum, metadata_checksum};
use loamfs_format::summary::HEADER_SIZE;
use loamfs_format::track::{TableEntry, decode_inline, head_bytes, inline_size};
use loamfs_format::{BlockKind, Geometry, Identity, Ino, Pointer, superblock};
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::FromBytes;

use crate::golden::Made;

/// More blocks than any small volume has.
const BLOCKS_MAX: usize = 1 << 14;
const ALLOCATE: u8 = 1;
const IFILE: u8 = 4;
const ROOT: u8 = 10;
/// Place of the checksum in superblocks and headers.
const OWN_SUM: usize = 8;
/// Place of the checksum in a pointer.
const POINTER_SUM: usize = 32;
/// Place of the checksum in an entry of a table of tracks.
const TABLE_SUM: usize = 16;
/// The same, of an entry in an inode.
const TABLE_SUM_SHORT: usize = 17;
const RECORDS_LEN: usize = 72;
const RECORDS_SUM: usize = 80;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A copy of the superblock.
    Superblock,
    /// Header and records of a segment.
    Summary,
    /// A node, or a block of inodes.
    Metadata(Identity),
    /// Content.
    Data,
}

impl Part {
    /// The kind of block, by which mutations choose.
    pub fn class(&self) -> u8 {
        match self {
            Part::Superblock => 0,
            Part::Summary => 1,
            Part::Data => 2,
            Part::Metadata(identity) => 16 + identity.kind as u8 + 32 * identity.level.min(1),
        }
    }
}

/// A block.
#[derive(Clone, Debug)]
pub struct Site {
    /// What it is.
    pub part: Part,
    /// First byte on the device.
    pub offset: u64,
    /// The same of its second copy.
    second: Option<u64>,
    /// What its checksum covers.
    pub bytes: Vec<u8>,
    /// The block that points to it, and the place of the checksum in that.
    holder: Option<(usize, usize)>,
    /// The checksum that it had.
    sum: u64,
    changed: bool,
}

/// A volume taken apart.
#[derive(Clone, Debug)]
pub struct Structures {
    /// The volume.
    pub image: Image,
    /// Its sizes.
    pub geometry: Geometry,
    /// Its blocks, each behind the one that points to it.
    pub sites: Vec<Site>,
    uuid: [u8; 16],
    /// Where segments behind the checkpoint say that inode blocks are; its map is out of date there.
    inode_blocks: BTreeMap<u64, (usize, usize)>,
}

impl Structures {
    /// Where the nodes of some kind and level stand, in bytes.
    pub fn nodes(&self, kind: BlockKind, level: u8) -> Vec<u64> {
        let is =
            |part: &Part| matches!(part, Part::Metadata(i) if i.kind == kind && i.level == level);
        let found = self.sites.iter().filter(|site| is(&site.part));
        found.map(|site| site.offset).collect()
    }

    /// Takes a sound volume apart.
    pub fn read(image: Image) -> Made<Self> {
        let device = MemoryDevice::from_image(image.clone());
        let volume = Volume::open(&device)?;
        let mut structures = Self {
            geometry: *volume.geometry(),
            uuid: volume.superblock().uuid,
            sites: Vec::new(),
            inode_blocks: BTreeMap::new(),
            image,
        };
        for (offset, _) in &volume.copies().places {
            structures.add(Part::Superblock, *offset, superblock::SIZE, None)?;
        }
        for link in volume.segments() {
            let len = HEADER_SIZE as u64 + link.header.records_len;
            let at = structures.geometry.byte_offset(link.at);
            structures.add(Part::Summary, at, len as usize, None)?;
        }
        // What counts is said from the last checkpoint on.
        let segments = volume.segments();
        let base = 2 + segments
            .iter()
            .take_while(|link| *link != volume.base())
            .count();
        let mut roots = Vec::new();
        for site in base..2 + segments.len() {
            for (at, kind, flags) in records(&structures.sites[site].bytes) {
                if kind == ROOT {
                    roots.push(((site, at), BlockKind::from_u8(flags).ok_or("no kind")?));
                } else if kind == IFILE {
                    let block = structures.word(site, at);
                    structures.inode_blocks.insert(block, (site, at + 8));
                }
            }
        }
        for (place, kind) in roots {
            structures.tree(place, kind, Ino(0), 0)?;
        }
        for (block, place) in structures.inode_blocks.clone() {
            structures.inode_block(place, block)?;
        }
        Ok(structures)
    }

    /// The first block that is this.
    pub fn find(&self, fits: impl FnMut(&Site) -> bool) -> Option<usize> {
        self.sites.iter().position(fits)
    }

    /// Changes bytes of a block.
    pub fn put(&mut self, site: usize, at: usize, bytes: &[u8]) {
        let Some(site) = self.sites.get_mut(site) else {
            return;
        };
        for (old, new) in site.bytes.iter_mut().skip(at).zip(bytes) {
            *old = *new;
        }
        site.changed = true;
    }

    /// The volume with the changes, and with checksums that are right for them all the way up.
    pub fn sealed(mut self) -> Made<Image> {
        let mut sums = BTreeMap::new();
        for index in (0..self.sites.len()).rev() {
            if self.sites[index].part == Part::Summary {
                self.sites[index].changed |= patch_allocations(&mut self.sites[index].bytes, &sums);
            }
            if !self.sites[index].changed {
                continue;
            }
            let site = &mut self.sites[index];
            let sum = match &site.part {
                Part::Superblock => own_sum(&mut site.bytes),
                Part::Summary => {
                    let (header, records) = site.bytes.split_at_mut(HEADER_SIZE);
                    let len = word(header, RECORDS_LEN).min(records.len() as u64);
                    let sum = xxh3_64(&records[..len as usize]);
                    header[RECORDS_SUM..RECORDS_SUM + 8].copy_from_slice(&sum.to_le_bytes());
                    own_sum(header)
                }
                Part::Metadata(identity) => metadata_checksum(&self.uuid, identity, &site.bytes),
                Part::Data => data_checksum(&site.bytes),
            };
            for at in [Some(site.offset), site.second].into_iter().flatten() {
                self.image.write(at, &site.bytes)?;
            }
            if let Some((holder, at)) = site.holder {
                sums.insert(site.sum, sum);
                self.put(holder, at, &sum.to_le_bytes());
            }
        }
        Ok(self.image)
    }

    fn add(
        &mut self,
        part: Part,
        offset: u64,
        len: usize,
        holder: Option<(usize, usize)>,
    ) -> Made<usize> {
        if self.sites.len() >= BLOCKS_MAX {
            return Err("too many blocks".into());
        }
        let mut bytes = vec![0; len];
        self.image.read(offset, &mut bytes)?;
        self.sites.push(Site {
            part,
            offset,
            second: None,
            bytes,
            holder,
            sum: 0,
            changed: false,
        });
        Ok(self.sites.len() - 1)
    }

    fn word(&self, site: usize, at: usize) -> u64 {
        word(&self.sites[site].bytes, at)
    }

    fn pointer(&self, (site, at): (usize, usize)) -> Made<Pointer> {
        let bytes = self.sites[site].bytes.get(at..).unwrap_or_default();
        let (raw, _) = RawPointer::ref_from_prefix(bytes).map_err(|_| "a pointer is cut short")?;
        Ok(Pointer::decode(raw))
    }

    fn block(&mut self, place: (usize, usize), part: Part) -> Made<Option<usize>> {
        let pointer = self.pointer(place)?;
        if !pointer.is_some() {
            return Ok(None);
        }
        let offset = self.geometry.byte_offset(pointer.addr);
        let second = match part {
            Part::Metadata(i) => pointer.copies(i.kind, &self.geometry).nth(1),
            _ => None,
        };
        let holder = (place.0, place.1 + POINTER_SUM);
        let site = self.add(part, offset, pointer.stored as usize, Some(holder))?;
        self.sites[site].sum = pointer.checksum;
        self.sites[site].second = second.map(|copy| self.geometry.byte_offset(copy.start));
        Ok(Some(site))
    }

    fn tree(
        &mut self,
        place: (usize, usize),
        kind: BlockKind,
        ino: Ino,
        generation: u32,
    ) -> Made<()> {
        let bytes = &self.sites[place.0].bytes[place.1..];
        let root = bytes.get(..TreeRoot::SIZE).and_then(TreeRoot::decode);
        let root = root.ok_or("a root is malformed")?;
        self.node(place, root.identity(kind, ino, generation))
    }

    fn node(&mut self, place: (usize, usize), identity: Identity) -> Made<()> {
        let Some(site) = self.block(place, Part::Metadata(identity))? else {
            return Ok(());
        };
        for slot in 0..usize::from(half(&self.sites[site].bytes, 8)) {
            let at = 64 + 12 * slot;
            let key = self.word(site, at);
            let value = usize::from(half(&self.sites[site].bytes, at + 8));
            if identity.level > 0 {
                let child = Identity {
                    level: identity.level - 1,
                    logical: key,
                    ..identity
                };
                self.node((site, value), child)?;
            } else if identity.kind == BlockKind::IfileNode {
                if !self.inode_blocks.contains_key(&key) {
                    self.inode_block((site, value), key)?;
                }
            } else if identity.kind == BlockKind::XattrNode {
                self.attribute(site, value)?;
            } else if identity.kind == BlockKind::TrackNode {
                let len = usize::from(half(&self.sites[site].bytes, at + 10));
                let bytes = self.sites[site].bytes.get(value..value + len);
                let bytes = bytes.unwrap_or_default();
                let entry = TableEntry::decode(bytes, self.geometry.fragment_size);
                let entry = entry.ok_or("an entry of a table of tracks is malformed")?;
                let dir = (identity.ino, identity.generation);
                self.track((site, value + TABLE_SUM), dir, key, entry)?;
            }
        }
        Ok(())
    }

    fn attribute(&mut self, site: usize, value: usize) -> Made<()> {
        let (kind, name) = match self.sites[site].bytes.get(value..value + 3) {
            Some(&[_, kind, name]) => (kind, usize::from(name)),
            _ => return Ok(()),
        };
        if kind == 1 {
            self.block((site, value + 3 + name), Part::Data)?;
        }
        Ok(())
    }

    /// The head of a track that an entry of a directory's table names, and where its checksum stands.
    fn track(
        &mut self,
        holder: (usize, usize),
        (ino, generation): (Ino, u32),
        low: u64,
        entry: TableEntry,
    ) -> Made<()> {
        if entry.is_some() {
            let identity = entry.identity(ino, generation, low, KEYS_END).block();
            let offset = self.geometry.byte_offset(entry.addr);
            let len = head_bytes(entry.slots.into());
            let head = self.add(Part::Metadata(identity), offset, len, Some(holder))?;
            self.sites[head].sum = entry.checksum;
        }
        Ok(())
    }

    fn inode_block(&mut self, place: (usize, usize), block: u64) -> Made<()> {
        let identity = Identity {
            kind: BlockKind::InodeBlock,
            level: 0,
            ino: Ino(0),
            generation: 0,
            logical: block,
        };
        let Some(site) = self.block(place, Part::Metadata(identity))? else {
            return Ok(());
        };
        for start in (0..self.sites[site].bytes.len()).step_by(inode::SIZE) {
            let bytes = &self.sites[site].bytes[start..start + inode::SIZE];
            self.inode(site, start, &Inode::decode(bytes)?)?;
        }
        Ok(())
    }

    fn inode(&mut self, site: usize, start: usize, inode: &Inode) -> Made<()> {
        const CHECKSUMS: usize = 144;
        const XATTRS: usize = 208;
        const TAIL: usize = 272;
        let (ino, generation) = (inode.ino, inode.generation);
        let mut tree = |at, kind| self.tree((site, start + at), kind, ino, generation);
        tree(CHECKSUMS, BlockKind::ChecksumNode)?;
        tree(XATTRS, BlockKind::XattrNode)?;
        let table = TAIL + inode.body.len();
        match &inode.table {
            Table::None => {}
            Table::Tree(_) => tree(table, BlockKind::TrackNode)?,
            Table::Inline(bytes) => {
                let entries = decode_inline(bytes, self.geometry.fragment_size);
                let entries = entries.ok_or("a table of tracks in an inode is malformed")?;
                let size = inline_size(bytes.len()).unwrap_or_default();
                let sum = match size {
                    TableEntry::SHORT_SIZE => TABLE_SUM_SHORT,
                    _ => 8 + TABLE_SUM,
                };
                for (at, (low, entry)) in entries.into_iter().enumerate() {
                    let at = start + table + at * size + sum;
                    self.track((site, at), (ino, generation), low, entry)?;
                }
            }
        }
        let mut tree = |at, kind| self.tree((site, start + at), kind, ino, generation);
        match &inode.body {
            Body::ExtentTree(_) => tree(TAIL, BlockKind::ExtentNode),
            Body::DirTree(_) => tree(TAIL, BlockKind::DirNode),
            Body::Small(_) | Body::Settled(_) => {
                self.block((site, start + TAIL), Part::Data).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

/// The records of a summary: place of the payload, type, flags.
fn records(summary: &[u8]) -> Vec<(usize, u8, u8)> {
    let mut found = Vec::new();
    let mut at = HEADER_SIZE;
    while let Some(&[kind, flags, low, high]) = summary.get(at..at + 4) {
        found.push((at + 4, kind, flags));
        at += 4 + usize::from(u16::from_le_bytes([low, high]));
    }
    found
}

/// Gives blocks in the body of a segment the checksums that they have now, by those that they had; whether there were
/// any.
fn patch_allocations(summary: &mut [u8], sums: &BTreeMap<u64, u64>) -> bool {
    const CHECKSUM: usize = 44;
    let mut any = false;
    for (at, kind, _) in records(summary) {
        if kind == ALLOCATE
            && let Some(sum) = sums.get(&word(summary, at + CHECKSUM))
            && let Some(place) = summary.get_mut(at + CHECKSUM..at + CHECKSUM + 8)
        {
            place.copy_from_slice(&sum.to_le_bytes());
            any = true;
        }
    }
    any
}

/// Sets the checksum of bytes that hold their own.
fn own_sum(bytes: &mut [u8]) -> u64 {
    bytes[OWN_SUM..OWN_SUM + 8].fill(0);
    let sum = xxh3_64(bytes);
    bytes[OWN_SUM..OWN_SUM + 8].copy_from_slice(&sum.to_le_bytes());
    sum
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let piece = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    piece.map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    let piece = bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
    piece.map_or(0, u16::from_le_bytes)
}
