//! Volumes of which a device is missing: what stands elsewhere can be read, nothing is written, and they become whole without it:
//! also after any crash on the way.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Problem, Severity, check, paths_of};
use loamfs_device::{Device, Image, IoKind, MemoryDevice, RecordingDevice, Write};
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, join, join_without};
use loamfs_fs::{
    Env, Error, Lost, MkfsOptions, NewDevice, OpenOptions, Place, ROOT_INO, Volume, mkfs_on,
    remove_missing,
};
use loamfs_testing::crashes::crashes;
use loamfs_testing::files::{content, put};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of each device.
const PART: u64 = 4 << 20;
const UNIT: usize = 4096;
/// Files, of which every third is small.
const FILES: usize = 24;

/// A fast device and two others, recorded together.
struct Parts(Arc<RecordingDevice>);

impl Parts {
    fn of(memory: MemoryDevice) -> Parts {
        Parts(Arc::new(
            RecordingDevice::new(memory).cut(&[PART, 2 * PART]),
        ))
    }

    fn after_crash(image: Image) -> Parts {
        Parts::of(MemoryDevice::from_image(image))
    }

    fn device(&self, index: usize) -> Arc<dyn Device> {
        Arc::clone(self.0.members()[index].device())
    }

    fn candidate(&self, index: usize) -> Candidate {
        Candidate {
            name: format!("disk{index}"),
            device: self.device(index),
        }
    }

    /// All devices but the second, which goes.
    fn left(&self) -> [Candidate; 2] {
        [self.candidate(2), self.candidate(0)]
    }

    fn whole(&self) -> Arc<dyn Device> {
        let others = [self.candidate(1), self.candidate(2)];
        join(&self.candidate(0), &others).unwrap()
    }

    fn degraded(&self) -> Arc<dyn Device> {
        let [first, other] = self.left();
        join_without(&first, &[other]).unwrap()
    }

    fn remove(&self) -> Result<(u64, u64), Error> {
        let [first, other] = self.left();
        remove_missing(&first, &[other], &Env::fixed(8))
    }
}

fn open(device: Arc<dyn Device>, read_only: bool) -> Volume {
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    Volume::open(device, &options, Env::fixed(5)).unwrap()
}

const fn size(file: usize) -> usize {
    if file.is_multiple_of(3) {
        3_000
    } else {
        250_000
    }
}

/// What each file holds.
type Contents = BTreeMap<String, Vec<u8>>;

/// A volume with small files and large ones, of which some units have images, and some space that was never written. It was
/// not closed.
fn filled() -> (Parts, Contents) {
    let parts = Parts::of(MemoryDevice::new(3 * PART));
    let new = |index| NewDevice {
        device: parts.device(index),
        kind: match index {
            0 => DeviceKind::Fast,
            _ => DeviceKind::Slow,
        },
    };
    mkfs_on(
        &[new(0), new(1), new(2)],
        &MkfsOptions::default(),
        &Env::fixed(1),
    )
    .unwrap();
    let volume = open(parts.whole(), false);
    let mut contents = Contents::new();
    for file in 0..FILES {
        let (name, bytes) = (format!("f{file}"), content(size(file), file));
        put(&volume, &name, &bytes).unwrap();
        contents.insert(name, bytes);
    }
    for (name, bytes) in contents.iter_mut().filter(|(_, bytes)| bytes.len() > UNIT) {
        let ino = volume.lookup(ROOT_INO, name.as_bytes()).unwrap().ino;
        let at = 5 * UNIT;
        bytes[at..at + UNIT].fill(0xee);
        volume.write(ino, at as u64, &[0xee; UNIT]).unwrap();
        volume.fsync(ino, false).unwrap();
        let end = bytes.len() as u64;
        volume.ranges(ino).allocate(end, 50_000, false).unwrap();
    }
    volume.sync().unwrap();
    (Parts::after_crash(parts.0.image()), contents)
}

/// The units of all files, as they are read.
fn units(
    volume: &Volume,
    contents: &Contents,
) -> BTreeMap<(String, usize), Result<Vec<u8>, Error>> {
    let mut found = BTreeMap::new();
    for (name, bytes) in contents {
        let attr = volume.lookup(ROOT_INO, name.as_bytes()).unwrap();
        assert_eq!(attr.size, bytes.len() as u64, "{name}");
        for unit in 0..bytes.len().div_ceil(UNIT) {
            let read = volume.read(attr.ino, (unit * UNIT) as u64, UNIT);
            found.insert((name.clone(), unit), read);
        }
    }
    found
}

fn expected<'c>(contents: &'c Contents, (name, unit): &(String, usize)) -> &'c [u8] {
    contents[name].chunks(UNIT).nth(*unit).unwrap()
}

