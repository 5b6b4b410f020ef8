//! Access times: which reads count, what keeps them, and that nobody pays for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::made;
use loamfs_check::{Options, Problem, check, dump};
use loamfs_device::{Device, MemoryDevice, RecordingDevice};
use loamfs_format::inode::flag;
use loamfs_fs::{
    AtimeRule, AtimeWhen, Durability, Env, Ino, InodeFlags, ManualClock, MkfsOptions, NewInode,
    OpenOptions, ROOT_INO, SetAttr, SetTime, Timestamp, Volume, mkfs,
};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;

/// A volume whose clock goes on from mount to mount.
struct Shop {
    device: Arc<dyn Device>,
    clock: Arc<ManualClock>,
    volume: Volume,
}

const RELATIVE: AtimeRule = AtimeRule {
    when: AtimeWhen::Relative,
    directories: true,
};
const ALWAYS: AtimeRule = AtimeRule {
    when: AtimeWhen::Always,
    directories: true,
};

fn opened(device: &Arc<dyn Device>, clock: &Arc<ManualClock>, options: OpenOptions) -> Volume {
    let seed = loamfs_fs::Clock::now(clock.as_ref())
        .seconds
        .cast_unsigned();
    let env = Env::seeded(clock.clone(), seed);
    Volume::open(Arc::clone(device), &options, env).unwrap()
}

fn rule(atime: AtimeRule) -> OpenOptions {
    OpenOptions {
        atime,
        ..OpenOptions::default()
    }
}

impl Shop {
    fn new(atime: AtimeRule) -> Shop {
        Shop::on(made(32 << 20), rule(atime))
    }

    fn on(device: Arc<dyn Device>, options: OpenOptions) -> Shop {
        let clock = Arc::new(ManualClock::new(1_500_000_000));
        let volume = opened(&device, &clock, options);
        Shop {
            device,
            clock,
            volume,
        }
    }

    /// Ends without closing, and opens again.
    fn crash(self, options: OpenOptions) -> Shop {
        let Shop {
            device,
            clock,
            volume,
        } = self;
        drop(volume);
        clock.advance(SECOND);
        let volume = opened(&device, &clock, options);
        Shop {
            device,
            clock,
            volume,
        }
    }

    fn remount(self, options: OpenOptions) -> Shop {
        self.volume.close().unwrap();
        self.crash(options)
    }

    fn file(&self, name: &str) -> Ino {
        self.clock.advance(SECOND);
        let ino = self.volume.create(ROOT_INO, name.as_bytes(), &NEW);
        let ino = ino.unwrap().ino;
        self.volume.write(ino, 0, name.as_bytes()).unwrap();
        ino
    }

    /// A read, as somebody's.
    fn read(&self, ino: Ino) {
        self.volume.read(ino, 0, 100).unwrap();
        self.volume.accessed(ino);
    }

    fn atime(&self, ino: Ino) -> Timestamp {
        self.volume.getattr(ino).unwrap().atime
    }

    /// Reads after some time; whether the access time moved.
    fn moves(&self, ino: Ino, nanos: u64) -> bool {
        let before = self.atime(ino);
        self.clock.advance(nanos);
        self.read(ino);
        let after = self.atime(ino);
        assert!(after >= before);
        after > before
    }

    fn kept(&self) -> String {
        let volume = loamfs_check::Volume::open(self.device.as_ref()).unwrap();
        dump::atimes(&volume).unwrap().to_string()
    }

    fn problems(&self) -> Vec<Problem> {
        let mut options = Options::default();
        let report = check(self.device.as_ref(), &mut options);
        assert!(report.unchecked.is_empty(), "{:?}", report.unchecked);
        report.problems
    }

    fn assert_sound(&self) {
        assert_eq!(self.problems(), []);
    }
}

#[test]
fn relatime_moves_after_a_change_and_once_a_day() {
    let shop = Shop::new(RELATIVE);
    let ino = shop.file("file");
    shop.volume.sync().unwrap();
    assert!(shop.moves(ino, SECOND), "written since");
    assert!(!shop.moves(ino, SECOND), "read since");
    assert!(!shop.moves(ino, DAY - 10 * SECOND));
    assert!(shop.moves(ino, 10 * SECOND), "a day later");
    shop.clock.advance(SECOND);
    shop.volume
        .setattr(
            ino,
            &SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            },
        )
        .unwrap();
    assert!(shop.moves(ino, SECOND), "changed since");
    shop.volume.sync().unwrap();
    assert!(!shop.moves(ino, SECOND));
}

