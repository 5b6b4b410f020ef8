//! Settling, the lazy write-back: images are written from the log to their homes (Z3, Z4; rule 7).

use super::Writeback;
use crate::blocks::{Blocks, Missed, Stop, What};
use crate::checkpoints::Checkpoints;
use crate::core::Core;
use crate::error::Error;
use crate::extents::{self, CrcChange};
use crate::law::{Law, Rules};
use crate::maps::{Image, Maps};
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::patience;
use crate::region::Region;
use crate::unit::{UNIT, UnitBytes};
use crate::volume::Engine;
use loamfs_device::{IoKind, Write};
use loamfs_format::maps::LazyEntry;
use loamfs_format::summary::Record;
use loamfs_format::{Extent, FragAddr, Geometry, Ino, Pointer, Ssn};
use loamfs_log::writer::LogWriter;
use std::ops::Deref;

/// Images that are read together: what lies between them may be read along.
const READ_TOGETHER: usize = 256;
/// Images that are written before a flush while others flush, too: 4 MiB. No more of one sweep is in the device's way then.
const FLUSHED_TOGETHER: usize = (4 << 20) / UNIT as usize;
/// The same while nobody else does: each flush costs a disk a turn. Who wants `homes` alone waits for no more.
const FLUSHED_ALONE: usize = (16 << 20) / UNIT as usize;

/// A home, its image, and what that holds.
type ImageUnit = (FragAddr, LazyEntry, UnitBytes);

/// What is looked at, and noted, while images are on their way home.
pub(crate) struct Settling<'c> {
    geometry: &'c Geometry,
    law: &'c Law<dyn Rules>,
    log: &'c LogWriter,
    checkpoints: &'c Checkpoints,
    maps: &'c Maps,
    blocks: &'c mut Blocks,
    writeback: &'c mut Writeback,
}

impl Settling<'_> {
    /// Images that may go home now, at most `max`, in the order of their homes.
    fn due(&self, max: usize) -> Vec<Image> {
        let all = self.maps.lazy_map().iter();
        let all = all.map(|(home, entry)| (*home, *entry));
        all.filter(|image| self.may_settle(image))
            .take(max)
            .collect()
    }

    /// Those of some regions, one region after the other.
    fn due_in(&self, regions: &[Region], max: usize) -> Vec<Image> {
        let map = self.maps.lazy_map();
        let all = regions.iter().flat_map(|region| map.of_region(*region));
        let mut due: Vec<Image> = all
            .filter(|image| self.may_settle(image))
            .take(max)
            .collect();
        due.sort_unstable_by_key(|(home, _)| *home);
        due
    }

    fn may_settle(&self, image: &Image) -> bool {
        let copied = self.checkpoints.copied();
        let durable = self.law.settles_up_to(self.log.durable(), copied);
        self.writeback.may_settle(self.law, durable, image)
    }

    /// Reads images that are then on their way home until [`Settling::end`]; those that were overtaken meanwhile are
    /// left out, and those that somebody else has on their way by now.
    fn start(&mut self, images: &[Image]) -> Result<Vec<ImageUnit>, Stop> {
        let images = images.iter().copied();
        let images: Vec<Image> = images.filter(|image| self.may_settle(image)).collect();
        let units = self.read(&images)?;
        let homes = units.iter().map(|(home, ..)| *home);
        self.writeback.settling.extend(homes);
        Ok(units)
    }

    /// Reads images; those that were overtaken are left out.
    fn read(&mut self, images: &[Image]) -> Result<Vec<ImageUnit>, Stop> {
        let (mut units, mut missed) = (Vec::new(), Missed::default());
        for (home, entry) in images {
            if self.maps.lazy_map().get(home) != Some(entry) {
                continue;
            }
            let pointer = Pointer {
                addr: entry.image,
                frags: self.geometry.unit_frags() as u32,
                stored: UNIT as u32,
                birth: entry.ssn,
                checksum: entry.crc.into(),
                ..Pointer::NONE
            };
            let (ino, unit) = (entry.ino, entry.unit);
            let found = self.blocks.bytes(&pointer, What::Unit { ino, unit });
            if let Some(bytes) = missed.note(found)? {
                units.push((*home, *entry, bytes));
            }
        }
        missed.nothing()?;
        Ok(units)
    }

    /// Images that are written before a flush, in a sweep that began when this segment was durable.
    fn flushed_together(&self, begun: Ssn) -> usize {
        match self.log.durable() == begun {
            true => FLUSHED_ALONE,
            false => FLUSHED_TOGETHER,
        }
    }

    /// The writes of images to their homes are over.
    fn end(&mut self, units: &[ImageUnit]) {
        for (home, ..) in units {
            self.writeback.settling.remove(home);
        }
    }
}

