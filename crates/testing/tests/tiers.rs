//! Directories that say on which devices the blocks of large files go: new ones, those that are there, and when there is no room.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::Ino;
use loamfs_format::group::Role;
use loamfs_format::superblock::{RO_COMPATIBLE_LIMIT, RO_COMPATIBLE_WRITE_BACK};
use loamfs_fs::{
    Arranged, Arranging, CopyKind, Env, Error, MkfsOptions, NewInode, OpenOptions, Place, ROOT_INO,
    RenameFlags, TIER, Tier, Tiering, Volume, mkfs, superblocks,
};
use loamfs_testing::files::content;
use loamfs_testing::pair::{fast_and_slow, fast_and_slow_with};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a large file.
const LARGE: usize = 300_000;

/// A fast device of so many bytes, and a slow one of four times as many.
fn pair(fast: u64) -> Arc<dyn Device> {
    fast_and_slow([fast, 4 * fast]).unwrap()
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(Arc::clone(device), &OpenOptions::default(), Env::fixed(5)).unwrap()
}

/// Files in directories, and what they hold.
#[derive(Default)]
struct Files(BTreeMap<Ino, Vec<u8>>);

impl Files {
    fn add(&mut self, volume: &Volume, dir: Ino, name: &str, bytes: usize) -> Ino {
        let attr = volume.create(dir, name.as_bytes(), &NewInode::of_mode(0o644));
        let ino = attr.unwrap().ino;
        let held = content(bytes, self.0.len());
        volume.write(ino, 0, &held).unwrap();
        self.0.insert(ino, held);
        ino
    }

    /// Nothing is lost, also not when it is read by another.
    fn are_there(&self, volume: &Volume, device: &Arc<dyn Device>) {
        volume.sync().unwrap();
        let report = check(device.as_ref(), &mut Options::default());
        let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
        assert!(report.problems.iter().all(sound), "{report}");
        for (ino, held) in &self.0 {
            assert!(volume.read(*ino, 0, held.len()).unwrap() == *held, "{ino}");
        }
    }
}

fn mkdir(volume: &Volume, dir: Ino, name: &str) -> Ino {
    let made = volume.mkdir(dir, name.as_bytes(), &NewInode::of_mode(0o755));
    made.unwrap().ino
}

/// The bytes of the volume that a member has.
fn held(volume: &Volume, member: usize) -> Range<u64> {
    let info = volume.info();
    let (entry, frag) = (info.members[member].entry, u64::from(info.fragment_size));
    entry.addr.0 * frag..(entry.addr.0 + entry.frags) * frag
}

/// How many bytes of a file have their homes on the fast device, and elsewhere.
fn homes(volume: &Volume, ino: Ino) -> [u64; 2] {
    let fast = held(volume, 0);
    let (mut bytes, mut from) = ([0; 2], Some(0));
    while let Some(at) = from {
        let (pieces, next) = volume.ranges(ino).map(at).unwrap();
        for piece in pieces {
            let home = match piece.place {
                Place::Home(at) | Place::Unwritten(at) | Place::Image { home: at, .. } => at,
                _ => continue,
            };
            bytes[usize::from(!fast.contains(&home))] += piece.len;
        }
        from = next;
    }
    bytes
}

/// What a directory says.
fn said(volume: &Volume, dir: Ino) -> String {
    String::from_utf8(volume.xattrs(dir).get(TIER.as_bytes()).unwrap()).unwrap()
}

/// Has a directory say something, which holds nothing.
fn say(volume: &Volume, dir: Ino, on: impl Into<Tiering>) -> Result<(), Error> {
    let mut carrying = Arranging::carrying(dir, on).alone();
    while volume.upkeep().arrange(&mut carrying)? {}
    Ok(())
}

fn carry(volume: &Volume, dir: Ino, on: impl Into<Tiering>) -> Arranged {
    let mut carrying = Arranging::carrying(dir, on);
    while volume.upkeep().arrange(&mut carrying).unwrap() {}
    *carrying.done()
}

