//! What may be used again, and devices are told of (rule 5): whole pieces of it, in the order of their addresses.

use crate::types::Discard;
use loamfs_format::{Extent, FragAddr, Geometry};

/// Bytes of a piece. A device is told of one when all of it is free: a request for each small file would keep it from its work, and
/// wins little, since what a device erases at once is longer.
const PIECE: u64 = 64 << 10;

/// Bytes of the longest run that is looked at at once, with the bitmaps of all its groups.
const LONGEST: u64 = 1 << 30;

/// Runs that are remembered at most. [`Upkeep::trim`](crate::Upkeep::trim) finds the rest.
const RUNS_MAX: usize = 1 << 16;

/// Pieces of which something was freed since their devices were told of them.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    who: Discard,
    /// Runs of pieces.
    runs: Vec<Extent>,
    /// Whether they are in order, and do not touch each other.
    merged: bool,
    /// Where the last one ended that a device was told of.
    told_to: FragAddr,
}

impl Freed {
    /// From here on these devices are told, and no others.
    pub fn tell(&mut self, who: Discard) {
        self.who = who;
        if who == Discard::Never {
            self.runs = Vec::new();
        }
    }

    /// Which devices are told.
    pub const fn told(&self) -> Discard {
        self.who
    }

    /// Whether a device is told, that turns or does not.
    pub fn tells(&self, turns: bool) -> bool {
        match self.who {
            Discard::Never => false,
            Discard::Flash => !turns,
            Discard::Always => true,
        }
    }

    /// Whether there is something to tell.
    pub const fn waits(&self) -> bool {
        !self.runs.is_empty()
    }

    /// This may be used again.
    pub fn note(&mut self, freed: &[Extent], geometry: &Geometry) {
        if self.who == Discard::Never {
            return;
        }
        if self.runs.len() + freed.len() > RUNS_MAX {
            self.merge();
        }
        let room = RUNS_MAX.saturating_sub(self.runs.len());
        let noted = &freed[..freed.len().min(room)];
        self.merged &= noted.is_empty();
        self.runs
            .extend(noted.iter().map(|extent| around(*extent, geometry)));
    }

    /// The next runs of pieces of which something was freed, up to `max` of them: those behind what was taken last, then from the
    /// start of the volume on. Of a long one the rest stays.
    pub fn take(&mut self, max: usize, geometry: &Geometry) -> Vec<Extent> {
        self.merge();
        let told_to = self.told_to;
        let behind = self.runs.partition_point(|run| run.start < told_to);
        let end = behind.saturating_add(max).min(self.runs.len());
        let mut taken: Vec<Extent> = self.runs.drain(behind..end).collect();
        let before = (max - taken.len()).min(behind);
        taken.extend(self.runs.drain(..before));
        let longest = LONGEST / u64::from(geometry.fragment_size);
        for run in taken.iter_mut().filter(|run| run.frags > longest) {
            let rest = run.frags - longest;
            run.frags = longest;
            self.runs.push(Extent::new(run.end(), rest));
            self.merged = false;
        }
        self.told_to = taken.last().map_or(told_to, |run| run.end());
        taken
    }

    /// Puts the runs in order, and makes one of those that touch each other.
    fn merge(&mut self) {
        if std::mem::replace(&mut self.merged, true) {
            return;
        }
        self.runs.sort_unstable_by_key(|run| run.start);
        self.runs.dedup_by(|next, run| {
            let touches = next.start <= run.end();
            if touches {
                run.frags = run.frags.max(next.end().0 - run.start.0);
            }
            touches
        });
    }
}

/// The whole pieces of a free run.
pub(crate) fn within(run: Extent, geometry: &Geometry) -> Option<Extent> {
    let piece = piece_frags(geometry);
    let start = run.start.0.checked_next_multiple_of(piece)?;
    let end = run.end().0 / piece * piece;
    (start < end).then(|| Extent::new(FragAddr(start), end - start))
}

/// The pieces that have something of an extent, as far as the volume has them.
fn around(extent: Extent, geometry: &Geometry) -> Extent {
    let piece = piece_frags(geometry);
    let start = extent.start.0 / piece * piece;
    let end = extent.end().0.div_ceil(piece).saturating_mul(piece);
    Extent::new(FragAddr(start), end.min(geometry.total_frags) - start)
}

fn piece_frags(geometry: &Geometry) -> u64 {
    PIECE / u64::from(geometry.fragment_size)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::MkfsOptions;
    use crate::mkfs;

    fn extent(start: u64, frags: u64) -> Extent {
        Extent::new(FragAddr(start), frags)
    }

    #[test]
    fn what_is_freed_piece_by_piece_is_told_at_once_and_in_turn() {
        let geometry = mkfs::geometry(64 << 20, &MkfsOptions::default()).unwrap();
        let piece = piece_frags(&geometry);
        let mut freed = Freed::default();
        freed.note(&[extent(0, 1)], &geometry);
        assert!(!freed.waits());
        freed.tell(Discard::Flash);
        assert!(freed.tells(false) && !freed.tells(true));
        let noted = [
            extent(9 * piece, 1),
            extent(2 * piece - 1, 2),
            extent(3 * piece, piece),
            extent(5 * piece + 1, 1),
        ];
        freed.note(&noted, &geometry);
        assert_eq!(
            freed.take(2, &geometry),
            [extent(piece, 3 * piece), extent(5 * piece, piece)]
        );
        // What is freed meanwhile in front does not keep waiting what is behind.
        freed.note(&[extent(0, 1)], &geometry);
        assert_eq!(freed.take(1, &geometry), [extent(9 * piece, piece)]);
        assert_eq!(freed.take(2, &geometry), [extent(0, piece)]);
        assert!(!freed.waits());
    }

    #[test]
    fn of_a_long_run_a_part_is_told_at_once() {
        let geometry = mkfs::geometry(4 << 30, &MkfsOptions::default()).unwrap();
        let longest = LONGEST / u64::from(geometry.fragment_size);
        let mut freed = Freed::default();
        freed.tell(Discard::Always);
        freed.note(&[extent(0, 2 * longest + 1)], &geometry);
        let told = [0, 1, 2].map(|_| freed.take(1, &geometry));
        let piece = piece_frags(&geometry);
        let runs = [(0, longest), (longest, longest), (2 * longest, piece)];
        assert_eq!(told, runs.map(|(start, frags)| vec![extent(start, frags)]));
        assert!(!freed.waits());
    }

    #[test]
    fn of_a_run_whole_pieces_are_told() {
        let geometry = mkfs::geometry(64 << 20, &MkfsOptions::default()).unwrap();
        let piece = piece_frags(&geometry);
        let run = |start, frags| within(extent(start, frags), &geometry);
        assert_eq!(run(1, piece), None);
        assert_eq!(run(1, 2 * piece), Some(extent(piece, piece)));
        assert_eq!(run(piece, piece), Some(extent(piece, piece)));
    }
}
