//! Directories whose files are in tracks: one with a table in its inode, and one with a tree of it; masked slots, counted
//! names, and a track that went.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::RenameFlags;

use super::Made;
use super::builder::Builder;
use crate::geometry::Geometry;

const GEOMETRY: Geometry = Geometry {
    size: 16 << 20,
    ..Geometry::SMALL
};

/// Content of the files, which takes little room when it is packed.
const LINE: &[u8] = b"golden tracked\n";

fn name(i: usize) -> String {
    format!("file {i}")
}

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&GEOMETRY, "golden tracked", 90)?;
    let few = builder.dir(ROOT_INO, "few")?;
    for i in 0..6 {
        builder.file(few, &name(i), &LINE.repeat(20 + 70 * i))?;
    }
    builder.dir(few, "dir")?;
    let many = builder.dir(ROOT_INO, "many")?;
    for i in 0..160 {
        builder.file(many, &name(i), &LINE.repeat(60 + i))?;
    }
    builder.pass();
    let upkeep = builder.volume.upkeep();
    for dir in [few, many] {
        upkeep.settle_directory(dir)?;
    }
    builder.pass();
    let ino = |dir, i: usize| builder.volume.lookup(dir, name(i).as_bytes());
    builder.write(ino(few, 1)?.ino, 10, b"changed")?;
    builder.file(few, "new", LINE)?;
    let first = name(0);
    let flags = RenameFlags::default();
    let renamed = builder
        .volume
        .rename(many, first.as_bytes(), few, b"moved", flags);
    renamed?;
    for i in (1..160).filter(|i| i % 3 == 0 || *i > 120) {
        builder.volume.unlink(many, name(i).as_bytes())?;
    }
    builder.volume.sync()?;
    builder.volume.close()?;
    Ok(builder.image())
}
