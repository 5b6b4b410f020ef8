//! Who was told of what was lost with an earlier daemon.
//!
//! The first is who syncs such a file next, whoever that is ([`Lookups::tell_loss`](super::lookups::Lookups::tell_loss)). Each other
//! process that was there before may have written what was lost, and is told too. One that began later wrote to what there is. Files are
//! opened without a message, so that nobody knows who has them open.

use std::collections::HashSet;
use std::fs::read_to_string;
use std::process::id;
use std::sync::{Mutex, PoisonError};

use loamfs_fuse::{Caller, NodeId};

/// Files and directories that miss changes, and who knows.
#[derive(Default)]
pub(super) struct Losses {
    nodes: HashSet<NodeId>,
    /// When this daemon began, in ticks since the machine did: the earlier one had ended.
    since: u64,
    /// Processes that were told, and of what.
    told: Mutex<HashSet<(NodeId, u32)>>,
}

/// A process.
struct Process {
    number: u32,
    /// In ticks since the machine began.
    began: u64,
}

impl Losses {
    /// Of these, in the daemon that goes on.
    pub fn of(nodes: &[NodeId]) -> Self {
        Self {
            nodes: nodes.iter().copied().collect(),
            since: process_of(id()).map_or(0, |own| own.began),
            told: Mutex::default(),
        }
    }

    /// Whether a caller was there before, and was not told of a file. Now it is.
    pub fn tell(&self, node: NodeId, caller: Caller) -> bool {
        self.nodes.contains(&node) && self.tell_process(node, caller.pid)
    }

    fn tell_process(&self, node: NodeId, thread: u32) -> bool {
        let before = process_of(thread).filter(|process| process.began <= self.since);
        before.is_some_and(|process| {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.insert((node, process.number))
        })
    }
}

/// The process of a thread, if it is still there.
fn process_of(thread: u32) -> Option<Process> {
    let status = read_to_string(format!("/proc/{thread}/status")).ok()?;
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    let number = number.trim().parse().ok()?;
    let stat = read_to_string(format!("/proc/{number}/stat")).ok()?;
    // A name in brackets may hold anything. The 22nd field is when it began; the third is the first behind the name.
    let (_, behind) = stat.rsplit_once(')')?;
    let began = behind.split_whitespace().nth(22 - 3)?.parse().ok()?;
    Some(Process { number, began })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const LOST: NodeId = NodeId(77);

    fn losses(since: u64) -> Losses {
        Losses {
            since,
            ..Losses::of(&[LOST])
        }
    }

    #[test]
    fn each_process_that_was_there_is_told_once() {
        let losses = losses(u64::MAX);
        assert!(losses.tell_process(LOST, id()));
        assert!(!losses.tell_process(LOST, id()));
        // A thread is its process.
        let thread = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        assert!(!losses.tell_process(LOST, thread));
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(losses.tell_process(LOST, other.id()));
        assert!(!losses.tell_process(LOST, other.id()));
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(!losses.tell_process(LOST, 0), "nobody");
    }

    #[test]
    fn who_began_later_lost_nothing() {
        assert!(!losses(0).tell_process(LOST, id()));
        let ours = process_of(id()).unwrap().began;
        assert!(!losses(ours - 1).tell_process(LOST, id()));
        // A tick is long.
        assert!(losses(ours).tell_process(LOST, id()));
    }
}
