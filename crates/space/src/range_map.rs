//! Ranges of fragments that do not overlap, each with a value.

use std::collections::BTreeMap;
use std::ops::Range;

/// What stands for a range, and how to say the same of the range's tail.
pub(crate) trait Piece: Copy {
    /// The value of what is left when the first `frags` fragments are cut off.
    fn tail(self, frags: u64) -> Self;

    /// Where the part that is left can begin when the first `frags` fragments are cut off, counted like these.
    fn tail_start(self, frags: u64) -> u64 {
        frags
    }
}

impl Piece for () {
    fn tail(self, _: u64) {}
}

/// Start -> (end, value).
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<V> {
    map: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> RangeMap<V> {
        RangeMap {
            map: BTreeMap::new(),
        }
    }
}

impl<V: Piece> RangeMap<V> {
    /// The range that starts at `start`.
    pub(crate) fn at(&self, start: u64) -> Option<(Range<u64>, V)> {
        self.map
            .get(&start)
            .map(|&(end, value)| (start..end, value))
    }

    /// The last range that starts before `addr`.
    pub(crate) fn before(&self, addr: u64) -> Option<(Range<u64>, V)> {
        self.map
            .range(..addr)
            .next_back()
            .map(|(&start, &(end, value))| (start..end, value))
    }

    /// All ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, V)> {
        self.map
            .iter()
            .map(|(&start, &(end, value))| (start..end, value))
    }

    /// The ranges that share a fragment with `range`, whole, in order.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, V)> {
        let first = self
            .map
            .range(..=range.start)
            .next_back()
            .filter(|(_, (end, _))| *end > range.start)
            .map_or(range.start, |(&start, _)| start);
        self.map
            .range(first..range.end.max(first))
            .map(|(&start, &(end, value))| (start..end, value))
    }

    /// Whether no range shares a fragment with `range`.
    pub(crate) fn is_free(&self, range: &Range<u64>) -> bool {
        self.before(range.end)
            .is_none_or(|(found, _)| found.end <= range.start)
    }

    /// Adds a range, which must overlap no other.
    pub(crate) fn insert(&mut self, range: Range<u64>, value: V) {
        self.map.insert(range.start, (range.end, value));
    }

    /// Drops the range that starts at `start`.
    pub(crate) fn remove(&mut self, start: u64) -> Option<(Range<u64>, V)> {
        self.map
            .remove(&start)
            .map(|(end, value)| (start..end, value))
    }

    /// Cuts `range` out of all that overlap it; `removed` is told what went, piece by piece.
    pub(crate) fn cut(&mut self, range: Range<u64>, mut removed: impl FnMut(Range<u64>, V)) {
        while let Some((found, value)) = self.before(range.end).filter(|(f, _)| f.end > range.start)
        {
            self.map.remove(&found.start);
            if found.end > range.end {
                let skip = value.tail_start(range.end - found.start);
                if found.start + skip < found.end {
                    self.insert(found.start + skip..found.end, value.tail(skip));
                }
            }
            let start = found.start.max(range.start);
            let gone = if start > found.start {
                value.tail(start - found.start)
            } else {
                value
            };
            removed(start..found.end.min(range.end), gone);
            if found.start < range.start {
                self.insert(found.start..range.start, value);
                return;
            }
        }
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.map.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A value that knows where it is.
    impl Piece for u64 {
        fn tail(self, frags: u64) -> u64 {
            self + frags
        }
    }

    proptest! {
        #[test]
        fn cutting_and_inserting_is_like_writing_to_an_array(
            writes in prop::collection::vec((0u64..60, 1u64..20), 1..40),
            probe in (0u64..60, 1u64..20),
        ) {
            let mut map = RangeMap::default();
            let mut model = vec![None; 80];
            for (i, &(start, len)) in writes.iter().enumerate() {
                let range = start..start + len;
                let mut removed = Vec::new();
                map.cut(range.clone(), |r, v| removed.push((r, v)));
                for (gone, value) in removed {
                    for at in gone.clone() {
                        prop_assert_eq!(model[at as usize].take(), Some(value + at - gone.start));
                    }
                }
                prop_assert!(map.is_free(&range));
                prop_assert!(range.clone().all(|at| model[at as usize].is_none()));
                if i % 3 != 0 {
                    let value = 1000 * i as u64;
                    map.insert(range.clone(), value);
                    range.for_each(|at| model[at as usize] = Some(value + at - start));
                }
            }
            let mut seen = vec![None; 80];
            for (range, value) in map.iter() {
                range.clone().for_each(|at| seen[at as usize] = Some(value + at - range.start));
            }
            prop_assert_eq!(&seen, &model);
            let (start, len) = probe;
            let hit = model[start as usize..(start + len) as usize].iter().any(Option::is_some);
            prop_assert_eq!(map.is_free(&(start..start + len)), !hit);
            let found: Vec<_> = map.overlapping(start..start + len).collect();
            let wanted: Vec<_> = map.iter()
                .filter(|(r, _)| r.start < start + len && start < r.end)
                .collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
