//! Volumes with a copy of the log that is behind: power is cut at every request, with either device keeping or losing what it has
//! not flushed, and either device vanishes. The fast one has what was synced, and the slow one a checkpoint, whole.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recorded;

use loamfs_check::{Options, Problem, check};
use loamfs_device::{
    Device, Event, Image, IoKind, JoinedDevice, MemoryDevice, read_exact, write_all,
};
use loamfs_format::Ssn;
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, join, join_without};
use loamfs_fs::{
    CopyKind, Durability, Env, Error, LogError, ManualClock, MkfsOptions, NewDevice, OpenOptions,
    ROOT_INO, Replacing, Volume, grow, mkfs_on, remove_missing, superblocks,
};
use loamfs_testing::busy::{self, Busy};
use loamfs_testing::files::{content, get, put};
use loamfs_testing::without::Without;
use recorded::{ALL, Contents, FAST, KEPT, LARGE, Parts, There, crashed, open};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Histories of volumes in use that are gone through.
const HISTORIES: usize = 4;

/// A volume in use, and what may become of it.
#[derive(Default)]
struct History {
    /// What was synced when: the number of requests by then.
    synced: Vec<(usize, Contents)>,
    /// What the copy had when a renewal had ended.
    renewed: Vec<(usize, Contents)>,
}

impl History {
    /// The states that the copy may have behind so many requests: that of the last renewal which had ended, and that of the next one.
    fn of_copy(&self, count: usize) -> &[(usize, Contents)] {
        let next = self.renewed.partition_point(|(at, _)| *at <= count);
        &self.renewed[next.saturating_sub(1)..(next + 1).min(self.renewed.len())]
    }
}

/// A volume in use: files are made, changed in place and removed, each with a sync behind it, and now and then the copy is renewed. It is not closed.
fn used(parts: &Parts, seed: usize, without: &Without) -> History {
    let volume = open(parts, There::Both, without).unwrap();
    let mut contents = Contents::new();
    let now = || parts.recorder.event_count();
    let mut history = History {
        synced: vec![(now(), contents.clone())],
        renewed: vec![(0, contents.clone())],
    };
    for step in 0..24 {
        let name = format!("f{}", (step * 5 + seed) % 6);
        let size = if step % 5 == 3 {
            LARGE
        } else {
            3_000 + 1_500 * seed
        };
        match contents.get_mut(&name) {
            // An overwrite goes through the log, as an image.
            Some(bytes) if bytes.len() >= LARGE && step % 3 > 0 => {
                let ino = volume.lookup(ROOT_INO, name.as_bytes()).unwrap().ino;
                let over = content(4096, step + 100);
                volume.write(ino, 8192, &over).unwrap();
                bytes[8192..8192 + 4096].copy_from_slice(&over);
            }
            there => {
                if there.is_some() {
                    contents.remove(&name);
                    volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
                }
                if step % 4 != 2 {
                    let bytes = content(size, step + seed);
                    put(&volume, &name, &bytes).unwrap();
                    contents.insert(name, bytes);
                }
            }
        }
        volume.sync().unwrap();
        history.synced.push((now(), contents.clone()));
        match step % 6 {
            2 => volume.upkeep().settle(64).unwrap(),
            3 => volume.upkeep().renew().unwrap(),
            4 => volume.upkeep().checkpoint().unwrap(),
            _ => volume.upkeep().commit(Durability::Durable).unwrap(),
        }
        if step % 6 == 3 {
            history.renewed.push((now(), contents.clone()));
        }
    }
    // As a daemon that is killed.
    drop(volume);
    history
}

/// All files of a volume.
fn files(volume: &Volume) -> Result<Contents, String> {
    let mut found = Contents::new();
    for name in (0..6).map(|number| format!("f{number}")) {
        match volume.lookup(ROOT_INO, name.as_bytes()) {
            Err(Error::NotFound) => continue,
            Err(error) => return Err(format!("{name}: {error}")),
            Ok(_) => {}
        }
        let bytes = get(volume, &name).map_err(|error| format!("{name}: {error}"))?;
        found.insert(name, bytes);
    }
    Ok(found)
}

