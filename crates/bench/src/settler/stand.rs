//! A volume on a priced disk in memory, and what a policy does on it.

use std::cell::RefCell;

use loamfs_fs::{OpenOptions, SettleWhen, Volume};

use super::{Estimate, Policy, Taken};
use crate::Error;
use crate::disk::Preset;
use crate::modelled::{Modelled, failed};
use crate::suite::files::LibraryFiles;

/// Bytes of the volume.
const VOLUME: u64 = 2 << 30;
/// Looks of the clock that find nobody asking for anything.
const IDLE_TICKS: usize = 10;

/// A volume in use.
pub(super) struct Stand {
    policy: Policy,
    modelled: Modelled,
    estimate: RefCell<Option<Estimate>>,
}

impl Stand {
    pub fn new(policy: Policy, preset: Preset, seed: u64) -> Result<Stand, Error> {
        let options = OpenOptions {
            settles: match policy {
                Policy::Weighed => SettleWhen::Pays,
                Policy::Never | Policy::Always | Policy::Unmount => SettleWhen::Asked,
            },
            ..OpenOptions::default()
        };
        Ok(Stand {
            policy,
            modelled: Modelled::new(preset, VOLUME, seed, options)?,
            estimate: RefCell::default(),
        })
    }

    pub fn files(&self) -> &LibraryFiles {
        self.modelled.files()
    }

    /// What was made so far does not count; nothing of it is in memory.
    pub fn is_made(&mut self) -> Result<(), Error> {
        self.remount()?;
        self.modelled.disk().begin("work");
        Ok(())
    }

    /// A second passes in which there was work.
    pub fn passes(&self) -> Result<(), Error> {
        if self.policy == Policy::Always {
            self.settle()?;
        }
        self.volume()
            .upkeep()
            .tick()
            .map_err(failed("looking after"))
    }

    /// Seconds pass in which nobody asks for anything.
    pub fn rests(&self) -> Result<(), Error> {
        (0..IDLE_TICKS).try_for_each(|_| self.passes())
    }

    /// The volume is closed and opened.
    pub fn remount(&mut self) -> Result<(), Error> {
        self.close()?;
        self.modelled.reopen()
    }

    /// The volume is closed for good: what it took.
    pub fn finish(self) -> Result<Taken, Error> {
        self.close()?;
        let images = self.volume().info().images;
        self.modelled.disk().end(0);
        let total = self.modelled.disk().priced().total;
        Ok(Taken {
            policy: self.policy,
            seconds: total.seconds,
            owed: total.owed_seconds,
            images,
            estimate: self.estimate.into_inner(),
        })
    }

    fn close(&self) -> Result<(), Error> {
        if matches!(self.policy, Policy::Always | Policy::Unmount) {
            // As closing does first.
            self.volume().sync().map_err(failed("syncing"))?;
            self.settle()?;
        }
        self.modelled.close()
    }

    /// Seconds of the disk so far, with cleaning that it owes, once nothing waits in its queue.
    fn spent(&self) -> f64 {
        self.modelled.disk().end(0);
        let total = self.modelled.disk().priced().total;
        total.seconds + total.owed_seconds
    }

    fn volume(&self) -> &Volume {
        self.modelled.volume()
    }

    /// Settles all there is, and compares what that takes with what it was said to take.
    fn settle(&self) -> Result<(), Error> {
        let volume = self.volume();
        let info = volume.info();
        if info.images == 0 {
            return Ok(());
        }
        let before = self.spent();
        volume
            .upkeep()
            .settle(usize::MAX)
            .map_err(failed("settling"))?;
        let estimate = Estimate {
            images: info.images,
            said: info.settle_time.as_secs_f64(),
            took: self.spent() - before,
        };
        let mut largest = self.estimate.borrow_mut();
        if largest.is_none_or(|it| it.images < estimate.images) {
            *largest = Some(estimate);
        }
        Ok(())
    }
}
