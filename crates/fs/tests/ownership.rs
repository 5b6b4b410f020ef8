//! A volume on which everything belongs to one user and group.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::made;
use loamfs_device::Device;
use loamfs_fs::{Env, Error, NewInode, OpenOptions, Ownership, ROOT_INO, SetAttr, Volume};
use std::sync::Arc;

const NEW: NewInode = NewInode {
    uid: 7,
    gid: 8,
    ..NewInode::of_mode(0o644)
};

fn open(device: &Arc<dyn Device>, uid: Option<u32>, gid: Option<u32>) -> Volume {
    let options = OpenOptions {
        owner: Ownership { uid, gid },
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(device), &options, Env::fixed(2)).unwrap()
}

#[test]
fn everything_is_shown_and_stored_as_its_owners_and_stays_so() {
    let device = made(64 << 20);
    let owned = open(&device, Some(1000), Some(1001));
    let root = owned.getattr(ROOT_INO).unwrap();
    assert_eq!((root.uid, root.gid), (1000, 1001));
    let made = [
        owned.create(ROOT_INO, b"file", &NEW).unwrap(),
        owned.mkdir(ROOT_INO, b"dir", &NEW).unwrap(),
        owned.symlink(ROOT_INO, b"link", b"file", &NEW).unwrap(),
    ];
    for attr in made {
        assert_eq!((attr.uid, attr.gid), (1000, 1001));
        for (uid, gid) in [(Some(7), None), (None, Some(7)), (Some(1000), Some(7))] {
            let set = SetAttr {
                uid,
                gid,
                ..SetAttr::default()
            };
            assert!(matches!(
                owned.setattr(attr.ino, &set),
                Err(Error::NotPermitted)
            ));
        }
        let same = SetAttr {
            uid: Some(1000),
            gid: Some(1001),
            mode: Some(0o600),
            ..SetAttr::default()
        };
        assert_eq!(owned.setattr(attr.ino, &same).unwrap().mode & 0o777, 0o600);
    }
    owned.close().unwrap();

    let plain = open(&device, None, None);
    assert_eq!(plain.getattr(ROOT_INO).unwrap().uid, 0);
    for attr in made {
        let stored = plain.getattr(attr.ino).unwrap();
        assert_eq!((stored.uid, stored.gid), (1000, 1001));
    }
    plain.close().unwrap();
    // Only the group is fixed.
    let half = open(&device, None, Some(5));
    let made = half.create(ROOT_INO, b"half", &NEW).unwrap();
    assert_eq!((made.uid, made.gid), (7, 5));
    let set = SetAttr {
        uid: Some(9),
        ..SetAttr::default()
    };
    assert_eq!(half.setattr(made.ino, &set).unwrap().uid, 9);
}
