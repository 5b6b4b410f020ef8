//! Shrinking a volume: every crash in it leaves the old size or the new one, nothing that was on it is lost, and where there is no
//! room for that it is refused with the size that has.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, IoKind, MemoryDevice, RecordingDevice, Write, read_exact};
use loamfs_fs::{
    Env, Error, MkfsOptions, NewInode, OpenOptions, Place, ROOT_INO, Volume, grow, mkfs, shrink,
};
use loamfs_testing::crashes::crashes;
use loamfs_testing::files::content;
use loamfs_testing::rng::Rng;
use loamfs_testing::several::asked_for;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Places of the superblock copies below 16 MiB.
const COPIES: [u64; 2] = [64 << 10, 128 << 10];

fn open(device: &Arc<dyn Device>, seed: u64) -> Volume {
    Volume::open(
        Arc::clone(device),
        &OpenOptions::default(),
        Env::fixed(seed),
    )
    .unwrap()
}

fn size_of(device: &Arc<dyn Device>) -> u64 {
    let volume = open(device, 9);
    let figures = volume.statfs();
    let size = figures.total * u64::from(figures.fragment_size);
    volume.close().unwrap();
    size
}

fn is_sound(device: &dyn Device) {
    let report = check(device, &mut Options::default());
    let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
    assert!(report.problems.iter().all(sound), "{report}");
}

/// A volume on memory, and what is on it: directories with small and large files, some of them deleted, some rewritten.
struct Case {
    memory: Arc<MemoryDevice>,
    rng: Rng,
    /// By directory and number: how long, and the seed of the content.
    files: BTreeMap<(u64, u64), (usize, usize)>,
}

impl Case {
    fn new(seed: u64, size: u64) -> Case {
        let memory = Arc::new(MemoryDevice::new(size));
        let case = Case {
            memory,
            rng: Rng::new(seed),
            files: BTreeMap::new(),
        };
        mkfs(&case.device(), &MkfsOptions::default(), &Env::fixed(seed)).unwrap();
        case
    }

    fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.memory) as Arc<dyn Device>
    }

    /// Writes and deletes until so many bytes are there, or the volume is full.
    fn fill(&mut self, volume: &Volume, bytes: u64) {
        for number in 0.. {
            let there: usize = self.files.values().map(|(size, _)| *size).sum();
            if there as u64 >= bytes {
                break;
            }
            let dir = self.rng.below(12);
            let parent = self.dir(volume, dir);
            let size = match self.rng.below(4) {
                0 => self.rng.between(20_000, 200_000),
                _ => self.rng.between(0, 9_000),
            } as usize;
            let name = format!("f{number}");
            let new = NewInode::of_mode(0o644);
            let Ok(attr) = volume.create(parent, name.as_bytes(), &new) else {
                break;
            };
            let wrote = volume.write(attr.ino, 0, &content(size, number));
            if wrote.ok() != Some(size) {
                volume.unlink(parent, name.as_bytes()).unwrap();
                break;
            }
            self.files.insert((dir, number as u64), (size, number));
            if self.rng.one_in(3) {
                self.delete_one(volume);
            }
            if self.rng.one_in(40) {
                volume.sync().unwrap();
            }
        }
        volume.sync().unwrap();
    }

    fn dir(&mut self, volume: &Volume, dir: u64) -> loamfs_fs::Ino {
        let name = format!("d{dir}");
        if let Ok(attr) = volume.lookup(ROOT_INO, name.as_bytes()) {
            return attr.ino;
        }
        let new = NewInode::of_mode(0o755);
        volume.mkdir(ROOT_INO, name.as_bytes(), &new).unwrap().ino
    }

    fn delete_one(&mut self, volume: &Volume) {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let Some((dir, number)) = self.files.keys().copied().nth(at) else {
            return;
        };
        self.files.remove(&(dir, number));
        let parent = self.dir(volume, dir);
        volume
            .unlink(parent, format!("f{number}").as_bytes())
            .unwrap();
    }

    /// All is there, on this device.
    fn is_whole(&self, device: &Arc<dyn Device>) {
        let volume = open(device, 7);
        for ((dir, number), (size, seed)) in &self.files {
            let parent = volume
                .lookup(ROOT_INO, format!("d{dir}").as_bytes())
                .unwrap();
            let name = format!("f{number}");
            let attr = volume.lookup(parent.ino, name.as_bytes()).unwrap();
            let bytes = volume.read(attr.ino, 0, attr.size as usize).unwrap();
            assert!(bytes == content(*size, *seed), "d{dir}/{name}");
        }
        volume.close().unwrap();
    }

    fn is_whole_and_sound(&self) {
        self.is_whole(&self.device());
        is_sound(self.memory.as_ref());
    }
}

