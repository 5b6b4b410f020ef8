//! Volumes full to the brim (rule 10): filled with small files until ENOSPC, written over, then emptied, with crashes between. Every
//! removal must succeed, what was removed before a sync stays removed, and in the end all space is back.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::Ino;
use loamfs_fs::env::{Env, ManualClock};
use loamfs_fs::{
    Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, VOLUME_MIN, Volume, XattrMode, grow, mkfs,
};

use crate::loam::{VOLUMES, options_of};
use crate::problem::{Problem, Verdict};
use crate::rng::Rng;

/// The moment at which a run begins.
const EPOCH: u32 = 1_700_000_000;
/// Names of a directory that are read together.
const LISTED: usize = 1000;
/// Sizes of volumes, each twice the one before.
const SIZES: u64 = 8;
/// Files that are written over in a run at most: on a full volume each may cost a move.
const OVERWRITES_MAX: u64 = 5_000;
/// Of what a volume had to give when it was new, the part that may be missing when it is empty again. The maps have
/// grown. They keep each leaf with owner records of what is free, as long as anything lives near what it tells of; also
/// another such leaf. Files of one fragment that were removed in random order leave up to a fifteenth so.
const MISSING: u64 = 12;

/// What the files are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// Of 1,000 bytes each, in one directory.
    Tiny,
    /// Of 0 to 5,000 bytes, in one directory.
    Small,
    /// Empty ones with names of 255 bytes, in many directories.
    Named,
    /// Of 0 to 2,000 bytes, with attributes short and long.
    Attributed,
    /// Of all these, in directories in directories.
    Mixed,
}

/// In which order they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they were made.
    Made,
    /// The last one first.
    Reverse,
    /// Any.
    Random,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Where its random numbers come from.
    pub seed: u64,
    /// Bytes of the volume.
    pub bytes: u64,
    /// What it is made with ([`crate::loam::VOLUMES`]).
    pub volumes: &'static str,
    /// What it is filled with.
    pub files: Files,
    /// How it is emptied.
    pub order: Order,
    /// Removals between two crashes, about.
    pub crash_every: Option<u64>,
    /// Mounts without a clean end in between, after each of these crashes.
    pub storm: u64,
    /// How often as many files are written over as there are, before they are removed.
    pub overwritten: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            seed,
            bytes,
            volumes,
            files,
            order,
            ..
        } = self;
        let mib = bytes >> 20;
        write!(f, "seed {seed}, {volumes}, {mib} MiB, {files:?}, {order:?}")?;
        if self.overwritten > 0 {
            write!(f, ", {} times written over", self.overwritten)?;
        }
        if let Some(every) = self.crash_every {
            write!(f, ", {} crashes every {every}", self.storm)?;
        }
        Ok(())
    }
}

impl Case {
    /// The case of a seed, of at most so many bytes: all sizes, files and orders come in turn.
    pub fn of(seed: u64, bytes_max: u64) -> Self {
        let mut rng = Rng::new(seed);
        let files = [
            Files::Tiny,
            Files::Small,
            Files::Named,
            Files::Attributed,
            Files::Mixed,
        ];
        let orders = [Order::Made, Order::Reverse, Order::Random];
        let bytes = (VOLUME_MIN << (seed % SIZES)).min(bytes_max);
        let crash_every = (bytes / (16 << 10)).max(20);
        Self {
            seed,
            bytes,
            volumes: VOLUMES[0],
            files: files[rng.index(5)],
            order: orders[rng.index(3)],
            crash_every: rng.one_in(2).then_some(crash_every),
            storm: 1 + rng.below(8),
            overwritten: rng.below(4),
        }
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Files and directories that were made.
    pub made: u64,
    /// Removals, repeated ones included.
    pub removed: u64,
    /// Crashes.
    pub crashes: u64,
    /// Files written over.
    pub overwritten: u64,
    /// How many of these found no space.
    pub refused: u64,
}

fn must<T>(result: Result<T, Error>, what: impl FnOnce() -> String) -> Verdict<T> {
    result.map_err(|error| Problem::new("10: removals always work", format!("{}: {error}", what())))
}

/// A volume, and what is in it.
struct Brim {
    case: Case,
    rng: Rng,
    device: Arc<dyn Device>,
    clock: Arc<ManualClock>,
    volume: Option<Volume>,
    /// Names in directories, in the order in which they were made; directories before what is in them.
    made: Vec<(Ino, Vec<u8>, bool)>,
    /// What was removed since the last sync, and what before.
    removed: Vec<(Ino, Vec<u8>)>,
    gone: BTreeSet<(Ino, Vec<u8>)>,
    figures: Figures,
}

/// Runs a case.
///
/// # Errors
/// The rule that was broken.
pub fn run(case: &Case) -> Verdict<Figures> {
    let mut brim = Brim::new(case)?;
    let fresh = brim.volume()?.statfs().free;
    brim.fill()?;
    must(brim.volume()?.sync(), || "sync of a full volume".into())?;
    brim.overwrite()?;
    brim.empty()?;
    brim.end(fresh)?;
    Ok(brim.figures)
}

impl Brim {
    fn new(case: &Case) -> Verdict<Self> {
        // Half as much again is there to grow into.
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(case.bytes / 2 * 3));
        let options = MkfsOptions {
            size: Some(case.bytes),
            ..options_of(case.volumes)
        };
        let clock = Arc::new(ManualClock::new(EPOCH));
        let mut brim = Self {
            case: *case,
            rng: Rng::new(case.seed).fork(1),
            device,
            clock,
            volume: None,
            made: Vec::new(),
            removed: Vec::new(),
            gone: BTreeSet::new(),
            figures: Figures::default(),
        };
        must(mkfs(&brim.device, &options, &brim.env()), || "mkfs".into())?;
        brim.open()?;
        Ok(brim)
    }

