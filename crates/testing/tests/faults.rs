//! What users see of a device that fails (rule 12), and what is there after they have opened the volume again.
//!
//! A crash is tried in two forms: everything that reached the device is kept, or everything since the last flush that
//! succeeded is lost.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{
    Device, Effect, Event, FaultyDevice, Image, IoKind, MemoryDevice, Op, RecordingDevice, Rule,
};
use loamfs_format::Ino;
use loamfs_format::ifile::block_of;
use loamfs_format::inode::Body;
use loamfs_fs::{
    Durability, Env, Error, MkfsOptions, NewInode, OpenOptions, PROFILES, ROOT_INO, Volume, mkfs,
};
use loamfs_testing::left_out;
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const EIO: i32 = 5;
const EROFS: i32 = 30;
/// A file that is kept at home, and rewritten there rather than through the log.
const LARGE: usize = 3 << 20;
/// A file in the log, and one that is overwritten through it.
const SMALL: usize = 5_000;

fn content(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i * 31) >> 3) as u8 ^ (i >> 12) as u8 ^ seed as u8)
        .collect()
}

fn errno<T>(result: Result<T, Error>) -> i32 {
    result.map_or_else(|error| error.errno(), |_| 0)
}

/// A volume on a device that can be told to fail.
struct Rig {
    recorder: Arc<RecordingDevice>,
    faulty: Arc<FaultyDevice>,
    volume: Volume,
}

impl Rig {
    fn new(profile: &str) -> Rig {
        let memory = Arc::new(MemoryDevice::new(64 << 20));
        let plain: Arc<dyn Device> = memory.clone();
        let options = MkfsOptions {
            profile: profile.to_owned(),
            ..MkfsOptions::default()
        };
        mkfs(&plain, &options, &Env::fixed(1)).unwrap();
        Rig::on(memory.fork())
    }

    fn on(memory: MemoryDevice) -> Rig {
        let recorder = Arc::new(RecordingDevice::new(memory));
        let faulty = Arc::new(FaultyDevice::new(recorder.clone()));
        let volume =
            left_out::open(faulty.clone(), &OpenOptions::default(), Env::fixed(2)).unwrap();
        Rig {
            recorder,
            faulty,
            volume,
        }
    }

    /// The same volume without anything in memory, after a clean end.
    fn again(self) -> Rig {
        self.volume.close().unwrap();
        Rig::on(MemoryDevice::from_image(self.recorder.image()))
    }

    fn fail(&self, rule: Rule) {
        self.faulty.set_rules(vec![rule]);
    }

