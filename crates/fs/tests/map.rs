//! Where content is said to be: that is where its bytes are on the device.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, IoKind, MemoryDevice, read_exact};
use loamfs_fs::{
    Durability, Env, Error, Ino, MkfsOptions, NewInode, OpenOptions, Piece, Place, ROOT_INO,
    Volume, mkfs,
};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const UNIT: u64 = 4096;
const BLOCK: u64 = 16 << 10;

fn volume() -> (Arc<MemoryDevice>, Volume) {
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = memory.clone();
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
    (memory, volume)
}

fn put(volume: &Volume, name: &str, bytes: &[u8]) -> Ino {
    let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
    volume.write(ino, 0, bytes).unwrap();
    ino
}

fn content(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i >> 12) as u8 ^ (i * 7) as u8).collect()
}

/// Where a file's first byte is on the device.
fn first(volume: &Volume, ino: Ino) -> u64 {
    match map(volume, ino)[0].place {
        Place::Inode(at) | Place::Log(at) | Place::Home(at) => at,
        other => panic!("{other:?}"),
    }
}

/// The whole map, whose pieces adjoin and end with the file.
fn map(volume: &Volume, ino: Ino) -> Vec<Piece> {
    let (mut pieces, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        let (mut more, next) = volume.ranges(ino).map(at).unwrap();
        pieces.append(&mut more);
        from = next;
    }
    let mut at = 0;
    for piece in &pieces {
        assert_eq!(piece.offset, at);
        assert!(piece.len > 0);
        at += piece.len;
    }
    assert_eq!(at, volume.getattr(ino).unwrap().size);
    pieces
}

/// That the device has the file's bytes where the map says.
fn is_true(device: &dyn Device, volume: &Volume, ino: Ino) {
    for piece in map(volume, ino) {
        let at = match piece.place {
            Place::Inode(at) | Place::Log(at) | Place::Home(at) => at,
            Place::Image { image, .. } => image,
            Place::Hole | Place::Memory | Place::Summary | Place::Unwritten(_) => continue,
        };
        let there = read_exact(device, at, piece.len as usize, IoKind::Other).unwrap();
        let read = volume.read(ino, piece.offset, piece.len as usize).unwrap();
        assert!(there[..] == read[..], "{piece:?}");
    }
}

fn places(volume: &Volume, ino: Ino) -> Vec<(u64, u64, &'static str)> {
    let name = |place| match place {
        Place::Hole => "hole",
        Place::Memory => "memory",
        Place::Inode(_) => "inode",
        Place::Summary => "summary",
        Place::Log(_) => "log",
        Place::Home(_) => "home",
        Place::Unwritten(_) => "unwritten",
        Place::Image { .. } => "image",
    };
    let pieces = map(volume, ino).into_iter();
    pieces.map(|p| (p.offset, p.len, name(p.place))).collect()
}

#[test]
fn a_file_is_in_memory_until_it_is_committed() {
    let (device, volume) = volume();
    let tiny = put(&volume, "tiny", &content(100));
    let small = put(&volume, "small", &content(5_000));
    let large = put(&volume, "large", &content(3 * BLOCK + 17));
    for ino in [small, large] {
        let size = volume.getattr(ino).unwrap().size;
        assert_eq!(places(&volume, ino), [(0, size, "memory")]);
    }
    volume.sync().unwrap();
    assert_eq!(places(&volume, tiny), [(0, 100, "inode")]);
    assert_eq!(places(&volume, small), [(0, 5_000, "log")]);
    assert_eq!(places(&volume, large), [(0, 3 * BLOCK + 17, "home")]);
    for ino in [tiny, small, large] {
        is_true(device.as_ref(), &volume, ino);
    }
    let nothing = put(&volume, "nothing", b"");
    assert_eq!(places(&volume, nothing), []);
    assert!(matches!(
        volume.ranges(ROOT_INO).map(0),
        Err(Error::IsDirectory)
    ));
}

#[test]
fn holes_and_images_are_told_apart_from_homes() {
    let (device, volume) = volume();
    let ino = put(&volume, "f", &content(8 * BLOCK));
    volume.write(ino, 20 * BLOCK, &content(BLOCK)).unwrap();
    volume.sync().unwrap();
    volume.ranges(ino).punch(2 * BLOCK, BLOCK).unwrap();
    volume.write(ino, 5 * UNIT, &content(UNIT)).unwrap();
    volume.upkeep().commit(Durability::Durable).unwrap();
    volume.write(ino, 21 * BLOCK - 3, b"new").unwrap();
    let last = 20 * BLOCK + 3 * UNIT;
    let expected = [
        (0, 5 * UNIT, "home"),
        (5 * UNIT, UNIT, "image"),
        (6 * UNIT, 2 * UNIT, "home"),
        (2 * BLOCK, BLOCK, "hole"),
        (3 * BLOCK, 5 * BLOCK, "home"),
        (8 * BLOCK, 12 * BLOCK, "hole"),
        (20 * BLOCK, 3 * UNIT, "home"),
        (last, UNIT, "memory"),
    ];
    assert_eq!(places(&volume, ino), expected);
    is_true(device.as_ref(), &volume, ino);
    volume.sync().unwrap();
    volume.upkeep().settle(usize::MAX).unwrap();
    volume.sync().unwrap();
    assert!(
        places(&volume, ino)
            .iter()
            .all(|(.., place)| *place != "image")
    );
    is_true(device.as_ref(), &volume, ino);
}

#[test]
fn a_file_of_many_extents_is_mapped_in_steps() {
    let (device, volume) = volume();
    let ino = put(&volume, "f", b"");
    for i in 0..700 {
        volume.write(ino, 2 * i * BLOCK, &content(BLOCK)).unwrap();
    }
    volume.sync().unwrap();
    assert!(volume.ranges(ino).map(0).unwrap().1.is_some());
    assert_eq!(map(&volume, ino).len(), 2 * 700 - 1);
    is_true(device.as_ref(), &volume, ino);
    // From the middle of a piece on.
    let (pieces, _) = volume.ranges(ino).map(4 * BLOCK + 5).unwrap();
    assert_eq!(
        (pieces[0].offset, pieces[0].len),
        (4 * BLOCK + 5, BLOCK - 5)
    );
}

/// On a disk that turns the log stood in the middle, and data at the beginning: the longest way there is while the volume is young.
#[test]
fn the_log_begins_in_the_first_group_of_a_disk_and_data_behind_it() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 30).with_rotational(true));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
    let small = put(&volume, "small", &content(3000));
    let large = put(&volume, "large", &content(1 << 20));
    volume.sync().unwrap();
    let group = volume.info().group_size;
    let (small, large) = (first(&volume, small), first(&volume, large));
    assert!(small < group, "{small}");
    assert!((group..2 * group).contains(&large), "{large}");
}
