//! Bringing changes to the device: segments, flushes, checkpoints and the superblocks that name them.

use super::{Volume, Wait};
use crate::error::Error;
use crate::mkfs::write_segment;
use loamfs_format::{Ino, mutant};
use loamfs_log::segment::Segment;
use loamfs_log::superblocks;

impl Volume {
    /// Commits everything that waits.
    ///
    /// # Errors
    /// [`Error`].
    pub fn commit(&self, wait: Wait) -> Result<(), Error> {
        let _commit = self.commit_lock();
        if self.core().read_only {
            return Ok(());
        }
        let all: Vec<Ino> = self.core().homed.iter().copied().collect();
        self.commit_locked(&all, false, wait)?;
        self.checkpoint_if_due()
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// [`Error`].
    pub fn checkpoint(&self) -> Result<(), Error> {
        let _commit = self.commit_lock();
        self.checkpoint_locked()
    }

    /// Brings the waiting data of `files` to their homes, then seals and writes a segment.
    pub(super) fn commit_locked(
        &self,
        files: &[Ino],
        force: bool,
        wait: Wait,
    ) -> Result<(), Error> {
        self.write_homes(files)?;
        // A rename over an existing file waits for the data that it brings (rule 3).
        loop {
            let sealed = self.step(|core| {
                let held_up: Vec<Ino> = core.barrier.iter().copied().collect();
                if !held_up.is_empty() {
                    core.barrier.clear();
                    return Ok(Err(held_up));
                }
                core.seal(force).map(Ok)
            })?;
            match sealed {
                Err(files) => self.write_homes(&files)?,
                Ok(Some(segment)) => {
                    self.write_log(&segment)?;
                    break;
                }
                Ok(None) => break,
            }
        }
        if wait == Wait::Durable && self.undurable() {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn undurable(&self) -> bool {
        let core = self.core();
        core.log.durable() < core.log.tail().ssn
    }

    /// Writes a sealed segment. A failure makes the volume read-only (rule 12).
    pub(super) fn write_log(&self, segment: &Segment) -> Result<(), Error> {
        let geometry = self.core().geometry;
        let result = write_segment(self.device.as_ref(), &geometry, segment);
        for (at, bytes) in &segment.writes {
            self.reader
                .written(geometry.byte_offset(*at), bytes.len() as u64);
        }
        let mut core = self.core();
        match result {
            Ok(()) => {
                core.log.written(segment.ssn);
                core.blocks.segment_written(segment.ssn);
                Ok(())
            }
            Err(error) => {
                core.fail_log(&error);
                Err(error)
            }
        }
    }

    /// Flushes the device, and counts as durable what had been written before.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let prefix = self.core().log.flushable();
        let result = self.device.flush().map_err(Error::from);
        let mut core = self.core();
        if let Err(error) = &result {
            core.fail_log(error);
            return result;
        }
        core.log.flushed(prefix);
        core.release();
        Ok(())
    }

    pub(super) fn checkpoint_if_due(&self) -> Result<(), Error> {
        if self.core().checkpoint_due() {
            self.checkpoint_locked()
        } else {
            Ok(())
        }
    }

    /// Writes a checkpoint and the superblock that names it (rules 5 and 9).
    pub(super) fn checkpoint_locked(&self) -> Result<(), Error> {
        if self.core().read_only {
            return Err(Error::ReadOnly);
        }
        loop {
            self.step(|core| core.prepare_checkpoint())?;
            self.commit_locked(&[], false, Wait::Written)?;
            // Between the commit and here operations may have run; then the round starts again.
            let sealed = self.step(|core| {
                if core.is_dirty() {
                    return Ok(None);
                }
                core.seal_checkpoint().map(Some)
            })?;
            if let Some(segment) = sealed {
                self.write_log(&segment)?;
                break;
            }
        }
        if !mutant::active("superblock-early") {
            self.flush()?;
        }
        self.name_checkpoint()
    }

    /// Writes the superblock copy that does not hold the newest checkpoint, and flushes it.
    pub(super) fn name_checkpoint(&self) -> Result<(), Error> {
        let (mut sb, slots, base) = {
            let core = self.core();
            (core.sb.clone(), core.slots, core.base)
        };
        let result = superblocks::write(self.device.as_ref(), &mut sb, &slots, base)
            .map_err(Error::from)
            .and_then(|slot| {
                if !mutant::active("superblock-unflushed") {
                    self.device.flush()?;
                }
                Ok(slot)
            });
        let mut core = self.core();
        match result {
            Ok(slot) => {
                core.slots[slot] = Some(base.ssn);
                core.sb = sb;
                core.release();
                Ok(())
            }
            Err(error) => {
                core.fail_log(&error);
                Err(error)
            }
        }
    }
}
