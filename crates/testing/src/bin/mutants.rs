//! Leaves out one clause of the rules after the other, and shows what the crash explorer makes of it.
//!
//! `mutants [--only NAME] [--show] [--volumes PROFILE]`: every clause's own case, with the clause and without; `--show` prints
//! what the case writes. On other volumes than its own a case may not come to its clause: so it is where all is in the log with those of
//! homes and images.

use std::process::ExitCode;
use std::time::Instant;

use loamfs_testing::args::Args;
use loamfs_testing::explore::clauses::{CLAUSES, Missed};
use loamfs_testing::explore::directed::Directed;
use loamfs_testing::loam::Loam;
use loamfs_testing::without::Without;

fn main() -> ExitCode {
    let mut args = match Args::from_env() {
        Ok(args) => args,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    let only: Option<String> = args.get("only").unwrap_or(None);
    let volumes: Option<String> = args.get("volumes").unwrap_or(None);
    let on = match volumes.map(|name| Loam::default().on(&name)).transpose() {
        Ok(loam) => loam.map(|loam| loam.volumes),
        Err(error) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    let show = args.or("show", false).unwrap_or(false);
    let chosen = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let mut wrong = 0;
    for clause in CLAUSES.iter().filter(|clause| chosen(clause.name)) {
        let case = match clause.missed {
            Missed::Explorer(case) => case(),
            Missed::Patched(_) => {
                println!(
                    "{:24} has a build of its own | {}",
                    clause.name, clause.rule
                );
                continue;
            }
            Missed::Test => {
                println!("{:24} has a test of its own | {}", clause.name, clause.rule);
                continue;
            }
        };
        let case = match on {
            Some(volumes) => Directed { volumes, ..case },
            None => case,
        };
        if show {
            let nothing = ("nothing", Without::default());
            for (name, without) in [nothing, (clause.name, Without::clauses(clause.name))] {
                let text = case.describe(&without);
                let text = text.unwrap_or_else(|problem| problem.to_string());
                println!("without {name}\n{text}");
            }
        }
        wrong += u8::from(!judge(clause.name, &case));
    }
    println!("{wrong} not as they should be");
    ExitCode::from(u8::from(wrong > 0))
}

/// Whether the clause's case passes with it and fails without, having come to it.
fn judge(name: &'static str, case: &Directed) -> bool {
    let began = Instant::now();
    let whole = case.run(&Without::default());
    let between = Instant::now();
    let left_out = Without::clauses(name);
    let without = case.run(&left_out);
    let unreached = left_out.unreached();
    let times = format!(
        "{:.1} s, {:.1} s",
        (between - began).as_secs_f32(),
        between.elapsed().as_secs_f32()
    );
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    match (&whole, &without) {
        _ if !unreached.is_empty() => println!("{name:24} NEVER CAME TO {unreached:?} {times}"),
        (Err(find), _) => println!("{name:24} FAILS WITH IT {times}\n{find}"),
        (_, Ok(tally)) => println!("{name:24} SURVIVES {times}: {tally}"),
        (Ok(_), Err(find)) => println!("{:24} caught {times}: {}", name, first(find.to_string())),
    }
    whole.is_ok() && without.is_err() && unreached.is_empty()
}
