//! The clock of traces.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of the clock of the kernel's events. No two looks show the same, so that what lies between two looks
/// lies between their times.
pub fn micros() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000;
    let next = |last: u64| now.max(last + 1);
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        Some(next(last))
    });
    before.map_or(now, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_stands_still() {
        let looks: Vec<u64> = (0..1_000).map(|_| micros()).collect();
        assert!(looks.is_sorted_by(|a, b| a < b));
    }
}
