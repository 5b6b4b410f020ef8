//! Writing the data of large files to their homes, in rounds that share a flush.

use super::show::Show;
use super::start::{Crcs, HomeWrite, Start, Started};
use crate::core::Core;
use crate::error::Error;
use crate::law::Failed;
use crate::reclaim::Fight;
use crate::volume::{Engine, Sealer, TRIES};
use loamfs_device::{IoKind, Write};
use loamfs_format::Ino;
use std::collections::BTreeSet;

/// Files whose data are not where the next segment can show them, and why; they wait on.
pub(crate) type NotHome = Vec<(Ino, Error)>;

/// What of a file is still to be written: the units `from ..= to`, and all that was put before put number `upto`.
struct Remaining {
    ino: Ino,
    from: u64,
    to: u64,
    upto: u64,
}

impl Remaining {
    /// What waits of a file now.
    fn of(core: &Core, ino: Ino) -> Option<Remaining> {
        let homed = core.inodes.get(ino)?.homed();
        let last = homed.last_dirty();
        let waits = last.is_some() || homed.is_flying();
        waits.then(|| Remaining {
            ino,
            from: 0,
            to: last.unwrap_or(0),
            upto: homed.puts(),
        })
    }

    /// This one, or when it is through the next over what of the file waits all the same; `None` when nothing does.
    fn next(self, core: &Core) -> Option<Remaining> {
        if self.from <= self.to {
            return Some(self);
        }
        let homed = core.inodes.get(self.ino)?.homed();
        if !homed.waits(self.upto) {
            return None;
        }
        let again = Remaining::of(core, self.ino)?;
        Some(Remaining {
            upto: self.upto,
            ..again
        })
    }
}

/// What is written together, and what is left.
#[derive(Default)]
struct Round {
    writes: Vec<HomeWrite>,
    rest: Vec<Remaining>,
    /// Files of which others are writing something.
    busy: Vec<Remaining>,
}

impl Round {
    /// Bytes that are written.
    fn bytes(&self) -> usize {
        self.writes.iter().map(HomeWrite::bytes).sum()
    }
}

/// Whether it was for want of room.
pub(crate) fn lacks_space((_, error): &(Ino, Error)) -> bool {
    matches!(error, Error::NoSpace)
}

fn tell((ino, error): &(Ino, Error)) {
    tracing::error!(%error, ino = ino.0, "cannot write a large file's data");
}

impl Engine {
    /// Brings the data of `files` that waits now home. Where none is found for it, since others move what stands in the
    /// way just now, space is won as for an operation: what was accepted is placed (rule 10).
    pub(crate) fn bring_home(&self, files: &[Ino]) -> Result<NotHome, Error> {
        let mut unwritten = self.write_homes(files, None)?;
        for means in 1..=TRIES {
            let (full, mut others): (NotHome, NotHome) =
                unwritten.into_iter().partition(lacks_space);
            if full.is_empty() {
                return Ok(others);
            }
            self.win_space(Fight::Room, means)?;
            let files: Vec<Ino> = full.into_iter().map(|(ino, _)| ino).collect();
            others.append(&mut self.write_homes(&files, None)?);
            unwritten = others;
        }
        unwritten.iter().filter(|it| lacks_space(it)).for_each(tell);
        Ok(unwritten)
    }

    /// Writes the data of `files` that waits now to new homes, flushes, and lets the next segment show it. What fails
    /// is tried once more, elsewhere (rule 12). Files that others are writing are waited for. Without a `sealer` others commit
    /// meanwhile.
    pub(crate) fn write_homes(
        &self,
        files: &[Ino],
        sealer: Option<&Sealer<'_>>,
    ) -> Result<NotHome, Error> {
        let write_out = || WriteOut::new(self, sealer);
        let failed = write_out().write(files)?;
        let files: BTreeSet<Ino> = failed.iter().map(|(ino, _)| *ino).collect();
        if files.is_empty() || !self.law().tries_again() {
            return Ok(failed);
        }
        write_out().write(&Vec::from_iter(files))
    }

