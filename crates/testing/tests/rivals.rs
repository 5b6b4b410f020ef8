//! One who writes to large files, cuts them and syncs them, and one who has everything written out and settled all the
//! time, on threads of their own. Whatever comes between, readers see what was written last, and so does who comes after.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, check};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::Ino;
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, SetAttr, Volume, mkfs};
use loamfs_testing::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const UNIT: u64 = 4096;
/// Units of a file at most: more than an overwrite may have that goes through the log.
const UNITS: u64 = 700;
const STEPS: u64 = 400;
const NAMES: [&str; 2] = ["a", "b"];

/// The files, and what they must hold: one byte repeated in each unit.
struct Files {
    volume: Arc<Volume>,
    inos: [Ino; 2],
    held: [Vec<u8>; 2],
    rng: Rng,
    byte: u8,
}

impl Files {
    /// Does something to a file that changes it, or makes it durable.
    fn step(&mut self) {
        let index = self.rng.index(2);
        let ino = self.inos[index];
        let held = &mut self.held[index];
        let size = held.len() as u64;
        match self.rng.below(10) {
            0..7 => {
                self.byte = self.byte.wrapping_add(1).max(1);
                let longest = *self.rng.pick(&[3, 40, 400]).unwrap();
                let at = self.rng.below(UNITS - 1);
                let len = self.rng.between(1, longest).min(UNITS - at);
                let content = vec![self.byte; (len * UNIT) as usize];
                self.volume.write(ino, at * UNIT, &content).unwrap();
                held.resize(size.max(at + len) as usize, 0);
                held[at as usize..(at + len) as usize].fill(self.byte);
            }
            7 => {
                let units = self.rng.below(UNITS);
                let set = SetAttr {
                    size: Some(units * UNIT),
                    ..SetAttr::default()
                };
                self.volume.setattr(ino, &set).unwrap();
                held.resize(units as usize, 0);
            }
            8 => self.volume.fsync(ino, false).unwrap(),
            _ => {
                let at = self.rng.below(UNITS);
                let content = self.volume.read(ino, at * UNIT, 40 * UNIT as usize);
                let end = (at + 40).min(size).max(at);
                let held = held.get(at as usize..end as usize).unwrap_or_default();
                assert_holds(&content.unwrap(), held, "in between");
            }
        }
    }

    fn verify(&self, volume: &Volume, when: &str) {
        for (name, held) in NAMES.iter().zip(&self.held) {
            let attr = volume.lookup(ROOT_INO, name.as_bytes()).unwrap();
            assert_eq!(attr.size, held.len() as u64 * UNIT, "{when}, {name}");
            let content = volume.read(attr.ino, 0, attr.size as usize).unwrap();
            assert_holds(&content, held, when);
        }
    }
}

fn assert_holds(content: &[u8], held: &[u8], when: &str) {
    assert_eq!(content.len(), held.len() * UNIT as usize, "{when}");
    let mut units = content.chunks(UNIT as usize).zip(held);
    let wrong = units.position(|(unit, byte)| unit.iter().any(|b| b != byte));
    assert_eq!(wrong, None, "{when}: a unit is not what was written last");
}

fn open(device: &Arc<MemoryDevice>, seed: u64) -> Volume {
    let options = OpenOptions {
        dirty_max: Some(2 << 20),
        ..OpenOptions::default()
    };
    Volume::open(device.clone(), &options, Env::fixed(seed)).unwrap()
}

fn made(rng: &mut Rng) -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new(24 << 20).with_rotational(false));
    let plain: Arc<dyn Device> = memory.clone();
    let options = MkfsOptions {
        block_size: *rng.pick(&[4096, 16384]).unwrap(),
        group_size: Some(1 << 20),
        segment_max: Some(256 << 10),
        ..MkfsOptions::default()
    };
    mkfs(&plain, &options, &Env::fixed(1)).unwrap();
    memory
}

/// Has everything written out until it is told to end.
fn write_out(volume: &Volume, inos: [Ino; 2], mut rng: Rng, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        match rng.below(4) {
            0 => volume.sync().unwrap(),
            1 => volume.upkeep().settle(rng.below(100) as usize).unwrap(),
            _ => volume.fsync(inos[rng.index(2)], false).unwrap(),
        }
    }
}

fn run(seed: u64) {
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    let mut rng = Rng::new(seed);
    let device = made(&mut rng);
    let volume = Arc::new(open(&device, seed));
    let inos = NAMES.map(|name| {
        let new = NewInode::of_mode(0o644);
        volume.create(ROOT_INO, name.as_bytes(), &new).unwrap().ino
    });
    let mut files = Files {
        volume: Arc::clone(&volume),
        inos,
        held: [Vec::new(), Vec::new()],
        rng: rng.fork(1),
        byte: 0,
    };
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| write_out(&volume, inos, rng.fork(2), &end));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..STEPS).for_each(|_| files.step());
        }));
        end.store(true, Ordering::Relaxed);
        assert!(done.is_ok(), "seed {seed}");
    });
    files.verify(&volume, &format!("seed {seed}"));
    volume.sync().unwrap();
    let after = open(&Arc::new(device.fork()), seed);
    files.verify(&after, &format!("seed {seed}, after a crash"));
    volume.close().unwrap();
    let mut options = Options::default();
    let report = check(&device.fork(), &mut options);
    assert!(report.is_clean(), "seed {seed}: {report}");
}

#[test]
fn readers_see_what_was_written_last() {
    (0..10).for_each(run);
}
