//! What is shown as available is there: as many bytes can be written, or allocated, and not many more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::open;
use loamfs_device::{Counters, Device, DeviceError, IoKind, Member, MemoryDevice, Read, Write};
use loamfs_fs::{Env, Error, MkfsOptions, NewInode, ROOT_INO, Volume, mkfs};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

/// A device that keeps no data of large files: they are zeros.
struct Hollow(MemoryDevice);

impl Device for Hollow {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.0.write_align()
    }

    fn rotational(&self) -> bool {
        self.0.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        self.0.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let mut results = Vec::new();
        for write in batch {
            results.extend(match write.kind {
                IoKind::Homed => vec![self.0.discard(&[(write.offset, write.data.len() as u64)])],
                kind => self.0.write(&[Write::new(write.offset, write.data, kind)]),
            });
        }
        results
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        self.0.discard(ranges)
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }

    fn members(&self) -> &[Member] {
        self.0.members()
    }
}

fn volume(bytes: u64) -> Volume {
    let _ = tracing_subscriber::fmt()
        .with_max_level(if std::env::var("DBG").is_ok() {
            tracing::Level::DEBUG
        } else {
            tracing::Level::INFO
        })
        .with_test_writer()
        .try_init();
    let device: Arc<dyn Device> = Arc::new(Hollow(MemoryDevice::new(bytes)));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    open(&device)
}

fn shown(volume: &Volume) -> u64 {
    let s = volume.statfs();
    s.available * u64::from(s.fragment_size)
}

fn name(i: usize) -> Vec<u8> {
    format!("file{i}").into_bytes()
}

