//! Space that is reserved and not written (fallocate): it reads as zeros, and its first write always has a place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{mounted, open};
use loamfs_check::{Options, check};
use loamfs_device::{Device, Effect, FaultyDevice, IoKind, MemoryDevice, Op, Rule};
use loamfs_fs::{
    Durability, Env, Error, Ino, MkfsOptions, NewInode, Place, ROOT_INO, SetAttr, Volume, mkfs,
};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const UNIT: u64 = 4096;
/// Bytes of a block of these volumes.
const BLOCK: u64 = 4 << 10;

/// A volume without tails, of which a block has four units.
fn mounted_with_long_blocks(bytes: u64) -> (Arc<dyn Device>, Volume) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    let options = MkfsOptions {
        tails: false,
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    let volume = open(&device);
    (device, volume)
}

/// Extents that a search for data looks at together.
const STEP: u64 = 256;

/// Bytes of a block there.
const LONG: u64 = 4 * UNIT;

fn create(volume: &Volume, name: &[u8]) -> Ino {
    volume.create(ROOT_INO, name, &NEW).unwrap().ino
}

fn resize(volume: &Volume, ino: Ino, size: u64) {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(ino, &set).unwrap();
}

fn bytes(volume: &Volume, ino: Ino) -> u64 {
    volume.getattr(ino).unwrap().blocks * 512
}

fn assert_sound(device: &Arc<dyn Device>) {
    let report = check(device.as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
}

/// The kinds of places that a file has, with their bytes.
fn places(volume: &Volume, ino: Ino) -> Vec<(u64, &'static str)> {
    let (mut found, mut at): (Vec<(u64, &str)>, _) = (Vec::new(), Some(0));
    while let Some(from) = at {
        let (pieces, next) = volume.ranges(ino).map(from).unwrap();
        for piece in pieces {
            let kind = match piece.place {
                Place::Unwritten(_) => "unwritten",
                Place::Home(_) => "home",
                Place::Hole => "hole",
                _ => "elsewhere",
            };
            match found.last_mut().filter(|(_, last)| *last == kind) {
                Some((len, _)) => *len += piece.len,
                None => found.push((piece.len, kind)),
            }
        }
        at = next;
    }
    found
}

/// Numbers that look like chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn shuffled(&mut self, count: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..count).collect();
        for at in (1..count).rev() {
            all.swap(at as usize, self.below(at + 1) as usize);
        }
        all
    }
}

#[test]
fn what_stood_there_before_is_never_seen() {
    let (device, volume) = mounted(64 << 20);
    let old = create(&volume, b"old");
    volume.write(old, 0, &vec![7; 40 << 20]).unwrap();
    volume.sync().unwrap();
    volume.unlink(ROOT_INO, b"old").unwrap();
    for _ in 0..3 {
        volume.sync().unwrap();
        volume.upkeep().checkpoint().unwrap();
    }
    let new = create(&volume, b"new");
    volume.ranges(new).allocate(0, 40 << 20, true).unwrap();
    volume.write(new, 10 * BLOCK + 100, b"written").unwrap();
    let expect = |volume: &Volume| {
        let content = volume.read(new, 0, 41 << 20).unwrap();
        assert_eq!(content.len(), 40 << 20);
        let found: Vec<u8> = content.iter().copied().filter(|byte| *byte != 0).collect();
        assert_eq!(found, b"written");
    };
    expect(&volume);
    volume.sync().unwrap();
    expect(&volume);
    drop(volume);
    expect(&open(&device));
    assert_sound(&device);
}

/// The last extent of a step reaches beyond data that waits.
#[test]
fn data_that_waits_behind_many_reservations_is_found() {
    let (_device, volume) = mounted(64 << 20);
    let ino = create(&volume, b"f");
    resize(&volume, ino, 6 * STEP * BLOCK);
    for number in 0..2 * STEP {
        let at = 3 * number * BLOCK;
        volume.ranges(ino).allocate(at, 2 * BLOCK, true).unwrap();
    }
    volume.sync().unwrap();
    let at = (3 * (STEP - 1) + 1) * BLOCK;
    volume.write(ino, at, b"data").unwrap();
    assert_eq!(volume.ranges(ino).seek_data(0).unwrap(), at);
    volume.sync().unwrap();
    assert_eq!(volume.ranges(ino).seek_data(0).unwrap(), at);
}

