//! Flags and projects through the library: what they forbid, hand down, and that they are durable.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{mounted, open};
use loamfs_format::inode::flag;
use loamfs_fs::{
    Error, Ino, InodeFlags, NewInode, ROOT_INO, RenameFlags, SetAttr, SetTime, Volume, XattrMode,
};

const NEW: NewInode = NewInode {
    uid: 7,
    gid: 8,
    ..NewInode::of_mode(0o755)
};

fn set(volume: &Volume, ino: Ino, bits: u32) {
    let flags = volume.flags(ino).unwrap();
    volume.set_flags(ino, InodeFlags { bits, ..flags }).unwrap();
}

fn allowed<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::NotPermitted) => false,
        Err(error) => panic!("{error}"),
    }
}

/// What is tried on a file of 40,000 bytes, and whether it was allowed.
fn tries_on_file(volume: &Volume, file: Ino) -> Vec<(&'static str, bool)> {
    let size = SetAttr {
        size: Some(40_000),
        ..SetAttr::default()
    };
    let now = SetAttr {
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let none = RenameFlags::default();
    vec![
        ("append", allowed(volume.write(file, 40_000, b"x"))),
        (
            "allocate",
            allowed(volume.ranges(file).allocate(0, 50_000, true)),
        ),
        ("touch", allowed(volume.setattr(file, &now))),
        ("read", allowed(volume.read(file, 0, 10))),
        ("write", allowed(volume.write(file, 10, b"x"))),
        ("punch", allowed(volume.ranges(file).punch(10, 20_000))),
        ("zero", allowed(volume.ranges(file).zero(10, 20_000, false))),
        (
            "copy",
            allowed(volume.copy_range((file, 0), (file, 100), 5)),
        ),
        ("truncate", allowed(volume.setattr(file, &size))),
        ("chmod", allowed(volume.setattr(file, &mode))),
        (
            "set",
            allowed(volume.xattrs(file).set(b"user.b", b"v", XattrMode::Any)),
        ),
        ("remove", allowed(volume.xattrs(file).remove(b"user.a"))),
        ("link", allowed(volume.link(file, ROOT_INO, b"more"))),
        (
            "move",
            allowed(volume.rename(ROOT_INO, b"f", ROOT_INO, b"g", none)),
        ),
        ("unlink", allowed(volume.unlink(ROOT_INO, b"f"))),
    ]
}

fn file(volume: &Volume) -> Ino {
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(file, 0, &[1; 40_000]).unwrap();
    volume
        .xattrs(file)
        .set(b"user.a", b"v", XattrMode::Any)
        .unwrap();
    file
}

#[test]
fn an_immutable_file_can_be_read_only() {
    let (_, volume) = mounted(64 << 20);
    let file = file(&volume);
    set(&volume, file, flag::IMMUTABLE);
    for (what, allowed) in tries_on_file(&volume, file) {
        assert_eq!(allowed, what == "read", "{what}");
    }
    set(&volume, file, 0);
    volume.unlink(ROOT_INO, b"f").unwrap();
}

#[test]
fn an_append_only_file_only_grows() {
    let (_, volume) = mounted(64 << 20);
    let file = file(&volume);
    set(&volume, file, flag::APPEND);
    for (what, allowed) in tries_on_file(&volume, file) {
        let grows = ["append", "allocate", "touch", "read"].contains(&what);
        assert_eq!(allowed, grows, "{what}");
    }
    assert_eq!(volume.read(file, 0, 40_000).unwrap(), [1; 40_000]);
}

#[test]
fn space_that_an_append_only_file_does_not_get_leaves_its_size() {
    let (_, volume) = mounted(64 << 20);
    let file = file(&volume);
    set(&volume, file, flag::APPEND);
    let refused = volume.ranges(file).allocate(0, 1 << 30, true);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    assert_eq!(volume.getattr(file).unwrap().size, 40_000);
}

#[test]
fn directories_keep_their_names() {
    for (bits, adds) in [(flag::IMMUTABLE, false), (flag::APPEND, true)] {
        let (_, volume) = mounted(64 << 20);
        let (dir, other) = (b"dir", b"other");
        let dir = volume.mkdir(ROOT_INO, dir, &NEW).unwrap().ino;
        let outside = volume.create(ROOT_INO, other, &NEW).unwrap().ino;
        volume.create(dir, b"file", &NEW).unwrap();
        volume.mkdir(dir, b"sub", &NEW).unwrap();
        set(&volume, dir, bits);
        let none = RenameFlags::default();
        let exchange = RenameFlags {
            exchange: true,
            ..none
        };
        assert_eq!(allowed(volume.create(dir, b"new", &NEW)), adds);
        assert_eq!(allowed(volume.mkdir(dir, b"newer", &NEW)), adds);
        assert_eq!(allowed(volume.symlink(dir, b"link", b"to", &NEW)), adds);
        assert_eq!(allowed(volume.create_unnamed(dir, &NEW)), adds);
        assert_eq!(allowed(volume.link(outside, dir, b"linked")), adds);
        assert!(!allowed(volume.unlink(dir, b"file")));
        assert!(!allowed(volume.rmdir(dir, b"sub")));
        assert!(!allowed(
            volume.rename(dir, b"file", ROOT_INO, b"out", none)
        ));
        assert!(!allowed(
            volume.rename(ROOT_INO, b"other", dir, b"file", none)
        ));
        assert!(!allowed(
            volume.rename(ROOT_INO, b"other", dir, b"file", exchange)
        ));
        assert_eq!(
            allowed(volume.rename(ROOT_INO, b"other", dir, b"in", none)),
            adds
        );
        assert!(!allowed(volume.rmdir(ROOT_INO, b"dir")));
        volume.close().unwrap();
    }
}

#[test]
fn flags_and_project_are_handed_down_and_durable() {
    let (device, volume) = mounted(64 << 20);
    let bits = flag::NODUMP | flag::NOATIME | flag::PROJECT_INHERIT;
    let flags = InodeFlags { bits, project: 42 };
    let dir = volume.mkdir(ROOT_INO, b"dir", &NEW).unwrap().ino;
    volume.set_flags(dir, flags).unwrap();
    let sub = volume.mkdir(dir, b"sub", &NEW).unwrap().ino;
    let file = volume.create(sub, b"file", &NEW).unwrap().ino;
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(volume.flags(sub).unwrap(), flags);
    let bits = flag::NODUMP | flag::NOATIME;
    assert_eq!(
        volume.flags(file).unwrap(),
        InodeFlags { bits, project: 42 }
    );
    // What is another project's stays outside.
    volume.create(ROOT_INO, b"other", &NEW).unwrap();
    let moved = volume.rename(ROOT_INO, b"other", dir, b"other", RenameFlags::default());
    assert!(matches!(moved, Err(Error::CrossDevice)), "{moved:?}");
    let unknown = volume.set_flags(
        file,
        InodeFlags {
            bits: 1,
            project: 0,
        },
    );
    assert!(matches!(unknown, Err(Error::Unsupported)), "{unknown:?}");
}

#[test]
fn an_immutable_file_keeps_what_is_reserved_for_it() {
    let (_, volume) = mounted(64 << 20);
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(file, 0, &[7; 100_000]).unwrap();
    volume.ranges(file).allocate(0, 1 << 20, false).unwrap();
    let blocks = volume.getattr(file).unwrap().blocks;
    set(&volume, file, flag::IMMUTABLE);
    assert!(!allowed(volume.ranges(file).allocate(0, 2 << 20, true)));
    assert_eq!(volume.getattr(file).unwrap().blocks, blocks);
}
