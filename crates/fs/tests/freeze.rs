//! A volume that takes no changes for a while: nobody writes it, itself included.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{Discard, Env, Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

fn open(memory: &Arc<MemoryDevice>, read_only: bool) -> Volume {
    let options = OpenOptions {
        read_only,
        discard: Discard::Always,
        ..OpenOptions::default()
    };
    Volume::open(memory.clone(), &options, Env::fixed(2)).unwrap()
}

fn made() -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = memory.clone();
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    memory
}

#[test]
fn a_frozen_volume_is_not_written_and_holds_all_that_was_done() {
    let memory = made();
    let volume = open(&memory, false);
    let unlinked = volume.create(ROOT_INO, b"unlinked", &NEW).unwrap().ino;
    volume.open_file(unlinked).unwrap();
    volume.write(unlinked, 0, &[1; 100_000]).unwrap();
    volume.unlink(ROOT_INO, b"unlinked").unwrap();
    let ino = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(ino, 0, &[7; 100_000]).unwrap();
    volume.upkeep().freeze().unwrap();
    let before = memory.counters();
    assert!(!volume.info().access.is_writable());
    volume.upkeep().freeze().unwrap();
    // The last user of a file without a name goes, the clock ticks, and somebody asks for what writes.
    volume.release_file(unlinked).unwrap();
    volume.upkeep().tick().unwrap();
    volume.sync().unwrap();
    volume.upkeep().settle(usize::MAX).unwrap();
    let made = volume.create(ROOT_INO, b"late", &NEW);
    assert!(matches!(made, Err(Error::ReadOnly)));
    assert!(matches!(
        volume.write(ino, 0, b"late"),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(
        volume.upkeep().trim(0, u64::MAX, 0),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(
        volume.upkeep().set_label(b"late"),
        Err(Error::ReadOnly)
    ));
    let now = memory.counters();
    assert_eq!(now.total().writes, before.total().writes);
    assert_eq!(
        (now.flushes(), now.discards()),
        (before.flushes(), before.discards())
    );
    // Whoever looks at the device sees everything.
    let copy = Arc::new(memory.fork());
    let read = open(&copy, true).read(ino, 0, 200_000).unwrap();
    assert_eq!(read, [7; 100_000]);

    volume.upkeep().thaw().unwrap();
    volume.write(ino, 0, b"again").unwrap();
    volume.close().unwrap();
    let volume = open(&memory, false);
    assert_eq!(volume.read(ino, 0, 6).unwrap(), b"again\x07");
    volume.upkeep().tick().unwrap();
    assert!(matches!(volume.getattr(unlinked), Err(Error::Stale(_))));
}

#[test]
fn a_volume_that_is_frozen_when_it_is_closed_is_whole() {
    let memory = made();
    let volume = open(&memory, false);
    volume.create(ROOT_INO, b"f", &NEW).unwrap();
    volume.upkeep().freeze().unwrap();
    volume.close().unwrap();
    open(&memory, true).lookup(ROOT_INO, b"f").unwrap();
}

#[test]
fn what_was_opened_for_reading_only_stays_so() {
    let memory = made();
    let volume = open(&memory, true);
    volume.upkeep().freeze().unwrap();
    assert!(matches!(volume.upkeep().thaw(), Err(Error::ReadOnly)));
    let made = volume.create(ROOT_INO, b"f", &NEW);
    assert!(matches!(made, Err(Error::ReadOnly)));
}
