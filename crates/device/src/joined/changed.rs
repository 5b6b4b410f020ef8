//! What was written in one place since it was copied to another one.

use crate::lock;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes of which it is known together whether any was written: two MiB of memory tell it of a TiB.
const CHUNK: u64 = 64 << 10;

/// Which chunks of so many bytes were written: nothing is noted before somebody asks for it.
#[derive(Debug)]
pub(super) struct Changed {
    bytes: u64,
    /// A bit a chunk.
    chunks: Mutex<Option<Vec<u64>>>,
}

impl Changed {
    pub(super) fn of(bytes: u64) -> Changed {
        Changed {
            bytes,
            chunks: Mutex::default(),
        }
    }

    /// From now on it is noted; all was written so far, or nothing.
    pub(super) fn begin(&self, all: bool) {
        let chunks = self.bytes.div_ceil(CHUNK);
        let word = if all { u64::MAX } else { 0 };
        let mut bits = vec![word; chunks.div_ceil(64) as usize];
        // Nothing is behind the last one.
        if let Some(last) = bits.last_mut()
            && !chunks.is_multiple_of(64)
        {
            *last &= (1 << (chunks % 64)) - 1;
        }
        *lock(&self.chunks) = Some(bits);
    }

    /// From now on nothing is noted.
    pub(super) fn end(&self) {
        *lock(&self.chunks) = None;
    }

    /// Writes to a range have completed. Told before they have, who copies in between would not come back for them.
    pub(super) fn note(&self, range: Range<u64>) {
        let mut chunks = lock(&self.chunks);
        let Some(bits) = chunks.as_mut().filter(|_| range.start < range.end) else {
            return;
        };
        for chunk in range.start / CHUNK..range.end.div_ceil(CHUNK) {
            if let Some(word) = bits.get_mut((chunk / 64) as usize) {
                *word |= 1 << (chunk % 64);
            }
        }
    }

    /// Nothing of a range counts as written; chunks that reach beyond it stay.
    pub(super) fn clear(&self, range: Range<u64>) {
        let mut chunks = lock(&self.chunks);
        for chunk in range.start.div_ceil(CHUNK)..range.end / CHUNK {
            if let Some(word) = chunks
                .as_mut()
                .and_then(|bits| bits.get_mut((chunk / 64) as usize))
            {
                *word &= !(1 << (chunk % 64));
            }
        }
    }

    /// Takes the first run that was written from byte `from` on, of at most about so many bytes: it counts as copied.
    pub(super) fn take(&self, from: u64, most: u64) -> Option<Range<u64>> {
        let mut chunks = lock(&self.chunks);
        let bits = chunks.as_mut()?;
        let is_set = |bits: &[u64], chunk: u64| {
            let word = bits.get((chunk / 64) as usize);
            word.is_some_and(|word| word >> (chunk % 64) & 1 == 1)
        };
        let all = bits.len() as u64 * 64;
        let mut first = from / CHUNK;
        while first < all && !is_set(bits, first) {
            // Whole words of nothing at once.
            let word = bits
                .get((first / 64) as usize)
                .map_or(0, |word| word >> (first % 64));
            first += if word == 0 {
                64 - first % 64
            } else {
                word.trailing_zeros().into()
            };
        }
        let end = first.saturating_add(most.div_ceil(CHUNK).max(1));
        let mut next = first;
        while next < end && is_set(bits, next) {
            bits[(next / 64) as usize] &= !(1 << (next % 64));
            next += 1;
        }
        (first < next).then(|| first * CHUNK..(next * CHUNK).min(self.bytes))
    }

    /// Bytes in chunks that were written; `None` if nothing is noted.
    pub(super) fn waiting(&self) -> Option<u64> {
        let chunks = lock(&self.chunks);
        let bits = chunks.as_ref()?.iter();
        Some(bits.map(|word| u64::from(word.count_ones()) * CHUNK).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_taken_once_in_runs() {
        let changed = Changed::of(100 * CHUNK - 10);
        changed.note(0..5);
        assert_eq!(changed.take(0, u64::MAX), None, "nobody asked for it");
        changed.begin(false);
        changed.note(0..1);
        changed.note(CHUNK - 1..CHUNK + 1);
        changed.note(70 * CHUNK..71 * CHUNK);
        assert_eq!(changed.waiting(), Some(3 * CHUNK));
        assert_eq!(changed.take(0, u64::MAX), Some(0..2 * CHUNK));
        assert_eq!(changed.take(0, CHUNK), Some(70 * CHUNK..71 * CHUNK));
        assert_eq!(changed.take(0, CHUNK), None);
        changed.begin(true);
        assert_eq!(
            changed.take(99 * CHUNK, u64::MAX),
            Some(99 * CHUNK..100 * CHUNK - 10)
        );
        assert_eq!(
            changed.take(98 * CHUNK, 2 * CHUNK),
            Some(98 * CHUNK..99 * CHUNK)
        );
        assert_eq!(changed.take(3, 2 * CHUNK), Some(0..2 * CHUNK));
        assert_eq!(changed.waiting(), Some(96 * CHUNK));
        changed.clear(2 * CHUNK - 1..5 * CHUNK - 1);
        assert_eq!(changed.take(0, u64::MAX), Some(4 * CHUNK..98 * CHUNK));
        changed.end();
        assert_eq!(changed.waiting(), None);
    }
}
