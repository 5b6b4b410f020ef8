//! Freezing: every block gets its address and checksum, and a record, from the leaves up.

use super::contents::{Contents, Item, TreeOf, same_tree};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::inodes::block_identity;
use crate::tree::{self, SealedNode};
use crate::writeback::{Homed, UNIT};
use crate::xattrs;
use loamfs_format::ifile::{IfileEntry, ino_at};
use loamfs_format::inode::{Body, Inode};
use loamfs_format::maps::{LazyEntry, unit_crc};
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{Allocation, Record};
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, Identity, Ino, InodeBlockNo, Pointer, Ssn};
use loamfs_log::segment::Image;
use std::sync::Arc;

/// A segment that is being put together.
pub(super) struct Seal {
    pub ssn: Ssn,
    pub image: Image,
    pub records: Vec<Record>,
    /// Address of each block, in the order of the body.
    pub addresses: Vec<FragAddr>,
    /// The next of them.
    pub at: usize,
}

impl Seal {
    fn next_address(&mut self) -> FragAddr {
        let addr = self.addresses.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        addr
    }

    /// Places a block of file data or of an attribute's value.
    fn put_data(
        &mut self,
        geometry: &loamfs_format::Geometry,
        inode: &Inode,
        id: Identity,
        bytes: &[u8],
    ) -> Pointer {
        let pointer = Pointer {
            addr: self.next_address(),
            frags: geometry.frags_for(bytes.len() as u64) as u32,
            stored: bytes.len() as u32,
            birth: self.ssn,
            checksum: data_checksum(bytes),
            ..Pointer::NONE
        };
        self.image.put(pointer.addr, bytes);
        self.records.push(Record::Allocate(Allocation {
            extent: pointer.extent(),
            kind: id.kind,
            level: 0,
            ino: id.ino,
            generation: id.generation,
            version: inode.version,
            logical: id.logical,
            stored: pointer.stored,
            checksum: pointer.checksum,
            in_body: true,
        }));
        pointer
    }
}

/// What cannot be.
const VANISHED: Error = Error::Broken("what was to be sealed is not there any more");

impl Core {
    /// Gives every block its address and checksum, children before those that point to them.
    pub(super) fn freeze(&mut self, seal: &mut Seal, contents: &Contents) -> Result<(), Stop> {
        // The body's order is trees, inode blocks, data; inode blocks are made last, since they hold the pointers.
        let inodes_at = contents.trees.iter().map(|(_, count)| count).sum();
        seal.at = inodes_at + contents.inode_blocks.len();
        for item in &contents.data {
            self.freeze_data(seal, *item)?;
        }
        seal.at = 0;
        for (of, _) in &contents.trees {
            self.freeze_tree(seal, *of, &contents.frags)?;
        }
        seal.at = inodes_at;
        for block in &contents.inode_blocks {
            self.freeze_inodes(seal, *block)?;
        }
        for (block, b) in self
            .inodes
            .blocks
            .iter()
            .filter(|(_, b)| b.dirty && b.live == 0)
        {
            seal.records
                .push(Record::Ifile(*block, IfileEntry::default()));
            self.maps
                .ifile_overlay
                .insert(*block, IfileEntry::default());
            if b.base.pointer.is_some() {
                self.blocks.supersede(&b.base.pointer);
            }
        }
        Ok(())
    }

