//! `loamfs`: makes, mounts, checks and looks into LoamFS volumes. The same program is
//! `mkfs.loamfs`, `fsck.loamfs` and `mount.loamfs`.

#![cfg_attr(not(test), deny(clippy::too_many_lines))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod adapter;
mod attributes;
mod candidates;
mod commands;
mod completion;
mod descent;
mod disk;
mod dry;
mod errors;
mod failure;
mod helpers;
mod members;
mod mount;
mod mounts;
mod node;
mod output;
mod outward;
mod progress;
mod readers;
mod report;
mod signatures;
mod sparse;
mod text;
mod trouble;
mod volume;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use failure::{Failure, Front};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let helper = helpers::Helper::from_name(arguments.first());
    let (front, result) = match (completion::answer(&arguments, helper), helper) {
        (Some(answered), _) => (Front::General, answered),
        (None, Some(helper)) => (helper.front(), helper.run(&arguments)),
        (None, None) => own(&arguments),
    };
    let result = result.map_err(|failure| (failure.kind().code(front), failure.to_string()));
    loamfs_console::end("loamfs", &arguments, result)
}

fn own(arguments: &[OsString]) -> (Front, Result<u8, Failure>) {
    match commands::Cli::try_parse_from(arguments) {
        Ok(cli) => {
            members::set_named(cli.members);
            (cli.command.front(), cli.command.run())
        }
        Err(error) => {
            let front = commands::front_of(arguments);
            (front, parse_failed(&error))
        }
    }
}

/// Prints what was asked for, or makes a sentence of what clap complains about.
fn parse_failed(error: &clap::Error) -> Result<u8, Failure> {
    match loamfs_console::complaint(error) {
        None => Ok(0),
        Some(complaint) => Err(Failure::usage(complaint)),
    }
}
