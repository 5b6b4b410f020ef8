//! An unmounted volume with every kind of file, directory and attribute.

use loamfs_device::Image;
use loamfs_format::Ino;
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_fs::{NewInode, RenameFlags};

use super::Made;
use super::workshop::{Workshop, new, text};
use crate::geometry::Geometry;

const BLOCK: u64 = Geometry::SMALL.block as u64;
/// Two names with one hash under the key of this volume; `find_names_that_collide` of the tests found them.
const ALIKE: [&str; 2] = ["58c015df7e61ac", "7c32fb8773c90b"];

pub(super) fn make() -> Made<Image> {
    let shop = Workshop::new(&Geometry::SMALL, "golden sound", 1)?;
    files(&shop)?;
    names(&shop)?;
    attributes(&shop)?;
    shop.volume.close()?;
    // A second mount, so that there is something to replace, and to free.
    let shop = shop.crash_and_open()?;
    images(&shop)?;
    changes(&shop)?;
    shop.volume.close()?;
    Ok(shop.image())
}

/// Files of every body and of the sizes around its limits.
fn files(shop: &Workshop) -> Made<()> {
    let dir = shop.dir(ROOT_INO, "files")?;
    for size in [0, 1, 240, 241, 1024, 1025, BLOCK, BLOCK + 1, 100_000] {
        let name = format!("of-{size}");
        shop.file(dir, &name, &text(&name, size as usize))?;
    }
    shop.pass();
    shop.holed(dir, "five-extents", BLOCK, 5)?;
    shop.holed(dir, "extent-tree", BLOCK, 12)?;
    let sparse = shop.file(dir, "sparse", b"")?;
    shop.write(sparse, 3 << 20, &text("sparse", 5000))?;
    shop.resize(sparse, 4 << 20)?;
    let hole = shop.file(dir, "hole", b"")?;
    shop.resize(hole, 1 << 20)?;
    let far = shop.file(dir, "far", b"")?;
    shop.write(far, 1 << 62, b"far away")?;
    Ok(())
}

/// Links, special files, and directories of every form.
fn names(shop: &Workshop) -> Made<()> {
    let volume = &shop.volume;
    let dir = shop.dir(ROOT_INO, "names")?;
    shop.dir(dir, "empty")?;
    let inline = shop.dir(dir, "inline")?;
    let file = shop.file(inline, "hard link", b"many names")?;
    volume.link(file, dir, "n\u{e4}me \n\\".as_bytes())?;
    let big = shop.dir(dir, "big")?;
    for i in 0..150 {
        volume.link(file, big, format!("{i:060}").as_bytes())?;
    }
    for name in ALIKE {
        volume.link(file, big, name.as_bytes())?;
    }
    shop.file(dir, &"x".repeat(255), b"the longest name")?;
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
fn attributes(shop: &Workshop) -> Made<()> {
    let dir = shop.dir(ROOT_INO, "attributes")?;
    shop.attribute(dir, "user.of-a-directory", b"")?;
    let inline = shop.file(dir, "inline", b"")?;
    shop.attribute(inline, "user.short", b"value")?;
    shop.attribute(inline, "security.capability", &[1, 0, 0, 2])?;
    let leaf = shop.file(dir, "leaf", b"")?;
    let tree = shop.file(dir, "tree", b"")?;
    for (file, count) in [(leaf, 4), (tree, 60)] {
        for i in 0..count {
            let name = format!("user.number {i}");
            shop.attribute(file, &name, &text(&name, 100))?;
        }
    }
    shop.attribute(tree, "trusted.longest-in-a-tree", &text("t", 1024))?;
    shop.attribute(tree, "user.in-a-block", &text("block", 1025))?;
    Ok(())
}

/// Overwrites of a large file that stay in the log.
fn images(shop: &Workshop) -> Made<()> {
    let file = shop.volume.lookup(ROOT_INO, b"files")?.ino;
    let file = shop.volume.lookup(file, b"of-100000")?.ino;
    for offset in [0, 50_000, 99_990] {
        shop.write(file, offset, &text("image", 6000))?;
        shop.volume.fsync(file, false)?;
    }
    Ok(())
}

/// Some of it goes, some moves.
fn changes(shop: &Workshop) -> Made<()> {
    let volume = &shop.volume;
    shop.pass();
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
    shop.resize(cut, 8 * BLOCK + 100)
}
