//! Writing the data of large files to their homes: in rounds that share a flush, and by settling images.

use super::Volume;
use crate::error::Error;
use crate::writeback::{HomeWrite, SettleWrite};
use loamfs_device::{IoKind, Write};
use loamfs_format::{FragAddr, Ino, mutant};
use std::collections::BTreeSet;

/// Bytes of homed data that share a flush: memory holds them twice meanwhile.
const HOME_ROUND: usize = 16 << 20;

/// Files whose data are not where the next segment can show them, and why; they wait on.
pub(super) type Unwritten = Vec<(Ino, Error)>;

/// What of a file is still to be written: the units `from ..= to`.
struct Sweep {
    ino: Ino,
    from: u64,
    to: u64,
}

impl Volume {
    /// Settles up to `max` images at their homes. On a read-only volume it does nothing.
    ///
    /// # Errors
    /// [`Error`].
    pub fn settle(&self, max: usize) -> Result<(), Error> {
        let _commit = self.commit_lock();
        if self.core().read_only {
            return Ok(());
        }
        self.settle_locked(max)
    }

    /// Writes the data of `files` that waits now to new homes, flushes, and lets the next segment show it. What fails
    /// is tried once more, elsewhere (rule 12).
    pub(super) fn write_homes(&self, files: &[Ino]) -> Result<Unwritten, Error> {
        let failed = self.sweep(files)?;
        let files: BTreeSet<Ino> = failed.iter().map(|(ino, _)| *ino).collect();
        if files.is_empty() || mutant::active("no-second-try") {
            return Ok(failed);
        }
        self.sweep(&Vec::from_iter(files))
    }

    /// Goes once over all that waits now, whatever is written meanwhile. Files go together, in rounds of bounded size,
    /// so that many of them share a flush.
    fn sweep(&self, files: &[Ino]) -> Result<Unwritten, Error> {
        let mut waiting = self.waiting(files);
        let mut failed = Vec::new();
        while !waiting.is_empty() {
            let (mut started, mut bytes) = (Vec::new(), 0);
            let mut rest = Vec::new();
            for mut sweep in waiting {
                if bytes >= HOME_ROUND || self.is_segment_full() {
                    rest.push(sweep);
                    continue;
                }
                let (ino, from, to) = (sweep.ino, sweep.from, sweep.to);
                match self.step(|core| core.start_writeback(ino, from, to)) {
                    // Removed, or cut below what is left of it.
                    Err(Error::Stale(_)) | Ok(None) => {}
                    Err(error) => failed.push((ino, error)),
                    Ok(Some((next, write))) => {
                        bytes += write.as_ref().map_or(0, HomeWrite::bytes);
                        started.extend(write);
                        sweep.from = next;
                        rest.extend((next <= to).then_some(sweep));
                    }
                }
            }
            failed.append(&mut self.write_round(&started)?);
            if self.is_segment_full() {
                self.seal_early()?;
            }
            waiting = rest;
        }
        for (ino, error) in &failed {
            tracing::error!(%error, ino = ino.0, "cannot write a large file's data");
        }
        Ok(failed)
    }

    /// Whether images must wait for another segment. While files must be written out before the next is sealed (rule 3)
    /// it takes them all.
    fn is_segment_full(&self) -> bool {
        let core = self.core();
        core.barrier.is_empty() && core.segment_estimate() > core.segment_full()
    }

    fn waiting(&self, files: &[Ino]) -> Vec<Sweep> {
        let core = self.core();
        let sweep = |ino: &Ino| {
            let (to, _) = core.inodes.nodes.get(ino)?.homed.dirty.last_key_value()?;
            Some(Sweep {
                ino: *ino,
                from: 0,
                to: *to,
            })
        };
        files.iter().filter_map(sweep).collect()
    }

    /// Writes the new homes of some files in the order of their addresses, flushes once, and shows them.
    fn write_round(&self, round: &[HomeWrite]) -> Result<Unwritten, Error> {
        if round.is_empty() {
            return Ok(Vec::new());
        }
        let geometry = self.core().geometry;
        let mut requests: Vec<(usize, Write<'_>)> = Vec::new();
        for (i, home) in round.iter().enumerate() {
            requests.extend(home.writes.iter().map(|(at, bytes)| {
                let offset = geometry.byte_offset(*at);
                (i, Write::new(offset, bytes, IoKind::Homed))
            }));
        }
        requests.sort_by_key(|(_, write)| write.offset);
        let (owners, writes): (Vec<usize>, Vec<Write<'_>>) = requests.into_iter().unzip();
        let mut results = vec![Ok(()); round.len()];
        for (i, result) in owners.into_iter().zip(self.device.write(&writes)) {
            results[i] = results[i].clone().and(result);
        }
        let flushed = if mutant::active("show-unflushed") {
            Ok(())
        } else {
            self.flush_device()
        };
        let mut unwritten = Vec::new();
        for (home, result) in round.iter().zip(results) {
            let result = result.map_err(Error::from).and(flushed.clone());
            if let Err(error) = self.end_batch(home, result) {
                unwritten.push((home.ino, error));
            }
        }
        flushed.map(|()| unwritten)
    }

    /// The writes of a file's new homes are over. Unless the file shows them now, its data wait again.
    fn end_batch(&self, home: &HomeWrite, written: Result<(), Error>) -> Result<(), Error> {
        let good = written.is_ok() || mutant::active("home-error-shown");
        let shows = self.core().home_written(home.ino, home.batch, good);
        if !good {
            return written;
        }
        if shows && let Err(error) = self.step(|core| core.show(home.ino)) {
            if !mutant::active("batch-leaks") {
                self.core().abandon_batch(home.ino);
            }
            return Err(error);
        }
        Ok(())
    }

    /// Settles a bounded number of images at their homes (rule 7). One that fails keeps its image (rule 12), and is not
    /// tried again before the next mount.
    pub(super) fn settle_locked(&self, max: usize) -> Result<(), Error> {
        let due = self.read_images(max)?;
        if due.units.is_empty() {
            return Ok(());
        }
        let geometry = self.core().geometry;
        let requests: Vec<Write<'_>> = due
            .units
            .iter()
            .map(|(home, _, bytes)| Write::new(geometry.byte_offset(*home), bytes, IoKind::Settle))
            .collect();
        let results = self.device.write(&requests);
        if !mutant::active("settled-unflushed") {
            self.flush_device()?;
        }
        for ((home, image, _), result) in due.units.iter().zip(results) {
            let result = match result {
                Err(error) if !mutant::active("settle-error-ignored") => Err(error.into()),
                _ => self.step(|core| core.settled(*home, *image)),
            };
            if let Err(error) = result {
                self.leave_unsettled(*home, &error);
            }
        }
        Ok(())
    }

    /// Reads up to `max` images that may settle, past those that cannot be read.
    fn read_images(&self, max: usize) -> Result<SettleWrite, Error> {
        let images = self.core().due_images(max);
        let mut due = SettleWrite::default();
        // All at once; one at a time if that fails, to find out which are damaged.
        match self.step(|core| core.read_images(&images)) {
            Ok(mut units) => due.units.append(&mut units),
            Err(_) => {
                for image in images {
                    match self.step(|core| core.read_images(&[image])) {
                        Ok(mut units) => due.units.append(&mut units),
                        Err(error) => self.leave_unsettled(image.0, &error),
                    }
                }
            }
        }
        Ok(due)
    }

    fn leave_unsettled(&self, home: FragAddr, error: &Error) {
        tracing::error!(%error, home = home.0, "cannot settle an image; it stays where it is");
        self.core().unsettled.insert(home);
    }
}
