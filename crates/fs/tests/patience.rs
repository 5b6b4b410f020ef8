//! Calls that may not wait: refused where they would, without a trace, and as good as others where they need not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, open};
use loamfs_fs::{
    Env, Error, Ino, NewInode, OpenOptions, ROOT_INO, Volume, WouldWait, without_waiting,
};

const NEW: NewInode = NewInode::of_mode(0o644);

/// A volume with a file of 300 KiB and a directory of many files, nothing of it in memory.
fn cold() -> (Volume, Ino, Ino) {
    let device = made(64 << 20);
    let volume = open(&device);
    let file = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    volume.write(file, 0, &[7; 300 << 10]).unwrap();
    let dir = volume.mkdir(ROOT_INO, b"dir", &NEW).unwrap().ino;
    for number in 0..500 {
        let name = format!("name {number}");
        volume.create(dir, name.as_bytes(), &NEW).unwrap();
    }
    volume.close().unwrap();
    (open(&device), file, dir)
}

#[test]
fn what_misses_blocks_is_refused_and_changes_nothing() {
    let (volume, file, dir) = cold();
    let tried = without_waiting(|| volume.unlink(dir, b"name 7"));
    assert_eq!(tried.map(drop), Err(WouldWait));
    let tried = without_waiting(|| volume.read(file, 0, 4096));
    assert_eq!(tried.map(drop), Err(WouldWait));
    // The first refusal ends all: what comes behind it is not done either, although it could be.
    let tried = without_waiting(|| {
        let missed = volume.lookup(dir, b"name 8");
        assert!(matches!(missed, Err(Error::WouldWait)));
        volume.create(ROOT_INO, b"new", &NEW)
    });
    assert_eq!(tried.map(drop), Err(WouldWait));
    assert!(matches!(
        volume.lookup(ROOT_INO, b"new"),
        Err(Error::NotFound)
    ));
    volume.unlink(dir, b"name 7").unwrap();
}

#[test]
fn what_is_in_memory_is_done() {
    let (volume, file, dir) = cold();
    volume.lookup(dir, b"name 1").unwrap();
    volume.read(file, 0, 4096).unwrap();
    volume.create(dir, b"another", &NEW).unwrap();
    without_waiting(|| {
        volume.lookup(dir, b"name 1").unwrap();
        assert_eq!(volume.read(file, 0, 4096).unwrap(), [7; 4096]);
        let made = volume.create(dir, b"made", &NEW).unwrap();
        volume.write(made.ino, 0, b"content").unwrap();
        volume.unlink(dir, b"another").unwrap();
    })
    .unwrap();
    let made = volume.lookup(dir, b"made").unwrap();
    assert_eq!(volume.read(made.ino, 0, 100).unwrap(), b"content");
    assert!(volume.lookup(dir, b"another").is_err());
}

/// A small file is read around: its neighbours are in memory then, though nobody asked for them.
#[test]
fn what_was_read_around_is_at_hand() {
    let device = made(64 << 20);
    let volume = open(&device);
    let make = |number: u8| {
        let name = format!("file {number}");
        let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(ino, 0, &[number; 1000]).unwrap();
        ino
    };
    let files: Vec<Ino> = (0..100).map(make).collect();
    volume.close().unwrap();
    let volume = open(&device);
    // They may stand on both sides of where a window ends, and the first that is asked for in one may come alone.
    for ino in [files[0], files[1], files[98], files[99]] {
        volume.read(ino, 0, 1000).unwrap();
    }
    let before = volume.info().device.total().reads;
    for (number, ino) in files.iter().enumerate() {
        let read = without_waiting(|| volume.read(*ino, 0, 2000).unwrap());
        assert_eq!(read, Ok(vec![number as u8; 1000]));
    }
    assert_eq!(volume.info().device.total().reads, before);
}

/// Behind a change that a caller was promised to find on the device: a refusal would have it made twice.
#[test]
fn an_fsync_waits_in_any_case() {
    let (volume, ..) = cold();
    volume.create(ROOT_INO, b"before", &NEW).unwrap();
    without_waiting(|| {
        let made = volume.create(ROOT_INO, b"made", &NEW).unwrap();
        volume.fsync(made.ino, false).unwrap();
    })
    .unwrap();
}

#[test]
fn writes_end_where_memory_does_and_go_on_elsewhere() {
    let device = made(256 << 20);
    let options = OpenOptions {
        cache_bytes: 16 << 20,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, &options, Env::system()).unwrap();
    let file = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    let piece = vec![3; 1 << 20];
    let write = |at: u64| volume.write(file, at << 20, &piece);
    let full = (0..128).find(|at| without_waiting(|| write(*at)).is_err());
    let full = full.expect("memory has no end");
    assert_eq!(write(full).unwrap(), piece.len());
    assert!(volume.read(file, full << 20, 1 << 20).unwrap() == piece);
}

/// What had room of a long write counted, and counted again when all of it was written.
#[test]
fn what_is_tried_first_counts_once() {
    let device = made(256 << 20);
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, &options, Env::fixed(2)).unwrap();
    let new = NewInode::of_mode(0o644);
    let ino = volume.create(ROOT_INO, b"file", &new).unwrap().ino;
    let (mut waited, piece) = (0, vec![7; 1 << 20]);
    for number in 0..64 {
        let write = || volume.write(ino, number << 20, &piece);
        match without_waiting(write) {
            Ok(written) => assert_eq!(written.unwrap(), piece.len()),
            Err(WouldWait) => {
                waited += 1;
                assert_eq!(write().unwrap(), piece.len());
            }
        }
    }
    assert!(waited > 0);
    assert_eq!(volume.info().written_bytes, 64 << 20);
}
