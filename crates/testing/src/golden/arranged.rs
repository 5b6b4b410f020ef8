//! A tree that was arranged: tables in inodes and in trees, of directories that stand together.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::Arranging;

use super::Made;
use super::builder::Builder;
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 16 << 20,
    ..Geometry::SMALL
};

/// Content of the files, which takes little room when it is packed.
const LINE: &[u8] = b"golden arranged\n";
/// Files of each directory: they take one track, some, and more than a table in an inode has.
const DIRECTORIES: [(&str, usize); 3] = [("one", 5), ("some", 80), ("many", 300)];

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&GEOMETRY, "golden arranged", 91)?;
    for (name, files) in DIRECTORIES {
        let dir = builder.dir(ROOT_INO, name)?;
        for i in 0..files {
            builder.file(dir, &format!("file {i}"), &LINE.repeat(30 + i % 60))?;
        }
    }
    builder.pass();
    let mut arranging = Arranging::tree(ROOT_INO);
    while builder.volume.upkeep().arrange(&mut arranging)? {}
    builder.pass();
    // What comes to an arranged directory is elsewhere.
    let some = builder.volume.lookup(ROOT_INO, b"some")?.ino;
    builder.file(some, "new", LINE)?;
    builder.volume.sync()?;
    builder.volume.close()?;
    Ok(builder.image())
}
