//! Runs the model test for as long as it is told to.

use std::process::ExitCode;
use std::time::Duration;

use loamfs_testing::args::Args;
use loamfs_testing::campaign::{self, Case};
use loamfs_testing::generate::profile::Profile;
use loamfs_testing::loam::Loam;
use loamfs_testing::seeds::Seeds;
use loamfs_testing::shrink::Limit;

const USAGE: &str = "model [--seed N] [--seeds K] [--ops M] [--seconds T] [--profile NAME]
      [--shrink SECONDS] [--keep-going] [--no-check] [--volumes PROFILE]

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
    system: Loam,
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
        system: Loam {
            check: !args.or("no-check", false)?,
            ..Loam::default()
        }
        .on(&args.or("volumes", "hfs".to_owned())?)?,
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
        case_max: CASE_MAX + settings.shrink,
    };
    let (mut ops, mut no_space) = (0, 0);
    let ran = seeds.run(
        |seed| Case::of(seed, settings.profile),
        |case| {
            let limit = Limit::Time(settings.shrink);
            let figures = campaign::run(&settings.system, case, settings.ops, limit)
                .map_err(|report| report.to_string())?;
            ops += figures.ops;
            no_space += figures.no_space;
            Ok(format!(
                "{} operations, {} without space",
                figures.ops, figures.no_space
            ))
        },
    );
    println!(
        "{} runs, {} failed: {ops} operations, {no_space} without space, {:.0} s",
        ran.cases, ran.failed, ran.seconds
    );
    ExitCode::from(u8::from(ran.failed > 0))
}
