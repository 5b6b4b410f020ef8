//! Which block is overwritten next.

use clap::ValueEnum;
use rand::{Rng, RngExt};
use serde::Serialize;

/// What is overwritten, by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Every block as often as any other.
    Uniform,
    /// A tenth of the blocks gets nine tenths of the writes.
    HotAndCold,
}

impl Pattern {
    /// One of `blocks` blocks, of which there is at least one.
    pub fn next(self, blocks: u32, random: &mut impl Rng) -> u32 {
        let hot = blocks.div_ceil(10);
        let any = match self {
            Pattern::Uniform => 0..blocks,
            Pattern::HotAndCold if hot == blocks || random.random_ratio(9, 10) => 0..hot,
            Pattern::HotAndCold => hot..blocks,
        };
        random.random_range(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_tenth_is_hot() {
        let random = &mut ChaCha8Rng::seed_from_u64(1);
        let hot = |pattern: Pattern, random: &mut ChaCha8Rng| {
            let drawn = (0..10_000).map(|_| pattern.next(1000, random));
            drawn.filter(|block| *block < 100).count()
        };
        assert!((8800..9200).contains(&hot(Pattern::HotAndCold, random)));
        assert!((800..1200).contains(&hot(Pattern::Uniform, random)));
        assert_eq!(Pattern::HotAndCold.next(1, random), 0);
    }
}
