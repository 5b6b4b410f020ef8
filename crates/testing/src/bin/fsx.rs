//! Data integrity on a real mount, with kills between, for as long as it is told to.

use std::path::PathBuf;
use std::process::ExitCode;

use loamfs_testing::args::Args;
use loamfs_testing::fsx::conductor::{self, Settings};
use loamfs_testing::fsx::worker;

const USAGE: &str = "fsx --loamfs PROGRAM --work DIRECTORY [--seed N] [--ops M] [--seconds T]
      [--processes K] [--size BYTES] [--deltas true|false] [--fast BYTES [--copy each|behind]]

  Needs root. Makes an image and a mount point in the directory; K processes do M operations together. With --fast a fast
  device is beside it, and with --copy its log stands twice.";

fn settings(args: &mut Args) -> Result<Settings, String> {
    Ok(Settings {
        loamfs: args.get("loamfs")?.ok_or("--loamfs is missing")?,
        work: args.get("work")?.ok_or("--work is missing")?,
        seed: args.or("seed", 1)?,
        ops: args.or("ops", 1_000_000)?,
        seconds: args.or("seconds", 3600)?,
        processes: args.or("processes", 4)?,
        size: args.or("size", "256M".to_owned())?,
        deltas: args.or("deltas", true)?,
        fast: args.get("fast")?,
        copy: args.get("copy")?,
    })
}

fn run() -> Result<ExitCode, String> {
    let mut args = Args::from_env()?;
    if let Some(dir) = args.get::<PathBuf>("worker")? {
        let seed = args.or("seed", 1)?;
        worker::obey(&dir, seed).map_err(|error| error.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = settings(&mut args)?;
    args.finish()?;
    match conductor::run(&settings) {
        Ok(figures) => {
            println!(
                "fsx: passed, seed {}: {} operations, {} clean remounts, {} kills, {} checks, {} copies read alone",
                settings.seed,
                figures.ops,
                figures.remounts,
                figures.kills,
                figures.checks,
                figures.copies
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(problem) => {
            println!("fsx: FAILED, seed {}: {problem}", settings.seed);
            Ok(ExitCode::FAILURE)
        }
    }
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("{error}\n{USAGE}");
        ExitCode::from(2)
    })
}
