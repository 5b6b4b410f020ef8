//! What a crash leaves half done, orphans and pending truncates, is ended by the next mount (rules 1 and 9), and is
//! nobody's error when it is damaged.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, MemoryDevice, RecordingDevice};
use loamfs_format::Ino;
use loamfs_format::inode::Body;
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, SetAttr, Volume, mkfs};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const EIO: i32 = 5;

fn made(size: u64) -> MemoryDevice {
    let options = MkfsOptions {
        block_size: 4096,
        segment_max: Some(64 << 10),
        ..MkfsOptions::default()
    };
    let memory = Arc::new(MemoryDevice::new(size));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, &options, &Env::fixed(1)).unwrap();
    memory.fork()
}

fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
}

/// A file with so many extents that freeing them takes several steps.
fn scattered(volume: &Volume, name: &[u8]) -> Ino {
    let ino = volume.create(ROOT_INO, name, &NEW).unwrap().ino;
    for i in 0..2000u64 {
        volume.write(ino, i * 8192, &[1; 4096]).unwrap();
    }
    ino
}

fn cut(volume: &Volume, ino: Ino, size: u64) {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    assert_eq!(volume.setattr(ino, &set).unwrap().size, size);
}

/// Whether a truncate of an inode is pending, as the device has it.
fn is_pending(device: &MemoryDevice, ino: Ino) -> bool {
    let reader = loamfs_check::Volume::open(device).unwrap();
    reader.inode(ino).unwrap().truncating != u64::MAX
}

fn is_sound(device: &MemoryDevice) {
    let report = check(device, &mut Options::default());
    let sound = report
        .problems
        .iter()
        .all(|p| p.severity() <= Severity::Note);
    assert!(sound, "{report}");
}

/// Only orphans were looked for: a file that had been cut kept its blocks until somebody grew it.
#[test]
fn a_pending_truncate_of_a_file_with_a_name_is_ended_after_a_crash() {
    let device = Arc::new(made(64 << 20));
    let volume = open(device.clone());
    let file = scattered(&volume, b"f");
    volume.close().unwrap();
    drop(volume);
    let recorder = Arc::new(RecordingDevice::new(device.fork()));
    let volume = open(recorder.clone());
    let before = recorder.event_count();
    cut(&volume, file, 100_000);
    volume.upkeep().checkpoint().unwrap();
    let mut pending = 0;
    for n in before..=recorder.event_count() {
        let crash = Arc::new(MemoryDevice::from_image(recorder.image_after(n).unwrap()));
        is_sound(&crash);
        let volume = open(crash.clone());
        volume.sync().unwrap();
        pending += u32::from(is_pending(&crash, file));
        volume.upkeep().tick().unwrap();
        volume.close().unwrap();
        assert!(!is_pending(&crash, file), "after {n} events");
        is_sound(&crash);
    }
    assert!(pending > 1, "the truncate took one step only");
}

/// Inverts a bit of the root of a file's extent tree.
fn damage(device: &MemoryDevice, ino: Ino) {
    let at = {
        let reader = loamfs_check::Volume::open(device).unwrap();
        let Body::ExtentTree(root) = reader.inode(ino).unwrap().body else {
            panic!("too few extents");
        };
        reader.superblock().geometry.byte_offset(root.pointer.addr) + 100
    };
    let byte = device.peek(at, 1).unwrap()[0];
    device.poke(at, &[byte ^ 4]).unwrap();
}

/// Whoever removed a file, or unmounted, got the error of an orphan that had nothing to do with it.
#[test]
fn a_damaged_orphan_is_nobodys_error() {
    let device = Arc::new(made(64 << 20));
    let volume = open(device.clone());
    let file = scattered(&volume, b"f");
    volume.sync().unwrap();
    volume.open_file(file).unwrap();
    volume.unlink(ROOT_INO, b"f").unwrap();
    volume.sync().unwrap();
    drop(volume);
    damage(&device, file);
    for _ in 0..2 {
        let volume = open(device.clone());
        volume.upkeep().tick().unwrap();
        volume.create(ROOT_INO, b"g", &NEW).unwrap();
        volume.unlink(ROOT_INO, b"g").unwrap();
        volume.upkeep().tick().unwrap();
        volume.close().unwrap();
    }
    let report = check(device.as_ref(), &mut Options::default());
    assert!(!report.is_clean(), "a check tells of it");
}

