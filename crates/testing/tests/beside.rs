//! What others do while homes are written and images settle: a small file waits for nobody (rule 3), what was promised is
//! there, and nothing is written over what came to stand there meanwhile (rule 7).

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, check};
use loamfs_device::{Device, IoKind, MemoryDevice};
use loamfs_format::Ino;
use loamfs_fs::{
    Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, RenameFlags, SetAttr, Volume, mkfs,
};
use loamfs_testing::busy::{Busy, told};
use loamfs_testing::left_out;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const NEW: NewInode = NewInode::of_mode(0o644);
const UNIT: usize = 4096;
/// Bytes of the volumes here: few groups, so that what is freed is soon used again.
const SIZE: u64 = 4 << 20;

fn made(size: u64) -> MemoryDevice {
    let memory = Arc::new(MemoryDevice::new(size).with_rotational(false));
    let plain: Arc<dyn Device> = memory.clone();
    let options = MkfsOptions {
        block_size: 4096,
        group_size: Some(256 << 10),
        segment_max: Some(64 << 10),
        ..MkfsOptions::default()
    };
    mkfs(&plain, &options, &Env::fixed(1)).unwrap();
    memory.fork()
}

fn open(memory: MemoryDevice) -> (Arc<Busy>, Arc<Volume>) {
    let busy = Arc::new(Busy::new(memory));
    let volume = left_out::open(busy.clone(), &OpenOptions::default(), Env::fixed(2)).unwrap();
    (busy, Arc::new(volume))
}

/// The volume as it is after a crash now; it is whole.
fn crashed(busy: &Busy) -> Arc<Volume> {
    let (_, volume) = open(busy.fork());
    volume.sync().unwrap();
    let mut options = Options::default();
    let (device, after) = open(busy.fork());
    after.close().unwrap();
    let report = check(&device.fork(), &mut options);
    assert!(report.is_clean(), "{report}");
    volume
}

fn create(volume: &Volume, name: &str, content: &[u8]) -> Ino {
    let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
    volume.write(ino, 0, content).unwrap();
    ino
}

fn read(volume: &Volume, name: &str) -> Vec<u8> {
    let attr = volume.lookup(ROOT_INO, name.as_bytes()).unwrap();
    volume.read(attr.ino, 0, attr.size as usize).unwrap()
}

fn resize(volume: &Volume, ino: Ino, size: u64) {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(ino, &set).unwrap();
}

fn rename(volume: &Volume, from: &str, to: &str) {
    let flags = RenameFlags::default();
    let (from, to) = (from.as_bytes(), to.as_bytes());
    volume.rename(ROOT_INO, from, ROOT_INO, to, flags).unwrap();
}

/// A file at home, of which every other unit is an image that may settle.
fn overwritten(volume: &Volume) -> Ino {
    let file = create(volume, "f", &[1; 64 * UNIT]);
    volume.sync().unwrap();
    overwrite(volume, file, 2);
    file
}

fn overwrite(volume: &Volume, file: Ino, byte: u8) {
    for unit in (0..64).step_by(2) {
        volume
            .write(file, unit * UNIT as u64, &[byte; UNIT])
            .unwrap();
    }
    volume.fsync(file, false).unwrap();
}

/// Whether every other unit of a file is of one byte, and the others of 1.
fn is_overwritten(content: &[u8], byte: u8) {
    let units = content.chunks(UNIT).map(|unit| (unit[0], unit[UNIT - 1]));
    let expected = (0..64).map(|unit| [byte, 1][unit % 2]);
    assert!(units.eq(expected.map(|byte| (byte, byte))));
}

#[test]
fn what_is_overwritten_while_it_settles_is_not_lost() {
    let (busy, volume) = open(made(SIZE));
    let file = overwritten(&volume);
    let other = Arc::clone(&volume);
    let hook = move || overwrite(&other, file, 3);
    busy.at(Some(IoKind::Settle), 0, Box::new(hook));
    volume.upkeep().settle(usize::MAX).unwrap();
    assert!(!busy.idle());
    volume.sync().unwrap();
    is_overwritten(&read(&crashed(&busy), "f"), 3);
    volume.upkeep().settle(usize::MAX).unwrap();
    volume.sync().unwrap();
    is_overwritten(&read(&crashed(&busy), "f"), 3);
}

