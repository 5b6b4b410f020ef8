//! What once went wrong, each with the history that shows it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, check};
use loamfs_device::{Device, IoKind, MemoryDevice, RecordingDevice};
use loamfs_fs::{
    Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, RenameFlags, SetAttr, Volume, mkfs,
};
use loamfs_testing::busy::Busy;
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

fn made(size: u64, options: &MkfsOptions) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(size));
    let plain: Arc<dyn Device> = device.clone();
    mkfs(&plain, options, &Env::fixed(1)).unwrap();
    device
}

fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
}

/// A round of write-out that held nothing but overwrites, which become images, ended the write-out of the file.
#[test]
fn fsync_covers_more_scattered_overwrites_than_one_round_takes() {
    let device = made(256 << 20, &MkfsOptions::default());
    let volume = open(device.clone());
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    let size = 48u64 << 20;
    volume.write(file, 0, &vec![1; size as usize]).unwrap();
    volume.fsync(file, false).unwrap();
    let units = || (0..size / 4096).step_by(2);
    for unit in units() {
        volume.write(file, unit * 4096, &[2; 4096]).unwrap();
    }
    volume.fsync(file, false).unwrap();
    let crash = Arc::new(device.fork());
    drop(volume);
    let volume = open(crash);
    let content = volume.read(file, 0, size as usize).unwrap();
    let lost = units().filter(|unit| content[(*unit * 4096) as usize] != 2);
    assert_eq!(lost.count(), 0);
}

/// The last block of a long overwrite gets a new home: an image of its other units waited for nothing, and fsync was EIO.
#[test]
fn a_short_overwrite_beside_a_long_one_is_written_with_it() {
    let device = made(64 << 20, &MkfsOptions::default());
    let volume = open(device.clone());
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(file, 0, &vec![1; 3 << 20]).unwrap();
    volume.fsync(file, false).unwrap();
    volume.write(file, 0, &vec![2; 301 * 4096]).unwrap();
    volume.write(file, 302 * 4096, &[3; 4096]).unwrap();
    volume.fsync(file, false).unwrap();
    let after = open(Arc::new(device.fork()));
    let content = after.read(file, 300 * 4096, 4 * 4096).unwrap();
    let units = content.chunks(4096).map(|unit| unit[0]);
    assert_eq!(units.collect::<Vec<_>>(), [2, 1, 3, 1]);
}

