//! Volumes for tests.

#![allow(clippy::unwrap_used)]

use crate::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::Ino;
use std::sync::Arc;

/// A new volume of so many bytes, in memory.
pub(crate) fn volume(bytes: u64, options: &OpenOptions) -> Volume {
    made(bytes, &MkfsOptions::default(), options)
}

/// The same, made in another way.
pub(crate) fn made(bytes: u64, how: &MkfsOptions, options: &OpenOptions) -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    mkfs(&device, how, &Env::fixed(1)).unwrap();
    Volume::open(device, options, Env::fixed(2)).unwrap()
}

/// A new file below its root.
pub(crate) fn file(volume: &Volume, name: &[u8]) -> Ino {
    let new = NewInode::of_mode(0o644);
    volume.create(ROOT_INO, name, &new).unwrap().ino
}
