//! One bit a fragment of a window.

use loamfs_format::{Extent, FragAddr};

/// Fragments of a window.
pub(crate) const WINDOW: u64 = 1 << 16;

const WORDS: usize = (WINDOW / 64) as usize;

/// The bits of the window that starts at `start`.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    start: u64,
    words: Box<[u64; WORDS]>,
}

impl Bits {
    pub(crate) fn new(start: u64) -> Bits {
        Bits {
            start,
            words: Box::new([0; WORDS]),
        }
    }

    /// Sets what of a range lies in the window.
    pub(crate) fn set(&mut self, extent: Extent) {
        let Some((from, to)) = self.clip(extent) else {
            return;
        };
        for word in from / 64..=(to - 1) / 64 {
            self.words[word] |= mask(word, from, to);
        }
    }

    /// Takes over a word of bits, of which the first stands for `at`.
    pub(crate) fn set_word(&mut self, at: u64, bits: u64) {
        let word = at
            .checked_sub(self.start)
            .map(|offset| (offset / 64) as usize);
        if let Some(word) = word.and_then(|word| self.words.get_mut(word)) {
            *word |= bits;
        }
    }

    /// Clears all from `at` on.
    pub(crate) fn truncate(&mut self, at: u64) {
        self.clear(Extent::new(FragAddr(at), WINDOW));
    }

    /// Clears what of a range lies in the window.
    pub(crate) fn clear(&mut self, extent: Extent) {
        if let Some((from, to)) = self.clip(extent) {
            for word in from / 64..=(to - 1) / 64 {
                self.words[word] &= !mask(word, from, to);
            }
        }
    }

    /// Number of set bits in a range.
    pub(crate) fn count(&self, extent: Extent) -> u64 {
        let Some((from, to)) = self.clip(extent) else {
            return 0;
        };
        let words = from / 64..=(to - 1) / 64;
        words
            .map(|word| u64::from((self.words[word] & mask(word, from, to)).count_ones()))
            .sum()
    }

    /// The runs, in a range, of bits that are set in all of `all` and in none of `none`.
    pub(crate) fn runs(extent: Extent, all: &[&Bits], none: &[&Bits]) -> Vec<Extent> {
        let mut runs = Vec::new();
        let Some((first, rest)) = all.split_first() else {
            return runs;
        };
        let Some((from, to)) = first.clip(extent) else {
            return runs;
        };
        let mut open: Option<u64> = None;
        for word in from / 64..=(to - 1) / 64 {
            let set = rest
                .iter()
                .fold(first.words[word], |bits, other| bits & other.words[word]);
            let set = none
                .iter()
                .fold(set, |bits, other| bits & !other.words[word]);
            let base = first.start + word as u64 * 64;
            let mut bits = set & mask(word, from, to);
            // `open` continues over a word only while its bits do: a run ends at the first clear bit.
            let mut at = 0;
            while at < 64 {
                let ones = (bits >> at).trailing_ones();
                match open {
                    None if ones > 0 => open = Some(base + u64::from(at)),
                    Some(start) if ones == 0 => {
                        runs.push(run(start, base + u64::from(at)));
                        open = None;
                    }
                    _ => {}
                }
                if ones > 0 {
                    at += ones;
                } else {
                    at += (bits >> at).trailing_zeros().min(64 - at);
                }
                if at < 64 {
                    bits &= u64::MAX << at;
                }
            }
        }
        if let Some(start) = open {
            runs.push(run(start, first.start + to as u64));
        }
        runs
    }

    /// The part of a range in the window, as bit numbers; `None` when there is none.
    fn clip(&self, extent: Extent) -> Option<(usize, usize)> {
        let from = extent.start.0.max(self.start) - self.start;
        let to = extent.end().0.saturating_sub(self.start).min(WINDOW);
        (from < to).then_some((from as usize, to as usize))
    }
}

fn run(start: u64, end: u64) -> Extent {
    Extent::new(FragAddr(start), end - start)
}

/// The bits of a word that lie in `from..to`.
fn mask(word: usize, from: usize, to: usize) -> u64 {
    let low = from.saturating_sub(word * 64).min(64);
    let high = to.saturating_sub(word * 64).min(64);
    let below = |bits: usize| {
        if bits == 64 {
            u64::MAX
        } else {
            (1 << bits) - 1
        }
    };
    below(high) & !below(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, frags: u64) -> Extent {
        Extent::new(FragAddr(start), frags)
    }

    #[test]
    fn runs_are_what_was_set_and_not_taken_out() {
        let (mut a, mut b) = (Bits::new(WINDOW), Bits::new(WINDOW));
        for range in [
            extent(WINDOW - 5, 10),
            extent(WINDOW + 60, 200),
            extent(2 * WINDOW - 3, 9),
        ] {
            a.set(range);
        }
        b.set(extent(WINDOW + 100, 28));
        let all = extent(0, 4 * WINDOW);
        let runs = Bits::runs(all, &[&a], &[&b]);
        let right = [
            extent(WINDOW, 5),
            extent(WINDOW + 60, 40),
            extent(WINDOW + 128, 132),
            extent(2 * WINDOW - 3, 3),
        ];
        assert_eq!(runs, right);
        assert_eq!(a.count(all), 208);
        assert_eq!(
            Bits::runs(extent(WINDOW + 62, 3), &[&a], &[]),
            [extent(WINDOW + 62, 3)]
        );
        a.truncate(WINDOW + 61);
        assert_eq!(a.count(all), 6);
    }
}
