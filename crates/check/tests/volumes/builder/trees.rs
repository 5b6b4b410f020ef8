//! Trees and blocks of inodes.

use super::{Builder, Entries};
use loamfs_format::checksum::{CRC_UNITS, CrcRun};
use loamfs_format::dirent::InlineMap;
use loamfs_format::ifile::{IfileEntry, block_of, slot_of};
use loamfs_format::inode::{Body, Inode, TAIL, Table};
use loamfs_format::node::{Child, Page, TreeRoot};
use loamfs_format::track::encode_inline;
use loamfs_format::{BlockKind, Identity, Ino, Pointer, Ssn};
use std::collections::BTreeMap;

impl Builder {
    /// Builds a tree over entries.
    pub fn tree(
        &mut self,
        kind: BlockKind,
        ino: Ino,
        generation: u32,
        entries: &Entries,
    ) -> TreeRoot {
        let mut level = 0;
        let mut items: Vec<(u64, Vec<u8>)> = entries.clone().into_iter().collect();
        if items.is_empty() {
            return TreeRoot::EMPTY;
        }
        loop {
            let mut nodes = Vec::new();
            let mut page: Option<Page> = None;
            for (key, value) in items {
                let full = page
                    .as_mut()
                    .is_none_or(|page| page.insert(key, &value).is_err());
                if full {
                    nodes.extend(page.take());
                    let low = if nodes.is_empty() { 0 } else { key };
                    let mut fresh = Page::new(&Identity {
                        kind,
                        level,
                        ino,
                        generation,
                        logical: low,
                    });
                    fresh.insert(key, &value).unwrap();
                    page = Some(fresh);
                }
            }
            nodes.extend(page);
            let placed: Vec<(Page, Pointer)> = nodes
                .into_iter()
                .map(|page| {
                    let low = page.low();
                    let pointer = self.place(page.as_bytes(), kind, level, ino, generation, low);
                    (page, pointer)
                })
                .collect();
            if let [(page, pointer)] = placed.as_slice() {
                return TreeRoot {
                    pointer: *pointer,
                    low: page.low(),
                    level,
                };
            }
            let child = |(page, pointer): &(Page, Pointer)| {
                let mut aggregate = aggregate(kind, page);
                aggregate[1] += u64::from(self.wrong_aggregate);
                let child = Child {
                    pointer: *pointer,
                    aggregate,
                };
                (page.low(), child.encode().to_vec())
            };
            items = placed.iter().map(child).collect();
            level += 1;
        }
    }

    /// Writes the trees of all inodes.
    pub(super) fn trees(&mut self) {
        let owned: Vec<Ino> = self.inodes.keys().copied().collect();
        for ino in owned {
            let generation = self.inodes[&ino].generation;
            if let Some(entries) = self.dirs.get(&ino).cloned() {
                let inline = InlineMap(entries.clone().into_iter().collect()).encode();
                // A table of tracks needs room, too.
                let most = if self.tables.contains_key(&ino) {
                    90
                } else {
                    200
                };
                self.inode(ino).body = if inline.len() <= most {
                    Body::InlineDir(inline)
                } else {
                    Body::DirTree(self.tree(BlockKind::DirNode, ino, generation, &entries))
                };
            }
            if let Some(extents) = self.extents.get(&ino) {
                let entries = extents.iter().map(|e| (e.block, raw(&e.pointer))).collect();
                let root = self.tree(BlockKind::ExtentNode, ino, generation, &entries);
                self.inode(ino).body = Body::ExtentTree(root);
            }
            if let Some(crcs) = self.crcs.get(&ino) {
                let mut runs: BTreeMap<u64, CrcRun> = BTreeMap::new();
                for (unit, crc) in crcs {
                    let run = runs.entry(unit / CRC_UNITS).or_default();
                    run.0[(unit % CRC_UNITS) as usize] = *crc;
                }
                if self.short && runs.keys().eq([&0]) {
                    let first = runs.remove(&0).unwrap();
                    self.inode(ino).crcs = first.used().to_vec();
                }
                let entries = runs
                    .iter()
                    .filter_map(|(key, run)| Some((*key, run.encode()?)))
                    .collect();
                self.inode(ino).checksums =
                    self.tree(BlockKind::ChecksumNode, ino, generation, &entries);
            }
            if let Some(entries) = self.xattrs.get(&ino).cloned() {
                self.inode(ino).xattrs = self.tree(BlockKind::XattrNode, ino, generation, &entries);
            }
            if let Some(table) = self.tables.get(&ino).cloned() {
                let few: Vec<_> = table.clone().into_iter().collect();
                let few = encode_inline(&few, TAIL).filter(|_| few.len() <= 3);
                self.inode(ino).table = if let Some(few) = few {
                    Table::Inline(few)
                } else {
                    let entries = table.iter().map(|(low, e)| (*low, e.encode().to_vec()));
                    let entries = entries.collect();
                    Table::Tree(self.tree(BlockKind::TrackNode, ino, generation, &entries))
                };
            }
        }
    }

    pub(super) fn inode_block(&mut self, block: u64) -> IfileEntry {
        let inodes: Vec<Inode> = self
            .inodes
            .values()
            .filter(|inode| block_of(inode.ino).0 == block)
            .cloned()
            .collect();
        let bytes: Vec<u8> = inodes.iter().flat_map(Inode::encode).collect();
        let pointer = self.place(&bytes, BlockKind::InodeBlock, 0, Ino(0), 0, block);
        let mut entry = IfileEntry {
            pointer,
            live: 0,
            packed: 0,
            orphan: 0,
            ssn: Ssn(1),
        };
        for inode in &inodes {
            entry.live |= 1 << slot_of(inode.ino);
            if self.orphans.contains(&inode.ino) {
                entry.orphan |= 1 << slot_of(inode.ino);
            }
        }
        entry.packed = entry.live;
        entry
    }
}

/// A pointer's form on disk, field by field.
pub fn raw(pointer: &Pointer) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(pointer.addr.0.to_le_bytes());
    bytes.extend(pointer.frags.to_le_bytes());
    bytes.extend(pointer.stored.to_le_bytes());
    bytes.extend(pointer.birth.0.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(pointer.checksum.to_le_bytes());
    bytes
}

fn aggregate(kind: BlockKind, page: &Page) -> [u64; 3] {
    if kind != BlockKind::IfileNode {
        return [0; 3];
    }
    let values = page
        .iter()
        .filter_map(|(_, value)| IfileEntry::decode(value));
    values
        .map(|entry| entry.aggregate())
        .reduce(IfileEntry::fold)
        .unwrap_or_default()
}
