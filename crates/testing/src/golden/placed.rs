//! A volume that reaches the third place at which readers look for superblocks, and has files on both sides of it.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::Builder;
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 10 << 20,
    ..Geometry::SMALL
};

/// Content of the large files, which takes little room when it is packed.
const LINE: &[u8] = b"golden placed\n";

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&GEOMETRY, "golden placed", 50)?;
    let dir = builder.dir(ROOT_INO, "dir")?;
    let name = |i: usize| format!("file {i}");
    let mut files = 0;
    while builder
        .file(dir, &name(files), &LINE.repeat(70_000))
        .is_ok()
        && builder.volume.sync().is_ok()
    {
        files += 1;
    }
    // The one that did not fit any more.
    builder.volume.unlink(dir, name(files).as_bytes())?;
    builder.volume.sync()?;
    builder.volume.close()?;
    Ok(builder.image())
}
