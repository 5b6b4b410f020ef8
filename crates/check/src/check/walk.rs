//! One walk over everything that the volume's state leads to.
//!
//! Inode blocks are read in batches sorted by address, then the roots of their inodes' trees, then the data of small
//! files. So the head moves forward through the log as the writer did.

use super::Walker;
use super::aggregates::Aggregates;
use super::visitor::{Lost, Visitor};
use crate::reader::{InodeBlock, TreeWalk, Visited, log_fault};
use crate::{BlockFault, CheckError, MapFault, Owner, PointerFault, Problem, Volume};
use loamfs_format::ifile::{INODE_BLOCK_MAX, INODE_BLOCKS_MAX, IfileEntry};
use loamfs_format::inode::{Body, Inode, Table};
use loamfs_format::kind::MapTree;
use loamfs_format::node::Page;
use loamfs_format::{BlockKind, Extent, Identity, Ino, InodeBlockNo, Pointer, Ssn};
use std::sync::Arc;

/// Inode blocks read at once: at most 4 MiB.
const BLOCKS: usize = 256;
/// Inodes whose trees and data are looked at together.
const INODES: usize = 128;
/// Blocks of data that wait to be read: one inode's attributes may have as many as there is room for.
const BLOCKS_OF_DATA: usize = 4096;
/// Bytes of small files read at once.
const DATA: u64 = 4 << 20;
/// Nodes of which the copies are read together.
const COPIES_AT_ONCE: usize = 64;

impl<'w, 'v> Walker<'w, 'v> {
    pub(crate) fn new(
        volume: &'v Volume<'v>,
        visitor: &'w mut dyn Visitor,
        data: bool,
    ) -> Walker<'w, 'v> {
        Walker {
            volume,
            visitor,
            data,
            claimed: 0,
            blocks: Vec::new(),
        }
    }

    /// Walks the whole volume.
    pub(crate) fn run(&mut self) {
        for (done, kind) in MapTree::ALL.map(MapTree::kind).into_iter().enumerate() {
            self.map(kind);
            self.visitor.maps_done(done as u64 + 1);
        }
        self.inodes();
    }

    fn map(&mut self, kind: BlockKind) {
        let mut aggregates = Aggregates::default();
        let mut nodes = Vec::new();
        for node in TreeWalk::new(self.volume, self.volume.map(kind), 0) {
            if kind == BlockKind::IfileNode {
                aggregates.visit(&node, self.visitor);
            }
            nodes.extend(node.page.is_ok().then_some((node.pointer, node.identity)));
            if nodes.len() == COPIES_AT_ONCE {
                self.copies(&mut nodes);
            }
            self.node(node);
        }
        self.copies(&mut nodes);
        aggregates.close(u8::MAX, self.visitor);
    }

    /// Verifies both copies of nodes that are there twice.
    fn copies(&mut self, nodes: &mut Vec<(Pointer, Identity)>) {
        for (pointer, identity) in self.volume.nodes().worn(nodes) {
            self.visitor.problem(Problem::MapCopy {
                kind: identity.kind,
                level: identity.level,
                low: identity.logical,
                addr: pointer.addr,
            });
        }
        nodes.clear();
    }

    /// Claims a node, and says what is wrong with it if it cannot be used.
    pub(super) fn node(&mut self, node: Visited) -> Option<Arc<Page>> {
        let Visited {
            pointer,
            identity,
            page,
            ..
        } = node;
        let Identity {
            kind,
            level,
            ino,
            logical: low,
            ..
        } = identity;
        if !matches!(page, Err(BlockFault::Pointer(_))) {
            self.claim(pointer.extent(), kind, level, ino, low);
        }
        match page {
            Ok(page) => {
                self.visitor.node();
                Some(page)
            }
            Err(fault) => {
                let addr = pointer.addr;
                let problem = match kind {
                    BlockKind::TrackNode => Problem::TrackTable {
                        dir: ino,
                        low,
                        fault,
                    },
                    _ => Problem::Node {
                        kind,
                        ino,
                        level,
                        low,
                        addr,
                        fault,
                    },
                };
                self.unusable(ino, kind, pointer.extent(), problem);
                self.visitor.lost(Lost::below(kind));
                None
            }
        }
    }

    /// Names a block of metadata that cannot be used; what stands on a device that is missing is not damaged.
    pub(super) fn unusable(&mut self, ino: Ino, kind: BlockKind, at: Extent, problem: Problem) {
        let addr = at.start;
        self.visitor.problem(match self.volume.io().is_missing(at) {
            true => Problem::MissingBlock { ino, kind, addr },
            false => problem,
        });
    }

