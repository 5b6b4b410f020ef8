//! The one mover: what lives in a range is made dirty, so that the next segment carries it elsewhere.

use crate::blocks::{Missed, Stop, What};
use crate::budget::reserve::REMOVAL_COST;
use crate::core::Core;
use crate::error::Error;
use crate::operations::reserve::MoveUnwritten;
use crate::reading::Housed;
use crate::tree::Tree;
use crate::writeback::Homed;
use crate::{dir, extents, xattrs};
use loamfs_format::ifile::IfileEntry;
use loamfs_format::inode::{Body, Inode};
use loamfs_format::node::TreeRoot;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino, InodeBlockNo};
use loamfs_space::Owner;
use std::collections::BTreeSet;

/// Whoever moves changes inodes, trees and maps as operations do, and so needs all of the state.
pub(crate) struct Mover<'c> {
    core: &'c mut Core,
}

impl Core {
    /// What moves blocks.
    pub fn mover(&mut self) -> Mover<'_> {
        Mover { core: self }
    }
}

impl Mover<'_> {
    /// Nothing is placed in the groups of these ranges while they are moved, since it would be in the way again; unless
    /// what is left then has no room for both checkpoints.
    pub fn close_groups_of(&mut self, ranges: &[Extent]) {
        let group_of = |range: &Extent| self.core.geometry.group_of(range.start);
        let groups: Vec<GroupNo> = ranges.iter().map(group_of).collect();
        self.core.space.close_groups(&groups);
        self.core.reclaim.forget_room();
        let mut budget = self.core.budget();
        let dirty = budget.segment_estimate() + REMOVAL_COST;
        if budget.leaves_checkpoints(dirty) != Some(true) {
            self.open_groups();
        }
    }

    /// All groups are open again.
    pub fn open_groups(&mut self) {
        self.core.space.close_groups(&[]);
        self.core.reclaim.forget_room();
    }

    /// Brings the inodes into memory whose blocks live in `ranges`, all of them at once, so that [`Mover::evacuate`]
    /// then reads each range in one sweep.
    pub fn meet_owners(&mut self, ranges: &[Extent]) -> Result<(), Stop> {
        let moved_by_inode = |kind: BlockKind| !kind.is_map() && kind != BlockKind::InodeBlock;
        let mut missed = Missed::default();
        let mut inos: BTreeSet<Ino> = BTreeSet::new();
        for range in ranges {
            let live = missed.note(self.live_in(*range))?.unwrap_or_default();
            let records = live.into_iter().map(|(_, record)| record);
            let records =
                records.filter(|record| moved_by_inode(record.kind) && record.ino != Ino(0));
            inos.extend(records.map(|record| record.ino));
        }
        for ino in inos {
            match missed.note(self.core.prepare_dirty(ino)) {
                // Whoever moves it says what is wrong with it.
                Err(Stop::Failed(_)) => {}
                met => drop(met?),
            }
        }
        missed.nothing()
    }

    /// Begins with moving what lives in `ranges`, and counts it. Returns what of it is read by way of windows.
    pub fn begin_cleaning(&mut self, ranges: &[Extent]) -> Result<Vec<Extent>, Stop> {
        let (mut missed, mut live) = (Missed::default(), Vec::new());
        for range in ranges {
            live.extend(missed.note(self.live_in(*range))?.unwrap_or_default());
        }
        missed.nothing()?;
        let whole: u64 = ranges.iter().map(|range| range.frags).sum();
        let used = live
            .iter()
            .map(|(extent, _)| self.core.space.bitmaps().live_frags(*extent));
        let used: u64 = used.sum();
        self.core.reclaim.note_cleaned(whole, used);
        live.retain(|(_, record)| !matches!(record.kind, BlockKind::Homed | BlockKind::Summary));
        Ok(live.into_iter().map(|(extent, _)| extent).collect())
    }

    /// Leaves what the mover could not place where it is: it is in the way of nobody's sync.
    pub fn leave_unmoved(&mut self) {
        let per_block = self.core.geometry.block_units();
        for ino in self.core.writeback.files().clone() {
            if let Some(node) = self.core.inodes.nodes.get_mut(&ino) {
                let leave = |homed: &mut Homed| homed.leave_unmoved(per_block);
                node.change_homed(&mut self.core.writeback, leave);
            }
        }
    }

    /// Makes the live blocks of a range dirty, as many as one segment takes; crowded, it goes on after a commit. While
    /// everything is packed, what has no place stays for shorter blocks to go first: what they leave may be its place.
    pub fn evacuate(&mut self, range: Extent) -> Result<(), Stop> {
        let packing = self.core.reclaim.is_packing();
        if packing {
            self.core.inodes.forget_blocks();
        }
        self.core.budget().admit_removal()?;
        let owners = self.live_in(range)?;
        let (mut missed, mut tight) = (Missed::default(), false);
        for (extent, record) in owners {
            // How much it dirties shows once that is in memory.
            match missed.note(self.meet(&record)) {
                Ok(None) => continue,
                // Whoever moves it says what is wrong with it.
                Ok(Some(())) | Err(Stop::Failed(_)) => {}
                Err(stop) => return Err(stop),
            }
            // What was made dirty so far stays so; the rest follows after a commit.
            match self.core.budget().admit_removal() {
                Err(Stop::Tight) if packing => {
                    self.core.inodes.forget_blocks();
                    tight = true;
                    continue;
                }
                admitted => admitted?,
            }
            match missed.note(self.move_block(extent, &record, range)) {
                Err(Stop::Failed(Error::Stale(_))) => {}
                moved => drop(moved?),
            }
        }
        missed.nothing()?;
        match tight {
            true => Err(Stop::Tight),
            false => Ok(()),
        }
    }

    /// Brings the inode block into memory that moving a block changes.
    fn meet(&mut self, record: &Owner) -> Result<(), Stop> {
        match record.kind {
            BlockKind::InodeBlock => {
                let block = InodeBlockNo(record.logical);
                let core = &mut *self.core;
                core.inodes.load_block(&core.maps, &mut core.blocks, block)
            }
            _ if record.ino == Ino(0) => Ok(()),
            _ => self.core.prepare_dirty(record.ino),
        }
    }

    /// The blocks of a range that are in use, with their owners.
    fn live_in(&mut self, range: Extent) -> Result<Vec<(Extent, Owner)>, Stop> {
        let core = &mut *self.core;
        let mut owners =
            core.maps
                .owners_now(&mut core.blocks, &core.space, &core.geometry, range)?;
        owners.retain(|(extent, _)| self.core.space.bitmaps().live_frags(*extent) > 0);
        Ok(owners)
    }

    /// Makes one block dirty if it is still where its owner record says.
    fn move_block(&mut self, extent: Extent, record: &Owner, range: Extent) -> Result<(), Stop> {
        let (ino, at) = (record.ino, extent.start);
        match record.kind {
            BlockKind::Summary | BlockKind::Superblock => Ok(()),
            BlockKind::InodeBlock => self.move_inodes(InodeBlockNo(record.logical), at),
            BlockKind::DirNode
            | BlockKind::ExtentNode
            | BlockKind::ChecksumNode
            | BlockKind::XattrNode => self.move_node(ino, record, at),
            BlockKind::IfileNode
            | BlockKind::BitmapNode
            | BlockKind::OwnerNode
            | BlockKind::GroupNode
            | BlockKind::LazyNode => self.move_map_node(record, at),
            BlockKind::SmallData => self.move_small(ino, at),
            BlockKind::XattrValue => self.move_value(ino, record.logical, at),
            BlockKind::Image => self.move_image(ino, record.logical, at),
            BlockKind::Homed => self.move_home(ino, extent, record.logical, range),
        }
    }

    fn move_inodes(&mut self, block: InodeBlockNo, at: FragAddr) -> Result<(), Stop> {
        let entry: IfileEntry = self.core.maps.ifile_entry(&mut self.core.blocks, block)?;
        if entry.pointer.addr == at {
            self.core
                .inodes
                .load_block(&self.core.maps, &mut self.core.blocks, block)?;
            self.core.inodes.touch_block(block)?;
            self.core.note_dirty();
        }
        Ok(())
    }

    fn tree_of(inode: &Inode, kind: BlockKind) -> Option<(Tree, TreeRoot)> {
        match (kind, &inode.body) {
            (BlockKind::DirNode, Body::DirTree(root)) => Some((dir::tree(inode), *root)),
            (BlockKind::ExtentNode, Body::ExtentTree(root)) => Some((extents::tree(inode), *root)),
            (BlockKind::ChecksumNode, _) => Some((extents::crc_tree(inode), inode.checksums)),
            (BlockKind::XattrNode, _) => Some((xattrs::tree(inode), inode.xattrs)),
            _ => None,
        }
    }

    fn move_node(&mut self, ino: Ino, record: &Owner, at: FragAddr) -> Result<(), Stop> {
        self.core.prepare_dirty(ino)?;
        let node = self.core.inodes.prepared(ino)?;
        let Some((tree, mut root)) = Mover::tree_of(&node.inode, record.kind) else {
            return Ok(());
        };
        let found = tree.locate(&root, &mut self.core.blocks, record.level, record.logical)?;
        if found.is_none_or(|pointer| pointer.addr != at) {
            return Ok(());
        }
        let Some(entry) = tree.next(&root, &mut self.core.blocks, record.logical)? else {
            return Ok(());
        };
        // Putting the same entry again takes the path to it out for change.
        tree.put(&mut root, &mut self.core.blocks, entry.key(), entry.value())?;
        self.core.apply(|core| {
            let inode = &mut core.inodes.prepared(ino)?.inode;
            match record.kind {
                BlockKind::DirNode => inode.body = Body::DirTree(root),
                BlockKind::ExtentNode => inode.body = Body::ExtentTree(root),
                BlockKind::ChecksumNode => inode.checksums = root,
                _ => inode.xattrs = root,
            }
            core.touch(ino)
        })
    }

    fn move_map_node(&mut self, record: &Owner, at: FragAddr) -> Result<(), Stop> {
        let roots = self.core.maps.roots();
        let Some((tree, root)) = roots.into_iter().find(|(tree, _)| tree.kind == record.kind)
        else {
            return Ok(());
        };
        let found = tree.locate(&root, &mut self.core.blocks, record.level, record.logical)?;
        if found.is_some_and(|pointer| pointer.addr == at) {
            self.core.maps.moving.insert((record.kind, record.logical));
        }
        Ok(())
    }

    fn move_small(&mut self, ino: Ino, at: FragAddr) -> Result<(), Stop> {
        let node = self.core.node(ino)?;
        let here = matches!(node.inode.body, Body::Small(pointer) if pointer.addr == at);
        if !here || node.small.is_some() || node.is_large() {
            return Ok(());
        }
        let content = self.core.reading().small_content(ino)?;
        self.core.prepare_dirty(ino)?;
        self.core.apply(|core| {
            core.pending.add_content(content.len());
            core.inodes.prepared(ino)?.small = Some(content);
            core.touch(ino)
        })
    }

    fn move_value(&mut self, ino: Ino, key: u64, at: FragAddr) -> Result<(), Stop> {
        self.core.prepare_dirty(ino)?;
        let node = self.core.inodes.prepared(ino)?;
        let (tree, mut root) = (xattrs::tree(&node.inode), node.inode.xattrs);
        let Some(entry) = tree.get(&root, &mut self.core.blocks, key)? else {
            return Ok(());
        };
        let Some(mut xattr) = Xattr::decode(entry.value()) else {
            return Ok(());
        };
        let Value::Log(pieces) = &mut xattr.value else {
            return Ok(());
        };
        if pieces.iter().all(|piece| piece.addr != at) {
            return Ok(());
        }
        let mut value = Vec::new();
        for piece in pieces.iter() {
            value.extend_from_slice(&self.core.blocks.bytes(piece, What::Data(ino))?);
        }
        let old = pieces.clone();
        pieces.fill(loamfs_format::Pointer::NONE);
        drop(entry);
        tree.put(&mut root, &mut self.core.blocks, key, &xattr.encode())?;
        self.core.apply(|core| {
            core.pending.add_content(value.len());
            let node = core.inodes.prepared(ino)?;
            node.inode.xattrs = root;
            node.values.insert(key, value.into());
            old.iter().for_each(|piece| core.freeing().block(piece));
            core.touch(ino)
        })
    }

    /// An image moves within the log; it settles in its own time.
    fn move_image(&mut self, ino: Ino, unit: u64, at: FragAddr) -> Result<(), Stop> {
        let Some((_, home)) = self
            .core
            .reading()
            .homes(ino, unit, unit.saturating_add(1))?
            .pop()
        else {
            return Ok(());
        };
        let here = self
            .core
            .maps
            .lazy_map
            .get(&home)
            .is_some_and(|entry| entry.image == at);
        if !here || self.core.node(ino)?.homed().get(unit).is_some() {
            return Ok(());
        }
        let content = self.core.reading().shown_unit(ino, unit)?;
        self.core.prepare_dirty(ino)?;
        self.core.apply(|core| {
            let node = core.inodes.prepared(ino)?;
            let put = |homed: &mut Homed| homed.move_image(unit, home, content);
            node.change_homed(&mut core.writeback, put);
            core.touch(ino)
        })
    }

    /// The units of a file whose homes are in `piece`, of which its owner record says that it begins with block `first`.
    /// Earlier programs cut records inside a block and then counted too few, so what is not found there is looked for behind it.
    fn units_at(&mut self, ino: Ino, piece: Extent, first: u64) -> Result<Vec<Housed>, Stop> {
        let geometry = self.core.geometry;
        let per_block = geometry.block_units();
        let count = piece.frags.div_ceil(geometry.block_frags());
        let end = first.saturating_add(count);
        let recorded = first.saturating_mul(per_block)..end.saturating_mul(per_block);
        self.core.node(ino)?;
        let inode = &self.core.inodes.prepared(ino)?.inode;
        let found = extents::overlapping(inode, &mut self.core.blocks, &geometry, first, end)?;
        let mut homes = self.core.reading().housed(ino, &found, &recorded)?;
        homes.retain(|it| piece.contains(it.home));
        let found = homes.len() as u64 * self.core.geometry.unit_frags();
        let in_change = |other: Extent| other.overlaps(piece);
        if found < self.core.space.bitmaps().live_frags(piece)
            && !self.core.blocks.frees.iter().any(|free| in_change(*free))
            && !self.core.space.unshown().any(in_change)
        {
            homes = self.core.reading().homes_in(ino, piece, first)?;
        }
        Ok(homes)
    }

    /// Homed blocks wait to be written to new homes, elsewhere; those of which nothing was written get them at once.
    fn move_home(
        &mut self,
        ino: Ino,
        extent: Extent,
        block: u64,
        range: Extent,
    ) -> Result<(), Stop> {
        let per_block = self.core.geometry.block_units();
        let block_frags = self.core.geometry.block_frags();
        let start = extent.start.max(range.start);
        let end = extent.end().min(range.end());
        let ahead = start.0.saturating_sub(extent.start.0) / block_frags;
        let first = block.saturating_add(ahead);
        let piece = Extent::new(start, end.0.saturating_sub(start.0));
        let (mut units, mut missed) = (Vec::new(), Missed::default());
        let housed = self.units_at(ino, piece, first)?;
        for Housed { unit, .. } in housed.iter().filter(|it| it.written) {
            if self.core.node(ino)?.homed().get(*unit).is_some() {
                continue;
            }
            if let Some(content) = missed.note(self.core.reading().shown_unit(ino, *unit))? {
                units.push((*unit, content));
            }
        }
        missed.nothing()?;
        self.core.prepare_dirty(ino)?;
        self.core.perform(&MoveUnwritten { ino, housed })?;
        if units.is_empty() {
            return Ok(());
        }
        self.core.apply(|core| {
            let node = core.inodes.prepared(ino)?;
            let put = |homed: &mut Homed| homed.move_units(units, per_block);
            node.change_homed(&mut core.writeback, put);
            core.touch(ino)
        })
    }
}
