//! A real mount, driven through the standard library.
//!
//! Needs root and `/dev/fuse`; says "skipped" and why, otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/drive.rs"]
mod drive;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::{MemFs, Served, answered_while_syncs_wait, options, seen};
use drive::{drive, pattern};
use loamfs_fuse::{
    Caller, Capabilities, Config, Errno, Error, Filesystem, MountFlags, MountOptions, Negotiated,
    NodeId, ReadDirPlus, Session,
};

#[test]
fn programs_can_work_on_a_mount() {
    need_mounts!();
    for readdirplus in [ReadDirPlus::Auto, ReadDirPlus::Off, ReadDirPlus::Always] {
        let place = tempfile::tempdir().unwrap();
        let fs = Arc::new(MemFs::default());
        let config = Config {
            readdirplus,
            ..Config::default()
        };
        let served = Served::start(place.path(), fs.clone(), &options(), config);
        drive(place.path());
        assert_eq!(
            seen(&fs.counts.readdirplus) > 0,
            readdirplus != ReadDirPlus::Off
        );
        assert_eq!(seen(&fs.counts.unaligned_writes), 0);
        assert!(seen(&fs.counts.fsyncs) > 0);
        served.end().unwrap();
        assert!(fs.counts.destroyed.load(Ordering::SeqCst));
    }
}

/// With ATOMIC_O_TRUNC and without OPEN, nobody truncates: the second write
/// left "shortcontent" (Linux 6.18).
#[test]
fn truncation_survives_opens_without_messages() {
    need_mounts!();
    for zero_message_open in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let fs = Arc::new(MemFs::default());
        let config = Config {
            zero_message_open,
            ..Config::default()
        };
        let served = Served::start(place.path(), fs.clone(), &options(), config);
        let file = place.path().join("file");
        fs::write(&file, b"long content").unwrap();
        fs::write(&file, b"short").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"short");
        let truncated = (
            seen(&fs.counts.truncating_opens),
            seen(&fs.counts.truncating_setattrs),
        );
        assert_eq!(truncated, if zero_message_open { (0, 1) } else { (1, 0) });
        drop(served);
    }
}

#[test]
fn statfs_is_answered_while_all_others_wait_for_the_device() {
    need_mounts!();
    let place = tempfile::tempdir().unwrap();
    let fs = Arc::new(MemFs::default());
    let served = Served::start(place.path(), fs.clone(), &options(), Config::default());
    let threads = 2 * thread::available_parallelism().unwrap().get().max(2);
    let files = 5 * threads;
    answered_while_syncs_wait(&served.path, &fs, (files, threads), || {
        rustix::fs::statfs(place.path()).is_ok()
    });
    assert_eq!(seen(&fs.counts.fsyncs), files as u64);
    served.end().unwrap();
}

/// A successor has the kernel forget something first. For that it has to answer what keeps pages locked.
#[test]
fn what_is_put_off_waits_and_the_rest_does_not() {
    need_mounts!();
    let place = tempfile::tempdir().unwrap();
    let fs = Arc::new(MemFs::default());
    let (go_on, wait) = channel();
    let session = Session::new(Config::default()).put_off_until(move || wait.recv().unwrap());
    let served = Served::start_session(place.path(), fs, &options(), session);
    let is_told = AtomicBool::new(false);
    thread::scope(|scope| {
        let askers: Vec<_> = (0..8)
            .map(|number| {
                let (path, is_told) = (served.path.join(number.to_string()), &is_told);
                scope.spawn(move || {
                    let found = fs::metadata(path).map_err(|error| error.kind());
                    assert_eq!(found.err(), Some(ErrorKind::NotFound));
                    assert!(is_told.load(Ordering::SeqCst), "answered too early");
                })
            })
            .collect();
        for _ in 0..100 {
            rustix::fs::statfs(&served.path).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        is_told.store(true, Ordering::SeqCst);
        go_on.send(()).unwrap();
        for asker in askers {
            asker.join().unwrap();
        }
    });
    served.end().unwrap();
}

#[test]
fn many_threads_at_once() {
    need_mounts!();
    let place = tempfile::tempdir().unwrap();
    let served = Served::start(
        place.path(),
        Arc::new(MemFs::default()),
        &options(),
        Config {
            zero_message_open: true,
            zero_message_opendir: true,
            ..Config::default()
        },
    );
    thread::scope(|scope| {
        for number in 0..8_usize {
            let dir = place.path().join(number.to_string());
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for i in 0..100 {
                    let file = dir.join(i.to_string());
                    fs::write(&file, pattern(i * 97 + number)).unwrap();
                    assert!(fs::read(&file).unwrap() == pattern(i * 97 + number));
                    if i % 2 == 0 {
                        fs::remove_file(&file).unwrap();
                    }
                }
                assert_eq!(fs::read_dir(&dir).unwrap().count(), 50);
            });
        }
    });
    served.end().unwrap();
}

