//! What files hold.

use super::Salvage;
use crate::reader::homed_fault;
use crate::{BlockFault, CheckError};
use loamfs_format::checksum::{CRC_UNITS, CrcRun, unit_crc};
use loamfs_format::inode::{Body, FileExtent, Inode};
use loamfs_format::maps::LazyEntry;
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_format::{Extent, FragAddr};
use std::collections::BTreeMap;

/// Takes bytes of a file, and where they stand.
pub type Put<'p, E> = &'p mut dyn FnMut(u64, &[u8]) -> Result<(), E>;

/// Bytes of a unit.
const UNIT: u64 = UNIT_SIZE as u64;
/// Faults that are kept of a file.
const FAULTS_MAX: usize = 16;

/// What of a file could not be brought out: it reads as zeros there.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// How many bytes are known to be missing; parts of trees that cannot be read may hide more.
    pub bytes: u64,
    /// Where the first of them were.
    pub at: Option<u64>,
    /// Why: the first reasons.
    pub faults: Vec<CheckError>,
    /// Whether parts of it may have newer data that were not found.
    pub may_be_older: bool,
}

impl Damage {
    /// Whether all of the file is there.
    pub fn is_none(&self) -> bool {
        self.faults.is_empty() && !self.may_be_older
    }

    fn add(&mut self, at: u64, bytes: u64, fault: CheckError) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.at = self.at.or(Some(at).filter(|_| bytes > 0));
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// Units of a file at consecutive homes, of which one leaf of checksums tells.
#[derive(Clone, Copy)]
struct Run {
    unit: u64,
    home: FragAddr,
    count: u64,
    /// Whether they may lack checksums: these were never written.
    unwritten: bool,
}

impl Salvage<'_> {
    /// Hands over what can be read of a file or a symbolic link, with the place of each piece; the rest is holes.
    ///
    /// # Errors
    /// What `put` says.
    pub fn content<E>(&self, inode: &Inode, put: Put<'_, E>) -> Result<Damage, E> {
        let (mut damage, ino) = (Damage::default(), inode.ino);
        match &inode.body {
            Body::Inline(data) => put(0, data)?,
            Body::Small(_) | Body::Settled(_) => {
                match inode.body.small().map(|at| self.volume.data_block(&at)) {
                    Some(Ok(data)) => put(0, &data)?,
                    Some(Err(fault)) => damage.add(0, inode.size, CheckError::Data { ino, fault }),
                    None => {}
                }
            }
            Body::Extents(_) | Body::ExtentTree(_) => self.homed(inode, &mut damage, put)?,
            Body::Empty | Body::InlineDir(_) | Body::DirTree(_) => {}
        }
        Ok(damage)
    }

    fn homed<E>(&self, inode: &Inode, damage: &mut Damage, put: Put<'_, E>) -> Result<(), E> {
        let (geometry, ino) = (*self.volume.geometry(), inode.ino);
        let block_size = u64::from(geometry.block_size);
        // No file has more than the volume; a damaged one may say so.
        let mut left = geometry.byte_offset(FragAddr(geometry.total_frags));
        for extent in self.volume.extents(inode) {
            let FileExtent { block, pointer } = match extent {
                Ok(extent) => extent,
                Err(fault) => {
                    damage.add(0, 0, fault);
                    continue;
                }
            };
            let start = block.saturating_mul(block_size);
            let bytes = geometry.byte_offset(FragAddr(pointer.frags.into()));
            let fault = homed_fault(&geometry, self.volume.last(), &pointer);
            if let Some(fault) = fault {
                let fault = fault.into();
                damage.add(start, bytes, CheckError::Data { ino, fault });
                continue;
            }
            let is_whole = inode.truncating == u64::MAX && !pointer.unwritten;
            if is_whole && start >= inode.size {
                // With another block size it would stand elsewhere in the file.
                damage.add(start, bytes, CheckError::Behind { ino });
                continue;
            }
            let end = start.saturating_add(bytes).min(inode.size);
            let mut at = start;
            while at < end {
                let unit = at / UNIT;
                let count = (end - at).div_ceil(UNIT).min(CRC_UNITS - unit % CRC_UNITS);
                let home = pointer.addr.0 + (at - start) / self.volume.io().frag();
                let run = Run {
                    unit,
                    home: FragAddr(home),
                    count,
                    unwritten: pointer.unwritten,
                };
                let Some(rest) = left.checked_sub(count * UNIT) else {
                    damage.add(at, end - at, CheckError::Extents { ino });
                    return Ok(());
                };
                left = rest;
                self.run(inode, run, damage, put)?;
                at += count * UNIT;
            }
        }
        Ok(())
    }

