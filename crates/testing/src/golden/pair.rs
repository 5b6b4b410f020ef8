//! Two devices, one behind the other in the image: a fast one with the log, and another with a large file.

use std::sync::Arc;

use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::{OpenOptions, Volume};

use super::Made;
use super::builder::{new, stopped, text};
use crate::geometry::Geometry;
use crate::pair::Pair;
use crate::subject::System;

pub(super) fn make() -> Made<Image> {
    let (geometry, pair) = (Geometry::SMALL, Pair::default());
    let memory = MemoryDevice::new(geometry.size).with_sector_size(geometry.sector);
    let memory = Arc::new(memory);
    let both: Arc<dyn Device> = memory.clone();
    let made = pair.format(Arc::clone(&both), &geometry, 80);
    made.map_err(|failure| failure.to_string())?;
    let volume = Volume::open(pair.joined(&both)?, &OpenOptions::default(), stopped(81))?;
    for (name, len) in [("small", 3_000), ("large", 100_000)] {
        let ino = volume.create(ROOT_INO, name.as_bytes(), &new(0o644))?.ino;
        volume.write(ino, 0, &text(name, len))?;
    }
    volume.close()?;
    Ok(memory.image())
}
