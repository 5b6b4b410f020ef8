//! A drive-managed shingled disk: tracks overlap, so that a band can only be written from its start on, and what is
//! written elsewhere waits in a persistent cache until its band is rewritten.
//!
//! - The cache lies at the outer edge, before the data; both together fill the stroke.
//! - A write goes to the end of the cache, which is a ring. It goes to its band instead if its run has streamed enough
//!   before it *and* it begins at its band's start or at the band's high-water mark. Then the mark moves behind it. What
//!   crosses the end of a band is several writes.
//! - A run is writes each of which begins where another ended, in the order in which they are done. The runs written
//!   to last are tracked.
//! - The disk is used: every band is full, its mark at its end, until a write at its start sets the mark back. Emptying
//!   a band fills it again.
//! - A cache without room for a write empties the bands of its oldest entries, one after the other, until there is. Three
//!   passes over a band (read it, write it aside, write it in place) take everything of it out of the cache. Room comes
//!   back in the order in which it was taken. Nothing is cleaned in idle time.
//! - A read goes where each part of it was written last.
//!
//! Bands, first in first out, a cache on disk and static places of the data are what Aghayev and Desnoyers found in a
//! Seagate disk ("Skylight", FAST 2015), a sibling of the one of ext4-lazy's evaluation.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::mechanics::{Busy, Purpose};
use super::{Arm, Mechanics, Span, Surface};

/// Figures of a shingled disk, in sectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shingles {
    /// Of a band.
    pub band: u64,
    /// Of the persistent cache.
    pub cache: u64,
    /// That a run must have streamed to go to its band.
    pub streamed: u64,
    /// Runs that are tracked.
    pub runs: usize,
    /// Passes over a band that empty the cache of it.
    pub passes: f64,
}

/// The state of the disk.
#[derive(Clone, Debug)]
pub struct Shingled {
    shingles: Shingles,
    arm: Arm,
    /// Sectors of data.
    sectors: u64,
    cache: Cache,
    /// High-water marks of bands whose mark is not their end.
    marks: HashMap<u64, u64>,
    /// Runs, the one written to last at the end.
    runs: VecDeque<Run>,
}

/// Writes that followed each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    streamed: u64,
}

impl Shingled {
    /// A used disk of `sectors` data sectors, its cache empty.
    pub fn new(shingles: Shingles, mechanics: Mechanics, sectors: u64) -> Shingled {
        Shingled {
            shingles,
            arm: Arm::new(mechanics, sectors + shingles.cache),
            sectors,
            cache: Cache::new(shingles.cache),
            marks: HashMap::new(),
            runs: VecDeque::new(),
        }
    }

    fn band_of(&self, sector: u64) -> u64 {
        sector / self.shingles.band
    }

    fn band(&self, number: u64) -> Span {
        let start = number * self.shingles.band;
        Span {
            start,
            end: (start + self.shingles.band).min(self.sectors).max(start),
        }
    }

    /// A span of data, on the platters.
    const fn home(&self, span: Span) -> Span {
        Span {
            start: span.start + self.shingles.cache,
            end: span.end + self.shingles.cache,
        }
    }

    /// Whether a write that begins here goes to its band.
    fn streams(&self, start: u64) -> bool {
        let band = self.band_of(start);
        let at_place =
            start == self.band(band).start || self.marks.get(&band).is_some_and(|m| *m == start);
        let run = self.runs.iter().find(|run| run.end == start);
        at_place && run.is_some_and(|run| run.streamed >= self.shingles.streamed)
    }

    /// Notes a write in its run.
    fn run_on(&mut self, span: Span) {
        let found = self.runs.iter().position(|run| run.end == span.start);
        let before = found.and_then(|index| self.runs.remove(index));
        if self.runs.len() >= self.shingles.runs {
            self.runs.pop_front();
        }
        self.runs.push_back(Run {
            end: span.end,
            streamed: before.map_or(0, |run| run.streamed) + span.sectors(),
        });
    }

    fn write_band(&mut self, span: Span) {
        self.arm.pass(self.home(span), Purpose::Write);
        self.cache.forget(span);
        self.marks.insert(self.band_of(span.start), span.end);
    }

    fn write_cache(&mut self, mut span: Span) {
        while span.start < span.end {
            let piece = Span::new(span.start, span.sectors().min(self.cache.contiguous()));
            while self.cache.room() < piece.sectors() {
                match self.cache.oldest() {
                    Some(sector) => self.empty(self.band_of(sector)),
                    None => self.cache.release(),
                }
            }
            let place = self.cache.append(piece);
            let place = Span::new(place, piece.sectors());
            self.arm.pass(place, Purpose::Write);
            span.start = piece.end;
        }
    }

