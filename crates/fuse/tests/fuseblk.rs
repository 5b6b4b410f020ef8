//! A mount of type fuseblk on a loop device: what a plain mount does not have.
//!
//! Needs root, `/dev/fuse` and loop devices; says "skipped" and why, otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use common::{MemFs, Served, options, seen};
use loamfs_device::{LoopDevice, LoopOptions};
use loamfs_fuse::{BlockDevice, Config, Errno, MountOptions};

const O_EXCL: i32 = 0o200;

fn image(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("image");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    path
}

fn attach(image: &Path) -> Option<LoopDevice> {
    let options = LoopOptions {
        autoclear: true,
        direct_io: true,
        ..LoopOptions::default()
    };
    match LoopDevice::attach(image, options) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn wait_until_detached(device: &Path) {
    let start = Instant::now();
    while loamfs_device::backing_file(device).is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "still attached");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn sync_arrives_and_umount_waits_for_destroy() {
    need_mounts!();
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let Some(device) = attach(&image) else { return };
    let device_path = device.path().to_owned();
    let place = dir.path().join("mnt");
    fs::create_dir(&place).unwrap();
    let options = MountOptions {
        block_device: Some(BlockDevice {
            path: device_path.clone(),
            block_size: 4096,
        }),
        ..options()
    };
    let fs = Arc::new(MemFs::slow_to_end(Duration::from_millis(300)));
    let served = Served::start(&place, fs.clone(), &options, Config::default());
    let entry = loamfs_fuse::find_mount(&place, OsStr::new("loamtest"))
        .unwrap()
        .unwrap();
    assert_eq!(entry.fstype, "fuseblk.loamtest");
    assert_eq!(entry.source, device_path);
    assert!(entry.is_block());

    // From here on the mount keeps the device attached.
    drop(device);
    let claimed = File::options()
        .read(true)
        .custom_flags(O_EXCL)
        .open(&device_path)
        .unwrap_err();
    assert_eq!(Errno::from_io_error(&claimed), Some(Errno::BUSY));

    fs::write(place.join("file"), b"x").unwrap();
    assert_eq!(seen(&fs.counts.syncs), 0);
    rustix::fs::syncfs(File::open(&place).unwrap()).unwrap();
    let after_syncfs = seen(&fs.counts.syncs);
    assert!(after_syncfs >= 1);
    rustix::fs::sync();
    assert!(seen(&fs.counts.syncs) > after_syncfs);

    loamfs_fuse::unmount(&place).unwrap();
    assert!(fs.counts.destroyed.load(Ordering::SeqCst));
    served.wait().unwrap();
    wait_until_detached(&device_path);
}
