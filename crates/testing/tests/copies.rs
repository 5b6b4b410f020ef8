//! Volumes of which the log stands twice: power is cut at every request, with either device keeping or losing what it has not
//! flushed, and either device vanishes. What was synced is there.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recorded;

use loamfs_check::{Options, Problem, check};
use loamfs_device::{
    Device, Effect, Event, FaultyDevice, Image, IoKind, MemoryDevice, Op, Rule, read_exact, sides,
    write_all,
};
use loamfs_format::ifile::block_of;
use loamfs_format::summary::Header;
use loamfs_format::superblock::{DeviceKind, SIZE, offsets};
use loamfs_format::{BlockKind, Ino, InodeBlockNo};
use loamfs_fs::members::{Candidate, join, join_without};
use loamfs_fs::{
    CopyKind, Durability, Env, Error, LogError, MkfsOptions, NewDevice, OpenOptions, Purpose,
    ROOT_INO, Repairs, Replacing, Volume, mkfs_on, remove_missing,
};
use loamfs_testing::files::{content, get, put};
use loamfs_testing::without::Without;
use recorded::{ALL, Contents, FAST, KEPT, LARGE, Parts, There, crashed, open};
use std::ops::Range;
use std::sync::Arc;

/// What was synced when: the number of requests by then.
type Promises = Vec<(usize, Contents)>;

/// A volume in use: files are made, changed and removed, each with a sync behind it. It is not closed.
fn used(parts: &Parts, seed: usize) -> Promises {
    let volume = open(parts, There::Both, &Without::default()).unwrap();
    let mut contents = Contents::new();
    let mut promises = vec![(parts.recorder.event_count(), contents.clone())];
    for step in 0..14 {
        let name = format!("f{}", (step * 5 + seed) % 6);
        let size = if step % 5 == 3 { LARGE } else { 3_000 };
        if contents.remove(&name).is_some() {
            volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
        }
        if step % 4 != 2 {
            let bytes = content(size, step + seed);
            put(&volume, &name, &bytes).unwrap();
            contents.insert(name, bytes);
        }
        match step % 6 {
            4 => volume.upkeep().checkpoint().unwrap(),
            5 => volume.upkeep().commit(Durability::Written).unwrap(),
            _ => volume.sync().unwrap(),
        }
        volume.sync().unwrap();
        promises.push((parts.recorder.event_count(), contents.clone()));
    }
    // As a daemon that is killed.
    drop(volume);
    promises
}

