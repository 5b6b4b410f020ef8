//! Tracks that form by the clock, on volumes of disks that turn: crashes in the middle of it, and that nobody sees any of it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{Device, MemoryDevice, RecordingDevice};
use loamfs_fs::superblocks;
use loamfs_testing::campaign::Case as Run;
use loamfs_testing::explore::cases::{
    Case, GEOMETRIES, Workload, all_forming, combined_forming, prepare_by,
};
use loamfs_testing::explore::fleet::{Orders, run};
use loamfs_testing::explore::single::files_to_settle;
use loamfs_testing::explore::starts::{mkdir, setup};
use loamfs_testing::generate::Generator;
use loamfs_testing::loam::{DELTAS_TURNING, Loam, TURNING};
use loamfs_testing::model::ROOT;
use loamfs_testing::ops::Op;
use loamfs_testing::runner::Runner;
use loamfs_testing::subject::System;
use std::sync::Arc;

/// One single workload in so many; a prime, so that all workloads and all that may follow are among them.
const SINGLES_STEP: usize = 131;

/// Without deltas, and with them.
fn turning() -> [Loam; 2] {
    [TURNING, DELTAS_TURNING].map(|volumes| Loam::default().on(volumes).unwrap())
}

/// Whether a volume came to have tracks.
fn has_tracks(device: &dyn Device) -> bool {
    superblocks::read(device).unwrap().newest.has_tracks()
}

#[test]
fn in_each_case_tracks_form() {
    let cases = cases();
    let cases = cases.iter().flat_map(|case| turning().map(|on| (case, on)));
    for (case, system) in cases {
        let Workload::Listed(ops) = &case.ops else {
            panic!("{}", case.name);
        };
        let all = [setup(case.start, &case.geometry), ops.clone()].concat();
        let prepared = prepare_by(&system, &case.geometry, &all).unwrap();
        assert!(
            has_tracks(&MemoryDevice::from_image(prepared.image)),
            "{} on {}",
            case.name,
            system.volumes
        );
    }
}

/// A slice of what `explore --volumes hfs-turning` goes through. A full volume has no room for it.
fn cases() -> Vec<Case> {
    let singles = GEOMETRIES.into_iter().flat_map(all_forming);
    let singles = singles.filter(|case| !matches!(case.start, "empty" | "full"));
    let pairs = (1000..1001).map(combined_forming);
    singles.step_by(SINGLES_STEP).chain(pairs).collect()
}

#[test]
fn every_crash_while_tracks_form_leaves_all_as_it_was() {
    let cases = cases();
    for system in turning() {
        let outcome = run(&system, &cases, Orders::SLICE);
        println!("{}", outcome.tally);
        for report in &outcome.reports {
            println!("{report}");
        }
        assert!(outcome.reports.is_empty(), "{}", outcome.tally);
        assert!(outcome.tally.distinct > 100, "{}", outcome.tally);
    }
}

/// The model knows nothing of tracks: what is read, listed and told is the same before and after they form, and whatever changes
/// meanwhile.
#[test]
fn nobody_sees_that_tracks_form() {
    for (seed, system) in (0..6).zip(turning().into_iter().cycle()) {
        let case = Run::of(seed, None);
        let memory = MemoryDevice::new(case.geometry.size);
        let device = Arc::new(RecordingDevice::new(
            memory.with_sector_size(case.geometry.sector),
        ));
        system.format(device.clone(), &case.geometry, seed).unwrap();
        let observed = device.clone();
        let mut runner = Runner::fresh(&system, device, case.opening).unwrap();
        let dir = 900_000;
        let made = [
            vec![mkdir(ROOT, dir)],
            files_to_settle(&case.geometry, dir, dir + 1),
        ]
        .concat();
        let step = |runner: &mut Runner<'_>, op: &Op| match op {
            Op::Remount => {
                runner.close().unwrap();
                runner.open().unwrap();
            }
            op => {
                runner
                    .step(op)
                    .unwrap_or_else(|problem| panic!("{case}: {op:?}: {problem}"));
            }
        };
        made.iter().for_each(|op| step(&mut runner, op));
        step(&mut runner, &Op::Idle { dir });
        // None of these has asked for tracks.
        assert!(has_tracks(observed.as_ref()), "{case}: none formed");
        let mut generator = Generator::new(seed, case.profile, case.geometry, &runner.model);
        for turn in 0..300 {
            let op = generator.next(&runner.model);
            step(&mut runner, &op);
            if turn % 60 == 59 {
                step(&mut runner, &Op::Idle { dir });
                step(&mut runner, &Op::Compare);
            }
        }
        runner.close().unwrap();
    }
}
