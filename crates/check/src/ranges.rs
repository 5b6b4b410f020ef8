//! Ranges of fragments with values, of which none overlap.

use loamfs_format::{Extent, FragAddr};
use std::collections::BTreeMap;

/// A map from fragments to values, kept as ranges.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    /// Start to (end, value).
    ranges: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        RangeMap {
            ranges: BTreeMap::new(),
        }
    }
}

impl<V: Copy> RangeMap<V> {
    /// Gives a range a value, in place of all that it had.
    pub fn insert(&mut self, extent: Extent, value: V) {
        self.remove(extent);
        if extent.frags > 0 {
            self.ranges.insert(extent.start.0, (extent.end().0, value));
        }
    }

    /// Takes a range out.
    pub fn remove(&mut self, extent: Extent) {
        let (start, end) = (extent.start.0, extent.end().0);
        if start >= end {
            return;
        }
        if let Some((&at, &(stop, value))) = self.ranges.range(..start).next_back()
            && stop > start
        {
            self.ranges.insert(at, (start, value));
            if stop > end {
                self.ranges.insert(end, (stop, value));
            }
        }
        while let Some((&at, &(stop, value))) = self.ranges.range(start..end).next() {
            self.ranges.remove(&at);
            if stop > end {
                self.ranges.insert(end, (stop, value));
            }
        }
    }

    /// The ranges, by address.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, V)> + '_ {
        self.ranges.iter().map(piece)
    }

    /// The ranges that share a fragment with `extent`, uncut, by address.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = (Extent, V)> + '_ {
        self.from(extent.start)
            .take_while(move |(range, _)| range.start.0 < extent.end().0)
            .filter(move |(range, _)| range.overlaps(extent))
    }

    /// The parts of `extent` that no range covers, by address.
    pub fn gaps(&self, extent: Extent) -> Vec<Extent> {
        let mut gaps = Vec::new();
        let mut at = extent.start;
        for (range, _) in self.overlapping(extent) {
            if range.start > at {
                gaps.push(Extent::new(at, range.start.0 - at.0));
            }
            at = range.end();
        }
        if at < extent.end() {
            gaps.push(Extent::new(at, extent.end().0 - at.0));
        }
        gaps
    }

    /// The ranges that end behind `at`, by address.
    pub fn from(&self, at: FragAddr) -> impl Iterator<Item = (Extent, V)> + '_ {
        let first = self
            .ranges
            .range(..=at.0)
            .next_back()
            .map_or(at.0, |(start, _)| *start);
        self.ranges
            .range(first..)
            .map(piece)
            .filter(move |(range, _)| range.end().0 > at.0)
    }

    /// The value at `at`.
    pub fn get(&self, at: FragAddr) -> Option<V> {
        let (range, value) = self.from(at).next()?;
        range.contains(at).then_some(value)
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

fn piece<V: Copy>((&start, &(end, value)): (&u64, &(u64, V))) -> (Extent, V) {
    (Extent::new(FragAddr(start), end - start), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_value_cuts_what_it_overlaps() {
        let mut map = RangeMap::default();
        map.insert(Extent::new(FragAddr(10), 20), 'a');
        map.insert(Extent::new(FragAddr(15), 5), 'b');
        map.insert(Extent::new(FragAddr(25), 10), 'c');
        let all: Vec<_> = map.iter().map(|(e, v)| (e.start.0, e.frags, v)).collect();
        assert_eq!(
            all,
            [(10, 5, 'a'), (15, 5, 'b'), (20, 5, 'a'), (25, 10, 'c')]
        );
        assert_eq!(map.get(FragAddr(19)), Some('b'));
        assert_eq!(map.get(FragAddr(35)), None);
        map.remove(Extent::new(FragAddr(12), 20));
        let all: Vec<_> = map.iter().map(|(e, v)| (e.start.0, e.frags, v)).collect();
        assert_eq!(all, [(10, 2, 'a'), (32, 3, 'c')]);
        let some: Vec<_> = map.overlapping(Extent::new(FragAddr(11), 1)).collect();
        assert_eq!(some.len(), 1);
    }

    #[test]
    fn what_no_range_covers_is_a_gap() {
        let extent = |start, frags| Extent::new(FragAddr(start), frags);
        let mut map = RangeMap::default();
        map.insert(extent(10, 5), ());
        map.insert(extent(20, 5), ());
        assert_eq!(
            map.gaps(extent(5, 25)),
            [extent(5, 5), extent(15, 5), extent(25, 5)]
        );
        assert_eq!(map.gaps(extent(11, 11)), [extent(15, 5)]);
        assert_eq!(map.gaps(extent(21, 4)), []);
    }
}
