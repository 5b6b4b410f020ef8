//! `loamfs`: makes, mounts, checks and looks into LoamFS volumes. The same program is
//! `mkfs.loamfs`, `fsck.loamfs` and `mount.loamfs`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod adapter;
mod attributes;
mod commands;
mod descent;
mod dry;
mod failure;
mod helpers;
mod mount;
mod mounts;
mod node;
mod output;
mod progress;
mod readers;
mod report;
mod signatures;
mod size;
mod sparse;
mod text;
mod time;
mod trouble;
mod volume;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use failure::{Failure, Front};
use serde_json::json;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let helper = helpers::Helper::from_name(arguments.first());
    let (front, result) = match helper {
        Some(helper) => (helper.front(), helper.run(&arguments)),
        None => own(&arguments),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let code = failure.kind.code(front);
            let told = if asks_for_json(&arguments) {
                json!({ "error": failure.to_string(), "exit_code": code }).to_string()
            } else {
                format!("loamfs: {failure}")
            };
            // Nobody may be listening; the exit code still says it.
            let _ = writeln!(std::io::stderr(), "{told}");
            ExitCode::from(code)
        }
    }
}

/// Whether `--json` was given: of a command line that makes no sense that can be known too.
fn asks_for_json(arguments: &[OsString]) -> bool {
    let mut switches = arguments.iter().take_while(|word| *word != "--");
    switches.any(|word| word == "--json")
}

fn own(arguments: &[OsString]) -> (Front, Result<u8, Failure>) {
    match commands::Cli::try_parse_from(arguments) {
        Ok(cli) => (cli.command.front(), cli.command.run()),
        Err(error) => {
            let front = commands::front_of(arguments);
            (front, parse_failed(&error))
        }
    }
}

/// Prints help, where clap has that to say, or makes a sentence of what it complains about.
fn parse_failed(error: &clap::Error) -> Result<u8, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // If nobody listens, the exit code still says it.
            let _ = error.print();
            Ok(0)
        }
        // Here clap would print all its help, as if that were an error.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Err(Failure::usage("a command is missing; see --help"))
        }
        _ => Err(Failure::usage(sentence(&error.to_string()))),
    }
}

/// The first paragraph of a complaint, without the word "error"; what is behind it explains the usage.
fn sentence(complaint: &str) -> String {
    let lines = complaint.lines().take_while(|line| !line.is_empty());
    let words: Vec<&str> = lines.map(str::trim).collect();
    let words = words.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    format!("{words}; see --help")
}
