//! A panic in the middle of an operation: nothing of the half of it that was done ever reaches the device.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, IoKind, Issued, MemoryDevice, ObservedDevice, Observer, Op};
use loamfs_fs::env::{Clock, ManualClock};
use loamfs_fs::types::Timestamp;
use loamfs_fs::{Access, Env, Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use loamfs_testing::loam::check_device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An operation on the volume of [`made`].
type Work = fn(&Volume);

const NEW: NewInode = NewInode::of_mode(0o644);

/// A clock that panics once, when it has been looked at so often.
struct Trap {
    clock: ManualClock,
    looks: AtomicU32,
}

impl Trap {
    fn new() -> Arc<Trap> {
        Arc::new(Trap {
            clock: ManualClock::new(1_700_000_000),
            looks: AtomicU32::new(u32::MAX),
        })
    }

    fn set(&self, looks: u32) {
        self.looks.store(looks, Ordering::Relaxed);
    }

    fn look(&self) {
        assert!(self.looks.fetch_sub(1, Ordering::Relaxed) != 0, "the trap");
    }
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        self.look();
        self.clock.now()
    }

    fn elapsed(&self) -> Duration {
        self.look();
        self.clock.elapsed()
    }
}

fn volume(memory: &Arc<MemoryDevice>, trap: &Arc<Trap>) -> Volume {
    let env = Env::seeded(trap.clone(), 7);
    Volume::open(memory.clone(), &OpenOptions::default(), env).unwrap()
}

/// A volume with a small file and a large one, durable.
fn made(trap: &Arc<Trap>) -> (Arc<MemoryDevice>, Volume) {
    let memory = Arc::new(MemoryDevice::new(32 << 20));
    let device: Arc<dyn Device> = memory.clone();
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = volume(&memory, trap);
    let small = volume.create(ROOT_INO, b"small", &NEW).unwrap().ino;
    volume.write(small, 0, b"what it was").unwrap();
    let large = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
    volume.write(large, 0, &[3; 200_000]).unwrap();
    volume.sync().unwrap();
    (memory, volume)
}

/// Runs `work` with the trap set after so many looks; whether it went off.
fn springs(trap: &Trap, looks: u32, work: impl FnOnce()) -> bool {
    trap.set(looks);
    let sprung = catch_unwind(AssertUnwindSafe(work)).is_err();
    trap.set(u32::MAX);
    sprung
}

/// Nothing is written any more, what is sound is read, and the next mount finds what was durable.
fn assert_broken(memory: &Arc<MemoryDevice>, volume: &Volume, what: &str) {
    let before = memory.image();
    assert!(matches!(volume.info().access, Access::Broken(_)), "{what}");
    let refused = |result: Result<(), Error>| {
        assert!(
            matches!(result, Err(Error::Broken(_))),
            "{what}: {result:?}"
        );
    };
    refused(volume.create(ROOT_INO, b"new", &NEW).map(|_| ()));
    refused(volume.sync());
    refused(volume.upkeep().commit(loamfs_fs::Durability::Written));
    refused(volume.upkeep().freeze());
    refused(volume.upkeep().thaw());
    refused(volume.upkeep().set_label(b"label"));
    refused(volume.upkeep().trim(0, u64::MAX, 0).map(|_| ()));
    volume.upkeep().tick().unwrap();
    volume.upkeep().settle(usize::MAX).unwrap();
    let large = volume.lookup(ROOT_INO, b"large").unwrap().ino;
    assert_eq!(volume.read(large, 0, 4).unwrap(), [3; 4], "{what}");
    refused(volume.close());
    assert_eq!(memory.image().to_vec(), before.to_vec(), "{what}");
}

fn assert_as_before(memory: &Arc<MemoryDevice>, what: &str) {
    assert_eq!(
        check_device(memory.as_ref()),
        Vec::<String>::new(),
        "{what}"
    );
    let volume = volume(memory, &Trap::new());
    let small = volume.lookup(ROOT_INO, b"small").unwrap();
    assert_eq!(small.nlink, 1, "{what}");
    assert_eq!(volume.read(small.ino, 0, 100).unwrap(), b"what it was");
    volume.close().unwrap();
}

