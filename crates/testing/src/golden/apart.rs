//! Inodes of which segments say what changed, and whose blocks they do not write: some behind the last checkpoint, some that it
//! carries, some of both. Others have moved since. It is left as a crash leaves it.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

pub(super) fn make() -> Made<Image> {
    let made = Builder::with_deltas(&Geometry::SMALL, "golden deltas", 110)?;
    let volume = &made.volume;
    let dir = made.dir(ROOT_INO, "dir")?;
    let files = made.files(dir, 40)?;
    volume.sync()?;
    made.pass();
    for file in [3, 4, 9] {
        made.write(files[file], 0, &text("carried", 3000))?;
    }
    made.resize(files[5], 20)?;
    volume.sync()?;
    volume.upkeep().checkpoint()?;
    made.pass();
    // An inode of another block goes.
    made.write(files[38], 0, &text("gone", 700))?;
    volume.sync()?;
    volume.unlink(dir, b"file 39")?;
    volume.sync()?;
    for file in [4, 12] {
        made.write(files[file], 10, &text("behind", 2000))?;
    }
    volume.sync()?;
    Ok(made.image())
}