    /// Tells that a range on the volume is in use.
    pub(super) fn claim(
        &mut self,
        extent: Extent,
        kind: BlockKind,
        level: u8,
        ino: Ino,
        logical: u64,
    ) {
        self.claimed = self.claimed.saturating_add(extent.frags);
        let geometry = self.volume.geometry();
        let owner = Owner::new(kind, level, ino, logical, extent.start, geometry);
        self.visitor.claim(extent, owner);
    }

    /// Whether more is claimed than a volume without overlaps could hold. What costs time by the size of what is
    /// claimed then stops: a hostile volume could claim without end.
    pub(super) fn is_overcommitted(&self) -> bool {
        self.claimed > self.volume.geometry().total_frags.saturating_mul(2)
    }

    /// Says that a pointer cannot be followed.
    pub(super) fn bad_pointer(
        &mut self,
        ino: Ino,
        kind: BlockKind,
        pointer: &Pointer,
        fault: PointerFault,
    ) {
        self.visitor.problem(Problem::Pointer {
            ino,
            kind,
            addr: pointer.addr,
            fault,
        });
        self.visitor.lost(Lost::below(kind));
    }

    /// Claims a block of data in the log, and has it read if data are checked.
    pub(super) fn data_block(&mut self, ino: Ino, kind: BlockKind, pointer: &Pointer) {
        let (geometry, last) = (self.volume.geometry(), self.volume.last());
        match log_fault(geometry, last, pointer, geometry.small_size.into()) {
            Some(fault) => self.bad_pointer(ino, kind, pointer, fault),
            None => {
                self.claim(pointer.extent(), kind, 0, ino, 0);
                if self.volume.io().is_missing(pointer.extent()) {
                    let (addr, bytes) = (pointer.addr, pointer.stored.into());
                    self.visitor.problem(match kind {
                        BlockKind::SmallData => Problem::MissingData { ino, bytes },
                        _ => Problem::MissingBlock { ino, kind, addr },
                    });
                } else if self.data && !self.is_overcommitted() {
                    self.blocks.push((ino, kind, *pointer));
                    if self.blocks.len() >= BLOCKS_OF_DATA {
                        self.read_blocks();
                    }
                }
            }
        }
    }

    fn inodes(&mut self) {
        let volume = self.volume;
        let mut batch = Vec::with_capacity(BLOCKS);
        for item in volume.ifile(InodeBlockNo(0)) {
            match item {
                Ok((block, entry)) => {
                    if self.ifile_entry(InodeBlockNo(block), &entry) {
                        batch.push((InodeBlockNo(block), entry));
                    }
                }
                // Nodes that cannot be used were named when the map was walked.
                Err(MapFault::Node(_)) => {}
                Err(MapFault::Entry { kind, ino, key }) => {
                    self.visitor.problem(Problem::Entry { kind, ino, key });
                    self.visitor.lost(Lost::below(kind));
                }
                Err(MapFault::OwnerOverlap { .. }) => {}
            }
            if batch.len() == BLOCKS {
                self.blocks_of_inodes(&batch);
                batch.clear();
            }
        }
        self.blocks_of_inodes(&batch);
        self.deltas_of_none();
    }

    /// Names what segments say of inodes of blocks that are not there.
    fn deltas_of_none(&mut self) {
        for (block, deltas) in &self.volume.state().deltas {
            let block = InodeBlockNo(*block);
            if let (Ok(None), Some(delta)) = (self.volume.ifile_entry(block), deltas.first()) {
                let fault = BlockFault::Delta { ino: delta.ino() };
                self.visitor.problem(Problem::InodeBlock { block, fault });
            }
        }
    }

    /// Checks an entry and claims its block. False when there are no such inodes.
    fn ifile_entry(&mut self, block: InodeBlockNo, entry: &IfileEntry) -> bool {
        if block.0 >= INODE_BLOCKS_MAX {
            self.visitor.problem(Problem::InodeBlockNumber { block });
            self.visitor.lost(Lost::below(BlockKind::InodeBlock));
            return false;
        }
        let next = self.volume.state().dynamic.next_inode_block;
        if block >= next {
            self.visitor
                .problem(Problem::NextInodeBlock { block, next });
        }
        if entry.ssn > self.volume.last() {
            self.visitor.problem(Problem::IfileSsn {
                block,
                ssn: entry.ssn,
            });
        }
        if log_fault(
            self.volume.geometry(),
            self.volume.last(),
            &entry.pointer,
            INODE_BLOCK_MAX,
        )
        .is_none()
        {
            self.claim(
                entry.pointer.extent(),
                BlockKind::InodeBlock,
                0,
                Ino(0),
                block.0,
            );
        }
        true
    }

