//! Damaged blocks, and inodes and files that contradict themselves.

use crate::builder::*;
use crate::{kinds, report};
use loamfs_check::{Problem, Volume};
use loamfs_device::MemoryDevice;
use loamfs_format::inode::{Body, ROOT_INO, mode};
use loamfs_format::node::TreeRoot;
use loamfs_format::summary::Unwritten;
use loamfs_format::superblock::{INCOMPATIBLE_SHORT_CHECKSUMS, INCOMPATIBLE_UNWRITTEN};
use loamfs_format::{BlockKind, FragAddr, Ino, InodeBlockNo, Ssn};

/// What is found when an inode is changed.
fn changed(ino: Ino, change: impl FnOnce(&mut loamfs_format::inode::Inode)) -> Vec<&'static str> {
    let mut b = Builder::sample();
    change(b.inode(ino));
    kinds(&b.finish())
}

/// Flips a bit of the byte at a fragment.
fn rot(device: &MemoryDevice, at: FragAddr) {
    let offset = at.0 * FRAG + 100;
    let byte = device.peek(offset, 1).unwrap()[0];
    device.poke(offset, &[byte ^ 4]).unwrap();
}

#[test]
fn rotten_blocks_are_named_with_their_place() {
    let device = Builder::sample().finish();
    let volume = Volume::open(&device).unwrap();
    let root = volume.inode(ROOT_INO).unwrap();
    let Body::DirTree(tree) = root.body else {
        panic!()
    };
    let Body::Small(small) = volume.inode(SMALL).unwrap().body else {
        panic!()
    };
    let large = volume
        .extents(&volume.inode(LARGE).unwrap())
        .next()
        .unwrap()
        .unwrap();
    let block = volume.ifile_entry(InodeBlockNo(0)).unwrap().unwrap();
    let image = volume.lazy(FragAddr(0)).next().unwrap().unwrap().1.image;
    let attrs = volume.inode(ATTRS).unwrap();
    drop(volume);
    for (at, kind) in [
        (tree.pointer.addr, "Node"),
        (small.addr, "Data"),
        (large.pointer.addr, "UnitData"),
        (block.pointer.addr, "InodeBlock"),
        (image, "ImageData"),
        (attrs.xattrs.pointer.addr, "Node"),
    ] {
        let device = device.fork();
        rot(&device, at);
        let found = kinds(&device);
        assert!(found.contains(&kind), "{kind} in {found:?}");
        let named = report(&device);
        let allowed = ["Node", "Data", "UnitData", "InodeBlock", "ImageData"];
        assert!(
            named.problems.iter().all(|p| allowed.contains(&p.name())),
            "{named}"
        );
    }
}

#[test]
fn rotten_map_nodes_are_named_and_nothing_is_concluded_from_them() {
    let device = Builder::sample().finish();
    let maps = [
        BlockKind::IfileNode,
        BlockKind::BitmapNode,
        BlockKind::OwnerNode,
        BlockKind::GroupNode,
        BlockKind::LazyNode,
    ];
    for kind in maps {
        let root = Volume::open(&device).unwrap().map(kind).root;
        let device = device.fork();
        rot(&device, root.pointer.addr);
        let report = report(&device);
        assert!(
            report.problems.iter().any(|p| p.name() == "Node"),
            "{kind:?}: {report}"
        );
        assert!(report.plan.clear.is_empty(), "{kind:?}: {report}");
        assert!(!report.counts.contains_key(&504), "{kind:?}: {report}");
        assert!(!report.is_clean());
    }
}

