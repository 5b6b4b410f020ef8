//! Taking no changes for a while, because somebody asked for it.

use super::commit::End;
use super::{Durability, Volume, commit};
use crate::error::Error;

/// How often the volume is committed until nothing came meanwhile.
const ROUNDS_MAX: u32 = 100;

impl Volume {
    /// Brings everything to the device, as closing does, and takes no changes from then on. Nothing is written any more
    /// until [`Volume::thaw`].
    ///
    /// # Errors
    /// [`Error`]; the volume takes changes as before then. On one that is read-only already, that there is something
    /// which cannot be committed.
    pub fn freeze(&self) -> Result<(), Error> {
        self.find_leftovers();
        self.tidy_after(usize::MAX);
        let sealer = self.engine.sealer();
        for _ in 0..ROUNDS_MAX {
            if !self.core().access.is_writable() {
                return self.nothing_waits();
            }
            let unwritten = sealer.commit_all(Durability::Durable)?;
            sealer.checkpoint(End::Open)?;
            self.engine.discard_freed(usize::MAX);
            commit::all_written(unwritten)?;
            let _homes = self.engine.homes_alone();
            let mut core = self.core();
            let durable = core.log.durable() == core.log.tail().ssn;
            if durable && !core.is_dirty() && core.writeback.files().is_empty() {
                core.access.freeze();
                return Ok(());
            }
        }
        Err(Error::Invalid("the volume does not come to rest"))
    }

    /// Takes changes again after [`Volume::freeze`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the volume is read-only for another reason.
    pub fn thaw(&self) -> Result<(), Error> {
        self.core().access.thaw()
    }
}
