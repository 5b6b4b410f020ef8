//! Who was told of what was lost with an earlier daemon.
//!
//! The first is who syncs such a file next, whoever that is ([`Lookups::tell_loss`](super::lookups::Lookups::tell_loss)). Each other
//! process that was there before may have written what was lost, and is told too. One that began later wrote to what there is. Files are
//! opened without a message, so that nobody knows who has them open. Of everything, as syncfs(2) asks for it, the same holds. So nobody's
//! sync takes the news from another. Linux does likewise for each open file, which no request names.

use std::collections::HashSet;
use std::fs::read_to_string;
use std::process::id;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use loamfs_fuse::{Caller, NodeId};

/// Files and directories that miss changes, and who knows.
#[derive(Default)]
pub(super) struct Losses {
    nodes: HashSet<NodeId>,
    /// When this daemon began, in ticks since the machine did: the earlier one had ended.
    since: u64,
    /// Somebody who synced everything was told.
    all_told: AtomicBool,
    /// Processes that were told, and of what; those that synced everything, of no node.
    told: Mutex<HashSet<(Option<NodeId>, u32)>>,
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
            ..Self::default()
        }
    }

    /// Whether a caller was there before, and was not told of a file. Now it is.
    pub fn tell(&self, node: NodeId, caller: Caller) -> bool {
        self.nodes.contains(&node) && self.tell_process(Some(node), caller.pid)
    }

    /// Whether something was lost, and a caller who syncs everything was not told: it is the first who does, or was there before. Now it
    /// is.
    pub fn tell_of_all(&self, caller: Caller) -> bool {
        !self.nodes.is_empty() && self.tell_of_all_to(caller.pid)
    }

    fn tell_of_all_to(&self, thread: u32) -> bool {
        let was_there = self.tell_process(None, thread);
        !self.all_told.swap(true, Ordering::Relaxed) || was_there
    }

    fn tell_process(&self, node: Option<NodeId>, thread: u32) -> bool {
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
        let lost = Some(LOST);
        assert!(losses.tell_process(lost, id()));
        assert!(!losses.tell_process(lost, id()));
        // A thread is its process.
        let thread = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        assert!(!losses.tell_process(lost, thread));
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(losses.tell_process(lost, other.id()));
        assert!(!losses.tell_process(lost, other.id()));
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(!losses.tell_process(lost, 0), "nobody");
    }

    #[test]
    fn who_syncs_everything_is_told_as_who_syncs_a_file() {
        let (ours, nobody) = (id(), 0);
        // The first is told whoever that is, which takes nothing from who was there.
        let before = losses(u64::MAX);
        let told = [nobody, nobody, ours, ours].map(|it| before.tell_of_all_to(it));
        assert_eq!(told, [true, false, true, false]);
        let before = losses(u64::MAX);
        let told = [ours, ours, nobody].map(|it| before.tell_of_all_to(it));
        assert_eq!(told, [true, false, false]);
        let later = losses(0);
        let told = [nobody, ours].map(|it| later.tell_of_all_to(it));
        assert_eq!(told, [true, false]);
    }

    #[test]
    fn who_began_later_lost_nothing() {
        let lost = Some(LOST);
        assert!(!losses(0).tell_process(lost, id()));
        let ours = process_of(id()).unwrap().began;
        assert!(!losses(ours - 1).tell_process(lost, id()));
        // A tick is long.
        assert!(losses(ours).tell_process(lost, id()));
    }
}
