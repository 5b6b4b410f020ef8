//! hashFS, section IV: single files are read by name. The flat set has few directories, the deep one a hundred times as
//! many, below each other. Caches are dropped every 100 reads; since hashFS rejects figures from cold caches alone, the
//! uniform reads are done once more, warm, after as many earlier ones.

use std::fs;
use std::path::{Path, PathBuf};

use super::random::{below, generator, zipf};
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::{Content, read_whole, write_new};

/// Reads between drops of all caches.
const DROP_EVERY: usize = 100;
/// Bytes of a file: hashFS's are of 4 KiB.
const FILE: usize = 4096;
/// Files of a directory of the flat set, as the paper's; the deep set has a hundredth.
const FLAT: u64 = 10_000;
const DEEP: u64 = 100;
/// Directories below each other in the deep set: six levels in all.
const FAN: u64 = 4;

/// `count` files in each set, `reads` reads of each kind.
pub fn run(stage: &mut Stage<'_>, count: u64, reads: u64, seed: u64) -> Result<(), Error> {
    for (set, path) in [("flat", flat as fn(u64) -> PathBuf), ("deep", deep)] {
        let root = stage.root().join(set);
        stage.phase(&format!("setup-{set}"), End::Remount, |_, beat| {
            let mut content = Content::new(FILE);
            let mut last = PathBuf::new();
            for number in 0..count {
                let path = root.join(path(number));
                let directory = path.parent().unwrap_or(&root);
                if directory != last {
                    fs::create_dir_all(directory).map_err(Error::at("making", directory))?;
                    last = directory.to_owned();
                }
                write_new(&path, content.of(number, FILE))?;
                beat.tick()?;
            }
            Ok(())
        })?;
        let mut random = generator(seed, set);
        let uniform: Vec<u64> = (0..reads).map(|_| below(&mut random, count)).collect();
        let skewed = zipf(&mut random, count, reads);
        let paths = |numbers: &[u64]| -> Vec<PathBuf> {
            // Popular files do not lie side by side.
            let spread = |n: &u64| n.wrapping_mul(0x9e37_79b1) % count;
            numbers.iter().map(|n| root.join(path(spread(n)))).collect()
        };
        let (uniform, skewed) = (paths(&uniform), paths(&skewed));
        cold(stage, &format!("{set}-uniform"), &uniform)?;
        cold(stage, &format!("{set}-zipf"), &skewed)?;
        warm(stage, set, &uniform, &skewed)?;
    }
    Ok(())
}

/// Reads, all caches dropped every so often. A phase ends before each drop, so that what the drop itself writes back
/// is not counted as reading.
fn cold(stage: &mut Stage<'_>, name: &str, paths: &[PathBuf]) -> Result<(), Error> {
    stage.parted_phase(name, paths.chunks(DROP_EVERY), |part, beat| {
        beat.add(part.len() as u64);
        part.iter().try_for_each(|path| read_whole(path))
    })
}

/// The uniform reads again, after the skewed ones and nothing dropped.
fn warm(
    stage: &mut Stage<'_>,
    set: &str,
    uniform: &[PathBuf],
    skewed: &[PathBuf],
) -> Result<(), Error> {
    let read = |paths: &[PathBuf]| paths.iter().try_for_each(|path: &PathBuf| read_whole(path));
    stage.phase(&format!("setup-warm-{set}"), End::Nothing, |_: &Path, _| {
        read(skewed)
    })?;
    stage.phase(&format!("{set}-warm"), End::Nothing, |_, beat| {
        beat.add(uniform.len() as u64);
        read(uniform)
    })
}

fn flat(number: u64) -> PathBuf {
    PathBuf::from(format!("d{}/f{number}", number / FLAT))
}

/// Six levels: the set, four of directories, the file.
fn deep(number: u64) -> PathBuf {
    let mut rest = number / DEEP;
    let mut levels = Vec::new();
    for _ in 0..3 {
        levels.push(format!("d{}", rest % FAN));
        rest /= FAN;
    }
    levels.push(format!("d{rest}"));
    let mut path: PathBuf = levels.iter().rev().collect();
    path.push(format!("f{number}"));
    path
}