#[test]
fn mounts_are_found_and_told_from_dead_ones() {
    need_mounts!();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("with blank, comma");
    fs::create_dir(&path).unwrap();
    let subtype = OsStr::new("loamtest");
    assert!(loamfs_fuse::find_mount(&path, subtype).unwrap().is_none());

    // Slow enough for a look at the dead mount before it is gone.
    let fs = MemFs::slow_to_end(Duration::from_secs(1));
    let served = Served::start(&path, Arc::new(fs), &options(), Config::default());
    let entry = loamfs_fuse::find_mount(&path, subtype).unwrap().unwrap();
    assert_eq!(entry.fstype, "fuse.loamtest");
    assert_eq!(entry.source, "memory");
    assert!(!entry.read_only);
    let other = OsStr::new("other");
    assert!(loamfs_fuse::find_mount(&path, other).unwrap().is_none());
    assert!(!loamfs_fuse::is_dead(&path));
    // So that the kernel knows the root's attributes and could answer a stat.
    fs::metadata(&path).unwrap();

    let read_only = MountOptions {
        flags: MountFlags::RDONLY,
        ..options()
    };
    loamfs_fuse::remount(&path, &read_only).unwrap();
    let refused = fs::write(path.join("file"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    loamfs_fuse::remount(&path, &options()).unwrap();
    fs::write(path.join("file"), b"x").unwrap();

    // Cut the connection, as a crash of the server does. The mount stays,
    // because it is in use.
    let user = File::open(&path).unwrap();
    let forced = rustix::mount::unmount(&path, rustix::mount::UnmountFlags::FORCE);
    assert_eq!(forced, Err(Errno::BUSY));
    assert!(loamfs_fuse::is_dead(&path));
    assert!(loamfs_fuse::find_mount(&path, subtype).unwrap().is_some());
    drop(user);
    // The server ends by itself, and takes the dead mount with it.
    served.wait().unwrap();
    assert!(loamfs_fuse::find_mount(&path, subtype).unwrap().is_none());
}

#[test]
fn a_file_system_that_refuses_to_start_leaves_no_mount() {
    struct Refusing;
    impl Filesystem for Refusing {
        fn init(&self, _: &Negotiated) -> Result<(), Errno> {
            Err(Errno::ROFS)
        }
    }
    need_mounts!();
    let place = tempfile::tempdir().unwrap();
    let served = Served::start(
        place.path(),
        Arc::new(Refusing),
        &options(),
        Config::default(),
    );
    assert!(matches!(served.wait(), Err(Error::Init(Errno::ROFS))));
    assert!(
        loamfs_fuse::find_mount(place.path(), OsStr::new("loamtest"))
            .unwrap()
            .is_none()
    );
}

/// A large read-ahead, and what this kernel offers.
#[test]
fn limits_take_effect() {
    struct Watch(MemFs, std::sync::OnceLock<Negotiated>);
    impl Filesystem for Watch {
        fn init(&self, negotiated: &Negotiated) -> Result<(), Errno> {
            self.1.set(*negotiated).map_err(|_| Errno::INVAL)
        }

        fn statfs(&self, caller: Caller, node: NodeId) -> Result<loamfs_fuse::StatfsReply, Errno> {
            self.0.statfs(caller, node)
        }
    }
    need_mounts!();
    let place = tempfile::tempdir().unwrap();
    let mounted = loamfs_fuse::mount(place.path(), &options()).unwrap();
    mounted.set_read_ahead(1 << 20).unwrap();
    let fs = Arc::new(Watch(MemFs::default(), std::sync::OnceLock::new()));
    let server = thread::spawn({
        let fs = fs.clone();
        move || loamfs_fuse::Session::new(Config::default()).run(fs, mounted)
    });
    rustix::fs::statvfs(place.path()).unwrap();
    let negotiated = fs.1.get().copied();
    let (major, minor) = loamfs_fuse::find_mount(place.path(), OsStr::new("loamtest"))
        .unwrap()
        .unwrap()
        .device;
    let limit = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    loamfs_fuse::unmount(place.path()).unwrap();
    server.join().unwrap().unwrap();
    assert_eq!(limit.unwrap().trim(), "1024");
    let negotiated = negotiated.unwrap();
    assert_eq!(negotiated.max_write, 1 << 20);
    assert!(negotiated.granted.contains(Capabilities::PARALLEL_DIROPS));
}
