//! Segments say what changed in inodes, and leave their blocks where they are (rule 16).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{made_with, open};
use loamfs_check::{Options, check};
use loamfs_device::Device;
use loamfs_fs::{Env, Ino, MkfsOptions, NewInode, Place, ROOT_INO, SetAttr, Volume, shrink};
use loamfs_log::superblocks;

const NEW: NewInode = NewInode::of_mode(0o600);
/// Files of the volumes here: of several inode blocks.
const FILES: usize = 200;

fn filled(volume: &Volume) -> Vec<Ino> {
    let make = |i: usize| {
        let name = format!("file{i}");
        let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(ino, 0, &vec![i as u8; 300]).unwrap();
        ino
    };
    let files = (0..FILES).map(make).collect();
    volume.sync().unwrap();
    files
}

/// Changes one file of each inode block.
fn touch(volume: &Volume, files: &[Ino], mode: u32) {
    for ino in files.iter().step_by(32) {
        let mode = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        volume.setattr(*ino, &mode).unwrap();
    }
    volume.sync().unwrap();
}

/// All files have their contents, and one of each inode block this mode.
fn assert_changed(volume: &Volume, files: &[Ino], mode: u32) {
    for (i, ino) in files.iter().enumerate() {
        let expected = if i % 32 == 0 { mode } else { 0o600 };
        assert_eq!(volume.getattr(*ino).unwrap().mode & 0o777, expected, "{i}");
        assert_eq!(volume.read(*ino, 0, 300).unwrap(), vec![i as u8; 300]);
    }
}

/// Bytes that a sync writes behind which one file of each inode block has changed.
fn cost(deltas: bool) -> u64 {
    let device = made_with(64 << 20, deltas);
    let volume = open(&device);
    let files = filled(&volume);
    let before = device.counters().total().write_bytes;
    touch(&volume, &files, 0o640);
    device.counters().total().write_bytes - before
}

#[test]
fn a_change_of_an_inode_writes_no_block_of_inodes() {
    let (apart, whole) = (cost(true), cost(false));
    assert!(whole >= 6 * (16 << 10), "{whole}");
    assert!(apart <= 16 << 10, "{apart}");
}

fn has_deltas(device: &dyn Device) -> bool {
    superblocks::read(device).unwrap().newest.has_deltas()
}

#[test]
fn volumes_have_deltas_unless_they_are_made_without() {
    assert!(MkfsOptions::default().deltas);
    for deltas in [true, false] {
        assert_eq!(has_deltas(&*made_with(64 << 20, deltas)), deltas);
    }
}

/// Whoever made it for an older program can go back to that.
#[test]
fn a_volume_without_deltas_is_used_and_stays_without() {
    let device = made_with(64 << 20, false);
    let volume = open(&device);
    let files = filled(&volume);
    touch(&volume, &files, 0o640);
    // As a crash leaves it.
    drop(volume);
    let volume = open(&device);
    assert_changed(&volume, &files, 0o640);
    touch(&volume, &files, 0o604);
    volume.upkeep().checkpoint().unwrap();
    volume.close().unwrap();
    assert_changed(&open(&device), &files, 0o604);
    assert!(!has_deltas(&*device));
    let report = check(&*device, &mut Options::default());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// The deltas of several segments count in their order, and a checkpoint carries them on.
#[test]
fn what_changed_last_counts_after_every_mount() {
    let device = made_with(64 << 20, true);
    let volume = open(&device);
    let files = filled(&volume);
    touch(&volume, &files, 0o640);
    touch(&volume, &files, 0o644);
    // As a crash leaves it.
    drop(volume);
    let volume = open(&device);
    assert_changed(&volume, &files, 0o644);
    volume.upkeep().checkpoint().unwrap();
    touch(&volume, &files, 0o604);
    volume.upkeep().checkpoint().unwrap();
    drop(volume);
    for _ in 0..2 {
        let volume = open(&device);
        assert_changed(&volume, &files, 0o604);
        volume.close().unwrap();
    }
}

/// No byte of the device has the content of a file whose inode has a delta.
#[test]
fn the_map_of_a_file_tells_that_a_summary_has_it() {
    let device = made_with(64 << 20, true);
    let volume = open(&device);
    let files = filled(&volume);
    let place = |ino| volume.ranges(ino).map(0).unwrap().0[0].place;
    let cut = SetAttr {
        size: Some(100),
        ..SetAttr::default()
    };
    volume.setattr(files[5], &cut).unwrap();
    volume.sync().unwrap();
    assert_eq!(place(files[5]), Place::Summary);
    assert!(matches!(place(files[6]), Place::Log(_)));
}

/// Deltas stand while the blocks behind the new end move.
#[test]
fn a_volume_with_deltas_becomes_smaller() {
    let device = made_with(64 << 20, true);
    let volume = open(&device);
    let large = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
    volume.write(large, 0, &vec![1; 8 << 20]).unwrap();
    volume.sync().unwrap();
    let files = filled(&volume);
    touch(&volume, &files, 0o640);
    volume.unlink(ROOT_INO, b"large").unwrap();
    volume.close().unwrap();
    shrink(&device, 16 << 20, &Env::fixed(3), |_| {}).unwrap();
    assert_changed(&open(&device), &files, 0o640);
}

/// However many inodes change, what is said of them stays within bounds: their blocks are written in time.
#[test]
fn blocks_are_written_before_there_is_too_much_of_them() {
    let device = made_with(16 << 20, true);
    let volume = open(&device);
    let files = filled(&volume);
    let file = |round: usize| files[round * 37 % FILES];
    for round in 0..1000 {
        volume.write(file(round), 0, &[round as u8; 200]).unwrap();
        volume.sync().unwrap();
    }
    drop(volume);
    let volume = open(&device);
    // Each file comes again after so many rounds.
    for round in 1000 - FILES..1000 {
        assert_eq!(
            volume.read(file(round), 0, 200).unwrap(),
            [round as u8; 200]
        );
    }
}

/// What every checkpoint says again takes more than the block in the end.
#[test]
fn a_block_is_written_once_checkpoints_have_said_much_of_it_again() {
    let device = made_with(64 << 20, true);
    let volume = open(&device);
    let files = filled(&volume);
    let cut = |file: usize, size| {
        let size = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        volume.setattr(files[file], &size).unwrap();
        volume.sync().unwrap();
    };
    let is_said = || volume.ranges(files[5]).map(0).unwrap().0[0].place == Place::Summary;
    cut(5, 100);
    assert!(is_said());
    // Of another block.
    let mut checkpoints = 0..200;
    let written = checkpoints.find(|turn| {
        cut(FILES - 1, 200 + turn % 2);
        volume.upkeep().checkpoint().unwrap();
        !is_said()
    });
    assert!(written.is_some());
    drop(volume);
    let size = |ino| open(&device).getattr(ino).unwrap().size;
    assert_eq!(size(files[5]), 100);
}
