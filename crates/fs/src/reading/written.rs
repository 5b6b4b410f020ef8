//! What of a file's extents was ever written: the units with a checksum.

use super::Reading;
use crate::blocks::{Missed, Stop};
use crate::extents;
use loamfs_format::checksum::{CRC_UNITS, CrcRun};
use loamfs_format::inode::FileExtent;
use loamfs_format::{FragAddr, Ino};
use std::collections::BTreeMap;
use std::ops::Range;

/// A unit that has a home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Housed {
    pub unit: u64,
    pub home: FragAddr,
    /// Whether it was ever written.
    pub written: bool,
}

/// The checksums of a file, as somebody goes over them.
#[derive(Default)]
pub(crate) struct Runs {
    last: Option<(u64, CrcRun)>,
}

impl Runs {
    /// The checksum of a unit, 0 if it has none.
    pub fn of(&mut self, reading: &mut Reading<'_>, ino: Ino, unit: u64) -> Result<u32, Stop> {
        let key = unit / CRC_UNITS;
        let run = match &self.last {
            Some((of, run)) if *of == key => run,
            _ => {
                let inode = reading.inodes.prepared(ino)?.inode();
                let run = extents::crc_run(inode, reading.blocks, key)?;
                &self.last.insert((key, run)).1
            }
        };
        Ok(run.0[(unit % CRC_UNITS) as usize])
    }
}

impl Reading<'_> {
    /// Those of some units of a file that have a home and were never written, nor are just being written.
    pub fn unwritten(
        &mut self,
        ino: Ino,
        units: Range<u64>,
    ) -> Result<BTreeMap<u64, FragAddr>, Stop> {
        if self.inodes.totals().unwritten.extents == 0 {
            return Ok(BTreeMap::new());
        }
        let (geometry, per_block) = (self.geometry, self.geometry.block_units());
        let (from, to) = (units.start / per_block, units.end.div_ceil(per_block));
        self.node(ino)?;
        let inode = self.inodes.prepared(ino)?.inode();
        let mut found = extents::overlapping(inode, self.blocks, geometry, from, to)?;
        found.retain(|extent| extent.pointer.unwritten);
        let mut housed = self.housed(ino, &found, &units)?;
        let homed = self.inodes.prepared(ino)?.homed();
        housed.retain(|it| self.law.writes_in_place(it.written) && !homed.is_under_way(it.unit));
        Ok(housed.into_iter().map(|it| (it.unit, it.home)).collect())
    }

    /// The units of a file's extents, of those in a range, with their homes. The inode is in memory.
    pub fn housed(
        &mut self,
        ino: Ino,
        found: &[FileExtent],
        range: &Range<u64>,
    ) -> Result<Vec<Housed>, Stop> {
        let geometry = self.geometry;
        let (mut housed, mut missed, mut runs) = (Vec::new(), Missed::default(), Runs::default());
        for extent in found {
            let here = std::slice::from_ref(extent);
            for (unit, home) in extents::units(here, geometry, range.clone()) {
                let written = match extent.pointer.unwritten {
                    true => missed.note(runs.of(self, ino, unit))?.unwrap_or(0) != 0,
                    false => true,
                };
                housed.push(Housed {
                    unit,
                    home,
                    written,
                });
            }
        }
        missed.nothing()?;
        Ok(housed)
    }

    /// Whether all units of an extent were written, of which `change` is about to be shown.
    pub fn is_written(
        &mut self,
        ino: Ino,
        extent: &FileExtent,
        change: &extents::CrcChange,
    ) -> Result<bool, Stop> {
        let per_block = self.geometry.block_units();
        let units = extent.block * per_block
            ..(extent.block + extents::blocks_of(extent, self.geometry)) * per_block;
        let mut runs = Runs::default();
        // From the end: files are mostly written forwards.
        for unit in units.rev() {
            let crc = match change.of(unit) {
                Some(crc) => crc,
                None => runs.of(self, ino, unit)?,
            };
            if crc == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first unit with a checksum in a range.
    pub fn first_written(&mut self, ino: Ino, units: Range<u64>) -> Result<Option<u64>, Stop> {
        let mut at = units.start;
        while at < units.end {
            let inode = self.inodes.prepared(ino)?.inode();
            let Some(key) = extents::next_run(inode, self.blocks, at / CRC_UNITS)? else {
                return Ok(None);
            };
            at = at.max(key.saturating_mul(CRC_UNITS));
            let mut runs = Runs::default();
            let end = key
                .saturating_add(1)
                .saturating_mul(CRC_UNITS)
                .min(units.end);
            while at < end {
                if runs.of(self, ino, at)? != 0 {
                    return Ok(Some(at));
                }
                at += 1;
            }
        }
        Ok(None)
    }
}
