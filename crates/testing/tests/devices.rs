//! Volumes of two devices, the log on the first one.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use loamfs_fs::{CopyKind, Section};
use loamfs_testing::campaign::{self, image_after};
use loamfs_testing::explore::cases::{Case, GEOMETRIES, all_carrying, all_singles, combined, long};
use loamfs_testing::explore::fleet::{Orders, Outcome, run};
use loamfs_testing::loam::{DELTAS, Loam, options_of};
use loamfs_testing::pair::Pair;
use loamfs_testing::shrink::Limit;
use loamfs_testing::watchdog::Watchdog;

/// One single workload in so many; a prime.
const SINGLES_STEP: usize = 1009;
/// The same of those that carry files.
const CARRYING_STEP: usize = 97;
/// The same of those that write them back.
const WRITTEN_BACK_STEP: usize = 61;
/// The same of those on a device with a section.
const SECTIONED_STEP: usize = 127;

#[test]
fn two_devices_do_what_the_model_does() {
    let watchdog = Watchdog::start(Duration::from_secs(120));
    for seed in 100..102 {
        let case = campaign::Case::of(seed, None);
        watchdog.enter(Some(case.to_string()));
        let shrinking = Limit::Time(Duration::from_secs(20));
        for pair in [Pair::default(), with_deltas()] {
            if let Err(report) = campaign::run(&pair, &case, 1_000, shrinking) {
                panic!("{report}");
            }
        }
    }
    watchdog.enter(None);
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_two_devices() {
    for seed in 100..103 {
        let case = campaign::Case::of(seed, None);
        let image = || image_after(&Pair::default(), &case, 300).unwrap();
        assert!(image() == image(), "{case}");
    }
}

/// Two devices whose segments say what changed in inodes, as users have them.
fn with_deltas() -> Pair {
    Pair {
        loam: Loam::default().on(DELTAS).unwrap(),
        ..Pair::default()
    }
}

fn explore(system: &Pair, cases: &[Case], keep_going: bool) -> Outcome {
    let orders = Orders {
        shrinking: Duration::ZERO,
        keep_going,
        ..Orders::SLICE
    };
    let outcome = run(system, cases, orders);
    println!("{}", outcome.tally);
    outcome
}

#[test]
fn either_device_may_keep_or_lose_what_it_has_not_flushed() {
    let singles = GEOMETRIES.into_iter().flat_map(all_singles);
    let singles = singles.step_by(SINGLES_STEP);
    let pairs = (3000..3004).map(combined);
    let cases: Vec<Case> = singles.chain(pairs).chain([long(3000, 60)]).collect();
    // Without deltas, and with them in a case of three. Those on full volumes, with thousands of states each, are left to the program.
    let some = cases.iter().filter(|case| !case.name.contains("/full/"));
    let some: Vec<Case> = some.step_by(3).cloned().collect();
    for (pair, cases, states) in [(Pair::default(), cases, 1_000), (with_deltas(), some, 300)] {
        let outcome = explore(&pair, &cases, false);
        for report in &outcome.reports {
            println!("{report}");
        }
        assert!(outcome.reports.is_empty());
        assert_eq!(outcome.tally.cases as usize, cases.len());
        let tally = outcome.tally;
        assert!(tally.distinct > states, "{tally}");
        // What they are for comes up.
        let deltas = options_of(pair.loam.volumes).deltas;
        assert!(!deltas || tally.with_deltas * 4 > tally.cases, "{tally}");
    }
}

/// Whether files of a case are written back.
fn is_written_back(case: &Case) -> bool {
    case.name.contains("write-back")
}

/// Pieces of large files that are carried from one device to the other are on the old one or on the new one.
#[test]
fn files_that_are_carried_between_devices_survive_crashes() {
    let cases = GEOMETRIES.into_iter().flat_map(all_carrying);
    let cases = cases.filter(|case| !is_written_back(case));
    let cases: Vec<Case> = cases.step_by(CARRYING_STEP).collect();
    let outcome = explore(&Pair::default(), &cases, false);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty());
    assert!(outcome.tally.distinct > 500, "{}", outcome.tally);
    // What they are for comes up.
    let tally = outcome.tally;
    assert!(tally.with_fast * 2 > tally.cases, "{tally}");
}

