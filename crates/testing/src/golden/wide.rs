//! The largest fragments on a device of more than 16 MiB, where the second superblock stands at 8 MiB. It crashed
//! twice, and so has mount segments in its log.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::workshop::{Workshop, text};
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 17 << 20,
    checkpoint_segments_max: 10,
    ..Geometry::COARSE
};

pub(super) fn make() -> Made<Image> {
    let mut shop = Workshop::new(&GEOMETRY, "golden wide", 30)?;
    for (mount, dirs) in [10, 10, 3].into_iter().enumerate() {
        if mount > 0 {
            shop = shop.crash_and_open()?;
        }
        shop.pass();
        let dir = shop.dir(ROOT_INO, &format!("mount {mount}"))?;
        for i in 0..dirs {
            let below = shop.dir(dir, &format!("{i}"))?;
            shop.file(below, "file", &text("file", 1000 * i))?;
            shop.volume.sync()?;
        }
    }
    // The first large file: a group becomes one for data.
    shop.file(ROOT_INO, "large", &text("large", 40_000))?;
    shop.volume.sync()?;
    Ok(shop.image())
}