#[test]
fn only_who_grows_a_damaged_file_gets_its_error() {
    let device = Arc::new(made(64 << 20));
    let volume = open(device.clone());
    let file = scattered(&volume, b"f");
    volume.close().unwrap();
    drop(volume);
    damage(&device, file);
    let volume = open(device.clone());
    cut(&volume, file, 100_000);
    let other = scattered(&volume, b"g");
    cut(&volume, other, 1);
    volume.sync().unwrap();
    let grown = volume.write(file, 12 << 20, &[9; 4096]);
    assert_eq!(grown.unwrap_err().errno(), EIO);
    assert_eq!(volume.read(other, 0, 10).unwrap(), [1]);
    volume.close().unwrap();
}

/// Inode blocks that had changed since the checkpoint were looked at together with leaves that did not reach as far,
/// and what lay in between was left out.
#[test]
fn orphans_are_found_however_far_apart_they_are() {
    const FILES: usize = 600 * 32;
    let device = Arc::new(MemoryDevice::new(128 << 20));
    let plain: Arc<dyn Device> = device.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(device.clone());
    let name = |i: usize| format!("{i}");
    let inos: Vec<Ino> = (0..FILES)
        .map(|i| {
            volume
                .create(ROOT_INO, name(i).as_bytes(), &NEW)
                .unwrap()
                .ino
        })
        .collect();
    let orphan = |i: usize| {
        volume.open_file(inos[i]).unwrap();
        volume.unlink(ROOT_INO, name(i).as_bytes()).unwrap();
    };
    // A leaf has about 60 blocks.
    let early: Vec<usize> = (0..FILES - 32).step_by(32 * 40).collect();
    early.iter().for_each(|i| orphan(*i));
    volume.upkeep().checkpoint().unwrap();
    orphan(FILES - 1);
    volume.sync().unwrap();
    drop(volume);
    let volume = open(device);
    volume.close().unwrap();
    let left = (FILES - early.len() - 1) as u64;
    assert_eq!(volume.info().inodes, left + 1, "and the root");
}

/// A server that follows another one has clients of that: what they hold outlives the mount that it was held by.
#[test]
fn an_orphan_that_somebody_still_has_is_held_over_a_crash_and_the_others_go() {
    let device = Arc::new(made(16 << 20));
    let volume = open(device.clone());
    let [kept, left] = [&b"kept"[..], b"left"].map(|name| {
        let ino = volume.create(ROOT_INO, name, &NEW).unwrap().ino;
        volume.write(ino, 0, name).unwrap();
        volume.open_file(ino).unwrap();
        volume.unlink(ROOT_INO, name).unwrap();
        ino
    });
    volume.sync().unwrap();
    let crash = Arc::new(device.fork());
    drop(volume);
    let volume = open(crash.clone());
    volume.upkeep().hold_orphans(|attr| attr.ino == kept);
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.read(kept, 0, 10).unwrap(), b"kept");
    assert_eq!(volume.getattr(kept).unwrap().nlink, 0);
    assert!(volume.getattr(left).is_err(), "nobody has it");
    volume.sync().unwrap();
    assert!(volume.is_durable(kept));
    volume.write(kept, 0, b"KEPT").unwrap();
    assert!(!volume.is_durable(kept));
    volume.sync().unwrap();
    assert!(volume.is_durable(kept));
    volume.release_file(kept).unwrap();
    volume.upkeep().tick().unwrap();
    assert!(volume.getattr(kept).is_err(), "nobody has it any more");
    volume.close().unwrap();
    is_sound(&crash);
}
