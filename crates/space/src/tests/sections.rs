//! Sections: blocks of large files are given out by extents.

use super::{extent, geometry, owner, run};
use crate::{ExtentUse, FoundSpace, Section, Space};
use loamfs_format::inode::Tier;
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ssn};

/// The first 16 groups are fast.
fn fast_alike() -> Space {
    let mut space = Space::new(geometry(), Vec::new());
    space.areas().keep_log_on(std::iter::once(0..16).collect());
    space
}

/// They are cut into extents.
fn sectioned(section: Section) -> Space {
    let mut space = fast_alike();
    space.areas().cut(vec![section]);
    space
}

fn extents_of_32() -> Section {
    Section {
        groups: 0..16,
        first: 0,
        flash_block: 32,
        extent: 32,
    }
}

fn fast(space: &mut Space, blocks: u64, goal: u64) -> Extent {
    let found = run(space
        .placement()
        .find_data(blocks, FragAddr(goal), GroupNo(3), Tier::Fast));
    space
        .allocate(found, owner(BlockKind::Homed, found.start.0 / 8))
        .unwrap();
    space.check().unwrap();
    found
}

#[test]
fn files_begin_with_clean_extents_and_go_on_in_what_they_have() {
    let mut space = sectioned(extents_of_32());
    let (one, other) = (fast(&mut space, 1, 0), fast(&mut space, 1, 0));
    assert_eq!((one, other), (extent(192, 8), extent(224, 8)));
    // The second half of its extent, and the next clean one.
    assert_eq!(fast(&mut space, 2, 200), extent(200, 16));
    assert_eq!(fast(&mut space, 2, 216), extent(216, 8));
    assert_eq!(fast(&mut space, 2, 224).start.0 % 32, 0);
    // A file that needs more than one takes those that follow each other.
    assert_eq!(fast(&mut space, 7, 0).start.0 % 32, 0);
    let used = space.usage().extents(0..16).unwrap();
    assert_eq!((used.shut, used.lost, used.unknown), (2, 0, 0));
    assert_eq!(used.open, 2);
    assert!(space.usage().extents(16..64).is_none());
}

/// The device begins at an odd address: its first flash block begins 8 fragments into each group.
#[test]
fn extents_are_aligned_to_flash_blocks_wherever_the_device_begins() {
    let mut space = sectioned(Section {
        first: 8,
        ..extents_of_32()
    });
    for blocks in 1..9 {
        let found = fast(&mut space, blocks, 0);
        assert_eq!(found.start.0 % 32, 8, "{found:?}");
    }
    // One of the two that a group could have.
    assert_eq!(fast(&mut space, 9, 0).frags, 32);
}

#[test]
fn a_section_is_no_reason_for_anything_to_be_full() {
    for section in [
        extents_of_32(),
        Section {
            extent: 8,
            ..extents_of_32()
        },
        Section {
            flash_block: 64,
            extent: 64,
            first: 16,
            ..extents_of_32()
        },
    ] {
        let mut all = [0; 2];
        for (space, all) in [sectioned(section.clone()), fast_alike()]
            .iter_mut()
            .zip(&mut all)
        {
            while let FoundSpace::Run(run) =
                space
                    .placement()
                    .find_data(3, FragAddr(0), GroupNo(3), Tier::Fast)
            {
                let owner = owner(BlockKind::Homed, run.start.0 / 8);
                space.allocate(run, owner).unwrap();
                *all += run.frags;
            }
        }
        assert_eq!(all[0], all[1], "{section:?}");
    }
}

/// One block of each extent stays: it is taken again, but nothing of an extent of which less than half is free, before nothing else
/// is left on the fast devices.
#[test]
fn extents_are_taken_of_which_half_is_free_and_no_others() {
    let mut space = sectioned(extents_of_32());
    // Twelve groups; the others are the log's to claim.
    let taken: Vec<Extent> = (0..24).map(|_| fast(&mut space, 4, 0)).collect();
    assert!(taken.iter().all(|extent| extent.frags == 32));
    assert_eq!(space.usage().extents(0..16).unwrap().clean, 8);
    for (number, extent) in (0..).zip(&taken) {
        let keep = if number % 2 == 0 { 8 } else { 24 };
        let rest = Extent::new(FragAddr(extent.start.0 + keep), extent.frags - keep);
        space.free(rest, Ssn(1)).unwrap();
    }
    space.release(Ssn(1), Ssn(0), |_| false);
    let before = space.usage().extents(0..16).unwrap();
    let halves = taken.len().div_ceil(2) as u64;
    assert_eq!(
        (before.open, before.shut),
        (halves, taken.len() as u64 - halves)
    );
    for _ in 0..halves {
        let found = fast(&mut space, 3, 0);
        assert_eq!((found.start.0 % 32, found.frags), (8, 24));
    }
    let after = space.usage().extents(0..16).unwrap();
    assert_eq!(
        after,
        ExtentUse {
            open: 0,
            shut: 24,
            ..before
        }
    );
    // A hole of one block.
    assert_eq!(fast(&mut space, 1, 0).start.0 % 32, 24);
}

#[test]
fn a_section_can_come_and_go_while_bitmaps_are_in_memory() {
    let mut space = fast_alike();
    for blocks in [1, 5, 2] {
        fast(&mut space, blocks, 0);
    }
    space.areas().cut(vec![extents_of_32()]);
    space.check().unwrap();
    let used = space.usage().extents(0..16).unwrap();
    assert_eq!((used.open, used.shut), (0, 2), "{used:?}");
    assert_eq!(fast(&mut space, 1, 0).start.0 % 32, 0);
    space.areas().cut(Vec::new());
    assert_eq!(space.usage().extents(0..16), None);
    let next = fast(&mut space, 1, 0);
    assert_ne!(next.start.0 % 32, 0);
}
