//! Full volumes: ENOSPC comes before anything changed, deletes always work, space comes back (rule 10).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{made, mounted, open_cached};
use loamfs_device::{Device, IoKind, Write, read_exact};
use loamfs_fs::{Durability, Env, Error, NewInode, OpenOptions, Place, ROOT_INO, Volume};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

fn logs() {
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
}

fn volume(bytes: u64) -> (Arc<dyn Device>, Volume) {
    logs();
    mounted(bytes)
}

fn name(i: usize) -> Vec<u8> {
    format!("file{i}").into_bytes()
}

/// Makes files until the volume is full; returns how many were made whole.
fn fill(volume: &Volume, from: usize, size: usize) -> usize {
    for i in from.. {
        let made = volume.create(ROOT_INO, &name(i), &NEW).and_then(|attr| {
            let done = volume.write(attr.ino, 0, &vec![i as u8; size])?;
            if done == size {
                Ok(())
            } else {
                Err(Error::NoSpace)
            }
        });
        match made {
            Ok(()) => {}
            Err(Error::NoSpace) => return i,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

/// What is in use; the reserve is not.
fn used(volume: &Volume) -> f64 {
    let s = volume.statfs();
    1.0 - s.free as f64 / s.total as f64
}

/// What could not be read could not be moved, and nobody got room any more, not even to delete.
#[test]
fn files_that_rot_keep_nobody_from_the_room_around_them() {
    let (device, volume) = volume(48 << 20);
    let count = fill(&volume, 0, 1000);
    volume.sync().unwrap();
    for i in (1..count).step_by(500) {
        let ino = volume.lookup(ROOT_INO, &name(i)).unwrap().ino;
        let (pieces, _) = volume.ranges(ino).map(0).unwrap();
        let Place::Log(at) = pieces[0].place else {
            panic!("{pieces:?}");
        };
        let sector = at / 4096 * 4096;
        let mut bytes = read_exact(device.as_ref(), sector, 4096, IoKind::Other).unwrap();
        bytes[(at - sector) as usize] ^= 1;
        let done = device.write(&[Write::new(sector, &bytes, IoKind::Other)]);
        done.into_iter().for_each(|done| done.unwrap());
    }
    volume.upkeep().drop_caches().unwrap();
    for i in (0..count).step_by(2) {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    let again = fill(&volume, 1_000_000, 1000) - 1_000_000;
    assert!(again * 10 > count * 3, "{again} files more of {count}");
    for i in (1..count).step_by(2) {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
}

#[test]
fn small_files_fill_the_volume_and_every_delete_works() {
    let (device, volume) = volume(48 << 20);
    let count = fill(&volume, 0, 1000);
    assert!(
        used(&volume) > 0.83,
        "full at {:.2} with {count} files",
        used(&volume)
    );
    for i in (0..count).step_by(2) {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    let again = fill(&volume, 1_000_000, 1000) - 1_000_000;
    assert!(
        again * 10 > count * 3,
        "{again} files more after {} were deleted",
        count / 2
    );
    for i in (1..count).step_by(2) {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    for i in 1_000_000..1_000_000 + again {
        let attr = volume.lookup(ROOT_INO, &name(i)).unwrap();
        assert_eq!(volume.read(attr.ino, 0, 5000).unwrap(), vec![i as u8; 1000]);
    }
    volume.close().unwrap();
    drop(volume);
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(3)).unwrap();
    for i in 1_000_000..1_000_000 + again {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    volume.close().unwrap();
    assert!(used(&volume) < 0.13, "{}", used(&volume));
}

#[test]
fn large_files_fill_the_volume_and_small_ones_follow() {
    let (_device, volume) = volume(48 << 20);
    let count = fill(&volume, 0, 300_000);
    volume.sync().unwrap();
    assert!(
        used(&volume) > 0.68,
        "full at {:.2} with {count} files",
        used(&volume)
    );
    for i in 0..count {
        let attr = volume.lookup(ROOT_INO, &name(i)).unwrap();
        assert_eq!(
            volume.read(attr.ino, 0, 300_000).unwrap(),
            vec![i as u8; 300_000]
        );
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    let _ = volume.unlink(ROOT_INO, &name(count));
    volume.sync().unwrap();
    let small = fill(&volume, 1_000_000, 1000) - 1_000_000;
    assert!(small > 10_000, "{small}");
    volume.close().unwrap();
}

#[test]
fn large_files_find_room_where_every_second_small_one_went() {
    let (_device, volume) = volume(128 << 20);
    let count = fill(&volume, 0, 6000);
    for i in (0..count).step_by(2) {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    volume.sync().unwrap();
    let before = used(&volume);
    assert!(before < 0.53, "{before}");
    let large = fill(&volume, 1_000_000, 1 << 20) - 1_000_000;
    assert!(large >= 28, "{large} MiB of large files at {before:.2}");
    for i in (1..count).step_by(2) {
        let attr = volume.lookup(ROOT_INO, &name(i)).unwrap();
        assert_eq!(volume.read(attr.ino, 0, 6001).unwrap(), vec![i as u8; 6000]);
    }
    volume.close().unwrap();
}

#[test]
fn what_was_removed_makes_room_before_it_is_committed() {
    let (_device, volume) = volume(48 << 20);
    let count = fill(&volume, 0, 300_000);
    let _ = volume.unlink(ROOT_INO, &name(count));
    for i in 0..6 {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    let again = fill(&volume, 1_000_000, 300_000) - 1_000_000;
    assert!(again >= 3, "{again} files after 6 were removed");
    volume.close().unwrap();
}

/// Numbers below `count` in an order of chance.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = seed;
    for i in (1..count).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (random >> 33) as usize % (i + 1));
    }
    order
}

/// Removals ate the reserve that their own checkpoints needed: after 692 of 35,165 they were ENOSPC, unmounting failed,
/// and removals that had returned were lost.
#[test]
fn every_tiny_file_can_be_deleted_in_any_order() {
    for (bytes, size) in [(16 << 20, 1000), (64 << 20, 1000), (16 << 20, 0)] {
        let (device, volume) = volume(bytes);
        let count = fill(&volume, 0, size);
        volume.sync().unwrap();
        for (done, i) in shuffled(count, bytes).into_iter().enumerate() {
            if let Err(error) = volume.unlink(ROOT_INO, &name(i)) {
                panic!("{done} of {count} files of {size} bytes went: {error}");
            }
        }
        // The one that was made and not written.
        let _ = volume.unlink(ROOT_INO, &name(count));
        volume.close().unwrap();
        drop(volume);
        let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(3)).unwrap();
        assert_eq!(volume.statfs().inodes, 1);
        assert!(used(&volume) < 0.13, "{}", used(&volume));
        volume.close().unwrap();
    }
}

/// The last fights for space moved the whole volume again and again for room that a few files took: filling wrote 24
/// times as much as the volume holds.
#[test]
fn filling_to_the_brim_writes_a_few_times_what_fits() {
    // Of a small volume the two checkpoints that removals need take more: they may be cut into many pieces.
    for (bytes, size, least) in [(16 << 20, 1000, 0.73), (64 << 20, 1000, 0.83)] {
        let (device, volume) = volume(bytes);
        fill(&volume, 0, size);
        assert!(used(&volume) > least, "full at {:.2}", used(&volume));
        let written = device.counters().total().write_bytes;
        assert!(written < 8 * bytes, "{written} bytes");
        // Nor is there another fight for each who asks in vain.
        let refused = volume.create(ROOT_INO, b"one more", &NEW);
        let refused = refused.and_then(|attr| volume.write(attr.ino, 0, &[1; 16 << 10]));
        assert!(
            !matches!(refused, Ok(done) if done == 16 << 10),
            "{refused:?}"
        );
        let before = device.counters().total().write_bytes;
        for i in 0..100 {
            let name = format!("in vain {i}");
            let made = volume.create(ROOT_INO, name.as_bytes(), &NEW);
            let made = made.and_then(|attr| volume.write(attr.ino, 0, &[1; 16 << 10]));
            assert!(!matches!(made, Ok(done) if done == 16 << 10), "{made:?}");
        }
        let written = device.counters().total().write_bytes - before;
        assert!(written < bytes / 4, "{written} bytes for nothing");
    }
}

/// Crash after crash took room for recovery's segments until there was none, and neither a mount nor growing worked.
#[test]
fn a_full_volume_mounts_after_any_number_of_crashes() {
    let (device, volume) = volume(16 << 20);
    let count = fill(&volume, 0, 1000);
    volume.sync().unwrap();
    drop(volume);
    let mut order = shuffled(count, 7).into_iter();
    for round in 0..250u64 {
        let options = OpenOptions::default();
        let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(round))
            .unwrap_or_else(|error| panic!("mount {round}: {error}"));
        // Some of what is removed is committed when the crash comes, some is not.
        for i in order.by_ref().take(10) {
            volume.unlink(ROOT_INO, &name(i)).unwrap();
        }
        if round % 3 == 0 {
            volume.upkeep().commit(Durability::Written).unwrap();
        }
    }
    let volume = Volume::open(Arc::clone(&device), &OpenOptions::default(), Env::fixed(9)).unwrap();
    for i in 0..=count {
        match volume.unlink(ROOT_INO, &name(i)) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(error) => panic!("{error}"),
        }
    }
    volume.close().unwrap();
    assert_eq!(volume.statfs().inodes, 1);
}

/// Making the reserve whole was tried again by every tick, in vain and by writing.
#[test]
fn a_full_volume_that_nobody_uses_is_left_alone() {
    for size in [1_000, 6_000, 300_000] {
        let (device, volume) = volume(48 << 20);
        let count = fill(&volume, 0, size);
        for i in (0..count.min(12)).step_by(3) {
            volume.unlink(ROOT_INO, &name(i)).unwrap();
        }
        volume.sync().unwrap();
        // What removals and the fill have left to do is done by then.
        for _ in 0..8 {
            volume.upkeep().tick().unwrap();
        }
        let before = device.counters();
        for _ in 0..50 {
            volume.upkeep().tick().unwrap();
        }
        let after = device.counters();
        assert_eq!(after.total(), before.total(), "files of {size} bytes");
    }
}

#[test]
fn a_small_file_becomes_zeros_whole_or_not_at_all() {
    let (_device, volume) = volume(16 << 20);
    let file = volume.create(ROOT_INO, b"empty", &NEW).unwrap().ino;
    fill(&volume, 0, 1000);
    let before = volume.getattr(file).unwrap();
    let zeroed = volume.ranges(file).zero(0, 12_000, true);
    let after = volume.getattr(file).unwrap();
    match zeroed {
        Ok(()) => assert_eq!(after.size, 12_000),
        Err(Error::NoSpace) => assert_eq!(after, before),
        Err(error) => panic!("{error}"),
    }
    volume.unlink(ROOT_INO, &name(0)).unwrap();
    volume.close().unwrap();
}

/// A fight for space emptied groups into room that had been given to data which waited, and left its own data waiting
/// where there was none: sync and unmounting were ENOSPC.
#[test]
fn what_was_accepted_is_placed() {
    for seed in 1..=6u64 {
        let (_device, volume) = volume(64 << 20);
        let mut random = seed;
        let mut below = move |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let mut files: Vec<usize> = Vec::new();
        for round in 0..4 {
            for i in round * 1_000_000.. {
                let size = match below(4) {
                    0 => below(1 << 20),
                    1 => below(100_000),
                    _ => below(10_000),
                };
                let attr = volume.create(ROOT_INO, &name(i), &NEW);
                let done = attr.and_then(|attr| volume.write(attr.ino, 0, &vec![1; size as usize]));
                match done {
                    Ok(_) => files.push(i),
                    Err(Error::NoSpace) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            if round == 3 {
                break;
            }
            volume
                .sync()
                .unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            files.retain(|i| below(10) > 2 || volume.unlink(ROOT_INO, &name(*i)).is_err());
        }
        volume
            .close()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Room for data that waited was counted as if the log took none for what was dirty just then: with much waiting, sync
/// and unmounting were ENOSPC.
#[test]
fn what_was_accepted_is_written_however_much_waits() {
    logs();
    let volume = open_cached(&made(256 << 20), 1 << 30);
    let sizes = [
        2_000,
        9_000,
        17_000,
        12_000,
        30_000,
        5_000,
        150_000,
        18_000usize,
    ];
    let mut accepted = Vec::new();
    for (i, size) in sizes.iter().cycle().enumerate() {
        let made = volume.create(ROOT_INO, &name(i), &NEW).and_then(|attr| {
            let done = volume.write(attr.ino, 0, &vec![i as u8; *size])?;
            accepted.push((attr.ino, i, done));
            Ok(done)
        });
        match made {
            Ok(done) if done == *size => {}
            Ok(_) | Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(used(&volume) > 0.83, "full at {:.2}", used(&volume));
    volume.sync().unwrap();
    volume.upkeep().drop_caches().unwrap();
    for (ino, i, len) in accepted {
        let read = volume.read(ino, 0, 1 << 20).unwrap();
        assert!(read == vec![i as u8; len], "{ino:?}");
    }
    volume.close().unwrap();
}

#[test]
fn several_at_once_empty_a_full_volume() {
    // Whoever waits for checkpoints finds that somebody else has used what they gave back.
    for (size, at_once) in [(4 << 20, 2), (8 << 20, 2), (16 << 20, 8)] {
        let (_device, volume) = volume(size);
        let mut count = fill(&volume, 0, 1000);
        // What is cleaned by the clock makes room for more.
        for _ in 0..20 {
            let _ = volume.unlink(ROOT_INO, &name(count));
            volume.sync().unwrap();
            volume.upkeep().tick().unwrap();
            count = fill(&volume, count, 1000);
        }
        let _ = volume.unlink(ROOT_INO, &name(count));
        volume.sync().unwrap();
        std::thread::scope(|scope| {
            let remover = |share: usize| {
                let volume = &volume;
                // Far from each other, so that each removal changes another inode block.
                let mut mine: Vec<usize> = (share..count).step_by(at_once).collect();
                mine.sort_by_key(|i| (i * 7919) % count);
                scope.spawn(move || {
                    for i in mine {
                        volume.unlink(ROOT_INO, &name(i)).unwrap();
                    }
                })
            };
            let removers: Vec<_> = (0..at_once).map(remover).collect();
            while removers.iter().any(|remover| !remover.is_finished()) {
                volume.upkeep().tick().unwrap();
                std::thread::yield_now();
            }
        });
        volume.sync().unwrap();
        assert!(used(&volume) < 0.3, "{} are in use", used(&volume));
        volume.close().unwrap();
    }
}

/// Groups change from large files to the log and back between two segments.
#[test]
fn groups_that_change_their_roles_are_recovered() {
    large_and_small_files_by_chance(64 << 20, 0..24);
}

/// The log leaves data that were admitted the groups that they were admitted for.
#[test]
fn data_that_were_admitted_find_a_home_beside_a_log_that_needs_groups() {
    large_and_small_files_by_chance(24 << 20, 12..16);
}

/// Makes and removes files on volumes of groups of 1 MiB, one for each seed, with commits and mounts between.
fn large_and_small_files_by_chance(bytes: u64, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let device: Arc<dyn Device> = Arc::new(loamfs_device::MemoryDevice::new(bytes));
        let options = loamfs_fs::MkfsOptions {
            group_size: Some(1 << 20),
            ..loamfs_fs::MkfsOptions::default()
        };
        loamfs_fs::mkfs(&device, &options, &Env::fixed(seed)).unwrap();
        let open = || Volume::open(Arc::clone(&device), &OpenOptions::default(), Env::fixed(2));
        let mut volume = open().unwrap();
        let mut random = seed;
        let mut below = |most: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % most
        };
        for i in 0..120 {
            let size = match below(3) {
                0 => 1 << (20 + below(3)),
                _ => 9000,
            };
            // A name that is taken loses its file first.
            let name = name(below(12) as usize + if size > 9000 { 100 } else { 0 });
            let _ = volume.unlink(ROOT_INO, &name);
            let count = if size > 9000 { 1 } else { 60 };
            for part in 0..count {
                let name = [&name[..], format!(".{part}").as_bytes()].concat();
                let name = if count == 1 {
                    &name[..name.len() - 2]
                } else {
                    &name[..]
                };
                let _ = volume.unlink(ROOT_INO, name);
                let made = volume.create(ROOT_INO, name, &NEW);
                match made.and_then(|attr| volume.write(attr.ino, 0, &vec![i as u8; size])) {
                    Ok(_) | Err(Error::NoSpace) => {}
                    Err(error) => panic!("seed {seed}, step {i}: {error}"),
                }
            }
            match below(4) {
                0 => volume.sync().unwrap(),
                1 => volume.upkeep().tick().unwrap(),
                _ => {}
            }
            if below(12) == 0 {
                drop(volume);
                volume = open().unwrap_or_else(|error| panic!("seed {seed}, step {i}: {error}"));
            }
        }
    }
}
