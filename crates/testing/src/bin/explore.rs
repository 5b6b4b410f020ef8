//! Runs the crash explorer for as long as it is told to.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use loamfs_testing::args::Args;
use loamfs_testing::explore::cases::{
    Case, GEOMETRIES, all_carrying, all_cleaning, all_forming, all_singles, combined,
    combined_carrying, combined_cleaning, combined_forming, long,
};
use loamfs_testing::explore::changes;
use loamfs_testing::explore::fleet::{Orders, Outcome, Slice, run_in_turn};
use loamfs_testing::explore::hunt::Effort;
use loamfs_testing::explore::names::named;
use loamfs_testing::geometry::Geometry;
use loamfs_testing::loam::{DELTAS_TURNING, LOG_TURNING, Loam, TURNING};
use loamfs_testing::pair::Pair;
use loamfs_testing::rng::Rng;
use loamfs_testing::several::Several;
use loamfs_testing::subject::System;
use loamfs_testing::without::Without;

const USAGE: &str = "explore [--seed N] [--seconds T] [--singles N] [--pairs N] [--long N]
        [--changes N] [--ops M] [--states K] [--quick] [--threads N] [--hang SECONDS] [--shrink SECONDS]
        [--keep-going] [--no-check] [--scatter] [--only CASE] [--volumes PROFILE] [--tiered]

  Singles: every operation from every start with everything that may follow, or
  N of them chosen by the seed. Pairs: two or three with commits between them.
  Long: M random operations. Changes: N times every change of a volume's devices,
  with other operations around it. Scatter: segments take the lowest holes, each block
  one of its own, so that space is reused at once and writes land apart. Tiered:
  volumes of a fast device and a slow one, between which large files are carried.
  On the volumes hfs-turning and hfs-deltas-turning small files settle into tracks by the clock.
  On the volumes lfs-deltas-turning large files that were written over in pieces are put in order.
  The seed chooses among crashes too, and the order of all cases: whatever the
  seconds suffice for has some of each kind. Half of them are for changes.";

struct Settings {
    cases: Vec<Case>,
    orders: Orders,
    system: Loam,
    tiered: bool,
}

fn settings() -> Result<Settings, String> {
    let mut args = Args::from_env()?;
    let seed: u64 = args.or("seed", 1)?;
    let mut effort = if args.or("quick", false)? {
        Effort::QUICK
    } else {
        Effort::THOROUGH
    };
    effort.states = args.or("states", effort.states)?;
    effort.seed = seed;
    let orders = Orders {
        effort,
        time: Duration::from_secs(args.or("seconds", 3600)?),
        shrinking: Duration::from_secs(args.or("shrink", 60)?),
        keep_going: args.or("keep-going", false)?,
        hang: Duration::from_secs(args.or("hang", 120)?),
        print: true,
        threads: args.or(
            "threads",
            std::thread::available_parallelism().map_or(1, usize::from),
        )?,
    };
    let only: Option<String> = args.get("only")?;
    let singles: usize = args.or("singles", usize::MAX)?;
    let pairs: u64 = args.or("pairs", 300)?;
    let longs: u64 = args.or("long", 30)?;
    let changed: u64 = args.or("changes", 20)?;
    let ops: usize = args.or("ops", 200)?;
    let check = !args.or("no-check", false)?;
    let volumes: String = args.or("volumes", "hfs".to_owned())?;
    let tiered = args.or("tiered", false)?;
    let without = Without::default().scattered(args.or("scatter", false)?);
    args.finish()?;
    let cases = match only {
        Some(name) => vec![named(&name).ok_or_else(|| format!("{name}: no such case"))?],
        None => {
            let (of, combination) = kinds(tiered, &volumes);
            let all = GEOMETRIES.into_iter().flat_map(of).collect();
            let mut cases = drawn(all, singles, seed);
            cases.extend((seed..seed + pairs).map(combination));
            cases.extend((seed..seed + longs).map(|seed| long(seed, ops)));
            if !tiered {
                cases.extend((seed..seed + changed).flat_map(changes::all));
            }
            drawn(cases, usize::MAX, seed)
        }
    };
    Ok(Settings {
        cases,
        orders,
        system: Loam {
            check,
            without,
            ..Loam::default()
        }
        .on(&volumes)?,
        tiered,
    })
}

/// All singles of a shape.
type Singles = fn((&'static str, Geometry)) -> Vec<Case>;

/// The cases for such volumes: what these are for comes up in each.
fn kinds(tiered: bool, volumes: &str) -> (Singles, fn(u64) -> Case) {
    match (tiered, volumes) {
        (true, _) => (all_carrying, combined_carrying),
        (false, TURNING | DELTAS_TURNING) => (all_forming, combined_forming),
        (false, LOG_TURNING) => (all_cleaning, combined_cleaning),
        (false, _) => (all_singles, combined),
    }
}

/// So many cases of all, or all, in an order that the seed gives.
fn drawn(mut all: Vec<Case>, count: usize, seed: u64) -> Vec<Case> {
    let mut rng = Rng::new(seed);
    let mut cases = Vec::new();
    while cases.len() < count && !all.is_empty() {
        cases.push(all.swap_remove(rng.index(all.len())));
    }
    cases
}

fn main() -> ExitCode {
    let settings = match settings() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let (changing, plain): (Vec<Case>, Vec<Case>) =
        settings.cases.into_iter().partition(changes::is_one);
    let several = Several {
        loam: settings.system.clone(),
    };
    let pair = Pair {
        loam: settings.system.clone(),
        ..Pair::default()
    };
    let system: &dyn System = if settings.tiered {
        &pair
    } else {
        &settings.system
    };
    let slices: [Slice<'_>; 2] = [(system, &plain), (&several, &changing)];
    let some: Vec<Slice<'_>> = slices
        .into_iter()
        .filter(|(_, cases)| !cases.is_empty())
        .collect();
    let mut failed = false;
    run_in_turn(&some, settings.orders, |cases, outcome| {
        say(cases, outcome, began);
        failed |= !outcome.reports.is_empty();
    });
    ExitCode::from(u8::from(failed))
}

/// Says what came of some cases.
fn say(cases: &[Case], outcome: &Outcome, began: Instant) {
    let Outcome {
        tally,
        reports,
        repeated,
    } = outcome;
    println!(
        "{} of {} cases: {tally}; {} kinds of failure, {repeated} more alike; {:.0} s",
        tally.cases,
        cases.len(),
        reports.len(),
        began.elapsed().as_secs_f32()
    );
}
