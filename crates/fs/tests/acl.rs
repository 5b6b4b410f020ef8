//! Access lists through the library: kept in step with modes, inherited, and durable, whatever their size.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{mounted, open};
use loamfs_fs::{Error, Ino, NewInode, ROOT_INO, SetAttr, Volume, XattrMode};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NEW: NewInode = NewInode {
    umask: 0o022,
    uid: 7,
    gid: 8,
    ..NewInode::of_mode(0o666)
};

/// A list that names `users` users, who may read what the mask lets them.
fn acl(users: u32, [owner, group, mask, other]: [u16; 4]) -> Vec<u8> {
    let named = (1..=users).map(|id| (2u16, 4u16, id));
    let none = u32::MAX;
    let mut entries = vec![(1, owner, none)];
    entries.extend(named);
    entries.push((4, group, none));
    if users > 0 {
        entries.push((0x10, mask, none));
    }
    entries.push((0x20, other, none));
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn set(volume: &Volume, ino: Ino, name: &[u8], value: &[u8]) -> Result<(), Error> {
    volume.xattrs(ino).set(name, value, XattrMode::Any)
}

fn permissions(volume: &Volume, ino: Ino) -> u32 {
    volume.getattr(ino).unwrap().mode & 0o7777
}

fn chmod(volume: &Volume, ino: Ino, bits: u32) {
    let set = SetAttr {
        mode: Some(bits),
        ..SetAttr::default()
    };
    volume.setattr(ino, &set).unwrap();
}

#[test]
fn mode_and_list_follow_each_other() {
    let (_, volume) = mounted(64 << 20);
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    assert_eq!(permissions(&volume, file), 0o644);
    set(&volume, file, ACCESS, &acl(1, [6, 5, 3, 1])).unwrap();
    assert_eq!(permissions(&volume, file), 0o631);
    chmod(&volume, file, 0o2754);
    assert_eq!(
        volume.xattrs(file).get(ACCESS).unwrap(),
        acl(1, [7, 5, 5, 4])
    );
    let same = acl(1, [7, 5, 5, 4]);
    let any = XattrMode::Any;
    volume
        .xattrs(file)
        .set_by_stranger(ACCESS, &same, any)
        .unwrap();
    assert_eq!(permissions(&volume, file), 0o754);
    let dir = volume.mkdir(ROOT_INO, b"d", &NEW).unwrap().ino;
    chmod(&volume, dir, 0o2777);
    volume
        .xattrs(dir)
        .set_by_stranger(DEFAULT, &same, any)
        .unwrap();
    assert_eq!(permissions(&volume, dir), 0o2777);
    // A list that says no more than a mode is none.
    set(&volume, file, ACCESS, &acl(0, [6, 4, 0, 0])).unwrap();
    assert_eq!(permissions(&volume, file), 0o640);
    assert!(volume.xattrs(file).list().unwrap().is_empty());
}

#[test]
fn what_is_no_list_is_refused() {
    let (_, volume) = mounted(64 << 20);
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    let refused = set(&volume, file, ACCESS, b"text");
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let refused = set(&volume, file, DEFAULT, &acl(1, [7, 5, 5, 0]));
    assert!(matches!(refused, Err(Error::Denied)), "{refused:?}");
    assert!(volume.xattrs(file).list().unwrap().is_empty());
    assert_eq!(permissions(&volume, file), 0o644);
}

/// Lists in the inode, in a tree, and so long that they are blocks of their own.
#[test]
fn default_lists_of_any_length_are_inherited() {
    for users in [1, 20, 200, 4000] {
        let (device, volume) = mounted(64 << 20);
        let top = volume.mkdir(ROOT_INO, b"top", &NEW).unwrap().ino;
        set(&volume, top, DEFAULT, &acl(users, [7, 5, 6, 0])).unwrap();
        let wide = NewInode { mode: 0o777, ..NEW };
        let dir = volume.mkdir(top, b"dir", &wide).unwrap().ino;
        volume.create(dir, b"file", &NEW).unwrap();
        volume.symlink(dir, b"link", b"file", &NEW).unwrap();
        let unnamed = volume.create_unnamed(dir, &NEW).unwrap().ino;
        volume.link(unnamed, dir, b"named").unwrap();
        volume.release_file(unnamed).unwrap();
        volume.close().unwrap();
        let volume = open(&device);
        let find = |dir, name: &str| volume.lookup(dir, name.as_bytes()).unwrap().ino;
        let dir = find(find(ROOT_INO, "top"), "dir");
        assert_eq!(permissions(&volume, dir), 0o760);
        for list in [ACCESS, DEFAULT] {
            assert_eq!(
                volume.xattrs(dir).get(list).unwrap(),
                acl(users, [7, 5, 6, 0])
            );
        }
        for name in ["file", "named"] {
            let file = find(dir, name);
            assert_eq!(permissions(&volume, file), 0o660, "{users} {name}");
            assert_eq!(
                volume.xattrs(file).get(ACCESS).unwrap(),
                acl(users, [6, 5, 6, 0])
            );
            assert_eq!(volume.xattrs(file).list().unwrap().len(), 1);
            chmod(&volume, file, 0o604);
            assert_eq!(
                volume.xattrs(file).get(ACCESS).unwrap(),
                acl(users, [6, 5, 0, 4])
            );
        }
        assert!(volume.xattrs(find(dir, "link")).list().unwrap().is_empty());
        volume.close().unwrap();
    }
}

#[test]
fn a_small_file_keeps_its_inherited_list_when_it_is_written() {
    let (device, volume) = mounted(64 << 20);
    set(&volume, ROOT_INO, DEFAULT, &acl(5, [6, 4, 4, 0])).unwrap();
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    volume.write(file, 0, &[b'x'; 150]).unwrap();
    volume.close().unwrap();
    let volume = open(&device);
    assert_eq!(
        volume.xattrs(file).get(ACCESS).unwrap(),
        acl(5, [6, 4, 4, 0])
    );
    assert_eq!(volume.read(file, 0, 200).unwrap(), [b'x'; 150]);
}

#[test]
fn set_user_id_goes_when_it_must() {
    let (_, volume) = mounted(64 << 20);
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o1755, 0o1755)] {
        chmod(&volume, file, before);
        assert_eq!(volume.drop_privileges(file).unwrap(), before != after);
        assert_eq!(permissions(&volume, file), after);
    }
    chmod(&volume, ROOT_INO, 0o2777);
    assert!(!volume.drop_privileges(ROOT_INO).unwrap());
    assert_eq!(permissions(&volume, ROOT_INO), 0o2777);
}

#[test]
fn nothing_but_access_lists_is_under_system() {
    let (_, volume) = mounted(64 << 20);
    let file = volume.create(ROOT_INO, b"f", &NEW).unwrap().ino;
    let longer = [ACCESS, b"x"].concat();
    for name in [
        &b"system."[..],
        b"system.evil",
        b"system.posix_acl",
        &longer,
        b"System.posix_acl_access",
        b"foo.bar",
        b"none",
    ] {
        let refused = [
            set(&volume, file, name, b"value"),
            volume.xattrs(file).get(name).map(drop),
            volume.xattrs(file).remove(name),
        ];
        for result in refused {
            assert!(matches!(result, Err(Error::Unsupported)), "{result:?}");
        }
    }
    let empty = volume.xattrs(file).get(b"user.");
    assert!(matches!(empty, Err(Error::Invalid(_))), "{empty:?}");
    let missing = volume.xattrs(file).get(b"user.name");
    assert!(matches!(missing, Err(Error::NoAttribute)), "{missing:?}");
    assert!(volume.xattrs(file).list().unwrap().is_empty());
}
