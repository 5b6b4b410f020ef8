//! Showing new homes: data that landed become what segments say of a file (rules 3 and 7).

use super::homed::{Batch, Homed, UNIT};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::extents::{self, CrcChange};
use loamfs_format::inode::{Body, FileExtent};
use loamfs_format::maps::unit_crc;
use loamfs_format::summary::Record;
use loamfs_format::{Extent, Ino, Pointer};
use std::sync::Arc;

impl Core {
    /// The writes of a batch are over and, if they succeeded, flushed. Returns whether the file has something to show.
    pub fn home_written(&mut self, ino: Ino, id: u64, written: bool) -> bool {
        self.writeback.arrived(id, written);
        if let Some(homes) = self.writeback.abandoned.remove(&id) {
            self.release_unshown(&homes);
            return false;
        }
        let Some(node) = self.inodes.nodes.get_mut(&ino) else {
            return false;
        };
        let per_block = self.geometry.block_units();
        node.change_homed(&mut self.writeback, |homed| {
            let Some(batch) = homed.batch.as_mut().filter(|batch| batch.id == id) else {
                return false;
            };
            batch.landed = true;
            if !written {
                // The homes that failed stay taken until the next mount, so that the next try goes elsewhere (rule 12).
                homed.give_up_batch(per_block);
            }
            written
        })
    }

