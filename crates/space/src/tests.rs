//! What the space promises, one by one.

mod all_log;
mod sections;

use crate::{ChunkValue, CleaningPolicy, FoundSpace, Owner, Space, SpaceError, Wait};
use loamfs_format::group::{CHUNK_BYTES, GroupDesc, Role};
use loamfs_format::inode::Tier;
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, GroupNo, Ino, Ssn};

/// 64 groups of 64 fragments; a unit is 4 fragments, a block 8.
pub(crate) fn geometry() -> Geometry {
    Geometry {
        fragment_size: 1024,
        block_size: 8192,
        small_size: 8192,
        group_frags: 64,
        total_frags: 4096,
        segment_max: 1 << 16,
        checkpoint_segments_max: 64,
        checkpoint_summary_max: 1 << 20,
        checkpoint_nodes_max: 64,
    }
}

fn volume() -> Space {
    Space::new(geometry(), vec![extent(0, 68), extent(128, 4)])
}

fn extent(start: u64, frags: u64) -> Extent {
    Extent::new(FragAddr(start), frags)
}

fn owner(kind: BlockKind, logical: u64) -> Owner {
    Owner {
        kind,
        level: 0,
        ino: Ino(7),
        logical,
    }
}

fn small() -> Owner {
    owner(BlockKind::SmallData, 0)
}

