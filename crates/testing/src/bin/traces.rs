//! Prints what seeded runs ask of a device, a line each: a change of the code's shape alone leaves every line as it is.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use loamfs_device::{
    Counters, Device, Event, Issued, MemoryDevice, ObservedDevice, Observer, RecordingDevice,
};
use loamfs_testing::args::Args;
use loamfs_testing::campaign::Case;
use loamfs_testing::generate::Generator;
use loamfs_testing::loam::Loam;
use loamfs_testing::ops::Op;
use loamfs_testing::problem::Verdict;
use loamfs_testing::runner::Runner;
use loamfs_testing::subject::System;
use loamfs_testing::tree::must;
use xxhash_rust::xxh3::Xxh3Default;

const USAGE: &str = "traces [--seed N] [--seeds K] [--ops M]

  Runs K seeds from N on, M operations each, and prints requests, bytes, flushes, and the sum of it all.";

/// Sums requests up in the order in which they go down.
#[derive(Default)]
struct Sum(Mutex<Xxh3Default>);

impl Observer for Sum {
    fn issued(&self, request: Issued) {
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sum.update(format!("{request:?}").as_bytes());
    }
}

/// What a run asked of its device.
struct Trace {
    counters: Counters,
    sum: u64,
}

fn trace(case: &Case, ops: usize) -> Verdict<Trace> {
    let system = Loam {
        check: false,
        ..Loam::default()
    };
    let geometry = &case.geometry;
    let memory = MemoryDevice::new(geometry.size).with_sector_size(geometry.sector);
    let device = Arc::new(ObservedDevice::new(
        RecordingDevice::new(memory),
        Sum::default(),
    ));
    must(system.format(device.clone(), geometry, case.seed), || {
        "mkfs".to_owned()
    })?;
    let mut runner = Runner::fresh(&system, device.clone(), case.opening)?;
    let mut generator = Generator::new(case.seed, case.profile, case.geometry, &runner.model);
    for _ in 0..ops {
        let op = generator.next(&runner.model);
        if op == Op::Remount {
            runner.close()?;
            runner.open()?;
        } else {
            runner.step(&op)?;
        }
    }
    runner.close()?;
    let mut sum = device
        .observer()
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for event in device.inner().events() {
        if let Event::Write { data, .. } = event {
            sum.update(&data);
        }
    }
    Ok(Trace {
        counters: device.counters(),
        sum: sum.digest(),
    })
}

fn settings() -> Result<(u64, u64, usize), String> {
    let mut args = Args::from_env()?;
    let settings = (
        args.or("seed", 1)?,
        args.or("seeds", 100)?,
        args.or("ops", 1_500)?,
    );
    args.finish()?;
    Ok(settings)
}

fn main() -> ExitCode {
    let (first, seeds, ops) = match settings() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    for seed in first..first + seeds {
        match trace(&Case::of(seed, None), ops) {
            Ok(Trace { counters, sum }) => {
                let total = counters.total();
                println!(
                    "{seed}: {} reads of {} bytes, {} writes of {}, {} flushes, {} discards, {sum:016x}",
                    total.reads,
                    total.read_bytes,
                    total.writes,
                    total.write_bytes,
                    counters.flushes(),
                    counters.discards()
                );
            }
            Err(problem) => {
                eprintln!("{seed}: {problem}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
