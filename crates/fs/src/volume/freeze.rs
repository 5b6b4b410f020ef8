//! Taking no changes for a while, because somebody asked for it.

use super::commit::End;
use super::discard::DISCARDS_AT_LAST;
use super::{Durability, Upkeep, commit};
use crate::error::Error;
use std::sync::PoisonError;

/// How often the volume is committed until nothing came meanwhile.
const ROUNDS_MAX: u32 = 100;

impl Upkeep<'_> {
    /// Brings everything to the device, as closing does, and takes no changes from then on. Nothing is written any more
    /// until [`Upkeep::thaw`].
    ///
    /// # Errors
    /// [`Error`]; the volume takes changes as before then. On one that is read-only already, that there is something
    /// which cannot be committed.
    pub fn freeze(&self) -> Result<(), Error> {
        let engine = self.engine();
        let ticking = engine.turns.ticking.write();
        let _ticking = ticking.unwrap_or_else(PoisonError::into_inner);
        self.find_leftovers();
        engine.tidy_after(usize::MAX);
        let sealer = engine.sealer();
        for _ in 0..ROUNDS_MAX {
            if !self.core().access.is_writable() {
                return engine.nothing_waits();
            }
            let unwritten = sealer.commit_all(Durability::Durable)?;
            sealer.checkpoint(End::Open)?;
            sealer.discard_freed(DISCARDS_AT_LAST);
            commit::all_written(unwritten)?;
            let _homes = engine.homes_alone();
            let mut core = self.core();
            let durable = core.log.durable() == core.log.tail().ssn;
            if durable && !core.is_dirty() && core.writeback.files().is_empty() {
                core.access.freeze();
                return Ok(());
            }
        }
        Err(Error::Invalid("the volume does not come to rest"))
    }

    /// Takes changes again after [`Upkeep::freeze`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the volume is read-only for another reason.
    pub fn thaw(&self) -> Result<(), Error> {
        self.core().access.thaw()
    }
}
