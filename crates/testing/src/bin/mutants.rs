//! Leaves out one clause of the rules after the other and demands that the crash explorer notices.
//!
//! `mutants [--seed N] [--seconds T] [--only NAME]`: T seconds at most for each. `--only none` leaves nothing out and
//! must find nothing.

use std::process::ExitCode;
use std::time::Duration;

use loamfs_format::mutant;
use loamfs_testing::args::Args;
use loamfs_testing::explore::cases::{Case, GEOMETRIES, all_singles, combined, long};
use loamfs_testing::explore::fleet::{Orders, run};
use loamfs_testing::explore::hunt::Effort;
use loamfs_testing::loam::Loam;
use loamfs_testing::rng::Rng;

/// Clauses by rule, as the executable model names them.
const MUTANTS: [(&str, &str); 24] = [
    ("no-durable", "4: summaries carry no `durable`"),
    (
        "verify-everything",
        "4: bodies up to `durable` are verified too",
    ),
    ("no-token", "4: the chain follows address and SSN only"),
    ("no-mount-segment", "4: recovery appends where it stopped"),
    (
        "accept-early",
        "4: changes are accepted before recovery's segment is durable",
    ),
    (
        "recovery-without-flush",
        "4: recovery trusts a volatile cache",
    ),
    (
        "adopted-unnamed",
        "4: recovery does not name the checkpoint that it adopted",
    ),
    (
        "recovery-reuses-freed",
        "5: recovery takes everything free for reusable",
    ),
    (
        "dead-durable",
        "5: `durable` of a summary that was not adopted allows reuse",
    ),
    (
        "reuse-at-once",
        "5: freed space is reusable when K is sealed",
    ),
    (
        "reuse-when-durable",
        "5: freed space is reusable when K is durable",
    ),
    (
        "reuse-when-said",
        "5: ... when a summary says so that is not durable itself",
    ),
    (
        "retire-at-checkpoint",
        "5: old maps and summaries go when a checkpoint is sealed",
    ),
    (
        "superblock-early",
        "5: the superblock is written before its checkpoint is durable",
    ),
    (
        "newest-slot",
        "5: the superblock copy that holds the newest is overwritten",
    ),
    (
        "one-superblock",
        "5: one copy that names a later checkpoint is enough",
    ),
    (
        "show-unflushed",
        "3: extents are shown before their data is durable",
    ),
    (
        "old-home-kept",
        "3: the segment that shows a new home does not free the old one",
    ),
    (
        "settle-early",
        "7: an image settles before its segment is durable",
    ),
    (
        "settled-unflushed",
        "7: J is freed before the device of S was flushed",
    ),
    ("no-revoke", "7: freeing S leaves its map entry"),
    (
        "small-reserve",
        "10: the reserve holds one checkpoint, not two",
    ),
    (
        "replay-keeps-free",
        "5: replay keeps a pending free that was allocated again",
    ),
    (
        "unshown-in-bitmap",
        "9: a checkpoint counts extents that no segment shows yet",
    ),
];

fn cases(seed: u64) -> Vec<Case> {
    let mut rng = Rng::new(seed);
    let mut singles: Vec<Case> = GEOMETRIES.into_iter().flat_map(all_singles).collect();
    let mut cases: Vec<Case> = (seed..seed + 6).map(|seed| long(seed, 150)).collect();
    for _ in 0..200 {
        cases.push(singles.swap_remove(rng.index(singles.len())));
        cases.push(combined(rng.index(1 << 20) as u64));
    }
    cases
}

fn main() -> ExitCode {
    let mut args = match Args::from_env() {
        Ok(args) => args,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    let seed = args.or("seed", 1).unwrap_or(1);
    let seconds = args.or("seconds", 120).unwrap_or(120);
    let only: Option<String> = args.get("only").unwrap_or(None);
    let Some(only) = only else {
        return campaign(seed, seconds);
    };
    if only == "none" {
        let outcome = run(&Loam { check: true }, &cases(seed), orders(seconds));
        outcome
            .reports
            .iter()
            .for_each(|report| println!("{report}"));
        println!(
            "{:24} {} failures  {}",
            "none",
            outcome.reports.len(),
            outcome.tally
        );
        return ExitCode::from(u8::from(!outcome.reports.is_empty()));
    }
    let Some((name, rule)) = MUTANTS.into_iter().find(|(name, _)| *name == only) else {
        println!("{only}: no such clause");
        return ExitCode::from(2);
    };
    mutant::set(Some(name));
    let outcome = run(&Loam { check: true }, &cases(seed), orders(seconds));
    let caught = !outcome.reports.is_empty();
    let verdict = if caught { "caught" } else { "SURVIVES" };
    println!("{name:24} {verdict:9} {} | {rule}", outcome.tally);
    ExitCode::from(u8::from(!caught))
}

fn orders(seconds: u64) -> Orders {
    Orders {
        effort: Effort::QUICK,
        time: Duration::from_secs(seconds),
        shrinking: Duration::ZERO,
        keep_going: false,
        hang: Duration::from_secs(seconds + 60),
        print: false,
        threads: 2,
    }
}

/// Every clause in a process of its own: some mutants do not come to an end, which is noticed too.
fn campaign(seed: u64, seconds: u64) -> ExitCode {
    let (mut survivors, exe) = (0, std::env::current_exe());
    for (name, rule) in MUTANTS {
        let Ok(exe) = &exe else {
            return ExitCode::from(2);
        };
        let arguments = [
            "--only",
            name,
            "--seed",
            &seed.to_string(),
            "--seconds",
            &seconds.to_string(),
        ];
        let output = std::process::Command::new(exe).args(arguments).output();
        let Ok(output) = output else {
            return ExitCode::from(2);
        };
        match output.status.code() {
            Some(0) => print!("{}", String::from_utf8_lossy(&output.stdout)),
            Some(1) if output.stdout.starts_with(name.as_bytes()) => {
                survivors += 1;
                print!("{}", String::from_utf8_lossy(&output.stdout));
            }
            _ => println!("{name:24} caught    it does not come to an end | {rule}"),
        }
    }
    println!("{survivors} survive");
    ExitCode::from(u8::from(survivors > 0))
}
