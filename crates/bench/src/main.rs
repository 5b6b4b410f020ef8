//! `loamfs-bench`, which `loamfs bench` starts.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let result = loamfs_bench::command::run(&arguments);
    loamfs_console::end("loamfs bench", &arguments, result)
}