#[test]
fn only_what_was_written_is_data() {
    let (device, volume) = mounted_with_long_blocks(64 << 20);
    let ino = create(&volume, b"f");
    volume.ranges(ino).allocate(0, 100 * LONG, true).unwrap();
    volume
        .write(ino, 10 * LONG + UNIT, &[1; UNIT as usize])
        .unwrap();
    let expect = |volume: &Volume| {
        assert_eq!(volume.ranges(ino).seek_data(0).unwrap(), 10 * LONG);
        assert_eq!(volume.ranges(ino).seek_hole(0).unwrap(), 0);
        assert_eq!(volume.ranges(ino).seek_hole(10 * LONG).unwrap(), 11 * LONG);
        let behind = volume.ranges(ino).seek_data(11 * LONG);
        assert!(matches!(behind, Err(Error::NoData)), "{behind:?}");
        assert_eq!(bytes(volume, ino), 100 * LONG);
    };
    expect(&volume);
    volume.sync().unwrap();
    expect(&volume);
    let unit = |units: u64, kind| (units * UNIT, kind);
    let written = [
        unit(41, "unwritten"),
        unit(1, "home"),
        unit(358, "unwritten"),
    ];
    assert_eq!(places(&volume, ino), written);
    // What was written once is written over like anything else.
    volume
        .write(ino, 10 * LONG + UNIT, &[2; UNIT as usize])
        .unwrap();
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device);
    expect(&volume);
    assert_eq!(volume.read(ino, 10 * LONG + UNIT, 1).unwrap(), [2]);
    volume.upkeep().settle(100).unwrap();
    volume.close().unwrap();
    assert_sound(&device);
    let volume = open(&device);
    assert_eq!(places(&volume, ino), written);
}

#[test]
fn space_behind_the_end_is_kept_until_the_file_is_cut() {
    let (device, volume) = mounted(64 << 20);
    let ino = create(&volume, b"f");
    volume.write(ino, 0, &[1; 100]).unwrap();
    volume.ranges(ino).allocate(0, 64 * BLOCK, false).unwrap();
    assert_eq!(volume.getattr(ino).unwrap().size, 100);
    assert_eq!(bytes(&volume, ino), 64 * BLOCK);
    assert_eq!(volume.read(ino, 0, 200).unwrap(), [1; 100]);
    volume.close().unwrap();
    assert_sound(&device);
    let volume = open(&device);
    assert_eq!(bytes(&volume, ino), 64 * BLOCK);
    // It is used when the file grows, and reads as zeros.
    volume.write(ino, 5 * BLOCK, &[2; 10]).unwrap();
    volume.sync().unwrap();
    assert_eq!(bytes(&volume, ino), 64 * BLOCK);
    let content = volume.read(ino, 0, 1 << 20).unwrap();
    assert_eq!(content.len() as u64, 5 * BLOCK + 10);
    assert!(
        content[100..5 * BLOCK as usize]
            .iter()
            .all(|byte| *byte == 0)
    );
    resize(&volume, ino, 5 * BLOCK + 10);
    volume.upkeep().tick().unwrap();
    volume.sync().unwrap();
    assert_eq!(bytes(&volume, ino), 6 * BLOCK);
    volume.close().unwrap();
    assert_sound(&device);
}

#[test]
fn space_of_a_file_without_a_byte_goes_with_it() {
    let (device, volume) = mounted(64 << 20);
    for committed in [false, true] {
        let ino = create(&volume, b"f");
        volume.ranges(ino).allocate(0, 8 * BLOCK, false).unwrap();
        if committed {
            volume.sync().unwrap();
        }
        volume.unlink(ROOT_INO, b"f").unwrap();
        volume.upkeep().tick().unwrap();
    }
    volume.close().unwrap();
    assert_sound(&device);
}