/// Role records were not counted in a summary's size, and ran over the first blocks of the body.
#[test]
fn many_groups_may_change_roles_in_one_segment() {
    let options = MkfsOptions {
        block_size: 4096,
        group_size: Some(128 << 10),
        ..MkfsOptions::default()
    };
    let device = made(256 << 20, &options);
    let volume = open(device.clone());
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    for i in 0..200u64 {
        volume.write(file, i << 20, &vec![1; 1 << 20]).unwrap();
    }
    volume.sync().unwrap();
    volume.unlink(ROOT_INO, b"f").unwrap();
    for name in [b"g", b"h", b"i"] {
        volume.sync().unwrap();
        volume.create(ROOT_INO, name, &NEW).unwrap();
    }
    volume.close().unwrap();
    let report = check(&device.fork(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
}

/// A write beyond a pending truncate brought the data back that the truncate had not freed yet.
#[test]
fn what_a_crash_left_of_a_truncate_never_comes_back() {
    let options = MkfsOptions {
        block_size: 4096,
        segment_max: Some(64 << 10),
        ..MkfsOptions::default()
    };
    let device = made(64 << 20, &options);
    let volume = open(device.clone());
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    for i in 0..2000u64 {
        volume.write(file, i * 8192, &[1; 4096]).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let recorder = Arc::new(RecordingDevice::new(device.fork()));
    let volume = open(recorder.clone());
    let before = recorder.event_count();
    let set = SetAttr {
        size: Some(100_000),
        ..SetAttr::default()
    };
    volume.setattr(file, &set).unwrap();
    volume.sync().unwrap();
    let mut cut = 0;
    for n in before..=recorder.event_count() {
        let crash = Arc::new(MemoryDevice::from_image(recorder.image_after(n).unwrap()));
        let volume = open(crash);
        if volume.getattr(file).unwrap().size != 100_000 {
            continue;
        }
        cut += 1;
        volume.write(file, 12 << 20, &[9; 4096]).unwrap();
        let gap = volume.read(file, 100_000, (12 << 20) - 100_000).unwrap();
        assert!(gap.iter().all(|byte| *byte == 0), "after {n} events");
    }
    assert!(cut > 1, "the truncate took one step only");
}

/// The last inode of a block went as an orphan: nothing was left to seal but the block's end, and commits waited for
/// it forever.
#[test]
fn an_inode_block_that_empties_is_sealed() {
    let device = made(16 << 20, &MkfsOptions::default());
    let volume = open(device.clone());
    let file = volume.create(ROOT_INO, b"n1", &NEW).unwrap().ino;
    volume.sync().unwrap();
    volume.open_file(file).unwrap();
    volume.unlink(ROOT_INO, b"n1").unwrap();
    volume.sync().unwrap();
    volume.release_file(file).unwrap();
    volume.upkeep().checkpoint().unwrap();
    volume.close().unwrap();
    let report = check(&device.fork(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
}

/// A volume on a device on which others come first.
fn busy() -> (Arc<Busy>, Arc<Volume>) {
    let memory = made(64 << 20, &MkfsOptions::default()).fork();
    let device = Arc::new(Busy::new(memory));
    let volume = Arc::new(open(device.clone()));
    (device, volume)
}

/// A file that took another's name was shown empty when it was cut while its data were on their way home.
#[test]
fn a_file_that_took_a_name_and_is_cut_meanwhile_is_not_shown_without_its_data() {
    let (device, volume) = busy();
    let make = |name: &[u8], content: &[u8]| {
        let ino = volume.create(ROOT_INO, name, &NEW).unwrap().ino;
        volume.write(ino, 0, content).unwrap();
        ino
    };
    make(b"f", &[1; 50_000]);
    let other = make(b"other", b"1");
    volume.sync().unwrap();
    let new = make(b"new", &[2; 300_000]);
    let over = RenameFlags::default();
    volume
        .rename(ROOT_INO, b"new", ROOT_INO, b"f", over)
        .unwrap();
    volume.write(other, 0, b"2").unwrap();
    let cutter = Arc::clone(&volume);
    let cut = SetAttr {
        size: Some(100_000),
        ..SetAttr::default()
    };
    let cut = Box::new(move || {
        cutter.setattr(new, &cut).unwrap();
    });
    device.at(Some(IoKind::Homed), 0, cut);
    volume.fsync(other, false).unwrap();
    assert!(!device.idle());
    let after = open(Arc::new(device.fork()));
    let file = after.lookup(ROOT_INO, b"f").unwrap();
    assert!(after.read(file.ino, 0, 1 << 20).unwrap() == [2; 100_000]);
}

/// What was written to the front of a file while its end was on its way home cut the size that segments showed, with
/// the extents behind it: a crash lost what was synced, and let old bytes come back when the file grew again.
#[test]
fn a_write_before_data_on_their_way_home_hides_nothing_of_them() {
    let (device, volume) = busy();
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(file, 200_000, &[1; 50_000]).unwrap();
    let other = Arc::clone(&volume);
    let early = Box::new(move || {
        other.write(file, 40_000, &[2; 8_192]).unwrap();
    });
    device.at(Some(IoKind::Homed), 0, early);
    volume.fsync(file, false).unwrap();
    assert!(!device.idle());
    let crash = device.fork();
    let report = check(&crash, &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let after = open(Arc::new(crash));
    assert_eq!(after.read(file, 200_000, 50_000).unwrap(), [1; 50_000]);
}

/// Punching whole blocks noted the change in a step of its own, and a segment that was sealed before the next showed a
/// file as changed that had its old content. Small files that had spilled to data groups were no prefix of what was done.
#[test]
fn punched_blocks_go_with_the_time_of_it() {
    let options = MkfsOptions {
        segment_max: Some(64 << 10),
        ..MkfsOptions::default()
    };
    let base = made(32 << 20, &options);
    let volume = open(base.clone());
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(file, 0, &[1; 40_000]).unwrap();
    volume.close().unwrap();
    let mut early = 0;
    // Somewhere on the way the next segment is so full that it is sealed between two steps.
    for room in (16 << 10..48 << 10).step_by(128) {
        let device = Arc::new(base.fork());
        let volume = open(device.clone());
        let before = volume.getattr(file).unwrap().mtime;
        for i in 0..room / 8192 + 1 {
            let other = volume.create(ROOT_INO, format!("{i}").as_bytes(), &NEW);
            let len = 8192.min(room - i * 8192);
            volume.write(other.unwrap().ino, 0, &vec![2; len]).unwrap();
        }
        volume.ranges(file).punch(0, 40_000).unwrap();
        let crashed = open(Arc::new(device.fork()));
        let changed = crashed.getattr(file).unwrap().mtime != before;
        let punched = crashed.read(file, 0, 40_000).unwrap() == [0; 40_000];
        assert_eq!(changed, punched, "{room} bytes before it");
        early += u32::from(crashed.lookup(ROOT_INO, b"0").is_ok());
    }
    assert!(early > 0, "no segment was sealed on the way");
}
