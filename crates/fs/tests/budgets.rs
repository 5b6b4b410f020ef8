//! What operations may cost the device at most, in requests and bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, open, open_cached};
use loamfs_device::{Counters, Device, Event, IoKind, MemoryDevice, RecordingDevice};
use loamfs_fs::{Env, MkfsOptions, NewInode, ROOT_INO, SetAttr, Volume, mkfs};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

/// Bytes of a small file of more than half a block.
const SMALL: usize = 12 << 10;

fn name(i: usize) -> Vec<u8> {
    format!("file{i:05}").into_bytes()
}

/// Makes a directory with files of `size` bytes.
fn populate(volume: &Volume, count: usize, size: usize) {
    let dir = volume.mkdir(ROOT_INO, b"dir", &NEW).unwrap().ino;
    for i in 0..count {
        let ino = volume.create(dir, &name(i), &NEW).unwrap().ino;
        volume.write(ino, 0, &vec![i as u8; size]).unwrap();
    }
}

fn since(volume: &Volume, before: Counters) -> Counters {
    volume.info().device - before
}

#[test]
fn ten_thousand_small_files_cost_little_more_than_their_bytes() {
    let device = made(256 << 20);
    let volume = open(&device);
    let before = volume.info().device;
    populate(&volume, 10_000, 1024);
    volume.close().unwrap();
    let cost = since(&volume, before).total();
    // A directory entry: slot, inode number, type, name.
    let least = 10_000 * (1024 + 512 + 12 + 8 + 1 + 9);
    assert!(cost.write_bytes * 10 <= least * 13, "{cost:?}");
    assert!(cost.write_bytes / cost.writes >= 256 << 10, "{cost:?}");
}

#[test]
fn fsync_of_a_new_small_file_is_one_write_and_one_flush() {
    let device = made(256 << 20);
    let volume = open(&device);
    populate(&volume, 1000, 1000);
    volume.sync().unwrap();
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let ino = volume.create(dir, b"new", &NEW).unwrap().ino;
    volume.write(ino, 0, &[1; 3000]).unwrap();
    let before = volume.info().device;
    volume.fsync(ino, false).unwrap();
    let cost = since(&volume, before);
    assert_eq!((cost.total().writes, cost.flushes()), (1, 1), "{cost}");
    volume.fsync(ino, false).unwrap();
    assert_eq!(since(&volume, before), cost, "nothing more to do");
}

#[test]
fn fdatasync_of_an_overwrite_in_a_large_file_is_one_write_and_one_flush() {
    let device = made(256 << 20);
    let volume = open(&device);
    let ino = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
    volume.write(ino, 0, &vec![3; 8 << 20]).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 5 << 20, &[4; 4096]).unwrap();
    let before = volume.info().device;
    volume.fsync(ino, true).unwrap();
    let cost = since(&volume, before);
    assert_eq!((cost.total().writes, cost.flushes()), (1, 1), "{cost}");
}

#[test]
fn removing_small_files_reads_no_data() {
    let device = made(256 << 20);
    let volume = open(&device);
    populate(&volume, 10_000, 3000);
    volume.close().unwrap();
    let volume = open(&device);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let before = volume.info().device;
    for i in 0..10_000 {
        volume.unlink(dir, &name(i)).unwrap();
    }
    volume.rmdir(ROOT_INO, b"dir").unwrap();
    volume.close().unwrap();
    let cost = since(&volume, before);
    assert_eq!(cost.kind(IoKind::SmallData).reads, 0, "{cost}");
}

