//! Loop devices, as the kernel has them. Needs root and loop devices; says "skipped" and why, otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use loamfs_device::{LoopDevice, LoopOptions, backing_file, find_loops, is_autoclear, whole_image};
use rustix::fs::{FlockOperation, flock};

fn image(dir: &Path) -> PathBuf {
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
    while backing_file(device).is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "still attached");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn loop_devices_are_attached_found_and_detached() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    assert!(find_loops(&image).unwrap().is_empty());
    let Some(device) = attach(&image) else { return };
    let path = device.path().to_owned();
    assert_eq!(backing_file(&path).unwrap(), image.canonicalize().unwrap());
    // By another name of the same file.
    let alias = dir.path().join("alias");
    fs::hard_link(&image, &alias).unwrap();
    assert_eq!(find_loops(&alias).unwrap(), std::slice::from_ref(&path));
    assert_eq!(whole_image(&path), Some(image.canonicalize().unwrap()));
    assert_eq!(whole_image(&image), None);
    assert!(is_autoclear(&path));

    fs::write(&path, b"through the device").unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    assert!(fs::read(&image).unwrap().starts_with(b"through the device"));

    device.detach().unwrap();
    wait_until_detached(&path);
    assert!(find_loops(&image).unwrap().is_empty());
}

/// Who has locked an image wants that one attached.
#[test]
fn what_was_opened_is_attached_whatever_has_its_name_now() {
    let dir = tempfile::tempdir().unwrap();
    let name = image(dir.path());
    let opened = File::open(&name).unwrap();
    flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap();
    let aside = dir.path().join("aside");
    fs::rename(&name, &aside).unwrap();
    image(dir.path());
    if attach(&name).is_none() {
        return;
    }
    let options = LoopOptions {
        autoclear: true,
        ..LoopOptions::default()
    };
    let device = LoopDevice::attach_opened(&opened, &name, options).unwrap();
    let path = device.path().to_owned();
    assert_eq!(backing_file(&path), Some(aside.canonicalize().unwrap()));
    // The device has no part of the lock, and goes with its last user.
    drop(opened);
    let again = File::open(&aside).unwrap();
    flock(&again, FlockOperation::NonBlockingLockExclusive).unwrap();
    device.detach().unwrap();
    wait_until_detached(&path);
}