    fn freeze_data(&mut self, seal: &mut Seal, item: Item) -> Result<(), Stop> {
        let unit_frags = self.geometry.unit_frags();
        match item {
            Item::Small(ino) => {
                let node = self.inodes.prepared(ino)?;
                let data = node.small.take().ok_or(VANISHED)?;
                let geometry = self.geometry;
                let id = who(BlockKind::SmallData, &node.inode, 0);
                let pointer = seal.put_data(&geometry, &node.inode, id, &data);
                let old = std::mem::replace(&mut node.inode.body, Body::Small(pointer));
                node.shown_size = node.inode.size;
                node.seal_first = false;
                node.inode.frags = pointer.frags.into();
                self.blocks.seal_content(&pointer, data);
                if let Body::Small(old) = old {
                    self.blocks.supersede(&old);
                }
            }
            Item::Value(ino, key, piece) => {
                let block_size = self.geometry.block_size as usize;
                let geometry = self.geometry;
                let node = self.inodes.prepared(ino)?;
                let value = node.values.get(&key).cloned().ok_or(VANISHED)?;
                let part = value.chunks(block_size).nth(piece).unwrap_or_default();
                let id = who(BlockKind::XattrValue, &node.inode, key);
                let pointer = seal.put_data(&geometry, &node.inode, id, part);
                self.blocks.seal_bytes(&pointer, part.into());
                self.point_value(ino, key, piece, pointer)?;
                if (piece + 1) * block_size >= value.len() {
                    self.inodes.prepared(ino)?.values.remove(&key);
                }
            }
            Item::Image(ino, unit) => {
                let geometry = self.geometry;
                let node = self.inodes.prepared(ino)?;
                let take = |homed: &mut Homed| homed.take_image(unit);
                let image = node.change_homed(&mut self.writeback, take);
                let (home, bytes) = image.ok_or(VANISHED)?;
                let id = who(BlockKind::Image, &node.inode, unit);
                let placed = seal.put_data(&geometry, &node.inode, id, &bytes);
                let crc = unit_crc(&bytes);
                let pointer = Pointer {
                    frags: unit_frags as u32,
                    stored: UNIT as u32,
                    checksum: crc.into(),
                    ..placed
                };
                self.blocks.seal_content(&pointer, bytes);
                let entry = LazyEntry {
                    image: placed.addr,
                    crc,
                    ssn: seal.ssn,
                    ino,
                    unit,
                };
                self.blocks.forget_contents(Extent::new(home, unit_frags));
                if let Some(old) = self.maps.lazy_map.insert(home, entry) {
                    self.blocks.free(Extent::new(old.image, unit_frags));
                }
                self.maps.lazy_dirty.insert(home);
                seal.records.push(Record::Image(home, entry));
            }
        }
        Ok(())
    }

