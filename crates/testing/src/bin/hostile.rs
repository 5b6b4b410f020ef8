//! Runs hostile images for as long as it is told to.

use std::process::ExitCode;
use std::time::Duration;

use loamfs_testing::args::Args;
use loamfs_testing::hostile::campaign::Campaign;
use loamfs_testing::hostile::meter::Meter;

const USAGE: &str = "hostile [--seed N] [--cases K] [--seconds T] [--keep-going] [--tell]

  Runs the cases of seeds N, N + 1 and so on, K at most, for at most T seconds.
  --tell says first what the case of seed N changes.";

#[global_allocator]
static METER: Meter = Meter::new();

fn run() -> Result<u8, String> {
    let mut args = Args::from_env()?;
    let seed: u64 = args.or("seed", 1)?;
    let cases: u64 = args.or("cases", u64::MAX - seed)?;
    let time = Duration::from_secs(args.or("seconds", 3600)?);
    let keep_going: bool = args.or("keep-going", false)?;
    let tell: bool = args.or("tell", false)?;
    args.finish()?;
    if !cfg!(debug_assertions) {
        return Err("sums that overflow go unnoticed in a release build".into());
    }
    let campaign = Campaign::new().map_err(|error| error.to_string())?;
    if tell {
        let story = campaign.story(seed).map_err(|error| error.to_string())?;
        println!("{}", story.join("\n"));
    }
    let (mut next, mut bad, mut slowest) = (seed, 0, Default::default());
    let began = std::time::Instant::now();
    while next < seed.saturating_add(cases) && (bad == 0 || keep_going) {
        let left = time.saturating_sub(began.elapsed());
        let until = seed.saturating_add(cases).min(next + 500);
        let outcome = campaign.run(next..until, left, &METER);
        for failed in &outcome.failed {
            println!(
                "seed {} failed:\n  {}",
                failed.seed,
                failed.story.join("\n  ")
            );
        }
        bad += outcome.failed.len();
        next += outcome.cases;
        slowest = outcome.slowest.max(slowest);
        if outcome.cases == 0 {
            break;
        }
    }
    println!(
        "{} cases from seed {seed} on, {bad} failed; {:.0} s, the slowest {:.1} s (seed {})",
        next - seed,
        began.elapsed().as_secs_f32(),
        slowest.0.as_secs_f32(),
        slowest.1
    );
    Ok(u8::from(bad > 0))
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
