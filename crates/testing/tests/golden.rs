//! Volumes that were written once stay readable, byte by byte, and what is written today has not changed.
//!
//! `golden/NAME.img.gz` are volumes, `NAME.list` what they hold, `NAME.dump` every structure of them, `made` the
//! checksums of what the programs make today. What to do when a test fails stands in docs/FORMAT.md, "Golden volumes";
//! the variable `GOLDEN` has these files rewritten:
//!
//! - `new`: keeps the first volume of a new program,
//! - `made`: takes the checksums of today,
//! - `dump`: takes today's wording of the dumps.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::BlockKind;
use loamfs_fs::{CopyKind, Env, OpenOptions, Volume};
use loamfs_testing::golden::{
    ALL, BEHIND, BYPASSED, COPIED, GAP, Golden, LIMITED, Numbers, PAIR, SECTIONED, TIERED, dumps,
    joined_with_gap, listing,
};
use loamfs_testing::pair::Pair;
use xxhash_rust::xxh3::xxh3_64;

fn kept(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

fn wish() -> String {
    std::env::var("GOLDEN").unwrap_or_default()
}

/// The kept volume.
fn image(golden: &Golden) -> Image {
    let path = kept(&format!("{}.img.gz", golden.name));
    let packed = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    Image::from_bytes(bytes)
}

fn device(image: Image) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_image(image).with_sector_size(512))
}

/// The device of a golden volume, or all of them.
fn whole(golden: &Golden, image: Image) -> Arc<dyn Device> {
    on(golden, device(image))
}

fn on(golden: &Golden, device: Arc<dyn Device>) -> Arc<dyn Device> {
    match golden.name {
        name if [
            PAIR.name,
            TIERED.name,
            LIMITED.name,
            BYPASSED.name,
            SECTIONED.name,
        ]
        .contains(&name) =>
        {
            Pair::default().joined(&device).unwrap()
        }
        name if [COPIED.name, BEHIND.name].contains(&name) => {
            let pair = Pair {
                copy: Some(match name == BEHIND.name {
                    true => CopyKind::Behind,
                    false => CopyKind::Each,
                }),
                ..Pair::default()
            };
            pair.joined(&device).unwrap()
        }
        name if name == GAP.name => joined_with_gap(&device).unwrap(),
        _ => device,
    }
}

fn listed(golden: &Golden, image: Image, numbers: Numbers) -> String {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(whole(golden, image), &options, Env::fixed(99)).unwrap();
    listing(&volume, numbers).unwrap()
}

/// The golden volumes, those of several devices among them.
fn all() -> impl Iterator<Item = Golden> {
    ALL.into_iter().chain([
        PAIR, TIERED, LIMITED, BYPASSED, SECTIONED, COPIED, BEHIND, GAP,
    ])
}

/// Compares a kept text with what there is now.
fn same(file: &str, now: &str) {
    same_text(file, &fs::read_to_string(kept(file)).unwrap(), now);
}

fn same_text(file: &str, then: &str, now: &str) {
    let differs = then.lines().zip(now.lines()).find(|(a, b)| a != b);
    if let Some((then, now)) = differs {
        panic!("{file}\n  then: {then}\n  now:  {now}");
    }
    assert_eq!(then.len(), now.len(), "{file} ends elsewhere");
}

fn assert_sound(golden: &Golden, image: Image) {
    let name = golden.name;
    let mut options = Options::default();
    let report = check(whole(golden, image).as_ref(), &mut options);
    let serious = report
        .problems
        .iter()
        .filter(|problem| problem.severity() > Severity::Note);
    assert_eq!(serious.count(), 0, "{name}: {report}");
    assert!(report.unchecked.is_empty(), "{name}: {report}");
}

/// Keeps the volumes of programs that have none yet.
fn keep_new() {
    for golden in all().filter(|_| wish() == "new") {
        let path = kept(&format!("{}.img.gz", golden.name));
        if path.exists() {
            continue;
        }
        let image = (golden.make)().unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&image.to_vec()).unwrap();
        fs::write(path, packed.finish().unwrap()).unwrap();
        let text = |kind: &str, text: String| {
            fs::write(kept(&format!("{}.{kind}", golden.name)), text).unwrap();
        };
        text("list", listed(&golden, image.clone(), Numbers::Theirs));
        text("dump", dumps(whole(&golden, image).as_ref()).unwrap());
    }
}

#[test]
fn kept_volumes_hold_what_they_held() {
    keep_new();
    for golden in all() {
        let image = image(&golden);
        same(
            &format!("{}.list", golden.name),
            &listed(&golden, image.clone(), Numbers::Theirs),
        );
        assert_sound(&golden, image);
    }
}

