//! The harness itself: the crash explorer passes a file system that keeps the
//! rules, and catches each that breaks one.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod toy;

use std::time::Duration;

use loamfs_testing::explore::cases::{Case, GEOMETRIES, all_singles, combined, long};
use loamfs_testing::explore::fleet::{Orders, Outcome, run, run_in_turn};
use loamfs_testing::explore::hunt::Effort;
use loamfs_testing::subject::System;
use toy::{Defect, Toy};

fn cases() -> Vec<Case> {
    let singles = all_singles(GEOMETRIES[0]).into_iter().step_by(29);
    let pairs = (0..12).map(combined);
    let longs = (0..3).map(|seed| long(seed, 60));
    let mut cases: Vec<Case> = singles.chain(pairs).chain(longs).collect();
    cases.retain(|case| case.start != "full");
    for case in &mut cases {
        // The toy writes all of itself each time, twice.
        case.geometry.size = 32 << 20;
    }
    cases
}

const ORDERS: Orders = Orders {
    effort: Effort {
        states: 24,
        rot: false,
        ..Effort::QUICK
    },
    time: Duration::from_secs(60),
    shrinking: Duration::from_secs(2),
    keep_going: false,
    threads: 2,
    hang: Duration::from_secs(120),
    print: false,
};

fn explore(system: &dyn System) -> Outcome {
    run(system, &cases(), ORDERS)
}

/// What outlasts the time takes none of what comes behind it: nothing is passed over that nobody would miss.
#[test]
fn every_slice_comes_up_however_short_the_time() {
    let (toy, cases) = (Toy::default(), cases());
    let orders = Orders {
        time: Duration::from_millis(1),
        ..ORDERS
    };
    let mut done = Vec::new();
    run_in_turn(&[(&toy, &cases), (&toy, &cases)], orders, |_, outcome| {
        done.push(outcome.tally.cases);
    });
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|cases| *cases > 0), "{done:?}");
}

#[test]
fn a_file_system_that_keeps_the_rules_passes() {
    let outcome = explore(&Toy::default());
    println!("{}", outcome.tally);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty());
    assert!(outcome.tally.distinct > 1000, "{}", outcome.tally);
}

#[test]
fn broken_rules_are_caught() {
    let table = [
        (Defect::NoFlush, "what was promised is lost"),
        (Defect::SlotTooEarly, ""),
        (Defect::NoChecksum, ""),
        (Defect::OneSlot, ""),
        (Defect::FsyncForgetsData, ""),
        (Defect::CommitHalfARename, ""),
        (Defect::LargeFilesTorn, "the state is that of no moment"),
        (Defect::OldSlotWins, ""),
        (Defect::CheckerComplains, ""),
        (Defect::FailsSecondOpen, ""),
    ];
    for (defect, rule) in table {
        let outcome = explore(&Toy::with(defect));
        let Some(report) = outcome.reports.first() else {
            panic!("{defect:?} is not caught: {}", outcome.tally);
        };
        let found = report.find.problem.rule;
        println!("{defect:?}: {}", report.find.problem);
        assert!(rule.is_empty() || rule == found, "{defect:?}: {report}");
    }
}
