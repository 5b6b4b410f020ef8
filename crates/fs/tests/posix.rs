//! What Linux adds to the names and contents of POSIX, through the library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, open};
use loamfs_format::inode::mode;
use loamfs_fs::{Durability, Env, Error, NewInode, OpenOptions, ROOT_INO, RenameFlags, Volume};

const NEW: NewInode = NewInode {
    uid: 7,
    gid: 8,
    ..NewInode::of_mode(0o640)
};

#[test]
fn a_file_without_a_name_can_be_given_one() {
    let device = made(64 << 20);
    let volume = open(&device);
    let file = volume.create_unnamed(ROOT_INO, &NEW).unwrap();
    assert_eq!((file.nlink, file.uid, file.gid), (0, 7, 8));
    volume.write(file.ino, 0, b"content").unwrap();
    volume.fsync(file.ino, false).unwrap();
    let named = volume.link(file.ino, ROOT_INO, b"name").unwrap();
    assert_eq!(named.nlink, 1);
    volume.release_file(file.ino).unwrap();
    volume.close().unwrap();
    let volume = open(&device);
    let found = volume.lookup(ROOT_INO, b"name").unwrap();
    assert_eq!(volume.read(found.ino, 0, 100).unwrap(), b"content");
}

#[test]
fn a_file_that_lost_its_name_cannot_be_named_again() {
    let volume = open(&made(64 << 20));
    let file = volume.create_unnamed(ROOT_INO, &NEW).unwrap().ino;
    volume.link(file, ROOT_INO, b"a").unwrap();
    volume.unlink(ROOT_INO, b"a").unwrap();
    let again = volume.link(file, ROOT_INO, b"b");
    assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
}

#[test]
fn a_file_without_a_name_goes_with_its_holder() {
    let volume = open(&made(64 << 20));
    let before = volume.statfs().inodes;
    let file = volume.create_unnamed(ROOT_INO, &NEW).unwrap().ino;
    assert_eq!(volume.statfs().inodes, before + 1);
    volume.release_file(file).unwrap();
    assert_eq!(volume.statfs().inodes, before);
    assert!(volume.getattr(file).is_err());
}

#[test]
fn a_file_without_a_name_does_not_outlive_a_crash() {
    let device = made(64 << 20);
    let volume = open(&device);
    let before = volume.statfs().inodes;
    let file = volume.create_unnamed(ROOT_INO, &NEW).unwrap().ino;
    volume.write(file, 0, &[7; 100_000]).unwrap();
    volume.upkeep().commit(Durability::Durable).unwrap();
    drop(volume);
    let volume = open(&device);
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.statfs().inodes, before);
    assert!(volume.getattr(file).is_err());
}

#[test]
fn a_rename_can_leave_a_whiteout() {
    let device = made(64 << 20);
    let volume = open(&device);
    let dir = volume.mkdir(ROOT_INO, b"d", &NEW).unwrap().ino;
    let file = volume.create(ROOT_INO, b"old", &NEW).unwrap().ino;
    let victim = volume.create(dir, b"new", &NEW).unwrap().ino;
    let whiteout = RenameFlags {
        whiteout: Some(NEW),
        ..RenameFlags::default()
    };
    volume
        .rename(ROOT_INO, b"old", dir, b"new", whiteout)
        .unwrap();
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.lookup(dir, b"new").unwrap().ino, file);
    assert!(volume.getattr(victim).is_err());
    let left = volume.lookup(ROOT_INO, b"old").unwrap();
    assert_eq!(left.mode & mode::TYPE, mode::CHARACTER);
    assert_eq!((left.rdev, left.nlink), (0, 1));
    let listed = volume.readdir(ROOT_INO, 2, 10).unwrap();
    let entry = listed.iter().find(|entry| entry.name == b"old").unwrap();
    assert_eq!(u32::from(entry.file_type) << 12, mode::CHARACTER);
}

#[test]
fn a_swap_leaves_no_whiteout() {
    let volume = open(&made(64 << 20));
    volume.create(ROOT_INO, b"a", &NEW).unwrap();
    volume.create(ROOT_INO, b"b", &NEW).unwrap();
    let both = RenameFlags {
        exchange: true,
        whiteout: Some(NEW),
        ..RenameFlags::default()
    };
    let renamed = volume.rename(ROOT_INO, b"a", ROOT_INO, b"b", both);
    assert!(matches!(renamed, Err(Error::Invalid(_))), "{renamed:?}");
}

/// The format's 2^31 links, as a bound of four.
#[test]
fn links_end_at_the_most_there_can_be() {
    let device = made(64 << 20);
    let options = OpenOptions {
        links_max: 4,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, &options, Env::fixed(2)).unwrap();
    let full = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::TooManyLinks)), "{result:?}");
    };
    let file = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    for name in [b"2", b"3", b"4"] {
        volume.link(file, ROOT_INO, name).unwrap();
    }
    full(volume.link(file, ROOT_INO, b"5").map(drop));
    assert_eq!(volume.getattr(file).unwrap().nlink, 4);
    volume.unlink(ROOT_INO, b"4").unwrap();
    volume.link(file, ROOT_INO, b"4").unwrap();
    // A directory counts itself and its subdirectories.
    let [dir, other] = [b"a", b"b"].map(|name| volume.mkdir(ROOT_INO, name, &NEW).unwrap().ino);
    full(volume.mkdir(ROOT_INO, b"c", &NEW).map(drop));
    for name in [b"1", b"2"] {
        volume.mkdir(dir, name, &NEW).unwrap();
    }
    full(volume.mkdir(dir, b"3", &NEW).map(drop));
    volume.create(dir, b"file", &NEW).unwrap();
    volume.mkdir(other, b"sub", &NEW).unwrap();
    volume.create(other, b"file", &NEW).unwrap();
    let plain = RenameFlags::default();
    let exchange = RenameFlags {
        exchange: true,
        ..plain
    };
    full(volume.rename(other, b"sub", dir, b"3", plain));
    full(volume.rename(other, b"sub", dir, b"file", exchange));
    full(volume.rename(dir, b"file", other, b"sub", exchange));
    // What takes a subdirectory's place adds none.
    volume.rename(other, b"sub", dir, b"2", plain).unwrap();
    volume.rename(dir, b"1", dir, b"3", plain).unwrap();
    assert_eq!(volume.getattr(dir).unwrap().nlink, 4);
    assert_eq!(volume.getattr(other).unwrap().nlink, 2);
}