    /// Takes everything of a band out of the cache.
    fn empty(&mut self, number: u64) {
        let band = self.band(number);
        self.arm.clean(self.home(band), self.shingles.passes);
        self.cache.forget(Span::new(band.start, self.shingles.band));
        self.marks.remove(&number);
    }
}

impl Surface for Shingled {
    fn distance(&self, span: Span) -> u64 {
        let target = match self.streams(span.start) {
            true => self.home(span).start,
            false => self.cache.end,
        };
        target.abs_diff(self.arm.at())
    }

    fn write(&mut self, mut span: Span) {
        while span.start < span.end {
            let band_end = (self.band_of(span.start) + 1) * self.shingles.band;
            let piece = Span {
                end: span.end.min(band_end),
                ..span
            };
            if self.streams(piece.start) {
                self.write_band(piece);
            } else {
                self.write_cache(piece);
            }
            self.run_on(piece);
            span.start = piece.end;
        }
    }

    fn read(&mut self, span: Span) {
        for (part, place) in self.cache.parts(span) {
            let place = place.map_or(self.home(part), |at| Span::new(at, part.sectors()));
            self.arm.pass(place, Purpose::Read);
        }
    }

    fn flush(&mut self) {
        self.arm.miss();
    }

    fn busy(&self) -> Busy {
        self.arm.busy()
    }

    fn owed(&self) -> f64 {
        let bands: BTreeSet<u64> = self.cache.map.keys().map(|s| self.band_of(*s)).collect();
        let bands = bands.into_iter().map(|number| self.home(self.band(number)));
        bands
            .map(|band| self.arm.cleaning(band, self.shingles.passes))
            .sum()
    }
}

/// The persistent cache: a ring of entries, and what of them still counts.
#[derive(Clone, Debug)]
struct Cache {
    sectors: u64,
    /// Where the next entry goes.
    end: u64,
    /// Taken, from the oldest entry to the newest.
    taken: u64,
    /// Data and places of entries, the oldest first.
    entries: VecDeque<(Span, u64)>,
    /// First data sector to the one behind the last, and the place in the cache. None overlap, none crosses a band.
    map: BTreeMap<u64, (u64, u64)>,
}

impl Cache {
    const fn new(sectors: u64) -> Cache {
        Cache {
            sectors,
            end: 0,
            taken: 0,
            entries: VecDeque::new(),
            map: BTreeMap::new(),
        }
    }

    const fn room(&self) -> u64 {
        self.sectors - self.taken
    }

    /// Sectors up to the ring's seam.
    const fn contiguous(&self) -> u64 {
        self.sectors - self.end
    }

    /// A data sector of the oldest entry for which the cache is still asked; `None` if there is none of that entry.
    fn oldest(&self) -> Option<u64> {
        let (span, place) = self.entries.front()?;
        let parts = self.parts(*span).into_iter();
        let mut live = parts.filter(|(part, at)| *at == Some(place + (part.start - span.start)));
        live.next().map(|(part, _)| part.start)
    }

    /// Gives back the room of the oldest entry.
    fn release(&mut self) {
        match self.entries.pop_front() {
            Some((span, _)) => self.taken -= span.sectors(),
            None => self.taken = 0,
        }
    }

    /// Takes room for a span that is no longer than [`Cache::contiguous`] and [`Cache::room`]; returns its place.
    fn append(&mut self, span: Span) -> u64 {
        let place = self.end;
        self.forget(span);
        self.map.insert(span.start, (span.end, place));
        self.entries.push_back((span, place));
        self.taken += span.sectors();
        self.end = (place + span.sectors()) % self.sectors;
        place
    }

    /// Entries that overlap a span: data, place.
    fn overlapping(&self, span: Span) -> impl Iterator<Item = (Span, u64)> {
        let first = self.map.range(..=span.start).next_back();
        let from = first.map_or(span.start, |(start, _)| *start);
        self.map
            .range(from..span.end)
            .map(|(start, (end, place))| {
                let (start, end) = (*start, *end);
                (Span { start, end }, *place)
            })
            .filter(move |(entry, _)| entry.overlaps(&span))
    }

    /// The parts of a span in their order, each with its place if that is in the cache.
    fn parts(&self, span: Span) -> Vec<(Span, Option<u64>)> {
        let mut parts = Vec::new();
        let mut at = span.start;
        for (entry, place) in self.overlapping(span) {
            let start = entry.start.max(at);
            if at < start {
                parts.push((
                    Span {
                        start: at,
                        end: start,
                    },
                    None,
                ));
            }
            let end = entry.end.min(span.end);
            parts.push((Span { start, end }, Some(place + (start - entry.start))));
            at = end;
        }
        if at < span.end {
            parts.push((Span { start: at, ..span }, None));
        }
        parts
    }