/// What each device alone has, and that the checker finds nothing there.
fn survives(
    image: &Image,
    history: &History,
    count: usize,
    without: &Without,
) -> Result<(), String> {
    let parts = Parts::of(image.clone());
    let fast = open(&parts, There::Fast, &Without::default());
    let fast = fast.map_err(|error| format!("the fast one alone: {error}"))?;
    if let Some(loss) = fast.info().loss {
        return Err(format!("the fast one alone: {loss}"));
    }
    holds(&fast, history, count, true).map_err(|wrong| format!("the fast one: {wrong}"))?;
    copy_holds(&parts, history.of_copy(count), without)?;
    assert_eq!(parts.recorder.event_count(), 0, "who reads writes nothing");
    Ok(())
}

/// The copy alone has exactly one of these states.
fn copy_holds(
    parts: &Parts,
    states: &[(usize, Contents)],
    without: &Without,
) -> Result<(), String> {
    let told = |wrong: String| format!("the slow one alone: {wrong}");
    let slow = open(parts, There::Slow, without);
    let slow = slow.map_err(|error| told(error.to_string()))?;
    if let Some(loss) = slow.info().loss {
        return Err(told(loss.to_string()));
    }
    let found = files(&slow).map_err(told)?;
    if !states.iter().any(|(_, contents)| *contents == found) {
        let sizes: Vec<_> = found
            .iter()
            .map(|(name, bytes)| (name, bytes.len()))
            .collect();
        return Err(told(format!("no state of a renewal: {sizes:?}")));
    }
    drop(slow);
    let report = check(&parts.joined(There::Slow), &mut Options::default());
    match report.is_clean() {
        true => Ok(()),
        false => Err(told(report.to_string())),
    }
}

