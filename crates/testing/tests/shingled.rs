//! Volumes for a shingled disk on which everything is in the log: a segment goes on from one group into the next, so that a block
//! may stand in both. Nothing of it is lost, wherever a crash comes, and whichever of the two groups is emptied.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, Image, MemoryDevice, RecordingDevice};
use loamfs_format::superblock::DiskFigures;
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, Place, ROOT_INO, Volume, mkfs};
use loamfs_testing::crashes::crashes;
use loamfs_testing::files::{content, get};
use loamfs_testing::loam::check_device;
use std::sync::Arc;

/// Bytes of a group: the log goes on into the next one where groups are no smaller.
const GROUP: u64 = 8 << 20;
/// Files that are made between two syncs.
const TOGETHER: usize = 40;

fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
}

fn made() -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new(16 * GROUP));
    let options = MkfsOptions {
        profile: "lfs".into(),
        disk: Some(DiskFigures::SHINGLED),
        group_size: Some(GROUP),
        ..MkfsOptions::default()
    };
    let device: Arc<dyn Device> = memory.clone();
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    memory
}

/// What a file holds: what is left of most groups is no room for it.
fn held(number: usize) -> Vec<u8> {
    content(8_000 + number % 7 * 1_100, number)
}

fn name(number: usize) -> String {
    format!("file {number}")
}

/// Makes the files of a turn, and syncs.
fn turn(volume: &Volume, turn: usize) {
    let new = NewInode::of_mode(0o644);
    for number in turn * TOGETHER..(turn + 1) * TOGETHER {
        let ino = volume
            .create(ROOT_INO, name(number).as_bytes(), &new)
            .unwrap()
            .ino;
        volume.write(ino, 0, &held(number)).unwrap();
    }
    volume.sync().unwrap();
}

/// Whether a file of a turn stands in two groups.
fn stands_in_two_groups(volume: &Volume, turn: usize) -> bool {
    let mut files = turn * TOGETHER..(turn + 1) * TOGETHER;
    files.any(|number| {
        let ino = volume
            .lookup(ROOT_INO, name(number).as_bytes())
            .unwrap()
            .ino;
        let (pieces, _) = volume.ranges(ino).map(0).unwrap();
        pieces.iter().any(|piece| match piece.place {
            Place::Log(at) => at / GROUP != (at + piece.len - 1) / GROUP,
            _ => false,
        })
    })
}

/// Of the files up to the end of a turn all that were synced are there, and others as a whole or not at all.
fn is_whole(volume: &Volume, synced: usize, last: usize) {
    for number in 0..last * TOGETHER {
        match get(volume, &name(number)) {
            Ok(found) if found.is_empty() && number >= synced * TOGETHER => {}
            Ok(found) => assert!(found == held(number), "file {number}"),
            Err(error) => assert!(number >= synced * TOGETHER, "file {number}: {error}"),
        }
    }
}

/// What a crash left is whole, and stays so when its groups are emptied.
fn goes_on(image: Image, turns: usize) {
    let device = Arc::new(MemoryDevice::from_image(image));
    let volume = open(device.clone());
    is_whole(&volume, turns, turns + 1);
    // Three of four files go: what is left is moved out of both groups.
    for number in (0..turns * TOGETHER).filter(|number| number % 4 > 0) {
        volume.unlink(ROOT_INO, name(number).as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    let cleaned = volume.upkeep().clean(80, &mut |_, _| true).unwrap();
    assert!(cleaned.moved > 0, "{cleaned:?}");
    for number in (0..turns * TOGETHER).step_by(4) {
        assert!(get(&volume, &name(number)).unwrap() == held(number));
    }
    volume.close().unwrap();
    assert_eq!(check_device(device.as_ref()), [""; 0]);
}

#[test]
fn a_block_that_stands_in_two_groups_survives_crashes_and_cleaning() {
    let mut memory = made();
    for turns in 0.. {
        assert!(turns < 40, "no block stands in two groups");
        let recorder = Arc::new(RecordingDevice::new(memory.fork()));
        let volume = open(recorder.clone());
        turn(&volume, turns);
        if !stands_in_two_groups(&volume, turns) {
            volume.close().unwrap();
            memory = Arc::new(MemoryDevice::from_image(recorder.image()));
            continue;
        }
        drop(volume);
        for event in 0..=recorder.event_count() {
            for image in crashes(&recorder, event).unwrap() {
                goes_on(image, turns);
            }
        }
        break;
    }
}
