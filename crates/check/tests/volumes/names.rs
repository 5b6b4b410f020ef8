//! Names, link counts, directories and attributes that are wrong.

use crate::builder::*;
use crate::{kinds, report};
use loamfs_check::Problem;
use loamfs_format::dirent::{Dirent, InlineMap, hash_key};
use loamfs_format::inode::{Body, ROOT_INO, mode};
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{Ino, InodeBlockNo};

/// What is found when the sample is changed.
fn changed(change: impl FnOnce(&mut Builder)) -> Vec<&'static str> {
    let mut b = Builder::sample();
    change(&mut b);
    kinds(&b.finish())
}

/// Makes the sizes of the directories right again.
fn resize(b: &mut Builder) {
    let links: Vec<_> = b
        .inodes
        .values()
        .map(|inode| (inode.ino, inode.nlink))
        .collect();
    b.count_links();
    for (ino, nlink) in links {
        b.inode(ino).nlink = nlink;
    }
}

#[test]
fn a_wrong_link_count_is_named_and_planned() {
    let mut b = Builder::sample();
    b.inode(MANY).nlink = 5;
    b.inode(SUB).nlink = 7;
    let device = b.finish();
    assert_eq!(kinds(&device), ["LinkCount"]);
    let report = report(&device);
    assert!(report.problems.contains(&Problem::LinkCount {
        ino: MANY,
        stored: 5,
        found: 200
    }));
    assert_eq!(report.plan.links, [(SUB, 3), (MANY, 200)]);
    assert_eq!(report.stats.passes, 2);
    assert!(report.problems.iter().all(Problem::repairable));
}

#[test]
fn an_inode_without_a_name_is_named_and_planned() {
    let mut b = Builder::sample();
    b.unname(SUB, b"tiny");
    resize(&mut b);
    let device = b.finish();
    assert_eq!(kinds(&device), ["Unnamed"]);
    assert_eq!(report(&device).plan.unnamed, [TINY]);
}

#[test]
fn names_that_lead_nowhere_or_to_another_type() {
    let found = changed(|b| {
        b.name(SUB, b"ghost", Ino(60));
        resize(b);
    });
    assert_eq!(found, ["DirentTarget"]);
    let found = changed(|b| {
        b.unname(SUB, b"tiny");
        let value = Dirent {
            ino: TINY,
            file_type: 10,
            name: b"tiny",
        }
        .encode();
        b.dirs
            .get_mut(&SUB)
            .unwrap()
            .insert(hash_key(&[9; 16], b"tiny"), value);
    });
    assert_eq!(found, ["DirentType"]);
}

#[test]
fn an_orphan_has_no_name_and_no_links() {
    let found = changed(|b| {
        b.name(SUB, b"back", ORPHAN);
        resize(b);
    });
    assert_eq!(found, ["OrphanNamed"]);
    assert_eq!(
        changed(|b| b.inode(ORPHAN).nlink = 1),
        ["OrphanBit", "OrphanNamed"][..1]
    );
}

/// Whoever removed it would lose all that it leads to.
#[test]
fn an_orphan_leads_nowhere() {
    let orphaned = |b: &mut Builder, dir: Ino| {
        b.count_links();
        b.inode(dir).nlink = 0;
        b.orphans.insert(dir);
    };
    let files = changed(|b| {
        b.unname(SUB, b"deep");
        for index in 0..200 {
            b.name(DEEP, format!("link{index}").as_bytes(), TINY);
        }
        orphaned(b, DEEP);
    });
    assert_eq!(files, ["OrphanNotEmpty"]);
    let directory = changed(|b| {
        b.unname(ROOT_INO, b"sub");
        for name in [&b"tiny"[..], b"symlink"] {
            b.unname(SUB, name);
        }
        b.name(ROOT_INO, b"tiny", TINY);
        b.name(ROOT_INO, b"symlink", LINK);
        orphaned(b, SUB);
    });
    assert_eq!(directory, ["OrphanNotEmpty"]);
    let empty = changed(|b| {
        b.unname(SUB, b"deep");
        orphaned(b, DEEP);
    });
    assert_eq!(empty, [""; 0]);
}

#[test]
fn a_directory_has_one_name_in_its_parent() {
    let twice = changed(|b| {
        b.name(ROOT_INO, b"deep too", DEEP);
        let links = b.inode(DEEP).nlink;
        b.count_links();
        b.inode(DEEP).nlink = links;
    });
    assert_eq!(twice, ["DirTwice"]);
    assert_eq!(changed(|b| b.inode(DEEP).parent = ROOT_INO), ["Parent"]);
    assert_eq!(changed(|b| b.inode(ROOT_INO).parent = SUB), ["Parent"]);
}

