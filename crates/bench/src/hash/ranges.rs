//! Our tracks: each a range of its directory's keys, written whole by a segment, never again in place. What is new lives
//! in the log until its range is written anew, so that it is not room that decides what misses, but how long one waits.

use std::collections::BTreeMap;

use rand::{Rng, RngExt};
use serde::Serialize;

use super::BLOCK;

/// Names that the head of a track has slots for.
const SLOTS: u64 = 64;
/// Bytes of the head.
const HEAD: u64 = 8 << 10;
/// Bytes that the directory's table needs for a track: lowest key, address, length, stale slots, names elsewhere.
const ENTRY: u64 = 8 + 8 + 2 + 8 + 2;

/// When tracks are written, and how large.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Policy {
    /// Most bytes of a track.
    pub track: u64,
    /// How full a track is packed when it is written, 0 to 1.
    pub packed: f64,
    /// A range is written anew when more than this part of its names are elsewhere or gone, 0 to 1.
    pub waits: f64,
}

impl Policy {
    /// Packed as full as a volume that is used so far (S4): half while it is empty, whole when it is full.
    pub fn at(utilisation: f64, track: u64, waits: f64) -> Policy {
        Policy {
            track,
            packed: (1.0 + utilisation.clamp(0.0, 1.0)) / 2.0,
            waits,
        }
    }
}

/// What the tracks of a directory come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shape {
    /// Part of the names that are in no track.
    pub missed: f64,
    /// Bytes that are read for a file that is in a track.
    pub read: f64,
    /// Bytes of the table for a file.
    pub table: f64,
    /// Bytes written to tracks for each byte of files.
    pub written: f64,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    bytes: u64,
    is_settled: bool,
}

/// A range of keys, by its lowest one.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// Bytes on the disk, those of names that are gone too.
    bytes: u64,
    names: u64,
    /// Slots whose name is gone or was written anew.
    stale: u64,
    elsewhere: u64,
}

/// A directory.
#[derive(Debug)]
pub struct Directory {
    policy: Policy,
    names: BTreeMap<u64, Name>,
    tracks: BTreeMap<u64, Track>,
    /// Bytes of files since its first settling, and of tracks.
    created: u64,
    written: u64,
}

impl Directory {
    /// One of so many files of up to so many blocks, all of them settled.
    pub fn new(policy: Policy, files: u64, blocks: u64, random: &mut impl Rng) -> Directory {
        let mut directory = Directory {
            policy,
            names: BTreeMap::new(),
            tracks: BTreeMap::from([(0, Track::default())]),
            created: 0,
            written: 0,
        };
        for _ in 0..files {
            directory.add(blocks, random);
        }
        directory.settle(0);
        (directory.created, directory.written) = (0, 0);
        directory
    }

    fn add(&mut self, blocks: u64, random: &mut impl Rng) -> u64 {
        let (key, bytes) = (random.next_u64(), BLOCK * random.random_range(1..=blocks));
        let is_settled = false;
        self.names.insert(key, Name { bytes, is_settled });
        self.created += bytes;
        key
    }

    /// Removes a file and creates another one.
    pub fn replace(&mut self, blocks: u64, random: &mut impl Rng) {
        let from = random.next_u64();
        let behind = self.names.range(from..).next();
        if let Some((&gone, _)) = behind.or_else(|| self.names.first_key_value()) {
            self.remove(gone);
        }
        let key = self.add(blocks, random);
        let (low, track) = self.track_mut(key);
        track.elsewhere += 1;
        self.settle_if_due(low);
    }

    fn remove(&mut self, key: u64) {
        let Some(name) = self.names.remove(&key) else {
            return;
        };
        let (low, track) = self.track_mut(key);
        if name.is_settled {
            track.stale += 1;
        } else {
            track.elsewhere -= 1;
        }
        self.settle_if_due(low);
    }

    /// The track in whose range a key is.
    fn track_mut(&mut self, key: u64) -> (u64, &mut Track) {
        let low = self.tracks.range(..=key).next_back();
        let low = low.map_or(0, |(low, _)| *low);
        (low, self.tracks.entry(low).or_default())
    }