#[test]
fn other_rules_do_what_they_say() {
    let shop = Shop::new(ALWAYS);
    let ino = shop.file("file");
    for _ in 0..3 {
        assert!(shop.moves(ino, SECOND));
        shop.volume.sync().unwrap();
        assert!(shop.moves(ino, SECOND));
    }
    let moves_dir = |shop: &Shop| {
        let before = shop.atime(ROOT_INO);
        shop.clock.advance(SECOND);
        shop.volume.readdir(ROOT_INO, 0, 10).unwrap();
        shop.volume.accessed(ROOT_INO);
        shop.atime(ROOT_INO) > before
    };
    assert!(moves_dir(&shop));
    shop.volume.upkeep().set_atime_rule(AtimeRule {
        directories: false,
        ..ALWAYS
    });
    assert!(!moves_dir(&shop) && shop.moves(ino, SECOND));
    shop.volume.upkeep().set_atime_rule(AtimeRule {
        when: AtimeWhen::Never,
        ..ALWAYS
    });
    assert!(!moves_dir(&shop) && !shop.moves(ino, SECOND));
}

#[test]
fn a_file_may_ask_to_be_left_alone() {
    let shop = Shop::new(ALWAYS);
    let ino = shop.file("file");
    let bits = flag::NOATIME;
    shop.volume
        .set_flags(ino, InodeFlags { bits, project: 0 })
        .unwrap();
    assert!(!shop.moves(ino, DAY));
    shop.volume.set_flags(ino, InodeFlags::default()).unwrap();
    assert!(shop.moves(ino, DAY));
}

#[test]
fn times_are_kept_beside_the_inodes_and_survive() {
    let shop = Shop::new(RELATIVE);
    let inos: Vec<Ino> = (0..100).map(|i| shop.file(&format!("{i}"))).collect();
    let shop = shop.remount(rule(RELATIVE));
    assert_eq!(shop.kept(), "", "nobody read yet");
    let segments = |shop: &Shop| {
        let image = loamfs_check::Volume::open(shop.device.as_ref()).unwrap();
        let changed = |ino: &Ino| image.inode(*ino).unwrap().ssn;
        inos.iter().map(changed).collect::<Vec<_>>()
    };
    let before = segments(&shop);
    for ino in &inos {
        assert!(shop.moves(*ino, SECOND));
    }
    let times: Vec<Timestamp> = inos.iter().map(|ino| shop.atime(*ino)).collect();
    shop.volume.sync().unwrap();
    let shop = shop.crash(rule(RELATIVE));
    let found: Vec<Timestamp> = inos.iter().map(|ino| shop.atime(*ino)).collect();
    assert_eq!(found, times, "as far as it was committed");
    assert_eq!(segments(&shop), before, "no inode was written again");
    // What was not committed is lost, and nothing else.
    assert!(shop.moves(inos[7], 2 * DAY));
    let shop = shop.crash(rule(RELATIVE));
    assert_eq!(shop.atime(inos[7]), times[7]);
    let shop = shop.remount(rule(RELATIVE));
    let found: Vec<Timestamp> = inos.iter().map(|ino| shop.atime(*ino)).collect();
    assert_eq!(found, times);
    shop.assert_sound();
}

#[test]
fn unmounting_keeps_what_waits() {
    let shop = Shop::new(RELATIVE);
    let ino = shop.file("file");
    let shop = shop.remount(rule(RELATIVE));
    assert!(shop.moves(ino, SECOND));
    let time = shop.atime(ino);
    let shop = shop.remount(rule(RELATIVE));
    assert_eq!(shop.atime(ino), time);
    shop.volume.upkeep().drop_caches().unwrap();
    assert_eq!(shop.atime(ino), time);
    shop.assert_sound();
}

