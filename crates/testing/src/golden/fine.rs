//! The smallest fragments and blocks: images of overwrites, some of them settled, and a torn segment at the end.

use loamfs_check::Volume;
use loamfs_device::{Image, MemoryDevice};
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::Durability;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    sector: 512,
    fragment: 512,
    checkpoint_segments_max: 12,
    ..Geometry::TINY
};

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&GEOMETRY, "golden fine", 20)?;
    let volume = &builder.volume;
    let dir = builder.dir(ROOT_INO, "dir")?;
    for i in 0..40 {
        let name = format!("small {i}");
        builder.file(dir, &name, &text(&name, 100 * i))?;
    }
    let large = builder.file(dir, "large", &text("large", 150_000))?;
    let cut = builder.file(dir, "cut", &text("cut", 100_000))?;
    volume.sync()?;
    for i in 0..6 {
        builder.pass();
        builder.write(large, 25_000 * i, &text("overwritten", 5000))?;
        volume.fsync(large, false)?;
    }
    builder.write(cut, 50_000, &text("overwritten", 5000))?;
    volume.fsync(cut, false)?;
    volume.upkeep().checkpoint()?;
    volume.upkeep().settle(4)?;
    // The other file's images are revoked with their homes.
    builder.resize(cut, 10_000)?;
    volume.rename(dir, b"small 39", ROOT_INO, b"moved", Default::default())?;
    builder.dir(ROOT_INO, "another")?;
    volume.sync()?;
    builder.file(dir, "never durable", &text("never durable", 3000))?;
    volume.upkeep().commit(Durability::Written)?;
    tear_last(builder.image())
}

/// The last unit of the last segment did not reach the device.
fn tear_last(mut image: Image) -> Made<Image> {
    let device = MemoryDevice::from_image(image.clone());
    let volume = Volume::open(&device)?;
    let last = volume.segments().last().ok_or("no segments")?;
    let end = last.header.extents.last().ok_or("no extents")?.end();
    let end = volume.geometry().byte_offset(end);
    image.clear(end - 4096, 4096)?;
    Ok(image)
}