#[test]
fn half_an_operation_is_never_sealed() {
    let works: [(&str, Work); 4] = [
        ("unlink", |volume| {
            volume.unlink(ROOT_INO, b"small").unwrap();
        }),
        ("create", |volume| {
            volume.create(ROOT_INO, b"another", &NEW).unwrap();
        }),
        ("link", |volume| {
            let ino = volume.lookup(ROOT_INO, b"small").unwrap().ino;
            volume.link(ino, ROOT_INO, b"link").unwrap();
        }),
        ("write", |volume| {
            let ino = volume.lookup(ROOT_INO, b"small").unwrap().ino;
            volume.write(ino, 0, b"WHAT").unwrap();
        }),
    ];
    for (name, work) in works {
        assert_springs(name, |_| (), work);
    }
}

#[test]
fn half_a_segment_is_never_followed_by_another() {
    let waits = |volume: &Volume| {
        volume.create(ROOT_INO, b"waits", &NEW).unwrap();
    };
    assert_springs("sync", waits, |volume| volume.sync().unwrap());
}

/// Whenever `work` looks at the clock and panics there, the volume is broken, and whole at the next mount.
fn assert_springs(name: &str, before: impl Fn(&Volume), work: impl Fn(&Volume)) {
    let mut sprung = 0;
    for looks in 0..16 {
        let trap = Trap::new();
        let (memory, volume) = made(&trap);
        before(&volume);
        if !springs(&trap, looks, || work(&volume)) {
            break;
        }
        sprung += 1;
        let what = format!("{name}, look {looks}");
        assert_broken(&memory, &volume, &what);
        assert_as_before(&memory, &what);
    }
    assert!(sprung > 0, "{name} never looks at the clock");
}

/// Panics at the next write of a kind, once.
struct Bomb(Mutex<Option<IoKind>>);

impl Observer for Bomb {
    fn issued(&self, request: Issued) {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if request.op == Op::Write && *armed == Some(request.kind) {
            *armed = None;
            panic!("the bomb");
        }
    }
}

/// A volume on a device that panics at the next write of this kind.
fn armed(kind: IoKind) -> (Arc<MemoryDevice>, Arc<Volume>) {
    let (memory, volume) = made(&Trap::new());
    volume.close().unwrap();
    let bomb = Bomb(Mutex::new(None));
    let device = Arc::new(ObservedDevice::new(memory.clone(), bomb));
    let options = OpenOptions {
        flights: 1,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device.clone(), &options, Env::fixed(3)).unwrap();
    *device.observer().0.lock().unwrap() = Some(kind);
    (memory, Arc::new(volume))
}

#[test]
fn whoever_waits_for_a_write_that_panicked_is_told() {
    for kind in [IoKind::Segment, IoKind::Homed] {
        let (memory, volume) = armed(kind);
        let small = volume.lookup(ROOT_INO, b"small").unwrap().ino;
        let large = volume.lookup(ROOT_INO, b"large").unwrap().ino;
        volume.write(small, 0, b"WHAT").unwrap();
        volume.write(large, 200_000, &[4; 200_000]).unwrap();
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| volume.upkeep().write_behind());
            let syncs = [(); 3].map(|()| threads.spawn(|| volume.sync()));
            // One of them may be the one that panicked; nobody is left waiting.
            let told = syncs.map(|sync| sync.join());
            let fine = told.iter().filter(|told| matches!(told, Ok(Ok(()))));
            assert_eq!(fine.count(), 0, "{kind:?}");
            volume.upkeep().end_write_behind();
            let _ = writer.join();
        });
        assert!(matches!(volume.info().access, Access::Broken(_)));
        assert_as_before(&memory, "after the bomb");
    }
}
