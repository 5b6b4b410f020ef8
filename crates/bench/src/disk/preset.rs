//! Disks that have names. Sizes follow from the device that was traced.

use std::fmt;

use super::conventional::Conventional;
use super::flash::{Cells, Flash};
use super::mechanics::Mechanics;
use super::queue::Queue;
use super::shingled::{Shingled, Shingles};
use super::{Arm, Surface};
use crate::trace::SECTOR;

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Preset {
    /// A hard disk of 7200 rpm.
    Reference,
    /// A drive-managed shingled disk with the mechanics of `reference`.
    ReferenceShingled,
    /// A solid-state disk on SATA.
    FlashSata,
    /// A solid-state disk on PCI Express, of the class of the ioDrive.
    FlashPcie,
}

/// The mechanics of `reference`, which stand for a usual desktop disk of 3.5 inches, of no make:
/// - 7200 rpm: most such disks, and all conventional ones that hFS and ext4-lazy were measured on since 2000;
/// - 0.8 ms from track to track, 8.5 ms over a third of the stroke, 16 ms over all of it: the order of what data
///   sheets of such disks name for track to track, average and full seeks;
/// - 200 to 150 MB/s: the outer edge of disks of about 1 TB a platter. The inner edge of a full stroke is slower
///   (about half); 150 MB/s stands for a volume that does not go to the very end.
pub const HARD_DISK: Mechanics = Mechanics {
    turn: 60.0 / 7200.0,
    shortest: 0.8e-3,
    average: 8.5e-3,
    longest: 16e-3,
    outer: 200e6,
    inner: 150e6,
};

/// A solid-state disk on SATA, of no make:
/// - 550 MB/s on the bus, and 7 % more cells than bytes: what data sheets of such disks name since SATA 3;
/// - pages of 16 KiB, blocks of 4 MiB; 60 us to read a page, 600 to program it, 3 ms to erase a block: the order of cells of three
///   bits. 32 of them at a time (eight channels of four dies) make 870 MB/s, so that the bus limits long writes;
/// - 12 us a command: some 80,000 writes of 4 KiB a second, and 12,000 reads, one by one;
/// - what it has taken is lost when power fails: a flush programs it.
pub const SATA: Cells = Cells {
    page: 16 << 10,
    block_pages: 256,
    spare: 0.07,
    dies: 32,
    read: 60e-6,
    program: 600e-6,
    erase: 3e-3,
    bus: 550e6,
    command: 12e-6,
    protected: false,
};

/// The class of the ioDrive, which hybridFS was measured on:
/// - cells of one bit: pages of 4 KiB, blocks of 256 KiB; 25 us to read a page, 200 to program it, 1.5 ms to erase a block (Agrawal
///   et al., "Design Tradeoffs for SSD Performance", USENIX ATC 2008, table 1);
/// - 700 MB/s of reads, as its data sheet says, and 25 dies at a time, which make the 500 MB/s of writes;
/// - a quarter more cells than bytes; 5 us a command. What it has taken it keeps.
pub const PCIE: Cells = Cells {
    page: 4 << 10,
    block_pages: 64,
    spare: 0.25,
    dies: 25,
    read: 25e-6,
    program: 200e-6,
    erase: 1.5e-3,
    bus: 700e6,
    command: 5e-6,
    protected: true,
};

/// Writes that wait: the depth of SATA's native command queueing.
const DEPTH: usize = 32;

/// Sectors that waiting writes are merged up to: 4 MiB.
const MERGED: u64 = (4 << 20) / SECTOR;

/// Sectors of a band of 30 MiB: ext4-lazy's, of a disk of its evaluation.
const BAND: u64 = (30 << 20) / SECTOR;

/// Passes over a band that empty the cache of it: it is read, written aside and written in place (ext4-lazy: "about 90 MiB"
/// for a band of 30).
const PASSES: f64 = 3.0;

/// Sectors after which a run counts as sequential, and runs that are told apart: ext4-lazy says that sequential writes are
/// detected and go past the cache, and nobody has published when. 1 MiB is longer than any request; eight runs stand for the
/// few that a journal, its file system and a user or two write side by side.
const STREAMED: u64 = (1 << 20) / SECTOR;
const RUNS: usize = 8;

/// Sectors of the persistent cache: a hundredth of the device, and no less than 128 MiB, so that the small devices of
/// quick runs have one to speak of.
const fn cache(sectors: u64) -> u64 {
    let (part, least) = (sectors / 100, (128 << 20) / SECTOR);
    if part > least { part } else { least }
}

/// A disk that can be used.
pub struct Disk {
    /// Its queue.
    pub queue: Queue,
    /// What it writes on.
    pub surface: Box<dyn Surface>,
}

impl Preset {
    /// Those that turn, which LoamFS is for.
    pub const TURNING: [Preset; 2] = [Preset::Reference, Preset::ReferenceShingled];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Reference => "reference",
            Preset::ReferenceShingled => "reference-shingled",
            Preset::FlashSata => "flash-sata",
            Preset::FlashPcie => "flash-pcie",
        }
    }

    /// A disk of `sectors` sectors.
    pub fn disk(self, sectors: u64) -> Disk {
        let surface: Box<dyn Surface> = match self {
            Preset::Reference => Box::new(Conventional::new(Arm::new(HARD_DISK, sectors))),
            Preset::ReferenceShingled => {
                let shingles = Shingles {
                    band: BAND,
                    cache: cache(sectors),
                    streamed: STREAMED,
                    runs: RUNS,
                    passes: PASSES,
                };
                Box::new(Shingled::new(shingles, HARD_DISK, sectors))
            }
            Preset::FlashSata => Box::new(Flash::new(SATA, sectors)),
            Preset::FlashPcie => Box::new(Flash::new(PCIE, sectors)),
        };
        Disk {
            queue: Queue::new(DEPTH, MERGED),
            surface,
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_devices_get_a_cache_of_128_mib() {
        assert_eq!(cache((2 << 30) / SECTOR) * SECTOR, 128 << 20);
        assert_eq!(cache((100 << 30) / SECTOR) * SECTOR, 1 << 30);
    }
}
