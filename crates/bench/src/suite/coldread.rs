//! hashFS, section IV: single files are read by name. The flat set has few directories, the deep one a hundred times as
//! many, below each other. Caches are dropped every 100 reads; since hashFS rejects figures from cold caches alone, the
//! same reads are done once more, warm: as many reads as there are files have been made before. Memory is so small that it
//! cannot keep what they brought.

use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;

use super::files::Files;
use super::random::{below, generator, zipf};
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::Content;

/// Reads between drops of all caches.
pub(crate) const DROP_EVERY: usize = 100;
/// Bytes of the file of a number, and of the longest one.
pub(crate) type Sizes = (fn(u64) -> usize, usize);

/// hashFS's files are of 4 KiB.
pub(crate) const PAGES: Sizes = (|_| 4096, 4096);
/// Pictures of 8 to 88 KiB, as thumbnails are, which end anywhere in a page.
pub(crate) const PICTURES: Sizes = (
    |number| PICTURE + spread(number, 10 * PICTURE as u64) as usize,
    11 * PICTURE,
);
/// Bytes of the shortest.
const PICTURE: usize = 8 << 10;
/// Files of a directory of the flat set, as the paper's; the deep set has a hundredth.
const FLAT: u64 = 10_000;
const DEEP: u64 = 100;
/// Bytes that the kernel's caches and LoamFS's daemon may take together: a daemon with its least
/// cache fits, what is read of a set does not.
const MEMORY: u64 = 48 << 20;
/// Directories below each other in the deep set: six levels in all.
const FAN: u64 = 4;

/// `count` files of such sizes in each set, `reads` reads of each kind, cold and warm.
pub fn run(
    stage: &mut Stage,
    (count, sizes): (u64, Sizes),
    reads: u64,
    seed: u64,
) -> Result<(), Error> {
    for layout in LAYOUTS {
        let mut set = Set::make(stage, layout, (count, sizes), seed)?;
        stage.with_memory(MEMORY, |stage, bounded| {
            let asked = set.cold(stage, reads)?;
            set.warm(stage, &asked, bounded)
        })?;
    }
    Ok(())
}

/// The same, cold only, with all memory.
pub fn run_cold(stage: &mut Stage, count: u64, reads: u64, seed: u64) -> Result<(), Error> {
    for layout in LAYOUTS {
        Set::make(stage, layout, (count, PAGES), seed)?.cold(stage, reads)?;
    }
    Ok(())
}

/// The name of a set, and where in it a file is.
pub(crate) type Layout = (&'static str, fn(u64) -> PathBuf);

/// The flat set and the deep one.
pub(crate) const LAYOUTS: [Layout; 2] = [("flat", flat), ("deep", deep)];

/// Which files are asked for.
#[derive(Clone, Copy, Debug)]
enum Popularity {
    /// All alike.
    Uniform,
    /// Few often, most seldom.
    Zipf,
}

impl Popularity {
    const fn name(self) -> &'static str {
        match self {
            Popularity::Uniform => "uniform",
            Popularity::Zipf => "zipf",
        }
    }
}

/// Numbers of files that are read.
type Asked = (Popularity, Vec<u64>);

/// Files to be read.
struct Set {
    layout: Layout,
    count: u64,
    random: ChaCha8Rng,
}

impl Set {
    fn make(
        stage: &mut Stage,
        layout: Layout,
        (count, (size, longest)): (u64, Sizes),
        seed: u64,
    ) -> Result<Set, Error> {
        let (name, path) = layout;
        stage.phase(&format!("setup-{name}"), End::Remount, |files, beat| {
            let mut content = Content::new(longest);
            let mut last = PathBuf::new();
            for number in 0..count {
                let path = Path::new(name).join(path(number));
                let directory = path.parent().unwrap_or(Path::new(name));
                if directory != last {
                    files.make_directories(directory)?;
                    last = directory.to_owned();
                }
                files.create(&path, content.of(number, size(number)))?;
                beat.tick()?;
            }
            Ok(())
        })?;
        Ok(Set {
            layout,
            count,
            random: generator(seed, name),
        })
    }

    fn path(&self, number: u64) -> PathBuf {
        Path::new(self.layout.0).join(self.layout.1(spread(number, self.count)))
    }

    fn draw(&mut self, popularity: Popularity, reads: u64) -> Vec<u64> {
        let count = self.count;
        match popularity {
            Popularity::Uniform => (0..reads).map(|_| below(&mut self.random, count)).collect(),
            Popularity::Zipf => zipf(&mut self.random, count, reads),
        }
    }

    /// Reads with cold caches, of each kind; returns the numbers of the files.
    fn cold(&mut self, stage: &mut Stage, reads: u64) -> Result<Vec<Asked>, Error> {
        let asked = [Popularity::Uniform, Popularity::Zipf]
            .map(|popularity| (popularity, self.draw(popularity, reads)));
        for (popularity, numbers) in &asked {
            let paths: Vec<PathBuf> = numbers.iter().map(|n| self.path(*n)).collect();
            let name = format!("{}-{}", self.layout.0, popularity.name());
            cold(stage, &name, &paths)?;
        }
        Ok(asked.into())
    }

    /// The same reads after many others of their kind.
    fn warm(&mut self, stage: &mut Stage, asked: &[Asked], bounded: bool) -> Result<(), Error> {
        for (popularity, numbers) in asked {
            let earlier = self.draw(*popularity, self.count);
            let name = format!("{}-{}", self.layout.0, popularity.name());
            let read = |files: &dyn Files, numbers: &[u64]| {
                let mut paths = numbers.iter().map(|number| self.path(*number));
                paths.try_for_each(|path| files.read_whole(&path))
            };
            stage.phase(&format!("setup-warm-{name}"), End::Nothing, |files, _| {
                read(files, &earlier)
            })?;
            // Figures that mean something else have another name.
            let kind = if bounded { "warm" } else { "warm-unbounded" };
            stage.phase(&format!("{name}-{kind}"), End::Nothing, |files, beat| {
                beat.add(numbers.len() as u64);
                read(files, numbers)
            })?;
        }
        Ok(())
    }
}

/// Reads, all caches dropped every so often. A phase ends before each drop, so that what the drop itself writes back
/// is not counted as reading.
fn cold(stage: &mut Stage, name: &str, paths: &[PathBuf]) -> Result<(), Error> {
    stage.parted_phase(name, paths.chunks(DROP_EVERY), |part, files, beat| {
        beat.add(part.len() as u64);
        part.iter().try_for_each(|path| files.read_whole(path))
    })
}

/// The file that is as popular as a number is low: such files do not lie side by side.
pub(crate) fn spread(number: u64, count: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b1) % count.max(1)
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
