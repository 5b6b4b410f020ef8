//! Runs the model test for as long as it is told to.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use loamfs_testing::args::Args;
use loamfs_testing::campaign::{self, Case};
use loamfs_testing::generate::profile::Profile;
use loamfs_testing::loam::Loam;
use loamfs_testing::shrink::Limit;
use loamfs_testing::watchdog::Watchdog;

const USAGE: &str = "model [--seed N] [--seeds K] [--ops M] [--seconds T] [--profile NAME]
      [--shrink SECONDS] [--keep-going] [--no-check]

  Runs K seeds from N on, M operations each, for at most T seconds.";

/// A case that takes longer than this hangs.
const CASE_MAX: Duration = Duration::from_secs(900);

struct Settings {
    seed: u64,
    seeds: u64,
    ops: usize,
    seconds: u64,
    profile: Option<Profile>,
    shrink: Duration,
    keep_going: bool,
    check: bool,
}

fn settings() -> Result<Settings, String> {
    let mut args = Args::from_env()?;
    let profile = match args.get::<String>("profile")? {
        None => None,
        Some(name) => {
            Some(Profile::named(&name).ok_or_else(|| format!("{name}: no such profile"))?)
        }
    };
    let settings = Settings {
        seed: args.or("seed", 1)?,
        seeds: args.or("seeds", 70)?,
        ops: args.or("ops", 15_000)?,
        seconds: args.or("seconds", 3600)?,
        profile,
        shrink: Duration::from_secs(args.or("shrink", 60)?),
        keep_going: args.or("keep-going", false)?,
        check: !args.or("no-check", false)?,
    };
    args.finish()?;
    Ok(settings)
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("LOAMFS_LOG"))
        .with_writer(std::io::stderr)
        .init();
    let settings = match settings() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let system = Loam {
        check: settings.check,
    };
    let start = Instant::now();
    let watchdog = Watchdog::start(CASE_MAX + settings.shrink);
    let (mut ops, mut no_space, mut runs, mut failed) = (0, 0, 0, 0);
    for seed in settings.seed..settings.seed + settings.seeds {
        if start.elapsed().as_secs() >= settings.seconds {
            break;
        }
        let case = Case::of(seed, settings.profile);
        watchdog.enter(Some(case.to_string()));
        let began = Instant::now();
        runs += 1;
        match campaign::run(&system, &case, settings.ops, Limit::Time(settings.shrink)) {
            Ok(figures) => {
                ops += figures.ops;
                no_space += figures.no_space;
                println!(
                    "{case}: {} operations, {} without space, {:.1} s",
                    figures.ops,
                    figures.no_space,
                    began.elapsed().as_secs_f32()
                );
            }
            Err(report) => {
                failed += 1;
                println!("FAILED {report}");
                if !settings.keep_going {
                    break;
                }
            }
        }
    }
    let seconds = start.elapsed().as_secs_f32();
    println!(
        "{runs} runs, {failed} failed: {ops} operations, {no_space} without space, {seconds:.0} s"
    );
    ExitCode::from(u8::from(failed > 0))
}
