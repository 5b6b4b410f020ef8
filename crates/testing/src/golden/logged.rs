//! Everything in the log: large files whose blocks were written over, reserved and removed, and moved by cleaning.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::MkfsOptions;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 16 << 20,
    ..Geometry::SMALL
};

pub(super) fn make() -> Made<Image> {
    let options = MkfsOptions {
        profile: "lfs".to_owned(),
        ..GEOMETRY.mkfs_options()
    };
    let builder = Builder::with_options(&GEOMETRY, options, "golden logged", 92)?;
    let volume = &builder.volume;
    let block = u64::from(GEOMETRY.block);
    let dir = builder.dir(ROOT_INO, "dir")?;
    for i in 0..8 {
        let name = format!("large {i}");
        builder.file(dir, &name, &text(&name, 120_000))?;
        builder.file(dir, &format!("small {i}"), &text(&name, 700 * i))?;
        volume.sync()?;
    }
    builder.pass();
    let over = volume.lookup(dir, b"large 1")?.ino;
    for part in [0, 3, 4, 6] {
        builder.write(over, part * block + 100, &text("over", 5000))?;
        volume.sync()?;
    }
    for i in [0, 2, 4, 6] {
        volume.unlink(dir, format!("large {i}").as_bytes())?;
    }
    let reserved = builder.file(ROOT_INO, "reserved", b"")?;
    volume.ranges(reserved).allocate(0, 9 * block, true)?;
    volume.sync()?;
    builder.write(reserved, 2 * block, &text("first", 20_000))?;
    volume.sync()?;
    volume.upkeep().clean(90, &mut |_, _| true)?;
    builder.file(dir, "behind", &text("behind", 40_000))?;
    volume.close()?;
    Ok(builder.image())
}