/// Writes zeros until not even a block fits; returns how many. What is shown must not grow meanwhile.
fn fill_one(volume: &Volume) -> u64 {
    let ino = volume.create(ROOT_INO, b"one", &NEW).unwrap().ino;
    let zeros = vec![0; 1 << 20];
    let (mut done, mut least) = (0, u64::MAX);
    for size in [1 << 20, 64 << 10, 16 << 10] {
        loop {
            match volume.write(ino, done, &zeros[..size]) {
                Ok(written) => done += written as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
            let now = shown(volume);
            assert!(now <= least || has_cleaned(volume), "{now} after {least}");
            least = least.min(now);
        }
    }
    done
}

/// Whether something was moved: that may win more than was counted on.
fn has_cleaned(volume: &Volume) -> bool {
    volume.info().cleaned_frags > 0
}

/// Makes files of `size` bytes until the volume is full; returns how many.
fn fill(volume: &Volume, size: usize) -> usize {
    let content = vec![0; size];
    for i in 0.. {
        let made = volume.create(ROOT_INO, &name(i), &NEW);
        match made.and_then(|attr| volume.write(attr.ino, 0, &content)) {
            Ok(done) if done == size => {}
            Ok(_) | Err(Error::NoSpace) => return i,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

/// What may be there beyond what is shown: a hundredth of the volume, groups that the log may need or not, and the room
/// that is kept for removals on the smallest volumes.
fn slack(volume: &Volume, groups: u64) -> u64 {
    let info = volume.info();
    let bytes = info.total_frags * u64::from(info.fragment_size);
    bytes / 100 + groups * info.group_size + (512 << 10)
}

fn check(volume: &Volume, what: &str, groups: u64, shown: u64, done: u64) {
    let slack = slack(volume, groups);
    println!("{what}: {shown} shown, {done} written");
    assert!(done >= shown, "{what}: {done} of {shown}");
    assert!(done <= shown + slack, "{what}: {done}, not {shown}");
}

/// 1 GiB full of one file showed 23 MB that nothing could use.
#[test]
fn one_file_takes_what_is_shown() {
    for mib in [2, 3, 4, 8, 16, 48, 64, 256, 1024] {
        let volume = volume(mib << 20);
        let before = shown(&volume);
        let done = fill_one(&volume);
        check(&volume, &format!("{mib} MiB"), 1, before, done);
        assert!(shown(&volume) < 64 << 10, "{} are left", shown(&volume));
        volume.sync().unwrap();
        assert!(shown(&volume) < 64 << 10, "{} are left", shown(&volume));
        volume.close().unwrap();
    }
}

/// Of a fresh volume of 2 GiB what was shown, less 16 MiB, could not be allocated.
#[test]
fn what_is_shown_can_be_allocated() {
    for mib in [2, 8, 48, 256, 2048] {
        let volume = volume(mib << 20);
        let before = shown(&volume);
        let allocate = |name: &[u8], bytes| {
            let ino = volume.create(ROOT_INO, name, &NEW).unwrap().ino;
            volume.ranges(ino).allocate(0, bytes, true)
        };
        let part = before / 10 * 7;
        allocate(b"part", part).unwrap_or_else(|error| panic!("{mib} MiB, {part}: {error}"));
        let rest = shown(&volume);
        let most = (before - part + slack(&volume, 1)).min(before);
        assert!(rest <= most, "{mib} MiB: {rest} of {before}");
        assert!(
            rest + slack(&volume, 1) >= before - part,
            "{mib} MiB: {rest}"
        );
        allocate(b"rest", rest).unwrap_or_else(|error| panic!("{mib} MiB, {rest}: {error}"));
        let left = shown(&volume);
        assert!(left < 64 << 10, "{mib} MiB: {left} are left");
        volume.close().unwrap();
    }
}

/// Every second file is gone: what is free lies in pieces, in groups of both roles.
#[test]
fn what_is_shown_of_a_thinned_volume_is_there() {
    for (mib, size) in [16, 64]
        .into_iter()
        .flat_map(|mib| [1000, 6000, 30_000, 300_000].map(|size| (mib, size)))
    {
        let volume = volume(mib << 20);
        let count = fill(&volume, size);
        for i in (0..count).step_by(2) {
            volume.unlink(ROOT_INO, &name(i)).unwrap();
        }
        volume.sync().unwrap();
        let before = shown(&volume);
        let done = fill_one(&volume);
        let what = format!("{mib} MiB, files of {size}");
        assert!(done >= before, "{what}: {done} of {before}");
        // How well small files are packed is not known before; of what large ones left, only whether groups that are kept
        // are won back from data.
        if size > 16 << 10 {
            check(&volume, &what, 2, before, done);
        }
        volume.close().unwrap();
    }
}

/// Half of what removed files had came back by and by.
#[test]
fn what_removed_files_had_is_shown_at_once() {
    let volume = volume(64 << 20);
    let before = shown(&volume);
    for i in 0..400 {
        let ino = volume.create(ROOT_INO, &name(i), &NEW).unwrap().ino;
        volume.write(ino, 0, &[0; 100_000]).unwrap();
    }
    volume.sync().unwrap();
    for i in 0..400 {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    let group = volume.info().group_size;
    assert!(
        shown(&volume) + group >= before,
        "{} of {before}",
        shown(&volume)
    );
    volume.sync().unwrap();
    assert!(
        shown(&volume) + group >= before,
        "{} of {before}",
        shown(&volume)
    );
    volume.close().unwrap();
}

/// After files are removed their space comes back by the clock alone, and with it that of the maps which held them.
#[test]
fn space_of_removed_files_comes_back_in_idle_time() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&device);
    let fresh = volume.statfs().free;
    let mut made = 0;
    loop {
        let file = match volume.create(ROOT_INO, &name(made), &NEW) {
            Ok(file) => file.ino,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        };
        made += 1;
        match volume.write(file, 0, &[7; 1000]) {
            Ok(_) => {}
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    for i in 0..made {
        volume.unlink(ROOT_INO, &name(i)).unwrap();
    }
    volume.sync().unwrap();
    for _ in 0..5 {
        volume.upkeep().tick().unwrap();
    }
    let (free, segment) = (volume.statfs().free, volume.info().segment);
    assert!(free >= fresh - fresh / 64, "{free} of {fresh} are free");
    for _ in 0..5 {
        volume.upkeep().tick().unwrap();
    }
    assert_eq!(
        volume.info().segment,
        segment,
        "an idle volume goes on writing"
    );
}