/// What is promised of a volume is there; what changes before the next promise may be there or not.
fn holds(volume: &Volume, promises: &Promises, count: usize, there: There) -> Result<(), String> {
    let next = promises.partition_point(|(at, _)| *at <= count);
    let Some((_, before)) = next.checked_sub(1).map(|index| &promises[index]) else {
        return Ok(());
    };
    let after = promises.get(next).map_or(before, |(_, contents)| contents);
    for (name, bytes) in before {
        let large = bytes.len() >= LARGE;
        if after.get(name) != Some(bytes) || large && there == There::Fast {
            continue;
        }
        match get(volume, name) {
            Ok(found) if found == *bytes => {}
            Ok(_) => return Err(format!("{name} holds something else")),
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
    Ok(())
}

/// Each device alone has what was promised, and so have both.
fn survives(image: &Image, promises: &Promises, count: usize) -> Result<(), String> {
    for there in [There::Fast, There::Slow] {
        let parts = Parts::of(image.clone());
        let opened = open(&parts, there, &Without::default());
        let volume = opened.map_err(|error| format!("{there:?} alone: {error}"))?;
        if let Some(loss) = volume.info().loss {
            return Err(format!("{there:?} alone: {loss}"));
        }
        holds(&volume, promises, count, there).map_err(|wrong| format!("{there:?}: {wrong}"))?;
        assert_eq!(parts.recorder.event_count(), 0, "who reads writes nothing");
    }
    Ok(())
}

/// Goes through crashes of a volume in use, each followed by a recovery, and by crashes of that.
fn explore(parts: &Parts, promises: &Promises, without: &Without) -> Result<usize, String> {
    let mut states = 0;
    for count in promises[0].0..=parts.recorder.event_count() {
        for (index, keep) in KEPT.into_iter().enumerate() {
            let told = |wrong: String| format!("{count} requests, kept {keep:?}: {wrong}");
            let image = crashed(&parts.recorder, count, keep);
            survives(&image, promises, count).map_err(told)?;
            states += 1;
            if count % (2 * KEPT.len()) != index {
                continue;
            }
            let again = Parts::of(image);
            let opened = open(&again, There::Both, without);
            let volume = opened.map_err(|error| told(error.to_string()))?;
            holds(&volume, promises, count, There::Both).map_err(told)?;
            let later = content(2_000, 3);
            put(&volume, "later", &later).unwrap();
            let synced = again.recorder.event_count();
            drop(volume);
            let then = vec![
                (0, Contents::new()),
                (synced, [("later".into(), later)].into()),
            ];
            for at in 0..=synced {
                for keep in KEPT {
                    let image = crashed(&again.recorder, at, keep);
                    let told = |wrong| told(format!("{at} of recovery, kept {keep:?}: {wrong}"));
                    survives(&image, promises, count).map_err(told)?;
                    survives(&image, &then, at).map_err(told)?;
                    states += 1;
                }
            }
        }
    }
    Ok(states)
}

#[test]
fn either_device_has_what_was_synced_whatever_the_other_one_loses() {
    let parts = Parts::made(Some(CopyKind::Each));
    let promises = used(&parts, 0);
    let states = explore(&parts, &promises, &Without::default());
    assert!(states.unwrap() > 1_000);
}

#[test]
fn a_flush_of_one_copy_alone_is_noticed() {
    let parts = Parts {
        forgets: true,
        ..Parts::made(Some(CopyKind::Each))
    };
    let promises = used(&parts, 0);
    let found = explore(&parts, &promises, &Without::default());
    println!("{}", found.unwrap_err());
}

#[test]
fn copies_that_recovery_does_not_bring_into_line_are_noticed() {
    for clause in ["no-rejoin", "rejoin-late"] {
        let parts = Parts::made(Some(CopyKind::Each));
        let promises = used(&parts, 0);
        let without = Without::clauses(clause);
        let found = explore(&parts, &promises, &without).expect_err(clause);
        println!("{clause}: {found}");
        assert_eq!(without.unreached(), [""; 0]);
    }
}

/// Power fails at every request of the command, and it is said again.
#[test]
fn a_new_fast_device_gets_all_that_the_copy_has() {
    let parts = Parts::made(Some(CopyKind::Each));
    let promises = used(&parts, 1);
    let end = parts.recorder.event_count();
    let mut image = crashed(&parts.recorder, end, [1, 1]);
    image.clear(0, FAST).unwrap();
    let replace = |parts: &Parts| {
        let (slow, new) = (parts.candidate(1), parts.candidate(0));
        Replacing::ask(&slow, &[], &new).and_then(|ready| ready.replace(&Env::fixed(9)))
    };
    let parts = Parts::of(image);
    replace(&parts).unwrap();
    let last = parts.recorder.event_count();
    for count in (0..=last).filter(|count| *count % 3 == 0 || last - count < 12) {
        for keep in KEPT {
            let image = crashed(&parts.recorder, count, keep);
            let again = Parts::of(image);
            // Either the new device leads already, or it is replaced once more.
            let whole = join(&again.candidate(1), &[again.candidate(0)]);
            if whole.is_err() {
                replace(&again).unwrap();
            }
            let volume = open(&again, There::Both, &Without::default()).unwrap();
            holds(&volume, &promises, end, There::Both).unwrap();
            volume.close().unwrap();
            let image = again.recorder.image();
            survives(&image, &promises, end).unwrap();
        }
    }
    let small = Candidate {
        name: "small".into(),
        device: Arc::new(MemoryDevice::new(FAST / 2)),
    };
    let slow = parts.candidate(1);
    let refused = Replacing::ask(&slow, &[], &small).map(drop).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("must hold what the missing device held")
    );
    let there = [parts.candidate(0)];
    let refused = Replacing::ask(&slow, &there, &small).map(drop);
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
}

/// One of the devices is what it was when fewer requests had been made, as from a backup.
fn with_older(parts: &Parts, older: usize, count: usize) -> Parts {
    let recorder = &parts.recorder;
    let (old, new) = (recorder.image_after(count).unwrap(), recorder.image());
    let part = |offset: u64| usize::from(offset >= FAST);
    let joined = MemoryDevice::from_image(new);
    let old = MemoryDevice::from_image(old);
    for at in (0..ALL).step_by(4096).filter(|at| part(*at) == older) {
        let bytes = read_exact(&old, at, 4096, IoKind::Other).unwrap();
        write_all(&joined, at, &bytes, IoKind::Other).unwrap();
    }
    Parts::of(joined.image())
}

#[test]
fn a_device_from_a_backup_takes_nothing_back() {
    let parts = Parts::made(Some(CopyKind::Each));
    let promises = used(&parts, 0);
    let (end, contents) = promises.last().unwrap();
    // Closed or not: at the end of each of some syncs the one device was copied, and it comes back now.
    for (count, _) in promises.iter().skip(2).step_by(3).filter(|it| it.0 < *end) {
        for (older, refusal) in ["leads is older", "has the copy is older"]
            .iter()
            .enumerate()
        {
            let parts = with_older(&parts, older, *count);
            let image = parts.recorder.image();
            let opened = Volume::open(
                parts.joined(There::Both),
                &OpenOptions::default(),
                Env::fixed(5),
            );
            let said = opened.map(drop).unwrap_err().to_string();
            assert!(said.contains(refusal), "{said}");
            assert!(parts.recorder.image() == image, "nothing was written");
            let report = check(&*parts.joined(There::Both), &mut Options::default());
            assert!(!report.is_clean(), "{report:?}");
            // What is newer can be read, but for what the other device alone had.
            let options = OpenOptions {
                read_only: true,
                ..OpenOptions::default()
            };
            let volume = Volume::open(parts.joined(There::Both), &options, Env::fixed(5)).unwrap();
            for (name, bytes) in contents.iter().filter(|(_, bytes)| bytes.len() < LARGE) {
                assert_eq!(get(&volume, name).unwrap(), *bytes);
            }
        }
    }
}

#[test]
fn a_volume_is_written_with_both_copies_or_goes_on_without_the_one_that_is_missing() {
    let parts = Parts::made(Some(CopyKind::Each));
    let promises = used(&parts, 0);
    let (count, contents) = promises.last().unwrap();
    for there in [There::Fast, There::Slow] {
        let device = parts.joined(there);
        let opened = Volume::open(device, &OpenOptions::default(), Env::fixed(5));
        assert!(matches!(opened, Err(Error::Log(LogError::Alone))));
    }
    let events = &parts.recorder.events()[*count..];
    let is_write = |event: &Event| matches!(event, Event::Write { .. });
    assert!(!events.iter().any(is_write), "nothing was written");
    let fast = parts.candidate(0);
    remove_missing(&fast, &[], &Env::fixed(6)).unwrap();
    let alone = |recorder: &Parts| join(&recorder.candidate(0), &[]).unwrap();
    let volume = Volume::open(alone(&parts), &OpenOptions::default(), Env::fixed(7)).unwrap();
    holds(&volume, &promises, *count, There::Fast).unwrap();
    put(&volume, "later", &content(3_000, 9)).unwrap();
    volume.close().unwrap();
    assert!(
        join(&fast, &[parts.candidate(1)]).is_err(),
        "it left for good"
    );
    // From any crash on the way the copy is in line, or counts no more.
    let last = parts.recorder.event_count();
    for at in *count..=last {
        let image = parts.recorder.image_after(at).unwrap();
        let crashed = Parts::of(image);
        if let Ok(device) = join(&crashed.candidate(0), &[crashed.candidate(1)]) {
            let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(8)).unwrap();
            for (name, bytes) in contents.iter().filter(|(_, bytes)| bytes.len() < LARGE) {
                assert_eq!(get(&volume, name).unwrap(), *bytes);
            }
            volume.close().unwrap();
        }
    }
}

