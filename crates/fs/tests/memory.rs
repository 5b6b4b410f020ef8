//! A volume far larger than its caches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, open_cached};
use loamfs_device::Device;
use loamfs_fs::{Ino, NewInode, ROOT_INO, RenameFlags, Volume};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

/// Too small for the inodes below.
fn open(device: &Arc<dyn Device>) -> Volume {
    open_cached(device, 8 << 20)
}

fn name(kind: &str, i: usize) -> Vec<u8> {
    format!("{kind}{i}").into_bytes()
}

#[test]
fn inodes_that_were_made_do_not_stay_in_memory() {
    let volume = open(&made(4 << 30));
    for i in 0..20_000 {
        volume.create(ROOT_INO, &name("f", i), &NEW).unwrap();
    }
    volume.sync().unwrap();
    volume.getattr(ROOT_INO).unwrap();
    // An inode for 16 KiB of the caches.
    assert!(volume.info().cached_inodes <= 512 + 1);
}

#[test]
fn operations_on_several_inodes_keep_them_while_others_are_dropped() {
    const DIRS: usize = 1_200;
    let device = made(4 << 30);
    let volume = open(&device);
    let dirs: Vec<Ino> = (0..DIRS)
        .map(|i| {
            let dir = volume.mkdir(ROOT_INO, &name("d", i), &NEW).unwrap().ino;
            volume.mkdir(dir, b"sub", &NEW).unwrap();
            dir
        })
        .collect();
    volume.close().unwrap();
    let volume = open(&device);
    // Each goes over the empty one in another directory.
    for from in (0..DIRS).step_by(2) {
        let to = (from + 601) % DIRS;
        volume
            .rename(dirs[from], b"sub", dirs[to], b"sub", RenameFlags::default())
            .unwrap();
    }
    volume.close().unwrap();
    let volume = open(&device);
    for dir in dirs.iter().skip(1).step_by(2) {
        let sub = volume.lookup(*dir, b"sub").unwrap();
        assert_eq!(volume.lookup(sub.ino, b"..").unwrap().ino, *dir);
    }
    assert_eq!(volume.info().inodes as usize, 1 + DIRS + DIRS / 2);
}

#[test]
fn an_eighth_of_a_small_volume_waits_however_large_the_caches_are() {
    let volume = open_cached(&made(256 << 20), 1 << 30);
    for i in 0..100 {
        let file = volume.create(ROOT_INO, &name("f", i), &NEW).unwrap().ino;
        volume.write(file, 0, &vec![1; 1 << 20]).unwrap();
        assert!(volume.info().dirty_home_bytes <= 32 << 20);
    }
    volume.close().unwrap();
}
