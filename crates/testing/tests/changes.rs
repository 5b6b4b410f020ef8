//! Devices join, leave, are replaced and become longer: what crashes at every write of it leave.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use loamfs_testing::explore::cases::Case;
use loamfs_testing::explore::changes;
use loamfs_testing::explore::fleet::{Orders, Outcome, run};
use loamfs_testing::explore::hunt::Effort;
use loamfs_testing::loam::Loam;
use loamfs_testing::several::Several;
use loamfs_testing::without::Without;

/// What every change of the repository has time for: a copy of the superblock rots in longer runs alone, and few states crash again.
const EFFORT: Effort = Effort {
    states: 6,
    stretches: usize::MAX,
    again_in: 400,
    kill_in: 60,
    depth: 1,
    rot: false,
    ..Effort::QUICK
};

fn explore(without: &Without, cases: &[Case]) -> Outcome {
    let system = Several {
        loam: Loam {
            without: without.clone(),
            ..Loam::default()
        },
    };
    let orders = Orders {
        effort: EFFORT,
        shrinking: Duration::ZERO,
        ..Orders::SLICE
    };
    let outcome = run(&system, cases, orders);
    println!("{}", outcome.tally);
    outcome
}

#[test]
fn every_crash_while_devices_change_leaves_a_state_that_the_rules_allow() {
    let cases = changes::all(1);
    let outcome = explore(&Without::default(), &cases);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty());
    assert_eq!(outcome.tally.cases as usize, cases.len());
    assert!(outcome.tally.distinct > 1_000, "{}", outcome.tally);
}

/// Two of three small devices leave: what cleaning would win later is no room for what stands there, since removals need the
/// reserve after a crash, too.
#[test]
fn the_reserve_is_there_as_soon_as_devices_leave() {
    let cases = [10, 11].map(|seed| changes::named(seed, "tight").unwrap());
    let outcome = explore(&Without::default(), &cases);
    for report in &outcome.reports {
        println!("{report}");
    }
    assert!(outcome.reports.is_empty());
}

/// The explorer finds something in this script when the clause is left out.
fn is_missed(clause: &str, script: &str) {
    let without = Without::clauses(clause);
    let case = changes::named(1, script).unwrap();
    let outcome = explore(&without, &[case]);
    let found = outcome.reports.first().expect("nobody misses it");
    println!("{found}");
    // It was found in the script, not before it.
    assert!(!found.ops.is_empty(), "{found}");
    assert_eq!(without.unreached(), [""; 0], "{found}");
    assert!(
        !["panic", "harness"].contains(&found.find.problem.rule),
        "{found}"
    );
}

#[test]
fn mutant_table_before_joining_is_caught() {
    is_missed("table-before-joining", "add");
}

#[test]
fn mutant_copies_together_is_caught() {
    is_missed("copies-together", "add-third");
}

#[test]
fn mutant_followers_first_is_caught() {
    is_missed("followers-first", "add-third");
}

#[test]
fn mutant_leaves_full_is_caught() {
    is_missed("leaves-full", "remove-early");
}

#[test]
fn mutant_leaves_full_is_caught_behind_a_new_end() {
    is_missed("leaves-full", "shrink");
}

#[test]
fn mutant_wipe_before_table_is_caught() {
    is_missed("wipe-before-table", "remove");
}
