//! The cleaner, and the one mover: `evacuate` makes the live blocks of a range dirty, so that the next segment carries
//! them elsewhere and frees their places. Policies choose the ranges, by cost and benefit: what moving takes, against what it wins
//! (DESIGN.md, "One mover").

mod state;

pub(crate) use state::{Fight, Reclaim};

use crate::blocks::{Missed, Stop, What};
use crate::budget::reserve::REMOVAL_COST;
use crate::core::Core;
use crate::error::Error;
use crate::tree::Tree;
use crate::unwritten::Housed;
use crate::writeback::Homed;
use crate::{dir, extents, xattrs};
use loamfs_format::group::Role;
use loamfs_format::ifile::IfileEntry;
use loamfs_format::inode::{Body, Inode};
use loamfs_format::node::TreeRoot;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino, InodeBlockNo};
use loamfs_space::{Candidate, CleaningCost, Owner};
use std::collections::BTreeSet;

/// Bytes of the smallest hole that is not worth compacting on a disk whose seeks are dear.
const HOLE_MIN: u64 = 128 << 10;
/// Groups that are emptied together at most: their owners' inodes are read together.
pub const BATCH_MAX: usize = 8;

/// Fragments that are worth moving at most, for each that this wins, when an operation waits for room.
pub(crate) const DEAR: u64 = 7;

/// What room is worth moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// Room is there, but in holes that cost a seek each: five fragments, if that wins three.
    Cheap,
    /// An operation waits for it: [`DEAR`] fragments, if that wins one.
    Dear,
    /// The operation gets ENOSPC else: what serves as it is may be moved too.
    Anything,
}

impl Core {
    /// Log ranges to be compacted, the cheapest that are worth it, until about `frags` free fragments are won; in the
    /// order of their addresses, so that neighbours are read without a seek.
    pub fn compactable(&self, frags: u64) -> Vec<Extent> {
        let hole_max = self.geometry.frags_for(HOLE_MIN);
        let found = self.space.cleaning().compact_candidates(hole_max);
        self.pieces_of(found, frags, DEAR)
    }

    /// Ranges of one group, not the one where the log goes on, whose free space no block fits into, whatever moving them
    /// costs.
    pub fn useless(&self, frags: u64) -> Vec<Extent> {
        let group_of = |extent: Extent| self.geometry.group_of(extent.start);
        let next = self.geometry.group_of(self.log.tail().next);
        let mut found = self
            .space
            .cleaning()
            .compact_candidates(self.sizes().hole_least());
        found.retain(|candidate| group_of(candidate.extent) != next);
        if let Some(first) = found.first().map(|cheapest| group_of(cheapest.extent)) {
            found.retain(|candidate| group_of(candidate.extent) == first);
        }
        self.pieces_of(found, frags, u64::MAX)
    }

    /// Nothing is placed in the groups of these ranges while they are moved, since it would be in the way again; unless
    /// what is left then has no room for both checkpoints.
    pub fn close_groups_of(&mut self, ranges: &[Extent]) {
        let group_of = |range: &Extent| self.geometry.group_of(range.start);
        let groups: Vec<GroupNo> = ranges.iter().map(group_of).collect();
        self.space.close_groups(&groups);
        self.reclaim.forget_room();
        let mut budget = self.budget();
        let dirty = budget.segment_estimate() + REMOVAL_COST;
        if budget.leaves_checkpoints(dirty) != Some(true) {
            self.open_groups();
        }
    }

    /// All groups are open again.
    pub fn open_groups(&mut self) {
        self.space.close_groups(&[]);
        self.reclaim.forget_room();
    }

    /// The first candidates that win `frags` fragments, at most `most` moved for one that is won.
    fn pieces_of(&self, candidates: Vec<Candidate>, frags: u64, most: u64) -> Vec<Extent> {
        let mut won = 0;
        let mut ranges = Vec::new();
        for candidate in candidates {
            if won >= frags || candidate.used > candidate.scattered.saturating_mul(most) {
                break;
            }
            won += candidate.scattered;
            ranges.extend(self.pieces(candidate.extent));
        }
        ranges.sort_unstable();
        ranges
    }

