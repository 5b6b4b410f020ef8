//! An unmounted volume with every kind of file, directory and attribute.

use loamfs_device::Image;
use loamfs_format::Ino;
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_fs::{NewInode, RenameFlags};

use super::Made;
use super::builder::{Builder, new, text};
use crate::geometry::Geometry;

const BLOCK: u64 = Geometry::SMALL.block as u64;
/// Two names with one hash under the key of this volume; `find_names_that_collide` of the tests found them.
const ALIKE: [&str; 2] = ["58c015df7e61ac", "7c32fb8773c90b"];

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&Geometry::SMALL, "golden sound", 1)?;
    files(&builder)?;
    names(&builder)?;
    attributes(&builder)?;
    builder.volume.close()?;
    // A second mount, so that there is something to replace, and to free.
    let builder = builder.crash_and_open()?;
    images(&builder)?;
    changes(&builder)?;
    builder.volume.close()?;
    Ok(builder.image())
}

/// Files of every body and of the sizes around its limits.
fn files(builder: &Builder) -> Made<()> {
    let dir = builder.dir(ROOT_INO, "files")?;
    for size in [0, 1, 240, 241, 1024, 1025, BLOCK, BLOCK + 1, 100_000] {
        let name = format!("of-{size}");
        builder.file(dir, &name, &text(&name, size as usize))?;
    }
    builder.pass();
    builder.holed(dir, "five-extents", BLOCK, 5)?;
    builder.holed(dir, "extent-tree", BLOCK, 12)?;
    let sparse = builder.file(dir, "sparse", b"")?;
    builder.write(sparse, 3 << 20, &text("sparse", 5000))?;
    builder.resize(sparse, 4 << 20)?;
    let hole = builder.file(dir, "hole", b"")?;
    builder.resize(hole, 1 << 20)?;
    let far = builder.file(dir, "far", b"")?;
    builder.write(far, 1 << 62, b"far away")?;
    Ok(())
}

/// Links, special files, and directories of every form.
fn names(builder: &Builder) -> Made<()> {
    let volume = &builder.volume;
    let dir = builder.dir(ROOT_INO, "names")?;
    builder.dir(dir, "empty")?;
    let inline = builder.dir(dir, "inline")?;
    let file = builder.file(inline, "hard link", b"many names")?;
    volume.link(file, dir, "n\u{e4}me \n\\".as_bytes())?;
    let big = builder.dir(dir, "big")?;
    for i in 0..150 {
        volume.link(file, big, format!("{i:060}").as_bytes())?;
    }
    for name in ALIKE {
        volume.link(file, big, name.as_bytes())?;
    }
    builder.file(dir, &"x".repeat(255), b"the longest name")?;
    let everybody = new(0o777);
    volume.symlink(dir, b"short", b"../files/of-1", &everybody)?;
    volume.symlink(dir, b"long", &text("target", 1000), &everybody)?;
    for (name, kind) in [("fifo", mode::FIFO), ("socket", mode::SOCKET)] {
        volume.mknod(dir, name.as_bytes(), kind, &new(0o600))?;
    }
    for (name, kind) in [("character", mode::CHARACTER), ("block", mode::BLOCK)] {
        let device = NewInode {
            rdev: 0x0801_0203,
            ..new(0o660)
        };
        volume.mknod(dir, name.as_bytes(), kind, &device)?;
    }
    Ok(())
}

/// Attributes in the inode, in a tree, and in blocks of their own. The kept volume has one more, `system.in-two`, from when
/// anybody could set such: it is hidden, and no damage.
fn attributes(builder: &Builder) -> Made<()> {
    let dir = builder.dir(ROOT_INO, "attributes")?;
    builder.attribute(dir, "user.of-a-directory", b"")?;
    let inline = builder.file(dir, "inline", b"")?;
    builder.attribute(inline, "user.short", b"value")?;
    builder.attribute(inline, "security.capability", &[1, 0, 0, 2])?;
    let leaf = builder.file(dir, "leaf", b"")?;
    let tree = builder.file(dir, "tree", b"")?;
    for (file, count) in [(leaf, 4), (tree, 60)] {
        for i in 0..count {
            let name = format!("user.number {i}");
            builder.attribute(file, &name, &text(&name, 100))?;
        }
    }
    builder.attribute(tree, "trusted.longest-in-a-tree", &text("t", 1024))?;
    builder.attribute(tree, "user.in-a-block", &text("block", 1025))?;
    Ok(())
}

/// Overwrites of a large file that stay in the log.
fn images(builder: &Builder) -> Made<()> {
    let file = builder.volume.lookup(ROOT_INO, b"files")?.ino;
    let file = builder.volume.lookup(file, b"of-100000")?.ino;
    for offset in [0, 50_000, 99_990] {
        builder.write(file, offset, &text("image", 6000))?;
        builder.volume.fsync(file, false)?;
    }
    Ok(())
}

/// Some of it goes, some moves.
fn changes(builder: &Builder) -> Made<()> {
    let volume = &builder.volume;
    builder.pass();
    let files = volume.lookup(ROOT_INO, b"files")?.ino;
    let names = volume.lookup(ROOT_INO, b"names")?.ino;
    volume.unlink(files, b"of-1024")?;
    let moves: [(Ino, &[u8], Ino, &[u8]); 2] = [
        (files, b"of-1025", names, b"moved"),
        (names, b"inline", ROOT_INO, b"moved-directory"),
    ];
    for (from, old, to, new) in moves {
        volume.rename(from, old, to, new, RenameFlags::default())?;
    }
    let cut = volume.lookup(files, b"extent-tree")?.ino;
    builder.resize(cut, 8 * BLOCK + 100)
}
