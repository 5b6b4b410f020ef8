//! Real mounts whose requests travel through io_uring.
//!
//! Needs root, `/dev/fuse`, and a kernel that can; says "skipped" and why, otherwise. One test, since what it switches on
//! counts for the whole machine. That is put back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/drive.rs"]
mod drive;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::{MemFs, Served, abort, answered_while_syncs_wait, options, seen};
use loamfs_fuse::uring::{self, Rings};
use loamfs_fuse::{Config, Session};
use tempfile::TempDir;

/// The kernel's switch, put back as it was.
struct Switch {
    was: bool,
}

impl Switch {
    const FILE: &str = "/sys/module/fuse/parameters/enable_uring";

    fn on() -> Option<Self> {
        let was = uring::is_enabled()?;
        uring::enable().ok()?;
        Some(Self { was })
    }

    fn set(on: bool) {
        fs::write(Self::FILE, if on { "Y" } else { "N" }).unwrap();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        Self::set(self.was);
    }
}

fn config() -> Config {
    Config {
        zero_message_open: true,
        ..Config::default()
    }
}

fn served(place: &Path, fs: &Arc<MemFs>, memory_max: usize) -> Served {
    let rings = Rings::set_up(memory_max).unwrap();
    assert!(rings.memory() <= memory_max);
    let session = Session::new(config()).rings(rings);
    Served::start_session(place, fs.clone(), &options(), session)
}

#[test]
fn requests_travel_through_io_uring() {
    need_mounts!();
    let Some(_switch) = Switch::on() else {
        eprintln!("skipped: this kernel's FUSE has no io_uring");
        return;
    };
    if let Err(error) = Rings::set_up(usize::MAX) {
        eprintln!("skipped: {error}");
        return;
    }
    let (done, ended) = channel();
    let all = thread::spawn(move || {
        for waits in [false, true] {
            programs_work(usize::MAX, waits);
        }
        let smallest = Rings::set_up(0).err().map(|error| error.to_string());
        assert!(smallest.is_some_and(|text| text.contains("KiB")));
        programs_work(Rings::set_up(usize::MAX).unwrap().memory() - 1, false);
        statfs_is_answered_while_others_wait();
        many_threads();
        the_device_serves_where_rings_are_not_taken();
        let _ = done.send(());
    });
    // The others go on or have panicked, and a mount that hangs must not hang whoever tests.
    let in_time = ended.recv_timeout(Duration::from_secs(300));
    if in_time.is_err() && !all.is_finished() {
        mounted().iter().for_each(|path| abort(path));
        panic!("a mount hangs");
    }
    all.join().unwrap();
}

/// A new place to mount at, which tells of this process.
fn place() -> TempDir {
    tempfile::Builder::new()
        .prefix(&prefix())
        .tempdir()
        .unwrap()
}

fn prefix() -> String {
    format!("loamfs-rings-{}-", std::process::id())
}

/// Where this process has mounted.
fn mounted() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let ours = paths.filter(|path| path.contains(&prefix()));
    ours.map(PathBuf::from).collect()
}

fn programs_work(memory_max: usize, waits: bool) {
    let place = place();
    let fs = Arc::new(MemFs::default());
    fs.waits.store(waits, Ordering::SeqCst);
    let served = served(place.path(), &fs, memory_max);
    drive::drive(place.path());
    assert_eq!(fs.counts.rings.get(), Some(&true));
    assert!(seen(&fs.counts.tried) > 0);
    assert!(seen(&fs.counts.fsyncs) > 0);
    assert_eq!(seen(&fs.counts.unaligned_writes), 0);
    served.end().unwrap();
    assert!(fs.counts.destroyed.load(Ordering::SeqCst));
}

fn statfs_is_answered_while_others_wait() {
    let place = place();
    let fs = Arc::new(MemFs::default());
    let served = served(place.path(), &fs, usize::MAX);
    let asked = AtomicU64::new(0);
    // More files than there are threads that wait, and fewer than one processor's slots.
    answered_while_syncs_wait(&served.path, &fs, (12, 4), || {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let made = File::create(place.path().join(format!("new {number}"))).is_ok();
        made && rustix::fs::statfs(place.path()).is_ok()
    });
    served.end().unwrap();
}

fn many_threads() {
    let place = place();
    let fs = Arc::new(MemFs::default());
    let served = served(place.path(), &fs, usize::MAX);
    thread::scope(|scope| {
        for number in 0..8_usize {
            let dir = place.path().join(number.to_string());
            let fs = &fs;
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for i in 0..200_usize {
                    fs.waits.store((i + number) % 3 == 0, Ordering::SeqCst);
                    let file = dir.join(i.to_string());
                    fs::write(&file, vec![number as u8; i * 100]).unwrap();
                    assert_eq!(fs::read(&file).unwrap(), vec![number as u8; i * 100]);
                    fs::remove_file(&file).unwrap();
                }
            });
        }
    });
    served.end().unwrap();
}

/// Switched off between making rings and mounting, the kernel does not offer them.
fn the_device_serves_where_rings_are_not_taken() {
    let place = place();
    let fs = Arc::new(MemFs::default());
    Switch::set(false);
    let served = served(place.path(), &fs, usize::MAX);
    drive::drive(place.path());
    assert_eq!(fs.counts.rings.get(), Some(&false));
    served.end().unwrap();
    Switch::set(true);
}
