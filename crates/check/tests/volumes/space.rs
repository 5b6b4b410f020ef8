//! The bitmap, the owner records, the groups and the log against what is in use.

use crate::builder::*;
use crate::{kinds, report};
use loamfs_check::Problem;
use loamfs_format::checksum::unit_crc;
use loamfs_format::delta::Delta;
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::ifile::IfileEntry;
use loamfs_format::inode::{Body, Inode, ROOT_INO, Timestamp, mode};
use loamfs_format::maps::LazyEntry;
use loamfs_format::summary::{Allocation, Record, Wait};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino, InodeBlockNo, Ssn};

/// Where the small file is.
fn small(b: &Builder) -> Extent {
    match &b.inodes[&SMALL].body {
        Body::Small(pointer) => pointer.extent(),
        _ => unreachable!(),
    }
}

/// What is found when the maps are changed after all content has its place.
fn changed(change: impl FnOnce(&mut Builder)) -> Vec<&'static str> {
    kinds(&Builder::sample().finish_with(change))
}

/// What is found when the segment behind the checkpoint says more.
fn said(records: impl FnOnce(&Builder) -> Vec<Record>) -> Vec<&'static str> {
    changed(|b| b.after = records(b))
}

fn allocation(extent: Extent, kind: BlockKind) -> Record {
    Record::Allocate(Allocation {
        extent,
        kind,
        level: 0,
        ino: SMALL,
        generation: 1,
        version: 0,
        logical: 0,
        stored: 0,
        checksum: 0,
        in_body: false,
    })
}

#[test]
fn used_but_not_marked_is_named_and_planned() {
    let b = Builder::sample();
    let file = small(&b);
    let device = b.finish_with(|b| b.clear(extent(file.start.0 + 1, 2)));
    assert_eq!(kinds(&device), ["NotMarked"]);
    assert_eq!(report(&device).plan.set, [extent(file.start.0 + 1, 2)]);
}

#[test]
fn marked_but_unused_is_named_and_planned() {
    let device = Builder::sample().finish_with(|b| {
        b.mark(extent(700, 3));
        b.mark(extent(2550, 6));
    });
    assert_eq!(kinds(&device), ["Leaked"]);
    assert_eq!(
        report(&device).plan.clear,
        [extent(700, 3), extent(2550, 6)]
    );
}

#[test]
fn leaks_are_not_judged_when_a_part_is_out_of_reach() {
    let device = Builder::sample().finish_with(|b| {
        b.mark(extent(700, 3));
        b.ifile.get_mut(&1).unwrap().pointer.checksum ^= 1;
        let block = b.ifile[&0];
        b.bytes[(block.pointer.addr.0 * FRAG) as usize] ^= 1;
    });
    let report = report(&device);
    assert!(
        report.plan.clear.is_empty() && report.plan.unnamed.is_empty(),
        "{report}"
    );
    assert_eq!(kinds(&device), ["InodeBlock"]);
}

#[test]
fn what_is_used_twice_is_named() {
    let mut b = Builder::sample();
    let body = b.inodes[&SMALL].body.clone();
    b.add(Ino(50), mode::REGULAR | 0o600, ROOT_INO, body);
    b.name(ROOT_INO, b"copy", Ino(50));
    b.count_links();
    b.dynamic.inodes += 1;
    assert_eq!(kinds(&b.finish()), ["Overlap", "OwnerRecord"]);
}

#[test]
fn what_is_held_back_must_be_marked_and_unused() {
    assert_eq!(
        changed(|b| b.held.push((extent(700, 2), Wait::Durable(Ssn(1))))),
        ["HeldNotMarked"]
    );
    let in_use = changed(|b| b.held.push((small(b), Wait::Checkpoint(Ssn(1)))));
    assert_eq!(in_use, ["HeldInUse"]);
    assert_eq!(said(|b| vec![Record::Free(small(b))]), ["HeldInUse"]);
    let again = said(|b| {
        vec![
            Record::Free(small(b)),
            allocation(small(b), BlockKind::SmallData),
        ]
    });
    assert_eq!(again, [""; 0], "an allocation ends the wait");
}

#[test]
fn the_log_and_the_superblocks_must_be_marked_and_nobody_elses() {
    assert_eq!(changed(|b| b.clear(extent(10, 2))), ["LogNotMarked"]);
    let mut b = Builder::sample();
    let Body::Small(mut pointer) = b.inodes[&SMALL].body.clone() else {
        unreachable!()
    };
    pointer.addr = FragAddr(CHECKPOINT + 2);
    b.inode(SMALL).body = Body::Small(pointer);
    assert_eq!(kinds(&b.finish()), ["Data", "Leaked", "LogInUse"]);
}

