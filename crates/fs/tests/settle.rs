//! What was overwritten goes home when that pays, and not before.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::open;
use loamfs_device::{Device, Effect, FaultyDevice, IoKind, MemoryDevice, Op, Rule};
use loamfs_format::Ino;
use loamfs_format::superblock::DiskFigures;
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, SettleWhen, Volume, mkfs};
use std::sync::Arc;

const PIECE: usize = 8 << 10;
const SIZE: usize = 8 << 20;
const PIECES: usize = SIZE / PIECE;

/// A volume on a disk whose seeks are dear.
fn made() -> Arc<dyn Device> {
    made_for(None)
}

/// A volume on a disk that turns, made for a disk of such figures.
fn made_for(disk: Option<DiskFigures>) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20).with_rotational(true));
    let options = MkfsOptions {
        disk,
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    device
}

fn piece(number: usize, salt: u8) -> Vec<u8> {
    vec![salt ^ number as u8; PIECE]
}

/// A file whose pieces were overwritten that come, synced every 16; and its content.
fn overwritten(volume: &Volume, pieces: impl Iterator<Item = usize>) -> (Ino, Vec<u8>) {
    overwritten_as(volume, b"large", PIECES, pieces)
}

/// The same, of a file of that name and so many pieces.
fn overwritten_as(
    volume: &Volume,
    name: &[u8],
    count: usize,
    pieces: impl Iterator<Item = usize>,
) -> (Ino, Vec<u8>) {
    let ino = volume.create(ROOT_INO, name, &NewInode::of_mode(0o644));
    let ino = ino.unwrap().ino;
    let mut content: Vec<u8> = (0..count).flat_map(|number| piece(number, 0)).collect();
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    for (count, number) in pieces.enumerate() {
        let (at, bytes) = (number * PIECE, piece(number, 0x80));
        volume.write(ino, at as u64, &bytes).unwrap();
        content[at..at + PIECE].copy_from_slice(&bytes);
        if count % 16 == 15 {
            volume.fsync(ino, true).unwrap();
        }
    }
    volume.fsync(ino, true).unwrap();
    (ino, content)
}

/// Every second piece, in an order that jumps about.
fn scattered() -> impl Iterator<Item = usize> {
    (0..PIECES / 2).map(|number| number * 197 % (PIECES / 2) * 2)
}

fn read_in_order(volume: &Volume, ino: Ino, content: &[u8]) {
    for (number, expected) in content.chunks(64 << 10).enumerate() {
        let at = (number * (64 << 10)) as u64;
        assert_eq!(volume.read(ino, at, 64 << 10).unwrap(), expected);
    }
}

#[test]
fn what_pays_on_the_disk_that_the_volume_was_made_for_is_settled() {
    let left = |disk| {
        let device = made_for(Some(disk));
        let (ino, content) = overwritten(&open(&device), scattered());
        let volume = open(&device);
        read_in_order(&volume, ino, &content);
        volume.info().images
    };
    assert_eq!(left(DiskFigures::TURNING), 0);
    let without_seeks = DiskFigures {
        shortest_seek: 0,
        average_seek: 0,
        turn: 0,
        rate: 1_000,
        shingled: false,
    };
    assert_eq!(left(without_seeks), PIECES as u64);
}

#[test]
fn what_is_read_in_order_settles_before() {
    let volume = open(&made());
    let (ino, content) = overwritten(&volume, scattered());
    let images = volume.info().images;
    assert_eq!(images, PIECES as u64);
    volume.upkeep().drop_caches().unwrap();
    let before = volume.info().device.total().reads;
    read_in_order(&volume, ino, &content);
    assert_eq!(volume.info().images, 0);
    let reads = volume.info().device.total().reads - before;
    assert!(reads < images / 4, "{reads} reads of {images} images");
    volume.upkeep().drop_caches().unwrap();
    read_in_order(&volume, ino, &content);
    volume.close().unwrap();
}