    fn blocks_of_inodes(&mut self, entries: &[(InodeBlockNo, IfileEntry)]) {
        let mut inodes = Vec::with_capacity(INODES);
        for (block, read) in self.volume.inode_blocks(entries) {
            match read {
                Ok(read) => self.unpack(&read, &mut inodes),
                Err(fault) => {
                    let entry = entries.iter().find(|(number, _)| *number == block);
                    let at = entry.map_or(Pointer::NONE, |(_, entry)| entry.pointer);
                    let (kind, problem) =
                        (BlockKind::InodeBlock, Problem::InodeBlock { block, fault });
                    self.unusable(Ino(0), kind, at.extent(), problem);
                    self.visitor.lost(Lost::below(BlockKind::InodeBlock));
                }
            }
        }
        self.inodes_of_batch(&mut inodes);
    }

    fn unpack(&mut self, block: &InodeBlock, inodes: &mut Vec<(Inode, bool, Ssn)>) {
        for (ino, orphan, inode) in block.inodes() {
            let problem = match inode {
                Ok(inode) => {
                    inodes.push((inode, orphan, block.last()));
                    continue;
                }
                Err(CheckError::Inode { fault, .. }) => Problem::Inode { ino, fault },
                Err(CheckError::InodeNumber { found, .. }) => Problem::InodeNumber { ino, found },
                Err(error) => Problem::Unusable { error },
            };
            self.visitor.problem(problem);
            self.visitor.lost(Lost::below(BlockKind::InodeBlock));
        }
        if inodes.len() >= INODES {
            self.inodes_of_batch(inodes);
        }
    }

    fn inodes_of_batch(&mut self, inodes: &mut Vec<(Inode, bool, Ssn)>) {
        let roots: Vec<(Pointer, Identity)> = inodes
            .iter()
            .flat_map(|(inode, _, _)| roots(inode))
            .collect();
        self.volume.nodes().prefetch(&roots);
        for (inode, orphan, ssn) in inodes.drain(..) {
            self.inode(&inode, orphan, ssn);
        }
        self.read_blocks();
    }

    /// Reads the data blocks that have gathered, by address, and verifies them.
    fn read_blocks(&mut self) {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.sort_by_key(|(_, _, pointer)| pointer.addr);
        let mut rest = blocks.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0u64;
            let fits = |(_, _, pointer): &&(Ino, BlockKind, Pointer)| {
                bytes = bytes.saturating_add(pointer.stored.into());
                bytes <= DATA
            };
            let (batch, more) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            self.read_batch(batch);
            rest = more;
        }
        blocks.clear();
        self.blocks = blocks;
    }

    fn read_batch(&mut self, batch: &[(Ino, BlockKind, Pointer)]) {
        let pointers: Vec<Pointer> = batch.iter().map(|(_, _, pointer)| *pointer).collect();
        for ((ino, kind, pointer), bytes) in
            batch.iter().zip(self.volume.io().read_blocks(&pointers))
        {
            let verified = bytes.and_then(|bytes| {
                let found = loamfs_format::pointer::data_checksum(&bytes);
                let expected = pointer.checksum;
                let fine = found == expected;
                fine.then_some(())
                    .ok_or(BlockFault::Checksum { expected, found })
            });
            match verified {
                Ok(()) => self.visitor.data(pointer.stored.into()),
                Err(fault) => {
                    let (ino, kind, addr) = (*ino, *kind, pointer.addr);
                    self.visitor.problem(Problem::Data {
                        ino,
                        kind,
                        addr,
                        fault,
                    });
                }
            }
        }
    }
}

/// The roots of an inode's trees.
fn roots(inode: &Inode) -> Vec<(Pointer, Identity)> {
    let content = match &inode.body {
        Body::DirTree(root) => Some((BlockKind::DirNode, *root)),
        Body::ExtentTree(root) => Some((BlockKind::ExtentNode, *root)),
        _ => None,
    };
    let table = match &inode.table {
        Table::Tree(root) => Some((BlockKind::TrackNode, *root)),
        Table::None | Table::Inline(_) => None,
    };
    let others = [
        (BlockKind::ChecksumNode, inode.checksums),
        (BlockKind::XattrNode, inode.xattrs),
    ];
    let all = content
        .into_iter()
        .chain(table)
        .chain(others)
        .filter(|(_, root)| !root.is_empty());
    all.map(|(kind, root)| {
        let identity = root.identity(kind, inode.ino, inode.generation);
        (root.pointer, identity)
    })
    .collect()
}
