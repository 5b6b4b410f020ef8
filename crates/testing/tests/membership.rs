//! Devices that join and leave a volume: every crash in it leaves the old table or the new one, the same command goes on from
//! there, and nothing that was on the volume is lost.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, Image, MemoryDevice, RecordingDevice};
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, has_left, join, join_those_in};
use loamfs_fs::{
    Env, Error, MkfsOptions, NewDevice, OpenOptions, Purpose, Volume, add, grow, mkfs, mkfs_on,
    remove_emptied, superblocks,
};
use loamfs_testing::crashes::crashes;
use loamfs_testing::files::{content, get, put};
use std::sync::Arc;

/// Bytes of each device.
const PART: u64 = 4 << 20;
/// Where all but the last end.
const ENDS: [u64; 2] = [PART, 2 * PART];

/// Three devices that are recorded together.
struct Parts(Arc<RecordingDevice>);

impl Parts {
    fn new() -> Parts {
        Parts::of(MemoryDevice::new(3 * PART))
    }

    fn of(memory: MemoryDevice) -> Parts {
        Parts(Arc::new(RecordingDevice::new(memory).cut(&ENDS)))
    }

    fn after_crash(image: Image) -> Parts {
        Parts::of(MemoryDevice::from_image(image))
    }

    /// The same without what was recorded.
    fn begun_anew(&self) -> Parts {
        Parts::after_crash(self.0.image())
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

    fn candidates(&self) -> Vec<Candidate> {
        (0..3).map(|index| self.candidate(index)).collect()
    }

    /// The volume on those devices that its table names.
    fn volume(&self) -> Arc<dyn Device> {
        let [first, others @ ..] = &self.candidates()[..] else {
            unreachable!()
        };
        join_those_in(first, others).unwrap()
    }

    fn open(&self, seed: u64) -> Volume {
        Volume::open(self.volume(), &OpenOptions::default(), Env::fixed(seed)).unwrap()
    }

    /// Adds a device, as the command does.
    fn add(&self, others: &[Candidate], index: usize) -> Result<(u64, u64), Error> {
        let new = self.candidate(index);
        add(
            &self.candidate(0),
            others,
            (&new, Purpose::Slow),
            &Env::fixed(3),
        )
    }

    /// Removes a device, as the command does: begun or not, and also where it has left.
    fn remove(&self, device: u32) -> Result<(u64, u64), Error> {
        let volume = self.open(7);
        if volume
            .info()
            .members
            .iter()
            .any(|member| member.entry.device == device)
        {
            volume.upkeep().leave(device)?;
            assert!(volume.upkeep().evacuate(|_| true)?);
        }
        volume.close()?;
        let [first, others @ ..] = &self.candidates()[..] else {
            unreachable!()
        };
        remove_emptied(first, others, &Env::fixed(8))
    }

    fn is_sound(&self) {
        let report = check(self.volume().as_ref(), &mut Options::default());
        let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
        assert!(report.problems.iter().all(sound), "{report}");
    }
}

/// Small files and large ones, as many as there is room for or at most so many.
fn fill(volume: &Volume, most: usize) -> usize {
    let put = |i: usize| put(volume, &format!("f{i}"), &content(size(i), i));
    (0..most).find(|i| put(*i).is_err()).unwrap_or(most)
}

const fn size(file: usize) -> usize {
    if file.is_multiple_of(4) {
        150_000
    } else {
        3_000
    }
}

fn is_whole(volume: &Volume, files: usize) {
    for i in 0..files {
        assert_eq!(
            get(volume, &format!("f{i}")).unwrap(),
            content(size(i), i),
            "f{i}"
        );
    }
}

fn size_of(volume: &Volume) -> u64 {
    let figures = volume.statfs();
    figures.total * u64::from(figures.fragment_size)
}

/// A volume on the first device alone, without a table, that is full.
fn of_one() -> (Parts, usize) {
    let parts = Parts::new();
    mkfs(&parts.device(0), &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = parts.open(2);
    let files = fill(&volume, usize::MAX);
    // A crash: it is not closed.
    (parts.begun_anew(), files)
}

/// A volume on all three.
fn of_three(files: usize) -> (Parts, usize) {
    let parts = Parts::new();
    let new = |index| NewDevice {
        device: parts.device(index),
        kind: if index == 0 {
            DeviceKind::Fast
        } else {
            DeviceKind::Slow
        },
    };
    mkfs_on(
        &[new(0), new(1), new(2)],
        &MkfsOptions::default(),
        &Env::fixed(1),
    )
    .unwrap();
    let volume = parts.open(2);
    let files = fill(&volume, files);
    (parts.begun_anew(), files)
}

/// What is free on a device that leaves is no room, also after a volume of several devices was asked to become smaller.
#[test]
fn a_refused_shrink_leaves_alone_what_leaves() {
    let (parts, _) = of_three(20);
    let volume = parts.open(3);
    volume.upkeep().leave(2).unwrap();
    let available = || volume.statfs().available;
    let before = available();
    let refused = volume.upkeep().clear_behind(PART, |_| true);
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("several devices"), "{words}");
    assert_eq!(available(), before);
}

#[test]
fn every_crash_while_a_device_joins_leaves_the_old_table_or_the_new_one() {
    let (parts, files) = of_one();
    let (before, after) = parts.add(&[], 1).unwrap();
    assert!(after > before + PART / 2, "{before} {after}");
    let mut seen = [0, 0];
    for count in 0..=parts.0.event_count() {
        for image in crashes(&parts.0, count).unwrap() {
            let crashed = Parts::after_crash(image);
            let volume = crashed.open(4);
            is_whole(&volume, files);
            let grown = size_of(&volume) > before;
            seen[usize::from(grown)] += 1;
            drop(volume);
            crashed.is_sound();
            if !grown {
                // The first device is the volume still, and the same command goes on.
                join(&crashed.candidate(0), &[]).unwrap();
                assert_eq!(crashed.add(&[], 1).unwrap(), (before, after));
            }
            let volume = crashed.open(5);
            assert_eq!(size_of(&volume), after);
            is_whole(&volume, files);
            put(&volume, "more", &content(PART as usize / 2, 7)).unwrap();
            volume.close().unwrap();
            crashed.is_sound();
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn devices_join_one_after_the_other_and_what_cannot_is_refused() {
    let (parts, files) = of_one();
    let (_, two) = parts.add(&[], 1).unwrap();
    let second = [parts.candidate(1)];
    let refused = parts.add(&second, 1).unwrap_err().to_string();
    assert!(
        refused.contains("is a device of this volume already"),
        "{refused}"
    );
    let (before, three) = parts.add(&second, 2).unwrap();
    assert_eq!(before, two);
    let small = Candidate {
        name: "small".into(),
        device: Arc::new(MemoryDevice::new(300 << 10)),
    };
    let refused = add(
        &parts.candidate(0),
        &parts.candidates()[1..],
        (&small, Purpose::Slow),
        &Env::fixed(3),
    );
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("too little for a group")
    );
    let volume = parts.open(4);
    assert_eq!(size_of(&volume), three);
    is_whole(&volume, files);
    let more = fill_more(&volume);
    assert!(more > 20, "{more}");
    volume.close().unwrap();
    parts.is_sound();
    let missing = join(&parts.candidate(0), &second)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("device 2 of the volume's 3"), "{missing}");
}

/// What led the volume never leaves it, so that an old copy of that is somebody's backup.
#[test]
fn a_copy_of_the_device_that_leads_has_not_left() {
    let (parts, _) = of_one();
    let known = |device: &Arc<dyn Device>| superblocks::find(device.as_ref()).unwrap().newest;
    let alone = known(&parts.device(0));
    parts.add(&[], 1).unwrap();
    let (first, second) = (known(&parts.device(0)), known(&parts.device(1)));
    parts.add(&[parts.candidate(1)], 2).unwrap();
    parts.remove(1).unwrap();
    let table = known(&parts.device(0));
    assert!(has_left(&table, &second));
    assert!(!has_left(&table, &first));
    assert!(!has_left(&table, &alone));
}

/// Files until the volume is full again.
fn fill_more(volume: &Volume) -> usize {
    let put = |i: usize| put(volume, &format!("m{i}"), &content(100_000, i));
    (0..).find(|i| put(*i).is_err()).unwrap()
}

#[test]
fn every_crash_while_a_device_leaves_loses_nothing_and_the_same_command_goes_on() {
    for device in [1, 2] {
        let (parts, files) = of_three(40);
        let (before, after) = parts.remove(device).unwrap();
        assert!(after < before - PART / 2, "{before} {after}");
        let events = parts.0.event_count();
        for count in (0..=events).filter(|count| count % 3 == 0 || count + 40 > events) {
            for image in crashes(&parts.0, count).unwrap() {
                let crashed = Parts::after_crash(image);
                let volume = crashed.open(4);
                is_whole(&volume, files);
                drop(volume);
                crashed.is_sound();
                crashed.remove(device).unwrap();
                let volume = crashed.open(5);
                assert_eq!(size_of(&volume), after);
                is_whole(&volume, files);
                volume.close().unwrap();
                crashed.is_sound();
                // It says nothing of the volume any more, or only what is out of date.
                let left = join(&crashed.candidate(0), &[crashed.candidate(device as usize)]);
                assert!(left.is_err());
            }
        }
    }
}

#[test]
fn a_gap_is_filled_by_the_next_device_that_fits() {
    let (parts, files) = of_three(40);
    let (before, _) = parts.remove(1).unwrap();
    let volume = parts.open(3);
    let more = fill_more(&volume);
    is_whole(&volume, files);
    volume.close().unwrap();
    parts.is_sound();
    let (_, after) = parts.add(&[parts.candidate(2)], 1).unwrap();
    assert_eq!(after, before);
    let volume = parts.open(4);
    is_whole(&volume, files);
    assert_eq!(get(&volume, "m0").unwrap(), content(100_000, 0));
    assert!(more > 3, "{more}");
    assert!(
        (more + 1..more + 10).all(|i| put(&volume, &format!("m{i}"), &content(100_000, i)).is_ok())
    );
    volume.close().unwrap();
    parts.is_sound();
}

#[test]
fn without_room_a_device_stays_and_nothing_has_changed() {
    let (parts, files) = of_three(usize::MAX);
    let volume = parts.open(3);
    let refused = volume.upkeep().leave(2).unwrap_err().to_string();
    assert!(
        refused.contains("and the others have room for"),
        "{refused}"
    );
    for (device, words) in [(0, "leads the volume"), (9, "no device 9")] {
        let refused = volume.upkeep().leave(device).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    volume.close().unwrap();
    let volume = parts.open(4);
    is_whole(&volume, files);
    drop(volume);
    parts.is_sound();
}

#[test]
fn a_device_that_was_to_leave_may_stay() {
    let (parts, files) = of_three(40);
    let volume = parts.open(3);
    let free = volume.statfs().free;
    volume.upkeep().leave(1).unwrap();
    assert!(volume.statfs().free < free / 10 * 9);
    // It is told to stop.
    assert!(!volume.upkeep().evacuate(|_| false).unwrap());
    volume.upkeep().stay(1).unwrap();
    volume.close().unwrap();
    parts.is_sound();
    let volume = parts.open(4);
    assert!(volume.statfs().free > free / 10 * 9);
    is_whole(&volume, files);
    fill_more(&volume);
    volume.close().unwrap();
    parts.is_sound();
}

/// Whatever the table says under a good checksum: it is refused, or the volume that it tells of can be opened or not, and no more.
#[test]
fn a_table_of_hostile_bytes_breaks_nothing() {
    const TABLE: u64 = 832;
    let (parts, _) = of_three(10);
    parts.remove(1).unwrap();
    let sound = parts.0.image();
    let copies = [64 << 10, 128 << 10];
    let mut taken = 0;
    for at in (0..3 * 48).chain([40, 172, 20].map(|field| field - TABLE as i64)) {
        for value in [0, 1, 2, 0x7f, 0xff] {
            let mut image = sound.clone();
            for copy in copies {
                let mut bytes = image.to_vec()[copy..copy + 4096].to_vec();
                bytes[(TABLE as i64 + at) as usize] = value;
                bytes[8..16].fill(0);
                let sum = xxhash_rust::xxh3::xxh3_64(&bytes);
                bytes[8..16].copy_from_slice(&sum.to_le_bytes());
                image.write(copy as u64, &bytes).unwrap();
            }
            let hostile = Parts::after_crash(image);
            let candidates = hostile.candidates();
            let Ok(volume) = join_those_in(&candidates[0], &candidates[1..]) else {
                continue;
            };
            check(volume.as_ref(), &mut Options::default());
            if let Ok(volume) = Volume::open(volume, &OpenOptions::default(), Env::fixed(4)) {
                taken += 1;
                let _ = put(&volume, "new", &content(100_000, 1));
                let _ = volume.upkeep().leave(2);
                let _ = volume.upkeep().evacuate(|_| true);
                let _ = volume.close();
            }
        }
    }
    assert!(taken > 20, "{taken}");
}

#[test]
fn several_devices_grow_where_addresses_are_free() {
    let device = |bytes| Arc::new(MemoryDevice::new(bytes));
    let (one, two) = (device(PART), device(PART));
    let new = |device: &Arc<MemoryDevice>| NewDevice {
        device: Arc::clone(device) as _,
        kind: DeviceKind::Slow,
    };
    mkfs_on(
        &[new(&one), new(&two)],
        &MkfsOptions::default(),
        &Env::fixed(1),
    )
    .unwrap();
    let longer = |device: &MemoryDevice| {
        let mut bytes = device.image().to_vec();
        bytes.resize(PART as usize * 3 / 2, 0x5a);
        Arc::new(MemoryDevice::from_bytes(bytes))
    };
    let (one, two) = (longer(&one), longer(&two));
    let candidate = |device: &Arc<MemoryDevice>| Candidate {
        name: "disk".into(),
        device: Arc::clone(device) as _,
    };
    let joined = || join(&candidate(&one), &[candidate(&two)]).unwrap();
    let (before, after) = grow(&joined(), None, &Env::fixed(2)).unwrap();
    // The first one is followed by the second.
    assert!(
        (before + PART / 2..before + PART).contains(&after),
        "{before} {after}"
    );
    assert_eq!(
        grow(&joined(), None, &Env::fixed(3)).unwrap(),
        (after, after)
    );
    let volume = Volume::open(joined(), &OpenOptions::default(), Env::fixed(4)).unwrap();
    assert_eq!(size_of(&volume), after);
    assert!(fill_more(&volume) > 30);
    volume.close().unwrap();
    let report = check(joined().as_ref(), &mut Options::default());
    assert!(report.problems.is_empty(), "{report}");
}
