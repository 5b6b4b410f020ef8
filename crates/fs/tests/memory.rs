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
fn files_that_are_held_without_a_name_do_not_stay_in_memory_and_can_be_read() {
    const FILES: usize = 20_000;
    let volume = open(&made(4 << 30));
    let mut held = Vec::new();
    for i in 0..FILES {
        let ino = volume.create(ROOT_INO, &name("f", i), &NEW).unwrap().ino;
        volume.write(ino, 0, &name("content of ", i)).unwrap();
        volume.open_file(ino).unwrap();
        volume.unlink(ROOT_INO, &name("f", i)).unwrap();
        held.push(ino);
    }
    volume.sync().unwrap();
    volume.getattr(ROOT_INO).unwrap();
    assert!(volume.info().cached_inodes <= 512 + 1);
    for (i, ino) in held.iter().enumerate() {
        assert_eq!(volume.read(*ino, 0, 100).unwrap(), name("content of ", i));
        assert_eq!(volume.getattr(*ino).unwrap().nlink, 0);
    }
    let before = volume.info().inodes;
    for ino in &held {
        volume.release_file(*ino).unwrap();
        assert!(volume.getattr(*ino).is_err());
    }
    assert_eq!(volume.info().inodes, before - FILES as u64);
}

#[test]
fn a_file_without_a_name_gets_one_though_it_left_memory() {
    let volume = open(&made(4 << 30));
    let ino = volume.create_unnamed(ROOT_INO, &NEW).unwrap().ino;
    let unlinked = volume.create(ROOT_INO, b"gone", &NEW).unwrap().ino;
    volume.open_file(unlinked).unwrap();
    volume.unlink(ROOT_INO, b"gone").unwrap();
    volume.upkeep().drop_caches().unwrap();
    assert!(volume.link(unlinked, ROOT_INO, b"back").is_err());
    volume.link(ino, ROOT_INO, b"named").unwrap();
    volume.release_file(ino).unwrap();
    assert_eq!(volume.lookup(ROOT_INO, b"named").unwrap().ino, ino);
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