#[test]
fn inodes_that_cannot_be() {
    assert_eq!(changed(TINY, |inode| inode.generation = 0), ["Generation"]);
    assert_eq!(changed(TINY, |inode| inode.ssn = Ssn(9)), ["InodeSsn"]);
    assert_eq!(changed(LARGE, |inode| inode.frags += 1), ["InodeFrags"]);
    assert_eq!(changed(SMALL, |inode| inode.frags = 0), ["InodeFrags"]);
    let flags = ["InodeFlags"];
    assert_eq!(changed(TINY, |inode| inode.flags = 1), flags);
    assert_eq!(changed(TINY, |inode| inode.flags = 0x2000_0000), flags);
    assert!(changed(TINY, |inode| inode.flags = 0xf0).is_empty());
    assert!(changed(ROOT_INO, |inode| inode.flags = 0x2000_00f0).is_empty());
    let no_target = changed(LINK, |inode| inode.body = Body::Empty);
    assert_eq!(no_target, ["Inode"]);
    let typeless = changed(MANY, |inode| inode.mode = 0o030_644);
    assert!(typeless.contains(&"InodeType"), "{typeless:?}");
    let misplaced = Builder::sample().finish_with(|b| {
        let entry = b.ifile.get_mut(&0).unwrap();
        (entry.live, entry.packed) = (1 << 3, 1 << 3);
    });
    assert!(kinds(&misplaced).contains(&"InodeNumber"));
    // It came, and nothing says what it is.
    let unsaid = Builder::sample().finish_with(|b| {
        b.ifile.get_mut(&0).unwrap().live |= 1 << 3;
    });
    assert!(kinds(&unsaid).contains(&"Inode"));
    let late = Builder::sample().finish_with(|b| b.ifile.get_mut(&0).unwrap().ssn = Ssn(7));
    assert_eq!(kinds(&late), ["IfileSsn"]);
}

#[test]
fn pointers_that_cannot_be() {
    let pointed = |change: fn(&mut loamfs_format::Pointer)| {
        changed(SMALL, |inode| {
            if let Body::Small(pointer) = &mut inode.body {
                change(pointer);
            }
        })
    };
    for change in [
        (|p| p.addr = FragAddr(TOTAL - 1)) as fn(&mut loamfs_format::Pointer),
        |p| p.addr = FragAddr(u64::MAX),
        |p| p.frags = 9,
        |p| p.birth = Ssn(4),
    ] {
        let found = pointed(change);
        assert!(found.contains(&"Pointer"), "{found:?}");
        assert!(!found.contains(&"Leaked"), "{found:?}");
    }
    let homed = changed(LARGE, |inode| {
        if let Body::Extents(extents) = &mut inode.body {
            extents[1].pointer.addr.0 += 4;
        }
    });
    assert_eq!(homed, ["ChecksumOfHole", "Pointer"][1..]);
}

#[test]
fn extents_lie_in_order_within_the_file() {
    let moved = |block: u64| {
        changed(LARGE, |inode| {
            if let Body::Extents(extents) = &mut inode.body {
                extents[1].block = block;
            }
        })
    };
    assert_eq!(moved(1), ["ExtentOrder", "HomeRecord"]);
    assert_eq!(moved(u64::MAX), ["ExtentTooFar", "HomeRecord"]);
    assert_eq!(moved(1 << 50), ["ExtentTooFar", "HomeRecord"]);
    let beyond = changed(LARGE, |inode| inode.size = 5 * BLOCK);
    assert_eq!(beyond, ["ExtentBeyondSize"]);
    let pending = changed(LARGE, |inode| {
        inode.size = BLOCK;
        inode.truncating = BLOCK;
    });
    assert_eq!(
        pending, [""; 0],
        "a truncate that is under way may leave blocks behind"
    );
}

/// The next writer would free what is behind the target.
#[test]
fn a_file_ends_where_a_pending_truncate_does() {
    let mut b = Builder::sample();
    b.inode(LARGE).truncating = 0;
    b.orphans.insert(LARGE);
    let device = b.finish();
    let (ino, size, target) = (LARGE, 6 * BLOCK - 100, 0);
    let behind = Problem::SizeBehindTarget { ino, size, target };
    assert_eq!(report(&device).problems, [behind]);
    assert_eq!(kinds(&device), ["SizeBehindTarget"]);
}

/// Space that was never written: units without checksums, behind the end of the file too, as long as that is announced and
/// counted.
#[test]
fn what_was_never_written_is_announced_and_counted() {
    let unwritten = |change: fn(&mut Builder)| {
        let mut b = Builder::sample();
        let mut count = Unwritten::default();
        if let Body::Extents(extents) = &mut b.inode(LARGE).body {
            for extent in extents {
                extent.pointer.unwritten = true;
                count.extents += 1;
                count.frags += u64::from(extent.pointer.frags);
            }
        }
        b.inode(LARGE).size = 5 * BLOCK;
        let crcs = b.crcs.get_mut(&LARGE).unwrap();
        crcs.retain(|unit, _| !(4..7).contains(unit));
        b.dynamic.unwritten = count;
        b.sb.incompatible = INCOMPATIBLE_UNWRITTEN;
        change(&mut b);
        kinds(&b.finish())
    };
    assert_eq!(unwritten(|_| {}), [""; 0]);
    assert_eq!(
        unwritten(|b| b.dynamic.unwritten.extents += 1),
        ["UnwrittenCount"]
    );
    assert_eq!(
        unwritten(|b| b.dynamic.unwritten.frags = 0),
        ["UnwrittenCount"]
    );
    let unannounced = unwritten(|b| b.sb.incompatible = 0);
    // The third unit has an image.
    let imaged = unwritten(|b| {
        b.crcs.get_mut(&LARGE).unwrap().remove(&3);
    });
    assert_eq!(imaged, ["LazyUnwritten"]);
    assert!(
        unannounced
            .iter()
            .all(|kind| *kind == "UnwrittenUnannounced")
            && !unannounced.is_empty(),
        "{unannounced:?}"
    );
}

