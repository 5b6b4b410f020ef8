//! Taking over a mount whose daemon died: the kernel has inodes, names and content from it.
//!
//! What was answered and not durable is lost, as by a power cut. Those who go on must not see it any more, and who has
//! such a file open must be told. An inode that does not exist answers ESTALE from here on. Of one that misses changes the
//! next fsync fails, once. The others are as they were. Numbers that are free again are given away: the kernel's name of
//! an inode has 24 bits of its generation, which is chosen at random.

use std::sync::Arc;

use loamfs_fs::Error;
use loamfs_fuse::{Errno, NodeId};

use super::Adapter;
use super::convert::{ino_of, node_of};
use super::doubt::Doubt;
use super::lookups::Fate;
use super::losses::Losses;
use crate::mount::handover::Predecessor;

impl Adapter {
    /// Goes on where an earlier daemon ended. To be called before the first request, and before the volume's first
    /// background step, which removes inodes without a name.
    ///
    /// # Errors
    ///
    /// ENOMEM.
    pub fn succeed(&mut self, predecessor: Predecessor) -> Result<(), Errno> {
        let mut missing = Vec::new();
        for survivor in predecessor.survivors {
            let node = survivor.node;
            let survivor = match predecessor.was_durable {
                true => survivor.without_changes(),
                false => survivor,
            };
            match self.lookups.take_over(survivor, || self.fate(node))? {
                Fate::Whole => continue,
                Fate::Lost => {}
                Fate::Gone => {
                    self.gone.insert(node);
                }
            }
            missing.push(node);
        }
        if !predecessor.was_durable {
            self.handover.note_death(missing.len() as u64);
        }
        let lookups = Arc::clone(&self.lookups);
        self.volume
            .upkeep()
            .hold_orphans(|attr| lookups.hold(node_of(attr)));
        if !missing.is_empty() {
            let (lost, gone) = (missing.len() - self.gone.len(), self.gone.len());
            tracing::warn!(
                "changes that were not synced may be lost: of {lost} files and directories that programs know, and {gone} more are gone"
            );
            self.notifier.names();
            self.losses = Losses::of(&missing);
            let forgotten = self.forget_files(&missing);
            if forgotten.is_none() {
                for &node in &missing {
                    self.notifier.attributes(node);
                }
            }
            self.doubt = Doubt::of(missing, forgotten);
        }
        Ok(())
    }

    /// Whether the kernel still has to forget what was lost with the earlier daemon.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_on()
    }

    /// Returns when it has. Nobody is to be told of a loss before, nor to be shown what was lost.
    pub fn wait_until_forgotten(&self) {
        self.doubt.wait();
    }

    /// Has the kernel send again what the earlier daemon did not answer. To be called when this one is at its place.
    pub fn go_on(&self) {
        self.notifier.resend();
    }

    fn fate(&self, node: NodeId) -> Fate {
        match self.volume.getattr(ino_of(node)) {
            Ok(attr) if node_of(&attr) == node => Fate::Lost,
            Ok(_) | Err(Error::NotFound | Error::Stale(_)) => Fate::Gone,
            // It is there, and cannot be read.
            Err(_) => Fate::Lost,
        }
    }
}
