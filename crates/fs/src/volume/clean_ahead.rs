//! Cleaning ahead, which nobody needs: before homes and segments are written, groups of the log are emptied for what would go into
//! short holes otherwise.

use super::{Durability, Engine, Sealer};
use crate::core::Core;
use crate::error::Error;
use crate::reclaim::{CostLimit, Fight, Spared};
use loamfs_format::inode::Tier;

/// Batches of groups that are emptied for what waits.
const ROUNDS: usize = 4;

impl Core {
    /// Whether the log goes on where a hole costs no seek, though other devices turn.
    fn logs_on_fast(&self) -> bool {
        let next = self.log.tail().next;
        self.space.usage().is_on(Tier::Fast, next)
    }

    /// Emptying ahead failed: it does not try again, but where nothing can be changed just now.
    fn give_up_ahead(&mut self, error: &Error) {
        if matches!(error, Error::ReadOnly | Error::WouldWait) {
            return;
        }
        tracing::warn!(%error, "groups of the log are not emptied ahead any more");
        self.reclaim.stop_ahead();
    }
}

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
                Err(error) => self.core().give_up_ahead(&error),
            }
        }
    }
}

impl Sealer<'_> {
    /// Empties some groups of the log for homes, if that pays. Returns whether it did.
    fn clean_ahead(&self) -> Result<bool, Error> {
        let (limit, frags) = {
            let mut core = self.core();
            let waiting = core.budget().waiting().blocks;
            core.cleaner().lacking_ahead(&core.prices(), waiting)
        };
        self.empty_for(limit, frags)
    }

    /// Empties groups of the log for a segment as long as the last one, if that takes a disk less than to cut it into as many holes
    /// (Matthews et al. 1997). Where that wins nothing, it is not tried again before more was freed. It is nobody's error if it fails.
    pub(super) fn clean_ahead_of_segment(&self) {
        if let Err(error) = self.try_ahead_of_segment() {
            self.core().give_up_ahead(&error);
        }
    }

    fn try_ahead_of_segment(&self) -> Result<(), Error> {
        let (limit, frags, before) = {
            let mut core = self.core();
            let others = core.space.usage().is_emptying() || core.reclaim.is_ahead_over();
            if others || core.fights().is_lost(Fight::Holes) || core.logs_on_fast() {
                return Ok(());
            }
            let prices = core.prices();
            let Some((limit, frags)) = core.cleaner().cheaper_than_cutting(&prices) else {
                return Ok(());
            };
            (limit, frags, core.budget().won())
        };
        let emptied = self.empty_for(limit, frags)?;
        let mut core = self.core();
        if !emptied || core.budget().won() <= before {
            core.fights().note_lost(Fight::Holes);
        }
        Ok(())
    }

    /// Empties groups of the log at such a price that win so many fragments. Returns whether there were any.
    fn empty_for(&self, limit: CostLimit, frags: u64) -> Result<bool, Error> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::error::Error;
    use crate::fixture::volume;
    use crate::reclaim::CutInto;
    use crate::{OpenOptions, Volume};

    fn cut(volume: &Volume) {
        let cut = CutInto {
            holes: 100,
            frags: 4096,
        };
        volume.core().reclaim.note_cut(cut);
    }

    /// A sync that met a freeze ended all cleaning ahead until the next mount.
    #[test]
    fn what_cannot_be_changed_just_now_is_tried_again() {
        let volume = volume(64 << 20, &OpenOptions::default());
        volume.core().give_up_ahead(&Error::ReadOnly);
        volume.core().give_up_ahead(&Error::WouldWait);
        assert!(!volume.core().reclaim.is_ahead_over());
        volume.core().give_up_ahead(&Error::NoSpace);
        assert!(volume.core().reclaim.is_ahead_over());
    }

    /// Bitmaps were read, and all groups looked at, for nothing.
    #[test]
    fn where_holes_cost_little_nothing_is_emptied_for_a_segment() {
        let volume = volume(64 << 20, &OpenOptions::default());
        cut(&volume);
        let core = volume.core();
        let prices = core.prices();
        assert!(core.cleaner().cheaper_than_cutting(&prices).is_none());
    }
}
