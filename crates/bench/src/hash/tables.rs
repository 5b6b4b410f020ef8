//! The paper's Table I and Figures 3, 9 and 10, and the same questions of our tracks.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::disk::Disk;
use super::placed::{Misses, files_at, fill};
use super::ranges::{Directory, Policy, Shape};
use super::{BLOCK, Sample};
use crate::disk::Preset;
use crate::disk::replay::Meter;
use crate::suite::random::generator;
use crate::trace::{Op, Request, SECTOR};

/// Millions of files, and what the paper's Table I has for them. It names none below 13.
const TABLE: [(u64, f64); 6] = [
    (13, 0.0),
    (14, 1.9),
    (15, 25.7),
    (16, 277.9),
    (17, 1_946.6),
    (18, 10_170.0),
];
/// Blocks of a file (Fig. 3).
const SIZES: [u64; 4] = [1, 2, 3, 4];
/// Parts of a disk that are in use (Fig. 3).
const FILLED: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// The partition of the paper's measurements, in bytes.
const PARTITION: u64 = 90 << 30;
/// Sectors of a track (Figs 9 and 10).
const TRACKS: [u64; 6] = [100, 200, 300, 500, 700, 900];
/// Parts of the partition that were in use when it was measured.
const MEASURED: [f64; 4] = [0.27, 0.54, 0.81, 0.9];
/// Reads that are priced together (Fig. 9).
const READS: u64 = 2_000;
/// Bytes of our tracks.
const OURS: [u64; 3] = [64 << 10, 128 << 10, 256 << 10];
/// Parts of a range's names that may wait.
const WAITS: [f64; 3] = [1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0];
/// Parts of a volume in use, by which our tracks are packed.
const PACKED: [f64; 2] = [0.27, 0.81];
/// Files of a directory, as in the flat set, and of directories in the deep one.
const FLAT: u64 = 10_000;
const DEEP: u64 = 100;

/// How much is simulated.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scale {
    /// Runs of which a mean is taken.
    pub runs: u64,
    /// Where their chance comes from.
    pub seed: u64,
    /// One of so many tracks of each disk, and of so many files.
    pub part: u64,
}

/// Files without a track inode (Table I).
#[derive(Clone, Debug, Serialize)]
pub struct TrackInodes {
    /// Millions of files of 4 KiB.
    pub millions: u64,
    /// How many of them miss.
    pub misses: Sample,
    /// What the paper has.
    pub paper: f64,
}

/// Files without their data on their track, in percent.
#[derive(Clone, Debug, Serialize)]
pub struct Data {
    /// KiB of a file.
    pub kib: u64,
    /// Sectors of a track; `None`: of the paper's zones.
    pub sectors: Option<u64>,
    /// Part of the disk in use.
    pub utilisation: f64,
    /// Of all files, in percent: those without a track inode too.
    pub missed: Sample,
}

/// What reading whole tracks by chance costs (Fig. 9).
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Sectors of a track.
    pub sectors: u64,
    /// Reads a second on the reference disk.
    pub reads: f64,
}

/// What our tracks come to when each file of a directory has been replaced once on average.
#[derive(Clone, Debug, Serialize)]
pub struct Ours {
    /// Files of a directory.
    pub files: u64,
    /// When tracks are written, and how large.
    pub policy: Policy,
    /// How full the volume is, 0 to 1.
    pub utilisation: f64,
    /// What they come to.
    pub shape: Shape,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How much was simulated.
    pub scale: Scale,
    /// Table I.
    pub table_1: Vec<TrackInodes>,
    /// Figure 3.
    pub figure_3: Vec<Data>,
    /// Figure 9.
    pub figure_9: Vec<Rate>,
    /// Figure 10.
    pub figure_10: Vec<Data>,
    /// Our tracks.
    pub ours: Vec<Ours>,
}