#[test]
fn large_files_go_where_their_directory_says() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let mut made = Vec::new();
    let on = Tier::ALL.map(Tiering::On).into_iter();
    for tier in on.chain([Tiering::Bypass]) {
        let dir = mkdir(&volume, ROOT_INO, tier.word());
        say(&volume, dir, tier).unwrap();
        let below = mkdir(&volume, dir, "below");
        assert_eq!(said(&volume, below), tier.word());
        for dir in [dir, below] {
            made.push((tier, files.add(&volume, dir, "large", LARGE)));
        }
        let reserved = files.add(&volume, dir, "reserved", LARGE);
        volume.sync().unwrap();
        volume
            .ranges(reserved)
            .allocate(LARGE as u64, 200_000, false)
            .unwrap();
        made.push((tier, reserved));
    }
    files.are_there(&volume, &device);
    for (tier, ino) in made {
        let [fast, slow] = homes(&volume, ino);
        assert_eq!(
            (fast > 0, slow > 0),
            (tier == Tier::Fast.into(), tier != Tier::Fast.into()),
            "{tier:?}"
        );
    }
    assert_eq!(volume.info().spilled_data_frags, 0);
}

#[test]
fn files_that_are_there_are_carried_and_back_once() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dir = mkdir(&volume, ROOT_INO, "dir");
    let below = mkdir(&volume, dir, "below");
    let mut large = Vec::new();
    for number in 0..8 {
        let dir = [dir, below][number % 2];
        large.push(files.add(
            &volume,
            dir,
            &format!("large{number}"),
            LARGE * (1 + number % 3),
        ));
        files.add(&volume, dir, &format!("small{number}"), 3_000);
    }
    volume.sync().unwrap();
    // One that has a piece in the log, and one with space that was never written.
    volume.write(large[0], 8192, &[7; 4096]).unwrap();
    files.0.get_mut(&large[0]).unwrap()[8192..12288].fill(7);
    volume
        .ranges(large[1])
        .allocate(5_000_000, 100_000, true)
        .unwrap();
    volume.sync().unwrap();
    for (tier, there) in [(Tier::Fast, 0), (Tier::Slow, 1)] {
        let before: Vec<_> = large.iter().map(|ino| homes(&volume, *ino)).collect();
        let done = carry(&volume, dir, tier);
        assert_eq!((done.directories, done.files, done.full), (2, 8, false));
        for (ino, before) in large.iter().zip(before) {
            let after = homes(&volume, *ino);
            assert_eq!(after[there], before[1 - there], "{tier:?}: all of {ino}");
            assert_eq!(after[1 - there], 0, "{tier:?}: all of {ino}");
        }
        assert_eq!(said(&volume, below), tier.word());
        files.are_there(&volume, &device);
        let again = carry(&volume, dir, tier);
        assert_eq!((again.files, again.bytes, again.full), (0, 0, false));
    }
    // Whoever says that it does not matter moves nothing.
    let done = carry(&volume, dir, Tier::Auto);
    assert_eq!((done.directories, done.bytes), (2, 0));
    assert_eq!(said(&volume, dir), "auto");
}

#[test]
fn what_is_broken_off_is_gone_on_with() {
    let device = pair(64 << 20);
    let mut files = Files::default();
    let volume = open(&device);
    let dir = mkdir(&volume, ROOT_INO, "dir");
    let large = files.add(&volume, dir, "large", 40 << 20);
    volume.sync().unwrap();
    let mut carrying = Arranging::carrying(dir, Tier::Fast);
    while carrying.done().bytes == 0 {
        assert!(volume.upkeep().arrange(&mut carrying).unwrap());
    }
    volume.sync().unwrap();
    let [begun, left] = homes(&volume, large);
    assert!(begun > 0 && left > 0, "{begun} {left}");
    // Nobody closes it.
    drop(volume);
    let volume = open(&device);
    assert_eq!(homes(&volume, large), [begun, left]);
    let done = carry(&volume, dir, Tier::Fast);
    assert_eq!((done.files, done.bytes), (1, left));
    assert_eq!(homes(&volume, large), [begun + left, 0]);
    files.are_there(&volume, &device);
}

