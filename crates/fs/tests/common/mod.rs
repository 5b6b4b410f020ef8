//! Volumes in memory, with the default options.
#![allow(dead_code, reason = "each test uses a part")]

use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{Env, MkfsOptions, OpenOptions, Volume, mkfs};
use std::sync::Arc;

/// An empty volume of so many bytes.
pub fn made(bytes: u64) -> Arc<dyn Device> {
    made_with(bytes, true)
}

/// The same; whether segments may say what changed in inodes.
pub fn made_with(bytes: u64, deltas: bool) -> Arc<dyn Device> {
    made_on(MemoryDevice::new(bytes), deltas)
}

/// The same on a device.
pub fn made_on(device: MemoryDevice, deltas: bool) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(device);
    let options = MkfsOptions {
        deltas,
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    device
}

pub fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(Arc::clone(device), &OpenOptions::default(), Env::fixed(2)).unwrap()
}

/// Opens a volume with caches of so many bytes.
pub fn open_cached(device: &Arc<dyn Device>, cache_bytes: usize) -> Volume {
    let options = OpenOptions {
        cache_bytes,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(device), &options, Env::fixed(2)).unwrap()
}

/// An empty volume, opened.
pub fn mounted(bytes: u64) -> (Arc<dyn Device>, Volume) {
    let device = made(bytes);
    let volume = open(&device);
    (device, volume)
}
