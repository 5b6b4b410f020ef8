//! A slice of the model test for every change: the same as the program `model`,
//! bounded in time.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use loamfs_testing::campaign::{self, Case, image_after};
use loamfs_testing::loam::{Loam, VOLUMES};
use loamfs_testing::shrink::Limit;
use loamfs_testing::watchdog::Watchdog;

const SEEDS: u64 = 21;
const OPS: usize = 2_000;

#[test]
fn volumes_do_what_the_model_does() {
    let watchdog = Watchdog::start(Duration::from_secs(240));
    for seed in 0..SEEDS {
        let case = Case::of(seed, None);
        watchdog.enter(Some(case.to_string()));
        for volumes in VOLUMES {
            let system = Loam::default().on(volumes).unwrap();
            let shrinking = Limit::Time(Duration::from_secs(20));
            if let Err(report) = campaign::run(&system, &case, OPS, shrinking) {
                panic!("{report}");
            }
        }
    }
    watchdog.enter(None);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for volumes in VOLUMES {
        let system = Loam::default().on(volumes).unwrap();
        for seed in 0..7 {
            let case = Case::of(seed, None);
            let image = || image_after(&system, &case, 500).unwrap();
            assert!(image() == image(), "{case} on {volumes}");
        }
    }
}
