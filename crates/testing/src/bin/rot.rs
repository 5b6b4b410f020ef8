//! Harms volumes for as long as it is told to.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use loamfs_testing::args::Args;
use loamfs_testing::rot::{Harm, Met, cases, harm};

const USAGE: &str = "rot [--seed N] [--cases K] [--seconds T] [--every-bit]

  Does the harm of seeds N, N + 1 and so on, K times at most, for at most T seconds.
  --every-bit flips every bit of all structures instead, from the Nth on.";

fn run() -> Result<u8, String> {
    let mut args = Args::from_env()?;
    let seed: u64 = args.or("seed", 0)?;
    let most: u64 = args.or("cases", u64::MAX - seed)?;
    let time = Duration::from_secs(args.or("seconds", 3600)?);
    let every_bit: bool = args.or("every-bit", false)?;
    args.finish()?;
    let cases = cases().map_err(|error| error.to_string())?;
    let sites: Result<Vec<_>, String> = cases.iter().map(|case| case.sites()).collect();
    let sites = sites?;
    let bits: Vec<(usize, Harm)> = match every_bit {
        true => flips(&sites),
        false => Vec::new(),
    };
    let (began, mut met, mut bad) = (Instant::now(), [0u64; 3], 0);
    for seed in seed..seed.saturating_add(most) {
        let (which, harm) = match (every_bit, bits.get(seed as usize)) {
            (true, Some((which, harm))) => (*which, harm.clone()),
            (true, None) => break,
            (false, _) => {
                let which = seed as usize % cases.len();
                (which, harm(&cases[which], &sites[which], seed))
            }
        };
        let case = &cases[which];
        let image = case.harmed(&harm)?;
        let outcome = case.meet(&image).and_then(|outcome| match outcome {
            Met::Refused => case.accept(&image).map(|()| outcome),
            _ => Ok(outcome),
        });
        match outcome {
            Ok(outcome) => met[outcome as usize] += 1,
            Err(error) => {
                println!("{seed}: {}: {harm:?}: {error}", case.name);
                bad += 1;
            }
        }
        if began.elapsed() > time {
            break;
        }
    }
    let [whole, refused, unreadable] = met;
    println!("{whole} whole, {refused} refused, {unreadable} unreadable, {bad} failed");
    Ok(u8::from(bad > 0))
}

fn flips(sites: &[Vec<(String, u64, u64)>]) -> Vec<(usize, Harm)> {
    let mut flips = Vec::new();
    for (which, sites) in sites.iter().enumerate() {
        for (what, start, len) in sites {
            for at in *start..start + len {
                flips.extend((0..8).map(|bit| {
                    let what = what.clone();
                    (which, Harm::Flip { what, at, bit })
                }));
            }
        }
    }
    flips
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