/// Which units are lost.
fn lost_units(parts: &Parts, contents: &Contents) -> Vec<(String, usize)> {
    let volume = open(parts.degraded(), true);
    let mut lost = Vec::new();
    for (unit, read) in units(&volume, contents) {
        match read {
            Ok(bytes) => assert_eq!(bytes, expected(contents, &unit), "{unit:?}"),
            Err(error) => {
                assert!(error.to_string().contains("device 1"), "{error}");
                lost.push(unit);
            }
        }
    }
    lost
}

/// Of the units that are lost nothing else is read than what they held, or zeros; the others are there.
fn is_left(volume: &Volume, contents: &Contents, lost: &[(String, usize)]) {
    for (unit, read) in units(volume, contents) {
        let bytes = read.unwrap_or_else(|error| panic!("{unit:?}: {error}"));
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        let same = bytes == expected(contents, &unit);
        assert!(same || is_zero && lost.contains(&unit), "{unit:?}");
    }
}

fn is_sound(device: &dyn Device) {
    let report = check(device, &mut Options::default());
    let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
    assert!(report.problems.iter().all(sound), "{report}");
}

#[test]
fn without_a_device_all_else_can_be_read_and_nothing_is_written() {
    let (parts, contents) = filled();
    let before = parts.0.image().to_vec();
    let lost = lost_units(&parts, &contents);
    let large = contents.values().map(|bytes| bytes.len().div_ceil(UNIT));
    assert!(
        lost.len() > 50 && lost.len() + 100 < large.sum(),
        "{}",
        lost.len()
    );
    assert!(
        lost.iter()
            .all(|(name, unit)| contents[name].len() > UNIT && *unit != 5)
    );
    let volume = open(parts.degraded(), true);
    let refused = volume.create(ROOT_INO, b"new", &loamfs_fs::NewInode::of_mode(0o644));
    assert!(matches!(refused, Err(Error::ReadOnly)));
    volume.close().unwrap();
    assert!(parts.0.image().to_vec() == before);
}

#[test]
fn what_is_lost_is_told_before_by_file() {
    let (parts, contents) = filled();
    let lost = lost_units(&parts, &contents);
    let volume = open(parts.degraded(), true);
    let Lost { files, others } = volume.upkeep().lost().unwrap();
    assert_eq!(others, 0);
    let inos = files.keys().copied().collect();
    let paths = paths_of(parts.degraded().as_ref(), &inos).unwrap();
    let told: BTreeMap<String, u64> = files
        .iter()
        .map(|(ino, bytes)| (String::from_utf8(paths[ino].clone()).unwrap(), *bytes))
        .collect();
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for unit in lost {
        let bytes = expected(&contents, &unit).len() as u64;
        *wanted.entry(format!("/{}", unit.0)).or_default() += bytes;
    }
    assert_eq!(told, wanted);
    let nothing = open(parts.whole(), true).upkeep().lost().unwrap();
    assert_eq!(nothing, Lost::default());
}