    /// Whether images, and what settled, must wait for another segment. While files must be written out before the next is
    /// sealed (rule 3) it takes them all.
    fn is_segment_full(&self) -> bool {
        let mut core = self.core();
        core.budget().segment_length() > core.sizes().segment_full() && core.held_up().is_empty()
    }

    /// Makes room in the next segment, if that is full. Whoever lets nobody else seal brings the right to it.
    pub(super) fn seal_if_full(&self, sealer: Option<&Sealer<'_>>) -> Result<(), Error> {
        match sealer {
            _ if !self.is_segment_full() => Ok(()),
            Some(sealer) => sealer.seal_early(),
            None => self.sealer().seal_early(),
        }
    }

    /// Returns when nobody is writing new homes of a file.
    pub(crate) fn wait_for_batch(&self, ino: Ino) {
        let mut core = self.core();
        while let Some(node) = core.inodes.get(ino)
            && (node.homed().is_flying() || core.writeback.arrives(ino))
            // Whoever wrote it may have panicked.
            && core.access.broken().is_none()
        {
            core = self.wait_landed(core);
        }
    }
}

/// A write-out of some files, and what of it failed so far.
struct WriteOut<'v> {
    engine: &'v Engine,
    /// Of whoever lets nobody else commit meanwhile.
    sealer: Option<&'v Sealer<'v>>,
    failed: NotHome,
}