    /// Groups of one role that are cheapest to empty and worth it, as many as win `frags` fragments and whose content
    /// has room elsewhere; `but` some. Emptied, they can take any role. In the order of their addresses, so that
    /// neighbours are read without a seek.
    pub fn groups_to_empty(&mut self, worth: Worth, frags: u64, but: &[GroupNo]) -> Vec<GroupNo> {
        let log = self.cheapest_of(Role::Log, worth, frags, but);
        let data = self.cheapest_of(Role::Data, worth, frags, but);
        let used = |groups: &[CleaningCost]| groups.first().map_or(u64::MAX, |cheap| cheap.used);
        let found = if used(&log) <= used(&data) { log } else { data };
        let mut groups: Vec<GroupNo> = found.into_iter().map(|cheap| cheap.group).collect();
        groups.sort_unstable();
        groups
    }

    fn cheapest_of(
        &mut self,
        role: Role,
        worth: Worth,
        frags: u64,
        but: &[GroupNo],
    ) -> Vec<CleaningCost> {
        let g = self.geometry;
        let next = g.group_of(self.log.tail().next);
        let in_log = self
            .budget()
            .usable_log()
            .saturating_sub(self.space.free_index(Role::Log).unknown());
        let usable = in_log + self.space.free_groups() * g.group_frags;
        let log = usable.saturating_sub(g.frags_for(self.sizes().reserve_bytes() / 2));
        let waiting = self.budget().waiting();
        // Data that wait were given room before.
        let given = waiting.blocks / u64::from(g.fragment_size);
        let room = match role {
            Role::Log => log,
            _ if log > 0 => self
                .space
                .free_index(Role::Data)
                .frags()
                .saturating_sub(given),
            _ => 0,
        };
        // Data that wait need whole groups, a segment only holes that are long enough.
        let hole_max = match self.budget().groups_awaited() {
            0 if role == Role::Log && worth != Worth::Anything => g.frags_for(HOLE_MIN),
            _ => u64::MAX,
        };
        let (most, least) = match worth {
            Worth::Cheap => (5, 3),
            Worth::Dear | Worth::Anything => (DEAR, 1),
        };
        let least_hole = self.sizes().hole_least();
        let (mut won, mut taken) = (0, 0);
        self.space
            .cleaning()
            .cheapest_groups(role, hole_max, least_hole, self.checkpoints.summaries())
            .into_iter()
            .filter(|cheap| cheap.group != next && !but.contains(&cheap.group))
            .take_while(|cheap| {
                let enough = won >= frags;
                won += cheap.won;
                // Homes are of whole blocks: all that is free in a data group serves until it is emptied.
                taken += match role {
                    Role::Data => cheap.used + cheap.won,
                    _ => cheap.used + cheap.used / 4 + cheap.closed,
                };
                !enough && cheap.used * least <= cheap.won * most && taken <= room
            })
            .take(BATCH_MAX)
            .collect()
    }

    /// Brings the inodes into memory whose blocks live in `ranges`, all of them at once, so that [`Core::evacuate`]
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
            match missed.note(self.prepare_dirty(ino)) {
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
            .map(|(extent, _)| self.space.bitmaps().live_frags(*extent));
        let used: u64 = used.sum();
        self.reclaim.note_cleaned(whole, used);
        live.retain(|(_, record)| !matches!(record.kind, BlockKind::Homed | BlockKind::Summary));
        Ok(live.into_iter().map(|(extent, _)| extent).collect())
    }

    /// Leaves what the mover could not place where it is: it is in the way of nobody's sync.
    pub fn leave_unmoved(&mut self) {
        let per_block = self.geometry.block_units();
        for ino in self.writeback.files().clone() {
            if let Some(node) = self.inodes.nodes.get_mut(&ino) {
                let leave = |homed: &mut Homed| homed.leave_unmoved(per_block);
                node.change_homed(&mut self.writeback, leave);
            }
        }
    }

