//! Segments say what changed in inodes, and leave their blocks where they are (rule 16).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{made_with, open};
use loamfs_check::{Options, check};
use loamfs_device::Device;
use loamfs_format::superblock::{INCOMPATIBLE_LAZY_INODES, Superblock};
use loamfs_fs::{Env, Ino, MkfsOptions, NewInode, Place, ROOT_INO, SetAttr, Volume, shrink};
use loamfs_log::superblocks;
use std::sync::Arc;

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

/// Bytes that a change of these files writes, with its sync.
fn cost(deltas: bool, change: impl Fn(&Volume, &[Ino])) -> u64 {
    let device = made_with(64 << 20, deltas);
    let volume = open(&device);
    let files = filled(&volume);
    let before = device.counters().total().write_bytes;
    change(&volume, &files);
    device.counters().total().write_bytes - before
}

#[test]
fn a_change_of_an_inode_writes_no_block_of_inodes() {
    let cost = |deltas| cost(deltas, |volume, files| touch(volume, files, 0o640));
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

/// Removes one file of each inode block, and makes as many others.
fn exchange(volume: &Volume, round: usize) {
    for i in 0..FILES / 32 {
        let old = format!("file{}", i * 32 + round);
        volume.unlink(ROOT_INO, old.as_bytes()).unwrap();
        let new = format!("new{round}-{i}");
        let ino = volume.create(ROOT_INO, new.as_bytes(), &NEW).unwrap().ino;
        volume.write(ino, 0, new.as_bytes()).unwrap();
    }
    volume.sync().unwrap();
}

/// The volume has just what [`exchange`] left after so many rounds, and a check finds no fault with it.
fn assert_exchanged(device: &Arc<dyn Device>, volume: &Volume, rounds: usize) {
    let lookup = |name: String| volume.lookup(ROOT_INO, name.as_bytes());
    for i in 0..FILES {
        let gone = i / 32 < FILES / 32 && i % 32 < rounds;
        let found = lookup(format!("file{i}"));
        assert_eq!(found.is_err(), gone, "{i}");
        if let Ok(found) = found {
            assert_eq!(volume.read(found.ino, 0, 300).unwrap(), vec![i as u8; 300]);
        }
    }
    for (round, i) in (0..rounds).flat_map(|round| (0..FILES / 32).map(move |i| (round, i))) {
        let name = format!("new{round}-{i}");
        let found = lookup(name.clone()).unwrap();
        assert_eq!(volume.read(found.ino, 0, 99).unwrap(), name.as_bytes());
    }
    let report = check(&**device, &mut Options::default());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn an_inode_that_comes_or_goes_has_no_block_written() {
    let cost = |deltas| cost(deltas, |volume, _| exchange(volume, 0));
    let (apart, whole) = (cost(true), cost(false));
    assert!(whole >= 6 * (15 << 10), "{whole}");
    // The directory takes a few nodes.
    assert!(apart <= 40 << 10, "{apart}");
}

/// What went stays away, and what came stays, after each crash and each unmount, with and without checkpoints.
#[test]
fn what_came_and_went_last_counts_after_every_mount() {
    let device = made_with(64 << 20, true);
    let volume = open(&device);
    filled(&volume);
    exchange(&volume, 0);
    // As a crash leaves it.
    drop(volume);
    let volume = open(&device);
    assert_exchanged(&device, &volume, 1);
    exchange(&volume, 1);
    volume.upkeep().checkpoint().unwrap();
    exchange(&volume, 2);
    drop(volume);
    let volume = open(&device);
    assert_exchanged(&device, &volume, 3);
    for round in 3..20 {
        exchange(&volume, round);
        if round % 3 == 0 {
            volume.upkeep().checkpoint().unwrap();
            volume.upkeep().drop_caches().unwrap();
        }
    }
    volume.close().unwrap();
    let volume = open(&device);
    assert_exchanged(&device, &volume, 20);
    volume.close().unwrap();
}

/// What was said of others in its block counts on.
#[test]
fn what_changed_counts_though_another_inode_of_the_block_goes() {
    let device = made_with(64 << 20, true);
    let volume = open(&device);
    let files = filled(&volume);
    touch(&volume, &files, 0o640);
    volume.unlink(ROOT_INO, b"file70").unwrap();
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device);
    for ino in files.iter().step_by(32) {
        assert_eq!(volume.getattr(*ino).unwrap().mode & 0o777, 0o640);
    }
    assert!(volume.getattr(files[70]).is_err());
}

/// A file without a name that is open when the machine stops is gone behind the next mount, and only that.
#[test]
fn an_orphan_goes_whose_block_stayed() {
    let device = made_with(64 << 20, true);
    let volume = open(&device);
    let files = filled(&volume);
    volume.open_file(files[40]).unwrap();
    volume.unlink(ROOT_INO, b"file40").unwrap();
    volume.sync().unwrap();
    assert!(volume.getattr(files[40]).is_ok());
    drop(volume);
    let volume = open(&device);
    volume.upkeep().tick().unwrap();
    let left = files.iter().filter(|ino| volume.getattr(**ino).is_ok());
    assert_eq!(left.count(), FILES - 1);
    volume.close().unwrap();
    let report = check(&*device, &mut Options::default());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// A volume of a program that knew deltas, and no lazy inode blocks, stays one that such a program can open.
#[test]
fn a_volume_without_lazy_inode_blocks_is_used_and_stays_without() {
    let device = made_with(64 << 20, true);
    let newest = superblocks::read(&*device).unwrap().newest;
    let older = Superblock {
        incompatible: newest.incompatible & !INCOMPATIBLE_LAZY_INODES,
        ..newest
    };
    for copy in 0..2 {
        superblocks::write_copy(&*device, &older, copy).unwrap();
    }
    let volume = open(&device);
    let files = filled(&volume);
    touch(&volume, &files, 0o640);
    let before = device.counters().total().write_bytes;
    exchange(&volume, 0);
    assert!(device.counters().total().write_bytes - before >= 6 * (15 << 10));
    drop(volume);
    let volume = open(&device);
    assert_exchanged(&device, &volume, 1);
    volume.close().unwrap();
    let newest = superblocks::read(&*device).unwrap().newest;
    assert!(newest.has_deltas() && !newest.has_lazy_inodes());
}