fn run(found: FoundSpace) -> Extent {
    match found {
        FoundSpace::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_log_begins_near_where_it_is_asked_to_and_its_next_groups_adjoin() {
    let mut space = volume();
    let first = run(space.placement().find_log(64, 4, FragAddr(32 * 64)));
    assert_eq!(first, extent(32 * 64, 64));
    assert_eq!(space.take_role_changes(), [(GroupNo(32), Role::Log)]);
    space.allocate(first, small()).unwrap();
    let second = run(space.placement().find_log(64, 4, first.end()));
    assert_eq!(second, extent(33 * 64, 64));
    space.allocate(second, small()).unwrap();
    // Data takes the group behind; the log goes on before.
    assert_eq!(
        run(space
            .placement()
            .find_data(8, FragAddr(34 * 64), GroupNo(34), Tier::Auto))
        .start
        .0,
        34 * 64
    );
    let third = run(space.placement().find_log(64, 4, second.end()));
    assert_eq!(third, extent(31 * 64, 64));
}

#[test]
fn a_segment_longer_than_a_group_takes_adjacent_groups() {
    let mut space = volume();
    assert_eq!(
        run(space.placement().find_log(200, 4, FragAddr(640))),
        extent(640, 200)
    );
    assert_eq!(space.take_role_changes().len(), 4);
}

#[test]
fn the_log_goes_on_at_its_head_and_then_plugs_the_next_hole_that_is_large_enough() {
    let mut space = volume();
    run(space.placement().find_log(64, 4, FragAddr(640)));
    space.allocate(extent(640, 20), small()).unwrap();
    space.allocate(extent(668, 4), small()).unwrap();
    space.allocate(extent(684, 1), small()).unwrap();
    // Free units: 660..668, 672..684, 688..704.
    assert_eq!(
        run(space.placement().find_log(8, 4, FragAddr(660))),
        extent(660, 8)
    );
    assert_eq!(
        run(space.placement().find_log(12, 4, FragAddr(660))),
        extent(672, 12)
    );
    assert_eq!(
        run(space.placement().find_log(12, 4, FragAddr(685))),
        extent(688, 12)
    );
    assert_eq!(space.bitmaps().log_run(FragAddr(684), 64), 0);
    assert_eq!(space.bitmaps().log_run(FragAddr(689), 64), 0);
}

/// Sixteen groups of 8 MiB.
fn large_groups() -> Space {
    let geometry = Geometry {
        group_frags: 8192,
        total_frags: 16 * 8192,
        ..geometry()
    };
    let mut space = Space::new(geometry, vec![extent(0, 8)]);
    space.areas().spare_bands();
    space
}

/// What was left at a group's end was a hole, and the log began anew in the next group: a seek, and on a shingled disk a band.
#[test]
fn a_new_group_of_the_log_continues_the_run() {
    let mut space = large_groups();
    run(space.placement().find_log(8192, 4, FragAddr(8192)));
    space.allocate(extent(8192, 8000), small()).unwrap();
    assert_eq!(
        run(space.placement().find_log(400, 4, FragAddr(16_192))),
        extent(16_192, 400)
    );
    assert_eq!(space.role(GroupNo(2)), Role::Log);
    // Where the next group is taken it goes on elsewhere.
    run(space
        .placement()
        .find_data(8, FragAddr(0), GroupNo(3), Tier::Auto));
    space.allocate(extent(16_192, 8192), small()).unwrap();
    assert_eq!(
        run(space.placement().find_log(400, 4, FragAddr(24_384))).start,
        FragAddr(8)
    );
    space.check().unwrap();
}

/// The last few blocks of a segment went to any hole that was long enough for them, and its successor came back.
#[test]
fn while_half_of_the_groups_are_free_the_log_goes_on_rather_than_into_a_small_hole() {
    let mut space = large_groups();
    run(space.placement().find_log(8192, 4, FragAddr(8192)));
    space.allocate(extent(8192, 20), small()).unwrap();
    space.allocate(extent(8216, 8168), small()).unwrap();
    let rest = |space: &mut Space, near| run(space.placement().find_log(4, 4, FragAddr(near)));
    assert_eq!(rest(&mut space, 16_384), extent(16_384, 4));
    space.allocate(extent(16_384, 8192), small()).unwrap();
    for group in 5..11 {
        let found = space
            .placement()
            .find_data(8, FragAddr(0), GroupNo(group), Tier::Auto);
        let owner = owner(BlockKind::Homed, group.into());
        space
            .allocate(extent(run(found).start.0, 8192), owner)
            .unwrap();
    }
    assert_eq!(rest(&mut space, 24_576), extent(8212, 4));
    space.check().unwrap();
}

/// The longest holes, one after the other, are all over the volume: long ways, and on a shingled disk many bands.
#[test]
fn holes_are_filled_group_by_group() {
    let mut space = volume();
    while let FoundSpace::Run(found) =
        space
            .placement()
            .find_data(8, FragAddr(0), GroupNo(10), Tier::Auto)
    {
        let owner = owner(BlockKind::Homed, found.start.0);
        space.allocate(found, owner).unwrap();
    }
    let long = extent(20 * 64, 16);
    let emptiest = [8, 24, 56].map(|at| extent(30 * 64 + at, 8));
    for hole in emptiest.into_iter().chain([long]) {
        space.free(hole, Ssn(1)).unwrap();
    }
    space.release(Ssn(1), Ssn(0), |_| false);
    for hole in emptiest {
        let found = run(space
            .placement()
            .find_data(1, FragAddr(0), GroupNo(10), Tier::Auto));
        assert_eq!(found, hole);
        space.allocate(found, owner(BlockKind::Homed, 1)).unwrap();
    }
    // What is left goes as well.
    let mut left = 0;
    while let FoundSpace::Run(found) =
        space
            .placement()
            .find_data(1, FragAddr(0), GroupNo(10), Tier::Auto)
    {
        space.allocate(found, owner(BlockKind::Homed, 2)).unwrap();
        left += found.frags;
    }
    assert_eq!(left, 16);
    space.check().unwrap();
}

#[test]
fn the_largest_hole_serves_when_nothing_else_is_left() {
    let mut space = volume();
    while let FoundSpace::Run(run) = space.placement().find_log(64, 4, FragAddr(640)) {
        space.allocate(run, small()).unwrap();
    }
    space.free(extent(704, 8), Ssn(2)).unwrap();
    space.free(extent(960, 13), Ssn(2)).unwrap();
    assert_eq!(
        space.placement().find_log(64, 4, FragAddr(640)),
        FoundSpace::Full
    );
    assert_eq!(
        space.release(Ssn(2), Ssn(0), |_| false),
        [extent(704, 8), extent(960, 13)]
    );
    assert_eq!(
        run(space.placement().find_log(64, 4, FragAddr(640))),
        extent(960, 12)
    );
    assert_eq!(
        space.placement().find_log(64, 16, FragAddr(640)),
        FoundSpace::Full
    );
}

#[test]
fn an_extent_reaches_over_groups_but_leaves_the_last_free_ones_to_the_log() {
    let mut space = volume();
    assert_eq!(
        run(space
            .placement()
            .find_data(20, FragAddr(0), GroupNo(10), Tier::Auto)),
        extent(640, 160)
    );
    assert_eq!(space.role(GroupNo(12)), Role::Data);
    space.allocate_unshown(extent(640, 160)).unwrap();
    let free = space.free_groups();
    space.placement().keep_for_log(free);
    assert_eq!(
        run(space
            .placement()
            .find_data(20, FragAddr(800), GroupNo(10), Tier::Auto)),
        extent(800, 32)
    );
    space
        .allocate(extent(800, 32), owner(BlockKind::Homed, 20))
        .unwrap();
    assert_eq!(
        space
            .placement()
            .find_data(1, FragAddr(832), GroupNo(10), Tier::Auto),
        FoundSpace::Full
    );
}

/// Small files that filled the holes which others had left were each a seek, though half of the volume was free.
#[test]
fn small_holes_are_used_once_half_of_the_groups_are_taken_in_the_order_of_addresses() {
    let geometry = Geometry {
        group_frags: 1024,
        total_frags: 64 * 1024,
        ..geometry()
    };
    let mut space = Space::new(geometry, vec![extent(0, 8)]);
    let take = |space: &mut Space, group: u32| {
        let whole = extent(u64::from(group) * 1024, 1024);
        let found = run(space
            .placement()
            .find_data(128, FragAddr(0), GroupNo(group), Tier::Auto));
        assert_eq!(found, whole);
        space
            .allocate(whole, owner(BlockKind::Homed, group.into()))
            .unwrap();
    };
    take(&mut space, 10);
    take(&mut space, 11);
    // Holes of two and of four blocks, and one of an eighth of the group.
    space.free(extent(10 * 1024 + 64, 16), Ssn(1)).unwrap();
    space.free(extent(11 * 1024 + 64, 32), Ssn(1)).unwrap();
    space.free(extent(10 * 1024 + 512, 128), Ssn(1)).unwrap();
    space.release(Ssn(1), Ssn(0), |_| false);
    let found = |space: &mut Space| {
        run(space
            .placement()
            .find_data(2, FragAddr(0), GroupNo(10), Tier::Auto))
    };
    assert_eq!(found(&mut space), extent(10 * 1024 + 512, 16));
    // One that was begun is filled, though what is left of it would not be begun.
    space
        .allocate(extent(10 * 1024 + 512, 16), owner(BlockKind::Homed, 1))
        .unwrap();
    assert_eq!(found(&mut space), extent(10 * 1024 + 528, 16));
    for group in 12..43 {
        take(&mut space, group);
    }
    // From then on the first one of the emptiest group goes first, and those of a group are filled from wherever.
    let free = space.free_groups();
    space.placement().keep_for_log(free);
    let mut fill = |blocks: u64, anchor: u32| {
        let found = space
            .placement()
            .find_data(blocks, FragAddr(0), GroupNo(anchor), Tier::Auto);
        let found = run(found);
        space.allocate(found, owner(BlockKind::Homed, 2)).unwrap();
        found
    };
    assert_eq!(fill(2, 30), extent(10 * 1024 + 64, 16));
    assert_eq!(fill(12, 20), extent(10 * 1024 + 528, 96));
    // What is left there holds no half of the next, which goes to another group.
    assert_eq!(fill(4, 20), extent(11 * 1024 + 64, 32));
    assert_eq!(fill(2, 20), extent(10 * 1024 + 624, 16));
}

/// Segments took one free group after the other, while the log lay thinly in those that it had.
#[test]
fn the_log_goes_back_to_long_holes_once_half_of_the_groups_are_taken() {
    let mut space = volume();
    let first = run(space.placement().find_log(64, 4, FragAddr(32 * 64)));
    space.allocate(first, small()).unwrap();
    // A hole that is worth a seek, an eighth of a group, and a shorter one.
    let (hole, short) = (first.start.0 + 20, first.start.0 + 60);
    space.free(extent(hole, 8), Ssn(1)).unwrap();
    space.free(extent(short, 4), Ssn(1)).unwrap();
    space.release(Ssn(1), Ssn(0), |_| false);
    let fill = |space: &mut Space| {
        let found = run(space.placement().find_log(64, 4, first.end()));
        space.allocate(found, small()).unwrap();
        found
    };
    assert_eq!(fill(&mut space), extent(first.end().0, 64));
    let data = run(space
        .placement()
        .find_data(36 * 8, FragAddr(0), GroupNo(4), Tier::Auto));
    assert!(data.frags >= 28 * 64, "{data:?}");
    space.allocate(data, owner(BlockKind::Homed, 0)).unwrap();
    while space.free_groups() > 32 {
        fill(&mut space);
    }
    assert_eq!(fill(&mut space), extent(hole, 8));
    let next = fill(&mut space);
    assert_eq!(next.frags, 64, "a free group: {next:?}");
}

#[test]
fn data_groups_take_whole_blocks_and_never_those_that_a_superblock_cuts() {
    let mut space = volume();
    // Group 1 is reserved up to 68, in the middle of a block.
    assert_eq!(
        run(space
            .placement()
            .find_data(20, FragAddr(0), GroupNo(1), Tier::Auto))
        .start,
        FragAddr(72)
    );
    let odd = extent(72, 4);
    assert_eq!(
        space.allocate(odd, small()),
        Err(SpaceError::Misaligned { extent: odd })
    );
    assert!(matches!(
        space.allocate(extent(64, 8), small()),
        Err(SpaceError::InUse { .. })
    ));
    assert!(matches!(
        space.free(extent(64, 8), Ssn(1)),
        Err(SpaceError::NotInUse { .. })
    ));
    assert!(matches!(
        space.free(extent(4090, 8), Ssn(1)),
        Err(SpaceError::Range { .. })
    ));
}

#[test]
fn unshown_homes_are_not_in_a_checkpoint() {
    let mut space = volume();
    let home = run(space
        .placement()
        .find_data(2, FragAddr(0), GroupNo(10), Tier::Auto));
    space.checkpoint_done();
    space.allocate_unshown(home).unwrap();
    assert_eq!(space.checkpoint().dirty_chunks().count(), 0);
    assert_eq!(space.checkpoint().chunk_value(1), Ok(ChunkValue::Clear));
    assert_eq!(space.owners().iter().count(), 0);
    space
        .show(extent(640, 8), owner(BlockKind::Homed, 0))
        .unwrap();
    assert_eq!(space.checkpoint().dirty_chunks().collect::<Vec<_>>(), [1]);
    let Ok(ChunkValue::Mixed(bytes)) = space.checkpoint().chunk_value(1) else {
        panic!()
    };
    assert_eq!(bytes.iter().map(|b| b.count_ones()).sum::<u32>(), 8);
    assert_eq!(bytes[128 / 8], 0xff);
    let desc = GroupDesc {
        role: Role::Data,
        used: 8,
        directories: 0,
    };
    assert_eq!(
        space.checkpoint().dirty_groups(),
        [(GroupNo(10), Some(desc))]
    );
    assert_eq!(space.groups().get(GroupNo(10)).unwrap().desc().used, 16);
    space.abandon(extent(648, 8)).unwrap();
    assert_eq!(space.groups().get(GroupNo(10)).unwrap().desc().used, 8);
    assert!(
        space
            .show(extent(648, 8), owner(BlockKind::Homed, 1))
            .is_err()
    );
}

#[test]
fn replay_counts_a_held_range_that_is_allocated_again_once() {
    let desc = GroupDesc {
        role: Role::Log,
        used: 10,
        directories: 2,
    };
    let mut space = Space::open(geometry(), Vec::new(), vec![(GroupNo(5), desc)]);
    space
        .replay()
        .free(extent(320, 8), Wait::Durable(Ssn(3)))
        .unwrap();
    space.replay().allocate(extent(324, 8), small()).unwrap();
    assert_eq!(
        space.held().iter().collect::<Vec<_>>(),
        [(extent(320, 4), Wait::Durable(Ssn(3)))]
    );
    assert_eq!(
        (
            space.groups().get(GroupNo(5)).unwrap().desc().used,
            space.usage().in_use()
        ),
        (14, 10)
    );
    assert_eq!(space.groups_to_load_for_checkpoint(), Ok(vec![GroupNo(5)]));
    assert_eq!(space.release(Ssn(3), Ssn(0), |_| false), [extent(320, 4)]);
    // On disk are 320..328 and 352..354; a bitmap that says otherwise is refused.
    let chunk = |at: usize, bits: u8| {
        let mut bytes = [0u8; CHUNK_BYTES];
        bytes[320 / 8] = 0xff;
        bytes[352 / 8] = 0b11;
        bytes[at / 8] |= bits;
        [(0, Some(bytes))]
    };
    let refused = space.load(GroupNo(5), chunk(360, 1));
    assert!(matches!(
        refused,
        Err(SpaceError::Usage {
            descriptor: 10,
            bitmap: 11,
            ..
        })
    ));
    let refused = space.load(GroupNo(5), chunk(328, 1));
    assert!(matches!(refused, Err(SpaceError::InUse { .. })));
    assert!(!space.bitmaps().is_loaded(GroupNo(5)));
    space.load(GroupNo(5), chunk(352, 0)).unwrap();
    let set: Vec<u64> = (320..384)
        .filter(|&at| space.bitmaps().is_set(FragAddr(at)).unwrap())
        .collect();
    assert_eq!(set, [324, 325, 326, 327, 328, 329, 330, 331, 352, 353]);
}

#[test]
fn nothing_is_held_back_in_a_free_group() {
    let desc = GroupDesc {
        role: Role::Log,
        used: 10,
        directories: 0,
    };
    let mut space = Space::open(geometry(), Vec::new(), vec![(GroupNo(5), desc)]);
    let held = (extent(320, 10), Wait::Checkpoint(Ssn(3)));
    space.replay().free(held.0, held.1).unwrap();
    space.replay().role(GroupNo(5), Role::Free).unwrap();
    // Its bitmap is not in memory: nothing else says that this cannot be.
    assert!(matches!(
        space.replay().free(held.0, held.1),
        Err(SpaceError::NotInUse { .. })
    ));
}

#[test]
fn nothing_is_held_back_in_a_group_that_was_free_and_empty() {
    let mut space = Space::open(geometry(), Vec::new(), Vec::new());
    space.replay().role(GroupNo(5), Role::Log).unwrap();
    let held = |space: &mut Space| {
        let wait = Wait::Durable(Ssn(1));
        space.replay().free(extent(320, 10), wait)
    };
    let refused = Err(SpaceError::NotInUse {
        extent: extent(320, 10),
    });
    assert_eq!(held(&mut space), refused);
    space.replay().allocate(extent(330, 8), small()).unwrap();
    assert_eq!(held(&mut space), refused, "something else is there now");
}

#[test]
fn a_group_that_changed_its_role_held_nothing_back_any_more() {
    let desc = GroupDesc {
        role: Role::Log,
        used: 10,
        directories: 0,
    };
    let mut space = Space::open(geometry(), Vec::new(), vec![(GroupNo(5), desc)]);
    space
        .replay()
        .free(extent(320, 10), Wait::Checkpoint(Ssn(3)))
        .unwrap();
    space.replay().role(GroupNo(5), Role::Free).unwrap();
    space.replay().role(GroupNo(5), Role::Data).unwrap();
    space
        .replay()
        .allocate(extent(320, 8), owner(BlockKind::Homed, 0))
        .unwrap();
    assert_eq!(
        (
            space.held().frags(),
            space.groups().get(GroupNo(5)).unwrap().desc().used
        ),
        (0, 8)
    );
    let mut bytes = [0u8; CHUNK_BYTES];
    bytes[40] = 0xff;
    bytes[41] = 0x03;
    space.load(GroupNo(5), [(0, Some(bytes))]).unwrap();
    assert!(
        space.bitmaps().is_set(FragAddr(320)).unwrap()
            && !space.bitmaps().is_set(FragAddr(328)).unwrap()
    );
    assert!(space.replay().role(GroupNo(99), Role::Data).is_err());
}

#[test]
fn owner_records_are_cut_by_later_ones_and_survive_frees() {
    let mut space = volume();
    let home = run(space
        .placement()
        .find_data(4, FragAddr(0), GroupNo(10), Tier::Auto));
    space.allocate(home, owner(BlockKind::Homed, 100)).unwrap();
    space.free(extent(648, 8), Ssn(1)).unwrap();
    space.release(Ssn(1), Ssn(0), |_| false);
    assert_eq!(space.owners().iter().count(), 1);
    space
        .allocate(extent(648, 8), owner(BlockKind::Homed, 0))
        .unwrap();
    let records: Vec<_> = space.owners().iter().map(|(e, o)| (e, o.logical)).collect();
    assert_eq!(
        records,
        [
            (extent(640, 8), 100),
            (extent(648, 8), 0),
            (extent(656, 16), 102)
        ]
    );
    assert_eq!(space.owners().overlapping(extent(650, 10)).count(), 2);
    space.checkpoint_done();
    assert_eq!(space.owners().iter().count(), 0);
}

#[test]
fn empty_groups_are_given_back_but_for_the_last_log_group_and_a_protected_one() {
    let mut space = volume();
    let first = run(space.placement().find_log(192, 4, FragAddr(640)));
    space.allocate(extent(640, 4), small()).unwrap();
    assert_eq!(first.frags, 192);
    assert_eq!(space.give_back_empty(Some(GroupNo(11))), [GroupNo(12)]);
    space.free(extent(640, 4), Ssn(1)).unwrap();
    assert_eq!(space.give_back_empty(Some(GroupNo(11))), []);
    space.release(Ssn(1), Ssn(0), |_| false);
    assert_eq!(space.give_back_empty(None), [GroupNo(10)]);
    assert_eq!(space.give_back_empty(None), []);
    let changes = space.take_role_changes();
    assert_eq!(
        changes,
        [
            (GroupNo(10), Role::Free),
            (GroupNo(11), Role::Log),
            (GroupNo(12), Role::Free)
        ]
    );
    // Its bits are clear on disk after the next checkpoint.
    assert_eq!(space.checkpoint().chunk_value(1), Ok(ChunkValue::Clear));
}

#[test]
fn directories_stay_with_their_parent_while_there_is_room_and_then_move_on() {
    let mut space = volume();
    // A directory may take 16 of a group's 64 fragments, and is promised a block of 8 while none took more.
    let mut anchor = || {
        let group = space.placement().choose_anchor(GroupNo(20), 4096, 4);
        space.anchored(group, 1);
        group.0
    };
    let groups: Vec<u32> = (0..8).map(|_| anchor()).collect();
    assert_eq!(groups, [&[20; 7][..], &[21]].concat());
    assert_eq!(
        space.groups().get(GroupNo(20)).unwrap().desc().directories,
        7
    );
    space.anchored(GroupNo(20), -4);
    assert_eq!(
        space.placement().choose_anchor(GroupNo(20), 4096, 4),
        GroupNo(20)
    );
}

#[test]
fn scattered_holes_are_candidates_and_large_ones_are_not() {
    let mut space = volume();
    run(space.placement().find_log(512, 4, FragAddr(640)));
    for unit in (640..704).step_by(8) {
        space.allocate(extent(unit, 4), small()).unwrap();
    }
    space.allocate(extent(704, 4), small()).unwrap();
    let found = space.cleaning().compact_candidates(16);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].extent, found[0].live, found[0].scattered),
        (extent(640, 64), 32, 32)
    );
    let cheapest = |hole_max| {
        let found =
            space
                .cleaning()
                .cheapest_groups(Role::Log, CleaningPolicy::Greedy, hole_max, 16, &[]);
        found
            .iter()
            .map(|c| (c.group, c.live, c.won, c.room))
            .collect::<Vec<_>>()
    };
    let all = [(GroupNo(11), 4, 60, 65), (GroupNo(10), 32, 32, 40)];
    assert_eq!(cheapest(u64::MAX), all);
    // The hole that the eleventh group is but for its beginning serves as it is.
    assert_eq!(cheapest(16), all[1..]);
}

