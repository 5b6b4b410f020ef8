//! Small files that are overwritten on a nearly full volume: none is refused, and none waits for all others' sake.
#![allow(clippy::unwrap_used)]

mod common;

use common::{made_on, made_with, open};
use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{Error, Ino, NewInode, ROOT_INO, Volume};
use std::sync::Arc;

const VOLUME: u64 = 128 << 20;
/// Bytes of a file.
const FILE: usize = 12 << 10;
/// Overwrites between two syncs.
const SYNC_EVERY: usize = 256;
/// Bytes that are written for a new one at most.
const WRITTEN_MAX: u64 = 5;
/// Bytes that are moved for one overwrite at most, as a part of the volume.
const MOVED_PART: u64 = 16;

/// A volume on which files take so many of a hundred bytes of what it has room for.
fn filled(percent: u64) -> (Volume, Vec<Ino>) {
    filled_with(VOLUME, percent, false)
}

/// The same of so many bytes; segments may say what changed in inodes.
fn filled_with(bytes: u64, percent: u64, deltas: bool) -> (Volume, Vec<Ino>) {
    filled_on(&made_with(bytes, deltas), percent)
}

/// The same on a device with a new volume.
fn filled_on(device: &Arc<dyn Device>, percent: u64) -> (Volume, Vec<Ino>) {
    let volume = open(device);
    let room = volume.statfs();
    let bytes = room.available * u64::from(room.fragment_size);
    let files = (0..bytes * percent / 100 / FILE as u64).map(|number| {
        let name = number.to_string();
        let new = NewInode::of_mode(0o644);
        let ino = volume.create(ROOT_INO, name.as_bytes(), &new)?.ino;
        volume.write(ino, 0, &[1; FILE])?;
        Ok(ino)
    });
    let files = files.collect::<Result<Vec<Ino>, Error>>().unwrap();
    volume.sync().unwrap();
    (volume, files)
}

/// Files at random, for ever.
fn at_random(files: &[Ino]) -> impl Iterator<Item = Ino> {
    let step = |random: &u64| {
        let next = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        Some(next)
    };
    let randoms = std::iter::successors(Some(1u64), step).skip(1);
    randoms.map(|random| files[(random >> 33) as usize % files.len()])
}

/// Overwrites a file, and syncs now and then.
fn overwrite(volume: &Volume, ino: Ino, turn: usize) {
    volume.write(ino, 0, &[turn as u8; FILE]).unwrap();
    if turn.is_multiple_of(SYNC_EVERY) {
        volume.sync().unwrap();
    }
}

#[test]
fn who_overwrites_waits_for_what_it_needs_alone() {
    let (volume, files) = filled(90);
    let moved = || volume.info().cleaned_live_frags * u64::from(volume.statfs().fragment_size);
    let mut longest = 0;
    for (turn, ino) in at_random(&files).take(2 * files.len()).enumerate() {
        let before = moved();
        overwrite(&volume, ino, turn);
        longest = longest.max(moved() - before);
    }
    assert!(longest <= VOLUME / MOVED_PART, "{longest}");
}

/// What the reserve lends to overwrites is won back: nobody else finds the volume full of holes that nothing fits into.
#[test]
fn what_was_lent_to_overwrites_comes_back() {
    let (volume, files) = filled(90);
    for turn in 0..files.len() {
        let ino = files[turn * 7919 % files.len()];
        volume.write(ino, 0, &[turn as u8; FILE]).unwrap();
    }
    let removed = (0..files.len()).step_by(4);
    for number in removed.clone() {
        let name = number.to_string();
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
    }
    for number in removed.skip(files.len() / 64) {
        let name = format!("new {number}");
        let new = NewInode::of_mode(0o644);
        let ino = volume.create(ROOT_INO, name.as_bytes(), &new).unwrap().ino;
        volume.write(ino, 0, &[2; FILE]).unwrap();
    }
    volume.sync().unwrap();
}

/// Where space was short, each file that was overwritten or moved had the inodes of 32 files written with it: more than its
/// own contents, and all of that was cleaned in its turn.
#[test]
fn inode_blocks_stay_where_they_are_where_space_is_short() {
    let (volume, files) = filled_with(2 * VOLUME, 80, true);
    let mut chosen = at_random(&files);
    let mut overwrite_as_many = || {
        for (turn, ino) in chosen.by_ref().take(files.len()).enumerate() {
            overwrite(&volume, ino, turn);
        }
    };
    overwrite_as_many();
    let before = volume.info().device;
    overwrite_as_many();
    let written = (volume.info().device - before).total().write_bytes;
    let new = (files.len() * FILE) as u64;
    assert!(volume.info().cleaned_live_frags > 0, "nothing is short");
    assert!(written < WRITTEN_MAX * new, "{written} bytes for {new}");
}

/// Nine of ten overwrites go to a tenth of the files. What these leave is room in holes that are a little longer than a file, so that
/// nobody lacks any: each file went into one of them, at a seek each, though groups could be emptied for less.
#[test]
fn what_is_hot_does_not_go_into_a_hole_for_each_file_on_a_disk_that_turns() {
    let device = MemoryDevice::new(2 * VOLUME).with_rotational(true);
    let (volume, files) = filled_on(&made_on(device, true), 70);
    let hot = files.len() / 10;
    let mut chosen = at_random(&files).zip(at_random(&files[..hot]));
    let mut overwrite_as_many = |times: usize| {
        for (turn, (any, hot)) in chosen.by_ref().take(times * files.len()).enumerate() {
            overwrite(&volume, if turn % 10 == 0 { any } else { hot }, turn);
        }
    };
    overwrite_as_many(2);
    let before = volume.info().device;
    overwrite_as_many(1);
    let device = volume.info().device - before;
    let requests = device.total().writes;
    assert!(
        requests * 4 < files.len() as u64,
        "{requests} writes for {} files",
        files.len()
    );
}