#[test]
fn directories_that_lead_only_to_each_other_are_detached() {
    let mut b = Builder::sample();
    let (one, two) = (Ino(50), Ino(51));
    b.add(one, mode::DIRECTORY | 0o755, two, Body::Empty);
    b.add(two, mode::DIRECTORY | 0o755, one, Body::Empty);
    b.name(one, b"two", two);
    b.name(two, b"one", one);
    b.count_links();
    b.dynamic.inodes += 2;
    let device = b.finish();
    assert_eq!(kinds(&device), ["Detached"]);
    assert_eq!(report(&device).problems, [Problem::Detached { ino: one }]);
}

#[test]
fn more_directories_than_fit_into_memory_are_followed_in_rounds() {
    let deep = |ring: bool| {
        let mut b = Builder::sample();
        let mut parent = SUB;
        // Numbers fall with the depth for the first few, so that one round does not do.
        for ino in (64..90).rev().chain(90..400) {
            b.add(Ino(ino), mode::DIRECTORY | 0o755, parent, Body::Empty);
            b.name(parent, b"d", Ino(ino));
            parent = Ino(ino);
        }
        if ring {
            b.unname(SUB, b"d");
            b.name(parent, b"d", Ino(89));
            b.inode(Ino(89)).parent = parent;
        }
        b.count_links();
        b.dynamic.inodes = b.inodes.len() as u64;
        b.dynamic.next_inode_block = InodeBlockNo(13);
        b.log_at = 2560;
        b.groups.insert(
            5,
            loamfs_format::group::GroupDesc {
                role: loamfs_format::group::Role::Log,
                ..Default::default()
            },
        );
        kinds(&b.finish())
    };
    assert_eq!(deep(false), ["GroupRole"][..0]);
    assert_eq!(deep(true), ["Detached"]);
}

#[test]
fn entries_that_no_directory_has() {
    let size = changed(|b| b.inode(SUB).size += 1);
    assert_eq!(size, ["DirSize"]);
    let key = changed(|b| {
        let entries = b.dirs.get_mut(&SUB).unwrap();
        let (key, value) = entries.pop_first().unwrap();
        entries.insert(key + 256, value);
    });
    assert_eq!(key, ["DirentKey"]);
    let twice = changed(|b| {
        b.name(SUB, b"tiny", TINY);
        b.count_links();
    });
    assert_eq!(twice, ["DirentTwice"]);
    let dots = changed(|b| {
        b.name(SUB, b"..", TINY);
        b.count_links();
    });
    assert_eq!(dots, ["DirentName"]);
    let entry = changed(|b| {
        b.dirs.get_mut(&SUB).unwrap().insert(u64::MAX, vec![1, 2]);
        b.inode(SUB).size += 12;
    });
    assert_eq!(entry, ["Entry"]);
}

#[test]
fn what_is_said_of_the_whole_volume() {
    assert_eq!(changed(|b| b.dynamic.inodes = 3), ["InodeCount"]);
    assert_eq!(
        changed(|b| b.dynamic.next_inode_block = InodeBlockNo(1)),
        ["NextInodeBlock"]
    );
    let rootless = changed(|b| {
        b.inodes.remove(&ROOT_INO);
        b.dirs.remove(&ROOT_INO);
        b.dynamic.inodes -= 1;
    });
    assert!(rootless.contains(&"NoRoot"), "{rootless:?}");
}

#[test]
fn attributes_that_no_inode_has() {
    let xattr = |name: &[u8]| {
        Xattr {
            namespace: 1,
            name: name.to_vec(),
            value: Value::Bytes(vec![]),
        }
        .encode()
    };
    let wrong_key = changed(|b| {
        b.xattrs.get_mut(&ATTRS).unwrap().insert(77, xattr(b"a"));
    });
    assert_eq!(wrong_key, ["Xattr"]);
    let twice = changed(|b| {
        let key = hash_key(&[9; 16], b"user.a");
        b.xattrs
            .get_mut(&ATTRS)
            .unwrap()
            .extend([(key, xattr(b"a")), (key + 3, xattr(b"a"))]);
    });
    assert_eq!(twice, ["XattrTwice"]);
    let malformed = changed(|b| {
        b.inode(SMALL).inline_xattrs = InlineMap(vec![(1, vec![9, 9])]).encode();
    });
    assert_eq!(malformed, ["Xattr"]);
}
