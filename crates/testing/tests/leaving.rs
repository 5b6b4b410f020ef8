//! Devices that leave a nearly full volume, while others write or not: what was admitted ends and loses nothing, and what is
//! refused changes nothing.
//!
//! `FIRST` and `SEEDS` say which seeds are tried.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, join_those_in};
use loamfs_fs::{
    Env, Error, MkfsOptions, NewDevice, NewInode, OpenOptions, ROOT_INO, Volume, mkfs_on,
    remove_emptied,
};
use loamfs_testing::files::content;
use loamfs_testing::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Three devices of a few sizes, and what was written.
struct Case {
    devices: Vec<Arc<dyn Device>>,
    rng: Rng,
    files: BTreeMap<usize, usize>,
    next: usize,
}

impl Case {
    fn new(seed: u64, bytes: u64) -> Case {
        let mut rng = Rng::new(seed);
        let device = |_| Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>;
        let devices: Vec<_> = (0..3).map(device).collect();
        let has_fast = rng.one_in(2);
        let new = |(index, device): (usize, &Arc<dyn Device>)| NewDevice {
            device: Arc::clone(device),
            kind: match has_fast && index == 0 {
                true => DeviceKind::Fast,
                false => DeviceKind::Slow,
            },
        };
        let all: Vec<_> = devices.iter().enumerate().map(new).collect();
        mkfs_on(&all, &MkfsOptions::default(), &Env::fixed(seed)).unwrap();
        Case {
            devices,
            rng,
            files: BTreeMap::new(),
            next: 0,
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let of = |(index, device): (usize, &Arc<dyn Device>)| Candidate {
            name: format!("disk{index}"),
            device: Arc::clone(device),
        };
        self.devices.iter().enumerate().map(of).collect()
    }

    fn volume(&self) -> Arc<dyn Device> {
        let all = self.candidates();
        join_those_in(&all[0], &all[1..]).unwrap()
    }

    fn open(&self) -> Volume {
        Volume::open(self.volume(), &OpenOptions::default(), Env::fixed(1)).unwrap()
    }

    /// A new file, small or large.
    fn put(&mut self, volume: &Volume) -> Result<(), Error> {
        let size = match self.rng.below(3) {
            0 => self.rng.between(20_000, 900_000),
            _ => self.rng.between(100, 12_000),
        } as usize;
        let number = self.next;
        self.next += 1;
        let name = format!("f{number}");
        let ino = volume
            .create(ROOT_INO, name.as_bytes(), &NewInode::of_mode(0o644))?
            .ino;
        match volume.write(ino, 0, &content(size, number)) {
            // Where room ends it may be less than all.
            Ok(written) => {
                self.files.insert(number, written);
                Ok(())
            }
            Err(error) => {
                volume.unlink(ROOT_INO, name.as_bytes())?;
                Err(error)
            }
        }
    }

    fn delete_one(&mut self, volume: &Volume) {
        let keys: Vec<usize> = self.files.keys().copied().collect();
        let key = keys[self.rng.below(keys.len() as u64) as usize];
        self.files.remove(&key);
        volume
            .unlink(ROOT_INO, format!("f{key}").as_bytes())
            .unwrap();
    }

    fn is_whole(&self, volume: &Volume) {
        for (number, size) in &self.files {
            let attr = volume
                .lookup(ROOT_INO, format!("f{number}").as_bytes())
                .unwrap();
            let bytes = volume.read(attr.ino, 0, attr.size as usize).unwrap();
            assert_eq!(bytes.len(), *size, "f{number}");
            assert!(bytes == content(*size, *number), "f{number}");
        }
    }

    fn is_sound(&self) {
        let report = check(self.volume().as_ref(), &mut Options::default());
        let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
        assert!(report.problems.iter().all(sound), "{report}");
    }
}

fn used(volume: &Volume) -> u64 {
    let figures = volume.statfs();
    (figures.total - figures.free) * u64::from(figures.fragment_size)
}

/// Whether a device could leave; nothing changes.
fn may_leave(volume: &Volume, device: u32) -> bool {
    let before = used(volume);
    let members = || format!("{:?}", volume.info().members);
    let (left, table) = (volume.upkeep().leave(device), members());
    match left {
        Ok(()) => volume.upkeep().stay(device).unwrap(),
        Err(error) => {
            let words = error.to_string();
            assert!(words.contains("and the others have room for"), "{words}");
            assert!(!table.contains("Leaving"), "{table}");
            // Cleaning may have tried to win room; what is free on the device is room again.
            assert!(used(volume).abs_diff(before) < 256 << 10, "{before}");
            return false;
        }
    }
    true
}

/// Fills a volume, with holes, until a device can just leave, and marks it. Returns how full the others are then.
fn fill_to_the_edge(case: &mut Case, volume: &Volume, device: u32, bytes: u64) -> u64 {
    let mut turns = 0;
    let full = 2 * bytes / 100 * case.rng.between(40, 60);
    while used(volume) < full {
        case.put(volume).unwrap();
        turns += 1;
        if turns % 4 == 0 && case.files.len() > 8 {
            case.delete_one(volume);
        }
        if turns % 50 == 0 {
            volume.sync().unwrap();
        }
    }
    while may_leave(volume, device) {
        for _ in 0..10 {
            case.put(volume).unwrap();
        }
        case.delete_one(volume);
        volume.sync().unwrap();
    }
    while volume.upkeep().leave(device).is_err() {
        case.delete_one(volume);
        volume.sync().unwrap();
    }
    used(volume) * 100 / (2 * bytes)
}

/// One round: a device that may leave does.
fn round(seed: u64, bytes: u64, writes: bool) {
    let mut case = Case::new(seed, bytes);
    let volume = case.open();
    let device = case.rng.between(1, 2) as u32;
    let percent = fill_to_the_edge(&mut case, &volume, device, bytes);
    let label = format!("seed {seed}, {percent} %, device {device}, writes {writes}");
    let emptied = volume.upkeep().evacuate(|_| {
        let more = if writes { case.rng.below(20) } else { 0 };
        for _ in 0..more {
            if case.put(&volume).is_err() {
                break;
            }
            if case.rng.one_in(3) {
                case.delete_one(&volume);
            }
        }
        true
    });
    println!("{label}: {emptied:?}");
    assert!(emptied.unwrap(), "{label}");
    case.is_whole(&volume);
    volume.close().unwrap();
    let all = case.candidates();
    remove_emptied(&all[0], &all[1..], &Env::fixed(8)).unwrap();
    case.is_sound();
    let volume = case.open();
    case.is_whole(&volume);
    volume.close().unwrap();
}

#[test]
fn what_was_admitted_to_leave_leaves_a_nearly_full_volume() {
    let given = |name| std::env::var(name).ok()?.parse().ok();
    let first: u64 = given("FIRST").unwrap_or(1);
    for seed in first..first + given("SEEDS").unwrap_or(8) {
        round(seed, 64 << 20, seed % 2 == 0);
    }
}
