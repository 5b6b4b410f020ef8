//! A volume is made, used through the library, closed, opened again and read back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, open};
use loamfs_device::{Device, Effect, FaultyDevice, IoKind, MemoryDevice, Op, Rule};
use loamfs_fs::{
    Env, Error, Ino, ManualClock, MkfsOptions, NewInode, OpenOptions, ROOT_INO, RenameFlags,
    SetAttr, SetTime, Shared, Timestamp, Volume, XattrMode, mkfs,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed)
        .collect()
}

#[test]
fn a_new_volume_holds_an_empty_root() {
    let device = made(64 << 20);
    let volume = open(&device);
    let names: Vec<_> = volume
        .readdir(ROOT_INO, 0, 10)
        .unwrap()
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
    volume.close().unwrap();
}

/// Each name that comes or goes changes a directory. Among inodes of files each had a block of these written anew.
#[test]
fn inodes_of_directories_stand_together_and_those_of_files_by_their_directory() {
    let device = made(64 << 20);
    let volume = open(&device);
    let block = |ino: Ino| ino.0 / 32;
    let name = |number: u64| number.to_string().into_bytes();
    let mut dir = ROOT_INO;
    let (mut dirs, mut files) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..8 {
        // One in the other, and so each in another one.
        dir = volume.mkdir(dir, &name(number), &NEW).unwrap().ino;
        dirs.insert(block(dir));
        let of_dir: BTreeSet<u64> = (10..13)
            .map(|file| block(volume.create(dir, &name(file), &NEW).unwrap().ino))
            .collect();
        assert_eq!(of_dir.len(), 1);
        files.extend(of_dir);
    }
    assert_eq!((dirs.len(), files.len()), (1, 8));
    assert!(dirs.is_disjoint(&files));
}

#[test]
fn a_listing_with_attributes_is_one_of_names_and_a_look_at_each() {
    let device = made(64 << 20);
    let volume = open(&device);
    for number in 0..300_usize {
        let name = format!("name {number}");
        let made = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap();
        let len = if number % 50 == 7 { 100_000 } else { number };
        volume.write(made.ino, 0, &vec![1; len]).unwrap();
    }
    volume.mkdir(ROOT_INO, b"directory", &NEW).unwrap();
    volume.symlink(ROOT_INO, b"link", b"target", &NEW).unwrap();
    volume.sync().unwrap();
    let read = volume.lookup(ROOT_INO, b"name 3").unwrap().ino;
    assert!(volume.accessed(read));
    volume.close().unwrap();
    let volume = open(&device);
    let (mut position, mut count) = (0, 0);
    loop {
        let listed = volume.readdir_plus(ROOT_INO, position, 128).unwrap();
        let names = volume.readdir(ROOT_INO, position, 128).unwrap();
        assert_eq!(listed.is_empty(), names.is_empty());
        for ((entry, attr), name) in listed.iter().zip(&names) {
            assert_eq!(entry, name);
            assert_eq!(*attr.as_ref().unwrap(), volume.getattr(entry.ino).unwrap());
            position = entry.next;
        }
        count += listed.len();
        if listed.is_empty() {
            break;
        }
    }
    assert_eq!(count, 304);
}

#[test]
fn files_of_every_size_survive_a_remount() {
    let device = made(64 << 20);
    let sizes = [
        0, 1, 100, 240, 241, 1024, 5000, 16_384, 16_385, 100_000, 3_000_000,
    ];
    let volume = open(&device);
    let dir = volume.mkdir(ROOT_INO, b"d", &NEW).unwrap().ino;
    for (i, size) in sizes.iter().enumerate() {
        let ino = volume
            .create(dir, format!("f{i}").as_bytes(), &NEW)
            .unwrap()
            .ino;
        assert_eq!(
            volume.write(ino, 0, &pattern(*size, i as u8)).unwrap(),
            *size
        );
        assert_eq!(
            volume.read(ino, 0, 4 << 20).unwrap(),
            pattern(*size, i as u8)
        );
    }
    volume.close().unwrap();
    let volume = open(&device);
    let dir = volume.lookup(ROOT_INO, b"d").unwrap().ino;
    for (i, size) in sizes.iter().enumerate() {
        let attr = volume.lookup(dir, format!("f{i}").as_bytes()).unwrap();
        assert_eq!(attr.size, *size as u64);
        assert_eq!(
            volume.read(attr.ino, 0, 4 << 20).unwrap(),
            pattern(*size, i as u8),
            "{size}"
        );
    }
}

