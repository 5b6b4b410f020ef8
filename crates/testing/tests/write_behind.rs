//! Many threads at once, segments in flight, and power cuts while all of them run: what an fsync promised is there
//! (rules 4 and 8).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, check};
use loamfs_device::{
    Counters, Device, DeviceError, Image, IoKind, Member, MemoryDevice, Read, Write as DeviceWrite,
};
use loamfs_fs::{
    Discard, Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, RenameFlags, SetAttr, Volume, mkfs,
};
use loamfs_testing::rng::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const NEW: NewInode = NewInode::of_mode(0o644);
const FILES: usize = 200;
const WRITERS: usize = 4;
const CUTS: u64 = 12;
/// How long a clock sleeps that has nothing to do.
const TICK: Duration = Duration::from_millis(1);

/// A device with a volatile cache: what no flush has covered may be lost.
struct Cached {
    memory: MemoryDevice,
    /// On a rotating device segments are written one after the other.
    rotational: bool,
    volatile: Mutex<Volatile>,
}

struct Volatile {
    stable: Image,
    /// Writes that have completed since.
    pending: Vec<(u64, Vec<u8>)>,
}

impl Cached {
    fn new(memory: MemoryDevice, rotational: bool) -> Self {
        let stable = memory.image();
        Self {
            memory,
            rotational,
            volatile: Mutex::new(Volatile {
                stable,
                pending: Vec::new(),
            }),
        }
    }

    /// What a power cut leaves: some of the pending writes, chosen by `rng`.
    fn cut(&self, rng: &mut Rng) -> Image {
        let volatile = self.volatile.lock().unwrap();
        let mut image = volatile.stable.clone();
        for (offset, data) in &volatile.pending {
            if rng.one_in(2) {
                image.write(*offset, data).unwrap();
            }
        }
        image
    }
}

impl Device for Cached {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn sector_size(&self) -> u32 {
        self.memory.sector_size()
    }
    fn write_align(&self) -> u32 {
        self.memory.write_align()
    }
    fn rotational(&self) -> bool {
        self.rotational
    }
    fn read(&self, batch: &mut [Read]) {
        self.memory.read(batch);
    }
    fn write(&self, batch: &[DeviceWrite<'_>]) -> Vec<Result<(), DeviceError>> {
        // A long write takes long, so that other segments are sealed and written meanwhile.
        if batch.iter().any(|write| write.kind == IoKind::Segment) {
            thread::yield_now();
        }
        let results = self.memory.write(batch);
        let mut volatile = self.volatile.lock().unwrap();
        for write in batch {
            volatile.pending.push((write.offset, write.data.to_vec()));
        }
        results
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let mut volatile = self.volatile.lock().unwrap();
        let Volatile { stable, pending } = &mut *volatile;
        for (offset, data) in pending.drain(..) {
            stable.write(offset, &data)?;
        }
        Ok(())
    }
    fn discard(&self, _: &[(u64, u64)]) -> Result<(), DeviceError> {
        Ok(())
    }
    fn counters(&self) -> Counters {
        self.memory.counters()
    }

    fn members(&self) -> &[Member] {
        self.memory.members()
    }
}

fn content(writer: usize, file: usize) -> Vec<u8> {
    // Inline, small, and large files.
    let len = [100, 3_000, 16_000, 70_000][file % 4] + writer;
    (0..len)
        .map(|i| (i * 7 + file * 13 + writer) as u8)
        .collect()
}

fn name(writer: usize, file: usize) -> String {
    format!("w{writer}-f{file}")
}

/// Makes files, overwrites some of them, and notes which are promised.
fn work(volume: &Volume, writer: usize, promised: &Mutex<Vec<(usize, usize)>>) {
    for file in 0..FILES {
        let name = name(writer, file);
        let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
        let bytes = content(writer, file);
        let half = bytes.len() / 2;
        volume.write(ino, 0, &vec![0xee; bytes.len()]).unwrap();
        if file % 3 == 0 {
            volume.fsync(ino, false).unwrap();
        }
        volume.write(ino, half as u64, &bytes[half..]).unwrap();
        volume.write(ino, 0, &bytes[..half]).unwrap();
        if file % 2 == 0 {
            volume.fsync(ino, false).unwrap();
            promised.lock().unwrap().push((writer, file));
        }
    }
}

/// Runs writers, each once, while threads write behind them, `cut` cuts the power with ever new seeds, and `clock` runs
/// again and again.
fn at_once(
    volume: &Volume,
    work: &(dyn Fn(usize) + Sync),
    cut: &(dyn Fn(u64) + Sync),
    clock: &(dyn Fn() + Sync),
) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let behind = [(); 2].map(|()| scope.spawn(|| volume.upkeep().write_behind()));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || work(writer)))
            .collect();
        let clock = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                clock();
            }
        });
        let cutter = scope.spawn(|| {
            let mut seed = 0;
            while seed < CUTS || !done.load(Ordering::Relaxed) && seed < 10 * CUTS {
                seed += 1;
                cut(seed);
            }
        });
        let results: Vec<_> = writers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        done.store(true, Ordering::Relaxed);
        let others = [cutter.join(), clock.join()];
        volume.upkeep().end_write_behind();
        behind.into_iter().for_each(|thread| thread.join().unwrap());
        let all = results.into_iter().chain(others);
        all.for_each(|result| result.unwrap());
    });
}