/// What was synced is there; what changes before the next sync may be there or not.
fn holds(volume: &Volume, history: &History, count: usize, alone: bool) -> Result<(), String> {
    let next = history.synced.partition_point(|(at, _)| *at <= count);
    let Some((_, before)) = next.checked_sub(1).map(|index| &history.synced[index]) else {
        return Ok(());
    };
    let after = history
        .synced
        .get(next)
        .map_or(before, |(_, contents)| contents);
    for (name, bytes) in before {
        let large = bytes.len() >= LARGE;
        if after.get(name) != Some(bytes) || large && alone {
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

/// Goes through crashes of a volume in use; behind some the volume is recovered on both, goes on, and crashes again. Which of the
/// writes that were not flushed are kept one by one follows from `seed`, too.
fn explore(
    parts: &Parts,
    history: &History,
    seed: usize,
    without: &Without,
) -> Result<usize, String> {
    let mut states = 0;
    for count in history.synced[0].0..=parts.recorder.event_count() {
        for (index, keep) in KEPT.into_iter().enumerate() {
            if (count + index) % 2 > 0 {
                continue;
            }
            let keep = keep.map(|kept| if kept > 1 { kept + seed as u32 } else { kept });
            let told = |wrong: String| format!("{count} requests, kept {keep:?}: {wrong}");
            let image = crashed(&parts.recorder, count, keep);
            survives(&image, history, count, without).map_err(told)?;
            states += 1;
            if count % (8 * KEPT.len()) != index {
                continue;
            }
            let again = Parts::of(image);
            let opened = open(&again, There::Both, without);
            let volume = opened.map_err(|error| told(error.to_string()))?;
            holds(&volume, history, count, false).map_err(told)?;
            let state = files(&volume).map_err(told)?;
            volume
                .upkeep()
                .renew()
                .map_err(|error| told(error.to_string()))?;
            let last = again.recorder.event_count();
            drop(volume);
            // Until the renewal has ended the copy has what it had.
            let before = history.of_copy(count);
            let then = [before, &[(0, state.clone())]].concat();
            for at in (0..=last).filter(|at| at % 3 == 0 || last - at < 6) {
                for keep in KEPT {
                    let parts = Parts::of(crashed(&again.recorder, at, keep));
                    let may: &[_] = if at < last {
                        &then
                    } else {
                        &then[before.len()..]
                    };
                    let told = |wrong| told(format!("{at} of recovery, kept {keep:?}: {wrong}"));
                    copy_holds(&parts, may, &Without::default()).map_err(told)?;
                    states += 1;
                }
            }
        }
    }
    Ok(states)
}

/// A history, where segments take the lowest free holes, so that what was freed is used again soon.
fn explored(without: &Without, seed: usize) -> Result<usize, String> {
    let parts = Parts::made(Some(CopyKind::Behind));
    let history = used(&parts, seed, without);
    explore(&parts, &history, seed, without)
}

#[test]
fn either_device_has_what_it_promises_whatever_the_other_one_loses() {
    for scattered in [false, true] {
        let lawful = Without::default().scattered(scattered);
        for seed in 0..HISTORIES {
            assert!(explored(&lawful, seed).unwrap() > 500);
        }
    }
}

#[test]
fn clauses_of_a_copy_that_is_behind_are_noticed() {
    for clause in [
        "copy-reuse",
        "copy-settle",
        "copy-named-early",
        "copy-followed",
    ] {
        let without = Without::clauses(clause).scattered(true);
        let found = (0..HISTORIES).find_map(|seed| explored(&without, seed).err());
        let found = found.expect(clause);
        println!("{clause}: {found}");
        assert_eq!(without.unreached(), [""; 0]);
    }
}

/// One of the devices is what it was when fewer requests had been made, as from a backup.
fn with_older(parts: &Parts, older: usize, count: usize) -> Parts {
    let (old, new) = (
        parts.recorder.image_after(count).unwrap(),
        parts.recorder.image(),
    );
    let part = |offset: u64| usize::from(offset >= FAST);
    let joined = MemoryDevice::from_image(new);
    let old = MemoryDevice::from_image(old);
    for at in (0..ALL).step_by(4096).filter(|at| part(*at) == older) {
        let bytes = read_exact(&old, at, 4096, IoKind::Other).unwrap();
        write_all(&joined, at, &bytes, IoKind::Other).unwrap();
    }
    Parts::of(joined.image())
}

/// A copy that is behind has what the log's device knows it to have, or more. One from a backup has less.
#[test]
fn a_device_from_a_backup_is_told_from_a_copy_that_is_behind() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let history = used(&parts, 0, &Without::default());
    let (last, _) = history.renewed.last().unwrap();
    let before = history.renewed[1..]
        .iter()
        .filter(|(count, _)| count < last);
    for (count, _) in before {
        for (older, refusal) in ["leads is older", "has the copy is older"]
            .iter()
            .enumerate()
        {
            let parts = with_older(&parts, older, *count);
            let image = parts.recorder.image();
            let options = OpenOptions::default();
            let opened = Volume::open(parts.joined(There::Both), &options, Env::fixed(5));
            let said = opened.map(drop).unwrap_err().to_string();
            assert!(said.contains(refusal), "{said}");
            assert!(parts.recorder.image() == image, "nothing was written");
            let report = check(&*parts.joined(There::Both), &mut Options::default());
            let is_stale = |it: &Problem| matches!(it, Problem::PlaceStale { device, .. } if *device == older as u32);
            assert!(report.problems.iter().any(is_stale), "{report}");
        }
    }
    // That it is behind is nothing wrong.
    let report = check(&*parts.joined(There::Both), &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    volume.close().unwrap();
}

/// A damaged place counts, however few problems are to be listed.
fn counts_unlisted(parts: &Parts) {
    let mut options = Options {
        problems_max: 0,
        ..Options::default()
    };
    let report = check(&*parts.joined(There::Both), &mut options);
    assert_eq!(report.counts.get(&119), Some(&1), "{report}");
}

#[test]
fn a_copy_that_is_damaged_is_told_and_made_anew() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let history = used(&parts, 0, &Without::default());
    let copy = FAST + parts.joined(There::Both).members()[1].offset() - FAST;
    let mut image = parts.recorder.image();
    for at in (0..FAST).step_by(4096) {
        image.clear(copy + at, 4096).unwrap();
    }
    let parts = Parts::of(image);
    let report = check(&*parts.joined(There::Both), &mut Options::default());
    let is_told = |it: &Problem| matches!(it, Problem::PlaceDamaged { device: 1, .. });
    assert!(report.problems.iter().any(is_told), "{report}");
    counts_unlisted(&parts);
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    volume.close().unwrap();
    let (_, contents) = history.synced.last().unwrap();
    copy_holds(&parts, &[(0, contents.clone())], &Without::default()).unwrap();
}

/// Large files stand in one place, which a copy knows too: what is damaged there is no fault of the copy, and no scrub mends it.
#[test]
fn what_is_wrong_in_a_large_file_is_not_told_of_the_copy() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    put(&volume, "large", &content(LARGE, 1)).unwrap();
    let ino = volume.lookup(ROOT_INO, b"large").unwrap().ino;
    volume.close().unwrap();
    let device = parts.joined(There::Both);
    let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
    let inode = reader.inode(ino).unwrap();
    let extent = reader.extents(&inode).next().unwrap().unwrap();
    let at = reader.geometry().byte_offset(extent.pointer.addr);
    assert!(at >= FAST);
    let mut bytes = read_exact(device.as_ref(), at, 4096, IoKind::Other).unwrap();
    bytes[9] ^= 1;
    write_all(device.as_ref(), at, &bytes, IoKind::Other).unwrap();
    let report = check(device.as_ref(), &mut Options::default());
    assert_eq!(report.counts, [(406, 1)].into(), "{report}");
}

/// The copy knows the devices as they were when it was renewed.
#[test]
fn a_copy_from_before_the_volume_grew_is_sound() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    put(&volume, "large", &content(LARGE, 1)).unwrap();
    volume.close().unwrap();
    let [fast, mut slow] = [0, 1].map(|index| parts.candidate(index));
    let longer = MemoryDevice::new(slow.device.size() + (1 << 20));
    for at in (0..slow.device.size()).step_by(4096) {
        let bytes = read_exact(slow.device.as_ref(), at, 4096, IoKind::Other).unwrap();
        longer.poke(at, &bytes).unwrap();
    }
    slow.device = Arc::new(longer);
    let joined = || join(&fast, std::slice::from_ref(&slow)).unwrap();
    let (before, after) = grow(&joined(), None, &Env::fixed(6)).unwrap();
    assert!(after > before);
    let report = check(joined().as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
    // What rots there is still found.
    let place = joined().members()[0].second_place().unwrap();
    let copy = JoinedDevice::new(vec![place]).unwrap();
    for at in (160 << 10..FAST).step_by(4096) {
        write_all(&copy, at, &[0; 4096], IoKind::Other).unwrap();
    }
    let report = check(joined().as_ref(), &mut Options::default());
    assert_eq!(report.counts.get(&119), Some(&1), "{report}");
}

/// Where nothing changed no disk is woken, and a volume that was closed is not copied anew.
#[test]
fn a_copy_is_renewed_by_the_clock_and_when_the_volume_is_closed() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let clock = Arc::new(ManualClock::new(1_000_000_000));
    let options = OpenOptions::default();
    let opened = || {
        let clock = Arc::clone(&clock) as _;
        Volume::open(parts.joined(There::Both), &options, Env::seeded(clock, 5)).unwrap()
    };
    let slow_bytes = || {
        let events = parts.recorder.events();
        let written = events.iter().map(|event| match event {
            Event::Write { offset, data, .. } if *offset >= FAST => data.len(),
            _ => 0,
        });
        written.sum::<usize>()
    };
    let wait = |seconds: u64| clock.advance(seconds * 1_000_000_000);
    let volume = opened();
    let (first, second) = (content(3_000, 1), content(3_000, 2));
    put(&volume, "f1", &first).unwrap();
    volume.sync().unwrap();
    let before = slow_bytes();
    wait(20);
    volume.upkeep().tick().unwrap();
    assert_eq!(slow_bytes(), before, "its time has not come");
    assert!(volume.info().behind.unwrap().bytes > Some(0));
    wait(20);
    for _ in 0..4 {
        volume.upkeep().tick().unwrap();
        wait(31);
    }
    let behind = volume.info().behind.unwrap();
    assert_eq!((behind.device, behind.bytes), (1, Some(0)), "{behind:?}");
    let then = Parts::of(parts.recorder.image());
    let only_first: Contents = [("f1".to_owned(), first)].into();
    copy_holds(&then, &[(0, only_first.clone())], &Without::default()).unwrap();
    let (before, events) = (slow_bytes(), parts.recorder.event_count());
    for _ in 0..4 {
        wait(31);
        volume.upkeep().tick().unwrap();
    }
    assert_eq!(
        (slow_bytes(), parts.recorder.event_count()),
        (before, events)
    );
    put(&volume, "f2", &second).unwrap();
    volume.close().unwrap();
    let both: Contents = only_first
        .into_iter()
        .chain([("f2".to_owned(), second)])
        .collect();
    copy_holds(
        &Parts::of(parts.recorder.image()),
        &[(0, both.clone())],
        &Without::default(),
    )
    .unwrap();
    let before = slow_bytes();
    let volume = opened();
    volume.close().unwrap();
    assert!(
        slow_bytes() - before < 512 << 10,
        "{}",
        slow_bytes() - before
    );
    copy_holds(
        &Parts::of(parts.recorder.image()),
        &[(0, both)],
        &Without::default(),
    )
    .unwrap();
}