#[test]
fn what_was_synced_survives_a_crash() {
    let device = made(64 << 20);
    let volume = open(&device);
    for i in 0..500 {
        let ino = volume
            .create(ROOT_INO, format!("file{i}").as_bytes(), &NEW)
            .unwrap()
            .ino;
        volume.write(ino, 0, &pattern(700 + i * 50, 3)).unwrap();
    }
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device);
    for i in 0..500 {
        let attr = volume
            .lookup(ROOT_INO, format!("file{i}").as_bytes())
            .unwrap();
        assert_eq!(
            volume.read(attr.ino, 0, 1 << 20).unwrap(),
            pattern(700 + i * 50, 3)
        );
    }
}

#[test]
fn overwrites_go_through_the_log_and_settle() {
    let device = made(64 << 20);
    let volume = open(&device);
    let ino = volume.create(ROOT_INO, b"big", &NEW).unwrap().ino;
    let mut content = pattern(2 << 20, 1);
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    let before = volume.info().device;
    for at in [0usize, 8192, 1 << 20, (1 << 20) + 100] {
        let patch = pattern(4096, at as u8 ^ 77);
        volume.write(ino, at as u64, &patch).unwrap();
        content[at..at + 4096].copy_from_slice(&patch);
    }
    volume.fsync(ino, true).unwrap();
    let after = volume.info().device;
    assert_eq!(
        after.total().writes - before.total().writes,
        1,
        "one contiguous write"
    );
    assert!(volume.info().images > 0);
    assert_eq!(volume.read(ino, 0, 4 << 20).unwrap(), content);
    volume.upkeep().settle(1000).unwrap();
    assert_eq!(volume.info().images, 0);
    assert_eq!(volume.read(ino, 0, 4 << 20).unwrap(), content);
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.read(ino, 0, 4 << 20).unwrap(), content);
}

#[test]
fn deleting_everything_gives_all_space_back() {
    let device = made(64 << 20);
    let volume = open(&device);
    volume.sync().unwrap();
    let before = volume.statfs().free;
    for round in 0..3 {
        let dir = volume.mkdir(ROOT_INO, b"dir", &NEW).unwrap().ino;
        for i in 0..2000 {
            let ino = volume
                .create(dir, format!("file number {i}").as_bytes(), &NEW)
                .unwrap()
                .ino;
            volume
                .write(ino, 0, &pattern(i * 7 % 40_000, round))
                .unwrap();
        }
        volume.sync().unwrap();
        for i in 0..2000 {
            volume
                .unlink(dir, format!("file number {i}").as_bytes())
                .unwrap();
        }
        volume.rmdir(ROOT_INO, b"dir").unwrap();
    }
    // The summaries before a checkpoint go once both superblock copies name it or a later one.
    for _ in 0..3 {
        volume.upkeep().checkpoint().unwrap();
    }
    volume.sync().unwrap();
    let after = volume.statfs().free;
    assert!(before.abs_diff(after) < 300, "{before} {after}");
    volume.close().unwrap();
}

