//! Harms volumes for as long as it is told to.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use loamfs_testing::args::Args;
use loamfs_testing::rot::{Case, Harm, LARGE, Met, SMALL, Site, cases, harm, scrub};

const USAGE: &str = "rot [--seed N] [--cases K] [--seconds T]
rot --scrub [--seed N] [--cases K] [--seconds T]
rot --every-bit [--from N] [--cases K] [--seconds T]

  Does the harm of seeds N, N + 1 and so on, K times at most, for at most T seconds.
  --scrub flips a bit below a volume in use instead, and expects its scrub to find it.
  --every-bit flips every bit of all structures instead, from the Nth on, and says where it came to.
  It is four times as quick where freed memory is kept:
  GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864";

fn run() -> Result<u8, String> {
    let mut args = Args::from_env()?;
    let every_bit: bool = args.or("every-bit", false)?;
    let first: u64 = args.or(if every_bit { "from" } else { "seed" }, 0)?;
    let most: u64 = args.or("cases", u64::MAX)?;
    let time = Duration::from_secs(args.or("seconds", 3600)?);
    let scrub: bool = args.or("scrub", false)?;
    args.finish()?;
    if scrub {
        return scrubs(first, most, time);
    }
    let cases = cases(if every_bit { SMALL } else { LARGE }).map_err(|error| error.to_string())?;
    let sites: Result<Vec<_>, String> = cases.iter().map(Case::sites).collect();
    let sites = sites?;
    let all = match every_bit {
        true => sites.iter().flatten().map(|site| 8 * site.len).sum(),
        false => u64::MAX,
    };
    let end = first.saturating_add(most).min(all);
    let (began, mut met, mut bad) = (Instant::now(), [0u64; 3], 0);
    let mut next = first;
    while next < end && began.elapsed() < time {
        let (which, harm) = match every_bit {
            true => flip(&sites, next).ok_or("there is no such bit")?,
            false => {
                let which = next as usize % cases.len();
                (which, harm(&cases[which], &sites[which], next))
            }
        };
        match exercise(&cases[which], &harm) {
            Ok(outcome) => met[outcome as usize] += 1,
            Err(error) => {
                println!("{next}: {}: {harm:?}: {error}", cases[which].name);
                bad += 1;
            }
        }
        next += 1;
    }
    let [whole, refused, unreadable] = met;
    println!("{whole} whole, {refused} refused, {unreadable} unreadable, {bad} failed");
    if every_bit {
        println!("bits {first} to {next} of {all}");
    }
    Ok(u8::from(bad > 0))
}

/// Flips bits below volumes that are scrubbed then.
fn scrubs(first: u64, most: u64, time: Duration) -> Result<u8, String> {
    let image = scrub::volume().map_err(|error| error.to_string())?;
    let (began, mut met, mut bad) = (Instant::now(), [0u64; 2], 0);
    for seed in first..first.saturating_add(most) {
        if began.elapsed() >= time {
            break;
        }
        match scrub::exercise(&image, seed) {
            Ok(outcome) => met[outcome as usize] += 1,
            Err(error) => {
                println!("{seed}: {error}");
                bad += 1;
            }
        }
    }
    let [healed, found] = met;
    println!("{healed} healed, {found} found, {bad} failed");
    Ok(u8::from(bad > 0))
}

fn exercise(case: &Case, harm: &Harm) -> Result<Met, String> {
    let image = case.harmed(harm)?;
    let met = case.meet(&image)?;
    if met == Met::Refused {
        case.accept(&image)?;
    }
    Ok(met)
}

/// The flip of the bit of this number, over all cases.
fn flip(sites: &[Vec<Site>], bit: u64) -> Option<(usize, Harm)> {
    let mut left = bit;
    for (which, sites) in sites.iter().enumerate() {
        for Site { what, at, len } in sites {
            if left < 8 * len {
                let (what, at, bit) = (what.clone(), at + left / 8, (left % 8) as u8);
                return Some((which, Harm::Flip { what, at, bit }));
            }
            left -= 8 * len;
        }
    }
    None
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
