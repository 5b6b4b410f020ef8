//! The extent summary tree (H5, section 3.1 of the paper): where is a free run of at least this length?
//!
//! A leaf stands for one word of the bitmap and holds the length of the longest free run that starts anywhere in
//! that word, counted on into the words behind it. A 4-ary tree of maxima over the leaves finds the first word
//! with a run of a wanted length, and its root tells the longest run there is.

use crate::bitmap::Bitmap;
use crate::bitmap::max_tree::MaxTree;

/// The summary of one bitmap, which every call takes along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SummaryTree {
    tree: MaxTree,
}

/// The free runs of a word as (first bit, length), the last one not counted beyond the word.
fn runs(word: u64) -> impl Iterator<Item = (u32, u32)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = word.checked_shr(at)?;
        let start = at + rest.trailing_ones();
        let length = word.checked_shr(start)?.trailing_zeros().min(64 - start);
        at = start + length;
        Some((start, length))
    })
}

impl SummaryTree {
    /// The summary of a bitmap.
    pub(crate) fn new(bits: &Bitmap) -> SummaryTree {
        let words = bits.words();
        let mut leaves = vec![0; words.len()];
        let mut head = 0;
        for (leaf, &word) in leaves.iter_mut().zip(words).rev() {
            *leaf = longest_from(word, head);
            head = if word == 0 {
                *leaf
            } else {
                word.trailing_zeros()
            };
        }
        SummaryTree {
            tree: MaxTree::new(leaves),
        }
    }

    /// Bytes of memory that the tree takes.
    pub(crate) fn bytes(&self) -> usize {
        self.tree.bytes()
    }

    /// Takes note of changes in the words `low..=high`.
    ///
    /// Besides these only the words before them change whose free run reaches `low`: walking back ends at the
    /// first word that is not wholly free, or whose run is as long as it was.
    pub(crate) fn update(&mut self, bits: &Bitmap, low: usize, high: usize) {
        let words = bits.words();
        let mut start = low;
        for word in (low..=high).rev() {
            self.tree
                .set_leaf(word, longest_from(words[word], self.head(words, word + 1)));
        }
        for word in (0..low).rev() {
            let new = longest_from(words[word], self.head(words, word + 1));
            if self.tree.get(word) == new {
                break;
            }
            self.tree.set_leaf(word, new);
            start = word;
            if words[word] != 0 {
                break;
            }
        }
        self.tree.settle(start, high);
    }

    /// Length of the free run from the first bit of a word on.
    fn head(&self, words: &[u64], word: usize) -> u32 {
        match words.get(word) {
            // In a free word no run is longer than the one from its first bit.
            Some(0) => self.tree.get(word),
            Some(bits) => bits.trailing_zeros(),
            None => 0,
        }
    }

    /// The longest free run.
    pub(crate) fn longest(&self) -> u64 {
        self.tree.max().into()
    }

    /// The first place from `from` on where a free run of at least `least` bits starts. A run that begins before
    /// `from` counts from there on.
    pub(crate) fn find(&self, bits: &Bitmap, from: u64, least: u64) -> Option<u64> {
        let least = u32::try_from(least.max(1)).ok()?;
        let words = bits.words();
        let word = (from / 64) as usize;
        let before = !(u64::MAX << (from % 64));
        let first = *words.get(word)? | before;
        self.find_in(words, word, first, least).or_else(|| {
            let word = self.tree.first(word + 1, least)?;
            self.find_in(words, word, words[word], least)
        })
    }

    fn find_in(&self, words: &[u64], word: usize, bits: u64, least: u32) -> Option<u64> {
        let beyond = self.head(words, word + 1);
        runs(bits)
            .find(|&(start, length)| {
                let beyond = if start + length == 64 { beyond } else { 0 };
                length > 0 && length + beyond >= least
            })
            .map(|(start, _)| word as u64 * 64 + u64::from(start))
    }
}

/// The longest free run that starts in `word`, when `head` free bits follow the word.
fn longest_from(word: u64, head: u32) -> u32 {
    match word {
        0 => 64 + head,
        u64::MAX => 0,
        _ => {
            let inside = runs(word).map(|(_, length)| length).max().unwrap_or(0);
            let tail = word.leading_zeros();
            inside.max(if tail > 0 { tail + head } else { 0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive_find(bits: &Bitmap, from: u64, least: u64) -> Option<u64> {
        (from..bits.len()).find(|&at| bits.clear_run(at, least) == least)
    }

    #[test]
    fn a_tree_over_free_words_counts_across_all_of_them() {
        let tree = SummaryTree::new(&Bitmap::new(64 * 4096));
        assert_eq!(tree.longest(), 262_144);
    }

    #[test]
    fn runs_of_a_word() {
        let all = |word| runs(word).filter(|r| r.1 > 0).collect::<Vec<_>>();
        assert_eq!(all(0), [(0, 64)]);
        assert_eq!(all(u64::MAX), []);
        assert_eq!(all(1), [(1, 63)]);
        assert_eq!(all(1 << 63), [(0, 63)]);
        assert_eq!(all(0b1010 | u64::MAX << 6), [(0, 1), (2, 1), (4, 2)]);
    }

    proptest! {
        #[test]
        fn every_update_leaves_the_tree_that_building_anew_gives(
            len in 1u64..1500,
            changes in prop::collection::vec((0u64..1500, 1u64..300, any::<bool>()), 1..60),
            queries in prop::collection::vec((0u64..1600, 1u64..400), 8),
        ) {
            let mut bits = Bitmap::new(len);
            let mut tree = SummaryTree::new(&bits);
            for (start, count, set) in changes {
                let start = start % len;
                let end = len.min(start + count);
                if set { bits.set(start..end) } else { bits.clear(start..end) };
                tree.update(&bits, (start / 64) as usize, ((end - 1) / 64) as usize);
                prop_assert_eq!(&tree, &SummaryTree::new(&bits));
                let longest = (0..len).map(|at| bits.clear_run(at, len)).max().unwrap_or(0);
                prop_assert_eq!(tree.longest(), longest);
            }
            for (from, least) in queries {
                prop_assert_eq!(tree.find(&bits, from, least), naive_find(&bits, from, least));
            }
        }
    }
}