#[test]
fn little_memory_is_enough() {
    let device = pair(64 << 20);
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(5)).unwrap();
    let mut files = Files::default();
    let dir = mkdir(&volume, ROOT_INO, "dir");
    let large = files.add(&volume, dir, "large", LARGE);
    for at in (0..20).map(|index| index * 1_000_000) {
        volume.write(large, at, &vec![at as u8; 1_000_000]).unwrap();
    }
    let written = (0..20_000_000u64).map(|at| (at / 1_000_000 * 1_000_000) as u8);
    files.0.insert(large, written.collect());
    volume.sync().unwrap();
    let done = carry(&volume, dir, Tier::Fast);
    assert_eq!((done.files, done.full), (1, false));
    assert_eq!(homes(&volume, large)[1], 0);
    files.are_there(&volume, &device);
}

#[test]
fn a_full_fast_device_is_no_error_and_keeps_room_for_the_log() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dir = mkdir(&volume, ROOT_INO, "dir");
    carry(&volume, dir, Tier::Fast);
    let mut large = Vec::new();
    for number in 0..30 {
        large.push(files.add(&volume, dir, &format!("large{number}"), 10 * LARGE));
        volume.sync().unwrap();
    }
    let on_fast = || -> u64 { large.iter().map(|ino| homes(&volume, *ino)[0]).sum() };
    let info = volume.info();
    let spilled = info.spilled_data_frags * u64::from(info.fragment_size);
    assert!(on_fast() > 4 << 20, "{}", on_fast());
    assert!(spilled > 4 << 20, "{spilled}");
    assert_eq!(info.spilled_log_groups, 0);
    let groups = info.members[0].groups;
    let all: u64 = groups.iter().sum();
    assert!(groups[Role::Data as usize] * 4 <= all * 3, "{groups:?}");
    // What has no room stays, and is not moved to and fro.
    let before = on_fast();
    let full = carry(&volume, dir, Tier::Fast);
    assert!(full.full && full.bytes <= 8 << 20, "{full:?}");
    assert!(on_fast() >= before);
    assert_eq!(volume.info().spilled_data_frags, info.spilled_data_frags);
    files.are_there(&volume, &device);
    // Once there is room it comes.
    let (gone, left) = large.split_at(5);
    for (number, ino) in gone.iter().enumerate() {
        let name = format!("large{number}");
        volume.unlink(dir, name.as_bytes()).unwrap();
        files.0.remove(ino);
    }
    for _ in 0..3 {
        volume.upkeep().checkpoint().unwrap();
    }
    let on_fast = || -> u64 { left.iter().map(|ino| homes(&volume, *ino)[0]).sum() };
    let before = on_fast();
    let moved = carry(&volume, dir, Tier::Fast);
    assert!(moved.bytes > 1 << 20 && moved.full, "{moved:?}");
    assert!(on_fast() > before + (1 << 20));
    files.are_there(&volume, &device);
}

/// Files up to a size go to the fast devices, whenever that is said and however they get it.
#[test]
fn a_directory_can_say_up_to_which_size_files_go_to_the_fast_devices() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let limit = Tiering::of_word("256K").unwrap();
    let size = [
        (200_000, true),
        (256 << 10, true),
        ((256 << 10) + 1, false),
        (400_000, false),
    ];
    let [dir, later] = ["dir", "later"].map(|name| mkdir(&volume, ROOT_INO, name));
    say(&volume, dir, limit).unwrap();
    assert_eq!(said(&volume, mkdir(&volume, dir, "below")), "256K");
    let mut made = Vec::new();
    for (bytes, is_fast) in size {
        let name = format!("{bytes}");
        let reserved = files.add(&volume, dir, &format!("reserved{bytes}"), 0);
        let space = volume.ranges(reserved);
        space.allocate(0, bytes as u64, true).unwrap();
        made.push((reserved, is_fast));
        made.push((files.add(&volume, dir, &name, bytes), is_fast));
        made.push((files.add(&volume, later, &name, bytes), is_fast));
    }
    let grown = files.add(&volume, dir, "grown", 200_000);
    files.are_there(&volume, &device);
    let on_fast = |ino| homes(&volume, ino)[1] == 0;
    let first = made.iter().filter(|(ino, _)| on_fast(*ino)).count();
    assert_eq!(first, 4, "of one directory");
    let moved = carry(&volume, later, limit);
    assert_eq!(moved.files, 2, "{moved:?}");
    for (ino, is_fast) in made {
        assert_eq!(on_fast(ino), is_fast, "{ino}");
    }
    // One that has grown goes where it belongs when that is said again.
    let bytes = content(300_000, 9);
    volume.write(grown, 0, &bytes).unwrap();
    files.0.insert(grown, bytes);
    volume.sync().unwrap();
    volume.upkeep().settle(usize::MAX).unwrap();
    carry(&volume, dir, limit);
    files.are_there(&volume, &device);
    assert_eq!(homes(&volume, grown)[0], 0);
    assert_eq!(volume.info().spilled_data_frags, 0);
}