#[test]
fn an_inode_that_changes_takes_its_time_along() {
    let shop = Shop::new(RELATIVE);
    let (read, both) = (shop.file("read"), shop.file("both"));
    let shop = shop.remount(rule(RELATIVE));
    for ino in [read, both] {
        assert!(shop.moves(ino, SECOND));
    }
    shop.volume.sync().unwrap();
    let (of_read, of_both) = (shop.atime(read), shop.atime(both));
    // A cold inode: its time comes from the file.
    let shop = shop.remount(rule(RELATIVE));
    shop.volume.write(both, 0, b"changed").unwrap();
    assert_eq!(shop.atime(both), of_both);
    shop.volume.sync().unwrap();
    let image = loamfs_check::Volume::open(shop.device.as_ref()).unwrap();
    assert_eq!(image.inode(both).unwrap().atime, of_both, "its own now");
    assert!(image.inode(read).unwrap().atime < of_read, "as it was");
    let shop = shop.crash(rule(RELATIVE));
    assert_eq!((shop.atime(read), shop.atime(both)), (of_read, of_both));
    // What is set is older than what is kept, and counts.
    let past = Timestamp {
        seconds: 5,
        nanos: 6,
    };
    let set = SetAttr {
        atime: Some(SetTime::At(past)),
        ..SetAttr::default()
    };
    shop.volume.setattr(read, &set).unwrap();
    assert_eq!(shop.atime(read), past);
    let shop = shop.remount(rule(RELATIVE));
    assert_eq!(shop.atime(read), past);
    shop.assert_sound();
}

#[test]
fn times_go_with_the_inodes() {
    let shop = Shop::new(RELATIVE);
    let name = |i: usize| format!("{i}");
    let inos: Vec<Ino> = (0..1000).map(|i| shop.file(&name(i))).collect();
    let shop = shop.remount(rule(RELATIVE));
    inos.iter().for_each(|ino| shop.read(*ino));
    shop.volume.sync().unwrap();
    assert!(shop.kept().lines().count() >= 1000 / 32);
    for i in (0..1000).filter(|i| *i != 500) {
        // Some with a time that waits.
        if i % 3 == 0 {
            assert!(shop.moves(inos[i], DAY));
        }
        shop.volume.unlink(ROOT_INO, name(i).as_bytes()).unwrap();
    }
    let shop = shop.remount(rule(RELATIVE));
    assert_eq!(shop.kept().lines().count(), 1, "{}", shop.kept());
    shop.assert_sound();
}

#[test]
fn a_new_file_of_an_old_number_has_a_time_of_its_own() {
    let shop = Shop::new(ALWAYS);
    let old = shop.file("old");
    shop.file("beside");
    shop.volume.sync().unwrap();
    assert!(shop.moves(old, DAY));
    shop.volume.sync().unwrap();
    shop.volume.unlink(ROOT_INO, b"old").unwrap();
    shop.volume.sync().unwrap();
    let reused = (0..64)
        .map(|i| shop.file(&format!("{i}")))
        .any(|ino| ino == old);
    assert!(reused, "numbers are used again in a directory's block");
    let born = shop.volume.getattr(old).unwrap();
    assert_eq!(born.atime, born.btime);
    let shop = shop.remount(rule(ALWAYS));
    assert_eq!(shop.atime(old), born.atime);
    shop.assert_sound();
}

#[test]
fn nothing_is_kept_where_nothing_may_be_written() {
    let shop = Shop::new(ALWAYS);
    let ino = shop.file("file");
    let options = OpenOptions {
        read_only: true,
        ..rule(ALWAYS)
    };
    let shop = shop.remount(options);
    assert!(!shop.moves(ino, DAY));
    let shop = shop.remount(rule(ALWAYS));
    shop.volume.upkeep().freeze().unwrap();
    assert!(!shop.moves(ino, DAY));
    shop.volume.upkeep().thaw().unwrap();
    assert!(shop.moves(ino, DAY));
}

#[test]
fn on_a_full_volume_times_are_dropped_and_reads_go_on() {
    let shop = Shop::on(made(8 << 20), rule(RELATIVE));
    let mut inos = Vec::new();
    let full = loop {
        let name = format!("{}", inos.len());
        let made = shop.volume.create(ROOT_INO, name.as_bytes(), &NEW);
        let written = made.and_then(|attr| {
            inos.push(attr.ino);
            shop.volume.write(attr.ino, 0, &[7; 3000])
        });
        if let Err(error) = written {
            break error;
        }
    };
    assert_eq!(full.errno(), 28, "{full}");
    shop.volume.sync().unwrap();
    shop.clock.advance(SECOND);
    inos.iter().for_each(|ino| shop.read(*ino));
    shop.volume.sync().unwrap();
    shop.volume.upkeep().commit(Durability::Durable).unwrap();
    inos.iter().for_each(|ino| shop.read(*ino));
    let shop = shop.remount(rule(RELATIVE));
    inos.iter().for_each(|ino| shop.read(*ino));
    let shop = shop.remount(rule(RELATIVE));
    shop.assert_sound();
}