#[test]
fn a_group_is_not_emptied_of_what_no_move_frees() {
    let mut space = volume();
    run(space.placement().find_log(512, 4, FragAddr(640)));
    for unit in [640, 648, 704] {
        space.allocate(extent(unit, 4), small()).unwrap();
    }
    let cheapest = |space: &Space, fixed: &[Extent]| {
        let found = space.cleaning().cheapest_groups(
            Role::Log,
            CleaningPolicy::Greedy,
            u64::MAX,
            16,
            fixed,
        );
        found.iter().map(|c| (c.group, c.live)).collect::<Vec<_>>()
    };
    let (ten, eleven) = (GroupNo(10), GroupNo(11));
    assert_eq!(cheapest(&space, &[]), [(eleven, 4), (ten, 8)]);
    assert_eq!(cheapest(&space, &[extent(704, 4)]), [(ten, 8)]);
    space.free(extent(640, 4), Ssn(1)).unwrap();
    space.free(extent(704, 4), Ssn(1)).unwrap();
    assert_eq!(cheapest(&space, &[]), [(ten, 4)]);
    assert_eq!(space.bitmaps().live_frags(extent(640, 64)), 4);
    assert_eq!(space.bitmaps().live_frags(extent(704, 64)), 0);
}

/// What moves out of a group would go back into it, over the border of the one before.
#[test]
fn nothing_goes_on_into_a_group_that_is_emptied() {
    let mut space = volume();
    let first = run(space.placement().find_log(128, 4, FragAddr(640)));
    assert_eq!(first, extent(640, 128));
    space.allocate(extent(640, 48), small()).unwrap();
    let on = |space: &Space| space.bitmaps().log_run(FragAddr(688), 64);
    assert_eq!(on(&space), 64);
    space.placement().close_groups(&[GroupNo(11)]);
    assert_eq!(on(&space), 16);
}

