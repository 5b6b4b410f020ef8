//! Homes of large files' data: taking and showing them, giving them back, and what waits for them.

use super::Writeback;
use super::homed::{Batch, Homed};
use super::start::Crcs;
use crate::blocks::{Blocks, Stop};
use crate::budget::Sizes;
use crate::core::Core;
use crate::extents;
use crate::inodes::Inodes;
use crate::law::{Law, Rules};
use crate::operations::placing::Aim;
use crate::pending::Pending;
use crate::unit::{UNIT, UnitBytes, unit_of};
use loamfs_format::checksum::unit_crc;
use loamfs_format::inode::Tier;
use loamfs_format::summary::{Allocation, Record, Unwritten};
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, GroupNo, Identity, Ino};
use loamfs_space::{Debtor, FoundSpace, Owner, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Homes may be longer than this only in pieces, so that their length in bytes fits a pointer.
const HOME_FRAGS_MAX: u64 = 1 << 20;

/// Homes in space, and what of files has them, or waits for some. The inodes are in memory.
pub(crate) struct Homes<'c> {
    geometry: &'c Geometry,
    law: &'c Law<dyn Rules>,
    space: &'c mut Space,
    blocks: &'c mut Blocks,
    inodes: &'c mut Inodes,
    pending: &'c mut Pending,
    writeback: &'c mut Writeback,
}

impl Core {
    /// The files that hold the next segment up.
    pub fn held_up(&self) -> Vec<Ino> {
        let waits = |(ino, upto): (&Ino, &u64)| {
            let homed = self.inodes.get(*ino)?.homed();
            homed.waits(*upto).then_some(*ino)
        };
        self.writeback.barrier.iter().filter_map(waits).collect()
    }

    /// Homes of large files' data.
    pub fn homes(&mut self) -> Homes<'_> {
        Homes {
            geometry: &self.geometry,
            law: self.env.law(),
            space: &mut self.space,
            blocks: &mut self.blocks,
            inodes: &mut self.inodes,
            pending: &mut self.pending,
            writeback: &mut self.writeback,
        }
    }
}

