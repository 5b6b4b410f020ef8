//! Access times in a file of their own: some that count, some of inodes that changed or went since, and files that were
//! read before they were first written to the device.

use loamfs_device::Image;
use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::workshop::{Workshop, text};
use crate::geometry::Geometry;

const FILES: usize = 40;

pub(super) fn make() -> Made<Image> {
    let shop = Workshop::new(&Geometry::SMALL, "golden read", 40)?;
    // More leaves than one of the tree: some files in each of several inode blocks.
    let dirs: Vec<Ino> = (0..12)
        .map(|i| shop.dir(ROOT_INO, &format!("dir {i:02}")))
        .collect::<Made<_>>()?;
    let mut files = Vec::new();
    for dir in &dirs {
        for i in 0..FILES {
            let name = format!("file {i:02}");
            files.push(shop.file(*dir, &name, &text(&name, 50))?);
        }
    }
    shop.pass();
    // These take their times along.
    files
        .iter()
        .take(3)
        .for_each(|ino| _ = shop.volume.accessed(*ino));
    shop.volume.sync()?;
    shop.pass();
    for ino in files.iter().skip(5).chain(&dirs) {
        shop.volume.getattr(*ino)?;
        shop.volume.accessed(*ino);
    }
    shop.volume.sync()?;
    shop.pass();
    shop.write(files[10], 0, b"changed since")?;
    for i in 0..FILES {
        shop.volume
            .unlink(dirs[1], format!("file {i:02}").as_bytes())?;
    }
    shop.volume.sync()?;
    let shop = shop.crash_and_open()?;
    shop.pass();
    shop.volume.getattr(files[10])?;
    shop.volume.accessed(files[10]);
    shop.volume.close()?;
    Ok(shop.image())
}
