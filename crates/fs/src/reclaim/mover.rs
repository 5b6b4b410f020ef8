//! The one mover (L5): what lives in a range is made dirty, so that the next segment carries it elsewhere.

mod content;
mod home;
mod node;

use crate::blocks::{Missed, Stop};
use crate::budget::NODES_COST;
use crate::budget::worst_case::REMOVAL_COST;
use crate::core::Core;
use crate::error::Error;
use crate::maps::tree_of;
use crate::reading::Housed;
use crate::reclaim::Leftover;
use crate::tracks::dissolve::Dissolve;
use crate::writeback::Homed;
use content::{MoveImage, MoveSmall, MoveValue};
use home::MoveHome;
use loamfs_format::group::Role;
use loamfs_format::ifile::{IfileEntry, ino_at};
use loamfs_format::inode::FileExtent;
use loamfs_format::kind::{Belongs, MapTree, Part};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino, InodeBlockNo};
use loamfs_space::Owner;
use node::MoveNode;
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
        self.close_groups(&groups);
        let mut budget = self.core.budget();
        let dirty = budget.segment_estimate() + REMOVAL_COST;
        if budget.leaves_checkpoints(dirty) != Some(true) {
            self.open_groups();
        }
    }

    /// Nothing is placed in these groups while they are emptied. Their holes are no room for segments then.
    pub fn close_groups(&mut self, groups: &[GroupNo]) {
        self.core.space.placement().close_groups(groups);
        self.core.reclaim.forget_room();
    }

    /// All groups are open again.
    pub fn open_groups(&mut self) {
        self.close_groups(&[]);
    }

    /// Brings the inodes into memory whose blocks live in `ranges`, all of them at once, so that [`Mover::evacuate`]
    /// then reads each range in one sweep.
    pub fn meet_owners(&mut self, ranges: &[Extent]) -> Result<(), Stop> {
        let mut missed = Missed::default();
        let mut inos: BTreeSet<Ino> = BTreeSet::new();
        for range in ranges {
            let live = missed.note(self.live_in(*range))?.unwrap_or_default();
            inos.extend(live.iter().filter_map(|(_, record)| inode_of(record)));
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
        let mut used = Vec::new();
        for range in ranges {
            let found = missed.note(self.live_in(*range))?.unwrap_or_default();
            let bitmaps = self.core.space.bitmaps();
            // A record may reach far beyond the range.
            let here = |(extent, _): &(Extent, _)| bitmaps.live_frags(extent.intersection(*range));
            let frags = found.iter().map(here);
            used.push(frags.sum::<u64>());
            live.extend(found);
        }
        missed.nothing()?;
        for (range, used) in ranges.iter().zip(used) {
            self.core.reclaim.note_cleaned(range.frags, used);
        }
        live.retain(|(_, record)| !matches!(record.kind, BlockKind::Homed | BlockKind::Summary));
        Ok(live.into_iter().map(|(extent, _)| extent).collect())
    }

    /// Leaves what the mover could not place where it is: it is in the way of nobody's sync.
    pub fn leave_unmoved(&mut self) {
        let per_block = self.core.geometry.block_units();
        for ino in self.core.writeback.files().clone() {
            if let Some(node) = self.core.inodes.get_mut(ino) {
                let leave = |homed: &mut Homed| homed.leave_unmoved(per_block);
                node.change_homed(&mut self.core.writeback, leave);
            }
        }
    }

    /// Makes the live blocks of ranges dirty, as many as one segment takes; crowded, it goes on after a commit. They go in the
    /// order of inodes, and so directory by directory, each file together: what is read together stands together, and an inode
    /// block changes once. While everything is packed, what has no place stays for shorter blocks to go first: what they leave
    /// may be its place. What is damaged stays, and keeps nothing else: this answers what is wrong with the first of it.
    pub fn evacuate(&mut self, ranges: &[Extent]) -> Result<Option<Error>, Stop> {
        let packing = self.core.reclaim.is_packing();
        if packing {
            self.core.inodes.forget_blocks();
        }
        self.core.budget().admit_removal()?;
        let mut missed = Missed::default();
        let mut owners = Vec::new();
        for range in ranges {
            let live = missed.note(self.live_in(*range))?.unwrap_or_default();
            owners.extend(
                live.into_iter()
                    .map(|(extent, record)| (extent, record, *range)),
            );
        }
        missed.nothing()?;
        owners.sort_by_key(|(extent, record, _)| {
            (first_inode(record), record.kind, record.logical, *extent)
        });
        let (mut missed, mut tight, mut damage) = (Missed::default(), false, None);
        for (extent, record, range) in owners {
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
                Err(Stop::Failed(error @ (Error::Corrupt(_) | Error::Device(_)))) => {
                    damage.get_or_insert(error);
                }
                moved => drop(moved?),
            }
        }
        missed.nothing()?;
        match tight {
            true => Err(Stop::Tight),
            false => Ok(damage),
        }
    }

    /// The units whose homes are in `range`, of those that a record says have them in `extent`.
    pub fn units_in(
        &mut self,
        extent: Extent,
        record: &Owner,
        range: Extent,
    ) -> Result<Vec<Housed>, Stop> {
        MoveHome {
            ino: record.ino,
            extent,
            first: record.logical,
            range,
            lost: BTreeSet::new(),
        }
        .units(self.core)
    }

    /// Moves homes of which some units are `lost`, which become zeros.
    pub fn move_without(
        &mut self,
        (extent, record): (Extent, &Owner),
        range: Extent,
        lost: BTreeSet<u64>,
    ) -> Result<(), Stop> {
        self.core.budget().admit_removal()?;
        self.meet(record)?;
        self.move_home(&MoveHome {
            ino: record.ino,
            extent,
            first: record.logical,
            range,
            lost,
        })
    }

    /// Moves homes, as far as they can be read.
    ///
    /// # Errors
    /// What is wrong with the first block that stays where it is, once the others wait.
    fn move_home(&mut self, homes: &MoveHome) -> Result<(), Stop> {
        match self.core.perform(homes)? {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Has blocks of a file wait for homes elsewhere, as far as there is room for them.
    pub fn carry(&mut self, ino: Ino, piece: &FileExtent) -> Result<(), Stop> {
        let geometry = self.core.geometry;
        let extent = piece.pointer.extent();
        let bytes = geometry.byte_offset(FragAddr(extent.frags));
        self.core
            .budget()
            .admit(NODES_COST, bytes + u64::from(geometry.block_size))?;
        self.core.prepare_dirty(ino)?;
        self.move_home(&MoveHome {
            ino,
            extent,
            first: piece.block,
            range: extent,
            lost: BTreeSet::new(),
        })
    }

    /// Moves what a scrub found damaged, of which there is a sound copy in memory or beside it.
    ///
    /// # Errors
    /// What is wrong with it, if there is none.
    pub fn rescue(&mut self, extent: Extent, record: &Owner, range: Extent) -> Result<(), Stop> {
        self.core.budget().admit_removal()?;
        self.meet(record)?;
        self.move_block(extent, record, range)
    }

    /// Brings the inode block into memory that moving a block changes.
    fn meet(&mut self, record: &Owner) -> Result<(), Stop> {
        let core = &mut *self.core;
        if record.kind == BlockKind::InodeBlock {
            let block = InodeBlockNo(record.logical);
            return core.inodes.load_block(&core.maps, &mut core.blocks, block);
        }
        inode_of(record).map_or(Ok(()), |ino| core.prepare_dirty(ino))
    }

    /// The blocks of a range that are in use, with their owners.
    pub fn live_in(&mut self, range: Extent) -> Result<Vec<(Extent, Owner)>, Stop> {
        let core = &mut *self.core;
        let mut owners =
            core.maps
                .owners_now(&mut core.blocks, &core.space, &core.geometry, range)?;
        owners.retain(|(extent, _)| self.core.space.bitmaps().live_frags(*extent) > 0);
        Ok(owners)
    }

    /// What is left in groups out of which all was moved that could be.
    pub fn left_in(&mut self, groups: &[GroupNo]) -> Result<Leftover, Stop> {
        let (mut missed, mut emptied) = (Missed::default(), Vec::new());
        for group in groups {
            // Where groups are not written when they are clean, it does not matter.
            if !self.core.space.is_all_log() || self.core.space.role(*group) != Role::Log {
                continue;
            }
            let live = missed.note(self.live_in(self.core.geometry.group_extent(*group)))?;
            if live.is_some_and(|live| live.iter().all(|(_, it)| goes_with_maps(it))) {
                emptied.push(*group);
            }
        }
        missed.nothing()?;
        let (geometry, bitmaps) = (&self.core.geometry, self.core.space.bitmaps());
        let holds = |group: &&GroupNo| bitmaps.live_frags(geometry.group_extent(**group)) > 0;
        let groups = groups.iter().filter(holds).copied().collect();
        Ok(Leftover { groups, emptied })
    }

    /// Makes one block dirty if it is still where its owner record says.
    fn move_block(&mut self, extent: Extent, record: &Owner, range: Extent) -> Result<(), Stop> {
        let (ino, at) = (record.ino, extent.start);
        match record.kind.belongs() {
            Belongs::Volume => Ok(()),
            Belongs::Inodes => self.move_inodes(InodeBlockNo(record.logical), at),
            Belongs::Tree(which) => self.core.perform(&MoveNode {
                owner: *record,
                which,
                at,
            }),
            Belongs::Map(map) => self.move_map_node(map, record, at),
            Belongs::Part(Part::Small) => self.core.perform(&MoveSmall { ino, at }),
            Belongs::Part(Part::Track) => self.dissolve(ino, record.logical, at),
            Belongs::Part(Part::Value) => self.core.perform(&MoveValue {
                ino,
                key: record.logical,
                at,
            }),
            Belongs::Part(Part::Image) => self.core.perform(&MoveImage {
                ino,
                unit: record.logical,
                at,
            }),
            Belongs::Part(Part::Home) => self.move_home(&MoveHome {
                ino,
                extent,
                first: record.logical,
                range,
                lost: BTreeSet::new(),
            }),
        }
    }

    /// Takes all files out of a track, step by step: its head goes with the last one.
    fn dissolve(&mut self, dir: Ino, low: u64, at: FragAddr) -> Result<(), Stop> {
        while self.core.perform(&Dissolve { dir, low, at })? {
            self.core.budget().admit_removal()?;
        }
        Ok(())
    }

    fn move_inodes(&mut self, block: InodeBlockNo, at: FragAddr) -> Result<(), Stop> {
        let entry: IfileEntry = self.core.maps.ifile_entry(&mut self.core.blocks, block)?;
        if entry.pointer.addr == at {
            if !self.core.env.law().takes_deltas_along() {
                self.core.inodes.deltas_mut().written(block);
                self.core.inodes.forget_blocks();
            }
            self.core
                .inodes
                .load_block(&self.core.maps, &mut self.core.blocks, block)?;
            self.core.inodes.touch_block(block)?;
            self.core.note_dirty();
        }
        Ok(())
    }

    fn move_map_node(&mut self, map: MapTree, record: &Owner, at: FragAddr) -> Result<(), Stop> {
        let (tree, root) = (tree_of(map), self.core.maps.root(map));
        let found = tree.locate(&root, &mut self.core.blocks, record.level, record.logical)?;
        if found.is_some_and(|pointer| pointer.addr == at) {
            self.core.maps.write_anew([(map, record.logical)]);
        }
        Ok(())
    }
}

/// The inode of a block, or the first one in it. Maps have none, and come first.
fn first_inode(record: &Owner) -> Ino {
    match record.kind.belongs() {
        Belongs::Inodes => ino_at(InodeBlockNo(record.logical), 0),
        Belongs::Volume | Belongs::Map(_) | Belongs::Tree(_) | Belongs::Part(_) => record.ino,
    }
}

/// Whether checkpoints free a block, once they wrote it anew: no segment moves it.
fn goes_with_maps(record: &Owner) -> bool {
    matches!(record.kind.belongs(), Belongs::Volume | Belongs::Map(_))
}

/// The inode that changes when a block moves, if one does.
fn inode_of(record: &Owner) -> Option<Ino> {
    match record.kind.belongs() {
        Belongs::Tree(_) | Belongs::Part(_) => Some(record.ino).filter(|ino| *ino != Ino(0)),
        Belongs::Volume | Belongs::Inodes | Belongs::Map(_) => None,
    }
}
