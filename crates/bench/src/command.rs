//! The command line, which people know as `loamfs bench`.

mod ceiling;
mod claims;
mod clean;
mod elapsed;
mod emulate;
mod fill;
mod generate;
mod guest;
mod hash;
mod mount;
mod plan;
mod replay;
mod report;
mod requests;
mod rounds;
mod run;
mod settler;
mod streams;
mod tiers;
mod tracks;
mod volume;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use loamfs_console::complete::Asked;
use loamfs_console::{Front, Kind, complaint, lines, sibling};

use crate::Error;

/// The program's name, and the words by which people call it.
const NAME: &str = "loamfs-bench";
const CALLED: &str = "loamfs bench";

/// Measure file systems by what they ask of a disk, and price that on disks of a model.
#[derive(Debug, Parser)]
#[command(name = NAME, bin_name = CALLED, version, disable_help_subcommand = true, max_term_width = lines::COLUMNS_MAX)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

/// What can be measured and told. Each command describes itself where its arguments are defined.
#[derive(Debug, Subcommand)]
enum Bench {
    Run(run::RunArgs),
    Emulate(emulate::EmulateArgs),
    Replay(replay::ReplayArgs),
    Report(report::ReportArgs),
    Claims(claims::ClaimsArgs),
    Requests(requests::RequestsArgs),
    Mount(mount::MountArgs),
    Elapsed(elapsed::ElapsedArgs),
    Streams(streams::StreamsArgs),
    Tiers(tiers::TiersArgs),
    Hash(hash::HashArgs),
    Settler(settler::SettlerArgs),
    Clean(clean::CleanArgs),
    Tracks(tracks::TracksArgs),
    #[command(hide = true)]
    Ceiling(ceiling::CeilingArgs),
    #[command(hide = true)]
    Fill(fill::FillArgs),
    #[command(hide = true)]
    Guest(guest::GuestArgs),
    #[command(hide = true)]
    GenerateMan(generate::ManArgs),
}

impl Bench {
    /// Carries it out; `false` if something that is promised does not hold.
    fn run(self) -> Result<bool, Error> {
        match self {
            Bench::Run(args) => args.run().map(|()| true),
            Bench::Emulate(args) => args.run().map(|()| true),
            Bench::Replay(args) => args.run().map(|()| true),
            Bench::Report(args) => args.run().map(|()| true),
            Bench::Claims(args) => args.run(),
            Bench::Requests(args) => args.run().map(|()| true),
            Bench::Mount(args) => args.run(),
            Bench::Elapsed(args) => args.run().map(|()| true),
            Bench::Streams(args) => args.run().map(|()| true),
            Bench::Tiers(args) => args.run().map(|()| true),
            Bench::Hash(args) => args.run().map(|()| true),
            Bench::Settler(args) => args.run(),
            Bench::Clean(args) => args.run().map(|()| true),
            Bench::Tracks(args) => args.run().map(|()| true),
            Bench::Ceiling(args) => args.run().map(|()| true),
            Bench::Fill(args) => args.run().map(|()| true),
            Bench::Guest(args) => args.run().map(|()| true),
            Bench::GenerateMan(args) => args.run().map(|()| true),
        }
    }
}

/// Does what the arguments say, and returns the exit code: 1 if something that is promised does not hold.
///
/// # Errors
/// Another exit code, and why it could not be done.
pub fn run(arguments: &[OsString]) -> Result<u8, (u8, String)> {
    if let Some(asked) = Asked::of(arguments) {
        let answered = asked.answer(arguments, Cli::command);
        let failed = |error: io::Error| (Kind::Io.code(Front::General), error.to_string());
        return answered.map(|()| 0).map_err(failed);
    }
    match Cli::try_parse_from(arguments) {
        Ok(cli) => match cli.bench.run() {
            Ok(holds) => Ok(u8::from(!holds)),
            Err(error) => Err((kind(&error).code(Front::General), error.to_string())),
        },
        Err(error) => match complaint(&error) {
            None => Ok(0),
            Some(said) => Err((Kind::Usage.code(Front::General), said)),
        },
    }
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::Io { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => Kind::NoInput,
            io::ErrorKind::PermissionDenied => Kind::NoPermission,
            _ => Kind::Io,
        },
        Error::NotRoot => Kind::NoPermission,
        Error::Missing(_) => Kind::NoInput,
        Error::Data { .. } => Kind::Data,
        Error::Lacking(_) => Kind::Usage,
        _ => Kind::Io,
    }
}

fn need_root() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::NotRoot)
}

/// Prints to standard output.
fn print(text: &str) -> Result<(), Error> {
    let printed = io::stdout().write_all(text.as_bytes());
    printed.map_err(|source| Error::Io {
        what: "printing".into(),
        source,
    })
}

/// Tells whoever waits what is done now. If nobody listens, nothing is lost.
fn tell(what: &str) {
    lines::tell(&format!("{CALLED}: {what}"));
}

/// The `loamfs` program, which makes volumes and mounts them.
fn loamfs() -> Result<PathBuf, Error> {
    Ok(sibling::find("loamfs", "sbin")?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_promised_call_parses() {
        for line in [
            "run --suite papers --scale small --out results.json --work /tmp",
            "run --only postmark --count 50000 --device 8 --fs f2fs --out results.json",
            "emulate --kernel /tmp/kernel --only postmark --fs nilfs2 --out results.json",
            "replay a.trace.gz --preset reference --json",
            "report results.json --html report.html",
            "claims --only create --work /tmp",
            "tracks --only deep --files 1000 --reads 100 --volume 256 --json",
            "hash --runs 2 --part 100 --json",
            "requests --files 10 --work /tmp --json",
            "mount --files 10 --rounds 1 --clients 1,2 --processors 1 --fs loamfs --fs ceiling --work /tmp --json",
            "elapsed --files 100 --rounds 1 --fs loamfs --fs ext4 --work /tmp --json",
            "streams --mib 64 --streams 1,4 --rounds 1 --throttle 250 --fs loamfs --work /tmp --json",
        ] {
            let words = std::iter::once(NAME).chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
