//! Regions: the parts of large files that settle together.

use crate::unit::UNIT;
use loamfs_format::Ino;
use std::ops::Range;

/// Units of a region: half settled, files are slower to read than as they were or as they will be.
const UNITS: u64 = (64 << 20) / UNIT;

/// A part of a large file, of 64 MiB: all of it, if the file is no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Region {
    ino: Ino,
    number: u64,
}

impl Region {
    /// The one of a unit.
    pub fn of(ino: Ino, unit: u64) -> Region {
        let number = unit / UNITS;
        Region { ino, number }
    }

    /// Whose part it is.
    pub fn ino(self) -> Ino {
        self.ino
    }

    /// Its units, those behind the file's end among them.
    pub fn units(self) -> Range<u64> {
        let first = self.number.saturating_mul(UNITS);
        first..first.saturating_add(UNITS)
    }

    /// The next one of the same file.
    pub fn next(self) -> Region {
        Region {
            number: self.number.saturating_add(1),
            ..self
        }
    }
}
