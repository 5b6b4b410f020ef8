//! Files that may be shorter than the kernel knows, since changes of them were lost with an earlier daemon.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loamfs_fuse::NodeId;

/// How long reads that the kernel began before it was told may be under way.
const LONGEST: Duration = Duration::from_secs(1);

/// Where the kernel may show zeros behind a file's new end. A read that it began by the length before goes that far. It takes
/// a short answer for the end only while nobody told it of other attributes.
#[derive(Default)]
pub(super) struct Doubt {
    until: Option<Instant>,
    nodes: Mutex<HashSet<NodeId>>,
}

impl Doubt {
    /// Of files that the kernel is being told of now.
    pub fn of(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            until: Some(Instant::now() + LONGEST),
            nodes: Mutex::new(nodes.into_iter().collect()),
        }
    }

    /// Whether the kernel may not know yet how long a file is.
    pub fn has(&self, node: NodeId) -> bool {
        self.is_on() && self.lock().contains(&node)
    }

    /// The kernel gets a file's attributes: what it reads from here on ends where the file does.
    pub fn end(&self, node: NodeId) {
        if self.is_on() {
            self.lock().remove(&node);
        }
    }

    fn is_on(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<NodeId>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
