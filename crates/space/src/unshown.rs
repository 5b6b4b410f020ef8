//! Homes, and places of segments, that no segment shows yet: written, or being written, and no part of any state that a crash may bring back.

use crate::error::SpaceError;
use crate::groups::Groups;
use crate::range_map::RangeMap;
use loamfs_format::{Extent, FragAddr};
use std::ops::Range;

/// Unshown ranges, by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unshown {
    ranges: RangeMap<()>,
}

impl Unshown {
    /// Adds a range of which nothing is unshown.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        // Data written in sequence is one range, however many calls it took.
        let before = self.ranges.before(range.start);
        let before = before.filter(|(found, ())| found.end == range.start);
        let start = before.map_or(range.start, |(found, ())| found.start);
        self.ranges.insert(start..range.end, ());
    }

    /// Takes an extent out, all of which must be unshown.
    pub(crate) fn take(
        &mut self,
        extent: Extent,
        groups: &Groups,
    ) -> Result<Range<u64>, SpaceError> {
        let range = groups.layout().on_volume(extent)?;
        let inside = self.inside(range.clone());
        if inside.map(|part| part.end - part.start).sum::<u64>() != extent.frags {
            return Err(SpaceError::NotInUse { extent });
        }
        groups.ranges().check_aligned(range.clone())?;
        self.ranges.cut(range.clone(), |_, ()| ());
        Ok(range)
    }

    /// Whether nothing of a range is unshown.
    pub(crate) fn is_free(&self, range: &Range<u64>) -> bool {
        self.ranges.is_free(range)
    }

    /// The unshown parts of a range.
    pub(crate) fn inside(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let found = self.ranges.overlapping(range.clone());
        found.map(move |(found, ())| found.start.max(range.start)..found.end.min(range.end))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.ranges
            .iter()
            .map(|(range, ())| Extent::new(FragAddr(range.start), range.end - range.start))
    }
}