#[test]
fn where_devices_are_all_of_one_kind_there_is_nothing_to_say() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&device);
    for tier in [Tier::Fast, Tier::Slow] {
        let refused = say(&volume, ROOT_INO, tier);
        let Err(Error::Options(words)) = refused else {
            panic!("{refused:?}");
        };
        assert!(
            words.contains("no fast devices beside slow ones"),
            "{words}"
        );
    }
    say(&volume, ROOT_INO, Tier::Auto).unwrap();
    volume.close().unwrap();
    let sb = superblocks::find(device.as_ref()).unwrap().newest;
    assert!(!sb.has_tier());
}

/// A program that does not know the feature reads such a volume, and does not write to it.
#[test]
fn the_feature_is_announced_before_a_directory_says_anything() {
    let device = pair(64 << 20);
    let volume = open(&device);
    let announced = || {
        superblocks::find(device.as_ref())
            .unwrap()
            .newest
            .has_tier()
    };
    say(&volume, ROOT_INO, Tier::Auto).unwrap();
    assert!(!announced());
    say(&volume, ROOT_INO, Tier::Fast).unwrap();
    assert!(announced());
    // That what it says may be a size is another one.
    let known = |feature| {
        let sb = superblocks::find(device.as_ref()).unwrap().newest;
        sb.ro_compatible & feature != 0
    };
    assert!(!known(RO_COMPATIBLE_LIMIT));
    say(&volume, ROOT_INO, Tiering::of_word("1M").unwrap()).unwrap();
    assert!(known(RO_COMPATIBLE_LIMIT));
    // And so is what bypasses the fast devices or is written back.
    assert!(!known(RO_COMPATIBLE_WRITE_BACK));
    say(&volume, ROOT_INO, Tiering::Bypass).unwrap();
    assert!(known(RO_COMPATIBLE_WRITE_BACK));
}

/// Ticks at which nobody asks for anything, until what is owed moves, and as many as that takes.
fn idle(volume: &Volume) {
    for _ in 0..24 {
        volume.upkeep().tick().unwrap();
    }
}

fn owed(volume: &Volume) -> u64 {
    let info = volume.info();
    info.owed.frags * u64::from(info.fragment_size)
}

/// Requests that the slow device was sent.
fn slow_requests(volume: &Volume) -> [u64; 2] {
    let total = volume.info().members[1].counters.total();
    [total.reads, total.writes]
}

