//! A volume far larger than its caches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::made;
use loamfs_device::Device;
use loamfs_fs::{Env, Ino, NewInode, OpenOptions, ROOT_INO, RenameFlags, Volume};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

/// Too small for the inodes below.
fn open(device: &Arc<dyn Device>) -> Volume {
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(device), &options, Env::fixed(2)).unwrap()
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
    // 8 KiB of the caches' half an inode.
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