#[test]
fn owner_records_must_fit() {
    let wrong = |change: fn(&mut loamfs_format::maps::OwnerRecord)| {
        changed(|b| {
            let at = small(b).start.0;
            change(b.owners.get_mut(&at).unwrap());
        })
    };
    assert_eq!(wrong(|record| record.ino = Ino(60)), ["OwnerRecord"]);
    assert_eq!(
        wrong(|record| record.kind = BlockKind::Image),
        ["OwnerRecord"]
    );
    assert_eq!(wrong(|record| record.frags = 3), ["OwnerRecord"]);
    assert_eq!(wrong(|record| record.logical = 1), ["OwnerRecord"]);
    assert_eq!(
        wrong(|record| record.frags = 8),
        ["OwnerOverlap", "OwnerRecord"]
    );
    assert_eq!(wrong(|record| record.frags = u32::MAX)[0], "Entry");
    let homed = changed(|b| b.owners.get_mut(&(2048 + 32)).unwrap().logical = 6);
    assert_eq!(homed, ["HomeRecord"]);
    let cut = changed(|b| {
        // The first extent's record in two pieces, cut at a block.
        b.own(extent(2048, 16), BlockKind::Homed, 0, LARGE, 0);
        b.own(extent(2064, 16), BlockKind::Homed, 0, LARGE, 1);
        b.own(extent(3000, 50), BlockKind::Homed, 0, LARGE, 1);
    });
    assert_eq!(
        cut, [""; 0],
        "records may be cut, and stale ones are nobody's"
    );
}

#[test]
fn groups_count_and_hold_what_they_may() {
    assert_eq!(changed(|b| b.wrong_used = Some(4)), ["GroupUsed"]);
    assert_eq!(
        changed(|b| b.groups.get_mut(&4).unwrap().role = Role::Log),
        ["GroupRole"]
    );
    assert_eq!(
        changed(|b| b.groups.extend([(20, GroupDesc::default())])),
        ["GroupOutside"]
    );
    assert_eq!(
        changed(|b| b.groups.extend([(u64::MAX, GroupDesc::default())])),
        ["GroupOutside"],
        "the last number is none that ends a range"
    );
    assert_eq!(
        said(|_| vec![Record::Role(GroupNo(1), Role::Data)]),
        ["GroupRole"][..0]
    );
    assert_eq!(
        said(|_| vec![Record::Role(GroupNo(2), Role::Data)]),
        ["GroupRole"]
    );
    assert_eq!(
        said(|_| vec![Record::Role(GroupNo(9), Role::Data)]),
        ["GroupOutside"]
    );
    assert_eq!(changed(|b| b.mark(extent(5000, 1))), ["BitmapOutside"]);
}

#[test]
fn records_that_no_segment_has() {
    assert_eq!(
        said(|_| vec![allocation(extent(700, 2), BlockKind::SmallData)]),
        ["Leaked"]
    );
    assert_eq!(
        said(|_| vec![Record::Free(extent(4095, 2))]),
        ["RecordOutside"]
    );
    assert_eq!(
        said(|_| vec![Record::Revoke(extent(4095, 2))]),
        ["RecordOutside"]
    );
    let settled = |home, image| {
        let (home, image) = (FragAddr(home), FragAddr(image));
        vec![Record::Settled { home, image }]
    };
    assert_eq!(said(|_| settled(4095, 600)), ["RecordOutside"]);
    assert_eq!(said(|_| settled(600, 4095)), ["RecordOutside"]);
    assert_eq!(
        said(|_| vec![Record::Retire(extent(600, 2))]),
        ["FreedTwice", "MisplacedRecord"]
    );
    let inode = |size| Inode {
        size,
        ..Inode::new(Ino(4000), mode::REGULAR, 7, Timestamp::default())
    };
    let delta = Delta::between(&inode(1).encode(), &inode(2).encode());
    let unannounced = said(|_| delta.clone().map(Record::Delta).into_iter().collect());
    assert_eq!(unannounced, ["InodeBlock", "MisplacedRecord"]);
    let came = Delta::whole(&inode(1).encode());
    let unannounced = said(|_| came.clone().map(Record::Delta).into_iter().collect());
    assert_eq!(unannounced, ["InodeBlock", "MisplacedRecord"]);
    let unannounced = said(|b| {
        let entry = b.ifile[&1];
        let live = entry.live & (entry.live - 1);
        vec![Record::Ifile(InodeBlockNo(1), IfileEntry { live, ..entry })]
    });
    assert!(unannounced.contains(&"MisplacedRecord"), "{unannounced:?}");
    let uncovered = said(|_| vec![allocation(extent(AFTER, 16), BlockKind::SmallData)]);
    assert!(uncovered.contains(&"SummaryUncovered"), "{uncovered:?}");
}

