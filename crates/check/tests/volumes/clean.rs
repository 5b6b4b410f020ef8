//! Sound volumes: nothing is found, everything can be read.

use crate::builder::*;
use crate::report;
use loamfs_check::{CheckError, Salvage, Volume, salvage};
use loamfs_device::MemoryDevice;
use loamfs_format::inode::ROOT_INO;
use loamfs_format::{Ino, Ssn};

#[test]
fn a_sound_volume_has_no_problems() {
    let report = report(&Builder::sample().finish());
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.problems, []);
    assert!(report.plan.is_empty());
    let stats = &report.stats;
    assert_eq!((stats.inodes, stats.directories, stats.orphans), (11, 3, 1));
    assert_eq!((stats.names, stats.images, stats.segments), (208, 1, 2));
    assert_eq!(stats.last, Ssn(3));
    assert_eq!(stats.passes, 1, "a sound volume is walked once");
    assert_eq!(stats.frags["Homed"], 9 * BLOCK_FRAGS);
    let data = 5000 + 3000 + 9 * BLOCK;
    assert_eq!(
        stats.data_bytes, data,
        "every byte of data is verified once"
    );
}

#[test]
fn directories_and_files_are_read() {
    let device = Builder::sample().finish();
    let volume = Volume::open(&device).unwrap();
    let root = volume.inode(ROOT_INO).unwrap();
    let entries: Vec<_> = volume
        .directory(&root)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(entries.len(), 205);
    let sub = entries.iter().find(|entry| entry.name == b"sub").unwrap();
    assert_eq!(sub.ino, SUB);
    assert_eq!(
        volume
            .directory(&volume.inode(SUB).unwrap())
            .unwrap()
            .count(),
        3
    );

    let read = |ino: Ino, offset: u64, len: usize| {
        let inode = volume.inode(ino).unwrap();
        let mut buffer = vec![0xff; len];
        let count = volume.read(&inode, offset, &mut buffer).unwrap();
        buffer.truncate(count);
        buffer
    };
    assert_eq!(read(SMALL, 0, 10_000), content(1, 5000));
    assert_eq!(read(SMALL, 4990, 100), content(1, 5000)[4990..]);
    assert_eq!(read(TINY, 1, 3), b"ell");
    assert_eq!(read(LINK, 0, 100), b"../small");
    let mut large = content(11, 2 * BLOCK as usize);
    large[3 * UNIT as usize..4 * UNIT as usize].copy_from_slice(&content(13, UNIT as usize));
    large.resize(5 * BLOCK as usize, 0);
    large.extend(content(12, BLOCK as usize));
    large.truncate(6 * BLOCK as usize - 100);
    assert_eq!(read(LARGE, 0, 1 << 20), large);
    assert_eq!(read(LARGE, 12_000, 6000), large[12_000..18_000]);
    assert_eq!(
        read(TREE, 4 * BLOCK + 10, 20),
        content(22, BLOCK as usize)[10..30]
    );
    assert_eq!(read(TREE, 3 * BLOCK, 20), [0; 20]);
    assert_eq!(
        volume.inode(Ino(50)),
        Err(CheckError::NoInode { ino: Ino(50) })
    );
}

#[test]
fn a_segment_whose_body_is_missing_ends_the_log() {
    let device = Builder::sample().finish();
    // The inode block in the body of segment 3, which nobody has called durable.
    device.poke((AFTER + 16) * FRAG, &[0; 512]).unwrap();
    let volume = Volume::open(&device).unwrap();
    assert_eq!((volume.last(), volume.dropped_segments()), (Ssn(2), 1));
    let report = report(&device);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.stats.last, Ssn(2));
}

#[test]
fn one_superblock_copy_is_enough_and_none_is_said() {
    let device = Builder::sample().finish();
    device.poke(64 << 10, &[0; 4096]).unwrap();
    let found = report(&device);
    assert!(found.is_clean(), "{found}");
    assert_eq!(found.counts.keys().collect::<Vec<_>>(), [&102]);
    device.poke(128 << 10, &[0; 4096]).unwrap();
    assert_eq!(report(&device).counts.keys().collect::<Vec<_>>(), [&101]);
    assert!(!report(&MemoryDevice::new(0)).is_clean());
}

#[test]
fn salvage_lacks_no_superblock_copy_where_both_say_the_same() {
    let device = Builder::sample().finish();
    let lacks_one = || {
        let options = &mut salvage::Options {
            uuid: None,
            block_size: None,
            progress: &mut |_, _| {},
        };
        let salvage = Salvage::open(&device, options).unwrap();
        salvage.findings().one_superblock
    };
    assert!(!lacks_one());
    device.poke(64 << 10, &[0; 4096]).unwrap();
    assert!(lacks_one());
}