    /// Hands over those units of a run that are what their checksums say.
    fn run<E>(
        &self,
        inode: &Inode,
        run: Run,
        damage: &mut Damage,
        put: Put<'_, E>,
    ) -> Result<(), E> {
        let ino = inode.ino;
        let crcs = self.volume.crc_run(inode, run.unit / CRC_UNITS);
        let crcs = crcs.map(|CrcRun(crcs)| crcs);
        let images = self.images(run);
        damage.may_be_older |= self.findings.no_images;
        let unit_frags = self.volume.geometry().unit_frags();
        let homes = self.volume.io().read(run.home, (run.count * UNIT) as usize);
        for index in 0..run.count {
            let (unit, home) = (run.unit + index, FragAddr(run.home.0 + index * unit_frags));
            let at = unit * UNIT;
            let len = UNIT.min(inode.size.saturating_sub(at));
            if run.unwritten
                && let Ok(crcs) = &crcs
                && crcs[(unit % CRC_UNITS) as usize] == 0
            {
                continue;
            }
            let place = match images.get(&home.0) {
                Some(image) if image.ino == ino && image.unit == unit => {
                    Ok((image.image, image.crc))
                }
                None if !self.doubt.covers(&self.volume, home, ino, unit) => match &crcs {
                    Ok(crcs) => Ok((home, crcs[(unit % CRC_UNITS) as usize])),
                    Err(fault) => Err(fault.clone()),
                },
                _ => Err(CheckError::Doubt { ino, unit }),
            };
            let from = (index * UNIT) as usize;
            let read_along = homes
                .as_ref()
                .ok()
                .and_then(|homes| homes.get(from..from + UNIT as usize));
            let read = place.and_then(|(place, crc)| {
                let alone;
                let bytes = match read_along {
                    Some(bytes) if place == home => bytes,
                    _ => {
                        alone = self.unit(ino, place)?;
                        &alone
                    }
                };
                match unit_crc(bytes) {
                    found if found == crc => {
                        Ok(bytes.get(..len as usize).unwrap_or_default().to_vec())
                    }
                    found => Err(CheckError::Unit {
                        ino,
                        unit,
                        expected: crc,
                        found,
                    }),
                }
            });
            match read {
                Ok(bytes) => put(at, &bytes)?,
                Err(fault) => damage.add(at, len, fault),
            }
        }
        Ok(())
    }

    fn unit(
        &self,
        ino: loamfs_format::Ino,
        at: FragAddr,
    ) -> Result<loamfs_device::Buffer, CheckError> {
        let extent = Extent::new(at, self.volume.geometry().unit_frags());
        if !self.volume.geometry().holds(extent) {
            let fault = crate::PointerFault::Outside.into();
            return Err(CheckError::Data { ino, fault });
        }
        let read = self.volume.io().read(at, UNIT as usize);
        read.map_err(|error| CheckError::Data {
            ino,
            fault: BlockFault::Device(error),
        })
    }

    /// The images of a run's units, by their homes. What of the map cannot be read is in doubt.
    fn images(&self, run: Run) -> BTreeMap<u64, LazyEntry> {
        if !self.volume.has_images() {
            return BTreeMap::new();
        }
        let end = run.home.0 + run.count * self.volume.geometry().unit_frags();
        let known = self.volume.lazy(run.home).flatten();
        known.take_while(|(home, _)| *home < end).collect()
    }
}
