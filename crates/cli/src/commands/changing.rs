//! Changes of the devices of a mounted volume, asked of its daemon ([`crate::mount::change`]).

use std::os::fd::BorrowedFd;

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
        let before = daemon(entry)?;
        let asked = control::ask_with(entry, &Request::Change(change), joining);
        if let Err(failure) = asked
            && daemon(entry).is_ok_and(|after| after == before)
        {
            return Err(failure);
        }
        successor(entry, &before)?;
        let report = info::report(&entry.path)?;
        match report.change() {
            Some(Ok(())) => return Ok(report),
            Some(Err(why)) => return Err(Failure::usage(why)),
            None if is_so(&report) => return Ok(report),
            // It died before it could tell its successor.
            None => {}
        }
    }
    let shown = shown_path(&entry.path);
    Err(Failure::new(
        Kind::Io,
        format!("the daemons of {shown} die again and again; its log says why"),
    ))
}