/// An overwrite that waited for its segment came back over what was written after it, when that got a new home first.
#[test]
fn an_image_that_waits_gives_way_to_what_was_written_since() {
    let (busy, volume) = open(made(16 << 20));
    let file = create(&volume, "f", &[1; 300 * UNIT]);
    let late = create(&volume, "g", &[1; 64 * UNIT]);
    volume.sync().unwrap();
    volume.write(file, 5 * UNIT as u64, &[2; UNIT]).unwrap();
    volume.write(late, 64 * UNIT as u64, &[1; UNIT]).unwrap();
    let other = Arc::clone(&volume);
    let hook = move || {
        other.write(file, 0, &[3; 300 * UNIT]).unwrap();
        other.fsync(file, false).unwrap();
        assert!(read(&other, "f").iter().all(|byte| *byte == 3));
    };
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
    volume.sync().unwrap();
    assert!(!busy.idle());
    assert!(read(&volume, "f").iter().all(|byte| *byte == 3));
    let after = crashed(&busy);
    assert!(read(&after, "f").iter().all(|byte| *byte == 3));
}

#[test]
fn a_home_is_settled_by_one_at_a_time() {
    let (busy, volume) = open(made(SIZE));
    let file = overwritten(&volume);
    let other = Arc::clone(&volume);
    let hook = move || {
        overwrite(&other, file, 3);
        other.upkeep().settle(usize::MAX).unwrap();
        other.sync().unwrap();
    };
    busy.at(Some(IoKind::Settle), 0, Box::new(hook));
    volume.upkeep().settle(usize::MAX).unwrap();
    assert!(!busy.idle());
    volume.sync().unwrap();
    is_overwritten(&read(&crashed(&busy), "f"), 3);
}

/// Fills what is free with large files; returns their names.
fn fill(volume: &Volume, byte: u8) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let name = format!("{byte}-{}", names.len());
        let ino = match volume.create(ROOT_INO, name.as_bytes(), &NEW) {
            Ok(attr) => attr.ino,
            Err(_) => return names,
        };
        let written = volume.write(ino, 0, &[byte; 16 * UNIT]);
        if !written.is_ok_and(|bytes| bytes == 16 * UNIT) {
            volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
            return names;
        }
        names.push(name);
        if volume.fsync(ino, false).is_err() {
            return names;
        }
    }
}

/// Deletes `f` and uses its homes again, where there is no other room, at the first request of a kind. Tells the names.
fn use_again(busy: &Busy, volume: &Arc<Volume>, kind: IoKind) -> Receiver<Vec<String>> {
    let (other, (said, names)) = (Arc::clone(volume), channel());
    let hook = move || {
        other.unlink(ROOT_INO, b"f").unwrap();
        other.sync().unwrap();
        other.sync().unwrap();
        said.send(fill(&other, 5)).unwrap();
    };
    busy.at(Some(kind), 0, Box::new(hook));
    names
}

fn are_whole(volume: &Volume, names: &[String], byte: u8) {
    assert!(names.len() > 4, "{} files", names.len());
    hold(volume, names, byte);
}

fn hold(volume: &Volume, names: &[String], byte: u8) {
    for name in names {
        assert!(read(volume, name) == [byte; 16 * UNIT], "{name}");
    }
}

/// Fills what is free with large files, but for the last ones of them.
fn fill_but(volume: &Volume, gone: usize) {
    for name in fill(volume, 4).iter().rev().take(gone) {
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
    }
}

