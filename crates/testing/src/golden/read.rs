//! Access times in a file of their own: some that count, some of inodes that changed or went since, and files that were
//! read before they were first written to the device.

use loamfs_device::Image;
use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

const FILES: usize = 40;

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&Geometry::SMALL, "golden read", 40)?;
    // More leaves than one of the tree: some files in each of several inode blocks.
    let dirs: Vec<Ino> = (0..12)
        .map(|i| builder.dir(ROOT_INO, &format!("dir {i:02}")))
        .collect::<Made<_>>()?;
    let mut files = Vec::new();
    for dir in &dirs {
        for i in 0..FILES {
            let name = format!("file {i:02}");
            files.push(builder.file(*dir, &name, &text(&name, 50))?);
        }
    }
    builder.pass();
    // These take their times along.
    files
        .iter()
        .take(3)
        .for_each(|ino| _ = builder.volume.accessed(*ino));
    builder.volume.sync()?;
    builder.pass();
    for ino in files.iter().skip(5).chain(&dirs) {
        builder.volume.getattr(*ino)?;
        builder.volume.accessed(*ino);
    }
    builder.volume.sync()?;
    builder.pass();
    builder.write(files[10], 0, b"changed since")?;
    for i in 0..FILES {
        builder
            .volume
            .unlink(dirs[1], format!("file {i:02}").as_bytes())?;
    }
    builder.volume.sync()?;
    let builder = builder.crash_and_open()?;
    builder.pass();
    builder.volume.getattr(files[10])?;
    builder.volume.accessed(files[10]);
    builder.volume.close()?;
    Ok(builder.image())
}
