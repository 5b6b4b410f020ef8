//! Maps whose nodes are there twice, some of them written when there was an older node to supersede.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 16 << 20,
    ..Geometry::SMALL
};

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&GEOMETRY, "golden twice", 60)?;
    let dir = builder.dir(ROOT_INO, "dir")?;
    for i in 0..100 {
        let name = format!("file {i}");
        builder.file(dir, &name, &text(&name, 50 * i))?;
    }
    builder.volume.upkeep().checkpoint()?;
    builder.file(ROOT_INO, "large", &text("large", 100_000))?;
    builder.volume.close()?;
    Ok(builder.image())
}