#[test]
fn what_is_written_back_is_on_the_fast_device_until_nobody_asks_for_anything() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dir = mkdir(&volume, ROOT_INO, "dir");
    say(&volume, dir, Tiering::WriteBack).unwrap();
    assert_eq!(said(&volume, mkdir(&volume, dir, "below")), "write-back");
    let large: Vec<Ino> = (0..6)
        .map(|number| files.add(&volume, dir, &format!("large{number}"), 2 * LARGE))
        .collect();
    let reserved = files.add(&volume, dir, "reserved", LARGE);
    let space = volume.ranges(reserved);
    space.allocate(LARGE as u64, 200_000, false).unwrap();
    files.are_there(&volume, &device);
    let there: Vec<[u64; 2]> = large.iter().map(|ino| homes(&volume, *ino)).collect();
    assert!(there.iter().all(|[fast, slow]| *fast > 0 && *slow == 0));
    assert!(homes(&volume, reserved)[0] > 0);
    let blocks = |bytes: usize| bytes.next_multiple_of(4 << 10) as u64;
    let all = 6 * blocks(2 * LARGE) + blocks(LARGE + 200_000);
    assert_eq!(owed(&volume), all);
    // As long as somebody asks for something now and then, it stays.
    for _ in 0..24 {
        volume.upkeep().tick().unwrap();
        volume.getattr(dir).unwrap();
    }
    assert_eq!(owed(&volume), all);
    idle(&volume);
    assert_eq!(owed(&volume), 0);
    for (ino, [fast, _]) in large.iter().zip(&there) {
        assert_eq!(homes(&volume, *ino), [0, *fast]);
    }
    assert_eq!(homes(&volume, reserved)[0], 0);
    files.are_there(&volume, &device);
    // Then the disk may sleep.
    idle(&volume);
    let before = slow_requests(&volume);
    idle(&volume);
    assert_eq!(slow_requests(&volume), before);
    assert_eq!(volume.info().spilled_data_frags, 0);
}

/// What is written over moves again, and small overwrites go through the log as ever.
#[test]
fn what_is_written_over_is_owed_again() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dir = mkdir(&volume, ROOT_INO, "dir");
    say(&volume, dir, Tiering::WriteBack).unwrap();
    let large = files.add(&volume, dir, "large", 4 << 20);
    volume.sync().unwrap();
    idle(&volume);
    assert_eq!((owed(&volume), homes(&volume, large)[0]), (0, 0));
    let (new, few) = (content(2 << 20, 77), [7; 4096]);
    volume.write(large, 1 << 20, &new).unwrap();
    volume.write(large, 0, &few).unwrap();
    let held = files.0.get_mut(&large).unwrap();
    held[1 << 20..3 << 20].copy_from_slice(&new);
    held[..4096].copy_from_slice(&few);
    volume.sync().unwrap();
    assert_eq!(
        (owed(&volume), homes(&volume, large)[0]),
        (2 << 20, 2 << 20)
    );
    idle(&volume);
    assert_eq!((owed(&volume), homes(&volume, large)[0]), (0, 0));
    // What is removed is owed no more.
    volume.write(large, 1 << 20, &new).unwrap();
    volume.sync().unwrap();
    assert_eq!(owed(&volume), 2 << 20);
    files.are_there(&volume, &device);
    volume.unlink(dir, b"large").unwrap();
    files.0.remove(&large);
    volume.sync().unwrap();
    volume.upkeep().tick().unwrap();
    volume.sync().unwrap();
    assert_eq!(owed(&volume), 0);
    files.are_there(&volume, &device);
}

/// Nothing on the device tells of it, whether the volume was closed or not.
#[test]
fn what_is_owed_is_found_behind_another_mount() {
    let device = pair(64 << 20);
    for closes in [true, false] {
        let (mut volume, mut files) = (open(&device), Files::default());
        let dir = mkdir(&volume, ROOT_INO, if closes { "closed" } else { "killed" });
        say(&volume, dir, Tiering::WriteBack).unwrap();
        let pinned = mkdir(&volume, dir, "pinned");
        say(&volume, pinned, Tier::Fast).unwrap();
        let large = files.add(&volume, dir, "large", 9 << 20);
        let other = files.add(&volume, pinned, "other", 3 << 20);
        // A hole in what its record says.
        volume.write(large, 3 << 20, &content(LARGE, 5)).unwrap();
        let held = files.0.get_mut(&large).unwrap();
        held[3 << 20..][..LARGE].copy_from_slice(&content(LARGE, 5));
        volume.sync().unwrap();
        let before = owed(&volume);
        assert!(before >= 9 << 20);
        if closes {
            let requests = slow_requests(&volume);
            volume.close().unwrap();
            assert_eq!(slow_requests(&volume), requests, "an unmount moves nothing");
        }
        drop(volume);
        volume = open(&device);
        let info = volume.info().owed;
        assert!(info.frags == 0 && !info.is_known);
        while !volume.info().owed.is_known {
            volume.upkeep().tick().unwrap();
        }
        assert_eq!(owed(&volume), homes(&volume, large)[0]);
        idle(&volume);
        assert_eq!((owed(&volume), homes(&volume, large)[0]), (0, 0));
        assert_eq!(homes(&volume, other)[1], 0);
        files.are_there(&volume, &device);
        volume.close().unwrap();
    }
}