/// Opens the volume on two devices of which one was lost, as whoever goes on without it does: a new fast one gets all that the
/// copy has, or the copy is given up. The third device may have joined or not.
fn without_lost(parts: &Parts, lost: usize) -> Result<Volume, Error> {
    let stays = parts.candidate(1 - lost);
    let third = (parts.recorder.members().len() > 2).then(|| parts.candidate(2));
    let mut others: Vec<Candidate> = third.into_iter().collect();
    if join_without(&stays, &others).is_err() {
        others.clear();
    }
    if lost == 0 {
        let new = parts.candidate(0);
        Replacing::ask(&stays, &others, &new)?.replace(&Env::fixed(6))?;
        others.push(new);
    } else if join(&stays, &others).is_err() {
        remove_missing(&stays, &others, &Env::fixed(6))?;
    }
    let device = join(&stays, &others).map_err(LogError::from)?;
    Volume::open(device, &OpenOptions::default(), Env::fixed(7))
}

/// Power fails at every request of a change that makes the volume larger, and then one of the devices never comes back.
#[test]
fn a_volume_that_was_becoming_larger_goes_on_without_a_device() {
    let made = Parts::made(Some(CopyKind::Each));
    let small = content(3_000, 1);
    let volume = open(&made, There::Both, &Without::default()).unwrap();
    put(&volume, "small", &small).unwrap();
    volume.close().unwrap();
    let mut bytes = made.recorder.image().to_vec();
    bytes.resize(ALL as usize + (3 << 20), 0);
    let image = Image::from_bytes(bytes);
    for ends in [&[FAST, ALL][..], &[FAST]] {
        let parts = Parts::cut(image.clone(), ends);
        let (before, after) = match ends.len() {
            1 => loamfs_fs::grow(&parts.joined(There::Both), None, &Env::fixed(3)),
            _ => {
                let new = parts.candidate(2);
                let others = [parts.candidate(1)];
                let joins = (&new, Purpose::Slow);
                loamfs_fs::add(&parts.candidate(0), &others, joins, &Env::fixed(3))
            }
        }
        .unwrap();
        assert!(before < after);
        for count in 0..=parts.recorder.event_count() {
            for (keep, lost) in KEPT.into_iter().flat_map(|keep| [(keep, 0), (keep, 1)]) {
                let mut image = crashed(&parts.recorder, count, keep);
                let (at, len) = [(0, FAST), (FAST, ALL - FAST)][lost];
                image.clear(at, len).unwrap();
                let told = format!("{count} requests, kept {keep:?}, lost {lost}");
                let volume = without_lost(&Parts::cut(image, ends), lost);
                let volume = volume.unwrap_or_else(|error| panic!("{told}: {error}"));
                assert_eq!(get(&volume, "small").unwrap(), small, "{told}");
                volume.close().unwrap();
            }
        }
    }
}

