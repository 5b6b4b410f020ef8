//! Ranges of files: freed, zeroed, filled, searched and copied.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, mounted, open};
use loamfs_device::{Device, IoKind, Issued, ObservedDevice, Observer, Op};
use loamfs_fs::{Durability, Error, Ino, NewInode, ROOT_INO, SetAttr, Volume};
use std::ops::Range;
use std::sync::{Arc, Mutex};

const NEW: NewInode = NewInode::of_mode(0o644);
/// Bytes of a block of these volumes.
const BLOCK: usize = 4 << 10;
/// Most bytes of a small file.
const SMALL: usize = 16 << 10;

/// A volume with a file of `len` bytes.
fn with_file(len: usize) -> (Arc<dyn Device>, Volume, Ino) {
    let (device, volume) = mounted(64 << 20);
    let ino = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(ino, 0, &vec![7; len]).unwrap();
    (device, volume, ino)
}

fn expect_zeros(volume: &Volume, ino: Ino, len: usize, zeros: Range<usize>) {
    let mut wanted = vec![7; len];
    wanted[zeros].fill(0);
    let found = volume.read(ino, 0, len + 1).unwrap();
    assert_eq!(found.len(), len);
    let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
    assert_eq!(differs, None, "first byte that differs");
}

fn blocks(volume: &Volume, ino: Ino) -> u64 {
    volume.getattr(ino).unwrap().blocks * 512
}

/// The kernel keeps the number that it was told for an hour.
#[test]
fn what_a_file_takes_is_told_before_it_is_on_the_device() {
    let (_device, volume, ino) = with_file(5000);
    let settled = |what: &str| {
        let before = blocks(&volume, ino);
        volume.fsync(ino, false).unwrap();
        assert_eq!(blocks(&volume, ino), before, "{what}");
        volume.upkeep().checkpoint().unwrap();
        assert_eq!(blocks(&volume, ino), before, "{what}");
        before
    };
    let write = |at: usize, len: usize| volume.write(ino, at as u64, &vec![7; len]).unwrap();
    let size = |size: usize| {
        let size = Some(size as u64);
        let set = SetAttr {
            size,
            ..SetAttr::default()
        };
        let said = volume.setattr(ino, &set).unwrap().blocks;
        assert_eq!(said * 512, blocks(&volume, ino), "{size:?}");
    };
    assert_eq!(settled("a small file"), 5 << 10);
    size(300);
    settled("a smaller one");
    write(0, 20_000);
    assert_eq!(settled("a large one"), 5 * BLOCK as u64);
    write(20_000, 8 * BLOCK);
    settled("appended to");
    write(100 * BLOCK, 1);
    assert_eq!(settled("with a hole"), 14 * BLOCK as u64);
    write(0, 4096);
    write(50 * BLOCK, 2 * BLOCK);
    write(3 * BLOCK, 3 * BLOCK);
    assert_eq!(settled("written over, and in the hole"), 16 * BLOCK as u64);
    volume
        .ranges(ino)
        .allocate(60 * BLOCK as u64, 4 * BLOCK as u64, false)
        .unwrap();
    write(61 * BLOCK, BLOCK);
    assert_eq!(settled("written where it was reserved"), 20 * BLOCK as u64);
    size(30_000);
    assert_eq!(settled("cut"), 8 * BLOCK as u64);
}

#[test]
fn a_freed_range_reads_as_zeros_whatever_its_form() {
    let ranges = [
        0..1,
        100..200,
        0..BLOCK,
        BLOCK..2 * BLOCK,
        BLOCK - 1..3 * BLOCK + 1,
        5000..5 * BLOCK,
        4 * BLOCK..usize::MAX / 4,
    ];
    for len in [100, 5000, SMALL, SMALL + 4 * BLOCK, SMALL + 4 * BLOCK + 100] {
        for range in &ranges {
            for commits in 0..3 {
                let (device, volume, ino) = with_file(len);
                if commits > 0 {
                    volume.upkeep().commit(Durability::Durable).unwrap();
                }
                if commits > 1 {
                    // Images, and a batch that was shown.
                    volume.write(ino, 50, &[7; 40]).unwrap();
                    volume.upkeep().commit(Durability::Durable).unwrap();
                    volume.write(ino, 60, &[7; 40]).unwrap();
                }
                let (start, count) = (range.start as u64, range.len() as u64);
                volume.ranges(ino).punch(start, count).unwrap();
                let zeros = range.start.min(len)..range.end.min(len);
                expect_zeros(&volume, ino, len, zeros.clone());
                volume.close().unwrap();
                let volume = open(&device);
                expect_zeros(&volume, ino, len, zeros);
            }
        }
    }
}