impl Core {
    /// What settling looks at.
    pub fn settling(&mut self) -> Settling<'_> {
        Settling {
            geometry: &self.geometry,
            law: self.env.law(),
            log: &self.log,
            checkpoints: &self.checkpoints,
            maps: &self.maps,
            blocks: &mut self.blocks,
            writeback: &mut self.writeback,
        }
    }
}

/// An image has reached its home for good: the next segment says so, frees it, and carries the home's checksum.
struct Settle {
    home: FragAddr,
    /// As it was read: another one may stand in its place by now.
    image: LazyEntry,
}

/// [`Settle`], prepared.
struct Settled {
    ino: Ino,
    home: FragAddr,
    image: FragAddr,
    crcs: CrcChange,
}

impl Operation for Settle {
    type Change = Settled;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Settled>, Stop> {
        let (home, image) = (self.home, self.image.image);
        let entry = core.maps.lazy_map().get(&home).copied();
        let settles = |entry: &LazyEntry| core.env.law().settles(*entry == self.image);
        let Some(entry) = entry.filter(settles) else {
            return Ok(Plan::Done(false));
        };
        let ino = entry.ino;
        core.prepare_dirty(ino)?;
        let inode = core.inodes.prepared(ino)?.inode();
        let (short, unit) = (core.sb.has_short_checksums(), (entry.unit, entry.crc));
        let crcs = extents::prepare_crcs(inode, &mut core.blocks, short, [unit])?;
        Ok(Plan::Change(Settled {
            ino,
            home,
            image,
            crcs,
        }))
    }
}

impl Change for Settled {
    /// Whether it was still the newest.
    type Done = bool;

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<bool, Broken> {
        let (ino, home, image) = (self.ino, self.home, self.image);
        let inode = core.inodes.prepared(ino)?.inode_mut();
        extents::apply_crcs(inode, &mut core.blocks, &self.crcs)?;
        core.maps.lazy_map_mut().remove(home);
        core.pending.say(Record::Settled { home, image });
        core.blocks.move_content(image, home);
        let image = Extent::new(image, core.geometry.unit_frags());
        core.freeing().run(image);
        core.touch(ino)?;
        Ok(true)
    }
}

/// Brings images home, of its own accord or for others: a view of the engine, as [`Sealer`](crate::volume::Sealer) is. It holds no lock.
pub(crate) struct Sweeper<'e> {
    engine: &'e Engine,
}

impl Deref for Sweeper<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl Engine {
    /// Who brings images home.
    pub(crate) fn sweeper(&self) -> Sweeper<'_> {
        Sweeper { engine: self }
    }
}