#[test]
fn writing_small_files_anew_reads_no_data() {
    const FILES: usize = 2_000;
    let device = made(256 << 20);
    let volume = open(&device);
    populate(&volume, FILES, 3000);
    volume.close().unwrap();
    let volume = open(&device);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let before = volume.info().device;
    for i in 0..FILES {
        let ino = volume.lookup(dir, &name(i)).unwrap().ino;
        // As `>` does it, and as who writes over the old content.
        if i % 2 == 0 {
            let cut = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            volume.setattr(ino, &cut).unwrap();
        }
        volume.write(ino, 0, &[7; 3100]).unwrap();
    }
    let cost = since(&volume, before);
    assert_eq!(cost.kind(IoKind::SmallData).reads, 0, "{cost}");
    volume.close().unwrap();
    let volume = open(&device);
    for i in 0..FILES {
        let ino = volume.lookup(dir, &name(i)).unwrap().ino;
        assert_eq!(volume.read(ino, 0, 4096).unwrap(), [7; 3100]);
    }
}

#[test]
fn reading_small_files_in_readdir_order_takes_large_requests() {
    let device = made(256 << 20);
    let volume = open(&device);
    populate(&volume, 10_000, 3000);
    volume.close().unwrap();
    let volume = open(&device);
    let before = volume.info().device;
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let mut position = 0;
    loop {
        let entries = volume.readdir(dir, position, 500).unwrap();
        let Some(last) = entries.last() else { break };
        position = last.next;
        for entry in entries.iter().filter(|e| e.name.starts_with(b"file")) {
            assert_eq!(volume.read(entry.ino, 0, 4096).unwrap().len(), 3000);
        }
    }
    let cost = since(&volume, before).total();
    assert!(cost.read_bytes / cost.reads >= 128 << 10, "{cost:?}");
    // No window twice.
    assert!(
        cost.read_bytes * 10 < 13 * 10_000 * (3072 + 512),
        "{cost:?}"
    );
}

/// A summary of each segment since the checkpoint, of which there are 64 at most, and the 32 MiB behind the end, by the
/// mebibyte; how many segments these are depends on when the last checkpoint came.
#[test]
fn mounting_takes_few_requests_clean_or_not() {
    for count in [8_000, 14_000, 20_000] {
        let device = made(256 << 20);
        let volume = open(&device);
        populate(&volume, count, 1024);
        volume.sync().unwrap();
        drop(volume);
        for _ in 0..2 {
            let before = device.counters();
            let volume = open(&device);
            let cost = (device.counters() - before).total();
            assert!(cost.reads + cost.writes <= 64 + 32, "{count}: {cost:?}");
            volume.close().unwrap();
        }
    }
}

