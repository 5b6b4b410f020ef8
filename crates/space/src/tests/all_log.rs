//! Where all is in the log, blocks of large files too.

use super::{extent, geometry, large_groups, owner, run, small, volume};
use crate::{FoundSpace, Space};
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::inode::Tier;
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ssn};

/// A space in whose log all is.
fn all_in_log(mut space: Space) -> Space {
    space.areas().keep_all_in_log();
    space
}

/// Each of its groups has 64 fragments, and a block 8.
fn all_log() -> Space {
    all_in_log(volume())
}

#[test]
fn where_all_is_in_the_log_homes_fill_one_group_of_it_and_segments_another() {
    let mut space = all_log();
    let segment = run(space.placement().find_log(12, 4, FragAddr(640)));
    space.allocate(segment, small()).unwrap();
    let home = |space: &mut Space, blocks: u64| {
        let found = run(space
            .placement()
            .find_data(blocks, FragAddr(0), GroupNo(10), Tier::Auto));
        space.allocate(found, owner(BlockKind::Homed, 0)).unwrap();
        found
    };
    let first = home(&mut space, 3);
    let group = |of: Extent| geometry().group_of(of.start);
    assert_ne!(group(first), group(segment));
    assert_eq!(space.role(group(first)), Role::Log);
    assert_eq!(first.frags, 24);
    // The next one goes on there, and is cut where the group ends.
    assert_eq!(space.home_room(), 40);
    let second = home(&mut space, 100);
    assert_eq!(second, extent(first.end().0, 40));
    assert_ne!(group(home(&mut space, 1)), group(first));
    // A segment takes what is left of its group, however short, and no run of another.
    let on = run(space.placement().find_log(64, 4, segment.end()));
    assert_eq!((on.start, group(on)), (segment.end(), group(segment)));
    assert!(on.frags < 64);
    space.check().unwrap();
}

#[test]
fn where_all_is_in_the_log_segments_take_holes_last_and_homes_never() {
    let mut space = all_log();
    while let FoundSpace::Run(run) =
        space
            .placement()
            .find_data(8, FragAddr(0), GroupNo(10), Tier::Auto)
    {
        space
            .allocate(run, owner(BlockKind::Homed, run.start.0 / 8))
            .unwrap();
    }
    assert_eq!(space.free_groups(), 0);
    // What is moved out of one group serves nobody as long as the group is not empty.
    space.free(extent(704, 32), Ssn(1)).unwrap();
    space.release(Ssn(1), Ssn(0), |_| false);
    assert_eq!(
        space
            .placement()
            .find_data(1, FragAddr(704), GroupNo(10), Tier::Auto),
        FoundSpace::Full
    );
    let hole = run(space.placement().find_log(16, 4, FragAddr(640)));
    assert_eq!(hole, extent(704, 16));
    // One that is empty has no role any more, and goes before holes.
    space.free(extent(768, 64), Ssn(2)).unwrap();
    space.release(Ssn(2), Ssn(0), |_| false);
    assert_eq!(space.give_back_empty(None), [GroupNo(12)]);
    let clean = run(space.placement().find_log(16, 4, FragAddr(640)));
    assert_eq!(clean, extent(768, 16));
    space.check().unwrap();
}

/// Each mount began another group, since nothing was known of that in which the log stood.
#[test]
fn a_log_whose_bitmap_is_not_in_memory_is_read_before_another_group_is_begun() {
    let desc = |used| GroupDesc {
        role: Role::Log,
        used,
        directories: 0,
    };
    let open = |used| {
        let descs = vec![(GroupNo(10), desc(used))];
        all_in_log(Space::open(geometry(), Vec::new(), descs))
    };
    let mut space = open(40);
    assert_eq!(
        space.placement().find_log(64, 4, FragAddr(680)),
        FoundSpace::Load(vec![GroupNo(10)])
    );
    // Nothing is read where nothing can go on.
    for (used, near) in [(64, 680), (40, 704)] {
        let found = run(open(used).placement().find_log(64, 4, FragAddr(near)));
        assert_eq!(found.frags, 64);
    }
}

/// Sixteen groups of 8 MiB on a shingled disk. The log has eight fragments left of the second one.
fn shingled() -> Space {
    let mut space = all_in_log(large_groups());
    run(space.placement().find_log(8192, 4, FragAddr(8192)));
    space.allocate(extent(8192, 8184), small()).unwrap();
    space
}

/// What was left at the end of a group was a hole, and its band was written anew.
#[test]
fn on_a_shingled_disk_a_segment_goes_on_into_a_group_that_holds_nothing() {
    let mut space = shingled();
    // What is long enough is taken to the end of its group.
    let on =
        |space: &mut Space, least| run(space.placement().find_log(400, least, FragAddr(16_376)));
    assert_eq!(on(&mut space.clone(), 8), extent(16_376, 8));
    assert_eq!(on(&mut space, 16), extent(16_376, 400));
    assert_eq!(space.role(GroupNo(2)), Role::Log);
    // Where something is in that, what is free behind it is a hole.
    space.allocate(extent(16_392, 4), small()).unwrap();
    assert_ne!(on(&mut space, 16).start, FragAddr(16_376));
    space.check().unwrap();
}

#[test]
fn on_a_shingled_disk_segments_and_homes_do_not_go_on_into_groups_of_each_other() {
    let home = |space: &mut Space, blocks| {
        let mut placement = space.placement();
        run(placement.find_data(blocks, FragAddr(0), GroupNo(2), Tier::Auto))
    };
    let mut space = shingled();
    // That of the homes is the next one, and holds nothing.
    let homes = home(&mut space, 1022);
    assert_eq!(homes, extent(16_384, 8176));
    assert_eq!(space.bitmaps().log_run(FragAddr(16_376), 400), 8);
    // Nor does that of the log behind it.
    space.allocate(homes, owner(BlockKind::Homed, 0)).unwrap();
    let log = run(space.placement().find_log(400, 4, FragAddr(24_576)));
    assert_eq!(log, extent(24_576, 400));
    assert_eq!(space.home_room(), 16);
    assert_eq!(home(&mut space, 8), extent(24_560, 16));
}

#[test]
fn on_a_shingled_disk_a_segment_does_not_go_on_into_a_group_that_is_emptied() {
    let mut space = shingled();
    let on = |space: &Space| space.bitmaps().log_run(FragAddr(16_376), 400);
    run(space.placement().find_log(400, 400, FragAddr(16_376)));
    assert_eq!(on(&space), 400);
    space.placement().close_groups(&[GroupNo(2)]);
    assert_eq!(on(&space), 8);
}
