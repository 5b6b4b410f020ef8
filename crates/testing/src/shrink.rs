//! Cuts a failing list down to what it takes to fail.

use std::time::{Duration, Instant};

/// Leaves out ever smaller pieces as long as what is left still fails, until
/// nothing more can go or the time is up. `fails` must be deterministic.
pub fn shrink<T: Clone>(list: &[T], time: Duration, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let deadline = Instant::now() + time;
    let mut list = list.to_vec();
    let mut piece = list.len().div_ceil(2);
    while piece > 0 {
        let before = list.len();
        // From the end: what comes last needs what came first, seldom the
        // other way round.
        let mut end = list.len();
        while end > 0 && Instant::now() < deadline {
            let start = end.saturating_sub(piece);
            let shorter = [&list[..start], &list[end..]].concat();
            if fails(&shorter) {
                list = shorter;
            }
            end = start;
        }
        if Instant::now() >= deadline {
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
        let short = shrink(&list, Duration::from_secs(60), |list| {
            runs += 1;
            list.contains(&17) && list.contains(&400)
        });
        assert_eq!(short, [17, 400]);
        assert!(runs < 200, "{runs}");
    }

    #[test]
    fn no_time_leaves_the_list_alone() {
        assert_eq!(shrink(&[1, 2, 3], Duration::ZERO, |_| true), [1, 2, 3]);
    }
}
