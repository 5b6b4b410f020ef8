//! Fills volumes to the brim and empties them, for as long as it is told to.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use loamfs_testing::args::Args;
use loamfs_testing::brim::{Case, run};
use loamfs_testing::problem::guarded;
use loamfs_testing::watchdog::Watchdog;

const USAGE: &str = "brim [--seed N] [--seeds K] [--seconds T] [--mib M] [--keep-going]

  Runs K seeds from N on for at most T seconds, on volumes of at most M MiB.";

/// A case that takes longer than this hangs.
const CASE_MAX: Duration = Duration::from_secs(1800);

struct Settings {
    seed: u64,
    seeds: u64,
    seconds: u64,
    mib: u64,
    keep_going: bool,
}

fn settings() -> Result<Settings, String> {
    let mut args = Args::from_env()?;
    let settings = Settings {
        seed: args.or("seed", 1)?,
        seeds: args.or("seeds", 1000)?,
        seconds: args.or("seconds", 600)?,
        mib: args.or("mib", 256)?,
        keep_going: args.or("keep-going", false)?,
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
    let start = Instant::now();
    let watchdog = Watchdog::start(CASE_MAX);
    let (mut runs, mut failed, mut removed, mut crashes) = (0, 0, 0, 0);
    for seed in settings.seed..settings.seed.saturating_add(settings.seeds) {
        if start.elapsed().as_secs() >= settings.seconds {
            break;
        }
        let case = Case::of(seed, settings.mib << 20);
        watchdog.enter(Some(case.to_string()));
        let began = Instant::now();
        runs += 1;
        match guarded(|| run(&case)) {
            Ok(figures) => {
                removed += figures.removed;
                crashes += figures.crashes;
                println!(
                    "{case}: {} made, {} removed, {} crashes, {:.1} s",
                    figures.made,
                    figures.removed,
                    figures.crashes,
                    began.elapsed().as_secs_f32()
                );
            }
            Err(problem) => {
                failed += 1;
                println!("FAILED {case}: {problem}");
                if !settings.keep_going {
                    break;
                }
            }
        }
    }
    let seconds = start.elapsed().as_secs_f32();
    println!("{runs} runs, {failed} failed: {removed} removals, {crashes} crashes, {seconds:.0} s");
    ExitCode::from(u8::from(failed > 0))
}