#[test]
fn all_of_it_comes_back_when_it_is_freed() {
    let (device, volume) = mounted(64 << 20);
    volume.sync().unwrap();
    let before = volume.statfs().available;
    for round in 0..4 {
        let ino = create(&volume, b"f");
        volume.ranges(ino).allocate(0, 30 << 20, true).unwrap();
        volume.write(ino, 3 << 20, &[1; 100_000]).unwrap();
        volume.sync().unwrap();
        match round {
            0 => volume.ranges(ino).punch(0, 30 << 20).unwrap(),
            1 => resize(&volume, ino, 0),
            2 => volume.ranges(ino).zero(0, 30 << 20, false).unwrap(),
            _ => {}
        }
        volume.unlink(ROOT_INO, b"f").unwrap();
        for _ in 0..3 {
            volume.upkeep().tick().unwrap();
            volume.sync().unwrap();
            volume.upkeep().checkpoint().unwrap();
        }
    }
    let after = volume.statfs().available;
    assert!(after + (1 << 20) / 1024 >= before, "{after} of {before}");
    volume.close().unwrap();
    assert_sound(&device);
}

/// What is written from start to end is an extent like any other, for which nothing is kept free.
#[test]
fn what_was_written_whole_is_not_reserved_any_more() {
    let (device, volume) = mounted(64 << 20);
    let ino = create(&volume, b"f");
    volume.ranges(ino).allocate(0, 8 << 20, true).unwrap();
    for part in [1, 0, 3, 2] {
        volume
            .write(ino, part * (2 << 20), &vec![part as u8 + 1; 2 << 20])
            .unwrap();
        volume.sync().unwrap();
    }
    volume.close().unwrap();
    assert_sound(&device);
    let volume = open(&device);
    assert_eq!(places(&volume, ino), [(8 << 20, "home")]);
    // Freed in part nothing of it is reserved either: its checksums are gone, and no unit without one may stay.
    volume.ranges(ino).punch(1 << 20, 1 << 20).unwrap();
    volume.close().unwrap();
    assert_sound(&device);
}

#[test]
fn a_range_of_zeros_is_written_nowhere() {
    let (device, volume) = mounted(64 << 20);
    let ino = create(&volume, b"f");
    volume.write(ino, 0, &vec![7; 8 << 20]).unwrap();
    volume.sync().unwrap();
    let before = volume.info().device.total().write_bytes;
    volume.ranges(ino).zero(100, 6 << 20, false).unwrap();
    volume.sync().unwrap();
    let written = volume.info().device.total().write_bytes - before;
    assert!(written < 1 << 20, "{written}");
    let content = volume.read(ino, 0, 8 << 20).unwrap();
    let zeros = content.iter().filter(|byte| **byte == 0).count();
    assert_eq!(zeros, 6 << 20);
    assert_eq!(bytes(&volume, ino), 8 << 20);
    volume.close().unwrap();
    assert_sound(&device);
}

