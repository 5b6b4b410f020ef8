//! Who reads in order: his reads cost a disk no seeks, however many there are.

use std::collections::VecDeque;
use std::ops::Range;

/// Readers that are told apart.
const STREAMS: usize = 32;

/// Where the last readers stopped, and how much they had read in order.
#[derive(Debug, Default)]
pub(super) struct Streams(VecDeque<(u64, u64)>);

impl Streams {
    /// Somebody read a range; how much he has read in order with it, if he left out `gap` at most each time.
    pub fn read(&mut self, range: Range<u64>, gap: u64) -> u64 {
        let len = range.end.saturating_sub(range.start);
        let follows = |end: u64| (end..=end.saturating_add(gap)).contains(&range.start);
        let before = self.0.iter().position(|(end, _)| follows(*end));
        let before = before.and_then(|at| self.0.remove(at));
        let run = before.map_or(0, |(_, run)| run) + len;
        if self.0.len() >= STREAMS {
            self.0.pop_front();
        }
        self.0.push_back((range.end, run));
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_readers_are_told_apart() {
        let mut streams = Streams::default();
        for step in 0..100 {
            for reader in 0..20 {
                let at = reader * 10_000 + step * 4;
                assert_eq!(streams.read(at..at + 4, 0), (step + 1) * 4);
            }
        }
        assert_eq!(streams.read(7..9, 0), 2);
        assert_eq!(streams.read(19..20, 10), 3);
        assert_eq!(streams.read(31..32, 10), 1, "too far");
    }
}
