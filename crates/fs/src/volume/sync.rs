//! Waiting until something is durable (rule 8), with group commit: whoever waits for the right to seal finds, when he has it,
//! that a segment of another took his changes along.

use super::{Durability, Volume};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::law::Failed;
use crate::patience;
use loamfs_format::{Ino, Ssn};

/// What an fsync waits for.
struct Due {
    /// The segment that holds the inode's last change, or will.
    last: Ssn,
    /// Units that had been written to it by then.
    puts: u64,
}

impl Due {
    /// What must happen before everything that was done to an inode is durable; `None` when it is.
    fn of(core: &mut Core, ino: Ino) -> Result<Option<Due>, Stop> {
        let durable = core
            .env
            .law()
            .durable_for_fsync(core.log.durable(), core.log.tail().ssn);
        let node = core.node(ino)?;
        let done = !node.is_dirty() && node.homed().is_clean() && node.last() <= durable;
        Ok((!done).then_some(Due {
            last: node.last(),
            puts: node.homed().puts(),
        }))
    }

    /// Whether the segments that are sealed show it: whatever waits was written since.
    fn is_shown(&self, core: &Core, ino: Ino) -> bool {
        let node = core.inodes.get(ino);
        self.last <= core.log.tail().ssn && node.is_none_or(|node| !node.homed().waits(self.puts))
    }
}

impl Volume {
    /// Returns when everything that was done to an inode is on the device. `_data_only` is what
    /// fdatasync(2) asks, and leaves out nothing: what reading the data back needs rides in the same segment as the rest.
    ///
    /// # Errors
    /// [`Error`]; EIO when data could not be written anywhere. It is kept in memory then, and the next fsync tries
    /// again.
    pub fn fsync(&self, ino: Ino, _data_only: bool) -> Result<(), Error> {
        patience::wait_from_here()?;
        let Some(due) = self.engine.step(|core| Due::of(core, ino))? else {
            return Ok(());
        };
        let mut unwritten = self.engine.bring_home(&[ino])?;
        let sealer = self.engine.sealer();
        // Whoever held the lock may have committed this too: fsyncs that wait together share a segment.
        if sealer.step(|core| Due::of(core, ino))?.is_none() {
            return Ok(());
        }
        let (mut more, shown) =
            sealer.commit_and(false, Durability::Durable, |core| due.is_shown(core, ino))?;
        unwritten.append(&mut more);
        if !self.engine.law.heeds(Failed::Fsync) {
            return Ok(());
        }
        let failed = unwritten.into_iter().find(|(failed, _)| *failed == ino);
        if let Some((_, error)) = failed {
            return Err(error);
        }
        if !shown {
            return Err(Error::Unwritten(ino));
        }
        // What was asked for is durable. A checkpoint that fails makes the log read-only, which whoever changes
        // something next gets to know.
        if let Err(error) = sealer.checkpoint_if_due() {
            tracing::error!(%error, "cannot take a checkpoint");
        }
        Ok(())
    }

    /// Whether all that was done to an inode is durable, as far as memory tells.
    pub fn is_durable(&self, ino: Ino) -> bool {
        let core = self.core();
        match core.inodes.get(ino) {
            Some(node) => {
                !node.is_dirty() && node.homed().is_clean() && node.last() <= core.log.durable()
            }
            // It is forgotten only when it was sealed.
            None => core.log.durable() == core.log.tail().ssn,
        }
    }

    /// Returns when everything is on the device.
    ///
    /// # Errors
    /// [`Error`]; EIO when data could not be written anywhere, as [`Volume::fsync`].
    pub fn sync(&self) -> Result<(), Error> {
        self.upkeep().commit(Durability::Durable)
    }
}