    fn env(&self) -> Env {
        Env::seeded(self.clock.clone(), self.case.seed)
    }

    fn open(&mut self) -> Verdict {
        let options = OpenOptions {
            cache_bytes: 32 << 20,
            ..OpenOptions::default()
        };
        let opened = Volume::open(Arc::clone(&self.device), &options, self.env());
        self.volume = Some(must(opened, || "mount".into())?);
        Ok(())
    }

    fn volume(&self) -> Verdict<&Volume> {
        let volume = self.volume.as_ref();
        volume.ok_or_else(|| Problem::new("harness", "the volume is not open"))
    }

    /// Makes files until nothing more fits.
    fn fill(&mut self) -> Verdict {
        let mut dirs = vec![ROOT_INO];
        // What is full for one file may have room for a smaller one.
        let mut refusals = 0;
        for number in 0u64.. {
            match self.make(number, &mut dirs) {
                Ok(()) => {}
                Err(Error::NoSpace) => refusals += 1,
                Err(error) => return must(Err(error), || format!("file {number}")),
            }
            if refusals == 20 {
                break;
            }
        }
        self.figures.made = self.made.len() as u64;
        Ok(())
    }

    fn make(&mut self, number: u64, dirs: &mut Vec<Ino>) -> Result<(), Error> {
        let files = match self.case.files {
            Files::Mixed => {
                [Files::Tiny, Files::Small, Files::Named, Files::Attributed][self.rng.index(4)]
            }
            files => files,
        };
        let many = matches!(self.case.files, Files::Named | Files::Mixed);
        let Some(volume) = &self.volume else {
            return Ok(());
        };
        let mut dir = dirs[dirs.len() - 1];
        if many && number.is_multiple_of(50) {
            let parent = match self.case.files {
                Files::Mixed => dirs[self.rng.index(dirs.len())],
                _ => ROOT_INO,
            };
            let name = format!("dir{number}").into_bytes();
            dir = volume.mkdir(parent, &name, &NewInode::of_mode(0o755))?.ino;
            dirs.push(dir);
            self.made.push((parent, name, true));
        }
        let mut name = format!("file{number}").into_bytes();
        if files == Files::Named {
            name.resize(255, b'x');
        }
        let ino = volume.create(dir, &name, &NewInode::of_mode(0o644))?.ino;
        self.made.push((dir, name, false));
        let size = match files {
            Files::Tiny => 1000,
            Files::Small => self.rng.below(5001),
            Files::Named => 0,
            _ => self.rng.below(2001),
        };
        let bytes = vec![number as u8; size as usize];
        let written = volume.write(ino, 0, &bytes)?;
        if files == Files::Attributed {
            for (i, most) in [30, 900, 6000].into_iter().enumerate() {
                let value = vec![number as u8; self.rng.below(most) as usize];
                let name = format!("user.attribute{i}");
                volume
                    .xattrs(ino)
                    .set(name.as_bytes(), &value, XattrMode::Any)?;
            }
        }
        if written < bytes.len() {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Writes files over with as much as they hold, which may be refused; what waits then can be written all the same.
    fn overwrite(&mut self) -> Verdict {
        let files = self.made.iter().filter(|(.., is_dir)| !is_dir);
        let files: Vec<(Ino, Vec<u8>)> = files.map(|(dir, name, _)| (*dir, name.clone())).collect();
        let times = (files.len() as u64 * self.case.overwritten).min(OVERWRITES_MAX);
        for turn in 0..times {
            let (dir, name) = &files[self.rng.index(files.len())];
            let volume = self.volume()?;
            let found = must(volume.lookup(*dir, name), || "lookup".into())?;
            let bytes = vec![turn as u8; found.size as usize];
            match volume.write(found.ino, 0, &bytes) {
                Err(Error::NoSpace) => self.figures.refused += 1,
                written => drop(must(written, || format!("overwrite {turn}"))?),
            }
            self.figures.overwritten += 1;
            if self.rng.one_in(1000) {
                must(self.volume()?.sync(), || "sync of overwrites".into())?;
            }
        }
        must(self.volume()?.sync(), || "sync of overwrites".into())
    }

    /// Removes everything, directories after what is in them.
    fn empty(&mut self) -> Verdict {
        while !self.made.is_empty() {
            let crashed = self.empty_until_crash()?;
            if !crashed {
                return Ok(());
            }
        }
        Ok(())
    }

    fn order(&mut self) -> Vec<(Ino, Vec<u8>, bool)> {
        let (dirs, mut order): (Vec<_>, Vec<_>) =
            self.made.iter().cloned().partition(|(.., is_dir)| *is_dir);
        match self.case.order {
            Order::Made => {}
            Order::Reverse => order.reverse(),
            Order::Random => {
                for i in (1..order.len()).rev() {
                    order.swap(i, self.rng.index(i + 1));
                }
            }
        }
        order.extend(dirs.into_iter().rev());
        order
    }

    /// Returns whether a crash came before everything was gone.
    fn empty_until_crash(&mut self) -> Verdict<bool> {
        for (dir, name, is_dir) in self.order() {
            let volume = self.volume()?;
            let removed = match is_dir {
                true => volume.rmdir(dir, &name),
                false => volume.unlink(dir, &name),
            };
            let so_far = self.figures.removed;
            must(removed, || format!("removal {so_far}"))?;
            self.figures.removed += 1;
            self.removed.push((dir, name));
            if self.rng.one_in(500) {
                self.clock.advance(6_000_000_000);
                must(self.volume()?.upkeep().tick(), || "the clock".into())?;
            }
            if self.rng.one_in(2000) {
                self.sync()?;
            }
            if let Some(every) = self.case.crash_every
                && self.rng.one_in(every)
            {
                self.crash()?;
                return Ok(true);
            }
        }
        self.made.clear();
        Ok(false)
    }

    fn sync(&mut self) -> Verdict {
        must(self.volume()?.sync(), || "sync".into())?;
        self.gone.extend(self.removed.drain(..));
        Ok(())
    }

    /// Crashes, and crashes again as soon as recovery has ended.
    fn crash(&mut self) -> Verdict {
        for _ in 0..self.case.storm {
            self.volume = None;
            self.figures.crashes += 1;
            self.open()?;
        }
        self.removed.clear();
        let mut left = BTreeSet::new();
        let dirs = self.made.iter().map(|(dir, ..)| *dir);
        for dir in dirs.collect::<BTreeSet<Ino>>() {
            left.extend(self.list(dir)?.into_iter().map(|name| (dir, name)));
        }
        if let Some((dir, name)) = left.intersection(&self.gone).next() {
            let name = String::from_utf8_lossy(name);
            let text = format!("{name} in {} is back", dir.0);
            return Err(Problem::new("2: what was synced stays", text));
        }
        self.made
            .retain(|(dir, name, _)| left.contains(&(*dir, name.clone())));
        Ok(())
    }

    /// The names in a directory; none if it is gone.
    fn list(&self, dir: Ino) -> Verdict<Vec<Vec<u8>>> {
        let (mut names, mut position) = (Vec::new(), 0);
        loop {
            let entries = match self.volume()?.readdir(dir, position, LISTED) {
                Err(Error::Stale(_)) => return Ok(names),
                listed => must(listed, || "readdir".into())?,
            };
            let Some(last) = entries.last() else {
                return Ok(names);
            };
            position = last.next;
            let here = entries.into_iter().map(|entry| entry.name);
            names.extend(here.filter(|name| name != b"." && name != b".."));
        }
    }

    fn close(&mut self) -> Verdict {
        must(self.volume()?.close(), || "unmount".into())?;
        self.volume = None;
        let mut options = Options::default();
        let report = check(self.device.as_ref(), &mut options);
        let mut problems = report.problems.iter();
        match problems.find(|problem| problem.severity() > Severity::Note) {
            Some(problem) => Err(Problem::new("check", problem.to_string())),
            None => Ok(()),
        }
    }

    /// Everything is empty, and its space is back; the volume can be unmounted, mounted and grown.
    fn end(&mut self, fresh: u64) -> Verdict {
        self.sync()?;
        self.close()?;
        self.open()?;
        let names: Vec<_> = self.list(ROOT_INO)?;
        if let Some(name) = names.first() {
            let text = String::from_utf8_lossy(name).into_owned();
            return Err(Problem::new("2: what was synced stays", text));
        }
        for _ in 0..3 {
            self.sync()?;
            must(self.volume()?.upkeep().checkpoint(), || "checkpoint".into())?;
            must(self.volume()?.upkeep().tick(), || "the clock".into())?;
        }
        let statfs = self.volume()?.statfs();
        if statfs.free + fresh / MISSING < fresh {
            let text = format!("{} of {fresh} fragments", statfs.free);
            return Err(Problem::new("10: space comes back", text));
        }
        if statfs.inodes != 1 {
            return Err(Problem::new("harness", format!("{} inodes", statfs.inodes)));
        }
        self.close()?;
        if self.case.bytes >= 16 << 20 {
            must(grow(&self.device, None, &self.env()), || "growing".into())?;
            self.open()?;
            self.close()?;
        }
        Ok(())
    }
}
