//! Reads that run without the lock while what they read is freed and its place used for something else (rule 13), and
//! write-out while more is written; and what a read that waits keeps in memory. A device lets others go first, at a read or
//! write that the test chooses.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, IoKind, MemoryDevice};
use loamfs_format::Ino;
use loamfs_fs::{Env, Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, SetAttr, Volume, mkfs};
use loamfs_testing::busy::{Busy, told};
use loamfs_testing::left_out;
use loamfs_testing::rng::Rng;
use std::sync::Arc;
use std::sync::mpsc::channel;

const NEW: NewInode = NewInode::of_mode(0o644);
const EIO: i32 = 5;

fn open(memory: MemoryDevice) -> (Arc<Busy>, Arc<Volume>) {
    let busy = Arc::new(Busy::new(memory));
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    let volume = left_out::open(busy.clone(), &options, Env::fixed(2)).unwrap();
    (busy, Arc::new(volume))
}

fn made(size: u64, options: &MkfsOptions) -> MemoryDevice {
    let memory = Arc::new(MemoryDevice::new(size).with_rotational(false));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, options, &Env::fixed(1)).unwrap();
    memory.fork()
}

/// Files of every sort: how long each is.
const SIZES: [usize; 4] = [100, 3_000, 9_000, 150_000];
const FILES: usize = 40;
/// Enough names for a directory that is a tree.
const NAMES: usize = 200;

fn name(file: usize) -> String {
    format!("a file with a rather long name, number {file}")
}

/// What a file holds once it was written `version` times: its bytes tell which.
fn content(file: usize, version: usize) -> Vec<u8> {
    vec![(file * 7 + version) as u8; SIZES[file % SIZES.len()]]
}

fn fill(volume: &Volume, version: usize) {
    for file in 0..FILES {
        let ino = match volume.lookup(ROOT_INO, name(file).as_bytes()) {
            Ok(attr) => attr.ino,
            Err(_) => {
                volume
                    .create(ROOT_INO, name(file).as_bytes(), &NEW)
                    .unwrap()
                    .ino
            }
        };
        volume.write(ino, 0, &content(file, version)).unwrap();
    }
}

/// A small volume, so that space is used again soon.
fn small() -> MemoryDevice {
    let options = MkfsOptions {
        block_size: 16384,
        group_size: Some(512 << 10),
        segment_max: Some(256 << 10),
        ..MkfsOptions::default()
    };
    let (busy, volume) = open(made(13 << 20, &options));
    for i in FILES..NAMES {
        volume.create(ROOT_INO, name(i).as_bytes(), &NEW).unwrap();
    }
    fill(&volume, 0);
    volume.sync().unwrap();
    // What belongs together lies far apart, so that no read brings all of it.
    for i in 0..24 {
        written(&volume, format!("{i}").as_bytes(), 16_000);
    }
    volume.sync().unwrap();
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    for file in 0..FILES {
        let ino = volume.lookup(ROOT_INO, name(file).as_bytes()).unwrap().ino;
        volume.setattr(ino, &mode).unwrap();
    }
    volume.sync().unwrap();
    for i in 0..24 {
        volume.unlink(ROOT_INO, format!("{i}").as_bytes()).unwrap();
    }
    volume.close().unwrap();
    busy.fork()
}

/// Everything that was there is written anew, removed, made and checkpointed, over and over.
fn churn(volume: &Volume, rng: &mut Rng) {
    for version in 1..=30 {
        fill(volume, version);
        for _ in 0..8 {
            let spare = name(FILES + rng.index(NAMES - FILES));
            match volume.unlink(ROOT_INO, spare.as_bytes()) {
                Ok(()) => {}
                Err(_) => drop(volume.create(ROOT_INO, spare.as_bytes(), &NEW).unwrap()),
            }
        }
        volume.sync().unwrap();
        if rng.index(3) == 0 {
            volume.upkeep().checkpoint().unwrap();
        }
    }
}

/// Uses a volume from cold: what is read must be of one version, whichever.
fn look(volume: &Volume, file: usize) -> Result<(), Error> {
    let attr = volume.lookup(ROOT_INO, name(file).as_bytes())?;
    let bytes = volume.read(attr.ino, 0, attr.size as usize)?;
    let version = bytes[0].wrapping_sub((file * 7) as u8);
    assert_eq!(bytes, content(file, version.into()), "file {file}");
    let mut at = 2;
    let mut seen = 0;
    loop {
        let entries = volume.readdir(ROOT_INO, at, 16)?;
        let Some(last) = entries.last() else { break };
        at = last.next;
        seen += entries.len();
    }
    assert!((FILES..=NAMES).contains(&seen));
    Ok(())
}

/// Blocks of small files, inode blocks and tree nodes that were freed and overwritten while they were read were EIO.
#[test]
fn a_read_that_was_overtaken_is_made_again() {
    let base = small();
    for seed in 0..90u64 {
        let mut rng = Rng::new(seed);
        let file = rng.index(FILES);
        let (busy, volume) = open(base.fork());
        let (other, mut others) = (Arc::clone(&volume), Rng::new(seed ^ 77));
        let hook = Box::new(move || churn(&other, &mut others));
        let kinds = [IoKind::Metadata, IoKind::SmallData, IoKind::Homed];
        let skip = if seed % 3 == 0 { rng.index(6) } else { 0 };
        busy.at(Some(kinds[seed as usize % 3]), skip as u64, hook);
        look(&volume, file).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if busy.idle() {
            continue;
        }
        look(&volume, file).unwrap();
        volume.close().unwrap();
    }
}

