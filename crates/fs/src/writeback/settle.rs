//! Settling: images are written to their homes (rule 7).

use super::Writeback;
use super::homed::{UNIT, UnitBytes};
use crate::blocks::{Blocks, Missed, Stop, What};
use crate::core::Core;
use crate::error::Error;
use crate::extents::{self, CrcChange};
use crate::law::{Law, Rules};
use crate::maps::Maps;
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::volume::Engine;
use loamfs_device::{IoKind, Write};
use loamfs_format::maps::LazyEntry;
use loamfs_format::summary::Record;
use loamfs_format::{Extent, FragAddr, Geometry, Ino, Pointer};
use loamfs_log::writer::LogWriter;

/// Images to be written to their homes.
#[derive(Debug, Default)]
pub(crate) struct SettleWrite {
    /// In the order of homes.
    pub units: Vec<ImageUnit>,
}

/// A home, its image, and what that holds.
type ImageUnit = (FragAddr, FragAddr, UnitBytes);

/// What is looked at, and noted, while images are on their way home.
pub(crate) struct Settling<'c> {
    geometry: &'c Geometry,
    law: &'c Law<dyn Rules>,
    log: &'c LogWriter,
    maps: &'c Maps,
    blocks: &'c mut Blocks,
    writeback: &'c mut Writeback,
}

impl Settling<'_> {
    /// Images that may go home now: durable ones whose homes nobody is writing, at most `max`, in the order of their homes.
    pub fn due(&self, max: usize) -> Vec<(FragAddr, LazyEntry)> {
        let durable = self.log.durable();
        let due = |(home, entry): &(&FragAddr, &LazyEntry)| {
            self.law
                .may_settle(entry.ssn, durable, self.writeback.settling.contains(home))
                && !self.writeback.unsettled.contains(home)
        };
        let all = self.maps.lazy_map().iter().filter(due);
        all.take(max).map(|(home, entry)| (*home, *entry)).collect()
    }

    /// Reads images that are then on their way home until [`Settling::end`]; those that were overtaken meanwhile are
    /// left out.
    pub fn start(&mut self, images: &[(FragAddr, LazyEntry)]) -> Result<Vec<ImageUnit>, Stop> {
        let (mut units, mut missed) = (Vec::new(), Missed::default());
        for (home, entry) in images {
            if self.maps.lazy_map().get(home) != Some(entry) {
                continue;
            }
            let pointer = Pointer {
                addr: entry.image,
                frags: self.geometry.unit_frags() as u32,
                stored: UNIT as u32,
                checksum: entry.crc.into(),
                ..Pointer::NONE
            };
            let (ino, unit) = (entry.ino, entry.unit);
            let found = self.blocks.bytes(&pointer, What::Unit { ino, unit });
            if let Some(bytes) = missed.note(found)? {
                units.push((*home, entry.image, bytes));
            }
        }
        missed.nothing()?;
        let homes = units.iter().map(|(home, ..)| *home);
        self.writeback.settling.extend(homes);
        Ok(units)
    }

    /// The writes of images to their homes are over.
    pub fn end(&mut self, due: &SettleWrite) {
        for (home, ..) in &due.units {
            self.writeback.settling.remove(home);
        }
    }
}

impl Core {
    /// What settling looks at.
    pub fn settling(&mut self) -> Settling<'_> {
        Settling {
            geometry: &self.geometry,
            law: &self.env.law,
            log: &self.log,
            maps: &self.maps,
            blocks: &mut self.blocks,
            writeback: &mut self.writeback,
        }
    }
}

/// An image has reached its home for good: the next segment says so, frees it, and carries the home's checksum.
struct Settle {
    home: FragAddr,
    image: FragAddr,
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
        let (home, image) = (self.home, self.image);
        let entry = core.maps.lazy_map().get(&home).copied();
        let settles = |entry: &LazyEntry| core.env.law.settles(entry.image == image);
        let Some(entry) = entry.filter(settles) else {
            return Ok(Plan::Done(()));
        };
        let ino = entry.ino;
        core.prepare_dirty(ino)?;
        let inode = &core.inodes.prepared(ino)?.inode;
        let crcs = extents::prepare_crcs(inode, &mut core.blocks, [(entry.unit, entry.crc)])?;
        Ok(Plan::Change(Settled {
            ino,
            home,
            image,
            crcs,
        }))
    }
}

impl Change for Settled {
    type Done = ();

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let (ino, home, image) = (self.ino, self.home, self.image);
        let inode = &mut core.inodes.prepared(ino)?.inode;
        extents::apply_crcs(inode, &mut core.blocks, &self.crcs)?;
        core.maps.lazy_map_mut().remove(home);
        core.pending.say(Record::Settled { home, image });
        core.blocks.move_content(image, home);
        let image = Extent::new(image, core.geometry.unit_frags());
        core.freeing().run(image);
        Ok(core.touch(ino)?)
    }
}

impl Engine {
    /// As [`Volume::settle`](crate::Volume::settle).
    pub(crate) fn settle(&self, max: usize) -> Result<(), Error> {
        let _homes = self.homes_shared();
        if !self.core().access.is_writable() {
            return Ok(());
        }
        Settler(self).settle(max)
    }
}

/// Whoever settles. Homes are shared, and the volume takes changes.
struct Settler<'v>(&'v Engine);

impl Settler<'_> {
    fn settle(&self, max: usize) -> Result<(), Error> {
        let due = self.start(max);
        if due.units.is_empty() {
            return Ok(());
        }
        let result = self.write(&due);
        self.0.core().settling().end(&due);
        result
    }

    /// Writes images to their homes, flushes, and lets the next segment say so.
    fn write(&self, due: &SettleWrite) -> Result<(), Error> {
        let geometry = self.0.core().geometry;
        let requests: Vec<Write<'_>> = due
            .units
            .iter()
            .map(|(home, _, bytes)| Write::new(geometry.byte_offset(*home), bytes, IoKind::Settle))
            .collect();
        let results = self.0.device().write(&requests);
        self.0.flush_device()?;
        for ((home, image, _), result) in due.units.iter().zip(results) {
            let result = match result {
                Err(error) => Err(error.into()),
                Ok(()) => {
                    let (home, image) = (*home, *image);
                    self.0.step(|core| core.perform(&Settle { home, image }))
                }
            };
            if let Err(error) = result {
                self.leave(*home, &error);
            }
        }
        Ok(())
    }

    /// Reads up to `max` images that may settle, past those that cannot be read.
    fn start(&self, max: usize) -> SettleWrite {
        let images = self.0.core().settling().due(max);
        let mut due = SettleWrite::default();
        // All at once; one at a time if that fails, to find out which are damaged.
        match self.0.step(|core| core.settling().start(&images)) {
            Ok(mut units) => due.units.append(&mut units),
            Err(_) => {
                for image in images {
                    match self.0.step(|core| core.settling().start(&[image])) {
                        Ok(mut units) => due.units.append(&mut units),
                        Err(error) => self.leave(image.0, &error),
                    }
                }
            }
        }
        due
    }

    fn leave(&self, home: FragAddr, error: &Error) {
        tracing::error!(%error, home = home.0, "cannot settle an image; it stays where it is");
        self.0.core().writeback.unsettled.insert(home);
    }
}
