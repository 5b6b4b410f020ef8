//! Sections of fast devices: blocks of large files are given out by extents that are aligned to flash blocks (hybridFS, Y3, Y5, Y6).

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::Device;
use loamfs_format::Ino;
use loamfs_format::superblock::RO_COMPATIBLE_SECTIONS;
use loamfs_fs::{
    Arranging, Env, Error, ExtentUse, MkfsOptions, NewInode, OpenOptions, Place, ROOT_INO, Section,
    Tier, Tiering, Volume, mkfs, superblocks,
};
use loamfs_testing::files::content;
use loamfs_testing::pair::{fast_and_slow, fast_and_slow_with};
use std::sync::Arc;

const EXTENT: u64 = 128 << 10;

fn section() -> Option<Section> {
    Section::new(EXTENT, EXTENT)
}

/// A fast device of 64 MiB, which has a section, and a slow one of four times as many bytes.
fn pair(section: Option<Section>) -> Arc<dyn Device> {
    let options = MkfsOptions {
        section,
        ..MkfsOptions::default()
    };
    fast_and_slow_with([64 << 20, 256 << 20], &options).unwrap()
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(Arc::clone(device), &OpenOptions::default(), Env::fixed(5)).unwrap()
}

/// Large files stand on the fast device.
fn on_fast(device: &Arc<dyn Device>) -> Volume {
    let volume = open(device);
    let mut carrying = Arranging::carrying(ROOT_INO, Tiering::On(Tier::Fast));
    while volume.upkeep().arrange(&mut carrying).unwrap() {}
    volume
}

fn file(volume: &Volume, name: &str, bytes: usize) -> Ino {
    let made = volume.create(ROOT_INO, name.as_bytes(), &NewInode::of_mode(0o644));
    let ino = made.unwrap().ino;
    volume.write(ino, 0, &content(bytes, 1)).unwrap();
    volume.sync().unwrap();
    ino
}

/// Where homes of a file begin, in bytes of the volume, and how long they are.
fn homes(volume: &Volume, ino: Ino) -> Vec<(u64, u64)> {
    let pieces = volume.ranges(ino).map(0).unwrap().0.into_iter();
    let home = |place| match place {
        Place::Home(at) | Place::Image { home: at, .. } => Some(at),
        _ => None,
    };
    let homes = pieces.filter_map(|piece| Some((home(piece.place)?, piece.len)));
    homes.collect()
}

fn extents(volume: &Volume) -> Option<ExtentUse> {
    volume.info().members[0].extents
}

fn is_sound(device: &Arc<dyn Device>) {
    let report = check(device.as_ref(), &mut Options::default());
    let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
    assert!(report.problems.iter().all(sound), "{report}");
}

#[test]
fn files_begin_at_borders_of_flash_blocks_with_each_mount() {
    let device = pair(section());
    let volume = on_fast(&device);
    let mut files = Vec::new();
    for number in 0..6 {
        let ino = file(&volume, &format!("file{number}"), 70_000 + number * 50_000);
        files.push((ino, 70_000 + number * 50_000));
        assert_eq!(homes(&volume, ino)[0].0 % EXTENT, 0, "{number}");
    }
    let before = extents(&volume).unwrap();
    assert!(before.open > 0 && before.clean > 100, "{before:?}");
    assert_eq!(before.unknown, 0);
    volume.close().unwrap();
    is_sound(&device);
    let volume = open(&device);
    assert!(extents(&volume).unwrap().unknown > 0);
    for (ino, bytes) in files {
        assert!(volume.read(ino, 0, bytes).unwrap() == content(bytes, 1));
    }
    let later = file(&volume, "later", 90_000);
    assert_eq!(homes(&volume, later)[0].0 % EXTENT, 0);
    assert_eq!(extents(&volume).unwrap().unknown, 0);
    volume.close().unwrap();
    is_sound(&device);
}