/// It would win no room: what is free there is taken by nobody.
#[test]
fn a_group_of_a_device_that_leaves_is_not_emptied_for_room() {
    let mut space = volume();
    run(space.placement().find_log(512, 4, FragAddr(640)));
    space.allocate(extent(640, 32), small()).unwrap();
    space.allocate(extent(704, 4), small()).unwrap();
    space.areas().leave(std::iter::once(11..12).collect());
    let (policy, found) = (CleaningPolicy::Greedy, space.cleaning());
    let found = found.cheapest_groups(Role::Log, policy, u64::MAX, 16, &[]);
    let groups: Vec<GroupNo> = found.iter().map(|cheap| cheap.group).collect();
    assert_eq!(groups, [GroupNo(10)]);
}

/// Cost-benefit leaves alone what was written just now, however little it holds: more of it dies by itself.
#[test]
fn what_is_old_is_emptied_before_what_is_emptier() {
    let mut space = volume();
    run(space.placement().find_log(512, 4, FragAddr(640)));
    space.allocate(extent(640, 32), small()).unwrap();
    space.allocate(extent(704, 28), small()).unwrap();
    let cheapest = |space: &Space, policy| {
        let found = space.cleaning();
        let found = found.cheapest_groups(Role::Log, policy, u64::MAX, 16, &[]);
        found.iter().map(|c| (c.group, c.age)).collect::<Vec<_>>()
    };
    let (ten, eleven) = ((GroupNo(10), 28), (GroupNo(11), 0));
    assert_eq!(cheapest(&space, CleaningPolicy::Greedy), [eleven, ten]);
    assert_eq!(cheapest(&space, CleaningPolicy::CostBenefit), [ten, eleven]);
}

