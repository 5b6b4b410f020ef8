//! What a device is told to forget (rule 5): all that is free, and nothing that a crash may bring back.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{
    Device, Effect, Event, FaultyDevice, Image, MemoryDevice, Op, RecordingDevice, Rule,
};
use loamfs_format::Ino;
use loamfs_fs::{
    Discard, Durability, Env, Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs,
};
use loamfs_testing::files::get;
use loamfs_testing::left_out;
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const SIZE: u64 = 64 << 20;
const LARGE: usize = 3 << 20;
const SMALL: usize = 5_000;

fn made(discard: Discard) -> (Arc<RecordingDevice>, Volume) {
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let recorder = Arc::new(RecordingDevice::new(memory.fork()));
    let volume = open(recorder.clone(), discard);
    (recorder, volume)
}

fn open(device: Arc<dyn Device>, discard: Discard) -> Volume {
    let options = OpenOptions {
        discard,
        ..OpenOptions::default()
    };
    left_out::open(device, &options, Env::fixed(2)).unwrap()
}

fn content(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i * 31) >> 3) as u8 ^ seed as u8 | 1)
        .collect()
}

fn put(volume: &Volume, name: &str, bytes: &[u8]) -> Ino {
    let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
    assert_eq!(volume.write(ino, 0, bytes).unwrap(), bytes.len());
    ino
}

/// What is left when power fails now, and of what was not flushed the discards reached the disk, the writes did not.
fn worst(recorder: &RecordingDevice) -> Image {
    let events = recorder.events();
    let flushed = events.iter().rposition(|event| *event == Event::Flush);
    let from = flushed.map_or(0, |at| at + 1);
    let mut image = recorder.image_after(from).unwrap();
    for event in &events[from..] {
        if matches!(event, Event::Discard { .. }) {
            event.apply(&mut image).unwrap();
        }
    }
    image
}

fn is_sound(device: &dyn Device) {
    let mut options = Options::default();
    let report = check(device, &mut options);
    let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
    assert!(report.problems.iter().all(sound), "{report}");
}

fn discarded(recorder: &RecordingDevice) -> u64 {
    let events = recorder.events();
    let lens = events.iter().map(|event| match event {
        Event::Discard { len, .. } => *len,
        _ => 0,
    });
    lens.sum()
}

#[test]
fn what_a_crash_brings_back_was_not_discarded() {
    let (recorder, volume) = made(Discard::Never);
    for i in 0..20 {
        put(&volume, &format!("s{i}"), &content(SMALL, i));
    }
    put(&volume, "large", &content(LARGE, 1));
    volume.sync().unwrap();
    for i in 0..20 {
        volume.unlink(ROOT_INO, format!("s{i}").as_bytes()).unwrap();
    }
    volume.unlink(ROOT_INO, b"large").unwrap();
    // The segment that frees them is written, and not durable.
    volume.upkeep().commit(Durability::Written).unwrap();
    assert!(volume.upkeep().trim(0, u64::MAX, 0).unwrap() > SIZE / 2);
    let device = Arc::new(MemoryDevice::from_image(worst(&recorder)));
    let crashed = open(device.clone(), Discard::Never);
    assert_eq!(get(&crashed, "large").unwrap(), content(LARGE, 1));
    for i in 0..20 {
        assert_eq!(get(&crashed, &format!("s{i}")).unwrap(), content(SMALL, i));
    }
    is_sound(device.as_ref());
}

#[test]
fn trimming_tells_of_all_that_is_free_and_of_nothing_else() {
    let (recorder, volume) = made(Discard::Never);
    put(&volume, "kept", &content(LARGE, 1));
    put(&volume, "small", &content(SMALL, 2));
    put(&volume, "gone", &[0xab; LARGE]);
    volume.sync().unwrap();
    volume.unlink(ROOT_INO, b"gone").unwrap();
    // What is freed is free when a durable segment says that its segment is.
    volume.sync().unwrap();
    volume.upkeep().tick().unwrap();
    let told = volume.upkeep().trim(0, u64::MAX, 0).unwrap();
    assert_eq!(told, discarded(&recorder));
    let figures = volume.statfs();
    let (used, frag) = (
        figures.total - figures.free,
        u64::from(figures.fragment_size),
    );
    // Parts of units, and what waits for a checkpoint.
    assert!(
        told >= SIZE - used * frag - (1 << 20),
        "{told} bytes, {used} used"
    );
    assert!(told <= SIZE - LARGE as u64);
    // Bytes that nobody has written to since hold nothing now.
    let image = recorder.image();
    let marks = image.to_vec();
    assert!(
        !marks.windows(64).any(|window| window == [0xab; 64]),
        "not told"
    );
    volume.close().unwrap();
    is_sound(recorder.as_ref());
    let again = open(recorder.clone(), Discard::Never);
    assert_eq!(get(&again, "kept").unwrap(), content(LARGE, 1));
    assert_eq!(get(&again, "small").unwrap(), content(SMALL, 2));
}

