//! An opened volume.

use super::cache::Cache;
use super::chain::{self, Chain, Link, LostSegments};
use super::maps::{Ifile, Lazy};
use super::owners::Owners;
use super::superblocks::{self, Copies};
use super::tree::{Entries, TreeSpec};
use super::{Io, State, node_fault, replay};
use crate::{BlockFault, CheckError, MapFault, PointerFault};
use loamfs_device::{Buffer, Device};
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::ifile::{INODE_BLOCKS_MAX, IfileEntry};
use loamfs_format::maps::LazyEntry;
use loamfs_format::node::{NODE_SIZE, Page};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::summary::{Records, SegmentKind};
use loamfs_format::superblock::Superblock;
use loamfs_format::{
    BlockKind, Extent, FragAddr, Geometry, GroupNo, Identity, Ino, InodeBlockNo, Pointer, Ssn,
};
use std::sync::Arc;

/// Nodes that a volume keeps in memory unless told otherwise: 8 MiB.
pub(crate) const CACHE_NODES: usize = 2048;

/// A volume, open for reading, in the state after the last segment that counts.
pub struct Volume<'d> {
    io: Io<'d>,
    copies: Copies,
    chain: Chain,
    state: State,
    cache: Cache,
}

impl std::fmt::Debug for Volume<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("last", &self.state.last)
            .finish_non_exhaustive()
    }
}

impl<'d> Volume<'d> {
    /// Opens the volume on a device: finds the superblock, follows the chain, replays what it says.
    ///
    /// Nothing is written, and no device is flushed: whoever shares the device with a writer reads what it reads.
    ///
    /// # Errors
    /// [`CheckError`]: there is no volume here, or its checkpoint cannot be used.
    pub fn open(device: &'d dyn Device) -> Result<Volume<'d>, CheckError> {
        Volume::open_with(device, CACHE_NODES)
    }

    /// As [`open`](Self::open), keeping at most `nodes` nodes in memory.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(device: &'d dyn Device, nodes: usize) -> Result<Volume<'d>, CheckError> {
        Volume::open_copies(device, superblocks::read(device)?, nodes)
    }

