//! IFILE, BFILE and MFILE: trees as the last checkpoint wrote them, under overlays of what changed since.
//!
//! The overlays are exactly what the summaries since that checkpoint say, so recovery rebuilds them record by record,
//! and only a checkpoint changes the trees.

use crate::blocks::{Blocks, Stop};
use crate::error::Corrupt;
use crate::tree::{Aggregate, Tree};
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS};
use loamfs_format::ifile::IfileEntry;
use loamfs_format::maps::{LazyEntry, OwnerRecord};
use loamfs_format::node::{Page, TreeRoot};
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, GroupNo, Ino, InodeBlockNo};
use loamfs_space::{ChunkValue, Owner, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Inode blocks to either side that are read along with one.
const NEIGHBOURS: u64 = 48;

const fn map_tree(kind: BlockKind, aggregate: Aggregate) -> Tree {
    Tree {
        kind,
        ino: Ino(0),
        generation: 0,
        aggregate,
    }
}

fn ifile_leaf(page: &Page) -> [u64; 3] {
    page.iter()
        .filter_map(|(_, value)| IfileEntry::decode(value))
        .fold([0; 3], |sum, entry| {
            IfileEntry::fold(sum, entry.aggregate())
        })
}

/// The tree of IFILE entries.
pub(crate) const IFILE: Tree = map_tree(
    BlockKind::IfileNode,
    Aggregate {
        empty: [0; 3],
        leaf: ifile_leaf,
        fold: IfileEntry::fold,
    },
);
/// The tree of bitmap chunks.
pub(crate) const BITMAP: Tree = map_tree(BlockKind::BitmapNode, Aggregate::NONE);
/// The tree of owner records.
pub(crate) const OWNER: Tree = map_tree(BlockKind::OwnerNode, Aggregate::NONE);
/// The tree of group descriptors.
pub(crate) const GROUP: Tree = map_tree(BlockKind::GroupNode, Aggregate::NONE);
/// The tree of the lazy map.
pub(crate) const LAZY: Tree = map_tree(BlockKind::LazyNode, Aggregate::NONE);

/// The maps.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    pub ifile: TreeRoot,
    pub bitmap: TreeRoot,
    pub owner: TreeRoot,
    pub group: TreeRoot,
    pub lazy: TreeRoot,
    /// IFILE entries that changed since the last checkpoint.
    pub ifile_overlay: BTreeMap<InodeBlockNo, IfileEntry>,
    /// The whole lazy map: settling keeps it small.
    pub lazy_map: BTreeMap<FragAddr, LazyEntry>,
    /// Nodes that the next checkpoint writes anew because their place is wanted: kind, and a key below them.
    pub moving: BTreeSet<(BlockKind, u64)>,
    /// Keys of the lazy map that changed since the last checkpoint.
    pub lazy_dirty: BTreeSet<FragAddr>,
}

/// A bitmap chunk as the tree has it: its key, and its bits unless all are set.
pub(crate) type Chunk = (u64, Option<[u8; CHUNK_BYTES]>);

/// How the owner tree must change at one place.
#[derive(Debug, Default)]
struct OwnerChange {
    remove: Vec<u64>,
    put: Vec<(u64, OwnerRecord)>,
}

impl Maps {
    /// The five trees with their roots.
    pub fn roots(&self) -> [(Tree, TreeRoot); 5] {
        [
            (IFILE, self.ifile),
            (BITMAP, self.bitmap),
            (OWNER, self.owner),
            (GROUP, self.group),
            (LAZY, self.lazy),
        ]
    }

    /// The root that a map's tree has.
    pub fn root_mut(&mut self, kind: BlockKind) -> Option<&mut TreeRoot> {
        Some(match kind {
            BlockKind::IfileNode => &mut self.ifile,
            BlockKind::BitmapNode => &mut self.bitmap,
            BlockKind::OwnerNode => &mut self.owner,
            BlockKind::GroupNode => &mut self.group,
            BlockKind::LazyNode => &mut self.lazy,
            _ => return None,
        })
    }

