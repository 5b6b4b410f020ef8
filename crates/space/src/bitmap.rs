//! Bitmaps in memory: plain bits in 64-bit words here; a group's, with the tree over its free runs, below.

pub(crate) mod extent_map;
pub(crate) mod group_map;
pub(crate) mod max_tree;
mod summary_tree;

use std::ops::Range;

/// Bits, of which those behind the last one are set, so that no free run ever reaches past the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    bits: u64,
}

/// The bits `from..to` of a word, `from < to <= 64`.
const fn mask(from: u32, to: u32) -> u64 {
    (u64::MAX << from) & (u64::MAX >> (64 - to))
}

/// The words that a range of bits touches, each with the bits of the range in it.
fn parts(range: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let words = if range.is_empty() {
        0..0
    } else {
        range.start / 64..range.end.div_ceil(64)
    };
    words.map(move |word| {
        let base = word * 64;
        let from = range.start.saturating_sub(base) as u32;
        let to = (range.end - base).min(64) as u32;
        (word as usize, mask(from, to))
    })
}

impl Bitmap {
    /// `bits` clear bits.
    pub(crate) fn new(bits: u64) -> Bitmap {
        let mut words = vec![0; bits.div_ceil(64) as usize];
        if let (Some(last), 1..) = (words.last_mut(), bits % 64) {
            *last = u64::MAX << (bits % 64);
        }
        Bitmap { words, bits }
    }

    /// The words; bits behind the end are set.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Number of bits.
    pub(crate) fn len(&self) -> u64 {
        self.bits
    }

    /// Bytes of memory that the words take.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// Whether the bit is set; bits behind the end are.
    pub(crate) fn get(&self, bit: u64) -> bool {
        self.words
            .get((bit / 64) as usize)
            .is_none_or(|word| word >> (bit % 64) & 1 != 0)
    }

    /// Sets a range and tells how many of its bits were clear.
    pub(crate) fn set(&mut self, range: Range<u64>) -> u64 {
        let mut changed = 0;
        for (word, bits) in parts(range.start..range.end.min(self.bits)) {
            changed += u64::from((!self.words[word] & bits).count_ones());
            self.words[word] |= bits;
        }
        changed
    }

    /// Clears a range and tells how many of its bits were set.
    pub(crate) fn clear(&mut self, range: Range<u64>) -> u64 {
        let mut changed = 0;
        for (word, bits) in parts(range.start..range.end.min(self.bits)) {
            changed += u64::from((self.words[word] & bits).count_ones());
            self.words[word] &= !bits;
        }
        changed
    }

    /// Whether no bit of the range is set. A range that leaves the bitmap is not clear.
    pub(crate) fn is_clear(&self, range: Range<u64>) -> bool {
        range.end <= self.bits && parts(range).all(|(word, bits)| self.words[word] & bits == 0)
    }

    /// Whether every bit of the range is set. A range that leaves the bitmap is not.
    pub(crate) fn is_set(&self, range: Range<u64>) -> bool {
        range.end <= self.bits && parts(range).all(|(word, bits)| self.words[word] & bits == bits)
    }

    /// Number of set bits.
    pub(crate) fn ones(&self) -> u64 {
        let all: u64 = self.words.iter().map(|w| u64::from(w.count_ones())).sum();
        all - (self.words.len() as u64 * 64 - self.bits)
    }

    /// Number of set bits in a range.
    pub(crate) fn ones_in(&self, range: Range<u64>) -> u64 {
        parts(range.start..range.end.min(self.bits))
            .map(|(word, bits)| u64::from((self.words[word] & bits).count_ones()))
            .sum()
    }

    /// The first clear bit.
    pub(crate) fn first_clear(&self) -> Option<u64> {
        let word = self.words.iter().position(|word| *word != u64::MAX)?;
        Some(word as u64 * 64 + u64::from(self.words[word].trailing_ones()))
    }

    /// Length of the clear run that starts at `bit`, counted up to `max`.
    pub(crate) fn clear_run(&self, bit: u64, max: u64) -> u64 {
        let end = self.bits.min(bit.saturating_add(max));
        let mut at = bit;
        while at < end {
            let word = self.words[(at / 64) as usize] >> (at % 64);
            if word != 0 {
                at += u64::from(word.trailing_zeros());
                break;
            }
            at = (at / 64 + 1) * 64;
        }
        at.min(end).saturating_sub(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_across_words_are_set_counted_and_cleared() {
        let mut map = Bitmap::new(200);
        assert_eq!(map.ones(), 0);
        assert_eq!(map.set(60..140), 80);
        assert_eq!(map.set(50..70), 10);
        assert!(map.is_set(50..140) && !map.is_set(49..140));
        assert!(map.is_clear(0..50) && map.is_clear(140..200) && !map.is_clear(140..201));
        assert_eq!(map.ones_in(0..64), 14);
        assert_eq!(map.first_clear(), Some(0));
        map.set(0..50);
        assert_eq!(map.first_clear(), Some(140));
        map.set(140..200);
        assert_eq!(map.first_clear(), None);
        assert_eq!(map.clear(0..200), 200);
        assert_eq!(map.clear_run(0, u64::MAX), 200);
    }

    #[test]
    fn what_is_behind_the_end_is_never_free() {
        let map = Bitmap::new(70);
        assert!(map.get(70) && map.get(127) && map.get(1000));
        assert_eq!(map.clear_run(3, 1000), 67);
        assert_eq!(map.clear_run(69, 1), 1);
        assert_eq!(map.clear_run(70, 9), 0);
    }
}