fn assert_promised(image: Image, promised: &[(usize, usize)], seed: u64) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(image));
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(seed)).unwrap();
    for (writer, file) in promised {
        let name = name(*writer, *file);
        let attr = volume.lookup(ROOT_INO, name.as_bytes()).unwrap();
        let wanted = content(*writer, *file);
        let found = volume.read(attr.ino, 0, wanted.len() + 1).unwrap();
        assert!(found == wanted, "cut {seed}: {name} was promised");
    }
}

#[test]
fn what_fsync_promised_survives_a_power_cut_while_segments_are_in_flight() {
    [false, true].into_iter().for_each(promises_hold);
}

fn promises_hold(rotational: bool) {
    let memory = Arc::new(MemoryDevice::new(96 << 20));
    let device: Arc<dyn Device> = Arc::clone(&memory) as Arc<dyn Device>;
    let options = MkfsOptions {
        // Small segments: several of them at once.
        segment_max: Some(128 << 10),
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    let cached = Arc::new(Cached::new(memory.fork(), rotational));
    let options = OpenOptions {
        flights: 3,
        dirty_max: Some(1 << 20),
        ..OpenOptions::default()
    };
    let device: Arc<dyn Device> = Arc::clone(&cached) as Arc<dyn Device>;
    let volume = Volume::open(device, &options, Env::fixed(2)).unwrap();
    let promised = Mutex::new(Vec::new());
    let cut = |seed| {
        // The promises first: the cut comes after them.
        let known = promised.lock().unwrap().clone();
        assert_promised(cached.cut(&mut Rng::new(seed)), &known, seed);
    };
    let work = |writer| work(&volume, writer, &promised);
    at_once(&volume, &work, &cut, &|| thread::sleep(TICK));
    volume.close().unwrap();
    let known = promised.into_inner().unwrap();
    assert_eq!(known.len(), WRITERS * FILES / 2);
    assert_promised(cached.cut(&mut Rng::new(99)), &known, 99);
}

/// Units of each large file that are never cut away.
const BASE: u64 = 64;
const UNIT: usize = 4096;
const ROUNDS: u64 = 150;

/// A unit that tells which write it came from.
fn unit(version: u64) -> Vec<u8> {
    let mut bytes = vec![version as u8; UNIT];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn version(bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == unit(version), "a unit is of no single write");
    version
}

/// The oldest version that each unit of each writer's file may have after a crash.
type Floors = Mutex<Vec<Vec<u64>>>;

/// Overwrites, appends, cuts, renames and removes without end in sight, and syncs now and then.
fn churn(volume: &Volume, writer: usize, floors: &Floors) {
    let mut rng = Rng::new(writer as u64);
    let (base, other) = (format!("base-{writer}"), format!("other-{writer}"));
    let over = format!("over-{writer}");
    let first = volume.create(ROOT_INO, over.as_bytes(), &NEW).unwrap().ino;
    volume.write(first, 0, &unit(1).repeat(20)).unwrap();
    volume.fsync(first, false).unwrap();
    let ino = volume.create(ROOT_INO, base.as_bytes(), &NEW).unwrap().ino;
    let mut versions = vec![1; BASE as usize];
    volume
        .write(ino, 0, &unit(1).repeat(BASE as usize))
        .unwrap();
    for round in 2..ROUNDS {
        let at = rng.below(BASE);
        let count = 1 + rng.below(if round % 5 == 0 { BASE } else { 3 });
        for at in at..(at + count).min(BASE) {
            volume.write(ino, at * UNIT as u64, &unit(round)).unwrap();
            versions[at as usize] = round;
        }
        // What stands behind is cut away and grows again, often while it is written out.
        let size = (BASE + rng.below(64)) * UNIT as u64;
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        volume.setattr(ino, &set).unwrap();
        volume.write(ino, size, &unit(round).repeat(8)).unwrap();
        let moving = volume.create(ROOT_INO, other.as_bytes(), &NEW).unwrap().ino;
        volume.write(moving, 0, &unit(round).repeat(20)).unwrap();
        match rng.below(3) {
            0 => volume.unlink(ROOT_INO, other.as_bytes()).unwrap(),
            _ => {
                let flags = RenameFlags::default();
                let (from, to) = (other.as_bytes(), over.as_bytes());
                volume.rename(ROOT_INO, from, ROOT_INO, to, flags).unwrap();
            }
        }
        if rng.one_in(3) {
            volume.fsync(ino, false).unwrap();
            floors.lock().unwrap()[writer].clone_from(&versions);
        }
    }
    volume.fsync(ino, false).unwrap();
    floors.lock().unwrap()[writer].clone_from(&versions);
}

fn is_not_behind(image: Image, floors: &[Vec<u64>], seed: u64) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(image));
    let options = OpenOptions::default();
    let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(seed)).unwrap();
    for (writer, floors) in floors
        .iter()
        .enumerate()
        .filter(|(_, f)| f.iter().any(|v| *v > 0))
    {
        let name = format!("base-{writer}");
        let attr = volume.lookup(ROOT_INO, name.as_bytes()).unwrap();
        let found = volume.read(attr.ino, 0, BASE as usize * UNIT).unwrap();
        assert_eq!(found.len(), BASE as usize * UNIT, "cut {seed}: {name}");
        for (at, (bytes, floor)) in found.chunks(UNIT).zip(floors).enumerate() {
            let found = version(bytes);
            assert!(
                found >= *floor,
                "cut {seed}: {name}, unit {at}: {found}, not {floor}"
            );
        }
        // What took the place of another file brought its data along (rule 3).
        let over = format!("over-{writer}");
        let attr = volume.lookup(ROOT_INO, over.as_bytes()).unwrap();
        assert_eq!(attr.size, 20 * UNIT as u64, "cut {seed}: {over}");
        let found = volume.read(attr.ino, 0, 20 * UNIT).unwrap();
        let first = version(&found[..UNIT]);
        assert!(found.chunks(UNIT).all(|bytes| version(bytes) == first));
    }
    volume.close().unwrap();
    let mut options = Options::default();
    let report = check(&*device, &mut options);
    assert!(report.is_clean(), "cut {seed}: {report}");
}

