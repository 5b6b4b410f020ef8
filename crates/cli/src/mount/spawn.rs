//! Starting the daemon in the background, and waiting until its mount can be used.
//!
//! The daemon is this program again, with the switch `--daemon`, and above it once more as its supervisor
//! ([`super::supervisor`]); standard output is a pipe. What the daemon prints there ends with [`READY`] once
//! the mount is usable; anything else means that it failed, and it has said why on standard error.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{setsid, umask};

use crate::failure::{Failure, Kind};

/// The line that says that the mount is usable.
const READY: &str = "ready\n";

/// How the background attempt ended.
pub enum Outcome {
    /// Mounted; this is what to print.
    Ready(String),
    /// The daemon failed with this exit code, and has said why.
    Failed(u8),
}

/// Starts the daemon with `arguments` and waits until it is ready or gone.
///
/// # Errors
///
/// If it cannot be started, or died without a word.
pub fn daemon(arguments: &[OsString]) -> Result<Outcome, Failure> {
    let failed =
        |error: io::Error| Failure::new(Kind::Io, format!("the daemon cannot be started: {error}"));
    let mut child = own(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut said = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut said).map_err(failed)?;
    }
    if let Some(text) = said.strip_suffix(READY) {
        return Ok(Outcome::Ready(text.to_owned()));
    }
    let status = child.wait().map_err(failed)?;
    match (
        status.code().and_then(|code| u8::try_from(code).ok()),
        status.signal(),
    ) {
        (Some(code), _) if code != 0 => Ok(Outcome::Failed(code)),
        (_, Some(signal)) => Err(Failure::new(
            Kind::Io,
            format!(
                "the daemon was ended by signal {signal} before the mount was ready; try `--foreground`"
            ),
        )),
        _ => Err(Failure::new(
            Kind::Io,
            "the mount ended before it was ready; try `--foreground`",
        )),
    }
}

/// This program with other arguments, and none of the files that this process was given: a lock or a mount that one of them
/// keeps would be kept for as long as the new process lives.
pub fn own(arguments: &[OsString]) -> Command {
    // By this name the kernel finds the running program even if its file was replaced.
    program("/proc/self/exe".as_ref(), arguments)
}

/// Another program, which gets none of this one's files.
pub fn other(file: &Path) -> Command {
    keep_files_here();
    let mut command = Command::new(file);
    command.stdin(Stdio::null());
    command
}

/// The same of the program that is in this file by now.
pub fn newest(file: &Path, arguments: &[OsString]) -> Command {
    program(file, arguments)
}

fn program(file: &Path, arguments: &[OsString]) -> Command {
    keep_files_here();
    let mut command = Command::new(file);
    command.arg0("loamfs").args(arguments).stdin(Stdio::null());
    command
}

/// Has the kernel close all files but the standard ones in every program that this process starts.
#[expect(unsafe_code, reason = "nothing else reaches the system call")]
fn keep_files_here() {
    let (first, flags) = (3, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: with this flag nothing is closed here. Before Linux 5.11 it is refused, and they are inherited.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) };
}

/// In the background: leaves the session, terminal and directory of whoever started it.
pub fn leave_session() {
    // Only a process group's leader is refused, which a fresh child never is.
    let _ = setsid();
    umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Staying would keep the file system of that directory from being unmounted.
    let _ = std::env::set_current_dir("/");
}

/// In the daemon: tells the parent that the mount is usable, and lets go of what it inherited.
pub fn report_ready(text: &str) {
    let mut stdout = io::stdout().lock();
    // A parent that is gone does not care.
    let _ = write!(stdout, "{text}{READY}").and_then(|()| stdout.flush());
    let_go_of_output();
}

/// In the background: nobody reads what this process prints from here on.
pub fn let_go_of_output() {
    if let Ok(null) = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}
