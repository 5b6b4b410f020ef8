//! Delayed deallocation (H14; rule 5): what was freed and must not be used again yet.

use crate::range_map::{Piece, RangeMap};
use loamfs_format::summary::Wait;
use loamfs_format::{Extent, FragAddr};
use std::collections::BTreeMap;
use std::ops::Range;

impl Piece for Wait {
    fn tail(self, _: u64) -> Wait {
        self
    }
}

/// Freed ranges, by address and by what they wait for.
#[derive(Clone, Debug, Default)]
pub struct Held {
    ranges: RangeMap<Wait>,
    /// Where ranges with this wait start. An entry counts only while a range with this wait starts there:
    /// ranges that were merged, cut or dropped since leave theirs behind.
    starts: BTreeMap<Wait, Vec<u64>>,
    frags: u64,
}

impl Held {
    /// Fragments held back.
    pub fn frags(&self) -> u64 {
        self.frags
    }

    /// How many ranges are held back.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// All held ranges, in order; adjacent ones with the same wait are one.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, Wait)> {
        let extent =
            |range: Range<u64>| Extent::new(FragAddr(range.start), range.end - range.start);
        self.ranges
            .iter()
            .map(move |(range, wait)| (extent(range), wait))
    }

    /// Whether nothing of a range is held.
    pub(crate) fn is_free(&self, range: &Range<u64>) -> bool {
        self.ranges.is_free(range)
    }

    /// The held ranges that overlap `range`, whole.
    pub(crate) fn overlapping(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, Wait)> {
        self.ranges.overlapping(range)
    }

    /// The parts of a range of which nothing is held.
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (held, _) in self.overlapping(range.clone()) {
            gaps.push(at..held.start);
            at = held.end;
        }
        gaps.push(at..range.end);
        gaps.retain(|gap| gap.start < gap.end);
        gaps
    }

    /// Holds a range of which nothing is held.
    pub(crate) fn insert(&mut self, range: Range<u64>, wait: Wait) {
        self.frags += range.end - range.start;
        let mut merged = range.clone();
        if let Some((next, _)) = self.ranges.at(range.end).filter(|(_, w)| *w == wait) {
            self.ranges.remove(next.start);
            merged.end = next.end;
        }
        let before = self.ranges.before(range.start);
        match before.filter(|(found, w)| found.end == range.start && *w == wait) {
            Some((found, _)) => merged.start = found.start,
            None => self.starts.entry(wait).or_default().push(merged.start),
        }
        self.ranges.insert(merged, wait);
    }

    /// Drops a range from what is held; `dropped` is told the pieces that were.
    pub(crate) fn cut(&mut self, range: Range<u64>, mut dropped: impl FnMut(Range<u64>)) {
        if self.ranges.is_free(&range) {
            return;
        }
        let (frags, starts) = (&mut self.frags, &mut self.starts);
        let end = range.end;
        self.ranges.cut(range, |gone, wait| {
            *frags -= gone.end - gone.start;
            if gone.end == end {
                // A tail may be left, which starts where no range started before.
                starts.entry(wait).or_default().push(end);
            }
            dropped(gone);
        });
    }

    /// Takes out what need not wait any longer, but for ranges that are `busy`: in order, adjacent ones merged.
    pub(crate) fn release(
        &mut self,
        done: impl Fn(Wait) -> bool,
        busy: impl Fn(&Range<u64>) -> bool,
    ) -> Vec<Range<u64>> {
        // Only a few segments and checkpoints are waited for at any time.
        let waits: Vec<Wait> = self
            .starts
            .keys()
            .copied()
            .filter(|&wait| done(wait))
            .collect();
        let mut out: Vec<Range<u64>> = Vec::new();
        for wait in waits {
            let mut kept = Vec::new();
            for start in self.starts.remove(&wait).unwrap_or_default() {
                match self.ranges.at(start).filter(|(_, w)| *w == wait) {
                    Some((range, _)) if busy(&range) => kept.push(start),
                    Some(_) => out.extend(self.ranges.remove(start).map(|(range, _)| range)),
                    None => {}
                }
            }
            if !kept.is_empty() {
                self.starts.insert(wait, kept);
            }
        }
        out.sort_unstable_by_key(|range| range.start);
        self.frags -= out.iter().map(|r| r.end - r.start).sum::<u64>();
        out.dedup_by(|next, last| {
            let joins = last.end == next.start;
            if joins {
                last.end = next.end;
            }
            joins
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_format::Ssn;

    fn durable(ssn: u64) -> Wait {
        Wait::Durable(Ssn(ssn))
    }

    #[test]
    fn neighbours_with_the_same_wait_are_one() {
        let mut held = Held::default();
        held.insert(10..12, durable(3));
        held.insert(14..16, durable(3));
        held.insert(16..18, durable(4));
        held.insert(12..14, durable(3));
        let extent = |start, frags| Extent::new(FragAddr(start), frags);
        let all: Vec<_> = held.iter().collect();
        let wanted = [(extent(10, 6), durable(3)), (extent(16, 2), durable(4))];
        assert_eq!(all, wanted);
        assert_eq!(
            held.release(|w| w <= durable(4), |_| false),
            std::iter::once(10..18).collect::<Vec<_>>()
        );
        assert_eq!((held.frags(), held.iter().count()), (0, 0));
    }

    #[test]
    fn a_remaining_tail_is_still_released() {
        let mut held = Held::default();
        held.insert(0..10, durable(1));
        held.insert(20..30, Wait::Checkpoint(Ssn(1)));
        let mut dropped = Vec::new();
        held.cut(4..6, |range| dropped.push(range));
        assert_eq!(dropped, vec![4..6]);
        assert_eq!(held.frags(), 18);
        assert_eq!(
            held.release(|w| matches!(w, Wait::Durable(_)), |_| false),
            [0..4, 6..10]
        );
        assert_eq!(held.frags(), 10);
    }
}
