//! Directories that say where small files go, and pass it on: files that were there were moved, others came later.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::{Arranging, Placement};

use super::Made;
use super::builder::Builder;
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 16 << 20,
    ..Geometry::SMALL
};

/// Content of the files, which takes little room when it is packed.
const LINE: &[u8] = b"golden wished\n";

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&GEOMETRY, "golden wished", 92)?;
    for placement in Placement::ALL {
        let dir = builder.dir(ROOT_INO, placement.word())?;
        for i in 0..12 {
            builder.file(dir, &format!("file {i}"), &LINE.repeat(30 + i * 40))?;
        }
        builder.pass();
        let mut placing = Arranging::placing(dir, placement);
        while builder.volume.upkeep().arrange(&mut placing)? {}
        builder.pass();
        let below = builder.dir(dir, "below")?;
        for dir in [dir, below] {
            builder.file(dir, "new", &LINE.repeat(100))?;
        }
    }
    builder.volume.sync()?;
    builder.volume.close()?;
    Ok(builder.image())
}