/// One of the leading device's superblocks has rotted, and power fails within each write of a command that changes the other one.
#[test]
fn a_volume_with_one_superblock_left_goes_on_without_its_copy() {
    let made = Parts::made(Some(CopyKind::Each));
    let small = content(3_000, 1);
    let volume = open(&made, There::Both, &Without::default()).unwrap();
    put(&volume, "small", &small).unwrap();
    volume.close().unwrap();
    for place in offsets(FAST) {
        let mut image = made.recorder.image();
        image.clear(place, SIZE as u64).unwrap();
        let parts = Parts::of(image);
        let fast = parts.candidate(0);
        remove_missing(&fast, &[], &Env::fixed(6)).unwrap();
        for (count, event) in parts.recorder.events().iter().enumerate() {
            let mut image = parts.recorder.image_after(count).unwrap();
            // The first sector of it gets there.
            if let Event::Write { offset, data, .. } = event {
                image.write(*offset, &data[..512]).unwrap();
            }
            let volume = without_lost(&Parts::of(image), 1);
            let volume = volume.unwrap_or_else(|error| panic!("{place}, {count}: {error}"));
            assert_eq!(get(&volume, "small").unwrap(), small, "{place}, {count}");
        }
    }
}

/// What was synced is on both devices when power fails, and has rotted on one of them: nothing else says that it was durable.
#[test]
fn what_was_synced_last_survives_rot_on_one_of_the_devices() {
    let parts = Parts::made(Some(CopyKind::Each));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    put(&volume, "first", &content(3_000, 1)).unwrap();
    volume.sync().unwrap();
    let synced = content(3_000, 2);
    put(&volume, "last", &synced).unwrap();
    volume.sync().unwrap();
    drop(volume);
    let events = parts.recorder.events();
    for is_part in [|at: u64| at < FAST, |at: u64| at >= FAST] {
        let last = events.iter().rev().find_map(|event| match event {
            Event::Write { offset, data, kind } if *kind == IoKind::Segment && is_part(*offset) => {
                Some((*offset, data))
            }
            _ => None,
        });
        let (start, bytes) = last.unwrap();
        for at in (0..bytes.len()).step_by(256) {
            let mut image = parts.recorder.image();
            image.write(start + at as u64, &[!bytes[at]]).unwrap();
            let rotten = Parts::of(image);
            let device = rotten.joined(There::Both);
            assert!(check(&device, &mut Options::default()).is_clean());
            let volume = open(&rotten, There::Both, &Without::default()).unwrap();
            let told = format!("byte {at} of the segment at {start}");
            assert!(
                get(&volume, "last").is_ok_and(|found| found == synced),
                "{told}"
            );
            volume.close().unwrap();
        }
    }
}

/// Whether the slow device alone has what was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    Has,
    /// It has, or is refused.
    May,
    Refused,
}

/// A volume of which the copy is given up and made again while it is used: what was promised when, and from how many requests on
/// which of the devices has it.
struct Changing {
    promises: Promises,
    alone: Vec<(usize, Alone)>,
}

impl Changing {
    fn of(parts: &Parts, without: &Without) -> Changing {
        let volume = open(parts, There::Both, without).unwrap();
        let now = || parts.recorder.event_count();
        let mut contents = Contents::new();
        let mut promises = vec![(now(), contents.clone())];
        let mut step = 0;
        let mut write = || {
            let (name, bytes) = (format!("f{}", step % 4), content(3_000, step));
            if contents.remove(&name).is_some() {
                volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
            }
            put(&volume, &name, &bytes).unwrap();
            contents.insert(name, bytes);
            volume.sync().unwrap();
            promises.push((now(), contents.clone()));
            step += 1;
        };
        let mut alone = vec![(0, Alone::Has)];
        write();
        alone.push((now(), Alone::May));
        volume.upkeep().copying().give_up().unwrap();
        alone.push((now(), Alone::Refused));
        write();
        write();
        // Somebody thinks better of it.
        let made = volume.upkeep().copying().make(|_| false);
        assert!(!made.unwrap());
        write();
        alone.push((now(), Alone::May));
        let made = volume.upkeep().copying().make(|_| {
            write();
            true
        });
        assert!(made.unwrap());
        alone.push((now(), Alone::Has));
        (0..6).for_each(|_| write());
        Changing { promises, alone }
    }