#[test]
fn a_few_overwrites_stay_where_they_are() {
    let volume = open(&made());
    let (ino, content) = overwritten(&volume, [3, 500, 900].into_iter());
    volume.upkeep().drop_caches().unwrap();
    read_in_order(&volume, ino, &content);
    volume.upkeep().tick().unwrap();
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.info().images, 6, "two units each");
    volume.close().unwrap();
}

#[test]
fn what_is_read_at_random_settles_once_it_has_paid_for_it() {
    let volume = open(&made());
    let (ino, content) = overwritten(&volume, scattered());
    let read = |count: usize| {
        for number in (0..count).map(|turn| turn * 389 % PIECES) {
            volume.upkeep().drop_caches().unwrap();
            let at = number * PIECE;
            let read = volume.read(ino, at as u64, PIECE).unwrap();
            assert_eq!(read, content[at..at + PIECE]);
        }
    };
    read(3);
    assert_eq!(volume.info().images, PIECES as u64, "too early");
    read(2_000);
    assert_eq!(volume.info().images, 0);
    volume.close().unwrap();
}

#[test]
fn what_pays_settles_when_nobody_asks_for_anything() {
    let device = made();
    let volume = open(&device);
    let (ino, content) = overwritten(&volume, scattered());
    assert!(volume.info().settle_time.as_millis() > 0);
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.info().images, PIECES as u64, "there were requests");
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.info().images, 0);
    assert!(volume.info().settle_time.is_zero());
    volume.close().unwrap();
    let volume = open(&device);
    read_in_order(&volume, ino, &content);
}

#[test]
fn a_volume_that_is_closed_leaves_little_behind() {
    let device = made();
    let volume = open(&device);
    let (ino, content) = overwritten(&volume, scattered());
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.info().images, 0);
    read_in_order(&volume, ino, &content);
}

/// Policies are compared by what a disk is asked for, so this one must ask for nothing of its own.
#[test]
fn images_that_settle_only_when_asked_for_stay_for_readers_the_clock_and_closing() {
    let device = made();
    let options = OpenOptions {
        settles: SettleWhen::Asked,
        ..OpenOptions::default()
    };
    let open = || Volume::open(Arc::clone(&device), &options, Env::fixed(2)).unwrap();
    let volume = open();
    let (ino, content) = overwritten(&volume, scattered());
    let images = volume.info().images;
    assert!(images > 0);
    for _ in 0..4 {
        volume.upkeep().tick().unwrap();
    }
    volume.upkeep().drop_caches().unwrap();
    read_in_order(&volume, ino, &content);
    volume.close().unwrap();
    let volume = open();
    assert_eq!(volume.info().images, images);
    volume.upkeep().settle(usize::MAX).unwrap();
    assert_eq!(volume.info().images, 0);
    read_in_order(&volume, ino, &content);
}

/// A volume with images that nobody may settle, and a cache of so many bytes: what reading the file takes, in requests and
/// bytes.
fn read_only(cache_bytes: usize) -> (u64, u64) {
    let device = made();
    let volume = open(&device);
    let (ino, content) = overwritten(&volume, scattered());
    let images = volume.info().images;
    drop(volume);
    let written = device.counters().total().writes;
    let options = OpenOptions {
        read_only: true,
        cache_bytes,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(2)).unwrap();
    let before = volume.info().device.total();
    read_in_order(&volume, ino, &content);
    let now = volume.info().device.total();
    assert_eq!(volume.info().images, images);
    assert_eq!(device.counters().total().writes, written);
    (now.reads - before.reads, now.read_bytes - before.read_bytes)
}

#[test]
fn who_may_not_write_reads_images_in_the_order_of_the_log() {
    let (reads, _) = read_only(256 << 20);
    assert!(reads < PIECES as u64 / 4, "{reads} reads");
}

#[test]
fn where_they_find_no_room_images_are_not_read_in_vain() {
    let (_, bytes) = read_only(8 << 20);
    assert!(bytes < 2 * SIZE as u64, "{bytes} bytes");
}