#[test]
fn a_full_fast_device_spills_what_is_written_back_and_gets_room_before_that() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dir = mkdir(&volume, ROOT_INO, "dir");
    say(&volume, dir, Tiering::WriteBack).unwrap();
    let mut large = Vec::new();
    // Nobody is idle, and nothing comes by the clock.
    for number in 0..30 {
        large.push(files.add(&volume, dir, &format!("large{number}"), 10 * LARGE));
        volume.sync().unwrap();
    }
    let (spilled, before) = (volume.info().spilled_data_frags, owed(&volume));
    assert!(spilled > 0 && before > 20 << 20, "{spilled} {before}");
    assert_eq!(volume.info().spilled_log_groups, 0);
    // With the clock there is room again, though somebody asks for something all the time.
    for _ in 0..6 {
        volume.upkeep().tick().unwrap();
        volume.getattr(dir).unwrap();
    }
    let left = owed(&volume);
    assert!(left > 0 && left < before - (4 << 20), "{left}");
    for number in 30..36 {
        large.push(files.add(&volume, dir, &format!("large{number}"), 10 * LARGE));
        volume.sync().unwrap();
        volume.upkeep().tick().unwrap();
    }
    assert_eq!(volume.info().spilled_data_frags, spilled);
    idle(&volume);
    assert_eq!(owed(&volume), 0);
    assert!(large.iter().all(|ino| homes(&volume, *ino)[0] == 0));
    files.are_there(&volume, &device);
}

/// Where the slow devices have no room either, it stays, and nobody tries for ever.
#[test]
fn what_has_no_room_on_the_slow_device_stays_and_goes_once_there_is_some() {
    let device = fast_and_slow([128 << 20, 32 << 20]).unwrap();
    let (volume, mut files) = (open(&device), Files::default());
    let [dir, slow] = ["dir", "slow"].map(|name| mkdir(&volume, ROOT_INO, name));
    say(&volume, dir, Tiering::WriteBack).unwrap();
    files.add(&volume, slow, "slow", 20 << 20);
    let large: Vec<Ino> = (0..10)
        .map(|number| files.add(&volume, dir, &format!("large{number}"), 10 * LARGE))
        .collect();
    volume.sync().unwrap();
    idle(&volume);
    let left = owed(&volume);
    assert!(left > 10 << 20, "{left}");
    idle(&volume);
    let before = slow_requests(&volume);
    let written = volume.info().device.total().writes;
    idle(&volume);
    assert_eq!((slow_requests(&volume), owed(&volume)), (before, left));
    assert_eq!(volume.info().device.total().writes, written);
    files.are_there(&volume, &device);
    volume.unlink(slow, b"slow").unwrap();
    files.0.retain(|ino, _| large.contains(ino));
    volume.sync().unwrap();
    for _ in 0..3 {
        volume.upkeep().checkpoint().unwrap();
    }
    idle(&volume);
    assert!(owed(&volume) < left);
    files.are_there(&volume, &device);
}

