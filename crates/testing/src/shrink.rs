//! Cuts a failing list down to what it takes to fail.

use std::time::{Duration, Instant};

/// When cutting down ends, if nothing is left to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this long.
    Time(Duration),
    /// After so many tries: gives the same on a machine of any speed.
    Tries(u32),
}

/// Leaves out ever smaller pieces as long as what is left still fails, until
/// nothing more can go or the limit is reached. `fails` must be deterministic.
pub fn shrink<T: Clone>(list: &[T], limit: Limit, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let (start, mut tries) = (Instant::now(), 0);
    let over = |tries| match limit {
        Limit::Time(time) => start.elapsed() >= time,
        Limit::Tries(most) => tries >= most,
    };
    let mut list = list.to_vec();
    let mut piece = list.len().div_ceil(2);
    while piece > 0 {
        let before = list.len();
        // From the end: what comes last needs what came first, seldom the
        // other way round.
        let mut end = list.len();
        while end > 0 && !over(tries) {
            tries += 1;
            let start = end.saturating_sub(piece);
            let shorter = [&list[..start], &list[end..]].concat();
            if fails(&shorter) {
                list = shorter;
            }
            end = start;
        }
        if over(tries) {
            break;
        }
        // At the smallest piece, again until nothing goes any more.
        if piece > 1 || list.len() == before {
            piece /= 2;
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_left() {
        let list: Vec<u32> = (0..500).collect();
        let mut runs = 0;
        let short = shrink(&list, Limit::Tries(1000), |list| {
            runs += 1;
            list.contains(&17) && list.contains(&400)
        });
        assert_eq!(short, [17, 400]);
        assert!(runs < 200, "{runs}");
    }

    #[test]
    fn a_limit_is_kept() {
        let zero = Limit::Time(Duration::ZERO);
        assert_eq!(shrink(&[1, 2, 3], zero, |_| true), [1, 2, 3]);
        assert_eq!(shrink(&[1, 2, 3, 4], Limit::Tries(1), |_| true), [1, 2]);
    }
}