    /// What may become of the volume if power fails behind so many requests.
    fn survives(&self, image: &Image, count: usize) -> Result<(), String> {
        let parts = Parts::of(image.clone());
        let fast = open(&parts, There::Fast, &Without::default());
        let fast = fast.map_err(|error| format!("the fast one alone: {error}"))?;
        holds(&fast, &self.promises, count, There::Fast)
            .map_err(|wrong| format!("the fast one alone: {wrong}"))?;
        let expected = self.alone.iter().rfind(|(from, _)| *from <= count);
        let expected = expected.map_or(Alone::Has, |(_, expected)| *expected);
        match (join_without(&parts.candidate(1), &[]), expected) {
            (Err(_), Alone::May | Alone::Refused) => Ok(()),
            (Err(error), Alone::Has) => Err(format!("the slow one alone: {error}")),
            (Ok(_), Alone::Refused) => Err("the slow one alone has an old state".into()),
            (Ok(_), Alone::Has | Alone::May) => {
                let slow = open(&parts, There::Slow, &Without::default());
                let slow = slow.map_err(|error| format!("the slow one alone: {error}"))?;
                if let Some(loss) = slow.info().loss {
                    return Err(format!("the slow one alone: {loss}"));
                }
                holds(&slow, &self.promises, count, There::Slow)
                    .map_err(|wrong| format!("the slow one alone: {wrong}"))
            }
        }
    }

    /// Goes through crashes, each followed by a recovery in which the copy is made.
    fn explore(&self, parts: &Parts) -> Result<usize, String> {
        let mut states = 0;
        for count in self.promises[0].0..=parts.recorder.event_count() {
            for (index, keep) in KEPT.into_iter().enumerate() {
                let told = |wrong: String| format!("{count} requests, kept {keep:?}: {wrong}");
                let image = crashed(&parts.recorder, count, keep);
                self.survives(&image, count).map_err(told)?;
                states += 1;
                if count % (2 * KEPT.len()) != index {
                    continue;
                }
                let again = Parts::of(image);
                let opened = open(&again, There::Both, &Without::default());
                let volume = opened.map_err(|error| told(error.to_string()))?;
                holds(&volume, &self.promises, count, There::Both).map_err(told)?;
                let made = volume.upkeep().copying().make(|_| true);
                assert!(made.map_err(|error| told(error.to_string()))?);
                volume.close().unwrap();
                let report = check(&again.joined(There::Both), &mut Options::default());
                if !report.is_clean() {
                    return Err(told(report.to_string()));
                }
                let promises = vec![self.promises[0].clone()];
                let promises = [promises, self.promises.clone()].concat();
                survives(&again.recorder.image(), &promises, count).map_err(told)?;
            }
        }
        Ok(states)
    }
}

#[test]
fn a_copy_comes_and_goes_while_the_volume_is_used() {
    let parts = Parts::made(Some(CopyKind::Each));
    let changing = Changing::of(&parts, &Without::default());
    let states = changing.explore(&parts).unwrap();
    assert!(states > 500, "{states} states");
}

#[test]
fn a_copy_that_is_said_to_be_there_before_it_has_everything_is_noticed() {
    let parts = Parts::made(Some(CopyKind::Each));
    let without = Without::clauses("copy-said-early");
    let changing = Changing::of(&parts, &without);
    println!("{}", changing.explore(&parts).unwrap_err());
    assert_eq!(without.unreached(), [""; 0]);
}

