//! Large files in the holes that short ones left, while the log lives on its reserve (rule 10): what homes in many short holes make of
//! extents and records must leave removals and checkpoints their room.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, open};
use loamfs_check::{Options, check};
use loamfs_device::Device;
use loamfs_fs::{Error, NewInode, ROOT_INO, Volume};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

/// Makes a file; `false` if it has no room.
fn put(volume: &Volume, name: &str, bytes: &[u8]) -> bool {
    let ino = match volume.create(ROOT_INO, name.as_bytes(), &NEW) {
        Err(Error::NoSpace) => return false,
        made => made.unwrap().ino,
    };
    match volume.write(ino, 0, bytes) {
        Err(Error::NoSpace) => false,
        written => written.unwrap() == bytes.len(),
    }
}

fn remove(volume: &Volume, name: &str) {
    match volume.unlink(ROOT_INO, name.as_bytes()) {
        Err(Error::NotFound) => {}
        removed => removed.unwrap_or_else(|error| panic!("{name} cannot be removed: {error}")),
    }
}

/// Files until none fits, every second of them gone; then a large one comes and goes, again and again, and all go.
fn through(mib: u64, short: usize, large: usize, crash: bool) {
    let device = made(mib << 20);
    let mut volume = open(&device);
    let again = |device: &Arc<dyn Device>, volume: Volume| {
        drop(volume);
        open(device)
    };
    let bytes = vec![7; short];
    let mut count = 0;
    while put(&volume, &format!("short{count}"), &bytes) {
        count += 1;
    }
    assert!(
        count as usize * short > (mib as usize) << 19,
        "{count} files"
    );
    volume.sync().unwrap();
    for number in (0..count).step_by(2) {
        remove(&volume, &format!("short{number}"));
    }
    // What is left of the room goes to the log.
    let mut tiny = 0;
    while put(&volume, &format!("tiny{tiny}"), &[1; 9000]) {
        tiny += 1;
    }
    for number in (0..tiny).step_by(5) {
        remove(&volume, &format!("tiny{number}"));
    }
    for round in 0..6 {
        volume.sync().unwrap();
        put(&volume, "large", &vec![round; large]);
        volume.sync().unwrap();
        if crash {
            volume = again(&device, volume);
        }
        remove(&volume, "large");
        remove(&volume, &format!("short{}", 2 * round + 1));
    }
    if crash {
        volume.sync().unwrap();
        volume = again(&device, volume);
    }
    remove(&volume, "large");
    for number in 0..tiny {
        remove(&volume, &format!("tiny{number}"));
    }
    for number in 0..=count {
        remove(&volume, &format!("short{number}"));
    }
    volume.close().unwrap();
    let report = check(device.as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_large_file_in_many_short_holes_leaves_removals_their_room() {
    through(64, 20 << 10, 8 << 20, false);
    through(64, 17 << 10, 12 << 20, true);
    through(32, 24 << 10, 4 << 20, true);
}

/// Punches every second block of a file that fills the volume: each leaves an extent more for good, and no group empty.
fn punched(mib: u64, crash: bool) {
    const BLOCK: u64 = 4096;
    let device = made(mib << 20);
    let mut volume = open(&device);
    let ino = volume.create(ROOT_INO, b"whole", &NEW).unwrap().ino;
    let piece = vec![7; 1 << 20];
    let mut size = 0;
    loop {
        match volume.write(ino, size, &piece) {
            Ok(0) | Err(Error::NoSpace) => break,
            written => size += written.unwrap() as u64,
        }
    }
    volume.sync().unwrap();
    while put(&volume, &format!("tiny{size}"), &[1; 9000]) {
        size += 1;
    }
    volume.sync().unwrap();
    let end = volume.getattr(ino).unwrap().size / BLOCK;
    for block in (0..end).step_by(2) {
        let file = volume.ranges(ino);
        let punched = file.punch(block * BLOCK, BLOCK);
        punched.unwrap_or_else(|error| panic!("block {block} of {end}: {error}"));
    }
    volume.sync().unwrap();
    if crash {
        drop(volume);
        volume = open(&device);
    }
    put(&volume, "large", &vec![3; (mib << 17) as usize]);
    volume.sync().unwrap();
    remove(&volume, "large");
    remove(&volume, "whole");
    volume.close().unwrap();
    let report = check(device.as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_full_file_may_lose_every_second_block() {
    punched(64, false);
    punched(32, true);
    punched(16, true);
}