    fn settle_if_due(&mut self, low: u64) {
        let track = self.tracks.get(&low).copied().unwrap_or_default();
        let changed = (track.stale + track.elsewhere) as f64;
        if changed > self.policy.waits * track.names.max(1) as f64 {
            self.settle(low);
        }
    }

    /// Writes the tracks of a range anew, together with a neighbour where both are small.
    fn settle(&mut self, low: u64) {
        self.tracks.remove(&low);
        let high = self.tracks.range(low..).next().map(|(high, _)| *high);
        let room = (self.policy.track - HEAD) as f64 * self.policy.packed;
        let slots = SLOTS as f64 * self.policy.packed;
        let range = self
            .names
            .range_mut(low..=high.map_or(u64::MAX, |high| high - 1));
        let (mut names, mut bytes) = (Vec::new(), 0);
        for (key, name) in range {
            name.is_settled = true;
            names.push((*key, name.bytes));
            bytes += name.bytes;
        }
        let small = (bytes as f64) < room / 4.0 && (names.len() as f64) < slots / 4.0;
        if small && let Some(high) = high {
            self.tracks.remove(&high);
            return self.settle(low);
        }
        let tracks = (bytes as f64 / room).max(names.len() as f64 / slots).ceil();
        let share = bytes as f64 / tracks.max(1.0);
        let most = (names.len() as f64 / tracks.max(1.0)).ceil() as u64;
        let (mut at, mut track) = (low, Track::default());
        for (key, bytes) in names {
            let is_full = track.names >= most || track.bytes as f64 >= share;
            let is_over = track.bytes + bytes > self.policy.track - HEAD;
            if track.names > 0 && (is_full || is_over) {
                self.write(at, track);
                (at, track) = (key, Track::default());
            }
            track.bytes += bytes;
            track.names += 1;
        }
        self.write(at, track);
    }

    fn write(&mut self, low: u64, track: Track) {
        let bytes = track.bytes + HEAD;
        self.written += bytes;
        self.tracks.insert(low, Track { bytes, ..track });
    }

    /// What it has come to.
    pub fn shape(&self) -> Shape {
        let names = self.names.len().max(1) as f64;
        let elsewhere: u64 = self.tracks.values().map(|track| track.elsewhere).sum();
        let live = |track: &Track| (track.names - track.stale) as f64;
        let settled: f64 = self.tracks.values().map(live).sum();
        let read = |track: &Track| live(track) * track.bytes as f64;
        Shape {
            missed: elsewhere as f64 / names,
            read: self.tracks.values().map(read).sum::<f64>() / settled.max(1.0),
            table: (self.tracks.len() as u64 * ENTRY) as f64 / names,
            written: self.written as f64 / self.created.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn aged(policy: Policy) -> Directory {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut directory = Directory::new(policy, 2000, 4, &mut random);
        for _ in 0..4000 {
            directory.replace(4, &mut random);
        }
        directory
    }

    #[test]
    fn every_name_is_in_one_track_or_counted() {
        for utilisation in [0.0, 0.5, 1.0] {
            let policy = Policy::at(utilisation, 256 << 10, 0.25);
            let directory = aged(policy);
            assert_eq!(directory.names.len(), 2000);
            let mut lows: Vec<u64> = directory.tracks.keys().copied().collect();
            lows.push(u64::MAX);
            for (range, track) in lows.windows(2).zip(directory.tracks.values()) {
                let names = directory.names.range(range[0]..range[1]);
                let settled = names.clone().filter(|(_, name)| name.is_settled).count();
                assert_eq!(settled as u64, track.names - track.stale);
                assert_eq!(names.count() - settled, track.elsewhere as usize);
                assert!(track.names <= SLOTS && track.bytes <= policy.track);
            }
        }
    }

    #[test]
    fn who_waits_longer_writes_less_and_misses_more() {
        let shapes = [0.05, 0.25].map(|waits| aged(Policy::at(0.8, 256 << 10, waits)).shape());
        assert!(shapes[0].written > shapes[1].written, "{shapes:?}");
        assert!(shapes[0].missed < shapes[1].missed, "{shapes:?}");
    }
}