/// A device that joins has room for the copy; without it there is none, nor on a volume that has no fast device.
#[test]
fn a_device_that_joins_can_have_the_copy() {
    let devices = [16 << 20, 40 << 20, 80 << 20].map(|len| Arc::new(MemoryDevice::new(len)));
    let candidate = |index: usize| Candidate {
        name: format!("disk{index}"),
        device: Arc::clone(&devices[index]) as _,
    };
    let new = |index: usize, kind| NewDevice {
        device: Arc::clone(&devices[index]) as _,
        kind,
    };
    let make = |volume: &Volume| volume.upkeep().copying().make(|_| true);
    let opened = |device| Volume::open(device, &OpenOptions::default(), Env::fixed(4)).unwrap();
    let [first, second, third] = [0, 1, 2].map(candidate);
    let kinds = [new(0, DeviceKind::Slow), new(1, DeviceKind::Slow)];
    mkfs_on(&kinds, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let join_third = |purpose| {
        let others = std::slice::from_ref(&second);
        loamfs_fs::add(&first, others, (&third, purpose), &Env::fixed(3))
    };
    let refused = join_third(Purpose::Copy).unwrap_err();
    assert!(refused.to_string().contains("one fast device"), "{refused}");
    let kinds = [new(0, DeviceKind::Fast), new(1, DeviceKind::Slow)];
    mkfs_on(&kinds, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = opened(join(&first, std::slice::from_ref(&second)).unwrap());
    let small = content(3_000, 1);
    put(&volume, "small", &small).unwrap();
    let refused = make(&volume).unwrap_err();
    assert!(
        refused.to_string().contains("device add --copy"),
        "{refused}"
    );
    volume.close().unwrap();
    let (before, after) = join_third(Purpose::Copy).unwrap();
    assert!(
        after > before && after - before == 48 << 20,
        "{before} {after}"
    );
    let others = [second, third];
    let volume = opened(join(&first, &others).unwrap());
    assert!(make(&volume).unwrap());
    put(&volume, "later", &small).unwrap();
    volume.sync().unwrap();
    // A crash, and the fast device is gone.
    drop(volume);
    let [second, third] = &others;
    let device = join_without(third, std::slice::from_ref(second)).unwrap();
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, &options, Env::fixed(5)).unwrap();
    assert_eq!(get(&volume, "small").unwrap(), small);
    assert_eq!(get(&volume, "later").unwrap(), small);
    // Without the copy its device may leave.
    let volume = opened(join(&first, &others).unwrap());
    assert!(volume.upkeep().leave(2).is_err());
    volume.upkeep().copying().give_up().unwrap();
    volume.upkeep().leave(2).unwrap();
    let refused = make(&volume).unwrap_err();
    assert!(matches!(refused, Error::Options(_)), "{refused}");
    volume.close().unwrap();
}

/// Scrubs a volume whose damage can be healed; how many blocks were damaged.
fn scrubbed(volume: &Volume) -> usize {
    volume.upkeep().drop_caches().unwrap();
    volume.scrub().begin(true);
    let mut damaged = 0;
    loop {
        let step = volume.scrub().step().unwrap();
        damaged += step.damaged.len();
        assert!(
            step.damaged.iter().all(|it| it.healed),
            "{:?}",
            step.damaged
        );
        assert!(step.untold.is_empty(), "{:?}", step.untold);
        if step.ended {
            return damaged;
        }
    }
}

/// A candidate of which a range of bytes cannot be read.
fn unreadable(candidate: Candidate, bad: Range<u64>) -> Candidate {
    let fails = Rule::on(Op::Read, Effect::Fail).in_range(bad);
    Candidate {
        device: Arc::new(FaultyDevice::with_rules(candidate.device, vec![fails])),
        ..candidate
    }
}

/// Reading does not notice: the other place gives it.
#[test]
fn a_scrub_heals_what_cannot_be_read_in_the_first_place() {
    let parts = Parts::made(Some(CopyKind::Each));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    let bytes = content(3_000, 1);
    put(&volume, "small", &bytes).unwrap();
    volume.close().unwrap();
    let image = parts.recorder.image().to_vec();
    let mut pieces = image[..FAST as usize].chunks(1024);
    let at = pieces.position(|piece| piece == &bytes[..1024]).unwrap() as u64 * 1024;
    let bad = at..at + 512;
    let fast = unreadable(parts.candidate(0), bad);
    let device = join(&parts.candidate(1), &[fast]).unwrap();
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(5)).unwrap();
    assert!(scrubbed(&volume) > 0);
    volume.scrub().keep().unwrap();
    volume.upkeep().checkpoint().unwrap();
    assert_eq!(scrubbed(&volume), 0, "it stands elsewhere");
    assert_eq!(get(&volume, "small").unwrap(), bytes);
    volume.close().unwrap();
}

/// What rotted in one place is read in the other, and a scrub writes it anew.
#[test]
fn rot_in_either_copy_is_read_around_and_healed() {
    let parts = Parts::made(Some(CopyKind::Each));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    let files: Vec<(String, Vec<u8>)> = (0..300)
        .map(|file| (format!("f{file}"), content(3_000, file)))
        .collect();
    for (name, bytes) in &files {
        put(&volume, name, bytes).unwrap();
    }
    volume.close().unwrap();
    let copy = parts.joined(There::Both).members()[1].offset() - FAST;
    for place in [0, FAST + copy] {
        let mut image = parts.recorder.image();
        // Neither superblocks nor what stands before them.
        for at in (512 << 10..FAST).step_by(32 << 10) {
            image.clear(place + at, 4096).unwrap();
        }
        let rotten = Parts::of(image);
        let report = check(&rotten.joined(There::Both), &mut Options::default());
        let [Problem::PlaceDamaged { device, .. }] = report.problems[..] else {
            panic!("{report}");
        };
        assert_eq!(device, u32::from(place > 0));
        // However few are to be listed.
        let mut unlisted = Options {
            problems_max: 0,
            ..Options::default()
        };
        let report = check(&rotten.joined(There::Both), &mut unlisted);
        assert_eq!(report.counts.get(&119), Some(&1), "{report}");
        let volume = open(&rotten, There::Both, &Without::default()).unwrap();
        for (name, bytes) in &files {
            assert_eq!(get(&volume, name).unwrap(), *bytes, "{name} of {place}");
        }
        let damaged = scrubbed(&volume);
        volume.scrub().keep().unwrap();
        volume.upkeep().checkpoint().unwrap();
        volume.close().unwrap();
        assert!(damaged > 0);
        let report = check(&rotten.joined(There::Both), &mut Options::default());
        assert!(report.is_clean(), "{report}");
        // What had to move may have gone to the slow device, for want of room.
        for there in [There::Fast, There::Slow] {
            let volume = open(&rotten, there, &Without::default()).unwrap();
            for (name, bytes) in &files {
                match get(&volume, name) {
                    Err(Error::Device(_)) if there == There::Fast => {}
                    found => assert_eq!(found.unwrap(), *bytes, "{name} on {there:?}"),
                }
            }
        }
    }
}