/// Fills a volume with whatever still fits.
fn fill(volume: &Volume) {
    for size in [300_000, 9_000, 500] {
        for i in 0.. {
            let name = format!("filler {size} {i}");
            let made = volume
                .create(ROOT_INO, name.as_bytes(), &NEW)
                .and_then(|attr| volume.write(attr.ino, 0, &vec![9; size]));
            match made {
                Ok(_) => {}
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let _ = volume.sync();
    }
}

/// Reserves part of a volume, fills the rest, and writes every unit that was reserved, in any order, with crashes
/// between: that never fails.
fn first_writes_have_a_place(size: u64, reserved: u64, step: u64, seed: u64) {
    let (device, mut volume) = mounted(size);
    let ino = create(&volume, b"reserved");
    volume.ranges(ino).allocate(0, reserved, true).unwrap();
    fill(&volume);
    let refused = volume.ranges(ino).allocate(reserved, 1 << 20, true);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    let mut chance = Chance(seed);
    let content = |unit: u64| vec![1 + (unit % 250) as u8; UNIT as usize];
    let units = chance.shuffled(reserved / UNIT / step);
    let mut synced = 0;
    for (done, part) in units.iter().enumerate() {
        for unit in part * step..(part + 1) * step {
            let written = volume.write(ino, unit * UNIT, &content(unit));
            written.unwrap_or_else(|error| panic!("unit {unit} after {done}: {error}"));
        }
        if chance.below(40) == 0 {
            volume
                .fsync(ino, false)
                .unwrap_or_else(|error| panic!("fsync after {done}: {error}"));
            synced = done + 1;
            if chance.below(4) == 0 {
                drop(volume);
                volume = open(&device);
                for part in &units[..synced] {
                    let unit = part * step;
                    let found = volume.read(ino, unit * UNIT, UNIT as usize).unwrap();
                    assert!(found == content(unit), "unit {unit} is lost");
                }
            }
        } else if chance.below(200) == 0 {
            // What was not promised may be lost, and is written again; what is not lost has had its first write.
            drop(volume);
            volume = open(&device);
            for part in &units[synced..=done] {
                for unit in part * step..(part + 1) * step {
                    if volume.read(ino, unit * UNIT, 1).unwrap() == [0] {
                        volume.write(ino, unit * UNIT, &content(unit)).unwrap();
                    }
                }
            }
        }
    }
    volume.sync().unwrap();
    volume.close().unwrap();
    assert_sound(&device);
    let volume = open(&device);
    for unit in 0..reserved / UNIT / step * step {
        let found = volume.read(ino, unit * UNIT, UNIT as usize).unwrap();
        assert!(found == content(unit), "unit {unit}");
    }
    for entry in volume.readdir(ROOT_INO, 0, 100).unwrap() {
        if entry.name.starts_with(b"filler") {
            volume.unlink(ROOT_INO, &entry.name).unwrap();
        }
    }
    volume.close().unwrap();
}

#[test]
fn single_units_have_a_place_on_a_full_volume() {
    first_writes_have_a_place(64 << 20, 16 << 20, 1, 1);
}

#[test]
fn long_writes_have_a_place_on_a_full_volume() {
    first_writes_have_a_place(96 << 20, 48 << 20, 32, 2);
}

#[test]
fn a_small_volume_keeps_its_promise_too() {
    first_writes_have_a_place(24 << 20, 4 << 20, 1, 3);
}

/// Who makes room moves what was reserved, without a write.
#[test]
fn what_is_reserved_moves_and_stays_reserved() {
    let (device, volume) = mounted_with_long_blocks(64 << 20);
    // Reserved space between files that go.
    let mut reserved = Vec::new();
    for i in 0..40 {
        let name = format!("going {i}");
        let going = create(&volume, name.as_bytes());
        volume.write(going, 0, &vec![5; 900_000]).unwrap();
        volume.sync().unwrap();
        let ino = create(&volume, format!("reserved {i}").as_bytes());
        volume.ranges(ino).allocate(0, 4 * LONG, true).unwrap();
        volume
            .write(ino, LONG, &[i as u8 + 1; UNIT as usize])
            .unwrap();
        reserved.push(ino);
    }
    volume.sync().unwrap();
    for i in 0..40 {
        volume
            .unlink(ROOT_INO, format!("going {i}").as_bytes())
            .unwrap();
    }
    volume.sync().unwrap();
    // Room is won by moving.
    fill(&volume);
    for (i, ino) in (0u8..).zip(&reserved) {
        assert_eq!(bytes(&volume, *ino), 4 * LONG);
        let content = volume.read(*ino, 0, 4 * LONG as usize).unwrap();
        let (first, rest) = content.split_at(LONG as usize);
        assert!(first.iter().all(|byte| *byte == 0));
        assert_eq!(rest[..UNIT as usize], [i + 1; UNIT as usize]);
        assert!(rest[UNIT as usize..].iter().all(|byte| *byte == 0));
        for unit in (0..16).filter(|unit| *unit != 4) {
            volume
                .write(*ino, unit * UNIT, &[8; UNIT as usize])
                .unwrap();
        }
        volume.fsync(*ino, false).unwrap();
    }
    volume.close().unwrap();
    assert_sound(&device);
}

#[test]
fn a_crash_leaves_zeros_or_what_was_written() {
    let (device, volume) = mounted(64 << 20);
    let ino = create(&volume, b"f");
    volume.ranges(ino).allocate(0, 1 << 20, true).unwrap();
    volume.fsync(ino, false).unwrap();
    volume.write(ino, 0, &[1; 10]).unwrap();
    volume.upkeep().commit(Durability::Written).unwrap();
    volume.write(ino, UNIT, &[2; 10]).unwrap();
    drop(volume);
    let volume = open(&device);
    assert_eq!(volume.getattr(ino).unwrap().size, 1 << 20);
    assert_eq!(
        volume.read(ino, 0, 11).unwrap(),
        [&[1; 10][..], &[0]].concat()
    );
    assert_eq!(volume.read(ino, UNIT, 2).unwrap(), [0, 0]);
    volume.close().unwrap();
    assert_sound(&device);
}

#[test]
fn what_cannot_be_written_in_place_is_written_elsewhere() {
    let (plain, volume) = mounted_with_long_blocks(64 << 20);
    drop(volume);
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&plain)));
    let device: Arc<dyn Device> = faulty.clone();
    let volume = open(&device);
    let ino = create(&volume, b"f");
    volume.ranges(ino).allocate(0, 8 * LONG, true).unwrap();
    volume.write(ino, 2 * LONG, &[1; UNIT as usize]).unwrap();
    let rule = Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Homed);
    faulty.set_rules(vec![rule.times(1)]);
    volume.fsync(ino, false).unwrap();
    drop(volume);
    assert_sound(&plain);
    let volume = open(&plain);
    let content = volume.read(ino, 0, 1 << 20).unwrap();
    let written = 2 * LONG as usize..(2 * LONG + UNIT) as usize;
    assert!(content[written.clone()].iter().all(|byte| *byte == 1));
    let others = content[..written.start]
        .iter()
        .chain(&content[written.end..]);
    assert!(others.copied().all(|byte| byte == 0));
    // The units beside it are reserved where it is now.
    let unit = |units: u64, kind| (units * UNIT, kind);
    let wanted = [unit(8, "unwritten"), unit(1, "home"), unit(23, "unwritten")];
    assert_eq!(places(&volume, ino), wanted);
    volume.close().unwrap();
    assert_sound(&plain);
}

