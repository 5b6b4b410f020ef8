//! What is damaged on the device is found, named and, where there is a copy, written anew.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{made, open};
use loamfs_device::{
    Device, IoKind, Issued, MemoryDevice, ObservedDevice, Observer, Op, Read, Write,
};
use loamfs_format::summary::HEADER_SIZE;
use loamfs_format::superblock;
use loamfs_fs::{
    Damaged, Env, Ino, MkfsOptions, NewInode, Place, ROOT_INO, Volume, XattrMode, mkfs, superblocks,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

const LARGE: usize = 1 << 20;

/// A scrub from beginning to end.
fn scrubbed(volume: &Volume) -> (Vec<Damaged>, u64) {
    let (mut damaged, mut bytes) = (Vec::new(), 0);
    volume.scrub().begin(true);
    loop {
        let mut step = volume.scrub().step().unwrap();
        assert!(step.untold.is_empty(), "{:?}", step.untold);
        damaged.append(&mut step.damaged);
        bytes += step.bytes;
        if step.ended {
            return (damaged, bytes);
        }
    }
}

fn file(volume: &Volume, dir: Ino, name: &[u8], content: &[u8]) -> Ino {
    let new = NewInode::of_mode(0o644);
    let ino = volume.create(dir, name, &new).unwrap().ino;
    volume.write(ino, 0, content).unwrap();
    ino
}

/// A volume with a bit of everything, synced.
fn full(device: &Arc<dyn Device>) -> Volume {
    let volume = open(device);
    let dir = volume.mkdir(ROOT_INO, b"dir", &NewInode::of_mode(0o755));
    let dir = dir.unwrap().ino;
    for number in 0..500u32 {
        let name = format!("a file with a name that is not short, {number}");
        let content = vec![number as u8; (number as usize * 37) % 5000];
        let ino = file(&volume, dir, name.as_bytes(), &content);
        if number % 50 == 0 {
            volume
                .xattrs(ino)
                .set(b"user.long", &vec![7; 3000], XattrMode::Any)
                .unwrap();
        }
    }
    let large = file(&volume, dir, b"large", &vec![1; LARGE]);
    volume.sync().unwrap();
    for at in (0..LARGE as u64).step_by(128 << 10) {
        volume.write(large, at, &[2; 4096]).unwrap();
        volume.fsync(large, true).unwrap();
    }
    volume.sync().unwrap();
    volume
}

/// Changes a bit of a byte on the device.
fn flip(device: &Arc<dyn Device>, at: u64) {
    let start = at / 4096 * 4096;
    let mut batch = [Read::new(start, 4096, IoKind::Homed)];
    device.read(&mut batch);
    let [read] = batch;
    let mut bytes = read.into_result().unwrap().to_vec();
    bytes[(at - start) as usize] ^= 4;
    let write = [Write::new(start, &bytes, IoKind::Homed)];
    for result in device.write(&write) {
        result.unwrap();
    }
}

#[test]
fn a_sound_volume_is_read_whole_and_found_sound() {
    let device = made(64 << 20);
    let volume = full(&device);
    let (damaged, bytes) = scrubbed(&volume);
    assert!(damaged.is_empty(), "{damaged:?}");
    assert!(bytes > (LARGE + 500 * 1000) as u64, "{bytes}");
    let mark = volume.scrub().mark();
    assert_eq!((mark.next.0, mark.damaged), (0, 0));
    assert_ne!(mark.until, 0);
}

#[test]
fn what_is_damaged_is_found_and_named() {
    let device = made(64 << 20);
    let volume = full(&device);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let large = volume.lookup(dir, b"large").unwrap().ino;
    let small = b"a file with a name that is not short, 499";
    let small = volume.lookup(dir, small).unwrap().ino;
    let mut damaged_at = BTreeSet::new();
    for ino in [large, small] {
        let (pieces, _) = volume.ranges(ino).map(0).unwrap();
        for piece in pieces {
            let (Place::Home(at) | Place::Log(at) | Place::Image { image: at, .. }) = piece.place
            else {
                continue;
            };
            flip(&device, at + 5);
            damaged_at.insert((ino, at / 1024));
        }
    }
    assert!(damaged_at.len() > 8, "{damaged_at:?}");
    // Nothing of it is in memory any more.
    volume.upkeep().drop_caches().unwrap();
    let (damaged, _) = scrubbed(&volume);
    let found = damaged.iter().map(|it| (it.ino.unwrap(), it.addr.0));
    assert_eq!(found.collect::<BTreeSet<_>>(), damaged_at);
    assert!(damaged.iter().all(|it| !it.healed));
    let path = volume.path_of(large).unwrap().unwrap();
    assert_eq!(path, b"dir/large");
    assert_eq!(volume.scrub().mark().damaged, damaged_at.len() as u64);
}

#[test]
fn what_memory_still_has_is_written_anew() {
    let device = made(64 << 20);
    let volume = full(&device);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    let small = b"a file with a name that is not short, 499";
    let small = volume.lookup(dir, small).unwrap().ino;
    volume.upkeep().drop_caches().unwrap();
    let content = volume.read(small, 0, 5000).unwrap();
    let (pieces, _) = volume.ranges(small).map(0).unwrap();
    let [Place::Log(at)] = pieces.iter().map(|piece| piece.place).collect::<Vec<_>>()[..] else {
        panic!("{pieces:?}");
    };
    flip(&device, at);
    let (damaged, _) = scrubbed(&volume);
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert!(damaged[0].healed);
    volume.scrub().keep().unwrap();
    volume.upkeep().drop_caches().unwrap();
    assert_eq!(volume.read(small, 0, 5000).unwrap(), content);
    assert!(scrubbed(&volume).0.is_empty());
}

#[test]
fn superblocks_and_summaries_are_written_anew() {
    let device = made(64 << 20);
    let volume = full(&device);
    let records = || {
        let copies = superblocks::read(device.as_ref()).unwrap();
        copies.newest.checkpoint.addr.0 * 1024 + HEADER_SIZE as u64
    };
    let places: [&dyn Fn() -> u64; 3] = [
        &|| superblock::OFFSETS[0] + 200,
        &|| superblock::OFFSETS[1] + 4000,
        &records,
    ];
    for place in places {
        let at = place();
        flip(&device, at);
        let (damaged, _) = scrubbed(&volume);
        assert_eq!(damaged.len(), 1, "{at}: {damaged:?}");
        assert!(damaged[0].healed);
        assert!(scrubbed(&volume).0.is_empty(), "{at}");
    }
    drop(volume);
    assert!(superblocks::read(device.as_ref()).unwrap().older.is_some());
}

#[test]
fn a_scrub_goes_on_where_it_was_kept() {
    let device = made(64 << 20);
    let volume = full(&device);
    volume.scrub().begin(false);
    volume.scrub().step().unwrap();
    let mark = volume.scrub().mark();
    assert!(mark.next.0 > 1);
    volume.scrub().keep().unwrap();
    drop(volume);
    let volume = open(&device);
    assert_eq!(volume.scrub().mark(), mark);
    volume.scrub().begin(false);
    assert_eq!(volume.scrub().mark(), mark);
    volume.scrub().begin(true);
    assert_eq!(volume.scrub().mark().next.0, 1);
}

/// Tells workers to end once it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is freed and used again while it is read is not damaged (rule 13).
#[test]
fn nothing_is_damaged_that_others_change_meanwhile() {
    let device = made(64 << 20);
    let volume = full(&device);
    let stop = AtomicBool::new(false);
    let work = |worker: u32| {
        let name = format!("large {worker}");
        let large = file(&volume, ROOT_INO, name.as_bytes(), &vec![1; LARGE]);
        for round in 0u64.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            for number in 0..20 {
                let name = format!("{worker}, {number}");
                let _ = volume.unlink(ROOT_INO, name.as_bytes());
                file(&volume, ROOT_INO, name.as_bytes(), &vec![round as u8; 3000]);
            }
            let at = round * 7919 % (LARGE as u64 / 4096) * 4096;
            volume.write(large, at, &[round as u8; 8192]).unwrap();
            volume.fsync(large, true).unwrap();
            if round % 16 == 0 {
                volume.upkeep().settle(1000).unwrap();
                volume.upkeep().checkpoint().unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|worker| {
            drop(scope.spawn({
                let work = &work;
                move || work(worker)
            }))
        });
        // The workers end also where this panics.
        let _stop = Stop(&stop);
        for _ in 0..30 {
            let (damaged, _) = scrubbed(&volume);
            assert!(damaged.is_empty(), "{damaged:?}");
        }
    });
}

/// Begins a scrub anew at each read of the device, once it has a volume.
#[derive(Default)]
struct Impatient(OnceLock<Weak<Volume>>);

impl Observer for Impatient {
    fn issued(&self, request: Issued) {
        if request.op == Op::Read
            && let Some(volume) = self.0.get().and_then(Weak::upgrade)
        {
            volume.scrub().begin(true);
        }
    }
}

#[test]
fn a_scrub_that_begins_anew_during_a_step_begins_at_the_beginning() {
    let impatient = Arc::new(Impatient::default());
    let memory = MemoryDevice::new(64 << 20);
    let device: Arc<dyn Device> = Arc::new(ObservedDevice::new(memory, Arc::clone(&impatient)));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = Arc::new(full(&device));
    volume.scrub().begin(true);
    let beginning = volume.scrub().mark().next;
    volume.scrub().step().unwrap();
    assert_ne!(volume.scrub().mark().next, beginning);
    impatient.0.set(Arc::downgrade(&volume)).unwrap();
    let step = volume.scrub().step().unwrap();
    assert!(step.bytes > 0 && !step.ended);
    assert_eq!(volume.scrub().mark().next, beginning);
}