/// A volume with a large file, closed, and the file's inode and the byte of the volume where its first unit stands. What is written there both places know.
fn with_a_home() -> (Parts, Ino, u64) {
    let parts = Parts::made(Some(CopyKind::Each));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    put(&volume, "large", &content(LARGE, 1)).unwrap();
    let ino = volume.lookup(ROOT_INO, b"large").unwrap().ino;
    volume.close().unwrap();
    let device = parts.joined(There::Both);
    let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
    let inode = reader.inode(ino).unwrap();
    let extent = reader.extents(&inode).next().unwrap().unwrap();
    let home = reader.geometry().byte_offset(extent.pointer.addr);
    assert!(home >= FAST);
    (parts, ino, home)
}

/// Flips a bit.
fn rot(device: &dyn Device, at: u64) {
    let start = at / 4096 * 4096;
    let mut bytes = read_exact(device, start, 4096, IoKind::Other).unwrap();
    bytes[(at - start) as usize] ^= 1;
    write_all(device, start, &bytes, IoKind::Other).unwrap();
}

/// A file's data on the slow device are those of either place. What is damaged in the copy beside them was not told.
#[test]
fn what_is_wrong_in_both_places_hides_nothing_of_one() {
    let (parts, ino, home) = with_a_home();
    let device = parts.joined(There::Both);
    rot(device.as_ref(), home);
    let report = check(device.as_ref(), &mut Options::default());
    assert_eq!(report.counts, [(406, 1)].into(), "{report}");
    let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
    let entry = reader.ifile_entry(InodeBlockNo(0)).unwrap().unwrap();
    let at = reader.geometry().byte_offset(entry.pointer.addr);
    let both = sides(device.as_ref()).unwrap();
    for (index, place) in both.iter().enumerate() {
        rot(place.as_ref(), at);
        let report = check(device.as_ref(), &mut Options::default());
        assert_eq!(report.counts, [(119, 1), (406, 1)].into(), "{report}");
        let of = |it: &Problem| matches!(it, Problem::PlaceDamaged { device, problems: 1, .. } if *device == index as u32);
        assert!(report.problems.iter().any(of), "{report}");
        rot(place.as_ref(), at);
    }
    // Who cannot read the file's inode does not come to its data.
    let entry = reader.ifile_entry(block_of(ino)).unwrap().unwrap();
    rot(
        both[0].as_ref(),
        reader.geometry().byte_offset(entry.pointer.addr),
    );
    let report = check(device.as_ref(), &mut Options::default());
    assert_eq!(report.counts, [(119, 1), (406, 1)].into(), "{report}");
}

/// What is wrong alike in both places can be repaired.
#[test]
fn what_is_wrong_in_both_places_is_repaired() {
    let (parts, ..) = with_a_home();
    let device = parts.joined(There::Both);
    let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
    let root = reader.map(BlockKind::IfileNode).root.pointer;
    let copies: Vec<_> = root
        .copies(BlockKind::IfileNode, reader.geometry())
        .collect();
    assert_eq!(copies.len(), 2);
    let at = reader.geometry().byte_offset(copies[1].start);
    rot(device.as_ref(), at);
    let report = check(device.as_ref(), &mut Options::default());
    assert_eq!(report.counts, [(207, 1)].into(), "{report}");
    assert_eq!(report.plan.worn.len(), 1, "{report}");
    let repairs = Repairs {
        worn: report.plan.worn,
        ..Repairs::default()
    };
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    volume.repair(&repairs).unwrap();
    volume.close().unwrap();
    let report = check(&*parts.joined(There::Both), &mut Options::default());
    assert!(report.is_clean(), "{report}");
}

