//! The largest fragments on a device of more than 16 MiB, where the second superblock stands at 8 MiB. It crashed
//! twice, and so has mount segments in its log.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 17 << 20,
    checkpoint_segments_max: 10,
    ..Geometry::COARSE
};

pub(super) fn make() -> Made<Image> {
    let mut builder = Builder::new(&GEOMETRY, "golden wide", 30)?;
    for (mount, dirs) in [10, 10, 3].into_iter().enumerate() {
        if mount > 0 {
            builder = builder.crash_and_open()?;
        }
        builder.pass();
        let dir = builder.dir(ROOT_INO, &format!("mount {mount}"))?;
        for i in 0..dirs {
            let below = builder.dir(dir, &format!("{i}"))?;
            builder.file(below, "file", &text("file", 1000 * i))?;
            builder.volume.sync()?;
        }
    }
    // The first large file: a group becomes one for data.
    builder.file(ROOT_INO, "large", &text("large", 40_000))?;
    builder.volume.sync()?;
    Ok(builder.image())
}