impl Report {
    /// Simulates all of it; `tell` hears what comes next.
    pub fn new(scale: Scale, tell: &mut dyn FnMut(&str)) -> Report {
        tell("track inodes (Table I)");
        let table_1 = TABLE.map(|(millions, paper)| scale.track_inodes(millions, paper));
        tell("data, by size of files (Fig. 3)");
        let disk = Disk::of_the_paper(scale.part);
        let by_size = SIZES.iter().flat_map(|blocks| {
            let of = |filled: &f64| scale.data(&disk, None, *blocks, *filled);
            FILLED.iter().map(of).collect::<Vec<_>>()
        });
        let figure_3 = by_size.collect();
        tell("data, by size of tracks (Figs 9 and 10)");
        let by_track = TRACKS.iter().flat_map(|sectors| {
            let disk = Disk::uniform(PARTITION / scale.part, *sectors);
            let of = |filled: &f64| scale.data(&disk, Some(*sectors), 1, *filled);
            MEASURED.iter().map(of).collect::<Vec<_>>()
        });
        let figure_10 = by_track.collect();
        let figure_9 = TRACKS.map(|sectors| scale.rate(sectors));
        tell("our tracks");
        Report {
            scale,
            table_1: table_1.to_vec(),
            figure_3,
            figure_9: figure_9.to_vec(),
            figure_10,
            ours: scale.ours(),
        }
    }
}

impl Scale {
    /// The chance of a run.
    fn random(&self, run: u64) -> ChaCha8Rng {
        generator(self.seed.wrapping_add(run), "hash")
    }

    fn runs(&self, figure: impl Fn(&mut ChaCha8Rng) -> f64) -> Sample {
        let figures: Vec<f64> = (0..self.runs)
            .map(|run| figure(&mut self.random(run)))
            .collect();
        Sample::of(&figures)
    }

    fn track_inodes(&self, millions: u64, paper: f64) -> TrackInodes {
        let disk = Disk::of_the_paper(self.part);
        let files = millions * 1_000_000 / self.part;
        let misses = self.runs(|random| fill(&disk, files, 1, random).inodes as f64);
        TrackInodes {
            millions,
            misses: misses.times(self.part as f64),
            paper,
        }
    }

    fn data(&self, disk: &Disk, sectors: Option<u64>, blocks: u64, utilisation: f64) -> Data {
        let files = files_at(disk, blocks, utilisation);
        let missed = |random: &mut ChaCha8Rng| {
            let Misses { inodes, data } = fill(disk, files, blocks, random);
            100.0 * (inodes + data) as f64 / files.max(1) as f64
        };
        Data {
            kib: (blocks * BLOCK) >> 10,
            sectors,
            utilisation,
            missed: self.runs(missed),
        }
    }

    fn rate(&self, sectors: u64) -> Rate {
        let tracks = PARTITION / SECTOR / sectors;
        let mut meter = Meter::new(Preset::Reference, PARTITION);
        let mut random = self.random(0);
        for _ in 0..READS {
            meter.take(&Request {
                micros: 0,
                op: Op::Read,
                marks: String::new(),
                sector: random.random_range(0..tracks) * sectors,
                sectors,
            });
        }
        Rate {
            sectors,
            reads: READS as f64 / meter.seconds(),
        }
    }

    fn ours(&self) -> Vec<Ours> {
        let mut ours = Vec::new();
        for files in [FLAT, DEEP] {
            for track in OURS {
                for utilisation in PACKED {
                    for waits in WAITS {
                        let policy = Policy::at(utilisation, track, waits);
                        ours.push(Ours {
                            files,
                            policy,
                            utilisation,
                            shape: self.shape(files, policy),
                        });
                    }
                }
            }
        }
        ours
    }

    /// The mean of as many directories as make up [`FLAT`] files. Files are of 4 to 16 KiB, as the sets are here.
    fn shape(&self, files: u64, policy: Policy) -> Shape {
        let (blocks, mut random) = (4, self.random(0));
        let mut shapes = Vec::new();
        for _ in 0..(FLAT / files).max(1) {
            let mut directory = Directory::new(policy, files, blocks, &mut random);
            (0..files).for_each(|_| directory.replace(blocks, &mut random));
            shapes.push(directory.shape());
        }
        let mean = |of: fn(&Shape) -> f64| {
            let figures: Vec<f64> = shapes.iter().map(of).collect();
            Sample::of(&figures).mean
        };
        Shape {
            missed: mean(|shape| shape.missed),
            read: mean(|shape| shape.read),
            table: mean(|shape| shape.table),
            written: mean(|shape| shape.written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_report() {
        let scale = Scale {
            runs: 2,
            seed: 1,
            part: 1000,
        };
        let report = || Report::new(scale, &mut |_| {});
        let text = |report: &Report| serde_json::to_string(report).unwrap();
        assert_eq!(text(&report()), text(&report()));
    }
}
