//! Inodes that came and went while their blocks stayed where they are: some behind the last checkpoint, some that it carries, some in the
//! place of others. It is left as a crash leaves it.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

pub(super) fn make() -> Made<Image> {
    let made = Builder::with_deltas(&Geometry::SMALL, "golden lazy", 111)?;
    let volume = &made.volume;
    let dir = made.dir(ROOT_INO, "dir")?;
    let files = made.files(dir, 50)?;
    volume.sync()?;
    made.pass();
    made.write(files[3], 0, &text("changed", 3000))?;
    volume.unlink(dir, b"file 4")?;
    volume.unlink(dir, b"file 40")?;
    volume.sync()?;
    made.file(dir, "came", &text("carried", 2000))?;
    volume.sync()?;
    volume.upkeep().checkpoint()?;
    made.pass();
    volume.unlink(dir, b"file 6")?;
    volume.unlink(dir, b"came")?;
    volume.sync()?;
    made.file(dir, "in its place", &text("behind", 90))?;
    made.write(files[41], 0, &text("changed", 300))?;
    volume.sync()?;
    Ok(made.image())
}
