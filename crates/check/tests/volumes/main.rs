//! The checker against volumes that are built, and damaged, by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod atimes;
mod builder;
mod clean;
mod damage;
mod document;
mod dumps;
mod hostile;
mod names;
mod space;
mod tracks;

use loamfs_check::{Options, Problem, Report, check};
use loamfs_device::Device;

/// Checks everything.
fn report(device: &dyn Device) -> Report {
    check(device, &mut Options::default())
}

/// The names of the kinds of problems on a device, without those that a crash may leave, each once.
fn kinds(device: &dyn Device) -> Vec<&'static str> {
    let report = report(device);
    let mut names: Vec<&'static str> = report.problems.iter().map(Problem::name).collect();
    names.sort_unstable();
    names.dedup();
    // What is found must not depend on how much memory there is.
    let little = check(
        device,
        &mut Options {
            memory: 1,
            ..Options::default()
        },
    );
    let counts = |report: &Report| report.counts.keys().copied().collect::<Vec<_>>();
    assert_eq!(counts(&little), counts(&report));
    assert_eq!(little.plan, report.plan);
    assert_eq!(little.unchecked, report.unchecked);
    names
}