    fn heal(&self) {
        self.faulty.set_rules(Vec::new());
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Ino {
        let ino = match self.volume.lookup(ROOT_INO, name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(_) => {
                self.volume
                    .create(ROOT_INO, name.as_bytes(), &NEW)
                    .unwrap()
                    .ino
            }
        };
        assert_eq!(self.volume.write(ino, 0, bytes).unwrap(), bytes.len());
        ino
    }

    /// Makes so many files that the blocks of their inodes stand between the trees and the inode of the next file: who
    /// reads one has not read the others.
    fn make_many(&self) {
        let new = NewInode::of_mode(0o755);
        let dir = self.volume.mkdir(ROOT_INO, b"names", &new).unwrap().ino;
        for number in 0..2500 {
            let name = format!("{number}");
            self.volume.create(dir, name.as_bytes(), &NEW).unwrap();
        }
    }

    /// What a crash may leave now: with all that was written, and without what was not flushed.
    fn crashes(&self) -> [Image; 2] {
        let events = self.recorder.events();
        let flushed = events.iter().rposition(|event| *event == Event::Flush);
        let durable = self.recorder.image_after(flushed.map_or(0, |at| at + 1));
        [self.recorder.image(), durable.unwrap()]
    }

    /// That every crash leaves a sound volume, on which these files have these bytes.
    fn survives(&self, files: &[(&str, &[u8])]) {
        for image in self.crashes() {
            let device = Arc::new(MemoryDevice::from_image(image));
            let volume =
                left_out::open(device.clone(), &OpenOptions::default(), Env::fixed(3)).unwrap();
            for (name, bytes) in files {
                assert_eq!(read(&volume, name).unwrap(), *bytes, "{name}");
            }
            volume.close().unwrap();
            let report = check(device.as_ref(), &mut Options::default());
            let sound = report
                .problems
                .iter()
                .all(|p| p.severity() <= Severity::Note);
            assert!(sound, "{report}");
        }
    }

    /// That the volume takes no changes any more, says so, and still gives out what it has.
    fn is_read_only(&self, files: &[(&str, &[u8])]) {
        assert!(!self.volume.info().access.is_writable());
        let made = self.volume.create(ROOT_INO, b"too late", &NEW);
        assert_eq!(errno(made), EROFS);
        for (name, bytes) in files {
            assert_eq!(read(&self.volume, name).unwrap(), *bytes, "{name}");
        }
    }
}

fn read(volume: &Volume, name: &str) -> Result<Vec<u8>, Error> {
    let attr = volume.lookup(ROOT_INO, name.as_bytes())?;
    volume.read(attr.ino, 0, attr.size as usize)
}

/// One of each kind.
fn rigs() -> impl Iterator<Item = Rig> {
    PROFILES.into_iter().map(Rig::new)
}

fn homes(effect: Effect) -> Rule {
    Rule::on(Op::Write, effect).of_kind(IoKind::Homed)
}

#[test]
fn a_write_error_at_a_home_is_tried_elsewhere() {
    for rig in rigs() {
        let bytes = content(LARGE, 1);
        let file = rig.write("f", &bytes);
        rig.fail(homes(Effect::Torn(8192)).nth(0));
        rig.volume.fsync(file, false).unwrap();
        assert_eq!(read(&rig.volume, "f").unwrap(), bytes);
        rig.survives(&[("f", &bytes)]);
    }
}

#[test]
fn a_write_error_at_every_home_is_the_fsyncs_and_nobody_elses() {
    for rig in rigs() {
        let (old, new, small) = (content(LARGE, 1), content(LARGE, 2), content(SMALL, 3));
        let file = rig.write("f", &old);
        rig.volume.sync().unwrap();
        rig.fail(homes(Effect::Fail));
        rig.write("f", &new);
        assert_eq!(errno(rig.volume.fsync(file, false)), EIO);
        assert_eq!(errno(rig.volume.fsync(file, false)), EIO, "still not there");
        let other = rig.write("g", &small);
        rig.volume.fsync(other, false).unwrap();
        assert_eq!(errno(rig.volume.sync()), EIO);
        assert_eq!(read(&rig.volume, "f").unwrap(), new);
        rig.survives(&[("f", &old), ("g", &small)]);
        rig.heal();
        rig.volume.fsync(file, false).unwrap();
        rig.survives(&[("f", &new), ("g", &small)]);
        rig.volume.close().unwrap();
    }
}

/// The new homes of a file were written, but what points to them could not be changed: its data stayed on their way
/// forever, and the next fsync said that all was well.
#[test]
fn a_file_whose_metadata_cannot_be_read_is_written_once_they_can() {
    for rig in rigs() {
        let (old, new) = (content(LARGE, 1), content(LARGE, 2));
        rig.make_many();
        rig.write("f", &old);
        let rig = rig.again();
        let other = rig.write("g", &old);
        rig.volume.fsync(other, false).unwrap();
        let file = rig.write("f", &new);
        rig.write("g", &new);
        rig.fail(Rule::on(Op::Read, Effect::Fail).of_kind(IoKind::Metadata));
        assert_eq!(errno(rig.volume.sync()), EIO);
        rig.survives(&[("f", &old), ("g", &new)]);
        rig.heal();
        rig.volume.fsync(file, false).unwrap();
        rig.survives(&[("f", &new), ("g", &new)]);
    }
}

#[test]
fn a_write_error_to_the_log_makes_the_volume_read_only() {
    for rig in rigs() {
        let (old, new) = (content(SMALL, 1), content(SMALL, 2));
        let file = rig.write("f", &old);
        rig.volume.fsync(file, false).unwrap();
        rig.write("f", &new);
        rig.fail(
            Rule::on(Op::Write, Effect::Torn(4096))
                .of_kind(IoKind::Segment)
                .nth(0),
        );
        assert_eq!(errno(rig.volume.fsync(file, false)), EIO);
        rig.is_read_only(&[("f", &new)]);
        assert_eq!(errno(rig.volume.fsync(file, false)), EROFS);
        assert_eq!(errno(rig.volume.sync()), EROFS);
        assert_eq!(errno(rig.volume.close()), EROFS);
        rig.survives(&[("f", &old)]);
    }
}

/// A flush that failed may have dropped the writes of others too, and the next would not tell.
#[test]
fn a_failed_flush_of_homes_makes_the_volume_read_only() {
    for rig in rigs() {
        let (small, large) = (content(SMALL, 1), content(LARGE, 2));
        let first = rig.write("f", &small);
        rig.volume.upkeep().commit(Durability::Written).unwrap();
        let second = rig.write("g", &large);
        rig.fail(Rule::on(Op::Flush, Effect::Fail).nth(0));
        assert_eq!(errno(rig.volume.fsync(second, false)), EIO);
        assert_eq!(errno(rig.volume.fsync(first, false)), EROFS);
        rig.is_read_only(&[("f", &small), ("g", &large)]);
        rig.survives(&[]);
    }
}

#[test]
fn a_failed_flush_of_a_segment_makes_the_volume_read_only() {
    for rig in rigs() {
        let (old, new) = (content(SMALL, 1), content(SMALL, 2));
        let file = rig.write("f", &old);
        rig.volume.fsync(file, false).unwrap();
        rig.write("f", &new);
        rig.fail(Rule::on(Op::Flush, Effect::Fail).nth(0));
        assert_eq!(errno(rig.volume.fsync(file, false)), EIO);
        rig.is_read_only(&[("f", &new)]);
        let [kept, lost] = rig.crashes().map(|image| {
            let device = Arc::new(MemoryDevice::from_image(image));
            let volume = left_out::open(device, &OpenOptions::default(), Env::fixed(3)).unwrap();
            read(&volume, "f").unwrap()
        });
        assert!(kept == new && lost == old, "one state or the other");
    }
}

#[test]
fn a_failed_flush_of_settled_images_makes_the_volume_read_only() {
    let (rig, bytes) = overwritten();
    rig.fail(Rule::on(Op::Flush, Effect::Fail).nth(0));
    assert_eq!(errno(rig.volume.upkeep().settle(1000)), EIO);
    rig.is_read_only(&[("f", &bytes)]);
    assert!(rig.volume.info().images > 0);
    let before = rig.recorder.event_count();
    rig.volume.upkeep().settle(1000).unwrap();
    rig.volume.close().unwrap();
    assert_eq!(rig.recorder.event_count(), before, "nothing is written");
    rig.survives(&[("f", &bytes)]);
}

#[test]
fn a_failed_flush_of_a_checkpoint_or_its_superblock_makes_the_volume_read_only() {
    for n in 0..2 {
        for rig in rigs() {
            let bytes = content(SMALL, 1);
            rig.write("f", &bytes);
            rig.volume.sync().unwrap();
            rig.fail(Rule::on(Op::Flush, Effect::Fail).nth(n));
            assert_eq!(errno(rig.volume.upkeep().checkpoint()), EIO);
            rig.is_read_only(&[("f", &bytes)]);
            rig.survives(&[("f", &bytes)]);
        }
    }
}

#[test]
fn a_failed_superblock_write_makes_the_volume_read_only() {
    for effect in [Effect::Fail, Effect::Torn(512)] {
        for rig in rigs() {
            let bytes = content(SMALL, 1);
            rig.write("f", &bytes);
            rig.volume.sync().unwrap();
            rig.fail(
                Rule::on(Op::Write, effect)
                    .of_kind(IoKind::Superblock)
                    .nth(0),
            );
            assert_eq!(errno(rig.volume.upkeep().checkpoint()), EIO);
            rig.is_read_only(&[("f", &bytes)]);
            rig.survives(&[("f", &bytes)]);
        }
    }
}

/// A volume with a large file that has images in the log.
fn overwritten() -> (Rig, Vec<u8>) {
    let rig = Rig::new(PROFILES[0]);
    let mut bytes = content(LARGE, 1);
    let file = rig.write("f", &bytes);
    rig.volume.sync().unwrap();
    let patch = content(8192, 7);
    for at in [0, 1 << 20] {
        rig.volume.write(file, at as u64, &patch).unwrap();
        bytes[at..at + patch.len()].copy_from_slice(&patch);
    }
    rig.volume.sync().unwrap();
    assert_eq!(rig.volume.info().images, 4);
    (rig, bytes)
}

#[test]
fn a_settle_that_fails_keeps_its_image() {
    let (rig, bytes) = overwritten();
    rig.fail(
        Rule::on(Op::Write, Effect::Torn(512))
            .of_kind(IoKind::Settle)
            .nth(0),
    );
    rig.volume.upkeep().settle(1000).unwrap();
    assert!(rig.volume.info().images > 0);
    rig.volume.sync().unwrap();
    assert_eq!(read(&rig.volume, "f").unwrap(), bytes);
    rig.survives(&[("f", &bytes)]);
    let rig = rig.again();
    rig.volume.upkeep().settle(1000).unwrap();
    assert_eq!(rig.volume.info().images, 0);
    rig.volume.sync().unwrap();
    rig.survives(&[("f", &bytes)]);
}

/// Where a file's first data are: in the log, or at home.
fn place_of(image: &Image, ino: Ino) -> std::ops::Range<u64> {
    let device = MemoryDevice::from_image(image.clone());
    let reader = loamfs_check::Volume::open(&device).unwrap();
    let inode = reader.inode(ino).unwrap();
    let at = match inode.body {
        Body::Small(pointer) => pointer.addr,
        _ => reader.extents(&inode).next().unwrap().unwrap().pointer.addr,
    };
    let start = reader.superblock().geometry.byte_offset(at);
    start..start + 1024
}

/// A bad sector failed everything that was read along with it.
#[test]
fn a_block_that_cannot_be_read_leaves_the_rest_usable() {
    for (effect, size) in [(false, SMALL), (true, SMALL), (false, LARGE), (true, LARGE)] {
        for rig in rigs() {
            let (bad, good) = (content(size, 1), content(SMALL, 2));
            let file = rig.write("bad", &bad);
            rig.write("good", &good);
            let rig = rig.again();
            let range = place_of(&rig.recorder.image(), file);
            let offset = range.start + 7;
            let effect = if effect {
                Effect::Fail
            } else {
                Effect::FlipBit { offset, bit: 3 }
            };
            rig.fail(Rule::on(Op::Read, effect).in_range(range));
            assert_eq!(errno(read(&rig.volume, "bad")), EIO);
            assert_eq!(read(&rig.volume, "good").unwrap(), good);
            if size == LARGE {
                let rest = rig.volume.read(file, 4096, LARGE).unwrap();
                assert!(rest == bad[4096..], "EIO is for the unit that is damaged");
            }
            // Its other parts can be changed, and it can be removed.
            rig.write("new", &good);
            rig.volume.sync().unwrap();
            assert!(rig.volume.info().access.is_writable());
            rig.volume.unlink(ROOT_INO, b"bad").unwrap();
            rig.volume.close().unwrap();
            rig.heal();
            rig.survives(&[("good", &good), ("new", &good)]);
        }
    }
}

/// An inode block that is read along with others, because it is near, was their error when it was damaged.
#[test]
fn a_damaged_inode_block_is_the_error_of_its_inodes_alone() {
    for rig in rigs() {
        let name = |i: usize| format!("{i}");
        let inos: Vec<Ino> = (0..100).map(|i| rig.write(&name(i), b"x")).collect();
        let rig = rig.again();
        let (place, lost) = {
            let device = MemoryDevice::from_image(rig.recorder.image());
            let reader = loamfs_check::Volume::open(&device).unwrap();
            let block = block_of(inos[50]);
            let entry = reader.ifile_entry(block).unwrap().unwrap();
            let start = reader.superblock().geometry.byte_offset(entry.pointer.addr);
            (start..start + 512, block)
        };
        rig.fail(Rule::on(Op::Read, Effect::Fail).in_range(place));
        for (i, ino) in inos.iter().enumerate() {
            let expected = if block_of(*ino) == lost { EIO } else { 0 };
            assert_eq!(errno(rig.volume.getattr(*ino)), expected, "file {i}");
        }
    }
}

/// What was synced is durable then.
#[test]
fn a_checkpoint_that_fails_behind_an_fsync_is_not_its_error() {
    for rig in rigs() {
        rig.fail(Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Superblock));
        let meets_one = (0..200).any(|version| {
            let bytes = content(SMALL, version);
            let file = rig.write("f", &bytes);
            rig.volume.fsync(file, false).unwrap();
            let fails = !rig.volume.info().access.is_writable();
            if fails {
                rig.is_read_only(&[("f", &bytes)]);
                rig.survives(&[("f", &bytes)]);
            }
            fails
        });
        assert!(meets_one, "no checkpoint was due");
    }
}

/// Clauses of rule 12, and the test above that notices when one is left out.
const CLAUSES: [(&str, &str); 8] = [
    (
        "no-second-try",
        "a_write_error_at_a_home_is_tried_elsewhere",
    ),
    (
        "home-error-shown",
        "a_write_error_at_every_home_is_the_fsyncs_and_nobody_elses",
    ),
    (
        "home-error-unsaid",
        "a_write_error_at_every_home_is_the_fsyncs_and_nobody_elses",
    ),
    (
        "batch-leaks",
        "a_file_whose_metadata_cannot_be_read_is_written_once_they_can",
    ),
    (
        "log-error-ignored",
        "a_write_error_to_the_log_makes_the_volume_read_only",
    ),
    (
        "flush-trusted-again",
        "a_failed_flush_of_homes_makes_the_volume_read_only",
    ),
    (
        "superblock-error-ignored",
        "a_failed_superblock_write_makes_the_volume_read_only",
    ),
    (
        "settle-error-ignored",
        "a_settle_that_fails_keeps_its_image",
    ),
];

#[test]
fn every_clause_is_missed_when_it_is_left_out() {
    assert_eq!(left_out::unmissed(&CLAUSES).unwrap(), []);
}
