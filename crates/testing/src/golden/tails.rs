//! Blocks of 4 KiB beside small files of up to 16: files that end in each of a block's units of old, that came from the log, that grow,
//! shrink and have holes; attributes in pieces of 16 KiB; extents of one block and of many. It is left as a crash leaves it.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::MkfsOptions;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

/// Bytes of a block.
const BLOCK: u64 = 4096;

pub(super) fn make() -> Made<Image> {
    let options = MkfsOptions {
        deltas: true,
        tails: true,
        ..Geometry::SMALL.mkfs_options()
    };
    let made = Builder::with_options(&Geometry::SMALL, options, "golden tails", 112)?;
    let volume = &made.volume;
    for kib in [12, 16, 17, 21, 25, 29, 33, 190, 193] {
        made.file(
            ROOT_INO,
            &format!("of {kib} KiB"),
            &text("first", kib << 10),
        )?;
    }
    let grown = made.file(ROOT_INO, "grown", &text("small", 16_000))?;
    let cut = made.file(ROOT_INO, "cut", &text("long", 100_000))?;
    let punched = made.file(ROOT_INO, "punched", &text("whole", 50_000))?;
    let told = made.file(ROOT_INO, "with attributes", &text("told", 60_000))?;
    volume.sync()?;
    made.pass();
    made.write(grown, 16_000, &text("more", 5_000))?;
    made.resize(cut, 3 * BLOCK + 5_000)?;
    volume.ranges(punched).punch(2 * BLOCK, 3 * BLOCK)?;
    made.attribute(told, "user.long", &text("attribute", 40_000))?;
    made.attribute(told, "user.short", &text("attribute", 100))?;
    made.holed(ROOT_INO, "in a tree", BLOCK, 30)?;
    volume.sync()?;
    volume.upkeep().checkpoint()?;
    made.pass();
    made.write(punched, 7 * BLOCK + 100, b"an image")?;
    volume.fsync(punched, false)?;
    made.write(grown, 60_000, &text("behind a hole", 9_000))?;
    volume.sync()?;
    Ok(made.image())
}
