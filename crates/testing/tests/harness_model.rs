//! The harness itself: the model test passes a file system that is right, and
//! catches each that is wrong.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod toy;

use std::time::Duration;

use loamfs_testing::campaign::{self, Case};
use loamfs_testing::generate::profile;
use toy::{Defect, Toy};

/// Cutting down ends by itself, long before, on any machine.
const SHRINK: Duration = Duration::from_secs(60);

#[test]
fn a_right_file_system_passes_every_profile() {
    for seed in 0..profile::ALL.len() as u64 {
        let mut case = Case::of(seed, None);
        // The toy writes everything each time.
        case.profile.objects_max = case.profile.objects_max.min(300);
        case.profile.bytes_max = case.profile.bytes_max.min(1 << 20);
        case.profile.file_max = case.profile.file_max.min(200 << 10);
        case.geometry.size = 64 << 20;
        if let Err(report) = campaign::run(&Toy::default(), &case, 1500, SHRINK) {
            panic!("{report}");
        }
    }
}

/// The rule by which a defect is caught.
fn caught(defect: Defect, profile: profile::Profile) -> &'static str {
    for seed in 0..10 {
        let mut case = Case::of(seed, Some(profile));
        case.geometry.size = 64 << 20;
        case.profile.objects_max = case.profile.objects_max.min(100);
        if let Err(report) = campaign::run(&Toy::with(defect), &case, 2000, SHRINK) {
            assert!(report.short.len() <= 320, "{report}");
            return report.problem.rule;
        }
    }
    panic!("{defect:?} is not caught");
}

#[test]
fn wrong_file_systems_are_caught() {
    let table = [
        (Defect::WrongErrno, profile::RENAMES, "another error"),
        (Defect::ExchangeForgetsParent, profile::RENAMES, ""),
        (Defect::TruncateKeepsTail, profile::LARGE_FILES, ""),
        (Defect::ScanSkipsAfterChange, profile::DIRECTORIES, ""),
        (Defect::ScanRepeats, profile::DIRECTORIES, ""),
        (Defect::LosesXattrAtRemount, profile::XATTRS, ""),
        (Defect::SpuriousNoSpace, profile::SMALL_FILES, ""),
        (Defect::NoSpaceLeavesName, profile::SMALL_FILES, ""),
        (
            Defect::UnlinkNoSpace,
            profile::SMALL_FILES,
            "no space for an operation that needs none",
        ),
        (Defect::NumbersReusedWhileOpen, profile::SMALL_FILES, ""),
        (
            Defect::ForgetsMtime,
            profile::LARGE_FILES,
            "wrong attributes",
        ),
        (Defect::Panics, profile::SMALL_FILES, "panic"),
    ];
    for (defect, profile, rule) in table {
        let found = caught(defect, profile);
        println!("{defect:?}: {found}");
        assert!(rule.is_empty() || rule == found, "{defect:?}: {found}");
    }
}
