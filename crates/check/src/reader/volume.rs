//! An opened volume.

use super::chain::{self, Chain, LostSegments};
use super::maps::{Ifile, Lazy};
use super::nodes::Nodes;
use super::owners::Owners;
use super::summary::{self, Link};
use super::superblocks::{self, Copies};
use super::tree::{Entries, TreeSpec};
use super::{Io, State, replay};
use crate::{CheckError, MapFault};
use loamfs_device::Device;
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::ifile::{INODE_BLOCKS_MAX, IfileEntry};
use loamfs_format::maps::LazyEntry;
use loamfs_format::summary::{Records, SegmentKind};
use loamfs_format::superblock::Superblock;
use loamfs_format::{BlockKind, FragAddr, Geometry, GroupNo, Ino, InodeBlockNo, Ssn};

/// Nodes that a volume keeps in memory unless told otherwise: 8 MiB.
pub(crate) const CACHE_NODES: usize = 2048;

/// A volume, open for reading, in the state after the last segment that counts.
pub struct Volume<'d> {
    io: Io<'d>,
    copies: Copies,
    chain: Chain,
    state: State,
    nodes: Nodes<'d>,
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
            durable: Ssn::default(),
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
        let nodes = Nodes::new(io, copies.newest.uuid, state.last, nodes);
        Ok(Volume {
            io,
            nodes,
            copies,
            chain,
            state,
        })
    }

    /// What segments said of another state of an inode than the one that is found is no damage from now on: segments may be
    /// missing.
    pub(crate) fn skip_deltas(&mut self) {
        self.state.skips_deltas = true;
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

    /// The highest segment of which something says that it was durable.
    pub fn durable(&self) -> Ssn {
        self.chain.durable
    }

    /// The records of a segment of the chain, read anew.
    ///
    /// # Errors
    /// When there is no such segment, or it cannot be read any more.
    pub fn records(&self, ssn: Ssn) -> Result<Records, CheckError> {
        let link = self.chain.links.iter().find(|link| link.header.ssn == ssn);
        summary::records(&self.io, link.ok_or(CheckError::NoSegment { ssn })?)
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

    /// The nodes of its trees.
    pub(crate) fn nodes(&self) -> &Nodes<'d> {
        &self.nodes
    }

    pub(crate) fn io(&self) -> &Io<'d> {
        &self.io
    }
}