#[test]
fn kept_volumes_can_be_written_to() {
    for golden in all() {
        let before = listed(&golden, image(&golden), Numbers::Theirs);
        let device = device(image(&golden));
        let opened = on(&golden, device.clone());
        let volume = Volume::open(opened, &OpenOptions::default(), Env::fixed(99)).unwrap();
        volume.upkeep().tick().unwrap();
        volume.close().unwrap();
        let after = listed(&golden, device.image(), Numbers::Theirs);
        assert_eq!(after, before, "{}", golden.name);
        assert_sound(&golden, device.image());
    }
}

#[test]
fn every_structure_of_the_kept_volumes_is_dumped_as_it_was() {
    for golden in all() {
        let file = format!("{}.dump", golden.name);
        let now = dumps(whole(&golden, image(&golden)).as_ref()).unwrap();
        if wish() == "dump" {
            fs::write(kept(&file), &now).unwrap();
        }
        same(&file, &now);
    }
}

#[test]
fn the_programs_make_the_same_bytes_as_before() {
    let mut made = String::new();
    for golden in all() {
        let image = (golden.make)().unwrap();
        made += &format!("{} {:016x}\n", golden.name, xxh3_64(&image.to_vec()));
        // Wherever things are put, and whatever numbers inodes get, what the volume holds is the same.
        let listed = |image: Image| listed(&golden, image, Numbers::InOrder);
        same_text(
            golden.name,
            &listed(self::image(&golden)),
            &listed(image.clone()),
        );
        assert_sound(&golden, image);
    }
    if wish() == "made" || wish() == "new" {
        fs::write(kept("made"), &made).unwrap();
    }
    assert_eq!(
        fs::read_to_string(kept("made")).unwrap(),
        made,
        "other bytes are written now: see docs/FORMAT.md, \"Golden volumes\""
    );
}

/// A golden volume is of use only for what is in it.
#[test]
fn the_kept_volumes_have_everything_that_the_format_knows() {
    let text: String = all()
        .map(|golden| fs::read_to_string(kept(&format!("{}.dump", golden.name))).unwrap())
        .collect();
    let has = |piece: &str| assert!(text.contains(piece), "no {piece:?}");
    for kind in BlockKind::ALL {
        match kind {
            // Data and superblocks stand in no record of their own.
            BlockKind::Superblock | BlockKind::InodeBlock => {}
            kind if kind.is_node() => has(&format!("\n{kind:?} level 0 ")),
            kind => has(&format!(" {kind:?} level 0 ")),
        }
    }
    for record in [
        "allocate",
        "free",
        "retire",
        "inode block",
        "home",
        "revoke",
        "settled",
        "until segment",
        "until both superblocks",
        "anchors +1",
        " delta of inode ",
        "Normal at",
        "Checkpoint at",
        "Mount at",
    ] {
        has(record);
    }
    for body in [
        "no content",
        "inline \"",
        "inline directory",
        "\ndata at",
        "extents\n",
        "\nextent tree",
        "\ndirectory tree",
        "attribute tree",
        "being cut to",
        "stored 1025 ",
        "more that do not count",
        "read-only compatible 0x2",
        "incompatible 0x2",
        "incompatible 0x4",
        "incompatible 0x8",
        "incompatible 0x28",
        "device 0, fast: ",
        ", and a copy of the first one",
        " unwritten\n",
        ", unwritten: ",
        " is Log",
        " is Data",
        "DirNode level 1",
        "orphan 0000",
    ] {
        has(body);
    }
    // Two names of one hash: keys that differ in the discriminator only.
    let keys: BTreeSet<u64> = text
        .lines()
        .filter(|line| line.contains(" type "))
        .filter_map(|line| u64::from_str_radix(line.get(..16)?, 16).ok())
        .collect();
    assert!(keys.iter().any(|key| keys.contains(&(key + 1))));
}

/// Finds two names with the same hash: a walk from name to hash to name comes to a circle, and the two ways into it
/// end in different names before the same hash (Brent 1980). Takes half a minute in a release build.
#[test]
#[ignore = "a tool: finds the names that `golden/sound.rs` needs"]
fn find_names_that_collide() {
    let sound = image(&ALL[0]);
    let device = device(sound);
    let key = loamfs_check::Volume::open(device.as_ref())
        .unwrap()
        .superblock()
        .hash_key;
    let name = |seed: u64| format!("{seed:014x}");
    let digits = b"0123456789abcdef";
    let step = |seed: u64| {
        let mut text = [0; 14];
        for (i, digit) in text.iter_mut().enumerate() {
            *digit = digits[(seed >> (52 - 4 * i) & 15) as usize];
        }
        loamfs_format::dirent::hash_key(&key, &text) >> 8
    };
    let (mut power, mut length) = (1_u64, 1_u64);
    let (mut slow, mut fast) = (1, step(1));
    while slow != fast {
        if power == length {
            (slow, power, length) = (fast, power * 2, 0);
        }
        fast = step(fast);
        length += 1;
    }
    let (mut one, mut other) = (1, (0..length).fold(1, |at, _| step(at)));
    while step(one) != step(other) {
        (one, other) = (step(one), step(other));
    }
    println!("{} and {}", name(one), name(other));
    assert_ne!(one, other);
}
