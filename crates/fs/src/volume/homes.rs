//! Writing the data of large files to their homes: in rounds that share a flush, and by settling images.

use super::Volume;
use crate::error::Error;
use crate::writeback::HomeWrite;
use loamfs_device::{IoKind, Write};
use loamfs_format::{Ino, mutant};

/// Bytes of homed data that share a flush: memory holds them twice meanwhile.
const HOME_ROUND: usize = 16 << 20;

impl Volume {
    /// Settles up to `max` images at their homes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn settle(&self, max: usize) -> Result<(), Error> {
        let _commit = self.commit_lock();
        self.settle_locked(max)
    }

    /// Writes the data that waits now to new homes, flushes, and lets the next segment show it. Files go together, in
    /// rounds of bounded size, so that many of them share a flush.
    pub(super) fn write_homes(&self, files: &[Ino]) -> Result<(), Error> {
        let mut waiting: Vec<(Ino, usize)> = {
            let core = self.core();
            let rounds = |ino: &Ino| {
                let node = core.inodes.nodes.get(ino)?;
                let rounds = node
                    .homed
                    .dirty
                    .len()
                    .div_ceil(crate::homed::BATCH_UNITS_MAX);
                (rounds > 0).then_some((*ino, rounds))
            };
            files.iter().filter_map(rounds).collect()
        };
        while !waiting.is_empty() {
            let (mut started, mut bytes) = (Vec::new(), 0);
            let mut rest = Vec::new();
            for (ino, rounds) in waiting {
                if bytes >= HOME_ROUND {
                    rest.push((ino, rounds));
                    continue;
                }
                let write = match self.step(|core| core.start_writeback(ino)) {
                    Err(Error::Stale(_)) => continue,
                    Err(error) => {
                        self.write_round(&started)?;
                        return Err(error);
                    }
                    Ok(write) => write,
                };
                if let Some(write) = write {
                    bytes += write.writes.iter().map(|(_, b)| b.len()).sum::<usize>();
                    started.push(write);
                }
                // A round of nothing but overwrites made images, and has nothing to write itself.
                if rounds > 1 {
                    rest.push((ino, rounds - 1));
                }
            }
            self.write_round(&started)?;
            waiting = rest;
        }
        Ok(())
    }

    /// Writes the new homes of some files in the order of their addresses, flushes once, and shows them.
    fn write_round(&self, round: &[HomeWrite]) -> Result<(), Error> {
        if round.is_empty() {
            return Ok(());
        }
        let geometry = self.core().geometry;
        let mut requests: Vec<(usize, Write<'_>)> = Vec::new();
        for (i, home) in round.iter().enumerate() {
            requests.extend(home.writes.iter().map(|(at, bytes)| {
                let offset = geometry.byte_offset(*at);
                (
                    i,
                    Write {
                        offset,
                        data: bytes,
                        kind: IoKind::Homed,
                    },
                )
            }));
        }
        requests.sort_by_key(|(_, write)| write.offset);
        let (owners, writes): (Vec<usize>, Vec<Write<'_>>) = requests.into_iter().unzip();
        let mut failed = vec![None; round.len()];
        for (i, result) in owners.into_iter().zip(self.device.write(&writes)) {
            failed[i] = failed[i].take().or(result.err());
        }
        let flushed = if mutant::active("show-unflushed") {
            None
        } else {
            self.device.flush().err()
        };
        for (home, failed) in round.iter().zip(failed) {
            let error = failed.or_else(|| flushed.clone());
            let shows = self
                .core()
                .home_written(home.ino, home.batch, error.is_none());
            if let Some(error) = error {
                tracing::error!(%error, ino = home.ino.0, "cannot write a large file's data");
            } else if shows {
                self.step(|core| core.show(home.ino))?;
            }
        }
        Ok(())
    }

    /// Settles a bounded number of images at their homes (rule 7).
    pub(super) fn settle_locked(&self, max: usize) -> Result<(), Error> {
        let due = self.step(|core| core.start_settle(max))?;
        if due.units.is_empty() {
            return Ok(());
        }
        let geometry = self.core().geometry;
        let requests: Vec<Write<'_>> = due
            .units
            .iter()
            .map(|(home, _, bytes)| Write {
                offset: geometry.byte_offset(*home),
                data: bytes,
                kind: IoKind::Settle,
            })
            .collect();
        let results = self.device.write(&requests);
        let flushed = if mutant::active("settled-unflushed") {
            Ok(())
        } else {
            self.device.flush()
        };
        if let Err(error) = flushed {
            self.core().settling.clear();
            return Err(error.into());
        }
        for ((home, image, _), result) in due.units.iter().zip(results) {
            match result {
                Ok(()) => self.step(|core| core.settled(*home, *image))?,
                Err(error) => {
                    // A settle that fails keeps its image (rule 12).
                    tracing::error!(%error, home = home.0, "cannot settle an image");
                    self.core().settling.remove(home);
                }
            }
        }
        Ok(())
    }
}