#[test]
fn freeing_gives_space_back() {
    let (_, volume, ino) = with_file(100 * BLOCK);
    volume.sync().unwrap();
    assert_eq!(blocks(&volume, ino), 100 * BLOCK as u64);
    volume
        .ranges(ino)
        .punch(BLOCK as u64, 98 * BLOCK as u64)
        .unwrap();
    volume.sync().unwrap();
    assert_eq!(blocks(&volume, ino), 2 * BLOCK as u64);
    assert_eq!(volume.getattr(ino).unwrap().size, 100 * BLOCK as u64);
}

/// One that failed gave back what an earlier one had reserved.
#[test]
fn a_reservation_that_fails_leaves_earlier_ones() {
    let (_device, volume, ino) = with_file(1 << 20);
    volume.sync().unwrap();
    let ranges = volume.ranges(ino);
    ranges.allocate(1 << 20, 4 << 20, false).unwrap();
    let reserved = blocks(&volume, ino);
    assert_eq!(reserved, 5 << 20);
    for fails in [
        ranges.allocate(0, 1 << 30, true),
        ranges.zero(2 << 20, 1 << 30, true),
    ] {
        assert!(matches!(fails, Err(Error::NoSpace)), "{fails:?}");
    }
    volume.sync().unwrap();
    assert_eq!(blocks(&volume, ino), reserved);
}

#[test]
fn many_extents_are_freed_in_steps() {
    let (device, volume, ino) = with_file(0);
    for i in 0..1000 {
        volume
            .write(ino, i * 2 * BLOCK as u64, b"every other block")
            .unwrap();
    }
    volume.sync().unwrap();
    let end = 2000 * BLOCK as u64;
    volume.setattr(ino, &size(end)).unwrap();
    volume.ranges(ino).punch(10, end).unwrap();
    volume.sync().unwrap();
    assert_eq!(
        volume.read(ino, 0, 20).unwrap(),
        b"every othe\0\0\0\0\0\0\0\0\0\0"
    );
    assert_eq!(blocks(&volume, ino), BLOCK as u64);
    assert_eq!(volume.ranges(ino).seek_hole(0).unwrap(), BLOCK as u64);
    assert!(matches!(
        volume.ranges(ino).seek_data(BLOCK as u64),
        Err(Error::NoData)
    ));
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.getattr(ino).unwrap().size, end);
}

fn size(size: u64) -> loamfs_fs::SetAttr {
    loamfs_fs::SetAttr {
        size: Some(size),
        ..loamfs_fs::SetAttr::default()
    }
}

#[test]
fn holes_get_space_and_data_stay() {
    let (device, volume, ino) = with_file(100);
    volume.write(ino, 10 * BLOCK as u64, b"far").unwrap();
    volume
        .ranges(ino)
        .allocate(0, 20 * BLOCK as u64, true)
        .unwrap();
    assert_eq!(volume.getattr(ino).unwrap().size, 20 * BLOCK as u64);
    assert_eq!(volume.ranges(ino).seek_hole(0).unwrap(), BLOCK as u64);
    assert_eq!(
        volume.ranges(ino).seek_data(BLOCK as u64).unwrap(),
        10 * BLOCK as u64
    );
    assert_eq!(blocks(&volume, ino), 20 * BLOCK as u64);
    volume.sync().unwrap();
    assert_eq!(blocks(&volume, ino), 20 * BLOCK as u64);
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.read(ino, 0, 100).unwrap(), [7; 100]);
    assert_eq!(volume.read(ino, 10 * BLOCK as u64, 3).unwrap(), b"far");
    assert_eq!(volume.read(ino, 200, 100).unwrap(), [0; 100]);
}