#[test]
fn a_check_names_what_is_lost_by_file_and_takes_it_for_no_damage() {
    let (parts, contents) = filled();
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for unit in lost_units(&parts, &contents) {
        *wanted.entry(format!("/{}", unit.0)).or_default() +=
            expected(&contents, &unit).len() as u64;
    }
    for quick in [false, true] {
        let mut options = Options {
            quick,
            ..Options::default()
        };
        let report = check(parts.degraded().as_ref(), &mut options);
        let mut told = BTreeMap::new();
        for problem in &report.problems {
            match problem {
                Problem::MissingData { bytes, .. } => {
                    told.insert(report.path(problem).unwrap(), *bytes);
                }
                Problem::DeviceMissing { device, bytes } => {
                    assert_eq!((*device, *bytes), (1, PART - (1 << 20)));
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(told, wanted);
        assert!(report.is_clean() && report.plan.is_empty(), "{report}");
        assert_eq!(report.stats.missing_bytes, wanted.values().sum::<u64>());
    }
    // What else is wrong shows.
    let lost = lost_units(&parts, &contents);
    let is_there = |(name, bytes): &(&String, &Vec<u8>)| {
        bytes.len() > UNIT && !lost.contains(&((*name).clone(), 7))
    };
    let (name, _) = contents.iter().find(is_there).unwrap();
    let volume = open(parts.degraded(), true);
    let ino = volume.lookup(ROOT_INO, name.as_bytes()).unwrap().ino;
    let (pieces, _) = volume.ranges(ino).map(7 * UNIT as u64).unwrap();
    let Place::Home(at) = pieces[0].place else {
        panic!("{pieces:?}");
    };
    let rot = Write::new(at, &[0xe1; UNIT], IoKind::Homed);
    parts.degraded().write(&[rot]).pop().unwrap().unwrap();
    let report = check(parts.degraded().as_ref(), &mut Options::default());
    assert_eq!(report.worst, Some(Severity::Major), "{report}");
    assert!(report.plan.is_empty());
}

#[test]
fn a_volume_becomes_whole_without_a_device_also_after_crashes_and_though_it_returns() {
    let (parts, contents) = filled();
    let lost = lost_units(&parts, &contents);
    let (before, after) = parts.remove().unwrap();
    assert!(after < before - PART / 2, "{before} {after}");
    let events = parts.0.event_count();
    let (mut went_on, mut was_whole) = (0, 0);
    for count in (0..=events).filter(|count| count % 7 == 0 || count + 30 > events) {
        for image in crashes(&parts.0, count).unwrap() {
            let crashed = Parts::after_crash(image.clone());
            // It was only pulled out, and is there again: it goes on as a volume, or refuses what is no member any more.
            let others = [crashed.candidate(1), crashed.candidate(2)];
            match join(&crashed.candidate(0), &others) {
                Ok(whole) => {
                    is_left(&open(Arc::clone(&whole), false), &contents, &lost);
                    is_sound(whole.as_ref());
                }
                Err(error) => assert!(
                    error
                        .to_string()
                        .contains("no device of this volume any more"),
                    "{error}"
                ),
            }
            let crashed = Parts::after_crash(image);
            match crashed.remove() {
                Ok((_, bytes)) => {
                    assert_eq!(bytes, after);
                    went_on += 1;
                }
                Err(Error::Options(words)) => {
                    assert!(
                        words.contains("no device of this volume is missing"),
                        "{words}"
                    );
                    was_whole += 1;
                }
                Err(error) => panic!("{error}"),
            }
            let [first, other] = crashed.left();
            let whole = join(&first, &[other]).unwrap();
            let volume = open(Arc::clone(&whole), false);
            is_left(&volume, &contents, &lost);
            put(&volume, "more", &content(300_000, 7)).unwrap();
            volume.close().unwrap();
            is_sound(whole.as_ref());
        }
    }
    assert!(went_on > 20 && was_whole > 3, "{went_on} {was_whole}");
}

/// Who is asked whether what is lost may go was asked for files that nobody can reach.
#[test]
fn files_without_a_name_are_no_loss() {
    let (parts, mut contents) = filled();
    {
        let volume = open(parts.whole(), false);
        for name in contents.keys().filter(|name| contents[*name].len() > UNIT) {
            let ino = volume.lookup(ROOT_INO, name.as_bytes()).unwrap().ino;
            volume.open_file(ino).unwrap();
            volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
        }
        volume.sync().unwrap();
    }
    contents.retain(|_, bytes| bytes.len() <= UNIT);
    let crashed = Parts::after_crash(parts.0.image());
    let lost = open(crashed.degraded(), true).upkeep().lost().unwrap();
    assert_eq!(lost, Lost::default());
    crashed.remove().unwrap();
    let [first, other] = crashed.left();
    let whole = join(&first, &[other]).unwrap();
    is_left(&open(Arc::clone(&whole), false), &contents, &[]);
    is_sound(whole.as_ref());
}

/// With metadata on what is missing there is no volume without it.
#[test]
fn without_its_metadata_a_volume_cannot_be_made_whole() {
    let device = |bytes| Arc::new(MemoryDevice::new(bytes));
    // The log fills the small device, and goes on on the other one.
    let devices = [device(2 << 20), device(8 << 20)];
    let new = |index: usize, kind| NewDevice {
        device: Arc::clone(&devices[index]) as _,
        kind,
    };
    let kinds = [new(0, DeviceKind::Fast), new(1, DeviceKind::Slow)];
    mkfs_on(&kinds, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let candidate = |index: usize| Candidate {
        name: format!("disk{index}"),
        device: Arc::clone(&devices[index]) as _,
    };
    let volume = open(join(&candidate(0), &[candidate(1)]).unwrap(), false);
    for file in 0..900 {
        put(&volume, &format!("s{file}"), &content(3_000, file)).unwrap();
    }
    volume.close().unwrap();
    assert!(volume.info().spilled_log_groups > 0);
    let before = devices[0].image().to_vec();
    let refused = remove_missing(&candidate(0), &[], &Env::fixed(8));
    assert!(refused.is_err());
    let volume = open(join(&candidate(0), &[candidate(1)]).unwrap(), true);
    assert_eq!(volume.lookup(ROOT_INO, b"s7").unwrap().size, 3_000);
    assert!(devices[0].image().to_vec() == before, "nothing was written");
}

#[test]
fn who_leads_cannot_be_missing() {
    let (parts, _) = filled();
    let refused = join_without(&parts.candidate(1), &[parts.candidate(2)]);
    let words = refused.map(drop).unwrap_err().to_string();
    assert!(words.contains("device 0 of the volume's 3"), "{words}");
}
