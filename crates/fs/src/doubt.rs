//! Which units cannot be trusted where nodes of the lazy map cannot be read. Only a volume that is not written is opened so.
//!
//! A home whose entry is unknown may hold what an image has long replaced. The checksum that the file has for it may be as
//! old: nothing but the entry tells. Such a unit can be read only if it never had an image that may still
//! count: where no owner record of the checkpoint names an image of it, or a later segment tells what became of its home.

use loamfs_format::{Extent, FragAddr, Ino};
use std::collections::BTreeMap;
use std::ops::Range;

/// The units whose newest images are unknown.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    /// Homes whose entries cannot be read, by the start of each range, with its end.
    homes: BTreeMap<FragAddr, FragAddr>,
    /// Units of which owner records name images, live ones or not, by file; nothing where these cannot be read either.
    images: Option<BTreeMap<Ino, Vec<Range<u64>>>>,
}

impl Doubt {
    /// The doubt about homes in these ranges, which do not overlap.
    pub fn new(
        homes: impl IntoIterator<Item = Range<u64>>,
        images: Option<BTreeMap<Ino, Vec<Range<u64>>>>,
    ) -> Doubt {
        let homes = homes.into_iter().filter(|range| !range.is_empty());
        Doubt {
            homes: homes
                .map(|range| (FragAddr(range.start), FragAddr(range.end)))
                .collect(),
            images,
        }
    }

    /// A later segment tells what the entries of these homes are.
    pub fn clear(&mut self, extent: Extent) {
        let (start, end) = (extent.start, extent.end());
        while let Some((&from, &to)) = self.homes.range(..end).next_back() {
            if to <= start {
                return;
            }
            self.homes.remove(&from);
            if to > end {
                self.homes.insert(end, to);
            }
            if from < start {
                self.homes.insert(from, start);
            }
        }
    }

    /// Whether nothing is known of some home in a range.
    pub fn reaches_into(&self, range: &Range<u64>) -> bool {
        let before = self.homes.range(..FragAddr(range.end)).next_back();
        before.is_some_and(|(_, end)| end.0 > range.start)
    }

    /// Whether a unit that has this home, and no entry that is known, may have one all the same.
    pub fn covers(&self, home: FragAddr, ino: Ino, unit: u64) -> bool {
        let before = self.homes.range(..=home).next_back();
        let named = |images: &BTreeMap<Ino, Vec<Range<u64>>>| {
            let ranges = images.get(&ino).map_or(&[][..], Vec::as_slice);
            ranges.iter().any(|range| range.contains(&unit))
        };
        before.is_some_and(|(_, end)| *end > home) && self.images.as_ref().is_none_or(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_known_is_taken_out() {
        let mut doubt = Doubt::new([10..20, 30..40], None);
        let unknown = |doubt: &Doubt| -> Vec<u64> {
            let covers = |at: &u64| doubt.covers(FragAddr(*at), Ino(9), 0);
            (0..50).filter(covers).collect()
        };
        let extent = |start, end: u64| Extent::new(FragAddr(start), end - start);
        doubt.clear(extent(0, 10));
        doubt.clear(extent(14, 16));
        doubt.clear(extent(18, 32));
        doubt.clear(extent(39, 60));
        let left: Vec<u64> = [10..14, 16..18, 32..39].into_iter().flatten().collect();
        assert_eq!(unknown(&doubt), left);
    }

    #[test]
    fn units_that_never_had_an_image_are_known() {
        let images = BTreeMap::from([(Ino(9), vec![2..4, 7..8])]);
        let doubt = Doubt::new(std::iter::once(10..20), Some(images));
        let units: Vec<u64> = (0..9)
            .filter(|at| doubt.covers(FragAddr(12), Ino(9), *at))
            .collect();
        assert_eq!(units, [2, 3, 7]);
        assert!(!doubt.covers(FragAddr(12), Ino(8), 2));
        assert!(!doubt.covers(FragAddr(20), Ino(9), 2));
    }
}
