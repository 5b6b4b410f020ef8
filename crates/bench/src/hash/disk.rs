//! A disk as tracks that a hash chooses from.

use super::BLOCK_SECTORS;

/// Tracks of the paper's disk, WDC WD800BB.
const TRACKS: u64 = 225_390;
/// Of these, the part that ext2's own structures fill, so that no file is hashed there.
const METADATA: f64 = 0.0163;
/// Sectors a track, zone by zone from the outside on, all zones of as many tracks. The paper only says that there are
/// 500 to 765, and this is ours: 500 + 265 (1 - x)^1.1 in the middle of each sixteenth. Tracks of one size would miss
/// 240 of 18 million files, a linear fall 7,800.
const ZONES: [u64; 16] = [
    756, 738, 720, 702, 684, 667, 650, 633, 616, 600, 584, 568, 553, 538, 524, 509,
];

/// Tracks of one size that follow each other.
#[derive(Clone, Copy, Debug)]
struct Zone {
    /// The sectors before it.
    before: u64,
    first: u64,
    sectors: u64,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct Disk {
    zones: Vec<Zone>,
    tracks: u64,
    sectors: u64,
}

impl Disk {
    /// The paper's, of which only one of `part` tracks is there.
    pub fn of_the_paper(part: u64) -> Disk {
        let usable = (TRACKS as f64 * (1.0 - METADATA)) as u64 / part.max(1);
        let zones = ZONES.len() as u64;
        let bounds = (0..zones).map(|zone| usable * zone / zones);
        Disk::new(bounds.zip(ZONES), usable)
    }

    /// One of so many bytes with tracks of one size, as the paper's own program took it.
    pub fn uniform(bytes: u64, sectors: u64) -> Disk {
        let sectors = sectors.max(1);
        Disk::new([(0, sectors)], bytes / crate::trace::SECTOR / sectors)
    }

    /// Zones by first track and sectors a track.
    fn new(zones: impl IntoIterator<Item = (u64, u64)>, tracks: u64) -> Disk {
        let mut disk = Disk {
            zones: Vec::new(),
            tracks,
            sectors: 0,
        };
        for (first, sectors) in zones {
            disk.sectors = disk.sectors_before(first);
            disk.zones.push(Zone {
                before: disk.sectors,
                first,
                sectors,
            });
        }
        disk.sectors = disk.sectors_before(tracks);
        disk
    }

    fn sectors_before(&self, track: u64) -> u64 {
        let before = |zone: &Zone| zone.before + (track - zone.first) * zone.sectors;
        self.zones.last().map_or(0, before)
    }

    /// Its number of tracks.
    pub const fn tracks(&self) -> u64 {
        self.tracks
    }

    /// The track of a hash, which all have the same chance of that they have room.
    pub fn track_of(&self, hash: u64) -> usize {
        let at = (u128::from(hash) * u128::from(self.sectors)) >> 64;
        let at = at as u64;
        let zone = self.zones.iter().rev().find(|zone| zone.before <= at);
        zone.map_or(0, |zone| zone.first + (at - zone.before) / zone.sectors) as usize
    }

    /// Blocks of each track.
    pub fn blocks(&self) -> Vec<u64> {
        let mut blocks = Vec::with_capacity(self.tracks as usize);
        for (index, zone) in self.zones.iter().enumerate() {
            let end = self.zones.get(index + 1).map_or(self.tracks, |z| z.first);
            let here = (end - zone.first) as usize;
            blocks.extend(std::iter::repeat_n(zone.sectors / BLOCK_SECTORS, here));
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_finds_each_track_by_its_size() {
        let disk = Disk::new([(0, 30), (2, 20)], 4);
        let part = |of: u64| u64::MAX / 100 * of + u64::MAX / 200;
        let tracks: Vec<usize> = [0, 29, 30, 59, 60, 79, 80, 99]
            .map(|percent| disk.track_of(part(percent)))
            .to_vec();
        assert_eq!(tracks, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(disk.blocks(), [3, 3, 2, 2]);
        assert_eq!(disk.track_of(u64::MAX), 3);
    }
}
