//! What shells are told that complete a line.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::CommandFactory;
use loamfs_console::complete::{Asked, VARIABLE};
use loamfs_console::sibling;

use crate::commands::Cli;
use crate::failure::{Failure, Kind};
use crate::helpers::Helper;

/// Answers a shell that asks what can stand in a line; `None` if none does.
pub fn answer(arguments: &[OsString], helper: Option<Helper>) -> Option<Result<u8, Failure>> {
    let asked = Asked::of(arguments)?;
    if let Some(words) = asked.below("bench") {
        return Some(ask_bench(&asked, words));
    }
    let definition = match helper {
        None => Cli::command,
        Some(Helper::Mkfs) => || Helper::Mkfs.definition(),
        Some(Helper::Fsck) => || Helper::Fsck.definition(),
        Some(Helper::Mount) => || Helper::Mount.definition(),
    };
    let answered = asked.answer(arguments, definition);
    Some(match answered {
        Ok(()) => Ok(0),
        Err(error) => Err(Failure::new(Kind::Io, error.to_string())),
    })
}

/// Becomes the program that knows its own arguments.
fn ask_bench(asked: &Asked, words: &[OsString]) -> Result<u8, Failure> {
    let program = sibling::find("loamfs-bench", "libexec")
        .map_err(|missing| Failure::new(Kind::NoInput, missing.to_string()))?;
    let (name, index) = asked.index_below();
    let shell = std::env::var_os(VARIABLE).unwrap_or_default();
    let mut command = Command::new(&program);
    command
        .env(VARIABLE, shell)
        .env(name, index)
        .arg("--")
        .args(words);
    Err(Failure::io(&program, &command.exec()))
}