#[test]
fn many_overwrites_of_one_file_take_several_segments() {
    let recording = Arc::new(RecordingDevice::new(MemoryDevice::new(128 << 20)));
    let device: Arc<dyn Device> = Arc::clone(&recording) as Arc<dyn Device>;
    let options = MkfsOptions {
        segment_max: Some(1 << 20),
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    let volume = open(&device);
    let ino = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
    volume.write(ino, 0, &vec![1; 16 << 20]).unwrap();
    volume.sync().unwrap();
    let before = recording.event_count();
    // 8 MiB of images: every second unit.
    for unit in (0..4096).step_by(2) {
        volume.write(ino, unit * 4096, &[2; 4096]).unwrap();
    }
    volume.sync().unwrap();
    let longest = recording
        .events()
        .iter()
        .skip(before)
        .filter_map(|event| match event {
            Event::Write { data, kind, .. } if *kind == IoKind::Segment => Some(data.len()),
            _ => None,
        })
        .max();
    assert!(longest.unwrap() <= 2 << 20, "{longest:?}");
    assert!(volume.info().images > 1500, "overwrites are images");
    for unit in [0, 1, 4094, 4095] {
        let found = volume.read(ino, unit * 4096, 4096).unwrap();
        assert_eq!(found, vec![2 - unit as u8 % 2; 4096]);
    }
    volume.close().unwrap();
}

#[test]
fn dropped_caches_are_read_again_from_the_device() {
    let device = made(256 << 20);
    let volume = open(&device);
    populate(&volume, 100, 1000);
    volume.upkeep().drop_caches().unwrap();
    let before = volume.info().device;
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    for i in 0..100 {
        let ino = volume.lookup(dir, &name(i)).unwrap().ino;
        assert_eq!(volume.read(ino, 0, 1000).unwrap(), [i as u8; 1000]);
    }
    let reads = since(&volume, before).total();
    assert!(reads.read_bytes >= 100 * 1000, "{reads:?}");
}

#[test]
fn an_append_does_not_read_back_what_was_written_before() {
    let device = made(256 << 20);
    let volume = open(&device);
    let files: Vec<_> = (0..50)
        .map(|i| volume.create(ROOT_INO, &name(i), &NEW).unwrap().ino)
        .collect();
    for ino in &files {
        volume.write(*ino, 0, &[1; 100_000]).unwrap();
    }
    volume.sync().unwrap();
    let before = volume.info().device;
    for ino in &files {
        volume.write(*ino, 100_000, &[2; 1_000]).unwrap();
    }
    volume.sync().unwrap();
    let cost = since(&volume, before).total();
    assert_eq!(cost.reads, 0, "{cost:?}");
    volume.upkeep().drop_caches().unwrap();
    for ino in &files {
        let end = volume.read(*ino, 99_000, 3_000).unwrap();
        assert_eq!(end, [[1; 1_000], [2; 1_000]].concat());
    }
}

#[test]
fn writing_on_a_thinned_full_volume_costs_what_cleaning_costs() {
    const SIZE: usize = 6000;
    let device = made(256 << 20);
    let volume = open(&device);
    let make = |dir, i| {
        let ino = volume.create(dir, &name(i), &NEW)?.ino;
        volume.write(ino, 0, &vec![i as u8; SIZE]).map(|_| ())
    };
    let dirs = (0..).map(|i| volume.mkdir(ROOT_INO, &name(i), &NEW));
    let dirs: Vec<_> = dirs
        .map_while(|dir| {
            let dir = dir.ok()?.ino;
            (0..100).try_for_each(|i| make(dir, i)).ok().map(|()| dir)
        })
        .collect();
    for dir in &dirs[dirs.len() / 2..] {
        for i in (0..100).step_by(2) {
            volume.unlink(*dir, &name(i)).unwrap();
        }
    }
    volume.sync().unwrap();
    let before = volume.info().device;
    let dir = volume.mkdir(ROOT_INO, b"new", &NEW).unwrap().ino;
    (0..4000).for_each(|i| make(dir, i).unwrap());
    volume.sync().unwrap();
    let cost = since(&volume, before).total();
    // Groups that are half empty: two are read and one is written for each that is won. A metadata block or two of every
    // file, what is won beyond, and the room that removals need for two checkpoints take the rest.
    let content = 4000 * SIZE as u64;
    assert!(cost.read_bytes > 0, "nothing was cleaned: {cost:?}");
    assert!(cost.read_bytes <= content * 5, "{cost:?}");
    assert!(cost.write_bytes <= content * 4, "{cost:?}");
    assert!(cost.read_bytes / cost.reads >= 128 << 10, "{cost:?}");
    assert!(cost.write_bytes / cost.writes >= 128 << 10, "{cost:?}");
}

#[test]
fn versions_that_nobody_asks_for_again_do_not_displace_those_that_live() {
    let device = made(256 << 20);
    let volume = open_cached(&device, 16 << 20);
    let dir = volume.mkdir(ROOT_INO, b"dir", &NEW).unwrap().ino;
    let files: Vec<_> = (0..300)
        .map(|i| volume.create(dir, &name(i), &NEW).unwrap().ino)
        .collect();
    // 3 MB live; what is written in all is several times the cache.
    for round in 0..12 {
        for ino in &files {
            volume.write(*ino, 0, &[round; 10_000]).unwrap();
        }
        volume.sync().unwrap();
    }
    let before = volume.info().device;
    for ino in &files {
        assert_eq!(volume.read(*ino, 0, 10_000).unwrap(), [11; 10_000]);
    }
    assert_eq!(since(&volume, before).total().reads, 0);
}

#[test]
fn ends_of_files_that_are_gone_do_not_displace_those_that_are_appended_to() {
    let device = made(256 << 20);
    let volume = open_cached(&device, 64 << 20);
    let (files, rounds) = (400, 24);
    let mut reads = 0;
    for round in 0..rounds {
        let before = volume.info().device;
        for i in 0..files {
            // Each file is made anew every fourth round, and appended to in the others.
            if (round + i) % 4 == 0 || round == 0 {
                let _ = volume.unlink(ROOT_INO, &name(i));
                let ino = volume.create(ROOT_INO, &name(i), &NEW).unwrap().ino;
                volume.write(ino, 0, &[1; 20_001]).unwrap();
            } else {
                let entry = volume.lookup(ROOT_INO, &name(i)).unwrap();
                volume.write(entry.ino, entry.size, &[2; 5_001]).unwrap();
            }
        }
        reads += since(&volume, before).kind(IoKind::Homed).reads;
        volume.sync().unwrap();
        volume.upkeep().tick().unwrap();
    }
    assert_eq!(reads, 0, "of {} appends", files * rounds * 3 / 4);
}

#[test]
fn small_files_read_at_random_push_no_metadata_out() {
    const FILES: usize = 10_000;
    let device = made(256 << 20);
    let volume = open(&device);
    populate(&volume, FILES, 4096);
    volume.close().unwrap();
    // The inodes take 5 MiB, and the data 40.
    let volume = open_cached(&device, 16 << 20);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let read = |i: usize| {
        let i = i * 7_919 % FILES;
        let ino = volume.lookup(dir, &name(i)).unwrap().ino;
        assert_eq!(volume.read(ino, 0, 4096).unwrap(), [i as u8; 4096]);
    };
    (0..3_000).for_each(read);
    let before = volume.info().device;
    (3_000..4_000).for_each(read);
    let cost = since(&volume, before);
    assert_eq!(cost.kind(IoKind::Metadata).reads, 0, "{cost}");
    let data = cost.kind(IoKind::SmallData);
    assert!(data.reads <= 1_010, "{cost}");
    assert!(data.read_bytes / data.reads <= 16 << 10, "{cost}");
}

#[test]
fn files_that_lie_close_are_read_together_in_whatever_order() {
    assert!(requests_for_close_files(true) <= 40);
    // Where nothing turns that must have paid before.
    assert!(requests_for_close_files(false) <= 80);
}

/// Reads that adding to many small files takes, in an order that is not theirs, on a device that turns or not.
fn requests_for_close_files(turns: bool) -> u64 {
    const FILES: usize = 900;
    let memory = MemoryDevice::new(256 << 20).with_rotational(turns);
    let device: Arc<dyn Device> = Arc::new(memory);
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&device);
    populate(&volume, FILES, 8000);
    volume.close().unwrap();
    // The files take 7 MiB.
    let volume = open_cached(&device, 32 << 20);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let before = volume.info().device;
    for i in 0..FILES {
        let ino = volume.lookup(dir, &name(i)).unwrap().ino;
        volume.write(ino, 8000, b"more").unwrap();
    }
    let data = since(&volume, before).kind(IoKind::SmallData);
    println!("{data:?}");
    data.reads
}