/// What is written back is on the fast device or on the slow one, wherever a crash comes, and moves behind it.
#[test]
fn files_that_are_written_back_survive_crashes() {
    let cases = GEOMETRIES.into_iter().flat_map(all_carrying);
    // On a full volume that fights for space, which takes hundreds of flushes to cut at: left to the program.
    let all = cases.filter(|case| is_written_back(case) && !case.name.contains("/full/"));
    let (entered, others): (Vec<Case>, Vec<Case>) =
        all.partition(|case| case.name.contains("write-back-entered"));
    let slice = |cases: Vec<Case>| cases.into_iter().step_by(WRITTEN_BACK_STEP);
    let cases: Vec<Case> = slice(entered).chain(slice(others)).collect();
    assert!(cases.len() >= 7, "{}", cases.len());
    let outcome = explore(&Pair::default(), &cases, false);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty());
    let tally = outcome.tally;
    assert!(tally.distinct > 500, "{tally}");
    // What they are for comes up.
    assert!(tally.with_carried * 4 > tally.cases, "{tally}");
}

/// The fast device has a section of virtual extents: what it gives out is as safe as anything.
#[test]
fn files_that_stand_in_extents_of_a_section_survive_crashes() {
    let sectioned = Pair {
        section: Section::new(64 << 10, 32 << 10),
        ..Pair::default()
    };
    let cases = GEOMETRIES.into_iter().flat_map(all_carrying);
    let cases = cases.filter(|case| !is_written_back(case) && !case.name.contains("/full/"));
    let cases: Vec<Case> = cases.step_by(SECTIONED_STEP).collect();
    let outcome = explore(&sectioned, &cases, false);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty());
    let tally = outcome.tally;
    assert!(tally.distinct > 300, "{tally}");
    assert!(tally.with_fast * 2 > tally.cases, "{tally}");
    for seed in [108, 109] {
        let case = campaign::Case::of(seed, None);
        let shrinking = Limit::Time(Duration::from_secs(20));
        if let Err(report) = campaign::run(&sectioned, &case, 1_000, shrinking) {
            panic!("{report}");
        }
    }
}

/// Where the log has a copy, what the explorer asks holds of either device alone too.
fn is_whole_on_either_device(copy: CopyKind) {
    let twice = Pair {
        copy: Some(copy),
        ..with_deltas()
    };
    let cases: Vec<Case> = (4000..4002).map(|seed| long(seed, 60)).collect();
    let outcome = explore(&twice, &cases, false);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty());
    let tally = outcome.tally;
    assert!(tally.distinct > 500, "{tally}");
    assert_eq!(tally.with_deltas, tally.cases);
    let case = campaign::Case::of(107, None);
    let shrinking = Limit::Time(Duration::from_secs(20));
    if let Err(report) = campaign::run(&twice, &case, 1_000, shrinking) {
        panic!("{report}");
    }
}

#[test]
fn a_log_that_stands_twice_is_whole_on_either_device() {
    is_whole_on_either_device(CopyKind::Each);
}

#[test]
fn a_log_with_a_copy_that_is_behind_is_whole_on_either_device() {
    is_whole_on_either_device(CopyKind::Behind);
}

/// A flush must reach each device that was written, not the first one alone.
#[test]
fn a_device_whose_flush_is_forgotten_is_noticed() {
    let forgetting = Pair {
        forgets: true,
        ..Pair::default()
    };
    let cases: Vec<Case> = (0..4).map(|seed| long(seed, 60)).collect();
    assert!(!explore(&forgetting, &cases, false).reports.is_empty());
}