    /// Opens the volume of these superblock copies.
    ///
    /// # Errors
    /// When its checkpoint cannot be used.
    pub(crate) fn open_copies(
        device: &'d dyn Device,
        copies: Copies,
        nodes: usize,
    ) -> Result<Volume<'d>, CheckError> {
        let geometry = copies.newest.geometry;
        let chain = chain::read(&Io { device, geometry }, &copies)?;
        Volume::with_chain(device, copies, chain, nodes)
    }

    /// Puts a volume together from segments of its log, from the first one's maps on if that is a checkpoint. There may be
    /// gaps.
    ///
    /// # Errors
    /// When there are none, or they cannot be read again.
    pub(crate) fn assemble(
        device: &'d dyn Device,
        sb: Superblock,
        links: Vec<Link>,
    ) -> Result<Volume<'d>, CheckError> {
        let chain = Chain {
            base: 0,
            dropped: 0,
            healed: Vec::new(),
            lost: None,
            links,
        };
        if chain.links.is_empty() {
            return Err(CheckError::NoSegment { ssn: Ssn(0) });
        }
        Volume::with_chain(device, Copies::of(sb), chain, CACHE_NODES)
    }

    fn with_chain(
        device: &'d dyn Device,
        copies: Copies,
        chain: Chain,
        nodes: usize,
    ) -> Result<Volume<'d>, CheckError> {
        let geometry = copies.newest.geometry;
        let io = Io { device, geometry };
        let state = replay::replay(&io, &copies.newest, &chain)?;
        Ok(Volume {
            io,
            copies,
            chain,
            state,
            cache: Cache::new(nodes),
        })
    }

    /// The newest superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.copies.newest
    }

    /// What was found of the superblock copies.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The volume's sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.io.geometry
    }

    /// What the adopted segments say on top of the checkpoint's maps.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The adopted segments, from the checkpoint that the superblock names to the last one.
    pub fn segments(&self) -> &[Link] {
        &self.chain.links
    }

    /// The last checkpoint among them, from which the state was replayed.
    pub fn base(&self) -> &Link {
        &self.chain.links[self.chain.base]
    }

    /// Whether the base has maps: it is no checkpoint only where none was found.
    pub(crate) fn has_maps(&self) -> bool {
        self.base().header.kind == SegmentKind::Checkpoint
    }

    /// Segments that continue the chain but do not count, as one of their blocks, or of an earlier one's, is not
    /// there.
    pub fn dropped_segments(&self) -> usize {
        self.chain.dropped
    }

    /// Segments whose header is damaged, and was read by its second copy.
    pub fn healed_segments(&self) -> &[Link] {
        &self.chain.healed
    }

    /// What rot took from the end of the log.
    pub fn lost_segments(&self) -> Option<LostSegments> {
        self.chain.lost
    }

    /// The last segment that counts.
    pub fn last(&self) -> Ssn {
        self.chain.last()
    }

    /// The records of a segment of the chain, read anew.
    ///
    /// # Errors
    /// When there is no such segment, or it cannot be read any more.
    pub fn records(&self, ssn: Ssn) -> Result<Records, CheckError> {
        let link = self.chain.links.iter().find(|link| link.header.ssn == ssn);
        chain::records(&self.io, link.ok_or(CheckError::NoSegment { ssn })?)
    }

    /// One of the checkpoint's maps.
    pub fn map(&self, kind: BlockKind) -> TreeSpec {
        TreeSpec {
            kind,
            ino: Ino(0),
            generation: 0,
            root: self.state.root(kind),
        }
    }

    /// The entries of any tree from a key on.
    pub fn entries<'v>(&'v self, spec: TreeSpec, from: u64) -> Entries<'v> {
        Entries::new(self, spec, from)
    }

    /// The IFILE's entries with live inodes, from an inode block on.
    pub fn ifile(&self, from: InodeBlockNo) -> Ifile<'_> {
        Ifile::ifile(self, from.0)
    }

    /// The same of all blocks, as far as they can be read, so many at a time.
    pub fn ifile_batches(
        &self,
        size: usize,
    ) -> impl Iterator<Item = Vec<(InodeBlockNo, IfileEntry)>> {
        let entries = self.ifile(InodeBlockNo(0)).flatten();
        let mut entries = entries.map(|(block, entry)| (InodeBlockNo(block), entry));
        let batches = std::iter::repeat_with(move || entries.by_ref().take(size).collect());
        batches.take_while(|batch: &Vec<_>| !batch.is_empty())
    }

    /// The lazy map's entries from a home on.
    pub fn lazy(&self, from: FragAddr) -> Lazy<'_> {
        Lazy::lazy(self, from.0)
    }

    /// The owner records that reach behind `from`.
    pub fn owners(&self, from: FragAddr) -> Owners<'_> {
        Owners::new(self, from)
    }

    /// The IFILE's entry of a block; `None` when no inode lives there.
    ///
    /// # Errors
    /// When that part of the IFILE cannot be read.
    pub fn ifile_entry(&self, block: InodeBlockNo) -> Result<Option<IfileEntry>, CheckError> {
        if block.0 >= INODE_BLOCKS_MAX {
            return Ok(None);
        }
        match self.ifile(block).next() {
            Some(Ok((key, entry))) => Ok((key == block.0).then_some(entry)),
            Some(Err(fault)) => Err(fault.into()),
            None => Ok(None),
        }
    }

    /// The lazy map's entry of a home.
    ///
    /// # Errors
    /// When that part of the map cannot be read.
    pub fn lazy_entry(&self, home: FragAddr) -> Result<Option<LazyEntry>, CheckError> {
        if !self.has_images() {
            return Ok(None);
        }
        match self.lazy(home).next() {
            Some(Ok((key, entry))) => Ok((key == home.0).then_some(entry)),
            Some(Err(fault)) => Err(fault.into()),
            None => Ok(None),
        }
    }

    /// Whether the lazy map may have entries at all.
    pub(crate) fn has_images(&self) -> bool {
        !self.state.root(BlockKind::LazyNode).is_empty() || !self.state.lazy.is_empty()
    }

    /// A group's descriptor in the checkpoint, and its role now.
    ///
    /// # Errors
    /// When that part of the map cannot be read.
    pub fn group(&self, group: GroupNo) -> Result<(GroupDesc, Role), CheckError> {
        let kind = BlockKind::GroupNode;
        let desc = match self.lookup(self.map(kind), group.0.into())? {
            Some(value) => {
                let fault = MapFault::Entry {
                    kind,
                    ino: Ino(0),
                    key: group.0.into(),
                };
                GroupDesc::decode(&value).ok_or(fault)?
            }
            None => GroupDesc::default(),
        };
        let role = self.state.roles.get(&group).copied().unwrap_or(desc.role);
        Ok((desc, role))
    }

    /// The value of a key in a tree.
    ///
    /// # Errors
    /// When a node on the way cannot be used.
    pub fn lookup(&self, spec: TreeSpec, key: u64) -> Result<Option<Vec<u8>>, CheckError> {
        match self.entries(spec, key).next() {
            Some(Ok(entry)) => Ok((entry.key() == key).then(|| entry.value().to_vec())),
            Some(Err(fault)) => Err(fault.into()),
            None => Ok(None),
        }
    }

    /// The greatest key of a tree that is not above `key`, as far as the nodes on the way to it can be used.
    pub(crate) fn floor_key(&self, spec: TreeSpec, key: u64) -> Option<u64> {
        let TreeSpec {
            kind,
            ino,
            generation,
            root,
        } = spec;
        let identity = root.identity(kind, ino, generation);
        // The way down, and once to the left when the leaf has only greater keys; faults end it early.
        let mut nodes = 3 * (usize::from(root.level) + 1);
        if root.is_empty() {
            None
        } else {
            self.floor_at(&root.pointer, &identity, key, &mut nodes)
        }
    }

    fn floor_at(
        &self,
        pointer: &Pointer,
        identity: &Identity,
        key: u64,
        nodes: &mut usize,
    ) -> Option<u64> {
        *nodes = nodes.checked_sub(1)?;
        let page = self.node(pointer, identity).ok()?;
        let last = page.floor(key)?;
        let Some(level) = identity.level.checked_sub(1) else {
            return page.key(last);
        };
        (0..=last).rev().find_map(|index| {
            let child = Identity {
                level,
                logical: page.key(index)?,
                ..*identity
            };
            self.floor_at(&page.child(index)?.pointer, &child, key, nodes)
        })
    }

    /// A node, verified against its pointer and as what it should be.
    ///
    /// # Errors
    /// What is wrong with the pointer or the node.
    pub fn node(&self, pointer: &Pointer, identity: &Identity) -> Result<Arc<Page>, BlockFault> {
        if let Some(page) = self.cache.get(pointer.addr, identity, pointer.checksum) {
            return Ok(page);
        }
        self.check_node(pointer, identity.kind)?;
        let mut first = None;
        for copy in pointer.copies(identity.kind, &self.io.geometry) {
            let node = match self.io.read(copy.start, NODE_SIZE) {
                Ok(bytes) => self.accept(pointer, identity, &bytes),
                Err(error) => Err(error.into()),
            };
            match node {
                Ok(node) => return Ok(node),
                Err(fault) => drop(first.get_or_insert(fault)),
            }
        }
        Err(first.unwrap_or(PointerFault::None.into()))
    }

    /// Those of some nodes of which a copy cannot be used, though there is another one.
    pub(crate) fn worn(&self, nodes: &[(Pointer, Identity)]) -> Vec<(Pointer, Identity)> {
        let (mut whose, mut ranges) = (Vec::new(), Vec::new());
        for (pointer, identity) in nodes {
            let copies: Vec<Extent> = pointer.copies(identity.kind, &self.io.geometry).collect();
            for copy in copies.iter().filter(|_| copies.len() > 1) {
                whose.push((*pointer, *identity));
                ranges.push((copy.start, NODE_SIZE));
            }
        }
        let uuid = &self.copies.newest.uuid;
        let read = whose.into_iter().zip(self.io.read_all(&ranges));
        let bad = read.filter(|((pointer, identity), bytes)| {
            !bytes
                .as_ref()
                .is_ok_and(|bytes| metadata_checksum(uuid, identity, bytes) == pointer.checksum)
        });
        bad.map(|(node, _)| node).collect()
    }

    /// Reads nodes into the cache with one batch of requests, by rising addresses. Those that cannot be used are left
    /// for [`Volume::node`] to explain.
    pub(crate) fn prefetch(&self, nodes: &[(Pointer, Identity)]) {
        let mut wanted: Vec<&(Pointer, Identity)> = nodes
            .iter()
            .filter(|(pointer, identity)| {
                self.check_node(pointer, identity.kind).is_ok()
                    && self
                        .cache
                        .get(pointer.addr, identity, pointer.checksum)
                        .is_none()
            })
            .collect();
        wanted.sort_by_key(|(pointer, _)| pointer.addr);
        wanted.truncate(self.cache.capacity() / 2);
        if wanted.len() < 2 {
            return;
        }
        let ranges: Vec<_> = wanted
            .iter()
            .map(|(pointer, _)| (pointer.addr, NODE_SIZE))
            .collect();
        for ((pointer, identity), bytes) in wanted.into_iter().zip(self.io.read_all(&ranges)) {
            if let Ok(bytes) = bytes {
                let _ = self.accept(pointer, identity, &bytes);
            }
        }
    }

    /// The data of several blocks in the log, unverified, with one batch of requests.
    pub(crate) fn read_blocks(&self, pointers: &[Pointer]) -> Vec<Result<Buffer, BlockFault>> {
        let ranges: Vec<_> = pointers
            .iter()
            .map(|p| (p.addr, p.stored as usize))
            .collect();
        self.io
            .read_all(&ranges)
            .into_iter()
            .map(|bytes| bytes.map_err(BlockFault::from))
            .collect()
    }

    pub(crate) fn io(&self) -> &Io<'d> {
        &self.io
    }

    fn check_node(&self, pointer: &Pointer, kind: BlockKind) -> Result<(), BlockFault> {
        let fault = node_fault(&self.io.geometry, self.state.last, pointer, kind);
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn accept(
        &self,
        pointer: &Pointer,
        identity: &Identity,
        bytes: &[u8],
    ) -> Result<Arc<Page>, BlockFault> {
        let found = metadata_checksum(&self.copies.newest.uuid, identity, bytes);
        if found != pointer.checksum {
            return Err(BlockFault::Checksum {
                expected: pointer.checksum,
                found,
            });
        }
        let page = Arc::new(Page::from_bytes(bytes, identity)?);
        self.cache.put(pointer.addr, *identity, found, &page);
        Ok(page)
    }
}
