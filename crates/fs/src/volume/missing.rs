//! Going on without devices that are missing. What stood there is lost: first it is told, then it is given up.
//!
//! Blocks of large files that are lost become holes. Of a block of which some units have images in the log, these move, and
//! zeros stand for the others. Nothing else can be given up: without its metadata the volume is none.

use super::{Ranges, Upkeep};
use crate::error::Error;
use crate::scrub::{Listing, Standing};
use crate::unit::UNIT;
use loamfs_format::superblock::DeviceEntry;
use loamfs_format::text::human;
use loamfs_format::{Geometry, Ino};
use loamfs_log::members;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What is lost with devices that are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes of each large file.
    pub files: BTreeMap<Ino, u64>,
    /// Bytes of all else: without them the volume cannot be made whole.
    pub others: u64,
}

/// Units of one block that are lost, and the homes that an owner record gives it.
struct Torn {
    units: BTreeSet<u64>,
    standing: Standing,
}

/// The devices that are missing, as far as whoever goes on without them looks at what stood there.
struct Missing<'u>(&'u Upkeep<'u>);

impl Upkeep<'_> {
    /// What is lost with the devices that are missing.
    ///
    /// # Errors
    /// [`Error`]: it cannot be told, since what would tell it is lost too.
    pub fn lost(&self) -> Result<Lost, Error> {
        Missing(self).lost()
    }

    /// Refuses, in words for the user, where no device is missing or where what is lost is more than blocks of large files.
    ///
    /// # Errors
    /// [`Error::Options`]; as for [`Upkeep::lost`].
    pub(crate) fn may_give_up(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Options(text));
        if self.missing().is_empty() {
            return refuse("no device of this volume is missing".into());
        }
        match self.lost()?.others {
            0 => Ok(()),
            lost => refuse(format!(
                "{} of metadata and small files were on what is missing, without which the volume cannot be made whole",
                human(lost)
            )),
        }
    }

    /// Gives up what stood on devices that are missing, for good: what is left of it moves, and both copies of the superblock
    /// say that they leave. When this returns, nothing is there any more. That it may be done was asked before
    /// ([`Upkeep::may_give_up`]), without a single write.
    ///
    /// # Errors
    /// As for [`Upkeep::evacuate`].
    pub(crate) fn give_up(&self) -> Result<(), Error> {
        let missing = Missing(self);
        self.leave_missing()?;
        // What nobody has any more does not move.
        self.find_leftovers();
        self.engine().tidy_after(usize::MAX);
        missing.look(|listing| missing.drop_lost(listing))?;
        self.vacate(|core| core.sb.leaving_groups(), &mut |_| true)?;
        Ok(())
    }

    /// The devices that are missing.
    pub(super) fn missing(&self) -> Vec<DeviceEntry> {
        let sb = self.core().sb.clone();
        members::missing_of(&sb, self.engine().device())
            .copied()
            .collect()
    }
}

impl Missing<'_> {
    fn lost(&self) -> Result<Lost, Error> {
        let mut lost = Lost::default();
        self.look(|listing| {
            for standing in listing.blocks {
                match standing.unit() {
                    None => lost.others += u64::from(standing.fetch.pointer.stored),
                    Some((ino, unit)) => match self.bytes_in(ino, unit)? {
                        // The rest of a file's last block.
                        0 => {}
                        bytes => *lost.files.entry(ino).or_default() += bytes,
                    },
                }
            }
            Ok(())
        })?;
        Ok(lost)
    }

    /// Bytes that a file has in a unit; one without a name has nothing that anybody could lose.
    fn bytes_in(&self, ino: Ino, unit: u64) -> Result<u64, Error> {
        let size = self.0.volume().run(|core| {
            let inode = core.node(ino)?.inode();
            Ok(if inode.nlink == 0 { 0 } else { inode.size })
        })?;
        Ok(size.saturating_sub(unit.saturating_mul(UNIT)).min(UNIT))
    }

    /// Shows what stands on devices that are missing, piece by piece.
    fn look(&self, mut look: impl FnMut(Listing) -> Result<(), Error>) -> Result<(), Error> {
        let scrub = self.0.volume().scrub();
        for entry in self.0.missing() {
            let mut at = entry.addr;
            while let Some(range) = scrub.range_from(at).filter(|_| at < entry.extent().end()) {
                at = range.end();
                let mut listing = scrub.standing_in(range)?;
                if let Some((_, error)) = listing.untold.pop_first() {
                    return Err(error);
                }
                look(listing)?;
            }
        }
        Ok(())
    }

    /// Gives up blocks of large files.
    fn drop_lost(&self, listing: Listing) -> Result<(), Error> {
        let geometry = self.0.core().geometry;
        let mut whole: Vec<(Ino, Range<u64>)> = Vec::new();
        for ((ino, block), torn) in torn_blocks(listing, &geometry) {
            let cell = torn.standing.cell(&geometry);
            let (extent, owner) = (torn.standing.extent, &torn.standing.owner);
            let of = (extent, owner);
            let written = self.0.volume().run(|core| {
                let housed = core.mover().units_in(extent, owner, cell)?;
                Ok(housed.iter().filter(|unit| unit.written).count())
            })?;
            if written > torn.units.len() {
                let lost = || torn.units.clone();
                self.0
                    .volume()
                    .run(|core| core.mover().move_without(of, cell, lost()))?;
                continue;
            }
            match whole.last_mut() {
                Some((last, blocks)) if (*last, blocks.end) == (ino, block) => blocks.end += 1,
                _ => whole.push((ino, block..block + 1)),
            }
        }
        let bytes = u64::from(geometry.block_size);
        for (ino, blocks) in whole {
            let file: Ranges<'_> = self.0.volume().ranges(ino);
            file.free(blocks.start * bytes..blocks.end * bytes)?;
        }
        Ok(())
    }
}

/// The blocks of large files of which units stand somewhere, by file and number.
fn torn_blocks(listing: Listing, geometry: &Geometry) -> BTreeMap<(Ino, u64), Torn> {
    let mut blocks: BTreeMap<(Ino, u64), Torn> = BTreeMap::new();
    for standing in listing.blocks {
        let Some((ino, unit)) = standing.unit() else {
            continue;
        };
        let torn = blocks
            .entry((ino, unit / geometry.block_units()))
            .or_insert_with(|| Torn {
                units: BTreeSet::new(),
                standing,
            });
        torn.units.insert(unit);
    }
    blocks
}