    /// What the owner records say of a range, by address; records that reach beyond it are whole.
    pub fn owners_in(&mut self, range: Extent) -> Result<Vec<(Extent, Owner)>, Stop> {
        self.maps
            .owners_now(&mut self.blocks, &self.space, &self.geometry, range)
    }

    /// The blocks of a range that are in use, with their owners.
    fn live_in(&mut self, range: Extent) -> Result<Vec<(Extent, Owner)>, Stop> {
        let mut owners = self.owners_in(range)?;
        owners.retain(|(extent, _)| self.space.bitmaps().live_frags(*extent) > 0);
        Ok(owners)
    }

    /// Makes the live blocks of a range dirty, as many as one segment takes; crowded, it goes on after a commit.
    pub fn evacuate(&mut self, range: Extent) -> Result<(), Stop> {
        self.budget().admit_removal()?;
        let owners = self.live_in(range)?;
        let mut missed = Missed::default();
        for (extent, record) in owners {
            // What was made dirty so far stays so; the rest follows after a commit.
            self.budget().admit_removal()?;
            match missed.note(self.move_block(extent, &record, range)) {
                Err(Stop::Failed(Error::Stale(_))) => {}
                moved => drop(moved?),
            }
        }
        missed.nothing()
    }

    /// A range in pieces for one step each: what is missing of a piece is read in a few batches, in the order of its
    /// addresses.
    pub fn pieces(&self, extent: Extent) -> Vec<Extent> {
        let step = self.geometry.frags_for(self.geometry.segment_max.into());
        (extent.start.0..extent.end().0)
            .step_by(step as usize)
            .map(|start| Extent::new(FragAddr(start), step.min(extent.end().0 - start)))
            .collect()
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
        let entry: IfileEntry = self.maps.ifile_entry(&mut self.blocks, block)?;
        if entry.pointer.addr == at {
            self.inodes
                .load_block(&self.maps, &mut self.blocks, block)?;
            self.inodes.touch_block(block)?;
            self.note_dirty();
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
        self.prepare_dirty(ino)?;
        let node = self.inodes.prepared(ino)?;
        let Some((tree, mut root)) = Core::tree_of(&node.inode, record.kind) else {
            return Ok(());
        };
        let found = tree.locate(&root, &mut self.blocks, record.level, record.logical)?;
        if found.is_none_or(|pointer| pointer.addr != at) {
            return Ok(());
        }
        let Some(entry) = tree.next(&root, &mut self.blocks, record.logical)? else {
            return Ok(());
        };
        // Putting the same entry again takes the path to it out for change.
        tree.put(&mut root, &mut self.blocks, entry.key(), entry.value())?;
        self.apply(|core| {
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
        let roots = self.maps.roots();
        let Some((tree, root)) = roots.into_iter().find(|(tree, _)| tree.kind == record.kind)
        else {
            return Ok(());
        };
        let found = tree.locate(&root, &mut self.blocks, record.level, record.logical)?;
        if found.is_some_and(|pointer| pointer.addr == at) {
            self.maps.moving.insert((record.kind, record.logical));
        }
        Ok(())
    }

    fn move_small(&mut self, ino: Ino, at: FragAddr) -> Result<(), Stop> {
        let node = self.node(ino)?;
        let here = matches!(node.inode.body, Body::Small(pointer) if pointer.addr == at);
        if !here || node.small.is_some() || node.is_large() {
            return Ok(());
        }
        let content = self.small_content(ino)?;
        self.prepare_dirty(ino)?;
        self.apply(|core| {
            core.pending.add_content(content.len());
            core.inodes.prepared(ino)?.small = Some(content);
            core.touch(ino)
        })
    }

    fn move_value(&mut self, ino: Ino, key: u64, at: FragAddr) -> Result<(), Stop> {
        self.prepare_dirty(ino)?;
        let node = self.inodes.prepared(ino)?;
        let (tree, mut root) = (xattrs::tree(&node.inode), node.inode.xattrs);
        let Some(entry) = tree.get(&root, &mut self.blocks, key)? else {
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
            value.extend_from_slice(&self.blocks.bytes(piece, What::Data(ino))?);
        }
        let old = pieces.clone();
        pieces.fill(loamfs_format::Pointer::NONE);
        drop(entry);
        tree.put(&mut root, &mut self.blocks, key, &xattr.encode())?;
        self.apply(|core| {
            core.pending.add_content(value.len());
            let node = core.inodes.prepared(ino)?;
            node.inode.xattrs = root;
            node.values.insert(key, value.into());
            old.iter().for_each(|piece| core.free_block(piece));
            core.touch(ino)
        })
    }

    /// An image moves within the log; it settles in its own time.
    fn move_image(&mut self, ino: Ino, unit: u64, at: FragAddr) -> Result<(), Stop> {
        let Some((_, home)) = self.homes(ino, unit, unit.saturating_add(1))?.pop() else {
            return Ok(());
        };
        let here = self
            .maps
            .lazy_map
            .get(&home)
            .is_some_and(|entry| entry.image == at);
        if !here || self.node(ino)?.homed().get(unit).is_some() {
            return Ok(());
        }
        let content = self.shown_unit(ino, unit)?;
        self.prepare_dirty(ino)?;
        self.apply(|core| {
            let node = core.inodes.prepared(ino)?;
            let put = |homed: &mut Homed| homed.move_image(unit, home, content);
            node.change_homed(&mut core.writeback, put);
            core.touch(ino)
        })
    }

    /// The units of a file whose homes are in `piece`, of which its owner record says that it begins with block `first`.
    /// Earlier programs cut records inside a block and then counted too few, so what is not found there is looked for behind it.
    fn units_at(&mut self, ino: Ino, piece: Extent, first: u64) -> Result<Vec<Housed>, Stop> {
        let geometry = self.geometry;
        let per_block = geometry.block_units();
        let count = piece.frags.div_ceil(geometry.block_frags());
        let end = first.saturating_add(count);
        let said = first.saturating_mul(per_block)..end.saturating_mul(per_block);
        self.node(ino)?;
        let inode = &self.inodes.prepared(ino)?.inode;
        let found = extents::overlapping(inode, &mut self.blocks, &geometry, first, end)?;
        let mut homes = self.housed(ino, &found, &said)?;
        homes.retain(|it| piece.contains(it.home));
        let found = homes.len() as u64 * self.geometry.unit_frags();
        let in_change = |other: Extent| other.overlaps(piece);
        if found < self.space.bitmaps().live_frags(piece)
            && !self.blocks.frees.iter().any(|free| in_change(*free))
            && !self.space.unshown().any(in_change)
        {
            homes = self.homes_in(ino, piece, first)?;
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
        let per_block = self.geometry.block_units();
        let block_frags = self.geometry.block_frags();
        let start = extent.start.max(range.start);
        let end = extent.end().min(range.end());
        let ahead = start.0.saturating_sub(extent.start.0) / block_frags;
        let first = block.saturating_add(ahead);
        let piece = Extent::new(start, end.0.saturating_sub(start.0));
        let (mut units, mut missed) = (Vec::new(), Missed::default());
        let housed = self.units_at(ino, piece, first)?;
        for Housed { unit, .. } in housed.iter().filter(|it| it.written) {
            if self.node(ino)?.homed().get(*unit).is_some() {
                continue;
            }
            if let Some(content) = missed.note(self.shown_unit(ino, *unit))? {
                units.push((*unit, content));
            }
        }
        missed.nothing()?;
        self.prepare_dirty(ino)?;
        self.move_unwritten(ino, &housed)?;
        if units.is_empty() {
            return Ok(());
        }
        self.apply(|core| {
            let node = core.inodes.prepared(ino)?;
            let put = |homed: &mut Homed| homed.move_units(units, per_block);
            node.change_homed(&mut core.writeback, put);
            core.touch(ino)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