    /// Puts the address of a piece of an attribute's value where the attribute stands: in the tree, whose leaf is
    /// dirty since the attribute was set.
    fn point_value(
        &mut self,
        ino: Ino,
        key: u64,
        piece: usize,
        pointer: Pointer,
    ) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        let (tree, mut root) = (xattrs::tree(&node.inode), node.inode.xattrs);
        let found = tree.get(&root, &mut self.blocks, key)?;
        let xattr = found.as_ref().and_then(|e| Xattr::decode(e.value()));
        let mut xattr = xattr.ok_or(VANISHED)?;
        drop(found);
        if let Value::Log(pieces) = &mut xattr.value
            && let Some(slot) = pieces.get_mut(piece)
        {
            *slot = pointer;
        }
        tree.put(&mut root, &mut self.blocks, key, &xattr.encode())?;
        node.inode.xattrs = root;
        Ok(())
    }

    fn freeze_tree(&mut self, seal: &mut Seal, of: TreeOf, frags: &[u32]) -> Result<(), Stop> {
        let (tree, root, version) = match of {
            TreeOf::Map(kind) => {
                let found = self
                    .maps
                    .roots()
                    .into_iter()
                    .find(|(tree, _)| tree.kind == kind);
                let (tree, root) = found.ok_or(VANISHED)?;
                (tree, root, 0)
            }
            TreeOf::Directory(ino)
            | TreeOf::Extents(ino)
            | TreeOf::Checksums(ino)
            | TreeOf::Xattrs(ino) => {
                let found = self
                    .trees_of(ino)
                    .into_iter()
                    .find(|(o, ..)| same_tree(*o, of));
                let (_, tree, root) = found.ok_or(VANISHED)?;
                let version = self.inodes.prepared(ino)?.inode.version;
                (tree, root, version)
            }
        };
        let frags = frags.get(seal.at).copied().unwrap_or(self.node_frags());
        let (ssn, mut at) = (seal.ssn, seal.at);
        let addresses = seal.addresses.clone();
        let mut sealed: Vec<SealedNode> = Vec::new();
        let assign = |_: &Identity| {
            let addr = addresses.get(at).copied().unwrap_or_default();
            at += 1;
            tree::Placement {
                addr,
                frags,
                birth: ssn,
            }
        };
        let uuid = self.sb.uuid;
        let root = tree.finalize(&root, &mut self.blocks, &uuid, assign, |node| {
            sealed.push(node)
        })?;
        seal.at = at;
        for node in sealed {
            let (extent, stored) = (node.pointer.extent(), node.pointer.stored);
            for copy in self.geometry.copies(tree.kind, extent, stored) {
                seal.image.put(copy.start, node.page.as_bytes());
            }
            seal.records.push(Record::Allocate(Allocation {
                extent: node.pointer.extent(),
                kind: node.identity.kind,
                level: node.identity.level,
                ino: node.identity.ino,
                generation: node.identity.generation,
                version,
                logical: node.identity.logical,
                stored: node.pointer.stored,
                checksum: node.pointer.checksum,
                in_body: true,
            }));
        }
        match of {
            TreeOf::Map(kind) => {
                if let Some(slot) = self.maps.root_mut(kind) {
                    *slot = root;
                }
            }
            TreeOf::Directory(ino) => self.inodes.prepared(ino)?.inode.body = Body::DirTree(root),
            TreeOf::Extents(ino) => self.inodes.prepared(ino)?.inode.body = Body::ExtentTree(root),
            TreeOf::Checksums(ino) => self.inodes.prepared(ino)?.inode.checksums = root,
            TreeOf::Xattrs(ino) => self.inodes.prepared(ino)?.inode.xattrs = root,
        }
        Ok(())
    }

    /// The size that a segment may show of an inode (rule 3).
    fn shown_size(&self, ino: Ino) -> u64 {
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return 0;
        };
        if node.homed().is_clean() {
            return node.inode.size;
        }
        // While a file moves home, segments show the small form.
        if matches!(node.inode.body, Body::Small(_) | Body::Inline(_)) {
            return node.shown_size;
        }
        match node.homed().unshown_end(node.shown_size / UNIT) {
            Some(end) => end.max(node.shown_size).min(node.inode.size),
            None => node.inode.size,
        }
    }

    fn freeze_inodes(&mut self, seal: &mut Seal, block: InodeBlockNo) -> Result<(), Stop> {
        let b = self.inodes.blocks.get(&block).ok_or(VANISHED)?;
        for slot in (0..32).filter(|slot| b.live & (1 << slot) != 0) {
            let ino = ino_at(block, slot);
            let shown = self.shown_size(ino);
            if let Some(node) = self.inodes.nodes.get_mut(&ino) {
                node.shown_size = shown;
            }
        }
        let nodes = &self.inodes.nodes;
        let current = |ino: Ino| {
            let node = nodes.get(&ino).filter(|node| node.dirty)?;
            Some(Inode {
                size: node.shown_size,
                ..node.inode.clone()
            })
        };
        let packed = b.pack(block, current).ok_or(VANISHED)?;
        let identity = block_identity(block);
        let checksum = metadata_checksum(&self.sb.uuid, &identity, &packed);
        let frags = self.geometry.frags_for(packed.len() as u64) as u32;
        let pointer = Pointer {
            addr: seal.next_address(),
            frags,
            stored: packed.len() as u32,
            birth: seal.ssn,
            checksum,
            ..Pointer::NONE
        };
        seal.image.put(pointer.addr, &packed);
        seal.records.push(Record::Allocate(Allocation {
            extent: pointer.extent(),
            kind: BlockKind::InodeBlock,
            level: 0,
            ino: Ino(0),
            generation: 0,
            version: 0,
            logical: block.0,
            stored: pointer.stored,
            checksum,
            in_body: true,
        }));
        let entry = IfileEntry {
            pointer,
            live: b.live,
            orphan: b.orphan,
            ssn: seal.ssn,
        };
        seal.records.push(Record::Ifile(block, entry));
        if b.base.pointer.is_some() {
            self.blocks.supersede(&b.base.pointer);
        }
        self.maps.ifile_overlay.insert(block, entry);
        self.blocks.seal_bytes(&pointer, Arc::from(packed));
        Ok(())
    }
}

fn who(kind: BlockKind, inode: &Inode, logical: u64) -> Identity {
    Identity {
        kind,
        level: 0,
        ino: inode.ino,
        generation: inode.generation,
        logical,
    }
}
