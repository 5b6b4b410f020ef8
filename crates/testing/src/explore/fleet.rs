//! Runs many cases on all cores, and cuts down what fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cases::{Case, Prepared, prepare};
use super::hunt::{Effort, Find, Tally};
use crate::ops::{Op, listing};
use crate::problem::{Problem, guarded};
use crate::shrink::{Limit, shrink};
use crate::subject::System;
use crate::watchdog::Watchdog;

/// A case that failed.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub case: String,
    /// The wrong state.
    pub find: Find,
    /// The operations that lead to it, as few as were found.
    pub ops: Vec<Op>,
    /// What the program `explore` takes for the same system, and for as much.
    pub arguments: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.case, self.find)?;
        writeln!(f, "  operations:")?;
        write!(f, "{}", listing(&self.ops))?;
        writeln!(
            f,
            "  again: cargo run --release -p loamfs-testing --bin explore -- {} --only '{}'",
            self.arguments, self.case
        )
    }
}

/// How many cases are run, and how.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// How far each goes.
    pub effort: Effort,
    /// No case begins after this long, but for the first of each thread.
    pub time: Duration,
    /// How long a failing case may be cut down.
    pub shrinking: Duration,
    /// Whether to go on after a failure; one of each kind is reported.
    pub keep_going: bool,
    /// Cases at the same time.
    pub threads: usize,
    /// How long a step of a case may take before it counts as hanging, which
    /// ends the process.
    pub hang: Duration,
    /// Whether failures are printed as soon as they are known.
    pub print: bool,
}

impl Orders {
    /// As tests run a slice.
    pub const SLICE: Orders = Orders {
        effort: Effort::QUICK,
        time: Duration::from_secs(600),
        shrinking: Duration::from_secs(30),
        keep_going: false,
        threads: 2,
        hang: Duration::from_secs(400),
        print: false,
    };
}

/// What became of all cases.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was done.
    pub tally: Tally,
    /// What failed.
    pub reports: Vec<Report>,
    /// Cases that failed as one that is reported.
    pub repeated: usize,
}

/// The volume on which cases start, or why it could not be made.
type Ready = Arc<Result<Prepared, Problem>>;

struct Fleet<'a> {
    system: &'a dyn System,
    orders: Orders,
    cases: &'a [Case],
    next: AtomicUsize,
    began: Instant,
    ready: Mutex<BTreeMap<(u64, u32, &'static str), Ready>>,
    outcome: Mutex<Outcome>,
    seen: Mutex<BTreeSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs cases.
pub fn run(system: &dyn System, cases: &[Case], orders: Orders) -> Outcome {
    let fleet = Fleet {
        system,
        orders,
        cases,
        next: AtomicUsize::new(0),
        began: Instant::now(),
        ready: Mutex::default(),
        outcome: Mutex::default(),
        seen: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..orders.threads {
            scope.spawn(|| fleet.work());
        }
    });
    fleet
        .outcome
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Some of the cases, and the system that they are for.
pub type Slice<'a> = (&'a dyn System, &'a [Case]);

/// Runs slices one after the other, and says what became of each. Each has as much of the time as the others, and what those before it
/// left. None is passed over because another one had too many cases.
pub fn run_in_turn(slices: &[Slice<'_>], orders: Orders, mut ended: impl FnMut(&[Case], &Outcome)) {
    let began = Instant::now();
    for (index, (system, cases)) in slices.iter().enumerate() {
        let time = part(orders.time, index, slices.len(), began.elapsed());
        let outcome = run(*system, cases, Orders { time, ..orders });
        ended(cases, &outcome);
        if !orders.keep_going && !outcome.reports.is_empty() {
            break;
        }
    }
}

/// How much of the time one of several slices has, if so much is gone.
fn part(time: Duration, index: usize, slices: usize, gone: Duration) -> Duration {
    let until = time.mul_f64((index + 1) as f64 / slices as f64);
    until.saturating_sub(gone)
}

impl Fleet<'_> {
    fn work(&self) {
        let watchdog = Watchdog::start(self.orders.hang);
        let next = || self.cases.get(self.next.fetch_add(1, Ordering::SeqCst));
        for case in std::iter::from_fn(next) {
            watchdog.enter(Some(case.name.clone()));
            self.case(case);
            watchdog.enter(None);
            let failed = !lock(&self.outcome).reports.is_empty();
            let late = self.began.elapsed() >= self.orders.time;
            if late || failed && !self.orders.keep_going {
                break;
            }
        }
    }

    /// Prepared volumes are made once and shared.
    fn prepared(&self, case: &Case) -> Ready {
        let key = (case.geometry.size, case.geometry.block, case.start);
        if let Some(ready) = lock(&self.ready).get(&key) {
            return ready.clone();
        }
        let made = guarded(|| prepare(self.system, &case.geometry, case.start));
        let ready = Arc::new(made);
        lock(&self.ready).entry(key).or_insert(ready).clone()
    }

    fn case(&self, case: &Case) {
        let ready = self.prepared(case);
        let none = |problem: &Problem| Report {
            case: case.name.clone(),
            find: Find {
                problem: problem.clone(),
                trail: Vec::new(),
            },
            ops: Vec::new(),
            arguments: self.arguments(),
        };
        let prepared = match &*ready {
            Ok(prepared) => prepared,
            Err(problem) => return self.report(none(problem)),
        };
        let ops = match guarded(|| case.listed(self.system, prepared)) {
            Ok(ops) => ops,
            Err(problem) => return self.report(none(&problem)),
        };
        let (tally, result) = case.run(self.system, prepared, &ops, self.orders.effort);
        lock(&self.outcome).tally.add(&tally);
        if let Err(find) = result {
            self.failed(case, prepared, ops, find);
        }
    }

    fn failed(&self, case: &Case, prepared: &Prepared, ops: Vec<Op>, find: Find) {
        // One of each kind is cut down; the rest is counted.
        if !lock(&self.seen).insert(find.problem.signature()) {
            lock(&self.outcome).repeated += 1;
            return;
        }
        let run = |ops: &[Op]| case.run(self.system, prepared, ops, self.orders.effort).1;
        let ops = shrink(&ops, Limit::Time(self.orders.shrinking), |ops| {
            run(ops).is_err_and(|other| other.problem.rule == find.problem.rule)
        });
        let find = run(&ops).err().unwrap_or(find);
        self.report(Report {
            case: case.name.clone(),
            find,
            ops,
            arguments: self.arguments(),
        });
    }

    fn arguments(&self) -> String {
        let (effort, system) = (self.orders.effort.arguments(), self.system.arguments());
        format!("{effort}{system}")
    }

    fn report(&self, report: Report) {
        let mut outcome = lock(&self.outcome);
        let signature = report.find.problem.signature();
        let known = |other: &Report| other.find.problem.signature() == signature;
        if outcome.reports.iter().any(known) {
            outcome.repeated += 1;
        } else {
            if self.orders.print {
                println!("FAILED {report}");
            }
            outcome.reports.push(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_its_part_of_the_time_and_what_others_left() {
        let seconds = Duration::from_secs;
        for (index, gone, left) in [(0, 0, 50), (1, 50, 50), (1, 10, 90), (1, 120, 0)] {
            assert_eq!(part(seconds(100), index, 2, seconds(gone)), seconds(left));
        }
    }
}