#[test]
fn a_terabyte_is_opened_without_its_bitmaps() {
    let geometry = Geometry {
        block_size: 16384,
        small_size: 16384,
        group_frags: 1 << 18,
        total_frags: 1 << 30,
        ..geometry()
    };
    let desc = GroupDesc {
        role: Role::Data,
        used: 1 << 17,
        directories: 1,
    };
    let descs = (0..4000).map(|g| (GroupNo(g), desc)).collect();
    let mut space = Space::open(geometry, Vec::new(), descs);
    assert_eq!(space.bitmaps().bytes(), 0);
    space.free(extent(5 << 18, 16), Ssn(1)).unwrap();
    space.release(Ssn(1), Ssn(0), |_| false);
    assert_eq!(space.groups_to_load_for_checkpoint(), Ok(vec![GroupNo(5)]));
    // Of the others only that of the group that has most free is read.
    let free = space.free_groups();
    space.placement().keep_for_log(free);
    assert_eq!(
        space
            .placement()
            .find_data(64, FragAddr(0), GroupNo(9), Tier::Auto),
        FoundSpace::Load(vec![GroupNo(5)])
    );
    // Free groups are known without their bitmaps, and go first.
    space.placement().keep_for_log(0);
    let found = run(space
        .placement()
        .find_data(64, FragAddr(0), GroupNo(9), Tier::Auto));
    assert_eq!(found.start, FragAddr(4000 << 18));
}

