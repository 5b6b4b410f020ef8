//! What the machine says: whether its kernel lets requests through io_uring, and which processors there are.

use std::fs::{self, File};
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::devfuse::DEVICE;

/// The kernel's switch, for all mounts of the machine.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The processors that the machine could have: "0-3,8".
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Whether the kernel lets requests through io_uring; `None` if it cannot.
#[must_use]
pub fn is_enabled() -> Option<bool> {
    let text = fs::read_to_string(SWITCH).ok()?;
    Some(text.trim() == "Y")
}

/// Has the kernel let requests of all mounts to come through io_uring that ask for it. Takes root.
///
/// # Errors
///
/// Whatever the system says; "not found" if the kernel cannot.
pub fn enable() -> io::Result<()> {
    // Where FUSE is a module, this loads it.
    let _ = File::open(DEVICE);
    match is_enabled() {
        Some(true) => Ok(()),
        _ => fs::write(SWITCH, "Y"),
    }
}

/// Has the kernel let no further mounts have rings; those that have some keep them. Takes root.
///
/// # Errors
///
/// Whatever the system says; "not found" if the kernel has no such switch.
pub fn disable() -> io::Result<()> {
    fs::write(SWITCH, "N")
}

/// How many processors the machine could have.
pub(super) fn processors() -> io::Result<usize> {
    let text = fs::read_to_string(POSSIBLE)?;
    count(text.trim())
        .filter(|count| (1..=usize::from(u16::MAX)).contains(count))
        .ok_or_else(|| io::Error::other(format!("{POSSIBLE} makes no sense")))
}

fn count(list: &str) -> Option<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',')
        .try_fold(0_usize, |sum, part| sum.checked_add(range(part)?))
}

/// The processors that this process may use, each with the queues that it serves: its own, and its part of those of
/// processors that are not there.
pub(super) fn shared_out(processors: usize) -> Vec<(usize, Vec<u16>)> {
    let allowed = sched_getaffinity(None).ok();
    let may = |number: &usize| {
        *number < CpuSet::MAX_CPU && allowed.is_none_or(|allowed| allowed.is_set(*number))
    };
    let mut shares: Vec<(usize, Vec<u16>)> = (0..processors)
        .filter(may)
        .map(|number| (number, Vec::new()))
        .collect();
    if shares.is_empty() {
        shares.push((0, Vec::new()));
    }
    let count = shares.len();
    for number in 0..processors {
        let own = shares.iter().position(|(own, _)| *own == number);
        // Not more than a u16 holds: see `processors`.
        shares[own.unwrap_or(number % count)].1.push(number as u16);
    }
    shares
}

/// Binds the calling thread to a processor. One that cannot be bound works too, only slower.
pub(super) fn bind(processor: usize) {
    let mut only = CpuSet::new();
    if processor >= CpuSet::MAX_CPU {
        return;
    }
    only.set(processor);
    if let Err(errno) = sched_setaffinity(None, &only) {
        tracing::debug!(%errno, processor, "a thread is not bound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
        assert_eq!(count("0-18446744073709551615"), None);
    }

    #[test]
    fn every_queue_is_served_once() {
        for processors in [1, 2, 7, 300] {
            let shares = shared_out(processors);
            let mut queues: Vec<u16> = shares.into_iter().flat_map(|share| share.1).collect();
            queues.sort_unstable();
            let all: Vec<u16> = (0..processors as u16).collect();
            assert_eq!(queues, all);
        }
    }
}
