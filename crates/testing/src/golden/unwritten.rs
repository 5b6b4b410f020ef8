//! Space that was reserved and never written: in the middle of files, behind their ends, in extents in the inode and in a
//! tree, beside what was written of it once, and again.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

pub(super) fn make() -> Made<Image> {
    let made = Builder::new(&Geometry::SMALL, "golden unwritten", 50)?;
    let volume = &made.volume;
    let block = u64::from(Geometry::SMALL.block);
    let part = made.file(ROOT_INO, "written in part", b"")?;
    volume.ranges(part).allocate(0, 20 * block, true)?;
    volume.sync()?;
    made.write(part, 3 * block, &text("first", 2 * block as usize))?;
    made.write(part, 17 * block + 100, b"a few bytes")?;
    volume.sync()?;
    made.write(part, 3 * block, &text("second", 500))?;
    volume.fsync(part, false)?;
    let whole = made.file(ROOT_INO, "written whole", b"")?;
    volume.ranges(whole).allocate(0, 4 * block, true)?;
    volume.sync()?;
    made.write(whole, 0, &text("whole", 4 * block as usize))?;
    let behind = made.file(ROOT_INO, "behind the end", b"small")?;
    volume.ranges(behind).allocate(0, 9 * block, false)?;
    let tree = made.holed(ROOT_INO, "in a tree", block, 30)?;
    volume.sync()?;
    volume.ranges(tree).allocate(0, 60 * block, true)?;
    let cut = made.file(ROOT_INO, "cut", b"")?;
    volume.ranges(cut).allocate(0, 8 * block, true)?;
    volume.sync()?;
    made.resize(cut, 5 * block + 7)?;
    volume.ranges(cut).punch(block, block)?;
    volume.sync()?;
    volume.close()?;
    Ok(made.image())
}