    /// The entry of an inode block as of the last sealed segment.
    pub fn ifile_entry(
        &self,
        blocks: &mut Blocks,
        block: InodeBlockNo,
    ) -> Result<IfileEntry, Stop> {
        if let Some(entry) = self.ifile_overlay.get(&block) {
            return Ok(*entry);
        }
        match IFILE.get(&self.ifile, blocks, block.0)? {
            None => Ok(IfileEntry::default()),
            Some(entry) => Ok(IfileEntry::decode(entry.value()).ok_or(Corrupt::IfileEntry(block))?),
        }
    }

    /// Entries of inode blocks near `block` whose blocks stand within `reach` fragments of its own, as far as they
    /// are known without reading: inodes made together are mostly used together.
    pub fn ifile_neighbours(
        &self,
        blocks: &mut Blocks,
        block: InodeBlockNo,
        addr: FragAddr,
        reach: u64,
    ) -> Vec<(InodeBlockNo, IfileEntry)> {
        let near = |entry: &IfileEntry| {
            entry.pointer.is_some() && entry.pointer.addr.0.abs_diff(addr.0) <= reach
        };
        let (from, to) = (
            block.0.saturating_sub(NEIGHBOURS),
            block.0.saturating_add(NEIGHBOURS),
        );
        let mut found: Vec<(InodeBlockNo, IfileEntry)> = self
            .ifile_overlay
            .range(InodeBlockNo(from)..InodeBlockNo(to))
            .map(|(block, entry)| (*block, *entry))
            .collect();
        if found.is_empty()
            && let Ok(Some(leaf)) = IFILE.descend(&self.ifile, blocks, block.0, |_| true)
        {
            let entries = leaf.page.iter().filter(|(key, _)| (from..to).contains(key));
            found.extend(
                entries.filter_map(|(key, value)| {
                    Some((InodeBlockNo(key), IfileEntry::decode(value)?))
                }),
            );
        }
        found.retain(|(_, entry)| near(entry));
        found
    }

    /// Inode blocks that have orphan bits, with those bits, from `from` on, as far as one leaf tells; and where to go
    /// on.
    pub fn orphans(
        &self,
        blocks: &mut Blocks,
        from: InodeBlockNo,
    ) -> Result<(BTreeMap<InodeBlockNo, u32>, Option<InodeBlockNo>), Stop> {
        let mut found = BTreeMap::new();
        let leaf = IFILE.descend(&self.ifile, blocks, from.0, |a| a[1] > 0)?;
        for (key, value) in leaf.iter().flat_map(|leaf| leaf.page.iter()) {
            let block = InodeBlockNo(key);
            let entry = IfileEntry::decode(value).ok_or(Corrupt::IfileEntry(block))?;
            found.insert(block, entry.orphan);
        }
        let end = leaf.and_then(|leaf| leaf.end).map(InodeBlockNo);
        let last = end.unwrap_or(InodeBlockNo(u64::MAX));
        let newer = self.ifile_overlay.range(from..last);
        found.extend(newer.map(|(block, entry)| (*block, entry.orphan)));
        found.retain(|block, orphan| *block >= from && *orphan != 0);
        Ok((found, end))
    }

    /// The chunks of a group's bitmap, as the last checkpoint has them.
    pub fn group_chunks(
        &self,
        blocks: &mut Blocks,
        geometry: &Geometry,
        group: GroupNo,
    ) -> Result<Vec<Chunk>, Stop> {
        let extent = geometry.group_extent(group);
        let end = extent.end().0.div_ceil(CHUNK_FRAGS);
        let mut chunks = Vec::new();
        let mut bad = None;
        let _ = BITMAP.scan(
            &self.bitmap,
            blocks,
            extent.start.0 / CHUNK_FRAGS,
            |key, value| {
                if key >= end {
                    return ControlFlow::Break(());
                }
                match (value.len(), <[u8; CHUNK_BYTES]>::try_from(value)) {
                    (0, _) => chunks.push((key, None)),
                    (_, Ok(bits)) => chunks.push((key, Some(bits))),
                    _ => bad = Some(key),
                }
                ControlFlow::Continue(())
            },
        )?;
        match bad {
            Some(key) => Err(Corrupt::MapEntry { map: "bitmap", key }.into()),
            None => Ok(chunks),
        }
    }