/// Whoever may write there takes set-user-id away with it. That was refused on a full volume, and so the write was.
#[test]
fn a_first_write_takes_set_user_id_away_on_a_full_volume() {
    let (device, volume) = mounted(64 << 20);
    let ino = create(&volume, b"reserved");
    let mode = Some(0o6777);
    let set = SetAttr {
        mode,
        ..SetAttr::default()
    };
    volume.setattr(ino, &set).unwrap();
    volume.ranges(ino).allocate(0, 1 << 20, true).unwrap();
    fill(&volume);
    // What nobody has synced fills what is left.
    let mut more = 0;
    while !refuses_modes(&volume) {
        more += 1;
        let name = format!("more {more}");
        let made = volume.create(ROOT_INO, name.as_bytes(), &NEW);
        let _ = made.and_then(|attr| volume.write(attr.ino, 0, &[9; 500]));
        assert!(more < 100_000, "it is never full");
    }
    volume.setattr(ino, &SetAttr::default()).unwrap();
    assert!(volume.drop_privileges(ino).unwrap());
    volume.write(ino, 0, &[7; 1 << 20]).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.getattr(ino).unwrap().mode & 0o7777, 0o777);
    volume.close().unwrap();
    assert_sound(&device);
}

/// Whether there is no room for another mode either.
fn refuses_modes(volume: &Volume) -> bool {
    let set = SetAttr {
        mode: Some(0o700),
        ..SetAttr::default()
    };
    let ino = volume.lookup(ROOT_INO, b"filler 300000 0").unwrap().ino;
    matches!(volume.setattr(ino, &set), Err(Error::NoSpace))
}