#[test]
fn ten_thousand_files_read_twice_write_one_small_segment() {
    let shop = Shop::on(made(256 << 20), rule(RELATIVE));
    let inos: Vec<Ino> = (0..10_000)
        .map(|i| shop.file(&format!("file{i:05}")))
        .collect();
    let shop = shop.remount(rule(RELATIVE));
    shop.volume.sync().unwrap();
    let before = shop.volume.info().device;
    for _ in 0..2 {
        for ino in &inos {
            shop.read(*ino);
        }
        shop.volume.upkeep().tick().unwrap();
    }
    let cost = shop.volume.info().device - before;
    assert_eq!(cost.total().writes, 0, "reading writes nothing: {cost}");
    shop.volume.sync().unwrap();
    let cost = shop.volume.info().device - before;
    assert_eq!((cost.total().writes, cost.flushes()), (1, 1), "{cost}");
    // 16 bytes each, in leaves that are filled in the order of their keys.
    assert!(cost.total().write_bytes < 10_000 * 24 + 64 * 1024, "{cost}");
    let shop = shop.remount(rule(RELATIVE));
    assert!(inos.iter().all(|ino| !shop.moves(*ino, 1)));
    shop.assert_sound();
}

#[test]
fn an_fsync_takes_no_times_along() {
    let shop = Shop::new(RELATIVE);
    let inos: Vec<Ino> = (0..500).map(|i| shop.file(&format!("{i}"))).collect();
    let shop = shop.remount(rule(RELATIVE));
    inos[1..].iter().for_each(|ino| shop.read(*ino));
    shop.volume.write(inos[0], 0, b"new").unwrap();
    shop.volume.fsync(inos[0], false).unwrap();
    assert_eq!(shop.kept(), "");
    // What is committed by age does.
    shop.volume.write(inos[0], 0, b"newer").unwrap();
    shop.clock.advance(10 * SECOND);
    shop.volume.upkeep().tick().unwrap();
    assert!(shop.kept().lines().count() >= 500 / 32);
}

#[test]
fn what_waits_in_memory_is_bounded_and_goes_by_age() {
    let device: Arc<dyn Device> = made(256 << 20);
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..rule(ALWAYS)
    };
    let shop = Shop::on(device, options.clone());
    // The smallest cache lets 4,096 times wait.
    let inos: Vec<Ino> = (0..6_000).map(|i| shop.file(&format!("{i}"))).collect();
    let shop = shop.remount(options.clone());
    for ino in &inos {
        shop.read(*ino);
    }
    let before = shop.volume.info().device;
    shop.clock.advance(6 * SECOND);
    shop.volume.upkeep().tick().unwrap();
    assert!(
        (shop.volume.info().device - before).total().writes > 0,
        "more than half waited"
    );
    let kept = shop.kept().matches("inode ").count();
    assert_eq!(kept, 4_096, "the others were dropped");
    shop.read(inos[5_999]);
    let time = shop.atime(inos[5_999]);
    let shop = shop.remount(options);
    assert_eq!(shop.atime(inos[5_999]), time, "there is room again");
    shop.assert_sound();
}

#[test]
fn times_that_are_scattered_go_in_several_segments() {
    let shop = Shop::on(made(256 << 20), rule(ALWAYS));
    let inos: Vec<Ino> = (0..40_000).map(|i| shop.file(&format!("{i}"))).collect();
    let shop = shop.remount(rule(ALWAYS));
    inos.iter().for_each(|ino| shop.read(*ino));
    shop.volume.sync().unwrap();
    shop.clock.advance(DAY);
    let some: Vec<Ino> = inos.iter().step_by(97).copied().collect();
    some.iter().for_each(|ino| shop.read(*ino));
    let times: Vec<Timestamp> = some.iter().map(|ino| shop.atime(*ino)).collect();
    let shop = shop.remount(rule(ALWAYS));
    let found: Vec<Timestamp> = some.iter().map(|ino| shop.atime(*ino)).collect();
    assert_eq!(found, times);
    shop.assert_sound();
}

#[test]
fn nobody_gets_at_the_file_itself() {
    let shop = Shop::new(RELATIVE);
    let ino = shop.file("file");
    let shop = shop.remount(rule(RELATIVE));
    shop.read(ino);
    shop.volume.sync().unwrap();
    assert_eq!(shop.volume.getattr(Ino(3)).unwrap_err().errno(), 116);
    let set = shop.volume.setattr(Ino(3), &SetAttr::default());
    assert_eq!(set.unwrap_err().errno(), 116);
    let linked = shop.volume.link(Ino(3), ROOT_INO, b"times");
    assert_eq!(linked.unwrap_err().errno(), 116);
    assert!(shop.volume.info().access.is_writable());
}

