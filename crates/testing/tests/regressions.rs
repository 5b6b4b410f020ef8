//! What once went wrong, each with the history that shows it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, check};
use loamfs_device::{Device, MemoryDevice, RecordingDevice};
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, SetAttr, Volume, mkfs};
use std::sync::Arc;

const NEW: NewInode = NewInode {
    mode: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
};

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
    volume.checkpoint().unwrap();
    volume.close().unwrap();
    let report = check(&device.fork(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
}
