//! Random numbers from a seed: small, fast, the same on every machine.

/// A SplitMix64 generator. Its whole state is one number, so that a seed names a
/// sequence for good.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x6c6f_616d_5f66_7331)
    }

    /// A sequence of its own for a part of a run, so that a change in one part
    /// leaves the others as they were.
    #[must_use]
    pub fn fork(&self, label: u64) -> Self {
        Self(mix(self.0 ^ mix(label)))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is far below anything that a test could see.
        self.next_u64() % bound.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// An index into something of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the elements; `None` when there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.index(from.len()))
    }
}

/// Spreads the bits of a number over a whole word.
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_a_sequence() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 4];
        for _ in 0..100 {
            seen[rng.between(3, 6) as usize - 3] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.pick::<u8>(&[]), None);
    }
}
