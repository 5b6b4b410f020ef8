//! Volumes full to the brim: a slice of what the program `brim` does.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_fs::VOLUME_MIN;
use loamfs_testing::brim::{Case, Files, Order, run};
use loamfs_testing::loam::VOLUMES;

#[test]
fn everything_can_be_removed_from_full_volumes() {
    for volumes in VOLUMES {
        for seed in 1..=4 {
            let case = Case {
                volumes,
                ..Case::of(seed, 16 << 20)
            };
            run(&case).unwrap_or_else(|problem| panic!("{case}: {problem}"));
        }
    }
}

#[test]
fn the_smallest_volume_is_emptied_in_every_order() {
    let orders = [Order::Made, Order::Reverse, Order::Random];
    let files = [
        Files::Tiny,
        Files::Small,
        Files::Named,
        Files::Attributed,
        Files::Mixed,
    ];
    let all = orders
        .iter()
        .flat_map(|order| files.map(|files| (order, files)));
    let all = VOLUMES
        .into_iter()
        .flat_map(|volumes| all.clone().map(move |it| (volumes, it)));
    for (seed, (volumes, (order, files))) in (100u64..).zip(all) {
        let case = Case {
            seed,
            bytes: VOLUME_MIN,
            volumes,
            files,
            order: *order,
            crash_every: Some(50),
            storm: 3,
            overwritten: seed % 2,
        };
        run(&case).unwrap_or_else(|problem| panic!("{case}: {problem}"));
    }
}

/// Segments of inode blocks were cut into as many of the smallest holes as there may be, and had no place for the rest.
#[test]
fn a_large_volume_is_emptied_out_of_many_small_holes() {
    let case = Case {
        overwritten: 0,
        ..Case::of(7079, 256 << 20)
    };
    run(&case).unwrap_or_else(|problem| panic!("{case}: {problem}"));
}

/// Removals left their inodes in blocks that stayed where they were. So they gave back only holes that no segment has room in.
#[test]
fn what_is_removed_from_a_full_volume_does_not_stay_in_inode_blocks() {
    let case = Case {
        volumes: "hfs-deltas",
        ..Case::of(900, 64 << 20)
    };
    run(&case).unwrap_or_else(|problem| panic!("{case}: {problem}"));
}

/// What was moved for overwrites left removals less than they begin with: half of the reserve was less than both checkpoints may write
/// on 8 MiB full of small files.
#[test]
fn what_is_moved_for_others_leaves_removals_what_they_begin_with() {
    let cases = [
        ("hfs", 210),
        ("hfs", 252),
        ("hfs-deltas", 127),
        ("hfs-deltas", 135),
        ("hfs-deltas", 174),
        // The reserve counted the nodes for which a checkpoint is due, and not those that the segment before it changes.
        ("hfs-deltas", 331),
    ];
    for (volumes, seed) in cases {
        let case = Case {
            volumes,
            ..Case::of(seed, 8 << 20)
        };
        run(&case).unwrap_or_else(|problem| panic!("{case}: {problem}"));
    }
}
