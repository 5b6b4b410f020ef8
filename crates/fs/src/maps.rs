//! The maps of a volume: trees as the last checkpoint wrote them, under overlays of what changed since.
//!
//! IFILE is the inode map (L2), MFILE the lazy map (Z1): [`IFILE`] and [`LAZY`]. BFILE (H4) is the bitmaps and descriptors of
//! groups, and the records of owners: three trees here, and what changed of them is in `space`.
//!
//! The overlays are exactly what the summaries since that checkpoint say, so recovery rebuilds them record by record,
//! and only a checkpoint changes the trees.

use crate::blocks::{Blocks, Missed, Stop};
use crate::error::{Corrupt, Needed};
use crate::tree::{Aggregate, Tree};
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS};
use loamfs_format::ifile::IfileEntry;
use loamfs_format::kind::MapTree;
use loamfs_format::node::TreeRoot;
use loamfs_format::{BlockKind, Geometry, GroupNo, InodeBlockNo};
use loamfs_space::{ChunkValue, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

mod ifile;
mod lazy;
pub(crate) mod owners;

pub(crate) use lazy::{Image, LazyMap, UnitHome};

/// The tree of IFILE entries.
pub(crate) const IFILE: Tree = Tree::of_map(
    BlockKind::IfileNode,
    Aggregate {
        empty: [0; 3],
        leaf: ifile::sum_of_leaf,
        fold: IfileEntry::fold,
    },
);
/// The tree of bitmap chunks.
pub(crate) const BITMAP: Tree = Tree::of_map(BlockKind::BitmapNode, Aggregate::NONE);
/// The tree of owner records.
pub(crate) const OWNER: Tree = Tree::of_map(BlockKind::OwnerNode, Aggregate::NONE);
/// The tree of group descriptors.
pub(crate) const GROUP: Tree = Tree::of_map(BlockKind::GroupNode, Aggregate::NONE);
/// The tree of the lazy map.
pub(crate) const LAZY: Tree = Tree::of_map(BlockKind::LazyNode, Aggregate::NONE);

/// The tree of a map.
pub(crate) const fn tree_of(map: MapTree) -> Tree {
    match map {
        MapTree::Ifile => IFILE,
        MapTree::Bitmap => BITMAP,
        MapTree::Owner => OWNER,
        MapTree::Group => GROUP,
        MapTree::Lazy => LAZY,
    }
}

/// The maps.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    ifile: TreeRoot,
    bitmap: TreeRoot,
    owner: TreeRoot,
    group: TreeRoot,
    lazy: TreeRoot,
    /// IFILE entries that changed since the last checkpoint.
    ifile_overlay: BTreeMap<InodeBlockNo, IfileEntry>,
    lazy_map: LazyMap,
    /// Nodes that the next checkpoint writes anew: the map, and a key below them.
    moving: BTreeSet<(MapTree, u64)>,
}

/// A bitmap chunk as the tree has it: its key, and its bits unless all are set.
pub(crate) type Chunk = (u64, Option<[u8; CHUNK_BYTES]>);

impl Maps {
    /// Where images of homed units are.
    pub fn lazy_map(&self) -> &LazyMap {
        &self.lazy_map
    }

    pub fn lazy_map_mut(&mut self) -> &mut LazyMap {
        &mut self.lazy_map
    }

    /// The next checkpoint writes these nodes anew, since their place is wanted or a copy is damaged: maps, and keys
    /// below them.
    pub fn write_anew(&mut self, nodes: impl IntoIterator<Item = (MapTree, u64)>) {
        self.moving.extend(nodes);
    }

    /// How many nodes that are.
    pub fn written_anew(&self) -> usize {
        self.moving.len()
    }

    /// The root of a map's tree.
    pub fn root(&self, map: MapTree) -> TreeRoot {
        match map {
            MapTree::Ifile => self.ifile,
            MapTree::Bitmap => self.bitmap,
            MapTree::Owner => self.owner,
            MapTree::Group => self.group,
            MapTree::Lazy => self.lazy,
        }
    }

    /// The root of a map's tree, to be changed.
    pub fn root_mut(&mut self, map: MapTree) -> &mut TreeRoot {
        match map {
            MapTree::Ifile => &mut self.ifile,
            MapTree::Bitmap => &mut self.bitmap,
            MapTree::Owner => &mut self.owner,
            MapTree::Group => &mut self.group,
            MapTree::Lazy => &mut self.lazy,
        }
    }