/// Sectors of the copy that nobody needs cannot be read.
#[test]
fn a_new_fast_device_gets_what_can_be_read_of_the_copy() {
    let parts = Parts::made(Some(CopyKind::Each));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    let small = content(3_000, 1);
    put(&volume, "small", &small).unwrap();
    volume.close().unwrap();
    let copy = parts.joined(There::Both).members()[1].offset() - FAST;
    let mut image = parts.recorder.image();
    image.clear(0, FAST).unwrap();
    let parts = Parts::of(image);
    // The last one, and one in the middle of a piece.
    let [one, other] = [4096, 64 << 10].map(|before| copy + FAST - before);
    let slow = unreadable(parts.candidate(1), one..one + 4096);
    let (slow, new) = (unreadable(slow, other..other + 4096), parts.candidate(0));
    let ready = Replacing::ask(&slow, &[], &new).unwrap();
    let (_, unread) = ready.replace(&Env::fixed(9)).unwrap();
    assert_eq!(unread, 8192);
    let device = parts.joined(There::Both);
    let report = check(&device, &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    assert_eq!(get(&volume, "small").unwrap(), small);
    volume.close().unwrap();
}

/// Where the next summary of the copy cannot be read nobody knows what it was: zeros would pass for the log's end.
#[test]
fn a_log_that_cannot_be_read_on_does_not_end_there_on_a_new_fast_device() {
    let parts = Parts::made(Some(CopyKind::Each));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    let synced = content(3_000, 1);
    put(&volume, "last", &synced).unwrap();
    volume.sync().unwrap();
    drop(volume);
    let last = parts.recorder.events().into_iter().rev().find_map(|event| {
        let Event::Write { offset, data, .. } = event else {
            return None;
        };
        (offset >= FAST && Header::decode(&data).is_ok()).then_some(offset - FAST)
    });
    let last = last.unwrap();
    let mut image = parts.recorder.image();
    image.clear(0, FAST).unwrap();
    let parts = Parts::of(image);
    let slow = unreadable(parts.candidate(1), last..last + 4096);
    let new = parts.candidate(0);
    let ready = Replacing::ask(&slow, &[], &new).unwrap();
    let told = ready.replace(&Env::fixed(9)).unwrap_err();
    assert!(told.loss().is_some(), "{told}");
    let opened = |accept_loss| {
        let image = Parts::of(parts.recorder.image());
        let slow = unreadable(image.candidate(1), last..last + 4096);
        let options = OpenOptions {
            accept_loss,
            ..OpenOptions::default()
        };
        let device = join(&slow, &[image.candidate(0)]).unwrap();
        Volume::open(device, &options, Env::fixed(5))
    };
    assert!(opened(false).unwrap_err().loss().is_some());
    assert!(get(&opened(true).unwrap(), "last").is_err());
    // It can be read after all.
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    assert_eq!(get(&volume, "last").unwrap(), synced);
}

/// A sector of the leading device cannot be read while the copy is made.
#[test]
fn a_copy_is_made_of_what_can_be_read() {
    let parts = Parts::made(Some(CopyKind::Each));
    let bad = FAST - 4096..FAST;
    let fast = unreadable(parts.candidate(0), bad);
    let device = join(&parts.candidate(1), &[fast]).unwrap();
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(5)).unwrap();
    let small = content(3_000, 1);
    put(&volume, "small", &small).unwrap();
    volume.upkeep().copying().give_up().unwrap();
    assert!(volume.upkeep().copying().make(|_| true).unwrap());
    volume.close().unwrap();
    let report = check(&parts.joined(There::Both), &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let volume = open(&parts, There::Slow, &Without::default()).unwrap();
    assert_eq!(get(&volume, "small").unwrap(), small);
}

/// The copy's device stays, the fast one does not grow, and no other fast one joins.
#[test]
fn what_would_leave_a_part_of_the_log_without_a_copy_is_refused() {
    let parts = Parts::made(Some(CopyKind::Each));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    let refused = volume.upkeep().leave(1).unwrap_err();
    assert!(
        refused.to_string().contains("give that up first"),
        "{refused}"
    );
    volume.close().unwrap();
    let new = Candidate {
        name: "new".into(),
        device: Arc::new(MemoryDevice::new(2 << 20)),
    };
    let (slow, fast) = (parts.candidate(1), parts.candidate(0));
    let add = |purpose| {
        loamfs_fs::add(
            &slow,
            std::slice::from_ref(&fast),
            (&new, purpose),
            &Env::fixed(3),
        )
    };
    let refused = add(Purpose::Fast).unwrap_err();
    assert!(refused.to_string().contains("stands twice"), "{refused}");
    let refused = add(Purpose::Copy).unwrap_err();
    assert!(refused.to_string().contains("already"), "{refused}");
    add(Purpose::Slow).unwrap();
    let alone: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 << 20));
    let one = [NewDevice {
        device: Arc::clone(&alone),
        kind: DeviceKind::Slow,
    }];
    let options = MkfsOptions {
        copy: Some(CopyKind::Each),
        ..MkfsOptions::default()
    };
    for refused in [
        mkfs_on(&one, &options, &Env::fixed(1)).map(drop),
        loamfs_fs::mkfs(&alone, &options, &Env::fixed(1)),
    ] {
        assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    }
}
