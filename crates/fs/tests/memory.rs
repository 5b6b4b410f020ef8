//! A volume far larger than its caches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::made;
use loamfs_device::{Counters, Device, DeviceError, Read, Write};
use loamfs_fs::{Env, Ino, NewInode, OpenOptions, ROOT_INO, RenameFlags, Volume};
use std::sync::{Arc, Condvar, Mutex};

const NEW: NewInode = NewInode::of_mode(0o644);

/// Too small for the inodes below.
fn open(device: &Arc<dyn Device>) -> Volume {
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(device), &options, Env::fixed(2)).unwrap()
}

fn name(kind: &str, i: usize) -> Vec<u8> {
    format!("{kind}{i}").into_bytes()
}

#[test]
fn inodes_that_were_made_do_not_stay_in_memory() {
    let volume = open(&made(4 << 30));
    for i in 0..20_000 {
        volume.create(ROOT_INO, &name("f", i), &NEW).unwrap();
    }
    volume.sync().unwrap();
    volume.getattr(ROOT_INO).unwrap();
    // An inode for 16 KiB of the caches.
    assert!(volume.info().cached_inodes <= 512 + 1);
}

#[test]
fn operations_on_several_inodes_keep_them_while_others_are_dropped() {
    const DIRS: usize = 1_200;
    let device = made(4 << 30);
    let volume = open(&device);
    let dirs: Vec<Ino> = (0..DIRS)
        .map(|i| {
            let dir = volume.mkdir(ROOT_INO, &name("d", i), &NEW).unwrap().ino;
            volume.mkdir(dir, b"sub", &NEW).unwrap();
            dir
        })
        .collect();
    volume.close().unwrap();
    let volume = open(&device);
    // Each goes over the empty one in another directory.
    for from in (0..DIRS).step_by(2) {
        let to = (from + 601) % DIRS;
        volume
            .rename(dirs[from], b"sub", dirs[to], b"sub", RenameFlags::default())
            .unwrap();
    }
    volume.close().unwrap();
    let volume = open(&device);
    for dir in dirs.iter().skip(1).step_by(2) {
        let sub = volume.lookup(*dir, b"sub").unwrap();
        assert_eq!(volume.lookup(sub.ino, b"..").unwrap().ino, *dir);
    }
    assert_eq!(volume.info().inodes as usize, 1 + DIRS + DIRS / 2);
}

/// A device that keeps the thread [`HELD`] waiting when it reads, until it is told to go on.
struct Holding {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    changed: Condvar,
}

const HELD: &str = "held";

#[derive(Default)]
struct State {
    waits: bool,
    goes_on: bool,
}

impl Holding {
    fn wait_while(&self, condition: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_while(state, |state| condition(state));
        drop(waited.unwrap());
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Device for Holding {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn rotational(&self) -> bool {
        self.device.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        if std::thread::current().name() == Some(HELD) {
            self.tell(|state| state.waits = true);
            self.wait_while(|state| !state.goes_on);
        }
        self.device.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        self.device.write(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        self.device.discard(ranges)
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }
}

/// Under load some operation always waits for the device; what the others read meanwhile is not kept for it.
#[test]
fn an_operation_that_waits_keeps_nothing_of_the_others_in_memory() {
    const FILES: usize = 2_000;
    let device = made(4 << 30);
    let volume = open(&device);
    for i in 0..FILES {
        let file = volume.create(ROOT_INO, &name("f", i), &NEW).unwrap().ino;
        volume.write(file, 0, &[i as u8; 10_000]).unwrap();
    }
    volume.close().unwrap();
    let holding = Arc::new(Holding {
        device,
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let volume = open(&(holding.clone() as Arc<dyn Device>));
    let read = |i: usize| {
        let file = volume.lookup(ROOT_INO, &name("f", i)).unwrap().ino;
        assert_eq!(volume.read(file, 9_999, 1).unwrap(), [i as u8]);
    };
    std::thread::scope(|scope| {
        let held = std::thread::Builder::new().name(HELD.into());
        held.spawn_scoped(scope, || read(0)).unwrap();
        holding.wait_while(|state| !state.waits);
        let others = scope.spawn(|| {
            (1..FILES).for_each(read);
            volume.info().pinned_blocks
        });
        let pinned = others.join();
        holding.tell(|state| state.goes_on = true);
        assert_eq!(pinned.unwrap(), 0);
    });
    assert_eq!(volume.info().pinned_blocks, 0);
    volume.close().unwrap();
}

#[test]
fn an_eighth_of_a_small_volume_waits_however_large_the_caches_are() {
    let options = OpenOptions {
        cache_bytes: 1 << 30,
        ..OpenOptions::default()
    };
    let volume = Volume::open(made(256 << 20), &options, Env::fixed(3)).unwrap();
    for i in 0..100 {
        let file = volume.create(ROOT_INO, &name("f", i), &NEW).unwrap().ino;
        volume.write(file, 0, &vec![1; 1 << 20]).unwrap();
        assert!(volume.info().dirty_home_bytes <= 32 << 20);
    }
    volume.close().unwrap();
}