/// When the log is nearly full the content of small files goes to data groups; from there it comes back to the log after
/// a file was cut, but not when it was removed while somebody knows it.
#[test]
fn removing_small_files_that_are_held_reads_no_data() {
    let device = made(64 << 20);
    let volume = open(&device);
    let make = |name: &[u8], size: usize| {
        let ino = volume.create(ROOT_INO, name, &NEW)?.ino;
        volume.write(ino, 0, &vec![1; size]).map(|_| ino)
    };
    // Room between large files.
    let large = |i: usize| format!("large{i}").into_bytes();
    (0..400).for_each(|i| drop(make(&large(i), 100_000)));
    volume.sync().unwrap();
    for i in (0..400).step_by(2) {
        volume.unlink(ROOT_INO, &large(i)).unwrap();
    }
    volume.sync().unwrap();
    let files: Vec<_> = (0..).map_while(|i| make(&name(i), 9000).ok()).collect();
    volume.sync().unwrap();
    volume.upkeep().drop_caches().unwrap();
    let before = volume.info().device;
    for (i, ino) in files.iter().enumerate() {
        volume.open_file(*ino).unwrap();
        volume.unlink(ROOT_INO, &name(i)).unwrap();
        if i % 50 == 0 {
            volume.upkeep().tick().unwrap();
        }
    }
    volume.upkeep().tick().unwrap();
    let cost = since(&volume, before);
    assert_eq!(cost.kind(IoKind::Homed).reads, 0, "{cost}");
}