#[test]
fn a_range_and_a_least_length_are_kept_to() {
    let (recorder, volume) = made(Discard::Never);
    let from = (SIZE / 2) + 512;
    let told = volume.upkeep().trim(from, 8 << 20, 0).unwrap();
    assert!(told > 0 && told <= 8 << 20);
    for event in recorder.events() {
        if let Event::Discard { offset, len } = event {
            assert!(offset >= from && offset + len <= from + (8 << 20));
        }
    }
    let refused = [
        (0, u64::MAX, SIZE),
        (SIZE, u64::MAX, 0),
        (0, 0, 0),
        (0, 511, 0),
    ];
    for (start, len, least) in refused {
        let told = volume.upkeep().trim(start, len, least);
        assert!(
            matches!(told, Err(Error::Invalid(_))),
            "{start} {len} {least}: {told:?}"
        );
    }
    assert_eq!(volume.upkeep().trim(SIZE - 512, u64::MAX, 0).unwrap(), 0);
}

#[test]
fn with_the_option_a_deleted_file_is_discarded_by_itself() {
    let (recorder, volume) = made(Discard::Always);
    put(&volume, "kept", &content(LARGE, 1));
    put(&volume, "gone", &content(LARGE, 3));
    volume.sync().unwrap();
    assert_eq!(discarded(&recorder), 0);
    volume.unlink(ROOT_INO, b"gone").unwrap();
    volume.sync().unwrap();
    for _ in 0..3 {
        volume.upkeep().tick().unwrap();
    }
    assert!(discarded(&recorder) >= LARGE as u64);
    assert_eq!(get(&volume, "kept").unwrap(), content(LARGE, 1));
    volume.close().unwrap();
    is_sound(recorder.as_ref());
}

/// Bytes that a device was told of which turns or not, once a large file went, and then small ones that had a whole part of the log.
fn told_by_itself(turns: bool) -> [u64; 2] {
    let memory = Arc::new(MemoryDevice::new(SIZE).with_rotational(turns));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(memory.clone(), Discard::Flash);
    put(&volume, "large", &content(LARGE, 1));
    for i in 0..200 {
        put(&volume, &format!("s{i}"), &content(SMALL, i));
    }
    volume.sync().unwrap();
    let mut told = [0; 2];
    let mut gone = |i: usize, name: &str| {
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
        volume.sync().unwrap();
        (0..3).for_each(|_| volume.upkeep().tick().unwrap());
        told[i] = memory.counters().discard_bytes();
    };
    gone(0, "large");
    (0..200).for_each(|i| gone(1, &format!("s{i}")));
    volume.close().unwrap();
    is_sound(memory.as_ref());
    told
}

#[test]
fn solid_state_disks_are_told_by_themselves_and_disks_that_turn_are_not() {
    let [large, small] = told_by_itself(false);
    assert!(large >= (LARGE - (128 << 10)) as u64, "{large}");
    // Each file went alone, and takes less than a device is told of.
    let bytes = (200 * SMALL) as u64;
    assert!(small - large >= bytes / 2, "{small} - {large} of {bytes}");
    assert_eq!(told_by_itself(true), [0, 0]);
}

#[test]
fn a_device_that_cannot_discard_holds_nobody_up() {
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let faulty = Arc::new(FaultyDevice::new(memory));
    let volume = open(faulty.clone(), Discard::Always);
    faulty.set_rules(vec![Rule::on(Op::Discard, Effect::Fail)]);
    put(&volume, "gone", &content(LARGE, 3));
    volume.sync().unwrap();
    volume.unlink(ROOT_INO, b"gone").unwrap();
    volume.sync().unwrap();
    for _ in 0..3 {
        volume.upkeep().tick().unwrap();
    }
    assert!(
        volume.upkeep().trim(0, u64::MAX, 0).is_err(),
        "who asks is told"
    );
    put(&volume, "new", &content(LARGE, 4));
    volume.close().unwrap();
    assert_eq!(
        get(&open(faulty, Discard::Never), "new").unwrap(),
        content(LARGE, 4)
    );
}

#[test]
fn a_device_that_makes_no_use_of_it_is_told_from_one_that_does() {
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let deaf = Arc::new(FaultyDevice::new(memory));
    deaf.set_rules(vec![Rule::on(Op::Discard, Effect::Lost)]);
    let volume = open(deaf, Discard::Never);
    let told = volume.upkeep().trim(0, u64::MAX, 0);
    assert!(matches!(told, Err(Error::Unsupported)), "{told:?}");
}

#[test]
fn discarding_what_is_held_back_is_noticed() {
    let test = "what_a_crash_brings_back_was_not_discarded";
    let unmissed = left_out::unmissed(&[("discard-held", test)]).unwrap();
    assert_eq!(unmissed, []);
}