/// With more or less room besides, since what is freed is used again at once only where little else is free.
#[test]
fn nothing_settles_over_what_is_used_again() {
    for gone in 0..8 {
        let (busy, volume) = open(made(SIZE));
        overwritten(&volume);
        fill_but(&volume, gone);
        let names = use_again(&busy, &volume, IoKind::Settle);
        volume.upkeep().settle(usize::MAX).unwrap();
        let names = told(&names).unwrap();
        volume.sync().unwrap();
        hold(&crashed(&busy), &names, 5);
    }
}

#[test]
fn no_home_is_used_again_before_the_first_write_to_it_is_over() {
    let (busy, volume) = open(made(SIZE));
    // Keeps the group one of data.
    create(&volume, "g", &[2; 16 * UNIT]);
    volume.sync().unwrap();
    let file = create(&volume, "f", &[1; 32 * UNIT]);
    let (other, (said, names)) = (Arc::clone(&volume), channel());
    let hook = move || {
        other.unlink(ROOT_INO, b"f").unwrap();
        said.send(fill(&other, 5)).unwrap();
    };
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
    // Whether it says that the file is gone is of no interest here.
    let _ = volume.fsync(file, false);
    let names = told(&names).unwrap();
    volume.sync().unwrap();
    are_whole(&crashed(&busy), &names, 5);
}

/// A file with space for so many units, none of which was written.
fn reserved(volume: &Volume, units: u64) -> Ino {
    let file = create(volume, "f", b"");
    let len = units * UNIT as u64;
    volume.ranges(file).allocate(0, len, true).unwrap();
    volume.sync().unwrap();
    file
}

#[test]
fn no_reserved_home_is_used_again_before_the_first_write_to_it_is_over() {
    for gone in 0..32 {
        let (busy, volume) = open(made(SIZE));
        let file = reserved(&volume, 64);
        fill_but(&volume, gone);
        volume.write(file, 0, &[1; 64 * UNIT]).unwrap();
        let names = use_again(&busy, &volume, IoKind::Homed);
        // Whether it says that the file is gone is of no interest here.
        let _ = volume.fsync(file, false);
        let names = told(&names).unwrap();
        volume.sync().unwrap();
        hold(&crashed(&busy), &names, 5);
    }
}

#[test]
fn a_reserved_home_is_written_by_one_at_a_time() {
    let (busy, volume) = open(made(SIZE));
    let file = reserved(&volume, 64);
    volume.write(file, 0, &[1; 32 * UNIT]).unwrap();
    let (other, (said, done)) = (Arc::clone(&volume), channel());
    let hook = move || {
        std::thread::spawn(move || {
            // The write under way is given up, and another one is asked for.
            resize(&other, file, 16 * UNIT as u64);
            other.write(file, 0, &[2; 16 * UNIT]).unwrap();
            other.fsync(file, false).unwrap();
            said.send(()).unwrap();
        });
        // Who is not made to wait comes first.
        let _ = done.recv_timeout(Duration::from_secs(1));
    };
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
    volume.fsync(file, false).unwrap();
    assert!(!busy.idle());
    volume.sync().unwrap();
    assert!(read(&crashed(&busy), "f") == [2; 16 * UNIT]);
}

/// It waited for whoever held the lock of commits, which all homes were written under.
#[test]
fn a_small_file_is_synced_while_a_large_one_is_written() {
    let (busy, volume) = open(made(SIZE));
    create(&volume, "large", &[1; 200 * UNIT]);
    let (other, device, (said, done)) = (Arc::clone(&volume), Arc::clone(&busy), channel());
    let hook = move || {
        std::thread::spawn(move || {
            let small = create(&other, "small", b"promised");
            other.fsync(small, false).unwrap();
            said.send(device.fork()).unwrap();
        });
        // Whoever writes the large file waits here, and would wait for ever.
        let image = done.recv_timeout(Duration::from_secs(20)).unwrap();
        let (_, volume) = open(image);
        assert_eq!(read(&volume, "small"), b"promised");
    };
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
    volume.sync().unwrap();
    assert!(!busy.idle());
    assert!(read(&crashed(&busy), "large") == [1; 200 * UNIT]);
}

