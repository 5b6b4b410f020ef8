//! Waiting until something is durable (rule 8).

use super::{Volume, Wait};
use crate::error::Error;
use loamfs_format::{Ino, mutant};

impl Volume {
    /// Returns when everything that was done to an inode is on the device. `data_only` may leave out what reading
    /// the data back does not need.
    ///
    /// # Errors
    /// [`Error`]; EIO when data could not be written anywhere.
    pub fn fsync(&self, ino: Ino, data_only: bool) -> Result<(), Error> {
        let _ = data_only;
        if self.is_durable(ino)? {
            return self.take_failure(ino);
        }
        let _commit = self.commit_lock();
        // Whoever held the lock may have committed this too: fsyncs that wait together share a segment.
        if !self.is_durable(ino)? {
            if self.core().read_only {
                return Err(Error::ReadOnly);
            }
            self.commit_locked(&[ino], false, Wait::Durable)?;
            self.checkpoint_if_due()?;
        }
        self.take_failure(ino)
    }

    fn is_durable(&self, ino: Ino) -> Result<bool, Error> {
        self.step(|core| {
            let durable = if mutant::active("fsync-own") {
                core.log.tail().ssn
            } else {
                core.log.durable()
            };
            let node = core.node(ino)?;
            let clean = !node.dirty && node.homed.is_clean();
            Ok(clean && node.last <= durable)
        })
    }

    fn take_failure(&self, ino: Ino) -> Result<(), Error> {
        let mut core = self.core();
        let failed = core
            .inodes
            .nodes
            .get_mut(&ino)
            .is_some_and(|n| std::mem::take(&mut n.homed.failed));
        if failed {
            let error = loamfs_device::DeviceError::io(loamfs_device::Op::Write, 0, 0, 5);
            return Err(error.into());
        }
        Ok(())
    }

    /// Returns when everything is on the device.
    ///
    /// # Errors
    /// [`Error`].
    pub fn sync(&self) -> Result<(), Error> {
        self.commit(Wait::Durable)
    }
}