#[test]
fn free_runs_hold_nothing_that_a_crash_may_bring_back() {
    let mut space = volume();
    let log = run(space.placement().find_log(64, 4, FragAddr(32 * 64)));
    space.allocate(extent(log.start.0, 20), small()).unwrap();
    // Two fragments of the unit 16..20 and the whole unit 8..12 are freed.
    space.free(extent(log.start.0 + 18, 2), Ssn(5)).unwrap();
    space.free(extent(log.start.0 + 8, 4), Ssn(5)).unwrap();
    let behind = extent(log.start.0 + 20, 44);
    assert_eq!(space.bitmaps().free_runs(log), [behind]);
    space.release(Ssn(5), Ssn(0), |_| false);
    let hole = extent(log.start.0 + 8, 4);
    assert_eq!(space.bitmaps().free_runs(log), [hole, behind]);
    assert_eq!(
        space.bitmaps().free_runs(extent(log.start.0 + 9, 1)),
        [hole]
    );
    // The rest of the unit goes too.
    space.free(extent(log.start.0 + 16, 2), Ssn(6)).unwrap();
    space.release(Ssn(6), Ssn(0), |_| false);
    let rest = extent(log.start.0 + 16, 4);
    assert_eq!(
        space.bitmaps().free_runs(extent(log.start.0 + 17, 1)),
        [rest]
    );
    // Superblocks stay, and with them the boot area.
    assert_eq!(
        space.bitmaps().free_runs(extent(0, 192)),
        [extent(68, 60), extent(132, 60)]
    );
}