#[test]
fn names_attributes_and_truncates() {
    let device = made(64 << 20);
    let volume = open(&device);
    let a = volume.create(ROOT_INO, b"a", &NEW).unwrap().ino;
    volume.link(a, ROOT_INO, b"b").unwrap();
    volume.symlink(ROOT_INO, b"s", &[b'x'; 1000], &NEW).unwrap();
    volume
        .rename(ROOT_INO, b"a", ROOT_INO, b"c", RenameFlags::default())
        .unwrap();
    assert_eq!(volume.getattr(a).unwrap().nlink, 2);
    volume
        .xattrs(a)
        .set(b"user.small", b"value", XattrMode::Any)
        .unwrap();
    volume
        .xattrs(a)
        .set(b"user.large", &pattern(50_000, 9), XattrMode::Any)
        .unwrap();
    volume.write(a, 0, &pattern(100_000, 2)).unwrap();
    volume.sync().unwrap();
    volume
        .setattr(
            a,
            &SetAttr {
                size: Some(10),
                ..SetAttr::default()
            },
        )
        .unwrap();
    volume
        .setattr(
            a,
            &SetAttr {
                size: Some(50_000),
                ..SetAttr::default()
            },
        )
        .unwrap();
    let mut expected = pattern(100_000, 2)[..10].to_vec();
    expected.resize(50_000, 0);
    assert_eq!(volume.read(a, 0, 1 << 20).unwrap(), expected);
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.read(a, 0, 1 << 20).unwrap(), expected);
    assert_eq!(
        volume.xattrs(a).get(b"user.large").unwrap(),
        pattern(50_000, 9)
    );
    assert_eq!(volume.xattrs(a).list().unwrap().len(), 2);
    let s = volume.lookup(ROOT_INO, b"s").unwrap().ino;
    assert_eq!(volume.readlink(s).unwrap(), [b'x'; 1000]);
}

#[test]
fn a_time_that_is_none_is_refused_before_anything_changes() {
    let device = made(64 << 20);
    let volume = open(&device);
    let ino = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    volume.write(ino, 0, &pattern(100, 1)).unwrap();
    let before = volume.getattr(ino).unwrap();
    let time = Timestamp {
        seconds: 5,
        nanos: 1_000_000_000,
    };
    let size = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    let refused = [
        SetAttr {
            atime: Some(SetTime::At(time)),
            ..size
        },
        SetAttr {
            mtime: Some(SetTime::At(time)),
            ..size
        },
        SetAttr {
            ctime: Some(time),
            ..size
        },
    ];
    for set in refused {
        let set = volume.setattr(ino, &set);
        assert!(matches!(set, Err(Error::Invalid(_))), "{set:?}");
        assert_eq!(volume.getattr(ino).unwrap(), before);
    }
    let last = Timestamp {
        nanos: 999_999_999,
        ..time
    };
    let set = SetAttr {
        mtime: Some(SetTime::At(last)),
        ..SetAttr::default()
    };
    volume.setattr(ino, &set).unwrap();
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.getattr(ino).unwrap().mtime, last);
    assert_eq!(volume.read(ino, 0, 200).unwrap(), pattern(100, 1));
}

/// What is old is committed by age, and what is not is not, whatever somebody sets the clock to.
#[test]
fn a_clock_that_is_set_delays_no_commit() {
    for set_back in [0, 3_600, -3_600] {
        let device = made(64 << 20);
        let clock = Arc::new(ManualClock::new(1_500_000_000));
        let env = Env {
            clock: clock.clone(),
            ..Env::fixed(3)
        };
        let volume = Volume::open(device, &OpenOptions::default(), env).unwrap();
        volume.create(ROOT_INO, b"file", &NEW).unwrap();
        let before = volume.info().segment;
        clock.set_back(set_back);
        clock.advance(1_000_000_000);
        volume.upkeep().tick().unwrap();
        assert_eq!(
            volume.info().segment,
            before,
            "young, set back by {set_back}"
        );
        clock.advance(5_000_000_000);
        volume.upkeep().tick().unwrap();
        assert_eq!(
            volume.info().segment,
            before.next(),
            "old, set back by {set_back}"
        );
        assert_eq!(volume.info().durable, before.next());
    }
}

/// As many as listxattr(2) can give the names of, whatever was counted before and is known since.
#[test]
fn a_file_has_as_many_attributes_as_can_be_listed() {
    const BYTES: usize = 65_536;
    let name = |number: usize| format!("user.{number:04}").into_bytes();
    let most = BYTES / (name(0).len() + 1);
    let device = made(64 << 20);
    let volume = open(&device);
    let a = volume.create(ROOT_INO, b"a", &NEW).unwrap().ino;
    let set = |volume: &Volume, number| volume.xattrs(a).set(&name(number), b"v", XattrMode::Any);
    for number in 0..most {
        set(&volume, number).unwrap();
    }
    assert!(matches!(set(&volume, most), Err(Error::NoSpace)));
    // One that is there takes no more; one that goes makes room.
    set(&volume, 7).unwrap();
    volume.xattrs(a).remove(&name(8)).unwrap();
    set(&volume, most).unwrap();
    assert!(matches!(set(&volume, 8), Err(Error::NoSpace)));
    volume.close().unwrap();
    let volume = open(&device);
    assert!(matches!(set(&volume, 8), Err(Error::NoSpace)));
    assert_eq!(volume.xattrs(a).list().unwrap().len(), most);
    volume.xattrs(a).remove(&name(most)).unwrap();
    set(&volume, 8).unwrap();
    assert_eq!(volume.xattrs(a).get(&name(8)).unwrap(), b"v");
    volume.close().unwrap();
}

