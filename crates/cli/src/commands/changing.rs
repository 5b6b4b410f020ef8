//! Changes of the devices of a mounted volume, asked of its daemon ([`crate::mount::change`]).

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use loamfs_fs::Purpose;
use loamfs_fuse::MountEntry;

use super::info;
use super::upgrade::{daemon, successor};
use crate::failure::{Failure, Kind};
use crate::mount::change::Change;
use crate::mount::control::{self, Request};
use crate::report::Report;
use crate::text::shown_path;

/// How often it is asked again, should daemons die meanwhile.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Has the daemon of a mount empty a device and take it out, and waits for that.
///
/// # Errors
///
/// Why it cannot be done. What was moved stays where it is.
pub fn remove(entry: &MountEntry, device: u32) -> Result<Report, Failure> {
    let ask = || control::ask_showing(entry, &Request::Leave(device), "MiB moved");
    until_changed(entry, ask, |report| {
        match report.device_numbered(device) {
            None => Some(Ok(())),
            // Another change may have been done.
            Some(_) => report.change().filter(Result::is_err),
        }
    })
}

/// Has the daemon of a mount make its volume smaller, and waits for that.
///
/// # Errors
///
/// Why it cannot be done. What was moved stays where it is.
pub fn shrink(entry: &MountEntry, bytes: u64) -> Result<Report, Failure> {
    let ask = || control::ask_showing(entry, &Request::Shrink(bytes), "MiB moved");
    until_so(entry, ask, |report| report.bytes() <= bytes)
}

/// Has the daemon of a mount make way for one that adds a device, and waits for that. `has_joined` tells whether it is done. Returns
/// what the daemon says then.
///
/// # Errors
///
/// Why it cannot be done; then nothing has changed.
pub fn add(
    entry: &MountEntry,
    purpose: Purpose,
    device: BorrowedFd<'_>,
    has_joined: impl Fn(&Report) -> bool,
) -> Result<Report, Failure> {
    let request = Request::Change(Change::Add(purpose));
    let ask = || control::ask_with(entry, &request, &[device]);
    until_changed(entry, ask, |report| match has_joined(report) {
        true => Some(Ok(())),
        // Another change may have been done.
        false => report.change().filter(Result::is_err),
    })
}

/// Has the daemon of a mount make way for one that makes its volume larger, and waits for that. `is_so` tells whether a daemon that
/// was begun later finds it done. Returns what the daemon says then.
///
/// # Errors
///
/// Why it cannot be done; then nothing has changed.
pub fn grow(
    entry: &MountEntry,
    bytes: Option<u64>,
    is_so: impl Fn(&Report) -> bool,
) -> Result<Report, Failure> {
    let ask = || control::ask(entry, &Request::Change(Change::Grow(bytes)));
    until_so(entry, ask, is_so)
}

/// As [`until_changed`]; it ended as the successor says, or well if it was begun later and `is_so` finds it done.
fn until_so(
    entry: &MountEntry,
    ask: impl Fn() -> Result<String, Failure>,
    is_so: impl Fn(&Report) -> bool,
) -> Result<Report, Failure> {
    until_changed(entry, ask, |report| {
        report.change().or_else(|| is_so(report).then_some(Ok(())))
    })
}

/// Asks a daemon for a change, and its successor how that `ended`; again, should that have died before it could tell.
fn until_changed(
    entry: &MountEntry,
    ask: impl Fn() -> Result<String, Failure>,
    ended: impl Fn(&Report) -> Option<Result<(), String>>,
) -> Result<Report, Failure> {
    for _ in 0..TRIES {
        let before = patiently(|| daemon(entry))?;
        if let Err(failure) = ask()
            && daemon(entry).is_ok_and(|after| after == before)
        {
            return Err(failure);
        }
        successor(entry, &before)?;
        let report = patiently(|| info::report(&entry.path))?;
        match ended(&report) {
            Some(Ok(())) => return Ok(report),
            Some(Err(why)) => return Err(Failure::usage(why)),
            None => {}
        }
    }
    let shown = shown_path(&entry.path);
    Err(Failure::new(
        Kind::Io,
        format!("the daemons of {shown} die again and again; its log says why"),
    ))
}

/// Asks again where a daemon dies while it is asked.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    for _ in 0..TRIES {
        if let Ok(answer) = ask() {
            return Ok(answer);
        }
        thread::sleep(PAUSE);
    }
    ask()
}
