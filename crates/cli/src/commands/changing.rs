//! Changes of the devices of a mounted volume, asked of its daemon ([`crate::mount::change`]).

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

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
    for _ in 0..TRIES {
        let before = patiently(|| daemon(entry))?;
        let asked = control::ask_showing(entry, &Request::Leave(device), "MiB moved");
        if let Err(failure) = asked
            && daemon(entry).is_ok_and(|after| after == before)
        {
            return Err(failure);
        }
        successor(entry, &before)?;
        let report = patiently(|| info::report(&entry.path))?;
        if !report.has_device(device) {
            return Ok(report);
        }
        if let Some(Err(why)) = report.change() {
            return Err(Failure::usage(why));
        }
    }
    Err(dying(entry))
}

/// Has the daemon of a mount make way for one that changes the devices, and waits for that. `joining` are the devices that are to
/// join; `is_so` tells whether a daemon that was begun later finds it done. Returns what the daemon says then.
///
/// # Errors
///
/// Why it cannot be done; then nothing has changed.
pub fn change(
    entry: &MountEntry,
    change: Change,
    joining: &[BorrowedFd<'_>],
    is_so: impl Fn(&Report) -> bool,
) -> Result<Report, Failure> {
    for _ in 0..TRIES {
        let before = patiently(|| daemon(entry))?;
        let asked = control::ask_with(entry, &Request::Change(change), joining);
        if let Err(failure) = asked
            && daemon(entry).is_ok_and(|after| after == before)
        {
            return Err(failure);
        }
        successor(entry, &before)?;
        let report = patiently(|| info::report(&entry.path))?;
        match report.change() {
            Some(Ok(())) => return Ok(report),
            Some(Err(why)) => return Err(Failure::usage(why)),
            None if is_so(&report) => return Ok(report),
            // It died before it could tell its successor.
            None => {}
        }
    }
    Err(dying(entry))
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

fn dying(entry: &MountEntry) -> Failure {
    let shown = shown_path(&entry.path);
    Failure::new(
        Kind::Io,
        format!("the daemons of {shown} die again and again; its log says why"),
    )
}
