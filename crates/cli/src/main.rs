//! `loamfs`: makes, mounts, checks and looks into LoamFS volumes. The same program is
//! `mkfs.loamfs`, `fsck.loamfs` and `mount.loamfs`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod adapter;
mod commands;
mod dry;
mod failure;
mod helpers;
mod mount;
mod mounts;
mod output;
mod progress;
mod report;
mod signatures;
mod size;
mod text;
mod time;

mod volume;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use failure::{Failure, Front, Kind};

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
            // Nobody may be listening; the exit code still says it.
            let _ = writeln!(std::io::stderr(), "loamfs: {failure}");
            ExitCode::from(failure.kind.code(front))
        }
    }
}

fn own(arguments: &[OsString]) -> (Front, Result<u8, Failure>) {
    match commands::Cli::try_parse_from(arguments) {
        Ok(cli) => (cli.command.front(), cli.command.run()),
        Err(error) => {
            let front = commands::front_of(arguments);
            (front, parse_failed(&error, front))
        }
    }
}

/// Prints what clap has to say, help included, and returns the code for it.
fn parse_failed(error: &clap::Error, front: Front) -> Result<u8, Failure> {
    // If nobody listens, the exit code still says it.
    let _ = error.print();
    Ok(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ => Kind::Usage.code(front),
    })
}