/// What is freed is clean again, and nothing of a file's end is lost while it grows.
#[test]
fn a_file_that_grows_goes_on_in_its_extent() {
    let device = pair(section());
    let volume = on_fast(&device);
    let clean = extents(&volume).unwrap().clean;
    let ino = file(&volume, "grows", 80_000);
    file(&volume, "other", 80_000);
    let mut at = 80_000;
    while at < 1_000_000 {
        volume.write(ino, at, &content(40_000, 2)).unwrap();
        volume.sync().unwrap();
        at += 40_000;
    }
    let homes = homes(&volume, ino);
    assert!(homes.len() > 5, "{homes:?}");
    for pair in homes.windows(2) {
        let [(before, len), (at, _)] = [pair[0], pair[1]];
        assert!(at == before + len || at % EXTENT == 0, "{homes:?}");
    }
    let used = extents(&volume).unwrap();
    assert!(used.lost * 1024 * 2 < used.shut * EXTENT, "{used:?}");
    for name in ["grows", "other"] {
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
    }
    for _ in 0..4 {
        volume.sync().unwrap();
        volume.upkeep().tick().unwrap();
    }
    volume.close().unwrap();
    assert_eq!(extents(&open(&device)).unwrap().clean, clean);
}

/// They come and go while the volume is used, and programs that do not know them do not write meanwhile.
#[test]
fn a_section_comes_and_goes() {
    let device = pair(None);
    let volume = on_fast(&device);
    let knows = || {
        let sb = superblocks::find(device.as_ref()).unwrap().newest;
        (
            sb.ro_compatible & RO_COMPATIBLE_SECTIONS != 0,
            sb.devices[0].section,
        )
    };
    assert_eq!((knows(), extents(&volume)), ((false, None), None));
    let old = file(&volume, "old", 100_000);
    let stands = homes(&volume, old);
    volume.upkeep().set_section(0, section()).unwrap();
    assert_eq!(knows(), (true, section()));
    assert_eq!(homes(&volume, old), stands);
    let new = file(&volume, "new", 100_000);
    assert_eq!(homes(&volume, new)[0].0 % EXTENT, 0);
    // As a daemon that is killed.
    drop(volume);
    let volume = open(&device);
    assert!(extents(&volume).is_some());
    let virtually = Section::new(1 << 20, 64 << 10);
    volume.upkeep().set_section(0, virtually).unwrap();
    let third = file(&volume, "third", 100_000);
    assert_eq!(homes(&volume, third)[0].0 % (1 << 20), 0);
    volume.upkeep().set_section(0, None).unwrap();
    assert_eq!((knows(), extents(&volume)), ((false, None), None));
    volume.close().unwrap();
    is_sound(&device);
}

#[test]
fn what_cannot_have_a_section_is_refused_in_words() {
    let device = pair(None);
    let volume = open(&device);
    let refused = |result: Result<(), Error>, words: &str| match result {
        Err(Error::Options(text)) => assert!(text.contains(words), "{text}"),
        other => panic!("{other:?}"),
    };
    let set = |device, section| volume.upkeep().set_section(device, section);
    refused(set(7, section()), "no device 7");
    refused(
        set(0, Section::new(64 << 20, 4096)),
        "no longer than a group",
    );
    volume.close().unwrap();
    let options = MkfsOptions {
        section: Section::new(4096, 64 << 20),
        ..MkfsOptions::default()
    };
    let made = fast_and_slow_with([64 << 20, 256 << 20], &options);
    refused(made.map(drop), "no longer than a group");
    let plain = fast_and_slow([64 << 20, 64 << 20]).unwrap();
    refused(mkfs(&plain, &options, &Env::fixed(1)), "--fast");
}

/// The fast device takes as many bytes with a section as without.
#[test]
fn a_section_is_no_reason_for_anything_to_spill() {
    let taken = [None, section(), Section::new(512 << 10, 64 << 10)].map(|section| {
        let device = pair(section);
        let volume = on_fast(&device);
        let mut bytes = 0;
        for number in 0.. {
            let ino = file(
                &volume,
                &format!("file{number}"),
                70_000 + number % 7 * 30_000,
            );
            let fast = homes(&volume, ino)
                .into_iter()
                .filter(|(at, _)| *at < 64 << 20);
            let fast: u64 = fast.map(|(_, len)| len).sum();
            bytes += fast;
            if fast == 0 {
                break;
            }
        }
        volume.close().unwrap();
        is_sound(&device);
        bytes
    });
    // What is found last may be a block less or more.
    let least = taken.iter().min().unwrap() + (256 << 10);
    assert!(taken.iter().all(|bytes| *bytes <= least), "{taken:?}");
    assert!(taken[0] > 32 << 20, "{taken:?}");
}
