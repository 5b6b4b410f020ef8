//! Groups of the log that hold little are emptied when that is asked for.
#![allow(clippy::unwrap_used)]

use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{Env, Ino, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use std::sync::Arc;

/// Bytes of a small file.
const SMALL: usize = 6_000;

fn made(bytes: u64) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(Arc::clone(device), &OpenOptions::default(), Env::fixed(2)).unwrap()
}

fn content(number: usize) -> Vec<u8> {
    (0..SMALL).map(|at| (at * 7 + number) as u8).collect()
}

fn name(number: usize) -> Vec<u8> {
    format!("small{number}").into_bytes()
}

/// Small files, of which one of `kept` stays.
fn thinned(volume: &Volume, count: usize, kept: usize) -> Vec<(usize, Ino)> {
    let make = |number: usize| {
        let made = volume.create(ROOT_INO, &name(number), &NewInode::of_mode(0o644));
        let ino = made.unwrap().ino;
        volume.write(ino, 0, &content(number)).unwrap();
        (number, ino)
    };
    let all: Vec<_> = (0..count).map(make).collect();
    volume.sync().unwrap();
    let (stay, go): (Vec<_>, Vec<_>) = all.into_iter().partition(|(number, _)| number % kept == 0);
    for (number, _) in go {
        volume.unlink(ROOT_INO, &name(number)).unwrap();
    }
    volume.sync().unwrap();
    stay
}

fn assert_there(volume: &Volume, files: &[(usize, Ino)]) {
    for (number, ino) in files {
        assert_eq!(volume.read(*ino, 0, SMALL).unwrap(), content(*number));
    }
}

#[test]
fn groups_that_hold_little_are_emptied_when_that_is_asked_for() {
    let device = made(128 << 20);
    let volume = open(&device);
    let files = thinned(&volume, 6_000, 8);
    let mut told = Vec::new();
    let cleaned = volume.upkeep().clean(50, &mut |done, total| {
        told.push((done, total));
        true
    });
    let cleaned = cleaned.unwrap();
    assert!(cleaned.groups > 0 && cleaned.freed > 0, "{cleaned:?}");
    assert!(cleaned.moved > 0 && cleaned.left == 0, "{cleaned:?}");
    assert_eq!(told[0].0, 0);
    assert!(told.is_sorted());
    assert_there(&volume, &files);
    // There is nothing more to win.
    let again = volume.upkeep().clean(50, &mut |_, _| true).unwrap();
    assert!(again.freed <= 1 && again.left == 0, "{again:?}");
    drop(volume);
    assert_there(&open(&device), &files);
}

#[test]
fn who_says_so_ends_it() {
    let device = made(128 << 20);
    let volume = open(&device);
    thinned(&volume, 6_000, 8);
    let cleaned = volume.upkeep().clean(50, &mut |_, _| false).unwrap();
    assert_eq!((cleaned.groups, cleaned.moved), (0, 0));
    assert!(cleaned.left > 0, "{cleaned:?}");
}
