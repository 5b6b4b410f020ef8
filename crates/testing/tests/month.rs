//! A month in the life of a volume: days of work, nights in which nobody asks for anything, mounts and crashes between. Nothing of
//! what is on it is lost, and no space goes anywhere else.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{
    Env, Ino, ManualClock, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs,
};
use loamfs_testing::files::{available, content};
use loamfs_testing::loam::check_device;
use loamfs_testing::rng::Rng;
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const DAYS: usize = 30;
const VOLUME: u64 = 128 << 20;
/// What files come to in the evening, in percent of the volume's room.
const FULL: u64 = 75;
const MINUTE: u64 = 60 * 1_000_000_000;

struct Kept {
    name: String,
    ino: Ino,
    bytes: Vec<u8>,
}

struct Month {
    clock: Arc<ManualClock>,
    device: Arc<MemoryDevice>,
    volume: Option<Volume>,
    rng: Rng,
    /// The oldest first.
    files: Vec<Kept>,
    made: usize,
    room: u64,
}

impl Month {
    fn begins(profile: &str) -> Month {
        let clock = Arc::new(ManualClock::new(1_000_000_000));
        let device = Arc::new(MemoryDevice::new(VOLUME).with_rotational(true));
        let options = MkfsOptions {
            profile: profile.into(),
            ..MkfsOptions::default()
        };
        let shared: Arc<dyn Device> = device.clone();
        mkfs(&shared, &options, &Env::seeded(clock.clone(), 1)).unwrap();
        let mut month = Month {
            clock,
            device,
            volume: None,
            rng: Rng::new(30),
            files: Vec::new(),
            made: 0,
            room: 0,
        };
        month.mount(2);
        month.room = available(month.volume());
        month
    }

    fn mount(&mut self, seed: u64) {
        let options = OpenOptions {
            cache_bytes: 16 << 20,
            ..OpenOptions::default()
        };
        let env = Env::seeded(self.clock.clone(), seed);
        let volume = Volume::open(self.device.clone(), &options, env).unwrap();
        self.volume = Some(volume);
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }

    /// Small files and some large ones are made, written over, given other names, and deleted, the oldest mostly.
    fn day(&mut self) {
        for turn in 0..600 {
            self.clock.advance(MINUTE);
            match turn % 6 {
                0 | 1 => self.make(turn),
                2 | 3 if !self.files.is_empty() => self.write_over(),
                4 if !self.files.is_empty() => self.rename(),
                _ => {}
            }
            while self.bytes() > self.room * FULL / 100 {
                let oldest = self.files.len() / 8 + 1;
                let gone = self.rng.index(oldest);
                self.delete(gone);
            }
            match turn % 50 {
                0 => self.volume().sync().unwrap(),
                _ => self.volume().upkeep().tick().unwrap(),
            }
        }
        let looked_at = self.rng.index(self.files.len());
        self.read(looked_at);
    }

    fn make(&mut self, turn: usize) {
        let len = match turn % 48 {
            0 => self.rng.between(256 << 10, 2 << 20),
            _ => self.rng.between(1, 20 << 10),
        };
        self.made += 1;
        let (name, bytes) = (
            format!("file {}", self.made),
            content(len as usize, self.made),
        );
        let ino = self
            .volume()
            .create(ROOT_INO, name.as_bytes(), &NEW)
            .unwrap()
            .ino;
        self.volume().write(ino, 0, &bytes).unwrap();
        self.files.push(Kept { name, ino, bytes });
    }

    fn write_over(&mut self) {
        let index = self.rng.index(self.files.len());
        self.made += 1;
        let file = &mut self.files[index];
        // A small one whole, a piece of a large one.
        let from = self.rng.index(file.bytes.len()) / (64 << 10) * (64 << 10);
        let len = (file.bytes.len() - from).min(64 << 10);
        let new = content(len, self.made);
        file.bytes[from..from + len].copy_from_slice(&new);
        let ino = file.ino;
        self.volume().write(ino, from as u64, &new).unwrap();
    }

    fn rename(&mut self) {
        let index = self.rng.index(self.files.len());
        self.made += 1;
        let (old, new) = (
            self.files[index].name.clone(),
            format!("name {}", self.made),
        );
        let flags = loamfs_fs::RenameFlags::default();
        self.volume()
            .rename(ROOT_INO, old.as_bytes(), ROOT_INO, new.as_bytes(), flags)
            .unwrap();
        self.files[index].name = new;
    }

    fn delete(&mut self, index: usize) {
        let file = self.files.remove(index);
        let name = file.name.as_bytes();
        self.volume().unlink(ROOT_INO, name).unwrap();
    }

    fn read(&self, index: usize) {
        let file = &self.files[index];
        let ino = self.volume().lookup(ROOT_INO, file.name.as_bytes());
        assert_eq!(ino.unwrap().ino, file.ino, "{}", file.name);
        let read = self.volume().read(file.ino, 0, file.bytes.len() + 1);
        assert!(read.unwrap() == file.bytes, "{}", file.name);
    }

    fn night(&self) {
        for _ in 0..100 {
            self.clock.advance(5 * MINUTE);
            self.volume().upkeep().tick().unwrap();
        }
    }

    /// The volume is closed, or the power goes after a sync.
    fn ends(&mut self, day: usize) {
        match day % 7 {
            6 => {
                self.volume().sync().unwrap();
                let crashed = Arc::new(self.device.fork());
                self.volume = None;
                self.device = crashed;
            }
            _ => {
                self.volume().close().unwrap();
                self.volume = None;
            }
        }
        assert_eq!(check_device(&self.device.fork()), [""; 0], "day {day}");
        self.mount(3 + day as u64);
    }

    /// Bytes in use for each of files.
    fn overhead(&self) -> f64 {
        let figures = self.volume().statfs();
        let used = (figures.total - figures.free) * u64::from(figures.fragment_size);
        used as f64 / self.bytes() as f64
    }
}

fn nothing_leaks(profile: &str) {
    let mut month = Month::begins(profile);
    let mut overheads = Vec::new();
    for day in 0..DAYS {
        month.day();
        month.night();
        if day % 3 == 2 || day % 7 == 6 {
            month.ends(day);
        }
        if day % 7 == 6 {
            (0..month.files.len()).for_each(|index| month.read(index));
            overheads.push(month.overhead());
        }
    }
    // What the second week, when the volume is full, takes besides files is what the last one does.
    let full = overheads[1];
    assert!(*overheads.last().unwrap() < full * 1.05, "{overheads:?}");
    while !month.files.is_empty() {
        month.delete(0);
    }
    month.night();
    month
        .volume()
        .upkeep()
        .clean(100, &mut |_, _| true)
        .unwrap();
    month.ends(0);
    let left = available(month.volume());
    assert!(left >= month.room / 16 * 15, "{left} of {}", month.room);
    assert_eq!(month.volume().info().inodes, 1);
}

#[test]
fn nothing_leaks_in_a_month() {
    nothing_leaks("hfs");
}

#[test]
fn nothing_leaks_in_a_month_where_all_is_in_the_log() {
    nothing_leaks("lfs");
}