#[test]
fn a_label_that_could_not_be_written_is_not_shown() {
    let faulty = Arc::new(FaultyDevice::new(made(32 << 20)));
    let device: Arc<dyn Device> = faulty.clone();
    let volume = open(&device);
    volume.upkeep().set_label(b"old").unwrap();
    let rule = Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Superblock);
    faulty.set_rules(vec![rule.times(1)]);
    volume.upkeep().set_label(b"new").unwrap_err();
    assert_eq!(volume.info().label, b"old");
    drop(volume);
    assert_eq!(open(&device).info().label, b"old");
}

#[test]
fn pieces_of_a_file_are_what_is_read_of_it_and_no_copies() {
    let device = made(64 << 20);
    let volume = open(&device);
    let small = volume.create(ROOT_INO, b"small", &NEW).unwrap().ino;
    let large = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
    volume.write(small, 0, &pattern(3000, 1)).unwrap();
    volume.write(large, 0, &pattern(100_000, 2)).unwrap();
    volume.write(large, 300_000, &pattern(50_001, 3)).unwrap();
    volume.close().unwrap();
    let volume = open(&device);
    // Beside holes and what is on the device some of it waits.
    volume.write(large, 40_000, &pattern(9000, 4)).unwrap();
    for ino in [small, large] {
        for (offset, len) in [(0, 1 << 20), (1, 2998), (39_999, 1), (99_000, 5000)] {
            let pieces = volume.read_shared(ino, offset, len).unwrap();
            let joined: Vec<u8> = pieces.iter().flat_map(|it| it.as_ref().to_vec()).collect();
            assert_eq!(joined, volume.read(ino, offset, len).unwrap());
            let again = volume.read_shared(ino, offset, len).unwrap();
            assert_eq!(pieces.len(), again.len());
            let same = |(a, b): (&Shared, &Shared)| Arc::ptr_eq(a.holder(), b.holder());
            assert!(pieces.iter().zip(&again).all(same));
        }
    }
    let read = volume.read(large, 0, 1 << 20).unwrap();
    let mut expected = pattern(100_000, 2);
    expected[40_000..49_000].copy_from_slice(&pattern(9000, 4));
    expected.resize(300_000, 0);
    expected.extend(pattern(50_001, 3));
    assert!(read == expected);
}

/// The map of inodes loses a whole leaf, and a block that is in none: it came and went since the last checkpoint. Looking for that one where
/// the leaf had been took a neighbour that nobody had read, and the volume did not go on, nor after the next mount.
#[test]
fn a_leaf_of_the_inode_map_goes_with_a_block_that_came_and_went() {
    let filled = Arc::new(MemoryDevice::new(512 << 20));
    let plain: Arc<dyn Device> = filled.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&plain);
    let name = |number: usize| format!("file {number}").into_bytes();
    // Of blocks with 32 inodes each a leaf has 59.
    let files: Vec<Ino> = (0..32 * (2 * 59 + 24))
        .map(|number| volume.create(ROOT_INO, &name(number), &NEW).unwrap().ino)
        .collect();
    volume.close().unwrap();
    for first in 2 * 59 - 3..=2 * 59 + 3 {
        let device: Arc<dyn Device> = Arc::new(filled.fork());
        let volume = open(&device);
        volume.create(ROOT_INO, b"x", &NEW).unwrap();
        volume.unlink(ROOT_INO, b"x").unwrap();
        for (number, ino) in files.iter().enumerate() {
            if ino.0 / 32 >= first {
                volume.unlink(ROOT_INO, &name(number)).unwrap();
            }
        }
        volume.close().unwrap();
        open(&device).close().unwrap();
    }
}