impl<'v> WriteOut<'v> {
    fn new(engine: &'v Engine, sealer: Option<&'v Sealer<'v>>) -> WriteOut<'v> {
        WriteOut {
            engine,
            sealer,
            failed: NotHome::new(),
        }
    }

    /// Goes over all that waits now, whatever is written meanwhile. Files go together, in rounds of bounded size, so
    /// that many of them share a flush.
    fn write(mut self, files: &[Ino]) -> Result<NotHome, Error> {
        let mut waiting: Vec<Remaining> = {
            let core = self.engine.core();
            core.access.check()?;
            files
                .iter()
                .filter_map(|ino| Remaining::of(&core, *ino))
                .collect()
        };
        while !waiting.is_empty() {
            let mut round = self.write_round(waiting)?;
            self.engine.seal_if_full(self.sealer)?;
            if let ([], Some(it)) = (&round.rest[..], round.busy.first()) {
                self.engine.wait_for_batch(it.ino);
            }
            round.rest.append(&mut round.busy);
            waiting = self.go_on(round.rest);
        }
        // Where space lacks, more is won first: see `bring_home`.
        let told = self.failed.iter().filter(|it| !lacks_space(it));
        told.for_each(tell);
        Ok(self.failed)
    }

    /// What is left after a round. What was given up while it was written waits as before, and is gone over again.
    fn go_on(&self, rest: Vec<Remaining>) -> Vec<Remaining> {
        let core = self.engine.core();
        let mut next = Vec::new();
        for it in rest {
            let through = it.from > it.to;
            if through && self.failed.iter().any(|(ino, _)| *ino == it.ino) {
                continue;
            }
            next.extend(it.next(&core));
        }
        next
    }

    /// Starts as much as a round may hold.
    fn start_round(&mut self, waiting: Vec<Remaining>) -> Round {
        let (mut round, mut bytes) = (Round::default(), 0);
        for mut it in waiting {
            if bytes >= self.engine.round_bytes() || self.engine.is_segment_full() {
                round.rest.push(it);
                continue;
            }
            let (ino, from, to) = (it.ino, it.from, it.to);
            match self
                .engine
                .step(|core| core.perform(&Start { ino, from, to }))
            {
                // Removed meanwhile.
                Err(Error::Stale(_)) => {}
                Err(error) => self.failed.push((ino, error)),
                Ok(Started::Busy) => round.busy.push(it),
                Ok(Started::Nothing) => {
                    it.from = to + 1;
                    round.rest.push(it);
                }
                Ok(Started::Until(next, write)) => {
                    bytes += write.as_ref().map_or(0, HomeWrite::bytes);
                    round.writes.extend(write);
                    it.from = next;
                    round.rest.push(it);
                }
            }
        }
        round
    }

    /// Starts a round, writes its new homes in the order of their addresses, flushes once, and shows them.
    fn write_round(&mut self, waiting: Vec<Remaining>) -> Result<Round, Error> {
        let _homes = self.engine.homes_shared();
        let round = self.start_round(waiting);
        if round.writes.is_empty() {
            return Ok(round);
        }
        let geometry = self.engine.core().geometry;
        let homes = round.writes.iter().flat_map(|home| home.homes(&geometry));
        let homes = Vec::from_iter(homes);
        self.engine.yield_to(&homes);
        let mut buffer = self.engine.spare().take(round.bytes());
        let (mut gathered, mut checksums, mut rest) = (Vec::new(), Vec::new(), &mut buffer[..]);
        for (i, home) in round.writes.iter().enumerate() {
            let (room, others) = rest.split_at_mut(home.bytes());
            rest = others;
            let (writes, crcs) = home.put_together(room);
            gathered.extend(writes.into_iter().map(|(at, bytes)| (at, i, bytes)));
            checksums.push(crcs);
        }
        gathered.sort_by_key(|(at, ..)| *at);
        let requests = gathered.iter().map(|(at, i, bytes)| {
            let offset = geometry.byte_offset(*at);
            (*i, Write::new(offset, bytes, IoKind::Homed))
        });
        let (owners, writes): (Vec<usize>, Vec<Write<'_>>) = requests.unzip();
        let mut results = vec![Ok(()); round.writes.len()];
        for (i, result) in owners.into_iter().zip(self.engine.device().write(&writes)) {
            results[i] = results[i].clone().and(result);
        }
        self.engine.spare().keep(buffer);
        let flushed = self.engine.flush_device();
        self.engine.forget_tenants(&homes);
        for ((home, crcs), result) in round.writes.iter().zip(checksums).zip(results) {
            let result = result.map_err(Error::from).and(flushed.clone());
            if let Err(error) = self.end_batch(home, result.map(|()| crcs)) {
                self.failed.push((home.ino, error));
            }
        }
        self.engine.note_landed();
        flushed.map(|()| round)
    }

    /// The writes of a file's new homes are over. Unless the file shows them now, its data wait again.
    fn end_batch(&self, home: &HomeWrite, written: Result<Crcs, Error>) -> Result<(), Error> {
        let (crcs, failed) = match written {
            Ok(crcs) => (Some(crcs), None),
            Err(error) => (None, Some(error)),
        };
        let shows = self
            .engine
            .core()
            .homes()
            .landed(home.ino, home.batch, crcs);
        if let Some(error) = failed {
            return Err(error);
        }
        if shows
            && let Err(error) = self
                .engine
                .step(|core| core.perform(&Show { ino: home.ino }))
        {
            if self.engine.law().heeds(Failed::Batch) {
                self.engine.core().homes().abandon(home.ino);
            }
            return Err(error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::blocks::{Fetch, Pins, What};
    use crate::core::Core;
    use crate::fixture::{file, volume};
    use crate::unit::UNIT;
    use crate::{OpenOptions, Volume};
    use loamfs_format::checksum::unit_crc;
    use loamfs_format::{FragAddr, Ino, Pointer};
    use std::collections::HashMap;
    use std::sync::Arc;

    /// Who reads a file while it is removed may put it into memory behind that. A checksum of four bytes does not tell it from what
    /// somebody else writes there, if its owner knew that.
    #[test]
    fn what_was_read_of_an_earlier_tenant_is_not_found_at_a_new_home() {
        let volume = volume(64 << 20, &OpenOptions::default());
        let ino = file(&volume, b"new");
        let new = [7; UNIT as usize];
        volume.write(ino, 0, &new.repeat(100)).unwrap();
        {
            let mut core = volume.core();
            let old: Arc<[u8]> = [8; UNIT as usize].into();
            let (frags, unit) = (core.geometry.total_frags, core.geometry.unit_frags());
            for addr in (0..frags).step_by(unit as usize) {
                let crc = unit_crc(&new).into();
                core.blocks.keep(FragAddr(addr), crc, Arc::clone(&old));
            }
        }
        volume.sync().unwrap();
        let read = volume.read(ino, 0, 100 * UNIT as usize).unwrap();
        assert!(read == new.repeat(100));
    }
    type Unit = [u8; UNIT as usize];

    /// Two units that have one checksum.
    fn twins() -> [Unit; 2] {
        let unit = |number: u64| {
            let mut unit = [7; UNIT as usize];
            unit[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            unit
        };
        let mut known = HashMap::new();
        let mut numbers = 0..;
        let [one, other] = numbers
            .find_map(|number| Some([known.insert(unit_crc(&unit(number)), number)?, number]))
            .unwrap();
        [unit(one), unit(other)]
    }

    /// Somebody's read of all there is gives this unit, which is what his pointers name.
    fn give_all(core: &mut Core, unit: &Unit, pins: &mut Pins) {
        let frags = core.geometry.unit_frags();
        // Images stand anywhere in the log, which begins in the first group.
        let log = 0..core.geometry.group_frags;
        let homes = (log.end..core.geometry.total_frags).step_by(frags as usize);
        for addr in log.chain(homes) {
            let pointer = Pointer {
                addr: FragAddr(addr),
                frags: frags as u32,
                stored: UNIT as u32,
                checksum: unit_crc(unit).into(),
                ..Pointer::NONE
            };
            let (ino, unit_no) = (Ino(99), 0);
            let what = What::Unit { ino, unit: unit_no };
            let fetch = Fetch { pointer, what };
            core.blocks.fetched(&fetch, unit, pins).unwrap();
        }
    }

    /// A volume with a file whose data wait, all of whose units are the one: for homes, or to become images of those that it has.
    fn waiting(unit: &Unit, as_images: bool) -> (Volume, Ino) {
        let volume = volume(64 << 20, &OpenOptions::default());
        let ino = file(&volume, b"new");
        if as_images {
            volume
                .write(ino, 0, &[1; UNIT as usize].repeat(100))
                .unwrap();
            volume.sync().unwrap();
        }
        volume.write(ino, 0, &unit.repeat(100)).unwrap();
        (volume, ino)
    }

    fn holds(volume: &Volume, ino: Ino, unit: &Unit) {
        let read = volume.read(ino, 0, 100 * UNIT as usize).unwrap();
        assert!(read == unit.repeat(100));
    }

    /// An operation of somebody who knew what would be written there takes until behind that, and has what it read.
    #[test]
    fn what_an_operation_has_of_an_earlier_tenant_is_not_found_where_it_stood() {
        let [new, old] = twins();
        for as_images in [false, true] {
            let (volume, ino) = waiting(&new, as_images);
            let mut pins = Pins::default();
            volume.core().blocks.note_asked(&mut pins);
            give_all(&mut volume.core(), &old, &mut pins);
            volume.sync().unwrap();
            volume.core().blocks.forget_all();
            holds(&volume, ino, &new);
            volume.core().blocks.unpin(pins);
            holds(&volume, ino, &new);
        }
    }

    /// A read that began before brings it behind that.
    #[test]
    fn what_is_late_is_not_found_where_it_stood() {
        let [new, old] = twins();
        for as_images in [false, true] {
            let (volume, ino) = waiting(&new, as_images);
            assert_eq!(volume.info().images, 0);
            let mut pins = Pins::default();
            volume.core().blocks.note_asked(&mut pins);
            volume.sync().unwrap();
            assert_eq!(volume.info().images > 0, as_images);
            give_all(&mut volume.core(), &old, &mut pins);
            holds(&volume, ino, &new);
            volume.core().blocks.unpin(pins);
        }
    }
}