    /// Lets the next segment show a file's new homes; they replace the old ones, which it frees.
    pub fn show(&mut self, ino: Ino) -> Result<(), Stop> {
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return Ok(());
        };
        if !node
            .homed()
            .batch
            .as_ref()
            .is_some_and(|batch| batch.landed)
        {
            return Ok(());
        }
        self.prepare_dirty(ino)?;
        let geometry = self.geometry;
        let node = self.inodes.prepared(ino)?;
        let Some(batch) = node.homed().batch.as_ref() else {
            return Ok(());
        };
        let fresh: Vec<FileExtent> = batch
            .homes
            .iter()
            .map(|(block, extent)| FileExtent {
                block: *block,
                pointer: Pointer {
                    addr: extent.start,
                    frags: extent.frags as u32,
                    birth: self.log.tail().ssn.next(),
                    unwritten: batch.leaves_unwritten(*block, *extent, &geometry),
                    ..Pointer::NONE
                },
            })
            .collect();
        let units: Vec<u64> = batch.crcs.iter().map(|(unit, _)| *unit).collect();
        let runs = extents::runs(&fresh, &geometry);
        let mut change = extents::prepare(&node.inode, &mut self.blocks, &geometry, &runs, &fresh)?;
        let crcs =
            extents::prepare_crcs(&node.inode, &mut self.blocks, batch.crcs.iter().copied())?;
        if fresh.is_empty() {
            change = self.written_extents(ino, &units, &crcs)?;
        }
        self.apply(|core| core.apply_show(ino, &runs, &fresh, change, &crcs))
    }

    /// What [`Core::show`] prepared: the blocks `runs` have the homes `fresh`.
    fn apply_show(
        &mut self,
        ino: Ino,
        runs: &[(u64, u64)],
        fresh: &[FileExtent],
        change: extents::Change,
        crcs: &CrcChange,
    ) -> Result<(), Stop> {
        let per_block = self.geometry.block_units();
        let node = self.inodes.prepared(ino)?;
        let batch = node.change_homed(&mut self.writeback, |homed| {
            for (from, to) in runs {
                homed.drop_images(from * per_block, to * per_block);
            }
            homed.take_batch()
        });
        let batch = batch.ok_or(Error::Broken(
            "new homes vanished while they were to be shown",
        ))?;
        let small = match node.inode.body {
            Body::Small(pointer) => Some(pointer),
            _ => None,
        };
        if matches!(node.inode.body, Body::Small(_) | Body::Inline(_)) {
            node.inode.body = Body::Empty;
            node.inode.frags = 0;
        }
        // What was written since the batch was gathered hides nothing of it.
        node.shown_size = node.shown_size.max(batch.shown).min(node.inode.size);
        self.change_extents(ino, &change)?;
        let node = self.inodes.prepared(ino)?;
        node.inode.frags += fresh
            .iter()
            .map(|e| u64::from(e.pointer.frags))
            .sum::<u64>();
        let freed = change.freed;
        extents::apply_crcs(&mut node.inode, &mut self.blocks, crcs)?;
        node.inode.frags -= freed
            .iter()
            .map(|e| e.frags)
            .sum::<u64>()
            .min(node.inode.frags);
        self.keep_tail(ino, &batch);
        for (block, extent) in &batch.homes {
            self.show_home(ino, *block, *extent)?;
        }
        if self.env.law.frees_old_home() {
            freed.into_iter().for_each(|home| self.freeing().home(home));
        }
        if let Some(pointer) = small {
            self.freeing().block(&pointer);
        }
        self.touch(ino)
    }

    /// Extents of which the last unwritten unit is among those that are about to be shown are like any others then.
    fn written_extents(
        &mut self,
        ino: Ino,
        units: &[u64],
        crcs: &CrcChange,
    ) -> Result<extents::Change, Stop> {
        let (geometry, per_block) = (self.geometry, self.geometry.block_units());
        let (Some(first), Some(last)) = (units.first(), units.last()) else {
            return Ok(extents::Change::default());
        };
        let (from, to) = (first / per_block, last / per_block + 1);
        let inode = &self.inodes.prepared(ino)?.inode;
        let found = extents::overlapping(inode, &mut self.blocks, &geometry, from, to)?;
        let mut change = extents::Change::default();
        for extent in found.iter().filter(|extent| extent.pointer.unwritten) {
            let end = (extent.block + extents::blocks_of(extent, &geometry)) * per_block;
            let next = units.partition_point(|unit| *unit < extent.block * per_block);
            let touched = units.get(next).is_some_and(|unit| *unit < end);
            if touched && self.reading().is_written(ino, extent, crcs)? {
                let inode = &self.inodes.prepared(ino)?.inode;
                change.and(extents::prepare_written(inode, &mut self.blocks, *extent)?);
            }
        }
        Ok(change)
    }

    /// Keeps the last unit of a file that does not end with it: the next append completes it, and would read it back.
    fn keep_tail(&mut self, ino: Ino, batch: &Batch) {
        let Some(node) = self.inodes.nodes.get(&ino) else {
            return;
        };
        let unit = node.inode.size / UNIT;
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

    /// The next segment says that these blocks have this home.
    pub fn show_home(&mut self, ino: Ino, block: u64, extent: Extent) -> Result<(), Stop> {
        let owner = loamfs_space::Owner {
            kind: loamfs_format::BlockKind::Homed,
            level: 0,
            ino,
            logical: block,
        };
        self.space.show(extent, owner)?;
        let (generation, version) = self
            .inodes
            .nodes
            .get(&ino)
            .map_or((0, 0), |node| (node.inode.generation, node.inode.version));
        self.pending
            .say(Record::Allocate(loamfs_format::summary::Allocation {
                extent,
                kind: loamfs_format::BlockKind::Homed,
                level: 0,
                ino,
                generation,
                version,
                logical: block,
                stored: 0,
                checksum: 0,
                in_body: false,
            }));
        Ok(())
    }

    /// A new home that was overtaken is never shown (rule 7); its data wait again.
    pub fn abandon_batch(&mut self, ino: Ino) {
        let Some(node) = self.inodes.nodes.get_mut(&ino) else {
            return;
        };
        let per_block = self.geometry.block_units();
        let batch = node.change_homed(&mut self.writeback, |homed| homed.give_up_batch(per_block));
        let Some(batch) = batch else {
            return;
        };
        let homes: Vec<Extent> = batch.homes.iter().map(|(_, home)| *home).collect();
        if self.env.law.gives_back(batch.landed) {
            self.release_unshown(&homes);
        } else {
            self.writeback.abandoned.insert(batch.id, homes);
        }
    }

    /// Drops all data of a large file that wait.
    pub fn forget_homed(&mut self, ino: Ino) -> Result<(), Stop> {
        self.abandon_batch(ino);
        let node = self.inodes.prepared(ino)?;
        node.change_homed(&mut self.writeback, Homed::clear);
        Ok(())
    }

    /// Gives homes back that nothing ever showed.
    pub fn release_unshown(&mut self, homes: &[Extent]) {
        for home in homes {
            if let Err(error) = self.space.abandon(*home) {
                tracing::error!(%error, ?home, "cannot give a home back");
            }
        }
    }
}