/// What waits for the copy comes back before anybody is told that there is no room.
#[test]
fn a_full_volume_renews_its_copy_before_it_refuses() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    let fill = |round: usize| {
        for number in 0.. {
            let name = format!("{number}");
            let size = if number % 2 == 0 { 3_000 } else { LARGE / 2 };
            match put(&volume, &name, &content(size, number + round)) {
                Ok(()) => {}
                Err(Error::NoSpace) => return number,
                Err(error) => panic!("{name}: {error}"),
            }
        }
        unreachable!()
    };
    let mut most = 0;
    for round in 0..5 {
        let filled = fill(round);
        most = most.max(filled);
        assert!(
            filled * 10 >= most * 8,
            "{filled} of {most} files in round {round}"
        );
        for number in 0..=filled {
            match volume.unlink(ROOT_INO, format!("{number}").as_bytes()) {
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => panic!("{number}: {error}"),
            }
        }
    }
    put(&volume, "f1", &content(3_000, 1)).unwrap();
    volume.close().unwrap();
    for there in [There::Both, There::Slow] {
        let report = check(&*parts.joined(there), &mut Options::default());
        assert!(report.is_clean(), "{there:?}: {report}");
    }
}

/// Power fails at every request while a copy is given up, and made; the slow device alone has a checkpoint of the time in which there was one.
#[test]
fn a_copy_that_is_behind_comes_and_goes() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let volume = open(&parts, There::Both, &Without::default()).unwrap();
    let now = || parts.recorder.event_count();
    let mut history = History::default();
    let mut contents = Contents::new();
    let mut write = |step: usize, history: &mut History| {
        let (name, bytes) = (format!("f{}", step % 4), content(3_000, step));
        if contents.remove(&name).is_some() {
            volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
        }
        put(&volume, &name, &bytes).unwrap();
        contents.insert(name, bytes);
        volume.sync().unwrap();
        history.synced.push((now(), contents.clone()));
    };
    let copying = || volume.upkeep().copying();
    (0..3).for_each(|step| write(step, &mut history));
    copying().give_up().unwrap();
    let given_up = now();
    (3..6).for_each(|step| write(step, &mut history));
    // Somebody thinks better of it.
    assert!(!copying().make_behind(|_| false).unwrap());
    (6..8).for_each(|step| write(step, &mut history));
    let may_be = now();
    let mut step = 8;
    let made = copying().make_behind(|_| {
        write(step, &mut history);
        step += 1;
        true
    });
    assert!(made.unwrap());
    let is_there = now();
    (20..24).for_each(|step| write(step, &mut history));
    let refused = copying().make(|_| true).unwrap_err().to_string();
    assert!(refused.contains("of the other kind"), "{refused}");
    drop(volume);
    let mut states = 0;
    for count in history.synced[0].0..=now() {
        for keep in KEPT.into_iter().skip(count % 2).step_by(2) {
            let image = crashed(&parts.recorder, count, keep);
            let told = format!("{count} requests, kept {keep:?}");
            let crashed = Parts::of(image);
            let fast = open(&crashed, There::Fast, &Without::default()).unwrap();
            holds(&fast, &history, count, true).expect(&told);
            drop(fast);
            states += 1;
            let alone = join_without(&crashed.candidate(1), &[]);
            let of_promise: Vec<(usize, Contents)> =
                [vec![(0, Contents::new())], history.synced.clone()].concat();
            match alone {
                Err(error) => assert!(count < is_there, "{told}: {error}"),
                Ok(_) if count > given_up && count <= may_be => panic!("{told}: an old state"),
                Ok(_) => copy_holds(&crashed, &of_promise, &Without::default()).expect(&told),
            }
            if count % 48 == 0 {
                let volume = open(&crashed, There::Both, &Without::default()).unwrap();
                assert!(
                    volume
                        .upkeep()
                        .copying()
                        .make_behind(|_| true)
                        .expect(&told)
                );
                volume.close().unwrap();
                copy_holds(&crashed, &of_promise, &Without::default()).expect(&told);
            }
        }
    }
    assert!(states > 200);
}