    /// The owner records that overlap `range`, as the last checkpoint has them.
    pub fn owners_of(
        &self,
        blocks: &mut Blocks,
        range: Extent,
    ) -> Result<Vec<(Extent, OwnerRecord)>, Stop> {
        let mut found = Vec::new();
        let mut bad = None;
        let mut visit = |key: u64, value: &[u8]| {
            if key >= range.end().0 {
                return ControlFlow::Break(());
            }
            match OwnerRecord::decode(value) {
                Some(record) => {
                    let extent = Extent::new(FragAddr(key), record.frags.into());
                    if extent.overlaps(range) {
                        found.push((extent, record));
                    }
                }
                None => bad = Some(key),
            }
            ControlFlow::Continue(())
        };
        let start = match OWNER.prev(&self.owner, blocks, range.start.0)? {
            Some(entry) => entry.key(),
            None => range.start.0,
        };
        let _ = OWNER.scan(&self.owner, blocks, start, &mut visit)?;
        match bad {
            Some(key) => Err(Corrupt::MapEntry { map: "owner", key }.into()),
            None => Ok(found),
        }
    }

    /// What a new owner record does to the records that it overlaps: all go, and their parts outside come back.
    fn owner_change(
        &self,
        blocks: &mut Blocks,
        geometry: &Geometry,
        (extent, owner): (Extent, &Owner),
        gone: &BTreeSet<u64>,
    ) -> Result<OwnerChange, Stop> {
        let mut change = OwnerChange::default();
        for (old, record) in self.owners_of(blocks, extent)? {
            if gone.contains(&old.start.0) {
                continue;
            }
            if old.start != extent.start {
                change.remove.push(old.start.0);
            }
            if old.start < extent.start {
                let frags = (extent.start.0 - old.start.0) as u32;
                change
                    .put
                    .push((old.start.0, OwnerRecord { frags, ..record }));
                change.remove.pop();
            }
            if old.end() > extent.end() {
                let skipped = extent.end().0 - old.start.0;
                let logical = match record.kind {
                    BlockKind::Homed => record.logical + skipped / geometry.block_frags(),
                    _ => record.logical,
                };
                let frags = (old.end().0 - extent.end().0) as u32;
                change.put.push((
                    extent.end().0,
                    OwnerRecord {
                        frags,
                        logical,
                        ..record
                    },
                ));
            }
        }
        let record = OwnerRecord {
            frags: extent.frags as u32,
            kind: owner.kind,
            level: owner.level,
            ino: owner.ino,
            logical: owner.logical,
        };
        change.put.push((extent.start.0, record));
        Ok(change)
    }

    /// Reads everything that [`Maps::apply`] will need. All that is missing is wanted at once.
    pub fn prepare_apply(
        &self,
        blocks: &mut Blocks,
        space: &Space,
        geometry: &Geometry,
    ) -> Result<(), Stop> {
        let mut gather = Gather(Ok(()));
        for (block, entry) in &self.ifile_overlay {
            gather.note(if entry.live == 0 {
                IFILE.prepare_remove(&self.ifile, blocks, block.0)
            } else {
                IFILE.prepare_put(&self.ifile, blocks, block.0)
            })?;
        }
        for key in space.dirty_chunks() {
            gather.note(BITMAP.prepare_put(&self.bitmap, blocks, key))?;
            gather.note(BITMAP.prepare_remove(&self.bitmap, blocks, key))?;
        }
        for (kind, key) in &self.moving {
            if let Some((tree, root)) = self.roots().into_iter().find(|(t, _)| t.kind == *kind) {
                match tree.next(&root, blocks, *key) {
                    Ok(Some(entry)) => gather.note(tree.prepare_put(&root, blocks, entry.key()))?,
                    Ok(None) => {}
                    Err(stop) => gather.note(Err(stop))?,
                }
            }
        }
        for (group, _) in space.dirty_groups() {
            gather.note(GROUP.prepare_put(&self.group, blocks, group.0.into()))?;
        }
        for home in &self.lazy_dirty {
            gather.note(LAZY.prepare_put(&self.lazy, blocks, home.0))?;
            gather.note(LAZY.prepare_remove(&self.lazy, blocks, home.0))?;
        }
        for (extent, owner) in space.owner_overlay() {
            match self.owner_change(blocks, geometry, (extent, &owner), &BTreeSet::new()) {
                Ok(change) => {
                    for (key, _) in &change.put {
                        gather.note(OWNER.prepare_put(&self.owner, blocks, *key))?;
                    }
                    for key in &change.remove {
                        gather.note(OWNER.prepare_remove(&self.owner, blocks, *key))?;
                    }
                }
                Err(stop) => gather.note(Err(stop))?,
            }
        }
        gather.0
    }