#[test]
fn a_bitmap_that_is_not_in_memory_has_no_free_runs() {
    let mut space = volume();
    let log = run(space.placement().find_log(64, 4, FragAddr(32 * 64)));
    space.allocate(extent(log.start.0, 4), small()).unwrap();
    space.checkpoint_done();
    assert!(space.unload(GroupNo(32)));
    assert_eq!(space.bitmaps().free_runs(log), []);
}

/// The volume, with the log in its first four groups as long as there is room.
fn tiered() -> Space {
    let mut space = volume();
    space.areas().keep_log_on(vec![0..2, 2..4]);
    space
}

#[test]
fn the_log_stays_on_the_fast_groups_and_spills_only_when_they_are_full() {
    let mut space = tiered();
    let mut near = FragAddr(0);
    let mut taken = Vec::new();
    // More than the 4 groups of 64 have, of which superblocks take 72 fragments.
    for _ in 0..16 {
        let found = run(space.placement().find_log(16, 4, near));
        space.allocate(found, small()).unwrap();
        near = found.end();
        taken.push(found);
    }
    let (fast, slow): (Vec<_>, Vec<_>) = taken.iter().partition(|e| e.end().0 <= 256);
    let frags = |list: &[&Extent]| list.iter().map(|e| e.frags).sum::<u64>();
    assert_eq!(frags(&fast), 256 - 72, "{taken:?}");
    assert!(!slow.is_empty());
    assert_eq!(space.usage().spilled_log_groups(), 1);
    let changes = space.take_role_changes();
    assert!(space.usage().begins_to_spill(&changes), "{changes:?}");
    assert!(!space.usage().begins_to_spill(&[]));
    // What is given back on the fast ones is taken before more of the others.
    space.free(*fast[1], Ssn(1)).unwrap();
    space.release(Ssn(1), Ssn(0), |_| false);
    assert_eq!(run(space.placement().find_log(16, 4, near)), *fast[1]);
}

#[test]
fn data_and_anchors_stay_on_the_slow_groups_until_these_are_full() {
    let mut space = tiered();
    let anchor = space.placement().choose_anchor(GroupNo(0), 16_384, 4);
    assert!(anchor.0 >= 4, "{anchor:?}");
    // Near the fast groups, and in them.
    for near in [GroupNo(4), GroupNo(0)] {
        let found = run(space
            .placement()
            .find_data(8, FragAddr(0), near, Tier::Auto));
        assert!(found.start.0 >= 256, "{found:?}");
    }
    let mut slow = 0;
    loop {
        let found = run(space
            .placement()
            .find_data(600, FragAddr(0), GroupNo(4), Tier::Auto));
        space.allocate(found, small()).unwrap();
        if found.start.0 < 256 {
            // It lies on the fast ones alone.
            assert!(found.end().0 <= 256);
            break;
        }
        slow += found.frags;
    }
    assert_eq!(slow, 4096 - 256);
}