/// Files that were written in turns come to stand one behind the other, in few requests.
#[test]
fn what_is_owed_goes_in_one_sweep() {
    let device = pair(128 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dirs = ["one", "two"].map(|name| mkdir(&volume, ROOT_INO, name));
    for dir in dirs {
        say(&volume, dir, Tiering::WriteBack).unwrap();
    }
    let made = |files: &mut Files, number: usize| {
        files.add(&volume, dirs[number % 2], &format!("{number}"), LARGE)
    };
    let large: Vec<Ino> = (0..8).map(|number| made(&mut files, number)).collect();
    for round in 1..8 {
        for ino in &large {
            let at = files.0[ino].len() as u64;
            let bytes = content(LARGE, round);
            volume.write(*ino, at, &bytes).unwrap();
            files.0.get_mut(ino).unwrap().extend(bytes);
            volume.sync().unwrap();
        }
    }
    let runs = |ino: Ino| {
        let mut end = None;
        let (pieces, next) = volume.ranges(ino).map(0).unwrap();
        assert_eq!(next, None);
        let starts = pieces.iter().filter(|piece| {
            let Place::Home(at) = piece.place else {
                return false;
            };
            end.replace(at + piece.len) != Some(at)
        });
        starts.count()
    };
    let before: usize = large.iter().map(|ino| runs(*ino)).sum();
    assert!(before >= 48, "{before}");
    let [_, writes] = slow_requests(&volume);
    let bytes = owed(&volume);
    volume.upkeep().settle(usize::MAX).unwrap();
    idle(&volume);
    assert_eq!(owed(&volume), 0);
    let after: usize = large.iter().map(|ino| runs(*ino)).sum();
    assert!(after <= 10, "{after} pieces of 8 files");
    let writes = slow_requests(&volume)[1] - writes;
    assert!(
        writes <= bytes / (512 << 10),
        "{writes} writes of {bytes} bytes"
    );
    files.are_there(&volume, &device);
}

/// What a sweep meets that began before it was written is no reason to stop: the rest of it stayed on the fast device then.
#[test]
fn what_is_written_within_a_sweep_goes_with_the_next_one() {
    let device = pair(192 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dir = mkdir(&volume, ROOT_INO, "dir");
    say(&volume, dir, Tiering::WriteBack).unwrap();
    let add = |files: &mut Files, name: &str| files.add(&volume, dir, name, 70 << 20);
    let first = add(&mut files, "first");
    volume.sync().unwrap();
    let before = owed(&volume);
    while owed(&volume) == before {
        volume.upkeep().tick().unwrap();
    }
    assert!(owed(&volume) > 0, "it ends before anything is written");
    let second = add(&mut files, "second");
    volume.sync().unwrap();
    assert!(owed(&volume) > before);
    idle(&volume);
    idle(&volume);
    assert_eq!(owed(&volume), 0);
    assert_eq!([first, second].map(|ino| homes(&volume, ino)[0]), [0, 0]);
    files.are_there(&volume, &device);
}

/// Whether its name moves, changes places with another one, or is its first one: what it has on fast devices is owed from then on.
#[test]
fn what_comes_into_a_directory_that_writes_back_is_owed() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let [fast, back] = ["fast", "back"].map(|name| mkdir(&volume, ROOT_INO, name));
    say(&volume, fast, Tier::Fast).unwrap();
    say(&volume, back, Tiering::WriteBack).unwrap();
    let names = ["renamed", "exchanged", "stays"];
    let large = names.map(|name| files.add(&volume, fast, name, 3 << 20));
    let small = files.add(&volume, fast, "small", 3000);
    files.add(&volume, back, "other", LARGE);
    volume.sync().unwrap();
    idle(&volume);
    assert_eq!(owed(&volume), 0);
    let rename = |name: &str, to: &str, exchange: bool| {
        let flags = RenameFlags {
            exchange,
            ..RenameFlags::default()
        };
        let renamed = volume.rename(fast, name.as_bytes(), back, to.as_bytes(), flags);
        renamed.unwrap();
    };
    rename("renamed", "renamed", false);
    rename("small", "small", false);
    rename("exchanged", "other", true);
    assert!(!volume.info().owed.is_known);
    volume.upkeep().tick().unwrap();
    assert_eq!(
        (owed(&volume), volume.info().owed.is_known),
        (6 << 20, true)
    );
    idle(&volume);
    assert_eq!(owed(&volume), 0);
    let there = large.map(|ino| homes(&volume, ino)[0]);
    assert_eq!(there, [0, 0, 3 << 20]);
    assert_eq!(homes(&volume, small), [0, 0]);
    // And what leaves it before it has moved stays.
    volume
        .rename(fast, b"stays", back, b"stays", RenameFlags::default())
        .unwrap();
    volume.upkeep().tick().unwrap();
    assert_eq!(owed(&volume), 3 << 20);
    volume
        .rename(back, b"stays", fast, b"stays", RenameFlags::default())
        .unwrap();
    idle(&volume);
    assert_eq!((owed(&volume), homes(&volume, large[2])[0]), (0, 3 << 20));
    files.are_there(&volume, &device);
}

/// What is owed of a file that is full of holes took memory without end. What has no room there is found again.
#[test]
fn more_pieces_than_memory_has_room_for_are_moved_all_the_same() {
    let device = pair(128 << 20);
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(5)).unwrap();
    let (mut files, block) = (Files::default(), 16 << 10);
    let dir = mkdir(&volume, ROOT_INO, "dir");
    say(&volume, dir, Tiering::WriteBack).unwrap();
    let large = files.add(&volume, dir, "large", LARGE);
    let ranges = volume.ranges(large);
    ranges.allocate(0, 96 << 20, true).unwrap();
    volume.sync().unwrap();
    for number in (40..(96 << 20) / block).step_by(2) {
        volume.ranges(large).punch(number * block, block).unwrap();
    }
    files.0.get_mut(&large).unwrap().resize(96 << 20, 0);
    volume.sync().unwrap();
    let there = homes(&volume, large)[0];
    assert!(
        there > 40 << 20 && owed(&volume) < there,
        "{there} {}",
        owed(&volume)
    );
    assert!(!volume.info().owed.is_known);
    for _ in 0..20 {
        idle(&volume);
    }
    assert!(volume.info().owed.is_known);
    assert_eq!((owed(&volume), homes(&volume, large)[0]), (0, 0));
    files.are_there(&volume, &device);
}