    /// A span is no longer in the cache.
    fn forget(&mut self, span: Span) {
        let cut: Vec<(Span, u64)> = self.overlapping(span).collect();
        for (entry, place) in cut {
            self.map.remove(&entry.start);
            if entry.start < span.start {
                self.map.insert(entry.start, (span.start, place));
            }
            if entry.end > span.end {
                let place = place + (span.end - entry.start);
                self.map.insert(span.end, (entry.end, place));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::preset::HARD_DISK;
    use super::*;

    const SHINGLES: Shingles = Shingles {
        band: 1000,
        cache: 100,
        streamed: 50,
        runs: 2,
        passes: 3.0,
    };
    const SECTORS: u64 = 10_000;

    fn disk() -> Shingled {
        Shingled::new(SHINGLES, HARD_DISK, SECTORS)
    }

    /// Seconds of rewriting a band three times.
    fn three_passes(disk: &Shingled, band: u64) -> f64 {
        disk.arm
            .cleaning(Span::new(SHINGLES.cache + band * 1000, 1000), 3.0)
    }

    #[test]
    fn scattered_writes_lie_side_by_side_in_the_cache() {
        let mut disk = disk();
        for start in [7000, 100, 3500, 9990] {
            disk.write(Span::new(start, 10));
        }
        assert_eq!((disk.arm.at(), disk.arm.busy().positionings), (40, 0));
        // And are read from there, the parts beside them from their homes.
        disk.read(Span::new(3500, 10));
        assert_eq!(disk.arm.at(), 30);
        disk.read(Span::new(3495, 20));
        assert_eq!(disk.arm.at(), SHINGLES.cache + 3515);
        assert_eq!(disk.arm.busy().cleaning, 0.0);
        let owed: f64 = [7, 0, 3, 9].iter().map(|b| three_passes(&disk, *b)).sum();
        assert!((disk.owed() - owed).abs() < 1e-12);
    }

    #[test]
    fn a_full_cache_rewrites_the_band_of_its_oldest_entry() {
        let mut disk = disk();
        for band in 0..10 {
            disk.write(Span::new(band * 1000 + 5, 10));
        }
        assert_eq!(disk.arm.busy().cleaning, 0.0);
        disk.write(Span::new(4100, 10));
        assert!((disk.arm.busy().cleaning - three_passes(&disk, 0)).abs() < 1e-12);
        // Band 1 takes two entries out at once, but room comes back from the oldest on.
        disk.write(Span::new(1500, 5));
        let two = three_passes(&disk, 0) + three_passes(&disk, 1);
        assert!((disk.arm.busy().cleaning - two).abs() < 1e-12);
    }

    #[test]
    fn an_entry_that_was_overwritten_costs_no_rewrite() {
        let mut disk = disk();
        for _ in 0..30 {
            disk.write(Span::new(2000, 10));
        }
        assert_eq!(disk.arm.busy().cleaning, 0.0);
        assert!((disk.owed() - three_passes(&disk, 2)).abs() < 1e-12);
    }

    #[test]
    fn a_run_goes_to_its_band_once_it_has_streamed_enough() {
        let mut disk = disk();
        // 60 sectors ahead of band 3, then on: the band starts a run's direct part.
        for start in (2940..3100).step_by(20) {
            disk.write(Span::new(start, 20));
        }
        assert_eq!(disk.arm.at(), SHINGLES.cache + 3100);
        assert_eq!(disk.cache.taken, 60);
        // Elsewhere in a full band even a long run is cached.
        disk.write(Span::new(3110, 10));
        assert!(disk.arm.at() <= SHINGLES.cache);
        // But the mark can be gone on from, by the run that ended there.
        disk.write(Span::new(3100, 10));
        assert_eq!(disk.arm.at(), SHINGLES.cache + 3110);
    }

    #[test]
    fn only_the_last_runs_are_remembered() {
        let mut disk = disk();
        disk.write(Span::new(2900, 80));
        disk.write(Span::new(5000, 1));
        disk.write(Span::new(2980, 5));
        disk.write(Span::new(6000, 1));
        disk.write(Span::new(7000, 1));
        disk.write(Span::new(2985, 5));
        disk.write(Span::new(2990, 10));
        // 15 sectors of this run are remembered, not 100.
        assert!(!disk.streams(3000));
    }
}
