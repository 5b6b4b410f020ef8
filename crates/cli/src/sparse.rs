//! The parts of a file on a volume that hold data, so that holes are not read.

use std::ops::Range;

use loamfs_format::Ino;
use loamfs_fs::{Error, Volume};

/// The ranges of a file's bytes that are data, in order; between and behind them it reads as zeros.
pub fn data_ranges(volume: &Volume, ino: Ino) -> impl Iterator<Item = Result<Range<u64>, Error>> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let found = next_range(volume, ino, from?);
        from = match &found {
            Ok(Some(range)) => Some(range.end),
            _ => None,
        };
        found.transpose()
    })
}

fn next_range(volume: &Volume, ino: Ino, from: u64) -> Result<Option<Range<u64>>, Error> {
    match volume.ranges(ino).seek_data(from) {
        Ok(start) => Ok(Some(start..volume.ranges(ino).seek_hole(start)?)),
        Err(Error::NoData) => Ok(None),
        Err(error) => Err(error),
    }
}
