//! Fills volumes to the brim and empties them, for as long as it is told to.

use std::process::ExitCode;
use std::time::Duration;

use loamfs_testing::args::Args;
use loamfs_testing::brim::{Case, run};
use loamfs_testing::loam::Loam;
use loamfs_testing::problem::guarded;
use loamfs_testing::seeds::Seeds;

const USAGE: &str = "brim [--seed N] [--seeds K] [--seconds T] [--mib M] [--keep-going]
     [--volumes PROFILE]

  Runs K seeds from N on for at most T seconds, on volumes of at most M MiB.";

/// A case that takes longer than this hangs.
const CASE_MAX: Duration = Duration::from_secs(1800);

struct Settings {
    seed: u64,
    seeds: u64,
    seconds: u64,
    mib: u64,
    volumes: &'static str,
    keep_going: bool,
}

fn settings() -> Result<Settings, String> {
    let mut args = Args::from_env()?;
    let settings = Settings {
        seed: args.or("seed", 1)?,
        seeds: args.or("seeds", 1000)?,
        seconds: args.or("seconds", 600)?,
        mib: args.or("mib", 256)?,
        volumes: Loam::default()
            .on(&args.or("volumes", "hfs".to_owned())?)?
            .volumes,
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
    let seeds = Seeds {
        first: settings.seed,
        count: settings.seeds,
        seconds: settings.seconds,
        keep_going: settings.keep_going,
        case_max: CASE_MAX,
    };
    let (mut removed, mut crashes, mut overwritten) = (0, 0, 0);
    let ran = seeds.run(
        |seed| Case {
            volumes: settings.volumes,
            ..Case::of(seed, settings.mib << 20)
        },
        |case| {
            let figures = guarded(|| run(case)).map_err(|problem| format!("{case}: {problem}"))?;
            removed += figures.removed;
            crashes += figures.crashes;
            overwritten += figures.overwritten;
            Ok(format!(
                "{} made, {} written over, {} of them refused, {} removed, {} crashes",
                figures.made,
                figures.overwritten,
                figures.refused,
                figures.removed,
                figures.crashes
            ))
        },
    );
    println!(
        "{} runs, {} failed: {overwritten} overwrites, {removed} removals, {crashes} crashes, {:.0} s",
        ran.cases, ran.failed, ran.seconds
    );
    ExitCode::from(u8::from(ran.failed > 0))
}
