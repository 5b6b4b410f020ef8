//! `loamfs-bench`: measures what the project promises.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use loamfs_bench::claims::{Claim, Scale, fill};
use loamfs_bench::lab::Tools;
use loamfs_bench::{Error, cleanup, table};

/// Measures LoamFS by what the kernel counts. Needs root.
#[derive(Debug, Parser)]
#[command(name = "loamfs-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compares what the project promises with what is measured; exit code 1 if anything does not hold.
    Claims(ClaimsArgs),
    /// Fills a file system with files of some size, and prints their number: one of several such processes.
    #[command(hide = true)]
    Fill { directory: PathBuf, bytes: usize },
}

#[derive(Debug, clap::Args)]
struct ClaimsArgs {
    /// Only these, instead of all that promise something.
    #[arg(long, value_name = "NAME")]
    only: Vec<Claim>,
    /// This many files instead of each claim's own number; the bounds stay.
    #[arg(long)]
    files: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Directory for images and mount points, on a file system with direct I/O and some 10 GiB of room.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// The loamfs program. Default: the one beside this program.
    #[arg(long, value_name = "FILE")]
    loamfs: Option<PathBuf>,
    /// Keep the traces in this directory, as text.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Mount options for LoamFS.
    #[arg(short, long)]
    options: Option<String>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Claims(args) => claims(&args),
        Command::Fill { directory, bytes } => fill(&directory, bytes).and_then(|count| {
            print(&format!("{count}\n"))?;
            Ok(true)
        }),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "loamfs-bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all that were asked for hold.
fn claims(args: &ClaimsArgs) -> Result<bool, Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Lacking(
            "loop devices, mounts and the kernel's tracing take root".into(),
        ));
    }
    cleanup::on_signals()?;
    let tools = Tools {
        work: std::path::absolute(&args.work).map_err(Error::at("finding", &args.work))?,
        loamfs: match &args.loamfs {
            Some(path) => path.clone(),
            None => beside()?,
        },
        options: args.options.clone(),
        traces: args.traces.clone(),
    };
    let scale = Scale { files: args.files };
    let promises = Claim::value_variants()
        .iter()
        .filter(|claim| claim.is_promise());
    let chosen: Vec<Claim> = if args.only.is_empty() {
        promises.copied().collect()
    } else {
        args.only.clone()
    };
    let mut rows = Vec::new();
    for claim in chosen {
        // Minutes pass; whoever waits wants to know for what.
        let name = claim.to_possible_value();
        let name = name.as_ref().map_or("", |value| value.get_name());
        let _ = writeln!(std::io::stderr(), "loamfs-bench: {name} ...");
        rows.extend(claim.run(&tools, scale)?);
    }
    let text = if args.json {
        serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n"
    } else {
        table::text(&rows)
    };
    print(&text)?;
    Ok(rows.iter().all(|row| row.holds != Some(false)))
}

fn print(text: &str) -> Result<(), Error> {
    let printed = std::io::stdout().write_all(text.as_bytes());
    printed.map_err(|source| Error::Io {
        what: "printing".into(),
        source,
    })
}

/// The `loamfs` program beside this one.
fn beside() -> Result<PathBuf, Error> {
    let path = std::env::current_exe()
        .map(|path| path.with_file_name("loamfs"))
        .map_err(|source| Error::Io {
            what: "finding this program".into(),
            source,
        })?;
    if path.exists() {
        return Ok(path);
    }
    Err(Error::Lacking(format!(
        "{} is missing; build it with `cargo build --release -p loamfs`, or name another with --loamfs",
        path.display()
    )))
}