impl Sweeper<'_> {
    /// As [`Upkeep::settle`](crate::Upkeep::settle).
    pub(crate) fn settle(&self, max: usize) -> Result<(), Error> {
        let settled = self.settle_chosen(max, |settling, max| settling.due(max));
        settled.map(|_| ())
    }

    /// Settles up to `max` images of some regions. Returns how many it was.
    pub(crate) fn settle_regions(&self, regions: &[Region], max: usize) -> Result<usize, Error> {
        self.settle_chosen(max, |settling, max| settling.due_in(regions, max))
    }

    /// Settles up to `max` of those images that `choose` names, as many at a time as there is memory for, as long as any of
    /// them can be settled. Returns how many were.
    fn settle_chosen(
        &self,
        max: usize,
        choose: impl Fn(&Settling<'_>, usize) -> Vec<Image>,
    ) -> Result<usize, Error> {
        patience::wait()?;
        let mut settled = 0;
        // Those that others make meanwhile are none of its business.
        let mut left = max.min(self.core().maps.lazy_map().len());
        while left > 0 && self.core().access.is_writable() {
            let most = left.min(self.settle_buffer());
            let images = choose(&self.core().settling(), most);
            if images.is_empty() {
                break;
            }
            left = left.saturating_sub(images.len());
            let count = self.sweep(images)?;
            if count == 0 {
                tracing::warn!("none of the images that were chosen could be settled");
                break;
            }
            settled += count;
        }
        Ok(settled)
    }

    /// Settles regions before somebody reads them. A volume that is not written has their images in memory then.
    pub(crate) fn settle_for_reader(&self, regions: &[Region]) -> Result<(), Error> {
        patience::wait()?;
        if !self.core().access.is_writable() {
            self.read_images(regions);
            return Ok(());
        }
        // What somebody else settles just now is read meanwhile where it is.
        let Some(_turn) = self.may_settle() else {
            return Ok(());
        };
        // Whoever reads is told what cannot be read, and nothing else.
        if let Err(error) = self.settle_regions(regions, usize::MAX) {
            tracing::warn!(%error, "images stay in the log");
        }
        Ok(())
    }

    /// Brings the images of regions into memory, in the order of the log, if they have room there.
    fn read_images(&self, regions: &[Region]) {
        let most = self.settle_buffer();
        let mut images: Vec<Image> = Vec::new();
        for region in regions {
            let core = self.core();
            let more = core.maps.lazy_map().of_region(*region);
            let more: Vec<Image> = more.take(most + 1).collect();
            if images.len() + more.len() > most {
                break;
            }
            images.extend(more);
        }
        images.sort_unstable_by_key(|(_, entry)| entry.image);
        for images in images.chunks(READ_TOGETHER) {
            // Whoever reads it is told what cannot be read.
            let _ = self.step(|core| core.settling().read(images));
        }
    }

    /// Images that are in memory together on their way home, at most.
    pub(crate) fn settle_buffer(&self) -> usize {
        (self.sweep_bytes() / UNIT).max(1) as usize
    }

    /// One sweep: images are read in the order of the log, and written in that of their homes. Returns how many settled.
    fn sweep(&self, mut images: Vec<Image>) -> Result<usize, Error> {
        let begun = self.core().log.durable();
        images.sort_unstable_by_key(|(_, entry)| entry.image);
        let mut units = Vec::with_capacity(images.len());
        for images in images.chunks(READ_TOGETHER) {
            units.append(&mut self.start(images));
        }
        units.sort_unstable_by_key(|(home, ..)| *home);
        let (mut rest, mut result) = (units.as_slice(), Ok(0));
        while !rest.is_empty() {
            let together = self.core().settling().flushed_together(begun);
            let (units, others) = rest.split_at(together.min(rest.len()));
            rest = others;
            if let Ok(settled) = result {
                result = self.write(units).map(|more| settled + more);
            }
            self.core().settling().end(units);
            if result.is_ok()
                && let Err(error) = self.seal_if_full(None)
            {
                result = Err(error);
            }
        }
        result
    }

    /// Writes images to their homes, flushes, and lets the next segment say so. Returns how many settled.
    fn write(&self, units: &[ImageUnit]) -> Result<usize, Error> {
        // Who lets nobody write homes waits for this part only, and may have ended all changes.
        let _homes = self.homes_shared();
        let geometry = {
            let core = self.core();
            if !core.access.is_writable() {
                return Ok(0);
            }
            core.geometry
        };
        let requests: Vec<Write<'_>> = units
            .iter()
            .map(|(home, _, bytes)| Write::new(geometry.byte_offset(*home), bytes, IoKind::Settle))
            .collect();
        let results = self.device().write(&requests);
        self.flush_device()?;
        // What was read there before the images were made may be hot still, and have the same checksum.
        let frags = geometry.unit_frags();
        let homes = units.iter().map(|(home, ..)| Extent::new(*home, frags));
        self.forget_tenants(&Vec::from_iter(homes));
        let mut settled = 0;
        for ((home, image, _), result) in units.iter().zip(results) {
            let result = match result {
                Err(error) => Err(error.into()),
                Ok(()) => {
                    let (home, image) = (*home, *image);
                    self.step(|core| core.perform(&Settle { home, image }))
                }
            };
            match result {
                Ok(newest) => settled += usize::from(newest),
                Err(error) => self.leave(*home, &error),
            }
        }
        Ok(settled)
    }

    /// Reads images, past those that cannot be read.
    fn start(&self, images: &[Image]) -> Vec<ImageUnit> {
        // All at once; one at a time if that fails, to find out which are damaged.
        if let Ok(units) = self.step(|core| core.settling().start(images)) {
            return units;
        }
        let mut units = Vec::new();
        for image in images {
            let image = std::slice::from_ref(image);
            match self.step(|core| core.settling().start(image)) {
                Ok(mut read) => units.append(&mut read),
                Err(error) => image.iter().for_each(|(home, _)| self.leave(*home, &error)),
            }
        }
        units
    }

    /// An image stays where it is; until the next mount, unless that may pass.
    fn leave(&self, home: FragAddr, error: &Error) {
        if error.is_passing() {
            tracing::debug!(%error, home = home.0, "cannot settle an image just now");
            return;
        }
        tracing::error!(%error, home = home.0, "cannot settle an image; it stays where it is");
        self.core().writeback.unsettled.insert(home);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::OpenOptions;
    use crate::fixture::{file, volume};

    /// Each flush costs a disk a turn, for nobody. Whoever flushes too has no more of a sweep in his way than before.
    #[test]
    fn a_sweep_flushes_seldom_until_somebody_else_does() {
        let volume = volume(128 << 20, &OpenOptions::default());
        let ino = file(&volume, b"large");
        let write = |at: u64, byte| volume.write(ino, at << 20, &[byte; 1 << 20]).unwrap();
        for at in 0..8 {
            write(at, 1);
        }
        volume.sync().unwrap();
        for at in 0..8 {
            write(at, 2);
            volume.fsync(ino, true).unwrap();
        }
        assert_eq!(volume.info().images * UNIT, 8 << 20);
        let flushes = || volume.info().device.flushes();
        let (before, begun) = (flushes(), volume.core().log.durable());
        volume.upkeep().settle(usize::MAX).unwrap();
        assert_eq!(flushes() - before, 1);
        let together = || volume.core().settling().flushed_together(begun);
        assert_eq!(together(), FLUSHED_ALONE);
        write(0, 3);
        volume.fsync(ino, true).unwrap();
        assert_eq!(together(), FLUSHED_TOGETHER);
    }

    /// The later one would write to homes that are others' by then.
    #[test]
    fn two_sweeps_that_chose_the_same_do_not_both_write_it() {
        let volume = volume(64 << 20, &OpenOptions::default());
        let ino = file(&volume, b"large");
        volume.write(ino, 0, &[1; 1 << 20]).unwrap();
        volume.sync().unwrap();
        volume.write(ino, 0, &[2; 8 << 10]).unwrap();
        volume.fsync(ino, true).unwrap();
        let chosen = [(); 2].map(|()| volume.core().settling().due(usize::MAX));
        let start = |images| volume.run(|core| core.settling().start(images)).unwrap();
        let units = start(&chosen[0]);
        assert_eq!((units.len(), start(&chosen[1]).len()), (2, 0));
        volume.core().settling().end(&units);
        assert_eq!(start(&chosen[1]).len(), 2, "it was given up");
    }

    /// It was taken for a unit at home, which may become hot data.
    #[test]
    fn an_image_that_settles_is_read_as_one() {
        let volume = volume(64 << 20, &OpenOptions::default());
        let ino = file(&volume, b"large");
        for byte in 1..3 {
            volume.write(ino, 0, &[byte; 512 << 10]).unwrap();
            volume.fsync(ino, true).unwrap();
        }
        let mut core = volume.core();
        core.blocks.forget_all();
        let due = core.settling().due(usize::MAX);
        assert!(matches!(core.settling().read(&due), Err(Stop::Missing)));
        let wanted = core.blocks.take_wanted();
        assert!(!wanted.is_empty() && wanted.len() <= due.len());
        assert!(wanted.iter().all(|fetch| fetch.pointer.birth > Ssn(0)));
    }
}