#[test]
fn damage_of_the_file_is_nobodys_error() {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let dynamic: Arc<dyn Device> = device.clone();
    mkfs(&dynamic, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let shop = Shop::on(dynamic, rule(RELATIVE));
    let inos: Vec<Ino> = (0..300).map(|i| shop.file(&format!("{i}"))).collect();
    let shop = shop.remount(rule(RELATIVE));
    let own: Vec<Timestamp> = inos.iter().map(|ino| shop.atime(*ino)).collect();
    for ino in &inos {
        assert!(shop.moves(*ino, SECOND));
    }
    shop.volume.close().unwrap();
    let image = loamfs_check::Volume::open(device.as_ref()).unwrap();
    let root = image.inode(Ino(3)).unwrap().checksums.pointer.addr;
    let at = image.geometry().byte_offset(root);
    device.poke(at + 100, b"rotten").unwrap();
    let found = shop.problems();
    assert!(
        matches!(found[..], [Problem::Node { ino: Ino(3), .. }]),
        "{found:?}"
    );
    let shop = shop.crash(rule(RELATIVE));
    let found: Vec<Timestamp> = inos.iter().map(|ino| shop.atime(*ino)).collect();
    assert_eq!(found, own, "the inodes' own times count");
    inos.iter().for_each(|ino| shop.read(*ino));
    shop.volume.sync().unwrap();
    for i in 0..300 {
        shop.volume
            .unlink(ROOT_INO, format!("{i}").as_bytes())
            .unwrap();
    }
    shop.volume.close().unwrap();
}

/// What was seen at a moment: events that the device had had, and the access time of each file.
struct Seen {
    events: usize,
    atimes: Vec<Timestamp>,
    synced: bool,
}

#[test]
fn a_crash_at_any_write_leaves_times_that_were() {
    const FILES: usize = 40;
    let recording = Arc::new(RecordingDevice::new(MemoryDevice::new(16 << 20)));
    let device: Arc<dyn Device> = recording.clone();
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let shop = Shop::on(device, rule(ALWAYS));
    let inos: Vec<Ino> = (0..FILES).map(|i| shop.file(&format!("{i}"))).collect();
    shop.volume.sync().unwrap();
    let mut seen = Vec::new();
    let see = |seen: &mut Vec<Seen>, synced| {
        seen.push(Seen {
            events: recording.event_count(),
            atimes: inos.iter().map(|ino| shop.atime(*ino)).collect(),
            synced,
        });
    };
    see(&mut seen, true);
    for round in 0..60u64 {
        shop.clock.advance(SECOND);
        let ino = inos[(round * 7) as usize % FILES];
        match round % 6 {
            0 | 3 => inos.iter().step_by(3).for_each(|ino| shop.read(*ino)),
            1 => drop(shop.volume.write(ino, 0, b"changed").unwrap()),
            2 => {
                let past = SetTime::At(Timestamp {
                    seconds: round as i64,
                    nanos: 0,
                });
                let set = SetAttr {
                    atime: Some(past),
                    ..SetAttr::default()
                };
                shop.volume.setattr(ino, &set).unwrap();
            }
            4 => {
                let file = shop.file("short-lived");
                shop.volume.fsync(file, false).unwrap();
                shop.volume.unlink(ROOT_INO, b"short-lived").unwrap();
            }
            _ => {
                see(&mut seen, false);
                match round % 4 {
                    1 => shop.volume.sync().unwrap(),
                    _ => shop.volume.upkeep().checkpoint().unwrap(),
                }
            }
        }
        see(&mut seen, round % 6 == 5 && round % 4 == 1);
    }
    let mut kept = 0;
    for events in seen[0].events..=recording.event_count() {
        let image = recording.image_after(events).unwrap();
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(image));
        // What the last sync before had, or anything since.
        let begun = seen.partition_point(|seen| seen.events <= events);
        let synced = (0..begun).rev().find(|at| seen[*at].synced).unwrap();
        let after = Shop::on(device, rule(ALWAYS));
        let may_be = &seen[synced..(begun + 1).min(seen.len())];
        for (i, ino) in inos.iter().enumerate() {
            let found = after.atime(*ino);
            let known = may_be.iter().any(|seen| seen.atimes[i] == found);
            assert!(known, "file {i} after {events} events: {found:?}");
        }
        kept += usize::from(!after.kept().is_empty());
        after.assert_sound();
    }
    assert!(kept > 10, "{kept} crashes found a file of access times");
}
