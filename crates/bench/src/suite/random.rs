//! Chance that is the same on every machine.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal, Pareto, Zipf};

/// A generator of its own for a workload.
pub fn generator(seed: u64, workload: &str) -> ChaCha8Rng {
    let mix = |hash: u64, byte: u8| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte);
    ChaCha8Rng::seed_from_u64(workload.bytes().fold(seed, mix))
}

/// A number below `bound`, which is not 0.
pub fn below(random: &mut impl Rng, bound: u64) -> u64 {
    random.random_range(0..bound.max(1))
}

/// The numbers below `count` in an order of chance.
pub fn shuffled(random: &mut impl Rng, count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.shuffle(random);
    numbers
}

/// Sizes of files as hFS draws them: 93 % lognormal (mu 9.357, sigma 1.318), 7 % Pareto (k 133 K, alpha 1.1), none
/// above 64 MiB, where Pareto's tail would make single files the whole measurement.
pub struct Sizes {
    body: LogNormal<f64>,
    tail: Pareto<f64>,
}

impl Sizes {
    /// `None` never: the parameters are sound.
    pub fn new() -> Option<Sizes> {
        Some(Sizes {
            body: LogNormal::new(9.357, 1.318).ok()?,
            tail: Pareto::new(133.0 * 1024.0, 1.1).ok()?,
        })
    }

    /// A size in bytes.
    pub fn draw(&self, random: &mut impl Rng) -> usize {
        let size = if below(random, 100) < 93 {
            self.body.sample(random)
        } else {
            self.tail.sample(random)
        };
        size.clamp(1.0, f64::from(64 << 20)) as usize
    }
}

/// Numbers below `count`, small ones more often (Zipf, 0.95).
pub fn zipf(random: &mut impl Rng, count: u64, draws: u64) -> Vec<u64> {
    match Zipf::new(count.max(1) as f64, 0.95) {
        Ok(zipf) => (0..draws)
            .map(|_| (zipf.sample(random) as u64).clamp(1, count.max(1)) - 1)
            .collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_medians_of_their_distributions() {
        let mut random = generator(1, "test");
        let sizes = Sizes::new().unwrap();
        let mut drawn: Vec<usize> = (0..20_000).map(|_| sizes.draw(&mut random)).collect();
        drawn.sort_unstable();
        // exp(9.357) is 11,580; the tail, all above 133 KiB, moves it up by 7 % of the ranks.
        assert!(
            (11_500..14_500).contains(&drawn[10_000]),
            "{}",
            drawn[10_000]
        );
        assert!(drawn[19_999] <= 64 << 20);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| zipf(&mut generator(seed, "a"), 1000, 50);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).iter().all(|n| *n < 1000));
    }
}