#[test]
fn every_crash_leaves_the_old_size_or_the_new_one() {
    let (old, new) = (6 << 20, (4 << 20) - 4096);
    let mut case = Case::new(5, old);
    let volume = open(&case.device(), 2);
    case.fill(&volume, 3 << 20);
    while case.files.len() > 8 {
        case.delete_one(&volume);
    }
    volume.close().unwrap();
    let recorder = Arc::new(RecordingDevice::new(case.memory.fork()));
    let device: Arc<dyn Device> = recorder.clone();
    let sizes = shrink(&device, new, &Env::fixed(3), |_| ()).unwrap();
    assert_eq!(sizes, (old, new));
    let (mut seen, count) = ([0, 0], recorder.event_count());
    // Many writes move something, and the last few change the size.
    let some = (0..count).filter(|event| event % 8 == 0 || event + 40 > count);
    for event in some.chain([count]) {
        for image in crashes(&recorder, event).unwrap() {
            let memory = Arc::new(MemoryDevice::from_image(image.clone()));
            let device: Arc<dyn Device> = memory.clone();
            let size = size_of(&device);
            seen[usize::from(size == new)] += 1;
            assert!(size == new || size == old);
            case.is_whole(&device);
            is_sound(memory.as_ref());
            // Whichever copy rots.
            for rotten in COPIES {
                let mut image = memory.image();
                image.clear(rotten, 4096).unwrap();
                let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(image));
                assert_eq!(size_of(&device), size);
            }
            // Once more ends it.
            shrink(&device, new, &Env::fixed(4), |_| ()).unwrap();
            assert_eq!(size_of(&device), new);
            case.is_whole(&device);
            is_sound(memory.as_ref());
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// Volumes of many sizes and contents: either it becomes smaller, or a size is told, and by the sizes that are told it does.
fn shrinks(seed: u64) {
    let mut rng = Rng::new(seed);
    let old = match rng.below(3) {
        0 => rng.between(3 << 20, (16 << 20) - 1),
        _ => rng.between(20 << 20, 60 << 20),
    } >> 12
        << 12;
    let mut case = Case::new(seed, old);
    let volume = open(&case.device(), 2);
    case.fill(&volume, old * rng.between(5, 70) / 100);
    let keep = case.files.len() as u64 * rng.between(20, 100) / 100;
    while case.files.len() as u64 > keep {
        case.delete_one(&volume);
    }
    volume.close().unwrap();
    let least = if old < 16 << 20 { 2 << 20 } else { 16 << 20 };
    let mut size = rng.between(least, old - 4096) >> 12 << 12;
    for _ in 0..40 {
        let shrunk = shrink(&case.device(), size, &Env::fixed(seed), |_| ());
        println!("seed {seed}: {old} to {size}: {shrunk:?}");
        case.is_whole_and_sound();
        match shrunk {
            Ok(sizes) => {
                assert_eq!(sizes, (old, size));
                break;
            }
            Err(error) => match asked_for(&error) {
                Some(more) => {
                    assert!(more > size, "{error}");
                    assert!(more < old, "{error}");
                    size = more;
                }
                None => {
                    assert!(error.to_string().contains("too much"), "{error}");
                    break;
                }
            },
        }
    }
    let now = size_of(&case.device());
    assert!(now == size || now == old);
    // Whoever writes on finds nothing amiss, and what is taken back is free.
    let volume = open(&case.device(), 3);
    while case.files.len() > 3 {
        case.delete_one(&volume);
    }
    volume.close().unwrap();
    grow(&case.device(), None, &Env::fixed(6)).unwrap();
    case.is_whole_and_sound();
    assert_eq!(size_of(&case.device()), old);
}

#[test]
fn a_volume_becomes_smaller_or_tells_what_it_needs() {
    let given = |name| std::env::var(name).ok()?.parse().ok();
    let first: u64 = given("FIRST").unwrap_or(1);
    for seed in first..first + given("SEEDS").unwrap_or(12) {
        shrinks(seed);
    }
}

#[test]
fn sizes_that_a_volume_cannot_have_are_refused() {
    let case = Case::new(1, 20 << 20);
    let writes = || case.memory.counters().total().writes;
    let before = writes();
    for size in [21 << 20, (16 << 20) - 4096, 1 << 20] {
        let refused = shrink(&case.device(), size, &Env::fixed(3), |_| ());
        assert!(
            matches!(refused, Err(Error::Options(_))),
            "{size}: {refused:?}"
        );
    }
    assert_eq!(writes(), before);
    let same = shrink(&case.device(), (20 << 20) + 4095, &Env::fixed(3), |_| ()).unwrap();
    assert_eq!(same, (20 << 20, 20 << 20));
}

/// What is damaged cannot move, and whoever reads of "unit 5 of inode 45" does not know what to delete.
#[test]
fn a_damaged_file_that_is_in_the_way_is_named_and_deleted() {
    let (device, end) = (Case::new(1, 32 << 20).device(), 20 << 20);
    let volume = open(&device, 2);
    let new = NewInode::of_mode(0o755);
    let dir = volume.mkdir(ROOT_INO, b"dir", &new).unwrap().ino;
    let place = |number: usize| {
        let name = format!("file{number}").into_bytes();
        let ino = volume.create(dir, &name, &new).unwrap().ino;
        volume.write(ino, 0, &content(1 << 20, number)).unwrap();
        volume.sync().unwrap();
        let (pieces, _) = volume.ranges(ino).map(0).unwrap();
        let Place::Home(at) = pieces[0].place else {
            panic!("{pieces:?}");
        };
        at
    };
    let (last, at) = (0..)
        .map(|number| (number, place(number)))
        .find(|(_, at)| *at > end)
        .unwrap();
    let others = last + 1..last + 5;
    for number in others.clone() {
        place(number);
    }
    for number in 0..last {
        let name = format!("file{number}");
        volume.unlink(dir, name.as_bytes()).unwrap();
    }
    volume.close().unwrap();
    let mut bytes = read_exact(device.as_ref(), at, 4096, IoKind::Other).unwrap();
    bytes[7] ^= 1;
    let done = device.write(&[Write::new(at, &bytes, IoKind::Other)]);
    done.into_iter().for_each(|done| done.unwrap());
    let refused = shrink(&device, end, &Env::fixed(3), |_| ()).unwrap_err();
    let named = format!("/dir/file{last} is damaged and cannot be moved: unit 0 ");
    assert!(refused.to_string().starts_with(&named), "{refused}");
    let volume = open(&device, 4);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    // All else has moved: of the file the rest of its blocks.
    let behind = |number: usize| -> u64 {
        let name = format!("file{number}").into_bytes();
        let ino = volume.lookup(dir, &name).unwrap().ino;
        let (pieces, _) = volume.ranges(ino).map(0).unwrap();
        let is_behind = |place| matches!(place, Place::Home(at) if at >= end);
        let there = pieces.iter().filter(|piece| is_behind(piece.place));
        there.map(|piece| piece.len).sum()
    };
    assert_eq!(behind(last), 4 << 10);
    others.for_each(|number| assert_eq!(behind(number), 0));
    let name = format!("file{last}");
    volume.unlink(dir, name.as_bytes()).unwrap();
    volume.close().unwrap();
    shrink(&device, end, &Env::fixed(5), |_| ()).unwrap();
    is_sound(device.as_ref());
}