#[test]
fn a_file_that_may_not_grow_keeps_its_size() {
    let (_, volume, ino) = with_file(SMALL - BLOCK);
    volume.ranges(ino).allocate(0, 1 << 20, false).unwrap();
    assert_eq!(volume.getattr(ino).unwrap().size, (SMALL - BLOCK) as u64);
    expect_zeros(&volume, ino, SMALL - BLOCK, 0..0);
}

#[test]
fn a_zeroed_range_has_space() {
    let (_, volume, ino) = with_file(5 * BLOCK);
    volume
        .ranges(ino)
        .zero(100, 6 * BLOCK as u64, true)
        .unwrap();
    assert_eq!(volume.getattr(ino).unwrap().size, 6 * BLOCK as u64 + 100);
    assert_eq!(volume.ranges(ino).seek_hole(0).unwrap(), BLOCK as u64);
    assert_eq!(blocks(&volume, ino), 7 * BLOCK as u64);
    assert_eq!(volume.read(ino, 0, 101).unwrap()[99..], [7, 0]);
}

#[test]
fn space_that_is_not_there_is_refused() {
    let (_, volume, ino) = with_file(100);
    let refused = volume.ranges(ino).allocate(0, 1 << 30, true);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    assert_eq!(volume.getattr(ino).unwrap().size, 100);
    // What had been filled is free again.
    volume.sync().unwrap();
    volume.ranges(ino).allocate(0, 10 << 20, true).unwrap();
    assert_eq!(volume.read(ino, 0, 100).unwrap(), [7; 100]);
    volume.sync().unwrap();
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let (_, volume, ino) = with_file(100);
    assert!(matches!(
        volume.ranges(ino).punch(0, 0),
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        volume.ranges(ino).punch(u64::MAX, 2),
        Err(Error::TooLarge)
    ));
    assert!(matches!(
        volume.ranges(ino).allocate(i64::MAX as u64, 1, true),
        Err(Error::TooLarge)
    ));
    assert!(matches!(
        volume.ranges(ROOT_INO).punch(0, 1),
        Err(Error::IsDirectory)
    ));
    assert!(matches!(
        volume.ranges(ino).seek_data(100),
        Err(Error::NoData)
    ));
    assert!(matches!(
        volume.ranges(ino).seek_hole(100),
        Err(Error::NoData)
    ));
    assert!(matches!(
        volume.copy_range((ino, 0), (ino, 50), 51),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn data_and_holes_are_found() {
    let (_, volume, ino) = with_file(0);
    let far = 100 * BLOCK as u64;
    volume.write(ino, far + 5, b"data").unwrap();
    volume.setattr(ino, &size(2 * far)).unwrap();
    for committed in [false, true] {
        if committed {
            volume.sync().unwrap();
        }
        assert_eq!(volume.ranges(ino).seek_hole(0).unwrap(), 0);
        assert_eq!(volume.ranges(ino).seek_data(0).unwrap(), far);
        assert_eq!(volume.ranges(ino).seek_data(far + 7).unwrap(), far + 7);
        assert_eq!(
            volume.ranges(ino).seek_hole(far + 7).unwrap(),
            far + BLOCK as u64
        );
        assert!(matches!(
            volume.ranges(ino).seek_data(far + BLOCK as u64),
            Err(Error::NoData)
        ));
    }
}

#[test]
fn what_changes_nothing_is_a_change_all_the_same() {
    let (_, volume, ino) = with_file(100);
    let long_ago = loamfs_fs::SetAttr {
        mtime: Some(loamfs_fs::SetTime::At(loamfs_fs::Timestamp::default())),
        ..loamfs_fs::SetAttr::default()
    };
    let changed = || volume.getattr(ino).unwrap().mtime != loamfs_fs::Timestamp::default();
    volume.setattr(ino, &long_ago).unwrap();
    volume.ranges(ino).allocate(0, 50, true).unwrap();
    assert!(changed());
    volume.setattr(ino, &long_ago).unwrap();
    volume.ranges(ino).allocate(1000, 50, false).unwrap();
    assert!(changed());
    volume.setattr(ino, &long_ago).unwrap();
    volume.ranges(ino).punch(1000, 50).unwrap();
    assert!(changed());
}

#[test]
fn a_small_file_is_data_to_its_end() {
    let (_, volume, ino) = with_file(100);
    assert_eq!(volume.ranges(ino).seek_data(99).unwrap(), 99);
    assert_eq!(volume.ranges(ino).seek_hole(0).unwrap(), 100);
}

#[test]
fn copies_are_equal_and_end_with_their_source() {
    let (_, volume, ino) = with_file(700_000);
    let copy = volume.create(ROOT_INO, b"copy", &NEW).unwrap().ino;
    let copied = volume.copy_range((ino, 1), (copy, 10), 1 << 20).unwrap();
    assert_eq!(copied, 699_999);
    expect_zeros(&volume, copy, 700_009, 0..10);
    assert_eq!(volume.copy_range((ino, 700_000), (copy, 0), 10).unwrap(), 0);
    assert_eq!(
        volume
            .copy_range((ino, 0), (ino, 700_000), 700_000)
            .unwrap(),
        700_000
    );
    expect_zeros(&volume, ino, 1_400_000, 0..0);
    // To behind its own end: the source does not grow with the copy.
    let copied = volume.copy_range((ino, 1_399_999), (ino, 1_400_000 + 300_000), 300_000);
    assert_eq!(copied.unwrap(), 1);
}

#[test]
fn what_was_freed_stays_freed_after_a_crash() {
    let (device, volume, ino) = with_file(50 * BLOCK);
    volume.sync().unwrap();
    volume.ranges(ino).punch(0, 40 * BLOCK as u64 + 5).unwrap();
    volume.fsync(ino, false).unwrap();
    drop(volume);
    let volume = open(&device);
    expect_zeros(&volume, ino, 50 * BLOCK, 0..40 * BLOCK + 5);
}

#[test]
fn a_file_can_be_cut_within_any_hole_when_nothing_of_it_is_in_memory() {
    /// Bytes of a file of which one entry holds the checksums.
    const RUN: u64 = 256 << 10;
    const RUNS: u64 = 64;
    let (device, mut volume) = mounted(64 << 20);
    let content = vec![7; (RUNS * RUN) as usize];
    for first in (1..RUNS - 4).rev() {
        let ino = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
        volume.write(ino, 0, &content).unwrap();
        volume.upkeep().commit(Durability::Durable).unwrap();
        volume.ranges(ino).punch(first * RUN, 3 * RUN).unwrap();
        volume.close().unwrap();
        volume = open(&device);
        let size = (first + 1) * RUN + BLOCK as u64;
        let cut = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        volume.setattr(ino, &cut).unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.getattr(ino).unwrap().size, size);
        // What was left is what it was.
        let last = volume.read(ino, first * RUN - 1, 10).unwrap();
        assert_eq!(last, [&[7][..], &[0; 9]].concat());
        volume.unlink(ROOT_INO, b"f").unwrap();
    }
    volume.close().unwrap();
}

/// Does something once, when a superblock copy goes down for the first time after it was handed over.
#[derive(Default)]
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Observer for Meanwhile {
    fn issued(&self, request: Issued) {
        if request.op == Op::Write && request.kind == IoKind::Superblock {
            let act = self.0.lock().unwrap().take();
            act.into_iter().for_each(|act| act());
        }
    }
}

/// Another thread writes behind the file's end while a reservation is under way, which fails then.
#[test]
fn what_others_write_while_a_reservation_fails_stays() {
    for start in [100, 3 * BLOCK] {
        let device = ObservedDevice::new(made(64 << 20), Meanwhile::default());
        let device = Arc::new(device);
        let volume = Arc::new(open(&(device.clone() as Arc<dyn Device>)));
        let ino = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
        volume.write(ino, 0, &vec![7; start]).unwrap();
        let (other, at) = (Arc::clone(&volume), 5 * BLOCK as u64);
        let act = move || assert_eq!(other.write(ino, at, b"late").unwrap(), 4);
        *device.observer().0.lock().unwrap() = Some(Box::new(act));
        let refused = volume.ranges(ino).allocate(0, 1 << 30, true);
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        assert_eq!(volume.getattr(ino).unwrap().size, at + 4);
        assert_eq!(volume.read(ino, at, 9).unwrap(), b"late");
        // What had been reserved is free again.
        volume.sync().unwrap();
        assert!(blocks(&volume, ino) <= 6 * BLOCK as u64);
    }
}