/// Its data were given up, and nobody wrote them again.
#[test]
fn sync_covers_a_file_that_is_cut_while_it_is_written() {
    let (busy, volume) = open(made(SIZE));
    let file = create(&volume, "f", &[1; 64 * UNIT]);
    let other = Arc::clone(&volume);
    let hook = move || resize(&other, file, 32 * UNIT as u64);
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
    volume.sync().unwrap();
    assert!(!busy.idle());
    let content = read(&crashed(&busy), "f");
    assert!(content.len() >= 32 * UNIT);
    assert!(content[..32 * UNIT] == [1; 32 * UNIT]);
}

/// Gives others time to bring all data of large files home.
fn wait_for_homes(volume: &Volume) {
    let tries = 0..200;
    for _ in tries.take_while(|_| volume.info().dirty_home_bytes > 0) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A file that was small meanwhile counted what was put into it from the start again, so that an fsync took what was
/// written later for what it had promised, and failed.
#[test]
fn an_fsync_does_not_wait_for_what_is_written_later() {
    let (busy, volume) = open(made(SIZE));
    let file = create(&volume, "f", &[1; 64]);
    volume.sync().unwrap();
    for _ in 0..2 {
        volume.write(file, 0, &[1; 64 * UNIT]).unwrap();
    }
    let small = create(&volume, "small", b"promised");
    let (other, device, (said, done)) = (Arc::clone(&volume), Arc::clone(&busy), channel());
    let hook = move || {
        let (first, (began, is_again)) = (Arc::clone(&other), channel());
        let again = move || {
            resize(&first, file, 64);
            first.write(file, 0, &[2; 64 * UNIT]).unwrap();
            began.send(()).unwrap();
        };
        device.at(Some(IoKind::Homed), 0, Box::new(again));
        let waiting = Arc::clone(&other);
        thread::spawn(move || said.send(waiting.fsync(file, false)).unwrap());
        told(&is_again).unwrap();
        wait_for_homes(&other);
        other.write(file, 64 * UNIT as u64, &[3; UNIT]).unwrap();
    };
    busy.at(Some(IoKind::Segment), 0, Box::new(hook));
    volume.fsync(small, false).unwrap();
    told(&done).unwrap().unwrap();
    crashed(&busy);
}

/// Each time that a file's data are on their way home, another cuts the file by a unit, `times` times; a cut that waits
/// for them is let go on.
fn cut_each_time(busy: &Arc<Busy>, volume: &Arc<Volume>, file: Ino, units: u64, times: u64) {
    if times == 0 {
        return;
    }
    let (device, other) = (Arc::clone(busy), Arc::clone(volume));
    let hook = move || {
        let (cut, is_cut) = channel();
        let cutter = Arc::clone(&other);
        thread::spawn(move || {
            resize(&cutter, file, (units - 1) * UNIT as u64);
            cut.send(()).unwrap();
        });
        let _ = is_cut.recv_timeout(Duration::from_millis(200));
        cut_each_time(&device, &other, file, units - 1, times - 1);
    };
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
}

/// It ended with an error, though nothing was wrong with the device.
#[test]
fn sync_ends_though_a_file_is_cut_each_time_that_it_is_written() {
    let (busy, volume) = open(made(SIZE));
    let file = create(&volume, "f", &[1; 64 * UNIT]);
    cut_each_time(&busy, &volume, file, 64, 40);
    volume.fsync(file, false).unwrap();
    busy.idle();
    let after = read(&crashed(&busy), "f");
    assert!(after.len() > 20 * UNIT && after.iter().all(|byte| *byte == 1));
}

/// The file's end was hidden by what somebody wrote into its last hole meanwhile, though the file was no longer for it.
#[test]
fn sync_covers_a_files_length_while_its_holes_are_filled() {
    let (busy, volume) = open(made(128 << 20));
    // More than a round writes at once, so that the second file is gone over later.
    create(&volume, "first", &vec![1; 20 << 20]);
    let file = create(&volume, "second", &[2; 8 * UNIT]);
    resize(&volume, file, 1 << 20);
    let other = Arc::clone(&volume);
    let hook = move || {
        other.write(file, 800 << 10, &[3; UNIT]).unwrap();
    };
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
    volume.sync().unwrap();
    assert!(!busy.idle());
    let content = read(&crashed(&busy), "second");
    assert_eq!(content.len(), 1 << 20);
    assert!(content[..8 * UNIT] == [2; 8 * UNIT]);
}

/// What was renamed and written while it held a commit up held nothing up any more.
#[test]
fn a_rename_brings_its_data_though_the_file_is_being_written() {
    let (busy, volume) = open(made(SIZE));
    create(&volume, "old", b"old content");
    volume.sync().unwrap();
    let file = create(&volume, "new", &[1; 16 * UNIT]);
    create(&volume, "between", b"");
    rename(&volume, "new", "between");
    let other = Arc::clone(&volume);
    let hook = move || {
        other
            .write(file, 16 * UNIT as u64, &[2; 16 * UNIT])
            .unwrap();
        rename(&other, "between", "old");
    };
    busy.at(Some(IoKind::Homed), 0, Box::new(hook));
    volume.upkeep().checkpoint().unwrap();
    assert!(!busy.idle());
    let content = read(&crashed(&busy), "old");
    assert_eq!(content.len(), 32 * UNIT);
    assert!(content[16 * UNIT..] == [2; 16 * UNIT]);
}

/// Clauses of rule 7, and the test above that notices when one is left out.
const CLAUSES: [(&str, &str); 6] = [
    (
        "settled-blindly",
        "what_is_overwritten_while_it_settles_is_not_lost",
    ),
    ("settle-overlaps", "a_home_is_settled_by_one_at_a_time"),
    (
        "reuse-during-settle",
        "nothing_settles_over_what_is_used_again",
    ),
    (
        "reuse-during-write",
        "no_home_is_used_again_before_the_first_write_to_it_is_over",
    ),
    (
        "reuse-during-first-write",
        "no_reserved_home_is_used_again_before_the_first_write_to_it_is_over",
    ),
    (
        "first-write-overlaps",
        "a_reserved_home_is_written_by_one_at_a_time",
    ),
];

#[test]
fn every_clause_is_missed_when_it_is_left_out() {
    assert_eq!(left_out::unmissed(&CLAUSES).unwrap(), []);
}

/// Makes a file before each write of a segment, the first `most` times.
fn make_at_each_segment(busy: &Arc<Busy>, volume: &Arc<Volume>, made: u64, most: u64) {
    let (device, volume) = (Arc::clone(busy), Arc::clone(volume));
    let hook = move || {
        create(&volume, &format!("beside {made}"), &[1; 100]);
        if made + 1 < most {
            make_at_each_segment(&device, &volume, made + 1, most);
        }
    };
    busy.at(Some(IoKind::Segment), 0, Box::new(hook));
}

/// Each write of a segment left something to commit, and the checkpoint began again, as long as others had something to do.
#[test]
fn a_checkpoint_ends_while_others_go_on() {
    let (busy, volume) = open(made(SIZE));
    create(&volume, "f", &[1; 100]);
    let before = volume.info().segment.0;
    make_at_each_segment(&busy, &volume, 0, 50);
    volume.upkeep().checkpoint().unwrap();
    let segments = volume.info().segment.0 - before;
    // What was there, what came meanwhile, and the checkpoint.
    assert!(segments <= 3, "{segments} segments");
    busy.idle();
    let after = crashed(&busy);
    assert_eq!(read(&after, "beside 0"), [1; 100]);
}

/// Replaces a file by a large one, whose data wait, before each write of a segment, the first `most` times.
fn replace_at_each_segment(busy: &Arc<Busy>, volume: &Arc<Volume>, byte: u8, most: u8) {
    let (device, volume) = (Arc::clone(busy), Arc::clone(volume));
    let hook = move || {
        create(&volume, "new", &[byte; 8 * UNIT]);
        rename(&volume, "new", "f");
        if byte < most {
            replace_at_each_segment(&device, &volume, byte + 1, most);
        }
    };
    busy.at(Some(IoKind::Segment), 0, Box::new(hook));
}

/// What was renamed behind each segment kept the checkpoint from being sealed, and the next segment waited for the data: so it went on, and the
/// chain that a mount reads became longer.
#[test]
fn a_checkpoint_ends_while_others_replace_files() {
    let (busy, volume) = open(made(4 * SIZE));
    create(&volume, "f", &[1; 100]);
    let before = volume.info().segment.0;
    replace_at_each_segment(&busy, &volume, 2, 20);
    volume.upkeep().checkpoint().unwrap();
    let segments = volume.info().segment.0 - before;
    assert!(segments <= 3, "{segments} segments");
    busy.idle();
    let after = crashed(&busy);
    assert_eq!(read(&after, "f"), [2; 8 * UNIT]);
}

/// Has the flush that is so many flushes away come behind one of somebody else's homes that failed.
fn fail_before_flush(busy: &Arc<Busy>, volume: &Arc<Volume>, skip: u64) {
    let large = create(volume, "large", &[1; 64 * UNIT]);
    let (device, volume) = (Arc::clone(busy), Arc::clone(volume));
    let hook = move || {
        device.fail_flushes(1);
        assert!(volume.fsync(large, false).is_err());
    };
    busy.at_flush(skip, Box::new(hook));
}

/// It may have dropped what both had written, and the later one does not tell: a sync said that all was well.
#[test]
fn a_flush_beside_one_that_failed_is_not_trusted() {
    let (busy, volume) = open(made(SIZE));
    let small = create(&volume, "f", &[1; 100]);
    fail_before_flush(&busy, &volume, 0);
    assert!(volume.fsync(small, false).is_err());
    assert!(!busy.idle() && !volume.info().access.is_writable());
}

/// What a checkpoint gives back would have been discarded, and the one that superblocks name may need it.
#[test]
fn a_superblock_beside_a_flush_that_failed_names_nothing() {
    let mut reached = 0;
    for skip in 0..8 {
        let (busy, volume) = open(made(SIZE));
        create(&volume, "f", &[1; 100]);
        volume.sync().unwrap();
        fail_before_flush(&busy, &volume, skip);
        let taken = volume.upkeep().checkpoint();
        if busy.idle() {
            assert!(taken.is_ok());
            break;
        }
        reached += 1;
        assert!(taken.is_err(), "flush {skip}");
    }
    assert_eq!(reached, 2, "of the segment, and of the superblock");
}

/// Whoever has frozen a volume copies the device below, and the clock went on with what it had begun.
#[test]
fn a_volume_freezes_behind_what_the_clock_has_begun() {
    let (made, volume) = open(made(SIZE));
    create(&volume, "f", &[1; 100]);
    volume.close().unwrap();
    let busy = Arc::new(Busy::new(made.fork()));
    let options = OpenOptions {
        read_around: false,
        ..OpenOptions::default()
    };
    let volume = Arc::new(Volume::open(busy.clone(), &options, Env::fixed(3)).unwrap());
    let (other, (tells, said)) = (Arc::clone(&volume), channel());
    let hook = move || {
        let freezing = thread::spawn(move || other.upkeep().freeze());
        for _ in 0..50 {
            if freezing.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        tells.send((freezing.is_finished(), freezing)).unwrap();
    };
    busy.at(None, 0, Box::new(hook));
    let ticked = volume.upkeep().tick();
    let (is_early, freezing) = told(&said).unwrap();
    assert!(!is_early);
    ticked.unwrap();
    freezing.join().unwrap().unwrap();
    assert!(!volume.info().access.is_writable());
}