    /// The maps with their trees and roots.
    pub fn roots(&self) -> [(MapTree, Tree, TreeRoot); 5] {
        MapTree::ALL.map(|map| (map, tree_of(map), self.root(map)))
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

    /// Reads everything that [`Maps::apply`] will need. All that is missing is wanted at once.
    pub fn prepare_apply(
        &self,
        blocks: &mut Blocks,
        space: &Space,
        geometry: &Geometry,
    ) -> Result<(), Stop> {
        let mut missed = Missed::default();
        for (block, entry) in &self.ifile_overlay {
            missed.note(if entry.live == 0 {
                IFILE.prepare_remove(&self.ifile, blocks, block.0)
            } else {
                IFILE.prepare_put(&self.ifile, blocks, block.0)
            })?;
        }
        for key in space.checkpoint().dirty_chunks() {
            let put = BITMAP.prepare_put(&self.bitmap, blocks, key);
            missed.note(put.map_err(|stop| stop.of(Needed::Bitmap)))?;
            let remove = BITMAP.prepare_remove(&self.bitmap, blocks, key);
            missed.note(remove.map_err(|stop| stop.of(Needed::Bitmap)))?;
        }
        for (map, key) in &self.moving {
            let (tree, root) = (tree_of(*map), self.root(*map));
            if let Some(Some(entry)) = missed.note(tree.next(&root, blocks, *key))? {
                missed.note(tree.prepare_put(&root, blocks, entry.key()))?;
            }
        }
        for (group, desc) in space.checkpoint().dirty_groups() {
            missed.note(match desc {
                Some(_) => GROUP.prepare_put(&self.group, blocks, group.0.into()),
                None => GROUP.prepare_remove(&self.group, blocks, group.0.into()),
            })?;
        }
        for home in self.lazy_map.changed() {
            missed.note(LAZY.prepare_put(&self.lazy, blocks, home.0))?;
            missed.note(LAZY.prepare_remove(&self.lazy, blocks, home.0))?;
        }
        self.prepare_owners(blocks, space, geometry, &mut missed)?;
        missed.nothing()
    }

    /// Merges the overlays into the trees. Must follow a [`Maps::prepare_apply`] that did not stop.
    pub fn apply(
        &mut self,
        blocks: &mut Blocks,
        space: &Space,
        geometry: &Geometry,
    ) -> Result<(), Stop> {
        self.apply_moving(blocks)?;
        self.apply_ifile(blocks)?;
        self.apply_bitmap(blocks, space)?;
        self.apply_groups(blocks, space)?;
        self.apply_lazy(blocks)?;
        self.apply_owners(blocks, space, geometry)?;
        self.ifile_overlay.clear();
        self.lazy_map.checkpointed();
        Ok(())
    }

    /// Putting the same entry again takes the path to it out for change.
    fn apply_moving(&mut self, blocks: &mut Blocks) -> Result<(), Stop> {
        for (map, key) in std::mem::take(&mut self.moving) {
            let (tree, root) = (tree_of(map), self.root_mut(map));
            if let Some(entry) = tree.next(root, blocks, key)? {
                tree.put(root, blocks, entry.key(), entry.value())?;
            }
        }
        Ok(())
    }

    // New keys come before those that go: `crate::tree` says why.

    fn apply_ifile(&mut self, blocks: &mut Blocks) -> Result<(), Stop> {
        for (block, entry) in &self.ifile_overlay {
            if entry.live != 0 {
                IFILE.put(&mut self.ifile, blocks, block.0, &entry.encode())?;
            }
        }
        let overlay = self.ifile_overlay.iter();
        let gone = overlay.filter(|(_, entry)| entry.live == 0);
        let gone = gone.map(|(block, _)| block.0);
        remove_all(&IFILE, &mut self.ifile, blocks, gone)
    }

    fn apply_groups(&mut self, blocks: &mut Blocks, space: &Space) -> Result<(), Stop> {
        let groups = space.checkpoint().dirty_groups();
        for (group, desc) in &groups {
            if let Some(desc) = desc {
                GROUP.put(&mut self.group, blocks, group.0.into(), &desc.encode())?;
            }
        }
        let gone = groups.iter().filter(|(_, desc)| desc.is_none());
        let gone = gone.map(|(group, _)| group.0.into());
        remove_all(&GROUP, &mut self.group, blocks, gone)
    }

    fn apply_bitmap(&mut self, blocks: &mut Blocks, space: &Space) -> Result<(), Stop> {
        let mut chunks = Vec::new();
        for key in space.checkpoint().dirty_chunks() {
            chunks.push((key, space.checkpoint().chunk_value(key)?));
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
        let clear = chunks.iter();
        let clear = clear.filter(|(_, value)| matches!(value, ChunkValue::Clear));
        remove_all(
            &BITMAP,
            &mut self.bitmap,
            blocks,
            clear.map(|(key, _)| *key),
        )
    }

    fn apply_lazy(&mut self, blocks: &mut Blocks) -> Result<(), Stop> {
        for home in self.lazy_map.changed() {
            if let Some(entry) = self.lazy_map.get(home) {
                LAZY.put(&mut self.lazy, blocks, home.0, &entry.encode())?;
            }
        }
        let gone = self.lazy_map.changed();
        let gone = gone.filter(|home| self.lazy_map.get(home).is_none());
        remove_all(&LAZY, &mut self.lazy, blocks, gone.map(|home| home.0))
    }
}

/// Takes those of some keys out of a tree that are there, which was prepared. When the leaf of one that is not has gone for others, the search
/// for it ends in one that nobody has read.
fn remove_all(
    tree: &Tree,
    root: &mut TreeRoot,
    blocks: &mut Blocks,
    keys: impl Iterator<Item = u64>,
) -> Result<(), Stop> {
    let mut there = Vec::new();
    for key in keys {
        if tree.get(root, blocks, key)?.is_some() {
            there.push(key);
        }
    }
    for key in there {
        tree.remove(root, blocks, key)?;
    }
    Ok(())
}
