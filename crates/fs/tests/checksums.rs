//! Checksums of short large files stand in their inodes, and move to a tree when they find no room there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, open};
use loamfs_check::{Options, Volume as Reader, check};
use loamfs_device::{Device, IoKind, Write};
use loamfs_fs::{Ino, NewInode, ROOT_INO, SetAttr, Volume, XattrMode};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
/// Bytes of a unit, and of a block.
const UNIT: usize = 4096;
/// Most checksums in an inode.
const MOST: usize = 48;

/// Where a file's checksums are: how many in its inode, and whether it has a tree of them.
fn kept(device: &Arc<dyn Device>, ino: Ino) -> (usize, bool) {
    let reader = Reader::open(device.as_ref()).unwrap();
    let inode = reader.inode(ino).unwrap();
    (inode.crcs.len(), !inode.checksums.is_empty())
}

/// Bytes of which no two units are alike.
fn content(seed: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| ((at / UNIT + seed) * 31 + at % 251) as u8;
    (0..len).map(byte).collect()
}

/// A volume with a file.
fn with_file(bytes: &[u8]) -> (Arc<dyn Device>, Volume, Ino) {
    let device = made(64 << 20);
    let volume = open(&device);
    let ino = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(ino, 0, bytes).unwrap();
    (device, volume, ino)
}

/// Closes the volume, and expects a sound one on which the file has this content; answers where its checksums are.
fn settled(device: &Arc<dyn Device>, volume: Volume, ino: Ino, wanted: &[u8]) -> (usize, bool) {
    volume.close().unwrap();
    let report = check(device.as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let again = open(device);
    let found = again.read(ino, 0, wanted.len() + 1).unwrap();
    assert!(found == wanted, "the content differs");
    again.close().unwrap();
    kept(device, ino)
}

fn resize(volume: &Volume, ino: Ino, size: usize) {
    let set = SetAttr {
        size: Some(size as u64),
        ..SetAttr::default()
    };
    volume.setattr(ino, &set).unwrap();
}

#[test]
fn files_of_up_to_48_units_have_their_checksums_in_their_inodes() {
    for (units, wanted) in [
        (5, (5, false)),
        (MOST, (MOST, false)),
        (MOST + 1, (0, true)),
    ] {
        let bytes = content(1, units * UNIT - 100);
        let (device, volume, ino) = with_file(&bytes);
        assert_eq!(
            settled(&device, volume, ino, &bytes),
            wanted,
            "{units} units"
        );
    }
}

#[test]
fn a_file_that_grows_takes_its_checksums_along() {
    let mut bytes = content(1, 20 * UNIT);
    let (device, volume, ino) = with_file(&bytes);
    for (units, wanted) in [(30, (30, false)), (60, (0, true)), (200, (0, true))] {
        volume.sync().unwrap();
        let more = content(units, units * UNIT - bytes.len());
        volume.write(ino, bytes.len() as u64, &more).unwrap();
        bytes.extend(more);
        volume.sync().unwrap();
        volume.upkeep().checkpoint().unwrap();
        assert_eq!(kept(&device, ino), wanted, "{units} units");
    }
    assert_eq!(settled(&device, volume, ino, &bytes), (0, true));
}

/// What settles gets its checksum in the inode too; a file that is cut loses those of what is gone.
#[test]
fn checksums_follow_what_is_written_over_cut_and_punched() {
    let mut bytes = content(1, 34 * UNIT);
    let (device, volume, ino) = with_file(&bytes);
    volume.sync().unwrap();
    let over = content(7, 3 * UNIT);
    volume.write(ino, 10 * UNIT as u64, &over).unwrap();
    bytes[10 * UNIT..13 * UNIT].copy_from_slice(&over);
    volume.sync().unwrap();
    volume.upkeep().settle(1 << 20).unwrap();
    volume
        .ranges(ino)
        .punch(20 * UNIT as u64, 4 * UNIT as u64)
        .unwrap();
    bytes[20 * UNIT..24 * UNIT].fill(0);
    resize(&volume, ino, 29 * UNIT + 50);
    bytes.truncate(29 * UNIT + 50);
    assert_eq!(settled(&device, volume, ino, &bytes), (30, false));
    let volume = open(&device);
    resize(&volume, ino, 22 * UNIT);
    bytes.truncate(22 * UNIT);
    volume.upkeep().tick().unwrap();
    // Those of the hole at the end are left out.
    assert_eq!(settled(&device, volume, ino, &bytes), (20, false));
    let volume = open(&device);
    resize(&volume, ino, 0);
    volume.write(ino, 0, b"small").unwrap();
    assert_eq!(settled(&device, volume, ino, b"small"), (0, false));
}

#[test]
fn extents_and_attributes_come_first() {
    let bytes = content(1, MOST * UNIT);
    let (device, volume, ino) = with_file(&bytes);
    volume.sync().unwrap();
    volume
        .xattrs(ino)
        .set(b"user.a", &[7; 30], XattrMode::Any)
        .unwrap();
    assert_eq!(settled(&device, volume, ino, &bytes), (0, true));
    // Half of it is a hole: two extents, and room for 36 checksums.
    let device = made(64 << 20);
    let volume = open(&device);
    let ino = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    let mut bytes = vec![0; 36 * UNIT];
    for at in [0, 26 * UNIT] {
        let part = content(at, 10 * UNIT);
        volume.write(ino, at as u64, &part).unwrap();
        bytes[at..at + part.len()].copy_from_slice(&part);
    }
    volume.sync().unwrap();
    volume.upkeep().checkpoint().unwrap();
    assert_eq!(kept(&device, ino), (36, false));
    let third = content(3, UNIT);
    volume.write(ino, 15 * UNIT as u64, &third).unwrap();
    bytes[15 * UNIT..16 * UNIT].copy_from_slice(&third);
    assert_eq!(settled(&device, volume, ino, &bytes), (0, true));
}

/// Who starts a file anew has them in the inode again.
#[test]
fn a_file_that_begins_anew_has_no_tree() {
    let (device, volume, ino) = with_file(&content(1, 100 * UNIT));
    volume.sync().unwrap();
    resize(&volume, ino, 0);
    volume.sync().unwrap();
    let bytes = content(2, 20 * UNIT);
    volume.write(ino, 0, &bytes).unwrap();
    assert_eq!(settled(&device, volume, ino, &bytes), (20, false));
}

/// A unit that changed on the device is told, whose checksum is in the inode.
#[test]
fn rot_is_found() {
    let bytes = content(1, 20 * UNIT);
    let (device, volume, ino) = with_file(&bytes);
    assert_eq!(settled(&device, volume, ino, &bytes), (20, false));
    let reader = Reader::open(device.as_ref()).unwrap();
    let inode = reader.inode(ino).unwrap();
    let first = reader.extents(&inode).next().unwrap().unwrap();
    let at = reader.geometry().byte_offset(first.pointer.addr) + 5 * UNIT as u64;
    drop(reader);
    let rotten = content(3, UNIT);
    for result in device.write(&[Write::new(at, &rotten, IoKind::Homed)]) {
        result.unwrap();
    }
    let volume = open(&device);
    assert!(volume.read(ino, 5 * UNIT as u64, 10).is_err());
    assert_eq!(
        volume.read(ino, 6 * UNIT as u64, 10).unwrap(),
        bytes[6 * UNIT..][..10]
    );
}
