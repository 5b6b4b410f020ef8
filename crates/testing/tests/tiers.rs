//! Directories that say on which devices the blocks of large files go: new ones, those that are there, and when there is no room.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::Ino;
use loamfs_format::group::Role;
use loamfs_format::superblock::RO_COMPATIBLE_LIMIT;
use loamfs_fs::{
    Arranged, Arranging, Env, Error, MkfsOptions, NewInode, OpenOptions, Place, ROOT_INO, TIER,
    Tier, Tiering, Volume, mkfs, superblocks,
};
use loamfs_testing::files::content;
use loamfs_testing::pair::fast_and_slow;
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
    for tier in Tier::ALL {
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
            (tier == Tier::Fast, tier != Tier::Fast),
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
    let known = || {
        let sb = superblocks::find(device.as_ref()).unwrap().newest;
        sb.ro_compatible & RO_COMPATIBLE_LIMIT != 0
    };
    assert!(!known());
    say(&volume, ROOT_INO, Tiering::of_word("1M").unwrap()).unwrap();
    assert!(known());
}
