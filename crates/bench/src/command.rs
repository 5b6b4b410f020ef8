//! The command line: `loamfs bench`.

mod claims;
mod emulate;
mod fill;
mod guest;
mod plan;
mod replay;
mod report;
mod run;

use std::io::Write;

use clap::Subcommand;

use crate::Error;

/// What can be measured and told.
#[derive(Debug, Subcommand)]
#[expect(
    missing_docs,
    reason = "each command describes itself where its arguments are defined"
)]
pub enum Bench {
    Run(run::RunArgs),
    Emulate(emulate::EmulateArgs),
    Replay(replay::ReplayArgs),
    Report(report::ReportArgs),
    Claims(claims::ClaimsArgs),
    #[command(hide = true)]
    Fill(fill::FillArgs),
    #[command(hide = true)]
    Guest(guest::GuestArgs),
}

impl Bench {
    /// Carries it out; `false` if something that is promised does not hold.
    ///
    /// # Errors
    /// If it could not be measured.
    pub fn run(self) -> Result<bool, Error> {
        match self {
            Bench::Run(args) => args.run().map(|()| true),
            Bench::Emulate(args) => args.run().map(|()| true),
            Bench::Replay(args) => args.run().map(|()| true),
            Bench::Report(args) => args.run().map(|()| true),
            Bench::Claims(args) => args.run(),
            Bench::Fill(args) => args.run().map(|()| true),
            Bench::Guest(args) => args.run().map(|()| true),
        }
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
    let printed = std::io::stdout().write_all(text.as_bytes());
    printed.map_err(|source| Error::Io {
        what: "printing".into(),
        source,
    })
}

/// Tells whoever waits what is done now. If nobody listens, nothing is lost.
fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "loamfs bench: {what}");
}

/// The `loamfs` program: this one, which has it all.
fn this_program() -> Result<std::path::PathBuf, Error> {
    std::env::current_exe().map_err(|source| Error::Io {
        what: "finding this program".into(),
        source,
    })
}
