//! Files that were found damaged, in memory that outlives the daemon. An entry is there when its time is not zero, so that
//! is written last.

use std::sync::atomic::{Ordering, compiler_fence};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Damaged files that are remembered; all are logged.
pub const FILES_MAX: usize = 256;

/// Bytes of a reason that are remembered.
const REASON_MAX: usize = 152;

/// A file that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Damaged {
    since: u64,
    /// Its inode.
    ino: u64,
    reason: [u8; REASON_MAX],
}

impl Damaged {
    /// Since when, in seconds of the time of day, and why: as much of that as there is room for.
    pub fn new(ino: u64, since: u64, why: &str) -> Self {
        let mut reason = [0; REASON_MAX];
        let ends = why
            .char_indices()
            .map(|(at, letter)| at + letter.len_utf8());
        let len = ends
            .take_while(|end| *end <= REASON_MAX)
            .last()
            .unwrap_or(0);
        reason[..len].copy_from_slice(&why.as_bytes()[..len]);
        Self {
            since: since.max(1),
            ino,
            reason,
        }
    }

    /// Its inode.
    pub const fn ino(&self) -> u64 {
        self.ino
    }

    /// Since when, in seconds of the time of day.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Why.
    pub fn reason(&self) -> String {
        let text = self.reason.split(|byte| *byte == 0).next();
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }

    /// Writes it where a successor will read it.
    fn leave(&self, place: &mut Self) {
        place.ino = self.ino;
        place.reason = self.reason;
        compiler_fence(Ordering::SeqCst);
        place.since = self.since;
    }
}

/// Leaves these files to a successor; those that are there already are the first of them.
pub fn leave(places: &mut [Damaged], files: &[Damaged]) {
    for (place, file) in places.iter_mut().zip(files) {
        if place.since == 0 {
            file.leave(place);
        }
    }
}

/// What a daemon has left.
pub fn left(places: &[Damaged]) -> Vec<Damaged> {
    let there = places.iter().take_while(|place| place.since != 0);
    there.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn what_is_left_is_read_again() {
        let mut places = [Damaged::new_zeroed(); 2];
        let (first, second) = (Damaged::new(33, 7, "a block"), Damaged::new(34, 0, "a map"));
        leave(&mut places, &[first]);
        assert_eq!(left(&places), [first]);
        leave(
            &mut places,
            &[first, second, Damaged::new(35, 9, "no room")],
        );
        assert_eq!(left(&places), [first, second]);
        assert_eq!((second.since(), second.reason()), (1, "a map".to_owned()));
    }

    #[test]
    fn a_long_reason_is_cut_between_letters() {
        let long = Damaged::new(1, 1, &"\u{20ac}".repeat(REASON_MAX));
        assert_eq!(long.reason(), "\u{20ac}".repeat(REASON_MAX / 3));
    }
}