#[test]
fn large_files_are_never_behind_their_last_sync_while_all_is_written_and_settled_at_once() {
    [false, true].into_iter().for_each(files_keep_up);
}

fn files_keep_up(rotational: bool) {
    let memory = Arc::new(MemoryDevice::new(48 << 20));
    let device: Arc<dyn Device> = Arc::clone(&memory) as Arc<dyn Device>;
    let options = MkfsOptions {
        group_size: Some(1 << 20),
        segment_max: Some(256 << 10),
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    let cached = Arc::new(Cached::new(memory.fork(), rotational));
    let options = OpenOptions {
        flights: 3,
        dirty_max: Some(2 << 20),
        commit_age_ms: 0,
        discard: Discard::Always,
        ..OpenOptions::default()
    };
    let device: Arc<dyn Device> = Arc::clone(&cached) as Arc<dyn Device>;
    let volume = Volume::open(device, &options, Env::fixed(2)).unwrap();
    let floors: Floors = Mutex::new(vec![vec![0; BASE as usize]; WRITERS]);
    let cut = |seed| {
        let known = floors.lock().unwrap().clone();
        is_not_behind(cached.cut(&mut Rng::new(seed)), &known, seed);
    };
    let clock = || {
        volume.upkeep().tick().unwrap();
        volume.upkeep().settle(16).unwrap();
        thread::yield_now();
    };
    let churn = |writer| churn(&volume, writer, &floors);
    at_once(&volume, &churn, &cut, &clock);
    volume.close().unwrap();
    let known = floors.into_inner().unwrap();
    is_not_behind(cached.cut(&mut Rng::new(99)), &known, 99);
}