/// Where the volume places what is written next says the directory, whatever it said before.
#[test]
fn a_directory_may_change_its_mind_about_writing_back() {
    let device = pair(64 << 20);
    let (volume, mut files) = (open(&device), Files::default());
    let dir = mkdir(&volume, ROOT_INO, "dir");
    carry(&volume, dir, Tier::Fast);
    let large = files.add(&volume, dir, "large", 4 << 20);
    volume.sync().unwrap();
    // What is there goes to where it stays at once.
    let done = carry(&volume, dir, Tiering::WriteBack);
    assert_eq!((done.files, homes(&volume, large)[0]), (1, 0));
    let later = files.add(&volume, dir, "later", 4 << 20);
    volume.sync().unwrap();
    assert!(owed(&volume) >= 4 << 20);
    carry(&volume, dir, Tier::Fast);
    idle(&volume);
    assert_eq!(owed(&volume), 0);
    for ino in [large, later] {
        assert_eq!(homes(&volume, ino)[1], 0);
    }
    carry(&volume, dir, Tiering::WriteBack);
    let last = files.add(&volume, dir, "last", 4 << 20);
    volume.sync().unwrap();
    assert!(homes(&volume, last)[0] > 0);
    carry(&volume, dir, Tiering::Bypass);
    assert_eq!((owed(&volume), homes(&volume, last)[0]), (0, 0));
    assert_eq!(said(&volume, dir), "bypass");
    let new = files.add(&volume, dir, "new", LARGE);
    volume.sync().unwrap();
    assert_eq!(homes(&volume, new)[0], 0);
    files.are_there(&volume, &device);
}

/// A copy of what the fast device holds stands on a slow one: writing there first would cost that a write more.
#[test]
fn where_the_slow_device_has_a_copy_nothing_waits_to_be_written_back() {
    for copy in [CopyKind::Each, CopyKind::Behind] {
        let options = MkfsOptions {
            copy: Some(copy),
            ..MkfsOptions::default()
        };
        let device = fast_and_slow_with([64 << 20, 256 << 20], &options).unwrap();
        let (volume, mut files) = (open(&device), Files::default());
        let dir = mkdir(&volume, ROOT_INO, "dir");
        say(&volume, dir, Tiering::WriteBack).unwrap();
        let large = files.add(&volume, dir, "large", LARGE);
        files.are_there(&volume, &device);
        assert_eq!((homes(&volume, large)[0], owed(&volume)), (0, 0));
    }
}
