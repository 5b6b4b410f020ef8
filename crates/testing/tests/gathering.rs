//! Large files that stand scattered in the log are put in order: when that is asked for, and in idle times; crashes in the middle of it,
//! and that nobody sees any of it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{Env, Ino, MkfsOptions, NewInode, OpenOptions, Place, ROOT_INO, Volume, mkfs};
use loamfs_testing::explore::cases::{
    Case, GEOMETRIES, Workload, all_cleaning, combined_cleaning, prepare_by,
};
use loamfs_testing::explore::fleet::{Orders, run};
use loamfs_testing::explore::starts::ids::HUGE;
use loamfs_testing::explore::starts::{name_of, setup};
use loamfs_testing::loam::{LOG_TURNING, Loam, check_device};
use loamfs_testing::ops::Op;
use loamfs_testing::rng::Rng;
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
/// Bytes that are written over together, and of the file.
const PIECE: u64 = 8 << 10;
const SIZE: u64 = 24 << 20;
/// Ticks of idle time: more than it waits, and than it takes.
const TICKS: usize = 40;

/// A volume on which everything is in the log.
fn made(rotational: bool) -> Arc<MemoryDevice> {
    made_of(256 << 20, rotational)
}

/// The same of so many bytes.
fn made_of(bytes: u64, rotational: bool) -> Arc<MemoryDevice> {
    let memory = MemoryDevice::new(bytes).with_rotational(rotational);
    let device = Arc::new(memory);
    let options = MkfsOptions {
        profile: "lfs".into(),
        ..MkfsOptions::default()
    };
    let plain: Arc<dyn Device> = device.clone();
    mkfs(&plain, &options, &Env::fixed(1)).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    let plain: Arc<dyn Device> = device.clone();
    Volume::open(plain, &OpenOptions::default(), Env::fixed(2)).unwrap()
}

/// A file whose pieces were written over in an order of chance, and what it holds.
fn scattered(volume: &Volume) -> (Ino, Vec<u8>) {
    let ino = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    let mut content = vec![1; SIZE as usize];
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    let mut rng = Rng::new(5);
    for turn in 0..SIZE / PIECE {
        let at = rng.index((SIZE / PIECE) as usize) * PIECE as usize;
        let piece = &mut content[at..at + PIECE as usize];
        piece.fill(turn as u8);
        volume.write(ino, at as u64, piece).unwrap();
        if turn % 64 == 0 {
            volume.fsync(ino, false).unwrap();
        }
    }
    volume.sync().unwrap();
    (ino, content)
}

/// In how many places the file stands.
fn places(volume: &Volume, ino: Ino) -> usize {
    let (mut places, mut from, mut end) = (0, Some(0), 0);
    while let Some(at) = from {
        let (pieces, next) = volume.ranges(ino).map(at).unwrap();
        for piece in pieces {
            let Place::Home(place) = piece.place else {
                panic!("{piece:?}");
            };
            places += usize::from(place != end);
            end = place + piece.len;
        }
        from = next;
    }
    places
}

fn assert_whole(device: &Arc<MemoryDevice>, volume: Volume, content: &[u8]) {
    let ino = volume.lookup(ROOT_INO, b"file").unwrap().ino;
    assert!(volume.read(ino, 0, SIZE as usize).unwrap() == content);
    volume.close().unwrap();
    assert_eq!(check_device(device.as_ref()), [""; 0]);
    let volume = open(device);
    assert!(volume.read(ino, 0, SIZE as usize).unwrap() == content);
}

/// It read a hundred times slower than when it was written, and no cleaning mended that.
#[test]
fn what_was_written_over_at_random_stands_in_order_once_it_is_cleaned() {
    let device = made(true);
    let volume = open(&device);
    let (ino, content) = scattered(&volume);
    volume.close().unwrap();
    // Another mount has seen nothing of it.
    let volume = open(&device);
    assert!(places(&volume, ino) > 1000);
    let cleaned = volume.upkeep().clean(50, &mut |_, _| true).unwrap();
    assert_eq!(cleaned.gathered, SIZE);
    assert!(places(&volume, ino) < 8);
    let again = volume.upkeep().clean(50, &mut |_, _| true).unwrap();
    assert_eq!(again.gathered, 0);
    assert_whole(&device, volume, &content);
}

#[test]
fn so_it_does_in_idle_time_and_that_ends() {
    let device = made(true);
    let volume = open(&device);
    let (ino, content) = scattered(&volume);
    let tick = || (0..TICKS).for_each(|_| volume.upkeep().tick().unwrap());
    tick();
    assert!(places(&volume, ino) < 8);
    tick();
    let written = device.counters().total().writes;
    tick();
    assert_eq!(device.counters().total().writes, written);
    assert_whole(&device, volume, &content);
}

#[test]
fn where_nothing_turns_it_stays_where_it_is() {
    let device = made(false);
    let volume = open(&device);
    let (ino, content) = scattered(&volume);
    for _ in 0..TICKS {
        volume.upkeep().tick().unwrap();
    }
    let cleaned = volume.upkeep().clean(10, &mut |_, _| true).unwrap();
    assert_eq!(cleaned.gathered, 0);
    assert!(places(&volume, ino) > 1000);
    assert_whole(&device, volume, &content);
}

