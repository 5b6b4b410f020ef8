//! What tracks are worth: hashFS's sets of files are read cold out of the log, then settle into tracks, and are read again. In the
//! library, on a disk of the model (hashFS, section IV; S1-S6).

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use loamfs_fs::{Arranged, Arranging, MkfsOptions, OpenOptions, Placement};
use rand::Rng;
use serde::Serialize;

use crate::Error;
use crate::disk::{Preset, Tally};
use crate::modelled::{Modelled, failed};
use crate::suite::coldread::{DROP_EVERY, LAYOUTS, Layout, spread};
use crate::suite::files::{Files, Walk};
use crate::suite::random::{below, generator, zipf};
use crate::workload::Content;

/// Files have one to so many pieces of so many bytes.
const PIECE: usize = 4096;
const PIECES: u64 = 4;
/// Ticks in which nothing forms, so that no more will: gathering takes some.
const RESTING: u32 = 64;
/// Files that are made in the time between two looks of the clock.
const A_TICK: u64 = 1000;

/// Files as hashFS has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// 10,000 in a directory.
    Flat,
    /// 100 in a directory, six levels deep.
    Deep,
}

/// What is done with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Files are read, all as often, caches dropped every 100.
    Uniform,
    /// The same, few files often and most seldom.
    Zipf,
    /// Names are looked up that are not there, caches dropped every 100.
    Missing,
    /// Files are read, all as often, after the directory above the set got another name.
    Renamed,
    /// All is listed, as by find.
    Find,
    /// All is listed, looked at and read, as by tar.
    Tar,
}

/// How large it all is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Files of a set.
    pub files: u64,
    /// Files that are read, and names that are looked up.
    pub reads: u64,
    /// Files that are removed and made anew before, at random.
    pub renewed: u64,
    /// Bytes of the volume.
    pub volume: u64,
    /// Where chance comes from.
    pub seed: u64,
    /// Whether the directory says before that files go into tracks.
    pub hash: bool,
    /// Whether tracks form by the clock.
    pub idle: bool,
    /// Whether segments say what changed in inodes, instead of writing their blocks (`MkfsOptions::deltas`).
    pub deltas: bool,
}

/// The same work out of the log, and by way of tracks.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What was done.
    pub work: Work,
    /// Out of the log.
    pub log: Tally,
    /// By way of tracks.
    pub tracks: Tally,
}

/// What a set came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The set.
    pub set: Set,
    /// The disk.
    pub disk: &'static str,
    /// Making the files.
    pub made: Tally,
    /// Removing files and making them anew.
    pub renewed: Option<Tally>,
    /// What of the volume's bytes is in use then, from 0 to 1.
    pub full: f64,
    /// Settling them into tracks.
    pub arranged: Tally,
    /// Directories that were gone through.
    pub directories: u64,
    /// Files that settled.
    pub settled: u64,
    /// Seconds that the volume estimated settling them to take before it began, where that was by the clock.
    pub estimated: Option<f64>,
    /// Seconds that it says it came to.
    pub said: Option<f64>,
    /// What was done then.
    pub compared: Vec<Compared>,
}

impl Set {
    fn layout(self) -> Layout {
        let [flat, deep] = LAYOUTS;
        match self {
            Set::Flat => flat,
            Set::Deep => deep,
        }
    }
}

impl Row {
    /// Makes a set on a new volume, and goes through all works twice.
    ///
    /// # Errors
    /// The volume's.
    pub fn new(set: Set, preset: Preset, scale: Scale) -> Result<Row, Error> {
        let made = MkfsOptions {
            deltas: scale.deltas,
            ..MkfsOptions::default()
        };
        let options = OpenOptions::default();
        let modelled = Modelled::made_with(&made, preset, scale.volume, scale.seed, options)?;
        let (top, path) = set.layout();
        let mut stand = Stand {
            modelled,
            top: top.to_owned(),
            path,
            scale,
        };
        if scale.hash {
            let upkeep = stand.modelled.volume().upkeep();
            let said = upkeep.set_placement(loamfs_fs::ROOT_INO, Placement::Hash);
            said.map_err(failed("placing files of"))?;
        }
        let made = stand.make()?;
        let renewed = (scale.renewed > 0).then(|| stand.renew()).transpose()?;
        let full = stand.files().used()? as f64 / scale.volume as f64;
        stand.remount()?;
        let log = stand.works("log")?;
        let (arranged, done) = match scale.idle {
            true => stand.idle()?,
            false => stand.arrange()?,
        };
        let told = stand.modelled.volume().info().tracks;
        stand.remount()?;
        let tracks = stand.works("tracks")?;
        let works = Work::value_variants().iter();
        let compared = works.zip(log.into_iter().zip(tracks));
        Ok(Row {
            set,
            disk: preset.name(),
            made,
            renewed,
            full,
            arranged,
            directories: done.directories,
            settled: done.files,
            estimated: scale.idle.then_some(told.formed_estimate.as_secs_f64()),
            said: scale.idle.then_some(told.formed_cost.as_secs_f64()),
            compared: compared
                .map(|(work, (log, tracks))| Compared {
                    work: *work,
                    log,
                    tracks,
                })
                .collect(),
        })
    }
}