    /// Merges the overlays into the trees. Must follow a [`Maps::prepare_apply`] that did not stop.
    pub fn apply(
        &mut self,
        blocks: &mut Blocks,
        space: &Space,
        geometry: &Geometry,
    ) -> Result<(), Stop> {
        for (kind, key) in std::mem::take(&mut self.moving) {
            let found = self.roots().into_iter().find(|(t, _)| t.kind == kind);
            if let Some((tree, mut root)) = found
                && let Some(entry) = tree.next(&root, blocks, key)?
            {
                // Putting the same entry again takes the path to it out for change.
                tree.put(&mut root, blocks, entry.key(), entry.value())?;
                if let Some(slot) = self.root_mut(kind) {
                    *slot = root;
                }
            }
        }
        for (block, entry) in &self.ifile_overlay {
            if entry.live != 0 {
                IFILE.put(&mut self.ifile, blocks, block.0, &entry.encode())?;
            }
        }
        for (block, entry) in &self.ifile_overlay {
            if entry.live == 0 {
                IFILE.remove(&mut self.ifile, blocks, block.0)?;
            }
        }
        let mut chunks = Vec::new();
        for key in space.dirty_chunks() {
            chunks.push((key, space.chunk_value(key)?));
        }
        for (key, value) in &chunks {
            match value {
                ChunkValue::Clear => {}
                ChunkValue::Full => drop(BITMAP.put(&mut self.bitmap, blocks, *key, &[])?),
                ChunkValue::Mixed(bits) => {
                    BITMAP.put(&mut self.bitmap, blocks, *key, bits)?;
                }
            }
        }
        for (key, value) in &chunks {
            if matches!(value, ChunkValue::Clear) {
                BITMAP.remove(&mut self.bitmap, blocks, *key)?;
            }
        }
        for (group, desc) in space.dirty_groups() {
            GROUP.put(&mut self.group, blocks, group.0.into(), &desc.encode())?;
        }
        for home in &self.lazy_dirty {
            if let Some(entry) = self.lazy_map.get(home) {
                LAZY.put(&mut self.lazy, blocks, home.0, &entry.encode())?;
            }
        }
        for home in &self.lazy_dirty {
            if !self.lazy_map.contains_key(home) {
                LAZY.remove(&mut self.lazy, blocks, home.0)?;
            }
        }
        // New keys go in before old ones go out, as `tree` demands; until then nobody looks at those in `gone`.
        let mut gone = BTreeSet::new();
        for (extent, owner) in space.owner_overlay() {
            let change = self.owner_change(blocks, geometry, (extent, &owner), &gone)?;
            for (key, record) in &change.put {
                OWNER.put(&mut self.owner, blocks, *key, &record.encode())?;
                gone.remove(key);
            }
            gone.extend(change.remove);
        }
        for key in gone {
            OWNER.remove(&mut self.owner, blocks, key)?;
        }
        self.ifile_overlay.clear();
        self.lazy_dirty.clear();
        Ok(())
    }
}

/// Goes on past blocks that are missing, so that all are wanted at once.
struct Gather(Result<(), Stop>);

impl Gather {
    fn note(&mut self, result: Result<(), Stop>) -> Result<(), Stop> {
        match result {
            Err(Stop::Missing) => {
                self.0 = Err(Stop::Missing);
                Ok(())
            }
            other => other,
        }
    }
}