impl Homes<'_> {
    /// Takes space for runs of blocks, in as long extents as there are, each on the devices that it aims at first; nothing is taken when
    /// it stops.
    pub fn take(
        &mut self,
        ino: Ino,
        runs: impl IntoIterator<Item = (Range<u64>, Aim)>,
    ) -> Result<Vec<(u64, Extent)>, Stop> {
        let debtor = Debtor::of(self.inodes.loaded(ino)?.inode());
        let mut homes: Vec<(u64, Extent)> = Vec::new();
        let mut aimed: Vec<(Extent, Aim)> = Vec::new();
        for (run, aim) in runs {
            let mut at = run.start;
            while at < run.end {
                match self.take_one(ino, at..run.end, &homes, aim.tier()) {
                    Ok(extent) => {
                        homes.push((at, extent));
                        aimed.push((extent, aim));
                        at += extent.frags / self.geometry.block_frags();
                    }
                    Err(stop) => {
                        self.give_up(&homes);
                        return Err(stop);
                    }
                }
            }
        }
        self.note_fast(debtor, &aimed);
        Ok(homes)
    }

    /// Tells when what should stand on the fast devices begins to go elsewhere, and counts it. Notes what stands there and is to go on.
    fn note_fast(&mut self, debtor: Debtor, homes: &[(Extent, Aim)]) {
        let usage = self.space.usage();
        let is_fast = |home: &&(Extent, Aim)| usage.is_on(Tier::Fast, home.0.start);
        let (there, elsewhere): (Vec<&_>, Vec<&_>) = homes.iter().partition(is_fast);
        let owed = self.space.owed_mut();
        for (extent, aim) in there {
            match aim {
                Aim::On(_) => {}
                Aim::WriteBack => owed.owe(*extent, debtor),
                Aim::Back => owed.owe_again(*extent, debtor),
            }
        }
        let spilled = elsewhere.iter().filter(|(_, aim)| aim.tier() == Tier::Fast);
        let frags = spilled.map(|(extent, _)| extent.frags).sum();
        if self.writeback.spilled.note(frags) {
            tracing::warn!(
                "the fast devices have no room for large files that should stand there: they go to the others"
            );
        }
    }

    /// Takes space for the first of some blocks, and for those behind it that there is room for.
    fn take_one(
        &mut self,
        ino: Ino,
        blocks: Range<u64>,
        homes: &[(u64, Extent)],
        tier: Tier,
    ) -> Result<Extent, Stop> {
        let block_frags = self.geometry.block_frags();
        let want = (blocks.end - blocks.start).min(HOME_FRAGS_MAX / block_frags);
        let (goal, anchor) = self.goal(ino, blocks.start, homes)?;
        let found = self.space.placement().find_data(want, goal, anchor, tier);
        let extent = match found {
            FoundSpace::Run(extent) => extent,
            FoundSpace::Load(groups) => return Err(Stop::Load(groups)),
            FoundSpace::Full => return Err(Stop::Full),
        };
        let extent = Extent::new(extent.start, extent.frags.min(want * block_frags));
        self.space.allocate_unshown(extent)?;
        Ok(extent)
    }

    /// Where the home of a block would best be: behind the home of the one before it.
    fn goal(
        &mut self,
        ino: Ino,
        block: u64,
        homes: &[(u64, Extent)],
    ) -> Result<(FragAddr, GroupNo), Stop> {
        let inode = self.inodes.loaded(ino)?.inode();
        if let Some((_, extent)) = homes.last() {
            return Ok((extent.end(), inode.anchor));
        }
        let before = match block.checked_sub(1) {
            Some(before) => {
                extents::overlapping(inode, self.blocks, self.geometry, before, before + 1)?
            }
            None => Vec::new(),
        };
        let end = before.last().map(|e| e.pointer.extent().end());
        Ok((end.unwrap_or(FragAddr(0)), inode.anchor))
    }

    /// Gives homes back that nobody took.
    pub fn give_up(&mut self, homes: &[(u64, Extent)]) {
        let extents: Vec<Extent> = homes.iter().map(|(_, extent)| *extent).collect();
        self.release(&extents);
    }

    /// Gives homes back that nothing ever showed.
    fn release(&mut self, homes: &[Extent]) {
        for home in homes {
            if let Err(error) = self.space.abandon(*home) {
                tracing::error!(%error, ?home, "cannot give a home back");
            }
        }
    }

    /// The next segment says that these blocks have this home.
    pub fn show(&mut self, ino: Ino, block: u64, extent: Extent) -> Result<(), Stop> {
        let inode = self.inodes.prepared(ino)?.inode();
        let (generation, version) = (inode.generation, inode.version);
        let id = Identity {
            kind: BlockKind::Homed,
            level: 0,
            ino,
            generation,
            logical: block,
        };
        let shown = Allocation::range(extent, &id, version);
        self.space.show(extent, Owner::from(&shown))?;
        self.pending.say(Record::Allocate(shown));
        Ok(())
    }

    /// Makes a prepared change of a file's extents, and counts what of them was never written.
    pub fn change(&mut self, ino: Ino, change: &extents::ExtentChange) -> Result<(), Stop> {
        let inode = self.inodes.prepared(ino)?.inode_mut();
        extents::apply(inode, self.blocks, change)?;
        let (before, after) = change.unwritten();
        if before != after {
            let now = |all: u64, before: u64, after: u64| (all + after).saturating_sub(before);
            let all = self.inodes.totals().unwritten;
            self.count_unwritten(Unwritten {
                extents: now(all.extents, before.extents, after.extents),
                frags: now(all.frags, before.frags, after.frags),
            });
        }
        Ok(())
    }

    /// So much was never written; what its checksums will take is kept free.
    pub fn count_unwritten(&mut self, count: Unwritten) {
        self.inodes.totals_mut().unwritten = count;
        let sizes = Sizes::new(self.geometry, self.law, count, self.space.is_all_log());
        self.space
            .placement()
            .keep_for_log(sizes.groups_kept_from_data());
    }

    /// Moves the content of a small file among the units of a large one (H8). What segments show of it stays until
    /// those are at home.
    pub fn leave_small(&mut self, ino: Ino, content: &[u8]) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        self.pending.drop_content(node.take_small().as_deref());
        let units = 0..(content.len() as u64).div_ceil(UNIT);
        let units = units.map(|unit| (unit, unit_of(content, unit))).collect();
        node.change_homed(self.writeback, |homed| {
            homed.put(units, |unit| (Some(unit * UNIT), false), per_block);
        });
        Ok(())
    }

    /// Takes in new contents of whole units of a large file, which is `size` bytes long with them. Some have a home that
    /// is `reserved`.
    pub fn put(
        &mut self,
        ino: Ino,
        units: BTreeMap<u64, UnitBytes>,
        size: u64,
        reserved: &BTreeSet<u64>,
    ) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        let old = std::mem::replace(&mut node.inode_mut().size, size);
        let stream = self.writeback.stream;
        let streams = node.change_homed(self.writeback, |homed| {
            let what = |unit: u64| {
                let hides = size > old && (unit + 1) * UNIT > old;
                let hides = hides.then(|| old.max(unit * UNIT));
                (hides, reserved.contains(&unit))
            };
            homed.put(units, what, per_block);
            homed.take_stream(stream)
        });
        if streams {
            self.writeback.streams.insert(ino);
        }
        Ok(())
    }

    /// The writes of a batch are over and, if they succeeded, flushed: what was `written` has these checksums. Returns
    /// whether the file has something to show.
    pub(super) fn landed(&mut self, ino: Ino, id: u64, written: Option<Crcs>) -> bool {
        self.writeback.arrived(id, written.is_some());
        if let Some(homes) = self.writeback.abandoned.remove(&id) {
            self.release(&homes);
            return false;
        }
        let Some(node) = self.inodes.get_mut(ino) else {
            return false;
        };
        let per_block = self.geometry.block_units();
        node.change_homed(self.writeback, |homed| homed.land(id, written, per_block))
    }

    /// Keeps the last unit of a file that does not end with it: the next append completes it, and would read it back.
    pub(super) fn keep_tail(&mut self, ino: Ino, batch: &Batch) {
        let Some(node) = self.inodes.get(ino) else {
            return;
        };
        let unit = node.inode().size / UNIT;
        let (unit_frags, per_block) = (self.geometry.unit_frags(), self.geometry.block_units());
        let home = batch.homes.iter().find_map(|(block, extent)| {
            let frags = unit.checked_sub(block * per_block)? * unit_frags;
            (frags < extent.frags).then(|| extent.start.checked_add(frags))?
        });
        let crc = batch.crcs.iter().find(|(of, _)| *of == unit);
        if let (Some(addr), Some((_, crc)), Some(tail)) = (home, crc, batch.units.get(&unit))
            && unit_crc(&tail.bytes) == *crc
        {
            self.blocks
                .keep(addr, (*crc).into(), Arc::clone(&tail.bytes));
        }
    }

    /// A new home that was overtaken is never shown (rule 7); its data wait again.
    pub fn abandon(&mut self, ino: Ino) {
        let Some(node) = self.inodes.get_mut(ino) else {
            return;
        };
        let per_block = self.geometry.block_units();
        let batch = node.change_homed(self.writeback, |homed| homed.give_up_batch(per_block));
        let Some(batch) = batch else {
            return;
        };
        let homes: Vec<Extent> = batch.homes.iter().map(|(_, home)| *home).collect();
        if self.law.gives_back(batch.landed) {
            self.release(&homes);
        } else {
            self.writeback.abandoned.insert(batch.id, homes);
        }
    }

    /// Drops data of a large file that waits for its home, or is on its way there.
    pub fn drop_units(&mut self, ino: Ino, units: Range<u64>) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        if node.homed().flies_over(units.clone()) {
            self.abandon(ino);
        }
        let node = self.inodes.prepared(ino)?;
        let drop = |homed: &mut Homed| homed.drop_units(units, per_block);
        node.change_homed(self.writeback, drop);
        Ok(())
    }

    /// Drops all data of a large file that wait.
    pub fn forget(&mut self, ino: Ino) -> Result<(), Stop> {
        self.abandon(ino);
        let node = self.inodes.prepared(ino)?;
        node.change_homed(self.writeback, Homed::clear);
        Ok(())
    }
}
