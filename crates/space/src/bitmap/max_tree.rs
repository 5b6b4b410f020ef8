//! A 4-ary tree of maxima over an array: who is the first, or the last, that is at least this large?

use std::ops::Range;

const FAN: usize = 4;

/// Values with the maxima of every four of them above, up to a single root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MaxTree {
    /// Leaves first, each level a quarter of the one below.
    levels: Vec<Vec<u32>>,
}

impl MaxTree {
    /// A tree over these values.
    pub(crate) fn new(leaves: Vec<u32>) -> MaxTree {
        let mut levels = vec![leaves];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            let next = below
                .chunks(FAN)
                .map(|four| four.iter().copied().max().unwrap_or(0))
                .collect();
            levels.push(next);
        }
        MaxTree { levels }
    }

    /// Bytes of memory that the values take.
    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(|l| l.len() * size_of::<u32>()).sum()
    }

    /// The largest value, 0 in an empty tree.
    pub(crate) fn max(&self) -> u32 {
        self.levels
            .last()
            .and_then(|top| top.first())
            .copied()
            .unwrap_or(0)
    }

    /// The value at `index`, 0 behind the end.
    pub(crate) fn get(&self, index: usize) -> u32 {
        self.levels[0].get(index).copied().unwrap_or(0)
    }

    /// Changes one value.
    pub(crate) fn set(&mut self, index: usize, value: u32) {
        if self.get(index) == value || index >= self.levels[0].len() {
            return;
        }
        self.levels[0][index] = value;
        let mut at = index / FAN;
        for level in 1..self.levels.len() {
            let top = self.top_of(level, at);
            if self.levels[level][at] == top {
                return;
            }
            self.levels[level][at] = top;
            at /= FAN;
        }
    }

    /// Changes one value and leaves the maxima above it to [`MaxTree::settle`].
    pub(crate) fn set_leaf(&mut self, index: usize, value: u32) {
        self.levels[0][index] = value;
    }

    /// Brings the maxima above the leaves `low..=high` up to date.
    pub(crate) fn settle(&mut self, mut low: usize, mut high: usize) {
        for level in 1..self.levels.len() {
            (low, high) = (low / FAN, high / FAN);
            let mut changed = false;
            for at in low..=high {
                let top = self.top_of(level, at);
                changed |= self.levels[level][at] != top;
                self.levels[level][at] = top;
            }
            if !changed {
                return;
            }
        }
    }

    fn top_of(&self, level: usize, at: usize) -> u32 {
        let below = &self.levels[level - 1];
        let end = below.len().min((at + 1) * FAN);
        below[at * FAN..end].iter().copied().max().unwrap_or(0)
    }

    /// The first index from `from` on whose value is at least `least`.
    pub(crate) fn first(&self, from: usize, least: u32) -> Option<usize> {
        let mut at = from;
        for (level, values) in self.levels.iter().enumerate() {
            let end = values.len().min(at.next_multiple_of(FAN));
            // At the start of four siblings the level above answers for all of them; the root has nobody above.
            let end = if level + 1 == self.levels.len() {
                values.len()
            } else {
                end
            };
            if let Some(hit) = (at..end).find(|&i| values[i] >= least) {
                return Some(self.descend(level, hit, |four| {
                    four.iter().position(|&value| value >= least)
                }));
            }
            at = at.div_ceil(FAN);
        }
        None
    }

    /// The last index below `to` whose value is at least `least`.
    pub(crate) fn last(&self, to: usize, least: u32) -> Option<usize> {
        let mut end = to.min(self.levels[0].len());
        for (level, values) in self.levels.iter().enumerate() {
            let top = level + 1 == self.levels.len();
            let complete = end == values.len();
            // Likewise from behind: whole families are left to the level above.
            let start = if top {
                0
            } else if complete {
                end
            } else {
                end / FAN * FAN
            };
            if let Some(hit) = (start..end).rev().find(|&i| values[i] >= least) {
                return Some(self.descend(level, hit, |four| {
                    four.iter().rposition(|&value| value >= least)
                }));
            }
            end = if complete && !top {
                end.div_ceil(FAN)
            } else {
                end / FAN
            };
        }
        None
    }

    /// The largest value of a range, 0 if it is empty.
    pub(crate) fn max_in(&self, range: &Range<usize>) -> u32 {
        let (mut from, mut to) = (range.start, range.end.min(self.levels[0].len()));
        let mut most = 0;
        for values in &self.levels {
            if from >= to {
                break;
            }
            // Whole families are left to the level above; the root has none.
            let head = from.next_multiple_of(FAN).min(to);
            let tail = (to / FAN * FAN).max(head);
            let ends = values[from..head].iter().chain(&values[tail..to]);
            most = ends.copied().max().unwrap_or(0).max(most);
            (from, to) = (head.div_ceil(FAN), tail / FAN);
        }
        most
    }

    /// The first index of `within` from `from` on, and then from its start, whose value is at least `least`.
    pub(crate) fn first_around(
        &self,
        from: usize,
        least: u32,
        within: &Range<usize>,
    ) -> Option<usize> {
        let first = |from| self.first(from, least).filter(|index| *index < within.end);
        first(from.max(within.start)).or_else(|| first(within.start))
    }

    /// The index of `within` nearest to `to`, which may be elsewhere, whose value is at least `least`.
    pub(crate) fn nearest(&self, to: usize, least: u32, within: &Range<usize>) -> Option<usize> {
        let to = to.clamp(within.start, within.end.max(within.start));
        let above = self.first(to, least).filter(|index| *index < within.end);
        let below = self.last(to, least).filter(|index| *index >= within.start);
        let found = [above, below].into_iter().flatten();
        found.min_by_key(|index| index.abs_diff(to))
    }

    fn descend(&self, from: usize, mut at: usize, pick: impl Fn(&[u32]) -> Option<usize>) -> usize {
        for values in self.levels[..from].iter().rev() {
            let start = at * FAN;
            let four = &values[start..values.len().min(start + FAN)];
            at = start + pick(four).unwrap_or(0);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_are_those_of_a_plain_scan(
            mut values in prop::collection::vec(0u32..6, 1..90),
            changes in prop::collection::vec((0usize..90, 0u32..6), 0..30),
            from in 0usize..95,
            least in 0u32..7,
            window in (0usize..95, 0usize..95),
        ) {
            let mut tree = MaxTree::new(values.clone());
            for (at, value) in changes {
                tree.set(at, value);
                if let Some(slot) = values.get_mut(at) {
                    *slot = value;
                }
            }
            prop_assert_eq!(&tree, &MaxTree::new(values.clone()));
            prop_assert_eq!(tree.max(), values.iter().copied().max().unwrap_or(0));
            let first = (from..values.len()).find(|&i| values[i] >= least);
            prop_assert_eq!(tree.first(from, least), first);
            let last = (0..values.len().min(from)).rev().find(|&i| values[i] >= least);
            prop_assert_eq!(tree.last(from, least), last);
            let inside: Vec<usize> = (window.0..values.len().min(window.0 + window.1)).collect();
            let within = window.0..window.0 + window.1;
            let most = inside.iter().map(|&i| values[i]).max().unwrap_or(0);
            prop_assert_eq!(tree.max_in(&within), most);
            let fits: Vec<usize> = inside.into_iter().filter(|&i| values[i] >= least).collect();
            let around = fits.iter().find(|&&i| i >= from).or(fits.first()).copied();
            prop_assert_eq!(tree.first_around(from, least, &within), around);
            let to = from.clamp(within.start, within.end);
            let nearest = tree.nearest(from, least, &within).map(|i| i.abs_diff(to));
            prop_assert_eq!(nearest, fits.iter().map(|i| i.abs_diff(to)).min());
        }
    }
}