/// A large file is removed while its copy is renewed to be given up. Others took its homes, on the device that has the copy, before that had heard
/// that there is none: the fast one was lost then, and the file that the copy has was damaged.
#[test]
fn homes_that_a_copy_needs_stay_until_its_holder_has_heard_that_there_is_none() {
    let (slow, device, volume) = on_busy();
    let (bytes, over) = (content(5 << 20, 7), content(5 << 18, 8));
    put(&volume, "large", &bytes).unwrap();
    volume.sync().unwrap();
    let (tell, told) = mpsc::channel();
    let (busy, other) = (Arc::clone(&slow), Arc::clone(&volume));
    let hears = move || {
        let written = || busy.counters().total().write_bytes;
        let before = written();
        let taking = thread::spawn(move || {
            put(&other, "taker", &content(5 << 18, 8)).unwrap();
            other.sync().unwrap();
        });
        // Nothing is written where it has no room yet.
        for _ in 0..50 {
            if written() - before >= 1 << 20 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        tell.send((busy.fork(), taking)).unwrap();
    };
    let (busy, other, before) = (Arc::clone(&slow), Arc::clone(&volume), named(&*device));
    let is_renewed = move || {
        other.unlink(ROOT_INO, b"large").unwrap();
        let names = move || {
            named(&*device)
                .iter()
                .all(|named| *named > before[0].max(before[1]))
        };
        once(busy, names, Box::new(hears));
    };
    once(Arc::clone(&slow), || true, Box::new(is_renewed));
    volume.upkeep().copying().give_up().unwrap();
    let (then, taking) = busy::told(&told).unwrap();
    taking.join().unwrap();
    assert!(get(&volume, "taker").unwrap() == over);
    let then = Candidate {
        name: "slow".into(),
        device: Arc::new(then),
    };
    let alone = join_without(&then, &[]).unwrap();
    let report = check(alone.as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let alone = Volume::open(alone, &options, Env::fixed(8)).unwrap();
    assert!(get(&alone, "large").unwrap() == bytes);
}

/// Without the fast device the volume can be read; without the slow one it goes on, and forgets the copy.
#[test]
fn nobody_writes_without_the_copy_or_from_it() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let history = used(&parts, 0, &Without::default());
    for there in [There::Fast, There::Slow] {
        let opened = Volume::open(parts.joined(there), &OpenOptions::default(), Env::fixed(5));
        assert!(
            matches!(opened, Err(Error::Log(LogError::Alone))),
            "{there:?}"
        );
    }
    let new = Candidate {
        name: "new".into(),
        device: Arc::new(MemoryDevice::new(FAST)),
    };
    let slow = parts.candidate(1);
    let refused = Replacing::ask(&slow, &[], &new).map(drop).unwrap_err();
    assert!(refused.to_string().contains("is behind"), "{refused}");
    let fast = parts.candidate(0);
    remove_missing(&fast, &[], &Env::fixed(6)).unwrap();
    let alone = join(&fast, &[]).unwrap();
    let volume = Volume::open(alone, &OpenOptions::default(), Env::fixed(7)).unwrap();
    assert!(volume.info().behind.is_none());
    holds(&volume, &history, usize::MAX, true).unwrap();
    volume.close().unwrap();
    assert!(join(&fast, &[slow]).is_err(), "it left for good");
}

/// A volume with such a copy on devices of which the slow one is told when to fail: that, both, and the volume.
fn on_busy() -> (Arc<Busy>, Arc<dyn Device>, Arc<Volume>) {
    let fast: Arc<dyn Device> = Arc::new(MemoryDevice::new(FAST));
    let slow = Arc::new(Busy::new(MemoryDevice::new(ALL - FAST)));
    let new = |device, kind| NewDevice { device, kind };
    let devices = [
        new(fast, DeviceKind::Fast),
        new(slow.clone() as Arc<dyn Device>, DeviceKind::Slow),
    ];
    let options = MkfsOptions {
        copy: Some(CopyKind::Behind),
        ..MkfsOptions::default()
    };
    let device = mkfs_on(&devices, &options, &Env::fixed(1)).unwrap();
    let volume = Volume::open(device.clone(), &OpenOptions::default(), Env::fixed(2)).unwrap();
    put(&volume, "small", &content(3_000, 1)).unwrap();
    volume.upkeep().renew().unwrap();
    put(&volume, "other", &content(3_000, 2)).unwrap();
    (slow, device, Arc::new(volume))
}

/// The checkpoints that the copy's superblocks name.
fn named(device: &dyn Device) -> [Option<Ssn>; 2] {
    let place = device.members()[0].second_place().unwrap();
    let copy = JoinedDevice::new(vec![place]).unwrap();
    superblocks::find(&copy).unwrap().named
}

/// Runs a hook when somebody looks for superblocks on a device, or writes one, once something is so.
fn once(busy: Arc<Busy>, is_so: impl Fn() -> bool + Send + 'static, hook: busy::Hook) {
    let at = Arc::clone(&busy);
    let look = move || match is_so() {
        true => hook(),
        false => once(busy, is_so, hook),
    };
    at.at(Some(IoKind::Superblock), 0, Box::new(look));
}

/// Some of what was copied may be lost by it, and the flush behind the rest does not tell. The copy named a checkpoint all the same, in the
/// place of one that it had.
#[test]
fn a_copy_beside_a_flush_that_failed_names_nothing() {
    let (slow, device, volume) = on_busy();
    let named = || named(device.as_ref());
    let before = named();
    let (busy, other) = (slow.clone(), volume.clone());
    let hook = move || {
        busy.fail_flushes(1);
        assert!(put(&other, "large", &content(LARGE, 3)).is_err());
    };
    slow.at(Some(IoKind::Other), 0, Box::new(hook));
    assert!(volume.upkeep().renew().is_err());
    assert!(!slow.idle());
    assert_eq!(named(), before);
}

/// Large files stand on that device too. What somebody had written of one just then may be lost by it, and his own flush does not tell.
#[test]
fn a_flush_of_the_copy_that_fails_is_one_of_the_volume() {
    let mut reached = 0;
    for skip in 0..8 {
        let (slow, _, volume) = on_busy();
        let busy = slow.clone();
        slow.at_flush(skip, Box::new(move || busy.fail_flushes(1)));
        let renewed = volume.upkeep().renew();
        if slow.idle() {
            renewed.unwrap();
            break;
        }
        reached += 1;
        assert!(renewed.is_err());
        assert!(!volume.info().access.is_writable(), "flush {skip}");
    }
    assert!((3..8).contains(&reached), "{reached}");
}

/// Two administrators: one makes a copy, and the other gives it up meanwhile, or makes one of the other kind. Both wrote to one place, and
/// superblocks told of a copy for which nobody kept what it needs.
#[test]
fn copies_are_made_and_given_up_one_at_a_time() {
    let other_kind = |volume: &Volume| {
        let made = volume.upkeep().copying().make(|_| true);
        assert!(
            matches!(made, Ok(true) | Err(Error::Options(_))),
            "{made:?}"
        );
    };
    let give_up = |volume: &Volume| volume.upkeep().copying().give_up().unwrap();
    for meanwhile in [&give_up as &(dyn Fn(&Volume) + Sync), &other_kind] {
        let parts = Parts::made(Some(CopyKind::Behind));
        let volume = open(&parts, There::Both, &Without::default()).unwrap();
        give_up(&volume);
        put(&volume, "kept", &content(3_000, 1)).unwrap();
        volume.sync().unwrap();
        thread::scope(|scope| {
            let mut other = None;
            let made = volume.upkeep().copying().make_behind(|_| {
                other.get_or_insert_with(|| scope.spawn(|| meanwhile(&volume)));
                // So that it comes between.
                thread::sleep(Duration::from_millis(20));
                true
            });
            assert!(made.unwrap());
        });
        for round in 0..40 {
            put(&volume, "over", &content(3_000, round)).unwrap();
            volume.sync().unwrap();
            volume.unlink(ROOT_INO, b"over").unwrap();
            volume.upkeep().checkpoint().unwrap();
        }
        let behind = volume.info().behind;
        assert!(behind.is_none_or(|it| it.bytes.is_some()), "{behind:?}");
        drop(volume);
        match join_without(&parts.candidate(1), &[]) {
            Ok(_) => {
                let report = check(&*parts.joined(There::Slow), &mut Options::default());
                assert!(report.is_clean(), "{report}");
                let slow = open(&parts, There::Slow, &Without::default()).unwrap();
                assert_eq!(get(&slow, "kept").unwrap(), content(3_000, 1));
            }
            Err(error) => assert!(behind.is_none(), "{error}"),
        }
    }
}

/// Whoever made a copy kept the clock from all that it does, for as long as that took: nothing was committed by its age.
#[test]
fn the_clock_goes_on_while_a_copy_is_made() {
    let parts = Parts::made(Some(CopyKind::Behind));
    let clock = Arc::new(ManualClock::new(1_000_000_000));
    let env = Env {
        clock: Arc::clone(&clock) as _,
        ..Env::fixed(5)
    };
    let volume = Volume::open(parts.joined(There::Both), &OpenOptions::default(), env).unwrap();
    let volume = Arc::new(volume);
    volume.upkeep().copying().give_up().unwrap();
    put(&volume, "early", &content(LARGE, 1)).unwrap();
    let mut told = 0;
    let made = volume.upkeep().copying().make_behind(|_| {
        told += 1;
        let late = format!("late{told}");
        put(&volume, &late, &content(3_000, told)).unwrap();
        clock.advance(3_600_000_000_000);
        let (done, is_done) = mpsc::channel();
        let other = Arc::clone(&volume);
        thread::spawn(move || done.send(other.upkeep().tick()));
        let ticked = is_done.recv_timeout(Duration::from_secs(60));
        ticked.expect("the clock waits").unwrap();
        let ino = volume.lookup(ROOT_INO, late.as_bytes()).unwrap().ino;
        assert!(volume.is_durable(ino));
        true
    });
    assert!(made.unwrap());
    assert!(told > 0);
}
