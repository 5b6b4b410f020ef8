//! A slice of the crash explorer for every change: the same as the program
//! `explore`, a fixed choice of its cases.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_testing::explore::cases::{Case, GEOMETRIES, all_singles, combined, long};
use loamfs_testing::explore::fleet::{Orders, run};
use loamfs_testing::explore::hunt::Tally;
use loamfs_testing::loam::{DELTAS, Loam, options_of};
use loamfs_testing::without::Without;

/// One single workload in so many; a prime, so that all starts and all that may
/// follow are among them.
const SINGLES_STEP: usize = 317;

fn cases() -> Vec<Case> {
    let singles = GEOMETRIES.into_iter().flat_map(all_singles);
    // What moves a directory's files on a full volume fights for space as often: left to the program.
    let fights = |case: &Case| case.name.contains("/full/say-");
    let singles = singles.step_by(SINGLES_STEP).filter(|case| !fights(case));
    let pairs = (1000..1006).map(combined);
    let longs = (1000..1002).map(|seed| long(seed, 60));
    singles.chain(pairs).chain(longs).collect()
}

#[test]
fn every_crash_leaves_a_state_that_the_rules_allow() {
    let plain = explore(&Loam::default(), &cases());
    assert!(plain.distinct > 2_000, "{plain}");
    // Once more with everything in the log, and with deltas of inodes, from the same code.
    for (volumes, step) in [("lfs", 16), (DELTAS, 8), ("lfs-deltas", 32)] {
        let system = Loam::default().on(volumes).unwrap();
        let some = cases()
            .into_iter()
            .filter(|case| !case.name.contains("/full/"));
        let some: Vec<Case> = some.step_by(step).collect();
        let tally = explore(&system, &some);
        assert!(tally.distinct > 50, "{volumes}: {tally}");
        // What they are for comes up.
        let deltas = options_of(volumes).deltas;
        assert!(!deltas || tally.with_deltas * 2 > tally.cases, "{tally}");
    }
    // Once more with space that is reused at once.
    let reusing = Loam {
        without: Without::default().scattered(true),
        ..Loam::default()
    };
    // A full volume's fights for space then take hundreds of flushes, each to be cut at: left to the program.
    let scattered: Vec<Case> = (2000..2004)
        .map(combined)
        .filter(|case| !case.name.contains("/full/"))
        .collect();
    let scattered = explore(&reusing, &scattered);
    assert!(scattered.distinct > 500, "{scattered}");
}

/// Explores cases, of which none may fail.
fn explore(system: &Loam, cases: &[Case]) -> Tally {
    let outcome = run(system, cases, Orders::SLICE);
    println!("{}", outcome.tally);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty(), "{}", outcome.tally);
    assert_eq!(outcome.tally.cases as usize, cases.len());
    outcome.tally
}
