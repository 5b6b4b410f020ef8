//! Files of which the kernel may know more than there is, since changes of them were lost with an earlier daemon.
//!
//! It is told to forget that. Until it has, its page cache shows what was lost, and whoever opens such a file would build
//! on it. So nothing is answered meanwhile but what the kernel waits for itself: reads and writes that have locked pages.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use loamfs_fuse::NodeId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// How long the kernel is waited for; it waits for reads from the device.
const LONGEST: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Where the kernel may show what was lost.
#[derive(Default)]
pub(super) struct Doubt {
    nodes: HashSet<NodeId>,
    /// It ends when that is forgotten.
    forgotten: Option<OwnedFd>,
    is_over: AtomicBool,
}

impl Doubt {
    /// Of files that the kernel is being told of now.
    pub fn of(nodes: Vec<NodeId>, forgotten: Option<OwnedFd>) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            forgotten,
            is_over: AtomicBool::new(false),
        }
    }

    /// Whether the kernel may not know yet how long a file is. A read that it began by the length before goes that far, and
    /// it takes a short answer for the end only while nobody told it of other attributes: else it shows zeros behind the
    /// end.
    pub fn has(&self, node: NodeId) -> bool {
        self.is_on() && self.nodes.contains(&node)
    }

    /// Whether the kernel is still forgetting.
    pub fn is_on(&self) -> bool {
        !self.nodes.is_empty() && !self.is_over.load(Ordering::Acquire)
    }

    /// Waits until the kernel has forgotten.
    pub fn wait(&self) {
        if let Some(forgotten) = &self.forgotten {
            let mut asked = [PollFd::new(forgotten, PollFlags::IN)];
            if matches!(retry_on_intr(|| poll(&mut asked, Some(&LONGEST))), Ok(0)) {
                tracing::warn!("files may still show what was lost: reading them takes long");
            }
        }
        self.is_over.store(true, Ordering::Release);
    }
}
