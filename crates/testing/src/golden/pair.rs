//! Two devices, one behind the other in the image: a fast one with the log, and another with large files, unless directories say
//! otherwise.

use std::sync::Arc;

use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::{Arranging, CopyKind, OpenOptions, Section, Tier, Tiering, Volume};

use super::Made;
use super::builder::{new, stopped, text};
use crate::geometry::Geometry;
use crate::pair::Pair;
use crate::subject::System;

/// A volume on a pair of devices, and these.
fn open(pair: &Pair) -> Made<(Arc<MemoryDevice>, Volume)> {
    let geometry = Geometry::SMALL;
    let memory = MemoryDevice::new(geometry.size).with_sector_size(geometry.sector);
    let memory = Arc::new(memory);
    let both: Arc<dyn Device> = memory.clone();
    let made = pair.format(Arc::clone(&both), &geometry, 80);
    made.map_err(|failure| failure.to_string())?;
    let volume = Volume::open(pair.joined(&both)?, &OpenOptions::default(), stopped(81))?;
    Ok((memory, volume))
}

fn file(volume: &Volume, dir: Ino, name: &str, len: usize) -> Made<()> {
    let ino = volume.create(dir, name.as_bytes(), &new(0o644))?.ino;
    volume.write(ino, 0, &text(name, len))?;
    Ok(())
}

pub(super) fn make() -> Made<Image> {
    make_on(&Pair::default())
}

/// The log stands on both.
pub(super) fn make_copied() -> Made<Image> {
    make_on(&Pair {
        copy: Some(CopyKind::Each),
        ..Pair::default()
    })
}

/// The second one has what the first one had some time ago.
pub(super) fn make_behind() -> Made<Image> {
    let pair = Pair {
        copy: Some(CopyKind::Behind),
        ..Pair::default()
    };
    let (memory, volume) = open(&pair)?;
    for (name, len) in [("small", 3_000), ("large", 100_000)] {
        file(&volume, ROOT_INO, name, len)?;
    }
    volume.sync()?;
    volume.upkeep().renew()?;
    file(&volume, ROOT_INO, "later", 3_000)?;
    volume.sync()?;
    // As a daemon that is killed.
    drop(volume);
    Ok(memory.image())
}

fn make_on(pair: &Pair) -> Made<Image> {
    let (memory, volume) = open(pair)?;
    for (name, len) in [("small", 3_000), ("large", 100_000)] {
        file(&volume, ROOT_INO, name, len)?;
    }
    volume.close()?;
    Ok(memory.image())
}

pub(super) fn make_tiered() -> Made<Image> {
    make_with(&Pair::default(), Tier::ALL.map(Tiering::On))
}

pub(super) fn make_limited() -> Made<Image> {
    let limits = ["64K", "128M"].into_iter().flat_map(Tiering::of_word);
    make_with(&Pair::default(), limits)
}

pub(super) fn make_bypassed() -> Made<Image> {
    make_with(&Pair::default(), [Tiering::Bypass, Tiering::WriteBack])
}

/// Virtual extents: a flash block has four.
pub(super) fn make_sectioned() -> Made<Image> {
    let pair = Pair {
        section: Section::new(128 << 10, 32 << 10),
        ..Pair::default()
    };
    make_with(&pair, [Tiering::On(Tier::Fast)])
}

/// Of directories that say this, each with files from before and from behind that.
fn make_with(pair: &Pair, said: impl IntoIterator<Item = Tiering>) -> Made<Image> {
    let (memory, volume) = open(pair)?;
    for on in said {
        let dir = volume.mkdir(ROOT_INO, on.word().as_bytes(), &new(0o755))?;
        file(&volume, dir.ino, "before", 100_000)?;
        volume.sync()?;
        let mut carrying = Arranging::carrying(dir.ino, on);
        while volume.upkeep().arrange(&mut carrying)? {}
        let below = volume.mkdir(dir.ino, b"below", &new(0o755))?;
        file(&volume, below.ino, "behind", 70_000)?;
    }
    volume.close()?;
    Ok(memory.image())
}