#[test]
fn what_is_in_memory_still_is_not_read_to_settle_and_costs_less() {
    let volume = open(&made());
    overwritten(&volume, scattered());
    let held = volume.info().settle_time;
    let reads = |volume: &Volume| volume.info().device.kind(IoKind::Homed).reads;
    let before = reads(&volume);
    volume.upkeep().settle(usize::MAX).unwrap();
    assert_eq!((volume.info().images, reads(&volume)), (0, before));
    let volume = open(&made());
    overwritten(&volume, scattered());
    volume.upkeep().drop_caches().unwrap();
    assert!(held < volume.info().settle_time);
}

/// Half of an empty cache was left empty, and each of two sweeps passed over all of the log.
#[test]
fn after_a_mount_one_pass_over_the_log_brings_what_the_cache_has_room_for() {
    let device = made();
    let (ino, content) = overwritten(&open(&device), (0..PIECES).map(|at| at * 197 % PIECES));
    let options = OpenOptions {
        cache_bytes: 24 << 20,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(9)).unwrap();
    let info = volume.info();
    assert!(info.images == 2 * PIECES as u64 && info.settle_bytes < SIZE as u64);
    read_in_order(&volume, ino, &content);
    let read = volume.info().device.kind(IoKind::Homed).read_bytes;
    assert_eq!(volume.info().images, 0);
    // What stands between images is read along.
    assert!(read < SIZE as u64 / 4 * 5, "{read} bytes");
}

#[test]
fn what_fails_to_settle_is_tried_again_if_that_may_pass() {
    let device = Arc::new(FaultyDevice::new(made()));
    let shared: Arc<dyn Device> = device.clone();
    let volume = open(&shared);
    let (ino, content) = overwritten(&volume, scattered());
    let images = volume.info().images;
    const NO_SPACE: i32 = 28;
    for rule in [
        Rule::on(Op::Write, Effect::FailWith(NO_SPACE)).of_kind(IoKind::Settle),
        Rule::on(Op::Read, Effect::FailWith(NO_SPACE)).of_kind(IoKind::Homed),
    ] {
        volume.upkeep().drop_caches().unwrap();
        device.set_rules(vec![rule]);
        volume.upkeep().settle(usize::MAX).unwrap();
        assert_eq!(volume.info().images, images);
    }
    device.set_rules(Vec::new());
    volume.upkeep().settle(usize::MAX).unwrap();
    assert_eq!(volume.info().images, 0);
    read_in_order(&volume, ino, &content);
}

#[test]
fn what_settled_does_not_wait_in_a_segment_that_is_full() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    let options = MkfsOptions {
        segment_max: Some(64 << 10),
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    let volume = open(&device);
    let (ino, content) = overwritten(&volume, scattered());
    let before = volume.info().segment;
    volume.upkeep().settle(usize::MAX).unwrap();
    let info = volume.info();
    assert_eq!(info.images, 0);
    assert!(info.segment > before);
    read_in_order(&volume, ino, &content);
    volume.close().unwrap();
}

/// Files of which nothing can settle since their homes cannot be written, on a volume of so many bytes; and a smaller one.
fn beside_what_cannot_settle(bytes: u64) {
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes).with_rotational(true));
    let device = Arc::new(FaultyDevice::new(disk));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&shared);
    let scattered = |count: usize| (0..count).map(move |number| number * 197 % count * 2);
    for name in [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
        overwritten_as(&volume, name, 1100, scattered(550));
    }
    device.set_rules(vec![
        Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Settle),
    ]);
    volume.upkeep().settle(usize::MAX).unwrap();
    let stuck = volume.info().images;
    assert_eq!(stuck, 8 * 1100);
    device.set_rules(Vec::new());
    overwritten_as(&volume, b"small", 1000, scattered(500));
    volume.upkeep().tick().unwrap();
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.info().images, stuck);
    assert!(volume.info().settle_time.is_zero());
    volume.close().unwrap();
}

#[test]
fn what_cannot_settle_stands_in_nobodys_way() {
    beside_what_cannot_settle(1 << 30);
}

#[test]
fn what_cannot_settle_stands_in_nobodys_way_when_there_is_too_much() {
    beside_what_cannot_settle(512 << 20);
}
