//! Finalizing: every block gets its address and checksum, and a record, from the leaves up.

use super::contents::{Contents, Item, TreeOf, node_frags};
use super::seal::Seal;
use crate::blocks::{Blocks, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::inodes::{Inodes, block_identity, trees};
use crate::law::{Law, Rules};
use crate::maps::{Maps, tree_of};
use crate::tracks::layout::{Layout, slot_of};
use crate::tracks::table;
use crate::tree::{self, SealedNode, Tree};
use crate::unit::UNIT;
use crate::writeback::{Homed, Writeback};
use crate::xattrs;
use loamfs_format::checksum::unit_crc;
use loamfs_format::delta::Delta;
use loamfs_format::ifile::{self, IfileEntry};
use loamfs_format::inode::{self, Body, Inode, Settled};
use loamfs_format::maps::LazyEntry;
use loamfs_format::node::TreeRoot;
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::summary::{Allocation, Record};
use loamfs_format::track::{Head, Slot, TableEntry, filter_of};
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, Identity, Ino, InodeBlockNo, Pointer};
use std::sync::Arc;

/// What cannot be.
const VANISHED: Error = Error::Broken("what was to be sealed is not there any more");

/// Finalizing a segment's blocks, and what changes with it.
pub(super) struct Finalizing<'c> {
    geometry: &'c Geometry,
    uuid: &'c [u8; 16],
    maps: &'c mut Maps,
    blocks: &'c mut Blocks,
    inodes: &'c mut Inodes,
    writeback: &'c mut Writeback,
    law: &'c Law<dyn Rules>,
    seal: &'c mut Seal,
}

impl Core {
    /// What gives the blocks of a segment their addresses and checksums.
    pub(super) fn finalizing<'c>(&'c mut self, seal: &'c mut Seal) -> Finalizing<'c> {
        Finalizing {
            geometry: &self.geometry,
            uuid: &self.sb.uuid,
            maps: &mut self.maps,
            blocks: &mut self.blocks,
            inodes: &mut self.inodes,
            writeback: &mut self.writeback,
            law: self.env.law(),
            seal,
        }
    }
}