/// One extent went on from region to region, and was looked at for ever behind the end of the first one.
#[test]
fn a_file_longer_than_a_region_comes_to_an_end() {
    const LONG: u64 = 130 << 20;
    const CHUNK: usize = 1 << 20;
    let device = made_of(1 << 30, true);
    // Less may wait than a group holds.
    let options = OpenOptions {
        cache_bytes: 16 << 20,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, &options, Env::fixed(2)).unwrap();
    let ino = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    let whole = vec![1; CHUNK];
    for at in (0..LONG).step_by(CHUNK) {
        volume.write(ino, at, &whole).unwrap();
    }
    volume.sync().unwrap();
    let tick = || (0..TICKS).for_each(|_| volume.upkeep().tick().unwrap());
    volume.write(ino, 0, &[2; PIECE as usize]).unwrap();
    volume.sync().unwrap();
    tick();
    // Every second piece of the first region.
    for at in (0..64 << 20).step_by(2 * PIECE as usize) {
        volume.write(ino, at, &[3; PIECE as usize]).unwrap();
    }
    volume.sync().unwrap();
    let before = places(&volume, ino);
    let cleaned = volume.upkeep().clean(10, &mut |_, _| true).unwrap();
    assert!(cleaned.gathered >= 64 << 20, "{cleaned:?}");
    assert!(places(&volume, ino) * 8 < before);
    tick();
    let read = volume.read(ino, 0, 3 * PIECE as usize).unwrap();
    let content = [3, 1, 3].map(|byte| [byte; PIECE as usize]).concat();
    assert!(read == content);
}

#[test]
fn who_says_so_ends_it() {
    let device = made(true);
    let volume = open(&device);
    let (_, content) = scattered(&volume);
    let cleaned = volume.upkeep().clean(50, &mut |_, _| false).unwrap();
    assert_eq!(cleaned.gathered, 0);
    assert_whole(&device, volume, &content);
}

#[test]
fn a_full_volume_keeps_its_room() {
    let device = made(true);
    let volume = open(&device);
    let (_, content) = scattered(&volume);
    let mut number = 0;
    let mut more = || {
        number += 1;
        let name = format!("more {number}");
        let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW)?.ino;
        volume.write(ino, 0, &vec![number as u8; 1 << 20])?;
        volume.sync()
    };
    while more().is_ok() {}
    let free = volume.info().groups[0];
    volume.upkeep().clean(50, &mut |_, _| true).unwrap();
    for _ in 0..TICKS {
        volume.upkeep().tick().unwrap();
    }
    let groups = volume.info().groups;
    assert!(groups[0] >= free, "{free} were free: {groups:?}");
    assert_whole(&device, volume, &content);
}

fn turning() -> Loam {
    Loam::default().on(LOG_TURNING).unwrap()
}

/// One single workload in so many; a prime, so that all workloads and all that may follow are among them.
const SINGLES_STEP: usize = 211;

/// A slice of what `explore --volumes lfs-deltas-turning` goes through. A full volume has no room for it.
fn cases() -> Vec<Case> {
    let singles = GEOMETRIES.into_iter().flat_map(all_cleaning);
    let singles = singles.filter(|case| !matches!(case.start, "empty" | "full"));
    let pairs = (1000..1002).map(combined_cleaning);
    singles.step_by(SINGLES_STEP).chain(pairs).collect()
}

/// The cases are of something.
#[test]
fn in_the_first_cases_a_file_is_put_in_order() {
    let all = GEOMETRIES.into_iter().flat_map(all_cleaning);
    let plain = all.filter(|case| case.name.ends_with("/clean/sync"));
    // What aged has few free groups.
    let plain = plain.filter(|case| !matches!(case.start, "empty" | "full" | "aged"));
    let mut count = 0;
    for case in plain {
        count += 1;
        let Workload::Listed(ops) = &case.ops else {
            panic!("{}", case.name);
        };
        let stands = |ops: &[Op]| {
            let all = [setup(case.start, &case.geometry), ops.to_vec()].concat();
            let image = prepare_by(&turning(), &case.geometry, &all).unwrap().image;
            let volume = open(&Arc::new(MemoryDevice::from_image(image)));
            let ino = volume.lookup(ROOT_INO, &name_of(HUGE).bytes()).unwrap().ino;
            let (pieces, _) = volume.ranges(ino).map(0).unwrap();
            pieces.len()
        };
        let without: Vec<Op> = ops.iter().filter(|op| **op != Op::Clean).cloned().collect();
        let (before, after) = (stands(&without), stands(ops));
        assert!(after < before, "{}: {before} to {after}", case.name);
    }
    assert_eq!(count, 3 * GEOMETRIES.len());
}

#[test]
fn every_crash_while_a_file_is_put_in_order_leaves_all_as_it_was() {
    let outcome = run(&turning(), &cases(), Orders::SLICE);
    println!("{}", outcome.tally);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty(), "{}", outcome.tally);
    assert!(outcome.tally.distinct > 100, "{}", outcome.tally);
}