/// A volume with a set.
struct Stand {
    modelled: Modelled,
    /// The directory that all of it is in.
    top: String,
    path: fn(u64) -> PathBuf,
    scale: Scale,
}

impl Stand {
    fn files(&self) -> &dyn Files {
        self.modelled.files()
    }

    fn path(&self, number: u64) -> PathBuf {
        Path::new(&self.top).join((self.path)(number))
    }

    /// What the disk is asked for something.
    fn phase(
        &self,
        name: &str,
        operations: u64,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Tally, Error> {
        let disk = self.modelled.disk();
        disk.begin(name);
        work()?;
        disk.end(operations);
        let phase = disk.priced().phases.pop();
        Ok(phase.filter(|it| it.name == name).unwrap_or_default())
    }

    fn tick(&self) -> Result<(), Error> {
        let tick = self.modelled.volume().upkeep().tick();
        tick.map_err(failed("looking after"))
    }

    /// Makes a file of some length.
    fn make_one(
        &self,
        number: u64,
        random: &mut impl Rng,
        content: &mut Content,
    ) -> Result<(), Error> {
        let bytes = PIECE * (1 + below(random, PIECES) as usize);
        self.files()
            .create(&self.path(number), content.of(number, bytes))?;
        Ok(())
    }

    /// A history: files are removed and made anew, each time another one.
    fn renew(&self) -> Result<Tally, Error> {
        let random = &mut generator(self.scale.seed, "renewed");
        let mut content = Content::new(PIECE * PIECES as usize);
        self.phase("renew", self.scale.renewed, || {
            for done in 0..self.scale.renewed {
                let number = below(random, self.scale.files);
                self.files().remove_file(&self.path(number))?;
                self.make_one(number, random, &mut content)?;
                if done % A_TICK == 0 {
                    self.tick()?;
                }
            }
            self.files().sync()
        })
    }

    fn make(&self) -> Result<Tally, Error> {
        let random = &mut generator(self.scale.seed, "tracks");
        let mut content = Content::new(PIECE * PIECES as usize);
        self.phase("make", self.scale.files, || {
            let mut last = PathBuf::new();
            for number in 0..self.scale.files {
                let path = self.path(number);
                let above = path.parent().unwrap_or(Path::new(""));
                if above != last {
                    self.files().make_directories(above)?;
                    above.clone_into(&mut last);
                }
                self.make_one(number, random, &mut content)?;
                if number % A_TICK == 0 {
                    self.tick()?;
                }
            }
            self.files().sync()
        })
    }

    fn arrange(&self) -> Result<(Tally, Arranged), Error> {
        let volume = self.modelled.volume();
        let mut arranging = Arranging::tree(loamfs_fs::ROOT_INO);
        let tally = self.phase("arrange", self.scale.files, || {
            while volume
                .upkeep()
                .arrange(&mut arranging)
                .map_err(failed("arranging"))?
            {
                self.tick()?;
            }
            Ok(())
        })?;
        Ok((tally, *arranging.done()))
    }

    /// Nobody asks for anything, until nothing forms any more.
    fn idle(&self) -> Result<(Tally, Arranged), Error> {
        let formed = || self.modelled.volume().info().tracks.formed;
        let tally = self.phase("idle", self.scale.files, || {
            let (mut before, mut nothing) = (formed(), 0);
            while nothing < RESTING {
                self.tick()?;
                let now = formed();
                nothing = if now == before { nothing + 1 } else { 0 };
                before = now;
            }
            Ok(())
        })?;
        Ok((tally, formed()))
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.modelled.disk().begin("setup");
        self.modelled.close()?;
        self.modelled.reopen()
    }

    /// All works, in their order.
    fn works(&mut self, place: &str) -> Result<Vec<Tally>, Error> {
        let works = Work::value_variants().iter();
        works.map(|work| self.work(*work, place)).collect()
    }

    fn work(&mut self, work: Work, place: &str) -> Result<Tally, Error> {
        self.modelled.disk().begin("setup");
        if work == Work::Renamed {
            let other = format!("{}-{place}", self.top);
            self.files()
                .rename(Path::new(&self.top), Path::new(&other))?;
            self.top = other;
        }
        self.drop_caches()?;
        // Both times the same.
        let random = &mut generator(self.scale.seed, "works");
        let name = format!("{place}-{work:?}");
        match work {
            Work::Uniform | Work::Renamed => self.cold(&name, &self.uniform(random), |path| {
                self.files().read_whole(path)
            }),
            Work::Zipf => {
                let numbers = zipf(random, self.scale.files, self.scale.reads);
                self.cold(&name, &numbers, |path| self.files().read_whole(path))
            }
            Work::Missing => self.cold(&name, &self.uniform(random), |path| {
                let none = path.with_extension("none");
                match self.files().size(&none) {
                    Err(error) if error.is_not_found() => Ok(()),
                    other => other.map(drop),
                }
            }),
            Work::Find => self.walk(&name, Walk::Find),
            Work::Tar => self.walk(&name, Walk::Pack),
        }
    }

    fn uniform(&self, random: &mut impl Rng) -> Vec<u64> {
        let draws = 0..self.scale.reads;
        draws.map(|_| below(random, self.scale.files)).collect()
    }

    fn cold(
        &self,
        name: &str,
        numbers: &[u64],
        read: impl Fn(&Path) -> Result<(), Error>,
    ) -> Result<Tally, Error> {
        self.phase(name, numbers.len() as u64, || {
            numbers.chunks(DROP_EVERY).try_for_each(|numbers| {
                self.drop_caches()?;
                let mut files = numbers.iter().map(|it| spread(*it, self.scale.files));
                files.try_for_each(|number| read(&self.path(number)))
            })
        })
    }

    fn walk(&self, name: &str, walk: Walk) -> Result<Tally, Error> {
        self.phase(name, self.scale.files, || {
            self.files().walk(walk, Path::new(&self.top))
        })
    }

    fn drop_caches(&self) -> Result<(), Error> {
        let dropped = self.modelled.volume().upkeep().drop_caches();
        dropped.map_err(failed("dropping caches of"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_asks_the_same_and_a_settled_file_takes_one_read() {
        let scale = Scale {
            files: 300,
            reads: 200,
            renewed: 100,
            volume: 256 << 20,
            seed: 1,
            hash: false,
            idle: false,
            deltas: true,
        };
        for set in [Set::Flat, Set::Deep] {
            let row = || Row::new(set, Preset::Reference, scale).unwrap();
            let (one, other) = (row(), row());
            assert_eq!(one.settled, scale.files);
            assert_eq!(one.compared.len(), Work::value_variants().len());
            for (one, other) in one.compared.iter().zip(&other.compared) {
                assert_eq!(one.log, other.log);
                assert_eq!(one.tracks, other.tracks);
                assert!(one.log.read.requests > 0 && one.tracks.read.requests > 0);
            }
            let uniform = &one.compared[0].tracks;
            assert_eq!(uniform.operations, scale.reads);
            // What leads to the tracks is read again after each drop.
            assert!(uniform.read.requests <= scale.reads + 40, "{uniform:?}");
            assert_eq!(uniform.written.requests, 0);
        }
    }

    /// So few files share requests out of the log, and took more of them out of tracks.
    #[test]
    fn what_few_requests_bring_stays_in_the_log_when_nobody_asks() {
        let scale = Scale {
            files: 2_000,
            reads: 2_000,
            renewed: 0,
            volume: 256 << 20,
            seed: 1,
            hash: false,
            idle: true,
            deltas: true,
        };
        let row = Row::new(Set::Flat, Preset::Reference, scale).unwrap();
        assert_eq!((row.settled, row.said), (0, Some(0.0)));
        let uniform = &row.compared[0];
        assert_eq!(uniform.log.read, uniform.tracks.read);
    }
}