/// The driver would not open it.
#[test]
fn what_is_in_use_is_not_allocated() {
    let again = |at: Extent| allocation(at, BlockKind::SmallData);
    let since = |_: &Builder| vec![again(extent(700, 2)), again(extent(701, 2))];
    assert!(said(since).contains(&"AllocatedTwice"));
    let before = |b: &Builder| vec![again(small(b))];
    assert!(said(before).contains(&"AllocatedTwice"));
    let freed = |b: &Builder| vec![Record::Free(small(b)), again(small(b))];
    assert!(!said(freed).contains(&"AllocatedTwice"));
}

/// The same.
#[test]
fn what_is_not_in_use_is_not_freed() {
    let again = |at: Extent| allocation(at, BlockKind::SmallData);
    let before = |_: &Builder| vec![Record::Free(extent(700, 2)), again(extent(700, 2))];
    assert!(said(before).contains(&"FreedTwice"));
    let since = |_: &Builder| vec![again(extent(700, 2)), Record::Free(extent(700, 2))];
    assert_eq!(said(since), [""; 0]);
    let twice = |b: &Builder| vec![Record::Free(small(b)), Record::Retire(small(b))];
    assert!(said(twice).contains(&"FreedTwice"));
    let repeated = |b: &Builder| vec![Record::Free(small(b)), Record::Free(small(b))];
    assert_eq!(said(repeated), ["HeldInUse"]);
    let of_group = |role| {
        changed(|b| {
            b.groups.get_mut(&1).unwrap().role = role;
            b.mark(extent(700, 2));
            b.after = vec![Record::Free(extent(700, 2))];
        })
    };
    assert_eq!(of_group(Role::Log), [""; 0]);
    assert_eq!(of_group(Role::Free), ["FreedTwice"]);
}

#[test]
fn images_belong_to_shown_homes() {
    let stray = |b: &mut Builder, home: u64| {
        let image = content(40, UNIT as usize);
        let at = b.place(&image, BlockKind::Image, 0, LARGE, 0, 1).addr;
        let entry = LazyEntry {
            image: at,
            crc: unit_crc(&image),
            ssn: Ssn(1),
            ino: LARGE,
            unit: 1,
        };
        b.lazy.insert(home, entry);
    };
    assert_eq!(changed(|b| stray(b, 3000)), ["LazyStray", "Leaked"]);
    assert_eq!(changed(|b| stray(b, 2048 + 4)), [""; 0]);
    assert_eq!(changed(|b| stray(b, 2048 + 8)), ["LazyOwner"]);
    assert_eq!(changed(|b| stray(b, 1 << 40))[0], "LazyEntry");
    let image = |b: &Builder| *b.lazy.first_key_value().unwrap().1;
    let at = |b: &Builder| extent(image(b).image.0, UNIT_FRAGS);
    let home = |b: &Builder| FragAddr(*b.lazy.first_key_value().unwrap().0);
    let settled = |b: &Builder| {
        vec![
            Record::Settled {
                home: home(b),
                image: image(b).image,
            },
            Record::Free(at(b)),
        ]
    };
    assert_eq!(said(settled), ["UnitData"][..0]);
    let another = |b: &Builder| {
        vec![Record::Settled {
            home: home(b),
            image: FragAddr(3000),
        }]
    };
    assert_eq!(
        said(another),
        [""; 0],
        "an image that is no longer the newest does not settle"
    );
    let revoked = |b: &Builder| vec![Record::Revoke(Extent::new(home(b), 1)), Record::Free(at(b))];
    assert_eq!(said(revoked), [""; 0]);
    let again = |b: &Builder| {
        vec![
            Record::Revoke(Extent::new(home(b), 1)),
            Record::Image(home(b), image(b)),
        ]
    };
    assert_eq!(said(again), [""; 0]);
}

#[test]
fn problems_are_capped_but_counted() {
    let device = Builder::sample().finish_with(|b| {
        for at in 0..200 {
            b.mark(extent(2600 + 2 * at, 1));
        }
    });
    let options = &mut loamfs_check::Options {
        problems_max: 3,
        ..Default::default()
    };
    let report = loamfs_check::check(&device, options);
    assert_eq!(
        (report.problems.len(), report.total()),
        (3, 200),
        "{report}"
    );
    assert_eq!(
        report.counts[&Problem::Leaked {
            extent: extent(0, 1)
        }
        .code()],
        200
    );
    assert_eq!(report.plan.clear.len(), 200);
}
