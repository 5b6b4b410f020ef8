//! Cleaning ahead, which nobody waits for: before homes are written, groups of the log are emptied for data that would go into
//! short holes otherwise.

use super::{Durability, Engine, Sealer};
use crate::error::Error;
use crate::reclaim::Spared;

/// Batches of groups that are emptied for what waits.
const ROUNDS: usize = 4;

impl Engine {
    /// Empties groups of the log for the data that waits, as long as that takes a disk less than the holes do to which they go
    /// otherwise. Others commit between the batches. It is nobody's error if that fails: the holes serve. It is not tried again
    /// then before the next mount.
    pub(super) fn clean_ahead(&self) {
        for _ in 0..ROUNDS {
            let mut core = self.core();
            let waiting = core.budget().waiting().blocks;
            if core.reclaim.is_ahead_over() || !core.cleaner().would_clean_ahead(waiting) {
                return;
            }
            drop(core);
            match self.sealer().clean_ahead() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "groups of the log are not emptied ahead any more");
                    self.core().reclaim.stop_ahead();
                }
            }
        }
    }
}

impl Sealer<'_> {
    /// Empties some groups of the log, if that pays. Returns whether it did.
    fn clean_ahead(&self) -> Result<bool, Error> {
        let (limit, frags) = {
            let mut core = self.core();
            let waiting = core.budget().waiting().blocks;
            core.cleaner().lacking_ahead(&core.prices(), waiting)
        };
        let (_, ranges) = self.begin_to_empty(limit, frags, Spared::NONE)?;
        if ranges.is_empty() {
            return Ok(false);
        }
        let shown = |durability| self.commit_shown(false, durability).map(drop);
        // Large files' data wait for the room that is made here.
        let moved = self
            .evacuate_all(
                &ranges,
                |core| core.budget().may_compact(),
                || shown(Durability::Written),
            )
            .and_then(|_| shown(Durability::Durable));
        self.core().mover().open_groups();
        moved?;
        self.say_reusable()?;
        Ok(true)
    }
}