fn written(volume: &Volume, name: &[u8], len: usize) -> Ino {
    let ino = volume.create(ROOT_INO, name, &NEW).unwrap().ino;
    volume.write(ino, 0, &vec![5; len]).unwrap();
    ino
}

/// A block may be freed and its place reused, and in the end the very same pointer be there again, so that it looks as
/// if it had always been: only as long as nothing that was freed since can have been reused, a mismatch is damage.
#[test]
fn a_block_that_may_have_been_reused_meanwhile_is_read_again() {
    let base = made(16 << 20, &MkfsOptions::default());
    let (busy, volume) = open(base);
    written(&volume, b"f", 40_000);
    volume.close().unwrap();
    let (busy, volume) = open(busy.fork());
    let ino = volume.lookup(ROOT_INO, b"f").unwrap().ino;
    let (other, device) = (Arc::clone(&volume), Arc::clone(&busy));
    let hook = Box::new(move || {
        for i in 0..3 {
            other
                .create(ROOT_INO, format!("{i}").as_bytes(), &NEW)
                .unwrap();
            other.sync().unwrap();
        }
        // The read and its repetition.
        device.garble(2);
    });
    busy.at(Some(IoKind::Homed), 0, hook);
    assert!(volume.read(ino, 0, 4096).unwrap() == [5; 4096]);
    assert!(!busy.idle());
}

/// What no one freed is damaged, and an error, at once.
#[test]
fn a_block_that_stands_and_does_not_verify_is_an_error() {
    let base = made(16 << 20, &MkfsOptions::default());
    let (busy, volume) = open(base);
    written(&volume, b"f", 40_000);
    volume.close().unwrap();
    let (busy, volume) = open(busy.fork());
    let ino = volume.lookup(ROOT_INO, b"f").unwrap().ino;
    // Brings what leads there into memory.
    volume.read(ino, 8192, 4096).unwrap();
    busy.garble(2);
    let read = volume.read(ino, 0, 4096).map(|_| ());
    assert_eq!(read.unwrap_err().errno(), EIO);
    assert!(volume.read(ino, 0, 4096).unwrap() == [5; 4096]);
}

/// Write-out counted rounds, and what was written meanwhile at the file's start took them from its end; and the size
/// that segments showed ended where that had been written.
#[test]
fn fsync_covers_a_files_end_while_its_start_is_written_again() {
    let base = made(256 << 20, &MkfsOptions::default());
    let (busy, volume) = open(base);
    let options = OpenOptions {
        dirty_max: Some(128 << 20),
        ..OpenOptions::default()
    };
    drop(volume);
    let volume = Arc::new(left_out::open(busy.clone(), &options, Env::fixed(3)).unwrap());
    let len = 20 << 20;
    let ino = written(&volume, b"f", len);
    let other = Arc::clone(&volume);
    let hook = Box::new(move || {
        other.write(ino, 0, &vec![6; 16 << 20]).unwrap();
    });
    busy.at(Some(IoKind::Homed), 0, hook);
    volume.fsync(ino, false).unwrap();
    assert!(!busy.idle());
    let (_, volume) = open(busy.fork());
    let bytes = volume.read(ino, 0, len).unwrap();
    assert_eq!(bytes.len(), len);
    let old_or_new = |byte: &u8| *byte == 5 || *byte == 6;
    assert!(bytes[..16 << 20].iter().all(old_or_new));
    assert!(bytes[16 << 20..].iter().all(|byte| *byte == 5));
}

/// Clauses of rule 13, and the test above that notices when one is left out.
const CLAUSES: [(&str, &str); 2] = [
    (
        "mismatch-unquestioned",
        "a_read_that_was_overtaken_is_made_again",
    ),
    (
        "reuse-unsuspected",
        "a_block_that_may_have_been_reused_meanwhile_is_read_again",
    ),
];

#[test]
fn every_clause_is_missed_when_it_is_left_out() {
    assert_eq!(left_out::unmissed(&CLAUSES).unwrap(), []);
}

/// Under load some operation always waits for the device; what the others read meanwhile is not kept for it.
#[test]
fn a_read_that_waits_keeps_nothing_of_the_others_in_memory() {
    const FILES: usize = 2_000;
    let (busy, volume) = open(made(256 << 20, &MkfsOptions::default()));
    let name = |i: usize| format!("f{i}").into_bytes();
    for i in 0..FILES {
        let file = volume.create(ROOT_INO, &name(i), &NEW).unwrap().ino;
        volume.write(file, 0, &[i as u8; 10_000]).unwrap();
    }
    volume.close().unwrap();
    let (busy, volume) = open(busy.fork());
    let read = move |volume: &Volume, i: usize| {
        let file = volume.lookup(ROOT_INO, &name(i)).unwrap().ino;
        assert_eq!(volume.read(file, 9_999, 1).unwrap(), [i as u8]);
    };
    let (tell, said) = channel();
    let others = Arc::clone(&volume);
    let hook = move || {
        // What the read that waits has fetched so far.
        let before = others.info().pinned_blocks;
        (1..FILES).for_each(|i| read(&others, i));
        let after = others.info().pinned_blocks;
        tell.send((before, after)).unwrap();
    };
    busy.at(None, 0, Box::new(hook));
    read(&volume, 0);
    assert!(!busy.idle());
    let (before, after) = told(&said).unwrap();
    assert_eq!(before, after);
    assert_eq!(volume.info().pinned_blocks, 0);
}
