//! Growing a volume: every crash in it leaves the old size or the new one, and nothing that was on it is lost.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, IoKind, MemoryDevice, RecordingDevice};
use loamfs_fs::{Env, Error, MkfsOptions, OpenOptions, Volume, grow, mkfs};
use loamfs_testing::crashes::crashes;
use loamfs_testing::files::{content, get, put};
use loamfs_testing::left_out;
use std::sync::Arc;

const OLD_SIZE: u64 = 4 << 20;
const NEW_SIZE: u64 = 12 << 20;
/// A file that the old size has no room for.
const MORE: usize = 2 << 20;
/// Places of the superblock copies below 16 MiB.
const COPIES: [u64; 2] = [64 << 10, 128 << 10];

fn open(device: Arc<dyn Device>, seed: u64) -> Volume {
    left_out::open(device, &OpenOptions::default(), Env::fixed(seed)).unwrap()
}

/// A full volume of `size` bytes on a device of `device`, after a crash; and how many files fill it.
fn full(size: u64, device: u64) -> (MemoryDevice, usize) {
    let memory = Arc::new(MemoryDevice::new(device));
    let plain: Arc<dyn Device> = memory.clone();
    let options = MkfsOptions {
        size: Some(size),
        label: "grows".into(),
        ..MkfsOptions::default()
    };
    mkfs(&plain, &options, &Env::fixed(1)).unwrap();
    let volume = open(plain, 2);
    let mut files = 0;
    while put(&volume, &format!("f{files}"), &content(40_000, files)).is_ok() {
        files += 1;
    }
    (memory.fork(), files)
}

fn size_of(volume: &Volume) -> u64 {
    let figures = volume.statfs();
    figures.total * u64::from(figures.fragment_size)
}

fn is_whole(volume: &Volume, files: usize) {
    for i in 0..files {
        assert_eq!(get(volume, &format!("f{i}")).unwrap(), content(40_000, i));
    }
}

fn is_sound(device: &dyn Device) {
    let report = check(device, &mut Options::default());
    let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
    assert!(report.problems.iter().all(sound), "{report}");
}

#[test]
fn every_crash_leaves_the_old_size_or_the_new_one() {
    let (memory, files) = full(OLD_SIZE, NEW_SIZE);
    crash_everywhere(memory.fork(), files);
    // Once more with the newest superblock in the other place.
    let memory = Arc::new(memory);
    open(memory.clone(), 3).close().unwrap();
    crash_everywhere(memory.fork(), files);
}

fn crash_everywhere(memory: MemoryDevice, files: usize) {
    let recorder = Arc::new(RecordingDevice::new(memory));
    let device: Arc<dyn Device> = recorder.clone();
    let sizes = grow(&device, None, &Env::fixed(3)).unwrap();
    assert_eq!(sizes, (OLD_SIZE, NEW_SIZE));
    let mut seen = [0, 0];
    for count in 0..=recorder.event_count() {
        for image in crashes(&recorder, count).unwrap() {
            let device = Arc::new(MemoryDevice::from_image(image));
            let volume = open(device.clone(), 4);
            is_whole(&volume, files);
            is_sound(&device.fork());
            let grown = size_of(&volume) == NEW_SIZE;
            assert!(grown || size_of(&volume) == OLD_SIZE);
            seen[usize::from(grown)] += 1;
            if grown {
                // What is added is used at once, and is there whichever copy of the superblock rots.
                put(&volume, "more", &content(MORE, 7)).unwrap();
                for rotten in COPIES {
                    let mut image = device.image();
                    image.clear(rotten, 4096).unwrap();
                    let volume = open(Arc::new(MemoryDevice::from_image(image)), 5);
                    assert_eq!(get(&volume, "more").unwrap(), content(MORE, 7));
                    is_whole(&volume, files);
                }
            }
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn a_grown_volume_is_used_to_its_end() {
    // The end of the old one cuts a group, and a block of it.
    for old in [OLD_SIZE, (5 << 20) + 4096, (6 << 20) - 4096] {
        let (memory, files) = full(old, NEW_SIZE);
        let memory = Arc::new(memory);
        let device: Arc<dyn Device> = memory.clone();
        grow(&device, Some(NEW_SIZE - 4096), &Env::fixed(3)).unwrap();
        is_sound(memory.as_ref());
        let volume = open(device.clone(), 4);
        let mut more = 0;
        while put(&volume, &format!("m{more}"), &content(100_000, more)).is_ok() {
            more += 1;
        }
        is_whole(&volume, files);
        for i in 0..more {
            assert_eq!(get(&volume, &format!("m{i}")).unwrap(), content(100_000, i));
        }
        let added = (more * 100_000) as u64;
        assert!(
            added > (NEW_SIZE - old) * 6 / 10,
            "{added} bytes were added"
        );
        volume.close().unwrap();
        is_sound(memory.as_ref());
    }
}

#[test]
fn sizes_that_a_volume_cannot_have_are_refused() {
    let (memory, files) = full(OLD_SIZE, 20 << 20);
    let memory = Arc::new(memory);
    let device: Arc<dyn Device> = memory.clone();
    let writes = memory.counters().total().writes;
    for size in [OLD_SIZE - 4096, 16 << 20, 21 << 20] {
        let refused = grow(&device, Some(size), &Env::fixed(3));
        assert!(
            matches!(refused, Err(Error::Options(_))),
            "{size}: {refused:?}"
        );
    }
    assert_eq!(memory.counters().total().writes, writes);
    let before = memory.counters().kind(IoKind::Superblock).writes;
    let same = grow(&device, Some(OLD_SIZE + 4095), &Env::fixed(3)).unwrap();
    assert_eq!(same, (OLD_SIZE, OLD_SIZE));
    assert!(memory.counters().kind(IoKind::Superblock).writes > before);
    let volume = open(device, 4);
    assert_eq!(volume.info().label, b"grows");
    is_whole(&volume, files);
}

/// A label is changed in both copies, and a crash leaves the old one or the new one.
#[test]
fn every_crash_leaves_one_label_or_the_other() {
    let (memory, files) = full(OLD_SIZE, OLD_SIZE);
    let recorder = Arc::new(RecordingDevice::new(memory));
    let volume = open(recorder.clone(), 3);
    volume.upkeep().set_label(b"another").unwrap();
    assert!(volume.upkeep().set_label(&[b'x'; 65]).is_err());
    for count in 0..=recorder.event_count() {
        for image in crashes(&recorder, count).unwrap() {
            let volume = open(Arc::new(MemoryDevice::from_image(image)), 4);
            let label = volume.info().label;
            assert!(label == b"grows" || label == b"another");
            is_whole(&volume, files);
        }
    }
    for rotten in COPIES {
        let mut image = recorder.image();
        image.clear(rotten, 4096).unwrap();
        let volume = open(Arc::new(MemoryDevice::from_image(image)), 4);
        assert_eq!(volume.info().label, b"another");
    }
}

#[test]
fn the_crashes_miss_that_one_copy_tells_the_old_size() {
    let test = "every_crash_leaves_the_old_size_or_the_new_one";
    let unmissed = left_out::unmissed(&[("one-copy-grown", test)]).unwrap();
    assert_eq!(unmissed, []);
}
