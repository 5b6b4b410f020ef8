//! What the programs have in common: a device, a volume on it, and a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use loamfs_device::{Device, Image, MemoryDevice, RecordingDevice};
use loamfs_format::Ino;
use loamfs_fs::{
    Clock, Env, MkfsOptions, NewInode, OpenOptions, SetAttr, Timestamp, Volume, XattrMode, mkfs,
};

use super::Made;
use crate::geometry::Geometry;

/// The time at which every program begins.
const EPOCH: i64 = 1_700_000_000;

/// Time that passes only when a program says so: how often somebody looks must not matter.
struct Stopped(AtomicI64);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: self.0.load(Ordering::Relaxed),
            nanos: 123_456_789,
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed).unsigned_abs())
    }
}

/// A volume that a program fills.
pub(super) struct Builder {
    pub device: Arc<RecordingDevice>,
    pub volume: Volume,
    clock: Arc<Stopped>,
    seed: u64,
}

impl Builder {
    /// Makes an empty volume.
    pub fn new(geometry: &Geometry, label: &str, seed: u64) -> Made<Self> {
        Self::with_options(geometry, geometry.mkfs_options(), label, seed)
    }

    /// The same, of which segments say what changed in inodes.
    pub fn with_deltas(geometry: &Geometry, label: &str, seed: u64) -> Made<Self> {
        let options = MkfsOptions {
            deltas: true,
            ..geometry.mkfs_options()
        };
        Self::with_options(geometry, options, label, seed)
    }

    /// The same, of other options than those of its geometry.
    pub fn with_options(
        geometry: &Geometry,
        options: MkfsOptions,
        label: &str,
        seed: u64,
    ) -> Made<Self> {
        let memory = MemoryDevice::new(geometry.size).with_sector_size(geometry.sector);
        let device = Arc::new(RecordingDevice::new(memory));
        let options = MkfsOptions {
            label: label.to_owned(),
            ..options
        };
        let clock = Arc::new(Stopped(AtomicI64::new(EPOCH)));
        let shared: Arc<dyn Device> = device.clone();
        let env = |seed| Env::seeded(clock.clone(), seed);
        mkfs(&shared, &options, &env(seed))?;
        let volume = Volume::open(shared, &OpenOptions::default(), env(seed + 1))?;
        Ok(Self {
            device,
            volume,
            clock,
            seed: seed + 1,
        })
    }

    /// Ends this mount without a word, as a crash does, and mounts again.
    pub fn crash_and_open(self) -> Made<Self> {
        let Self {
            device,
            volume,
            clock,
            seed,
        } = self;
        drop(volume);
        let env = Env::seeded(clock.clone(), seed + 1);
        let volume = Volume::open(device.clone(), &OpenOptions::default(), env)?;
        Ok(Self {
            device,
            volume,
            clock,
            seed: seed + 1,
        })
    }

    /// Lets a second pass.
    pub fn pass(&self) {
        self.clock.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn image(&self) -> Image {
        self.device.image()
    }

    pub fn dir(&self, parent: Ino, name: &str) -> Made<Ino> {
        Ok(self.volume.mkdir(parent, name.as_bytes(), &new(0o755))?.ino)
    }

    pub fn file(&self, dir: Ino, name: &str, content: &[u8]) -> Made<Ino> {
        let ino = self.volume.create(dir, name.as_bytes(), &new(0o644))?.ino;
        self.write(ino, 0, content)?;
        Ok(ino)
    }

    /// So many files, each a hundred bytes longer than the one before.
    pub fn files(&self, dir: Ino, count: usize) -> Made<Vec<Ino>> {
        let file = |i| self.file(dir, &format!("file {i}"), &text("first", 100 * i));
        (0..count).map(file).collect()
    }

    pub fn write(&self, ino: Ino, offset: u64, content: &[u8]) -> Made<()> {
        match self.volume.write(ino, offset, content)? {
            all if all == content.len() => Ok(()),
            some => Err(format!("{some} of {} bytes were written", content.len()).into()),
        }
    }

    pub fn resize(&self, ino: Ino, size: u64) -> Made<()> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.volume.setattr(ino, &set)?;
        Ok(())
    }

    pub fn attribute(&self, ino: Ino, name: &str, value: &[u8]) -> Made<()> {
        let name = name.as_bytes();
        Ok(self.volume.xattrs(ino).set(name, value, XattrMode::Any)?)
    }

    /// A file of every second block, `count` of them.
    pub fn holed(&self, dir: Ino, name: &str, block: u64, count: u64) -> Made<Ino> {
        let ino = self.file(dir, name, b"")?;
        for i in 0..count {
            self.write(ino, 2 * i * block, &text(name, block as usize))?;
        }
        Ok(ino)
    }
}

/// Surroundings in which no time passes.
pub(super) fn stopped(seed: u64) -> Env {
    Env::seeded(Arc::new(Stopped(AtomicI64::new(EPOCH))), seed)
}

/// Who makes new inodes.
pub(super) fn new(mode: u32) -> NewInode {
    NewInode {
        uid: 1000,
        gid: 100,
        ..NewInode::of_mode(mode)
    }
}

/// `len` bytes of numbered lines: they compress well, and no two units are alike.
pub(super) fn text(what: &str, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 80);
    for number in 0.. {
        if bytes.len() >= len {
            break;
        }
        bytes.extend_from_slice(format!("{what} line {number}\n").as_bytes());
    }
    bytes.truncate(len);
    bytes
}