/// A quarter of the fast groups is left to the log: one of these four.
#[test]
fn data_that_should_be_fast_take_all_but_a_quarter_of_the_fast_groups() {
    let mut space = tiered();
    let (mut fast, mut after) = (0, FragAddr(0));
    let room = space.placement().room_on(Tier::Fast);
    while after.0 < 256 {
        let found = run(space
            .placement()
            .find_data(8, after, GroupNo(9), Tier::Fast));
        space.allocate(found, small()).unwrap();
        after = found.end();
        fast += if after.0 <= 256 { found.frags } else { 0 };
        assert!(space.usage().is_on(Tier::Fast, found.start) == (after.0 <= 256));
    }
    assert!(fast > 0 && fast <= room && fast <= 3 * 64, "{fast} {room}");
    assert!(space.usage().is_on(Tier::Slow, after));
    assert_eq!(space.placement().room_on(Tier::Fast) / 8, 0);
    let log = run(space.placement().find_log(16, 4, FragAddr(32 * 64)));
    assert!(log.end().0 <= 256, "{log:?}");
    // What spilled does not say where the others go.
    let found = run(space
        .placement()
        .find_data(8, FragAddr(0), GroupNo(40), Tier::Slow));
    assert!(space.usage().is_on(Tier::Slow, found.start));
}

#[test]
fn without_a_choice_there_are_no_tiers() {
    for all in [vec![], vec![0..32, 32..64], vec![0..1, 1..64]] {
        let mut space = volume();
        space.areas().keep_log_on(all);
        let first = run(space.placement().find_log(64, 4, FragAddr(32 * 64)));
        assert_eq!(first, extent(32 * 64, 64));
        assert_eq!(space.usage().spilled_log_groups(), 0);
    }
}

/// A gap that begins inside of a group, and groups whose device is to leave: there is room elsewhere alone.
#[test]
fn nothing_is_placed_in_gaps_nor_where_a_device_leaves() {
    let gap = extent(1000, 1048);
    let mut space = Space::open_with_gaps(geometry(), Vec::new(), &[gap], Vec::new());
    assert_eq!(space.free_groups(), 48);
    assert_eq!(space.usage().free_frags(), 4096 - 1048);
    let leaving = std::iter::once(40..64).collect();
    space.areas().leave(leaving);
    assert_eq!(space.free_groups(), 24);
    let mut left = 4096 - 1048 - 24 * 64;
    assert_eq!(space.usage().free_frags(), left);
    // In a row: data finds nothing before the log does.
    let mut full = 0;
    for round in 0.. {
        let near = FragAddr(round * 577 % 4096);
        let found = match round % 2 {
            0 => space.placement().find_log(40, 4, near),
            _ => space
                .placement()
                .find_data(9, near, GroupNo(round as u32 % 64), Tier::Auto),
        };
        let FoundSpace::Run(run) = found else {
            full += 1;
            if full > 3 {
                break;
            }
            continue;
        };
        full = 0;
        assert!(!run.overlaps(gap) && run.end().0 <= 40 * 64, "{run:?}");
        space.allocate_unshown(run).unwrap();
        left -= run.frags;
        assert_eq!(space.usage().free_frags(), left);
        assert_eq!(space.check(), Ok(()));
    }
    assert!(left < 64, "{left}");
    space.areas().leave(Vec::new());
    assert_eq!(space.free_groups(), 24);
    assert_eq!(space.check(), Ok(()));
    assert!(
        space.usage().is_vacant(GroupNo(20))
            && space.usage().is_vacant(GroupNo(50))
            && !space.usage().is_vacant(GroupNo(3))
    );
}

/// The log's end stands where a device is to leave, with room behind it: the log goes on elsewhere, by a run that is one.
#[test]
fn the_log_goes_on_elsewhere_when_its_end_is_where_a_device_leaves() {
    for tiers in [vec![], vec![0..2, 2..4]] {
        let mut space = volume();
        let there = run(space.placement().find_log(64, 4, FragAddr(45 * 64)));
        assert_eq!(there, extent(45 * 64, 64));
        space.allocate(extent(there.start.0, 32), small()).unwrap();
        space.areas().keep_log_on(tiers);
        space.areas().leave(std::iter::once(40..64).collect());
        for near in [there.start, FragAddr(there.start.0 + 32), there.end()] {
            let found = run(space.placement().find_log(8, 4, near));
            assert!(found.frags > 0 && found.end().0 <= 40 * 64, "{found:?}");
        }
    }
}