impl Finalizing<'_> {
    /// Gives every block its address and checksum, children before those that point to them.
    pub fn finalize(&mut self, contents: &Contents) -> Result<(), Stop> {
        // The body's order is trees, inode blocks, data; inode blocks are made last, since they hold the pointers.
        let inodes_at = contents.trees.iter().map(|(_, count)| count).sum();
        self.seal.go_to(inodes_at + contents.inode_blocks.len());
        for item in &contents.data {
            match *item {
                Item::Small(ino) => self.finalize_small(ino)?,
                Item::Value(ino, key, piece) => self.finalize_value(ino, key, piece)?,
                Item::Image(ino, unit) => self.finalize_image(ino, unit)?,
            }
        }
        for (track, addr) in contents.tracks.iter().zip(self.seal.tracks()) {
            self.finalize_track(track, addr)?;
        }
        self.seal.go_to(0);
        for (of, _) in &contents.trees {
            self.finalize_tree(*of, &contents.frags)?;
        }
        self.seal.go_to(inodes_at);
        for block in &contents.inode_blocks {
            self.finalize_inodes(*block)?;
        }
        for block in &contents.apart {
            self.finalize_apart(*block)?;
        }
        self.finalize_empty();
        Ok(())
    }

    /// Inode blocks of which the last inode went.
    fn finalize_empty(&mut self) {
        let mut empty = Vec::new();
        let dirty = self.inodes.dirty_blocks();
        for (block, b) in dirty.filter(|(_, b)| b.live() == 0) {
            let none = IfileEntry::default();
            self.seal.say(Record::Ifile(block, none));
            self.maps.change_ifile(block, none);
            empty.push(block);
            if let Some(old) = b.sealed_at() {
                self.blocks.supersede(old);
            }
        }
        for block in empty {
            self.inodes.deltas_mut().written(block);
        }
    }

    fn finalize_small(&mut self, ino: Ino) -> Result<(), Stop> {
        let node = self.inodes.prepared(ino)?;
        let data = node.take_small().ok_or(VANISHED)?;
        let id = who(BlockKind::SmallData, node.inode(), 0);
        let pointer = self.seal.put_data(self.geometry, node.inode(), id, &data);
        let old = std::mem::replace(&mut node.inode_mut().body, Body::Small(pointer));
        node.show_all();
        node.may_go_home();
        node.inode_mut().frags = pointer.frags.into();
        self.blocks.seal_content(&pointer, data);
        if let Some(old) = old.small() {
            self.blocks.supersede(&old);
        }
        Ok(())
    }

    /// Writes a track: its files' data, then the head, whose checksum the directory's table gets (rule 14).
    fn finalize_track(&mut self, track: &Layout, addr: FragAddr) -> Result<(), Stop> {
        let mut at = addr.0 + u64::from(track.head_frags);
        let mut slots = Vec::with_capacity(track.files.len());
        for (number, (key, file)) in (0u8..).zip(&track.files) {
            let node = self.inodes.prepared(file.ino)?;
            let data = node.take_small().ok_or(VANISHED)?;
            let id = who(BlockKind::SmallData, node.inode(), 0);
            let pointer =
                self.seal
                    .put_data_at(FragAddr(at), self.geometry, node.inode(), id, &data);
            node.show_all();
            node.may_go_home();
            node.inode_mut().frags = pointer.frags.into();
            let start = (at - addr.0) as u16;
            slots.push(slot_of(node.inode(), *key, file.second, &pointer, start));
            let settled = Settled {
                pointer,
                slot: number,
                key: *key,
            };
            let old = std::mem::replace(&mut node.inode_mut().body, Body::Settled(settled));
            at += u64::from(pointer.frags);
            self.blocks.seal_content(&pointer, data);
            if let Some(old) = old.small() {
                self.blocks.supersede(&old);
            }
        }
        let settled = slots.iter().map(|slot| u64::from(slot.stored)).sum();
        track.outcome.note_settled(slots.len() as u64, settled);
        self.finalize_head(track, addr, slots)
    }

    fn finalize_head(
        &mut self,
        track: &Layout,
        addr: FragAddr,
        slots: Vec<Slot>,
    ) -> Result<(), Stop> {
        let node = self.inodes.prepared(track.dir)?;
        let (generation, version) = (node.inode().generation, node.inode().version);
        let mut entry = TableEntry {
            addr,
            ssn: self.seal.ssn(),
            checksum: 0,
            stale: 0,
            elsewhere: track.elsewhere,
            frags: track.frags as u16,
            slots: slots.len() as u8,
            filter: filter_of(&slots),
        };
        let identity = entry.identity(track.dir, generation, track.low, track.high);
        let head = Head { identity, slots };
        let (bytes, checksum) = head
            .encode(self.uuid, self.geometry.fragment_size)
            .map_err(|error| {
                tracing::error!(%error, "a track that cannot be");
                VANISHED
            })?;
        entry.checksum = checksum;
        let pointer = table::head_pointer(&entry, self.geometry);
        self.seal.put(addr, &bytes);
        let block = Allocation::block(&pointer, &identity.block(), version);
        self.seal.say(Record::Allocate(block));
        self.blocks.seal_bytes(&pointer, bytes.into());
        // Its entry was there before, so that no node of the table becomes dirty only now.
        table::put(node.inode_mut(), self.blocks, track.low, &entry)
    }

    fn finalize_value(&mut self, ino: Ino, key: u64, piece: usize) -> Result<(), Stop> {
        let most = self.geometry.small_size as usize;
        let node = self.inodes.prepared(ino)?;
        let value = node.values().get(&key).cloned().ok_or(VANISHED)?;
        let part = value.chunks(most).nth(piece).ok_or(VANISHED)?;
        let id = who(BlockKind::XattrValue, node.inode(), key);
        let pointer = self.seal.put_data(self.geometry, node.inode(), id, part);
        self.blocks.seal_bytes(&pointer, part.into());
        self.point_value(ino, key, piece, pointer)?;
        if (piece + 1) * most >= value.len() {
            self.inodes.prepared(ino)?.take_value(key);
        }
        Ok(())
    }

    fn finalize_image(&mut self, ino: Ino, unit: u64) -> Result<(), Stop> {
        let unit_frags = self.geometry.unit_frags();
        let node = self.inodes.prepared(ino)?;
        let take = |homed: &mut Homed| homed.take_image(unit);
        let image = node.change_homed(self.writeback, take);
        let (home, bytes) = image.ok_or(VANISHED)?;
        let id = who(BlockKind::Image, node.inode(), unit);
        let placed = self.seal.put_data(self.geometry, node.inode(), id, &bytes);
        let crc = unit_crc(&bytes);
        let pointer = Pointer {
            frags: unit_frags as u32,
            stored: UNIT as u32,
            checksum: crc.into(),
            ..placed
        };
        self.blocks.seal_image(&pointer, bytes);
        let entry = LazyEntry {
            image: placed.addr,
            crc,
            ssn: self.seal.ssn(),
            ino,
            unit,
        };
        self.blocks.forget_contents(Extent::new(home, unit_frags));
        if let Some(old) = self.maps.lazy_map_mut().insert(home, entry) {
            self.blocks.free(Extent::new(old.image, unit_frags));
        }
        self.seal.say(Record::Image(home, entry));
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
        let (tree, mut root) = (xattrs::tree(node.inode()), node.inode().xattrs);
        let found = tree.get(&root, self.blocks, key)?;
        let xattr = found.as_ref().and_then(|e| Xattr::decode(e.value()));
        let mut xattr = xattr.ok_or(VANISHED)?;
        drop(found);
        let place = match &mut xattr.value {
            Value::Log(pieces) => pieces.get_mut(piece),
            _ => None,
        };
        *place.ok_or(VANISHED)? = pointer;
        tree.put(&mut root, self.blocks, key, &xattr.encode())?;
        node.inode_mut().xattrs = root;
        Ok(())
    }

    fn finalize_tree(&mut self, of: TreeOf, frags: &[u32]) -> Result<(), Stop> {
        let (tree, root, version) = self.tree(of)?;
        let birth = self.seal.ssn();
        let frags = frags.get(self.seal.position()).copied();
        let frags = frags.unwrap_or(node_frags(self.geometry));
        let assign = |_: &Identity| tree::NodePlace {
            addr: self.seal.next_address(),
            frags,
            birth,
        };
        let mut sealed: Vec<SealedNode> = Vec::new();
        let note = |node| sealed.push(node);
        let root = tree.finalize(&root, self.blocks, self.uuid, assign, note)?;
        for node in sealed {
            for copy in node.pointer.copies(tree.kind(), self.geometry) {
                self.seal.put(copy.start, node.page.as_bytes());
            }
            let block = Allocation::block(&node.pointer, &node.identity, version);
            self.seal.say(Record::Allocate(block));
        }
        self.set_root(of, root)
    }

    /// A tree with its root, and the version of what it belongs to.
    fn tree(&mut self, of: TreeOf) -> Result<(Tree, TreeRoot, u32), Stop> {
        Ok(match of {
            TreeOf::Map(map) => (tree_of(map), self.maps.root(map), 0),
            TreeOf::Inode(ino, which) => {
                let inode = self.inodes.prepared(ino)?.inode();
                let (tree, root) = trees::tree_of(inode, which).ok_or(VANISHED)?;
                (tree, root, inode.version)
            }
        })
    }

    fn set_root(&mut self, of: TreeOf, root: TreeRoot) -> Result<(), Stop> {
        match of {
            TreeOf::Map(map) => *self.maps.root_mut(map) = root,
            TreeOf::Inode(ino, which) => {
                trees::set_root(self.inodes.prepared(ino)?.inode_mut(), which, root);
            }
        }
        Ok(())
    }

    /// The size that a segment may show of an inode (rule 3), if it is in memory.
    fn shown_size(&self, ino: Ino) -> Option<u64> {
        let node = self.inodes.get(ino)?;
        if node.homed().is_clean() {
            return Some(node.inode().size);
        }
        // While a file moves home, segments show the small form.
        if matches!(node.inode().body, Body::Small(_) | Body::Inline(_)) {
            return Some(node.shown_size());
        }
        let size = node.inode().size;
        let end = node.homed().unshown_end(node.shown_size() / UNIT);
        Some(end.map_or(size, |end| end.max(node.shown_size()).min(size)))
    }

    /// A block as it is now.
    fn pack(&mut self, block: InodeBlockNo) -> Result<Arc<[u8]>, Stop> {
        let inos = self.inodes.block(block).ok_or(VANISHED)?.inos(block);
        for ino in inos {
            if let Some(shown) = self.shown_size(ino) {
                self.inodes.prepared(ino)?.show_size(shown);
            }
        }
        let b = self.inodes.block(block).ok_or(VANISHED)?;
        let current = |ino: Ino| {
            let node = self.inodes.get(ino).filter(|node| node.is_dirty())?;
            Some(Inode {
                size: node.shown_size(),
                ..node.inode().clone()
            })
        };
        Ok(b.pack(block, current).ok_or(VANISHED)?)
    }

    /// Says what changed in a block, which stays where it is (rule 16). Where other inodes live in it the segment says its entry. That
    /// ends what was said of the block, so that what still counts is said again.
    fn finalize_apart(&mut self, block: InodeBlockNo) -> Result<(), Stop> {
        let packed = self.pack(block)?;
        let b = self.inodes.block(block).ok_or(VANISHED)?;
        let mut said = Vec::new();
        for (ino, new) in b.inos(block).zip(packed.chunks(inode::SIZE)) {
            let old = b.sealed_inode(ifile::slot_of(ino)).unwrap_or_default();
            if old != new {
                said.push(Delta::from_slot(old, new).ok_or(VANISHED)?);
            }
        }
        let entry = b.says_entry().then(|| b.entry_apart(self.seal.ssn()));
        let deltas = self.inodes.deltas_mut();
        if let Some(entry) = &entry {
            deltas.keep_live(block, entry);
        }
        said.iter()
            .for_each(|delta| deltas.put(delta.clone(), true));
        if let Some(entry) = entry {
            if self.law.says_entries() {
                self.seal.say(Record::Ifile(block, entry));
            }
            self.maps.change_ifile(block, entry);
            if self.law.says_deltas_again() {
                said = deltas.of_block(block);
            }
        }
        self.seal.say_all(said.into_iter().map(Record::Delta));
        Ok(())
    }

    fn finalize_inodes(&mut self, block: InodeBlockNo) -> Result<(), Stop> {
        let packed = self.pack(block)?;
        let b = self.inodes.block(block).ok_or(VANISHED)?;
        let identity = block_identity(block);
        let checksum = metadata_checksum(self.uuid, &identity, &packed);
        let frags = self.geometry.frags_for(packed.len() as u64) as u32;
        let pointer = Pointer {
            addr: self.seal.next_address(),
            frags,
            stored: packed.len() as u32,
            birth: self.seal.ssn(),
            checksum,
            ..Pointer::NONE
        };
        self.seal.put(pointer.addr, &packed);
        let given = Allocation::block(&pointer, &identity, 0);
        self.seal.say(Record::Allocate(given));
        let entry = b.entry(pointer, self.seal.ssn());
        self.seal.say(Record::Ifile(block, entry));
        if let Some(old) = b.sealed_at() {
            self.blocks.supersede(old);
        }
        self.maps.change_ifile(block, entry);
        self.inodes.deltas_mut().written(block);
        self.blocks.seal_bytes(&pointer, packed);
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