#[test]
fn every_unit_of_data_has_a_checksum_and_no_other() {
    let mut b = Builder::sample();
    b.crcs
        .get_mut(&LARGE)
        .unwrap()
        .retain(|unit, _| !(4..7).contains(unit));
    let device = b.finish();
    assert_eq!(kinds(&device), ["ChecksumMissing"]);
    let missing = Problem::ChecksumMissing {
        ino: LARGE,
        unit: 4,
        count: 3,
    };
    assert_eq!(report(&device).problems, [missing]);

    let mut b = Builder::sample();
    b.crcs.get_mut(&LARGE).unwrap().insert(10, 77);
    assert_eq!(kinds(&b.finish()), ["ChecksumOfHole"]);

    let mut b = Builder::sample();
    b.crcs.get_mut(&LARGE).unwrap().remove(&3);
    assert_eq!(
        kinds(&b.finish()),
        [""; 0],
        "the image's own checksum counts"
    );
}

#[test]
fn checksums_in_an_inode_count_like_those_of_a_tree() {
    let short = |incompatible: u64, change: fn(&mut Builder)| {
        let mut b = Builder::sample();
        b.short = true;
        b.sb.incompatible = incompatible;
        change(&mut b);
        kinds(&b.finish())
    };
    let announced = |change| short(INCOMPATIBLE_SHORT_CHECKSUMS, change);
    assert_eq!(announced(|_| {}), [""; 0]);
    assert_eq!(
        announced(|b| drop(b.crcs.remove(&LARGE))),
        ["ChecksumMissing"]
    );
    let wrong = announced(|b| *b.crcs.get_mut(&LARGE).unwrap().get_mut(&4).unwrap() ^= 1);
    assert_eq!(wrong, ["UnitData"]);
    let hole = announced(|b| b.crcs.get_mut(&LARGE).unwrap().extend([(10, 77)]));
    assert_eq!(hole, ["ChecksumOfHole"]);
    let unannounced = short(0, |_| {});
    assert!(
        !unannounced.is_empty()
            && unannounced
                .iter()
                .all(|kind| *kind == "ChecksumsUnannounced"),
        "{unannounced:?}"
    );
}

#[test]
fn inner_nodes_of_the_ifile_say_what_is_below_them() {
    let wide = |wrong: bool| {
        let mut b = Builder::sample();
        for block in 2..150 {
            let ino = Ino(block * 32 + 5);
            b.add(ino, mode::FIFO | 0o600, ROOT_INO, Body::Empty);
            b.name(ROOT_INO, format!("fifo{block}").as_bytes(), ino);
        }
        b.count_links();
        b.dynamic.inodes = b.inodes.len() as u64;
        b.dynamic.next_inode_block = InodeBlockNo(150);
        b.wrong_aggregate = wrong;
        kinds(&b.finish())
    };
    assert_eq!(wide(false), [""; 0]);
    assert_eq!(wide(true), ["Aggregate"]);
}

#[test]
fn a_tree_that_leads_back_to_itself_ends() {
    let mut b = Builder::sample();
    // An extent tree and a checksum tree that are each other's.
    let crcs = b.crcs.clone();
    b.crcs.remove(&TREE);
    b.extents.remove(&TREE);
    let large = b.tree(
        BlockKind::ExtentNode,
        TREE,
        1000 + 37,
        &Entries::from([(0, vec![1])]),
    );
    b.inode(TREE).checksums = large;
    b.inode(TREE).body = Body::ExtentTree(TreeRoot { level: 3, ..large });
    b.crcs.insert(LARGE, crcs[&LARGE].clone());
    assert!(kinds(&b.finish()).contains(&"Node"));
}