/// Data of large files are durable before a segment shows them: a flush for each round of them, and the larger the
/// caches the larger a round.
#[test]
fn what_waits_in_large_caches_goes_home_with_few_flushes() {
    let volume = open_cached(&made(2 << 30), 1 << 30);
    let dir = volume.mkdir(ROOT_INO, b"dir", &NEW).unwrap().ino;
    for i in 0..120 {
        let file = volume.create(dir, &name(i), &NEW).unwrap().ino;
        volume.write(file, 0, &vec![i as u8; 1 << 20]).unwrap();
    }
    let before = volume.info().device.flushes();
    volume.sync().unwrap();
    let flushes = volume.info().device.flushes() - before;
    // Two rounds of 64 MiB, the segment that shows them, and one that says so.
    assert!(flushes <= 4, "{flushes} flushes");
}

/// Space is given to a file, and nothing is written there.
#[test]
fn a_gigabyte_is_reserved_with_a_few_requests() {
    let device = made(4 << 30);
    let volume = open(&device);
    let ino = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
    // Once in a volume's life both superblock copies announce that there is such space.
    volume.ranges(ino).allocate(0, 1 << 20, true).unwrap();
    let before = volume.info().device;
    volume.ranges(ino).allocate(0, 1 << 30, true).unwrap();
    volume.fsync(ino, false).unwrap();
    let cost = since(&volume, before);
    assert_eq!((cost.total().writes, cost.flushes()), (1, 1), "{cost}");
    assert!(cost.total().write_bytes <= 32 << 10, "{cost}");
    assert_eq!(cost.kind(IoKind::Homed).writes, 0, "{cost}");
    assert_eq!(volume.getattr(ino).unwrap().blocks, 1 << 21);
    // Reading it asks the device for nothing either.
    let before = volume.info().device;
    assert!(
        volume
            .read(ino, 500 << 20, 1 << 20)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    assert_eq!(since(&volume, before).total().reads, 0);
}

/// A first write goes where it stays: the data, a flush, the segment that shows them, a flush.
#[test]
fn a_first_write_of_reserved_space_is_two_writes() {
    let volume = open(&made(256 << 20));
    let ino = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
    volume.ranges(ino).allocate(0, 64 << 20, true).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 10 << 20, &[1; 8192]).unwrap();
    let before = volume.info().device;
    volume.fsync(ino, false).unwrap();
    let cost = since(&volume, before);
    assert_eq!((cost.total().writes, cost.flushes()), (2, 2), "{cost}");
    assert_eq!(cost.kind(IoKind::Homed).write_bytes, 8192, "{cost}");
    assert_eq!(cost.total().reads, 0, "{cost}");
}

/// Summaries had room for 64 records that no segment says, and took two units more.
#[test]
fn fsync_of_a_small_file_that_is_written_over_takes_a_unit_besides() {
    let device = made(256 << 20);
    let volume = open(&device);
    populate(&volume, 1000, SMALL);
    volume.sync().unwrap();
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let ino = volume.lookup(dir, &name(500)).unwrap().ino;
    volume.write(ino, 0, &[9; SMALL]).unwrap();
    let before = volume.info().device;
    volume.fsync(ino, false).unwrap();
    let cost = since(&volume, before).total();
    assert_eq!(
        (cost.writes, cost.write_bytes),
        (1, SMALL as u64 + 4096),
        "{cost:?}"
    );
}
