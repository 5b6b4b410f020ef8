//! What a crash shows of changes that nobody synced: files that replace others (rule 3), and how much may be lost
//! (rule 9).

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, Event, IoKind, MemoryDevice, RecordingDevice};
use loamfs_format::Ino;
use loamfs_fs::{
    Durability, Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, RenameFlags, SetAttr, Volume,
    mkfs,
};
use loamfs_testing::left_out;
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const LARGE: usize = 3 << 20;

fn made(size: u64) -> (Arc<RecordingDevice>, Volume) {
    let memory = Arc::new(MemoryDevice::new(size));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let recorder = Arc::new(RecordingDevice::new(memory.fork()));
    let volume = open(recorder.clone());
    (recorder, volume)
}

fn open(device: Arc<dyn Device>) -> Volume {
    left_out::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
}

fn make(volume: &Volume, name: &[u8], byte: u8, len: usize) -> Ino {
    let ino = volume.create(ROOT_INO, name, &NEW).unwrap().ino;
    assert_eq!(volume.write(ino, 0, &vec![byte; len]).unwrap(), len);
    ino
}

/// What every crash from event `from` on shows of a file.
fn seen(recorder: &RecordingDevice, from: usize) -> impl Iterator<Item = Vec<u8>> {
    (from..=recorder.event_count()).map(|n| {
        let crash = MemoryDevice::from_image(recorder.image_after(n).unwrap());
        let volume = open(Arc::new(crash));
        let attr = volume.lookup(ROOT_INO, b"f").unwrap();
        volume.read(attr.ino, 0, 2 * LARGE).unwrap()
    })
}

/// Every crash shows the file whole, and `old` or `new` throughout.
fn is_one_or_the_other(recorder: &RecordingDevice, from: usize, old: u8, new: u8) {
    for bytes in seen(recorder, from) {
        let whole = bytes == vec![old; LARGE] || bytes == vec![new; LARGE];
        assert!(whole, "{} bytes of {:?}", bytes.len(), bytes.first());
    }
}

#[test]
fn a_file_renamed_over_another_is_never_seen_without_its_data() {
    let (recorder, volume) = made(64 << 20);
    make(&volume, b"f", 1, LARGE);
    volume.sync().unwrap();
    let from = recorder.event_count();
    make(&volume, b"new", 2, LARGE);
    let flags = RenameFlags::default();
    volume
        .rename(ROOT_INO, b"new", ROOT_INO, b"f", flags)
        .unwrap();
    let other = make(&volume, b"other", 3, 100);
    volume.fsync(other, false).unwrap();
    is_one_or_the_other(&recorder, from, 1, 2);
}

/// Another file's fsync showed the cut, and the data behind it waited for the next commit.
#[test]
fn a_file_cut_and_written_anew_is_never_seen_without_its_data() {
    let (recorder, volume) = made(64 << 20);
    let file = make(&volume, b"f", 1, LARGE);
    volume.sync().unwrap();
    let from = recorder.event_count();
    let set = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    volume.setattr(file, &set).unwrap();
    volume.write(file, 0, &vec![2; LARGE]).unwrap();
    let other = make(&volume, b"other", 3, 100);
    volume.fsync(other, false).unwrap();
    is_one_or_the_other(&recorder, from, 1, 2);
}

#[test]
fn no_more_than_32_mib_are_ever_sealed_and_not_durable() {
    let (recorder, volume) = made(256 << 20);
    for i in 0..60u32 {
        for j in 0..70u32 {
            make(&volume, format!("{i} {j}").as_bytes(), i as u8, 16_000);
        }
        volume.upkeep().commit(Durability::Written).unwrap();
    }
    let (mut undurable, mut most) = (0, 0);
    for event in recorder.events() {
        match event {
            Event::Write {
                data,
                kind: IoKind::Segment,
                ..
            } => undurable += data.len() as u64,
            Event::Flush => undurable = 0,
            _ => {}
        }
        most = most.max(undurable);
    }
    assert!(most <= 32 << 20, "{most} bytes");
    assert!(most > 8 << 20, "{most} bytes: nothing was tried");
}

/// A large file that shrank, became small and grew again was shown empty until its data were at home.
#[test]
fn a_file_that_goes_back_to_the_log_and_home_again_is_never_seen_without_its_data() {
    let (recorder, volume) = made(64 << 20);
    let file = make(&volume, b"f", 1, LARGE);
    volume.sync().unwrap();
    let from = recorder.event_count();
    let set = SetAttr {
        size: Some(10_000),
        ..SetAttr::default()
    };
    volume.setattr(file, &set).unwrap();
    volume.write(file, 30_000, &[2; 10_000]).unwrap();
    let other = make(&volume, b"other", 3, 100);
    volume.fsync(other, false).unwrap();
    for bytes in seen(&recorder, from) {
        assert!(bytes.len() >= 10_000, "{} bytes", bytes.len());
        assert!(bytes[..10_000] == [1; 10_000]);
    }
}

/// A small file that took another's name and grew large before the next segment was shown empty.
#[test]
fn a_small_file_that_took_a_name_and_grew_is_never_seen_without_its_data() {
    let (recorder, volume) = made(64 << 20);
    make(&volume, b"f", 1, LARGE);
    volume.sync().unwrap();
    let from = recorder.event_count();
    let new = make(&volume, b"new", 2, 10_000);
    let flags = RenameFlags::default();
    volume
        .rename(ROOT_INO, b"new", ROOT_INO, b"f", flags)
        .unwrap();
    volume.write(new, 30_000, &[3; 10_000]).unwrap();
    let other = make(&volume, b"other", 3, 100);
    volume.fsync(other, false).unwrap();
    for bytes in seen(&recorder, from) {
        assert!(bytes.len() >= 10_000, "{} bytes", bytes.len());
        let old = bytes == vec![1; LARGE];
        assert!(old || bytes[..10_000] == [2; 10_000]);
    }
}

/// Clauses, and the test above that notices when one is left out.
const CLAUSES: [(&str, &str); 5] = [
    (
        "grow-unsealed",
        "a_file_that_goes_back_to_the_log_and_home_again_is_never_seen_without_its_data",
    ),
    (
        "grow-unsealed",
        "a_small_file_that_took_a_name_and_grew_is_never_seen_without_its_data",
    ),
    (
        "rename-without-barrier",
        "a_file_renamed_over_another_is_never_seen_without_its_data",
    ),
    (
        "cut-without-barrier",
        "a_file_cut_and_written_anew_is_never_seen_without_its_data",
    ),
    (
        "undurable-unbounded",
        "no_more_than_32_mib_are_ever_sealed_and_not_durable",
    ),
];

#[test]
fn every_clause_is_missed_when_it_is_left_out() {
    assert_eq!(left_out::unmissed(&CLAUSES).unwrap(), []);
}
