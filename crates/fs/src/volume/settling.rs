//! When images settle: by the clock, before somebody reads them, and before the volume is closed. Regions are weighed a
//! piece at a time, so that nobody waits long for the state meanwhile.

use crate::error::Error;
use crate::reclaim::{self, Weighed};
use crate::region::Region;
use crate::unit::UNIT;
use crate::writeback::Sweeper;
use loamfs_format::Ino;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Images that one step settles where that does not pay.
const SETTLE_STEP: usize = 1024;
/// Regions that are looked at closely at a time: those with most images.
const CLOSELY: usize = 8;
/// Images that are looked at in one hold of the state.
const LOOKED_AT: usize = 1024;

/// Whether nobody asks the device for anything.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// Its requests when that was last looked at.
    requests: u64,
    /// Whether nothing was found to settle since then.
    nothing: bool,
}

impl Quiet {
    /// Whether it was asked for nothing since the last time, and there may be something to settle.
    fn begins(&mut self, requests: u64) -> bool {
        let is_quiet = requests == self.requests;
        self.requests = requests;
        self.nothing &= is_quiet;
        is_quiet && !self.nothing
    }

    /// Nothing was found to settle. Requests that were made meanwhile were somebody else's.
    fn found_nothing(&mut self) {
        self.nothing = true;
    }

    /// What settled made requests too, as many as there are by now.
    fn settled(&mut self, requests: u64) {
        self.requests = requests;
    }
}

impl Sweeper<'_> {
    /// Settles what has to leave the log, or else what is worth it when the device was asked for nothing since the last time.
    /// Answers whether there was anything.
    pub(super) fn settle_in_time(&self) -> Result<bool, Error> {
        let Some(_turn) = self.may_settle() else {
            return Ok(true);
        };
        let one_sweep = self.settle_buffer();
        if self.core().settler().is_pressed() {
            self.settle_pressed(one_sweep)?;
            return Ok(true);
        }
        if !self.core().settler().chooses() || !self.quiet().begins(self.requests()) {
            return Ok(false);
        }
        let regions = reclaim::idle(&self.largest());
        let settled = self.settle_regions(&regions, one_sweep)?;
        let requests = self.requests();
        match settled {
            0 => self.quiet().found_nothing(),
            _ => self.quiet().settled(requests),
        }
        Ok(settled > 0)
    }

    /// Settles the region where a sweep takes least for each image, or the next one if nothing of that can go home.
    fn settle_pressed(&self, one_sweep: usize) -> Result<(), Error> {
        let mut weighed = self.largest();
        reclaim::cheapest_first(&mut weighed);
        for Weighed {
            region, estimate, ..
        } in weighed
        {
            let max = if estimate.pays() {
                one_sweep
            } else {
                SETTLE_STEP
            };
            if self.settle_regions(&[region], max)? > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Bytes of images that are in memory together on their way home, at most: what was said, or else what the cache of contents has
    /// room for, since a sweep leaves them there, and half of it in any case. So after a mount one pass over the log does.
    pub(crate) fn sweep_bytes(&self) -> u64 {
        let least = self.settle_bytes();
        match self.settle_bytes {
            Some(_) => least,
            None => least.max(self.core().blocks.contents_free()),
        }
    }

    /// Bytes of contents that are in memory beside the cache, at most: what was said, up to half of the cache, or half of what the
    /// cache keeps of contents.
    pub(crate) fn settle_bytes(&self) -> u64 {
        match self.settle_bytes {
            Some(bytes) => bytes.min(self.shares.bytes / 2) as u64,
            None => self.core().blocks.contents_max() / 2,
        }
    }

    /// The right to a sweep that nobody needs; `None` while somebody else has it: memory is for one at a time.
    pub(crate) fn may_settle(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turns.settling.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Requests of the device so far.
    pub(super) fn requests(&self) -> u64 {
        let total = self.device.counters().total();
        total.reads + total.writes
    }

    fn quiet(&self) -> MutexGuard<'_, Quiet> {
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles what is worth it before the volume is closed, within a bound.
    pub(super) fn settle_at_last(&self) {
        if !self.core().settler().chooses() {
            return;
        }
        let regions = reclaim::closing(&self.largest());
        if let Err(error) = self.settle_regions(&regions, usize::MAX) {
            tracing::warn!(%error, "images stay in the log");
        }
    }

    /// Somebody reads bytes of a file that are not in memory, and it is time to ask what should settle before
    /// ([`crate::core::Core::settler`]). The regions that do, if that pays: whoever reads in order will read the rest of it, and
    /// what is behind, whose images are passed in the log by the same sweep; whoever reads at random has paid as much for it
    /// as settling takes.
    pub(super) fn due_before_read(&self, ino: Ino, read: Range<u64>) -> Vec<Region> {
        let region = Region::of(ino, read.start / UNIT);
        let estimate = self.weigh(region).estimate;
        let settles = {
            let mut core = self.core();
            let has_image = core.settler().has_image(region, &read);
            let readers = core.writeback.readers();
            let asks = readers.knows(region) || {
                readers.meet(region, estimate);
                readers.read(region, read, has_image)
            };
            asks && readers.decide(region, estimate)
        };
        if !settles {
            return Vec::new();
        }
        let regions = std::iter::successors(Some(region), |region| Some(region.next()));
        let behind = regions.skip(1).take(CLOSELY);
        let pays = |region: &Region| self.weigh(*region).estimate.pays();
        std::iter::once(region)
            .chain(behind.take_while(pays))
            .collect()
    }

    /// What settling everything that may settle now would take.
    pub(super) fn settle_time(&self) -> Duration {
        let regions = self.core().settler().regions();
        let costs = regions
            .into_iter()
            .map(|(region, _)| self.weigh(region).estimate.cost);
        Duration::from_micros(costs.sum())
    }

    /// The regions with most images that may settle, those with most first.
    fn largest(&self) -> Vec<Weighed> {
        let regions = self.core().settler().regions();
        let mut weighed: Vec<Weighed> = Vec::new();
        for (region, most) in regions {
            if weighed.iter().filter(|it| it.images >= most).count() >= CLOSELY {
                break;
            }
            weighed.push(self.weigh(region));
        }
        weighed.retain(|it| it.images > 0);
        weighed.sort_unstable_by_key(|it| (Reverse(it.images), it.region));
        weighed.truncate(CLOSELY);
        weighed
    }

    fn weigh(&self, region: Region) -> Weighed {
        let (mut images, mut absent, mut from) = (Vec::new(), Vec::new(), None);
        let prices = loop {
            let mut core = self.core();
            let (mut some, next) = core.settler().images(region, from, LOOKED_AT);
            let read = some.iter().map(|(_, entry)| entry);
            let read = read.filter(|entry| !core.blocks.holds(entry.image, entry.crc.into()));
            absent.extend(read.map(|entry| entry.image));
            images.append(&mut some);
            if next.is_none() {
                break core.prices();
            }
            from = next;
        };
        Weighed {
            region,
            images: images.len(),
            estimate: prices.estimate(&images, &absent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were taken for those of a sweep that there was not, and what they brought never settled.
    #[test]
    fn requests_while_nothing_was_found_are_somebody_elses() {
        let mut quiet = Quiet::default();
        assert!(!quiet.begins(5) && quiet.begins(5));
        quiet.found_nothing();
        assert!(!quiet.begins(5) && !quiet.begins(7));
        assert!(quiet.begins(7));
        quiet.settled(9);
        assert!(quiet.begins(9));
    }
}
