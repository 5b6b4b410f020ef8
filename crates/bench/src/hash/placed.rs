//! The paper's placement: a file belongs to the track that the hash of its path chooses, as long as there is room.

use rand::Rng;
use serde::Serialize;

use super::disk::Disk;

/// Track inodes that one track's block holds (IV.A).
const SLOTS: u8 = 113;
/// Blocks of a file for which its track has to have room (III.A, x).
const FIRST: u64 = 4;
/// The part of a track that files longer than [`FIRST`] leave free while the disk is empty (III.A).
const RESERVE: f64 = 0.5;

/// Files that one access does not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// Their track had no free track inode: they are looked up as on any file system.
    pub inodes: u64,
    /// Their track had a track inode, and no room for the data: a second access reads these.
    pub data: u64,
}

/// A disk while it fills.
#[derive(Debug)]
struct Filling<'d> {
    disk: &'d Disk,
    /// Track inodes in use.
    slots: Vec<u8>,
    /// Free blocks.
    free: Vec<u64>,
    /// For each track with room itself, for each full one another behind it, where the search goes on.
    next: Vec<u32>,
    blocks: Vec<u64>,
    total: u64,
    used: u64,
}

impl<'d> Filling<'d> {
    fn new(disk: &'d Disk) -> Filling<'d> {
        // The first block of each track holds its track inodes.
        let blocks: Vec<u64> = disk.blocks().iter().map(|b| b.saturating_sub(1)).collect();
        let tracks = blocks.len();
        Filling {
            disk,
            slots: vec![0; tracks],
            free: blocks.clone(),
            next: (0..=tracks as u32).collect(),
            total: blocks.iter().sum(),
            used: 0,
            blocks,
        }
    }

    /// The first track from `from` on that has room; the number of tracks when there is none.
    fn with_room(&mut self, from: usize) -> usize {
        let mut at = from;
        while let Some(&to) = self.next.get(at) {
            let to = to as usize;
            if to == at {
                break;
            }
            // Who comes by again skips what is full.
            self.next[at] = self.next[to];
            at = to;
        }
        at
    }

    fn take(&mut self, track: usize, blocks: u64) {
        self.free[track] -= blocks;
        self.used += blocks;
        if self.free[track] == 0 {
            self.next[track] = track as u32 + 1;
        }
    }

    /// Gives blocks on whatever tracks have room, from the one behind this on and then from the first.
    fn take_elsewhere(&mut self, track: usize, mut blocks: u64) {
        let mut from = track + 1;
        while blocks > 0 {
            let track = self.with_room(from);
            if track == self.free.len() {
                if from == 0 {
                    return;
                }
                from = 0;
                continue;
            }
            let here = blocks.min(self.free[track]);
            self.take(track, here);
            blocks -= here;
        }
    }

    /// What longer files leave free of a track: less, the fuller the disk is.
    fn reserve(&self, track: usize) -> u64 {
        let empty = 1.0 - self.used as f64 / self.total.max(1) as f64;
        (self.blocks[track] as f64 * RESERVE * empty) as u64
    }

    fn create(&mut self, hash: u64, blocks: u64, misses: &mut Misses) {
        let track = self.disk.track_of(hash);
        if self.slots[track] == SLOTS {
            misses.inodes += 1;
            return self.take_elsewhere(track, blocks);
        }
        self.slots[track] += 1;
        let first = blocks.min(FIRST);
        if self.free[track] < first {
            misses.data += 1;
            return self.take_elsewhere(track, blocks);
        }
        self.take(track, first);
        let rest = blocks - first;
        if self.free[track] >= rest + self.reserve(track) {
            self.take(track, rest);
        } else {
            self.take_elsewhere(track, rest);
        }
    }
}

/// Creates so many files of so many blocks each.
pub fn fill(disk: &Disk, files: u64, blocks: u64, random: &mut impl Rng) -> Misses {
    let mut filling = Filling::new(disk);
    let mut misses = Misses::default();
    for _ in 0..files {
        filling.create(random.next_u64(), blocks, &mut misses);
    }
    misses
}

/// How many files of so many blocks use so much of a disk, its track inodes included.
pub fn files_at(disk: &Disk, blocks: u64, utilisation: f64) -> u64 {
    let total: u64 = disk.blocks().iter().sum();
    let data = (total as f64 * utilisation) as u64;
    data.saturating_sub(disk.tracks()) / blocks.max(1)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// A tenth of the paper's disk has a tenth of its misses.
    #[test]
    fn track_inodes_run_out_as_in_the_papers_first_table() {
        let disk = Disk::of_the_paper(10);
        let misses = |million: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(million);
            fill(&disk, million * 100_000, 1, &mut random).inodes
        };
        assert_eq!(misses(13), 0);
        let (at_16, at_18) = (misses(16), misses(18));
        assert!((10..80).contains(&at_16), "{at_16}, the paper: 28");
        assert!((500..2000).contains(&at_18), "{at_18}, the paper: 1017");
    }

    #[test]
    fn larger_files_miss_their_tracks_more_often() {
        let disk = Disk::of_the_paper(100);
        let missed = [1, 2, 3, 4].map(|blocks| {
            let files = files_at(&disk, blocks, 0.8);
            let misses = fill(&disk, files, blocks, &mut ChaCha8Rng::seed_from_u64(1));
            misses.data as f64 / files as f64
        });
        assert!(missed.is_sorted(), "{missed:?}");
    }

    #[test]
    fn what_does_not_fit_takes_room_elsewhere() {
        // Two tracks of nine blocks each, one of them for track inodes.
        let disk = Disk::uniform(2 * 72 * 512, 72);
        let mut filling = Filling::new(&disk);
        let mut misses = Misses::default();
        for _ in 0..4 {
            filling.create(0, 3, &mut misses);
        }
        // The third one finds two blocks, the fourth none of a full disk's last four.
        assert_eq!(misses, Misses { inodes: 0, data: 2 });
        assert_eq!(filling.used, 12);
        filling.take_elsewhere(1, 100);
        assert_eq!(filling.used, 16);
    }

    #[test]
    fn long_files_leave_a_part_of_their_track_free() {
        let disk = Disk::uniform(2 * 648 * 512, 648);
        let mut filling = Filling::new(&disk);
        let mut misses = Misses::default();
        filling.create(0, 60, &mut misses);
        // 80 blocks of data: 4 here, and the rest where nothing else is.
        assert_eq!((filling.free[0], filling.free[1]), (76, 80 - 56));
        assert_eq!(misses, Misses::default());
    }
}
