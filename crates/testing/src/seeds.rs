//! Runs the cases of one seed after the other, for as long as a program is told to.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::watchdog::Watchdog;

/// Which cases a program runs.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first seed.
    pub first: u64,
    /// How many there are, at most.
    pub count: u64,
    /// No case begins after so many seconds.
    pub seconds: u64,
    /// Whether others follow one that failed.
    pub keep_going: bool,
    /// A case that takes longer than this hangs.
    pub case_max: Duration,
}

/// How it went.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Cases that were run.
    pub cases: u64,
    /// Those that failed.
    pub failed: u64,
    /// Seconds that it took.
    pub seconds: f32,
}

impl Seeds {
    /// Runs the cases, and prints a line of each: what `work` says that it did, or what is wrong.
    pub fn run<C: Display>(
        &self,
        case: impl Fn(u64) -> C,
        mut work: impl FnMut(&C) -> Result<String, String>,
    ) -> Ran {
        let start = Instant::now();
        let watchdog = Watchdog::start(self.case_max);
        let (mut cases, mut failed) = (0, 0);
        for seed in self.first..self.first.saturating_add(self.count) {
            if start.elapsed().as_secs() >= self.seconds {
                break;
            }
            let case = case(seed);
            watchdog.enter(Some(case.to_string()));
            let began = Instant::now();
            cases += 1;
            match work(&case) {
                Ok(done) => println!("{case}: {done}, {:.1} s", began.elapsed().as_secs_f32()),
                Err(wrong) => {
                    failed += 1;
                    println!("FAILED {wrong}");
                    if !self.keep_going {
                        break;
                    }
                }
            }
        }
        Ran {
            cases,
            failed,
            seconds: start.elapsed().as_secs_f32(),
        }
    }
}
