//! A file system of its own on a device, whose requests are traced from before the first mount to after the last unmount.

use std::path::Path;

use super::{CACHE, Drops, Seen, Target};
use crate::Error;
use crate::capture::Capture;
use crate::lab::{Lab, MemoryLimit, Mounted, drop_caches};
use crate::suite::files::{Files, MountedFiles};
use crate::suite::spent::{Daemons, children};

/// A new file system on a device.
pub struct OnDevice {
    // Unmounted before the device goes, and before the bound on memory does.
    mounted: Option<Mounted>,
    limit: Option<MemoryLimit>,
    capture: Capture,
    drops: Drops,
    /// CPU time of its daemons that have ended, in seconds.
    ended: f64,
    files: MountedFiles,
    lab: Lab,
}

impl OnDevice {
    /// That of a lab.
    ///
    /// # Errors
    /// Those of the capture.
    pub fn new(lab: Lab) -> Result<OnDevice, Error> {
        Ok(OnDevice {
            mounted: None,
            limit: None,
            capture: Capture::start(lab.device())?,
            drops: Drops::new()?,
            ended: 0.0,
            files: MountedFiles::new(lab.root().to_owned()),
            lab,
        })
    }

    /// Mounts with cold caches.
    fn mount(&mut self, option: Option<&str>) -> Result<(), Error> {
        self.drop_caches()?;
        self.mounted = Some(self.lab.mount_with(option)?);
        Ok(())
    }
}

impl Target for OnDevice {
    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn root(&self) -> Option<&Path> {
        Some(self.files.root())
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.unmount()?;
        self.mount(None)
    }

    /// LoamFS gets a cache that leaves room for the kernel's.
    fn bound_memory(&mut self, bytes: Option<u64>) -> Result<bool, Error> {
        let unmounted = self.unmount();
        self.limit = None;
        unmounted?;
        let mut option = None;
        if let Some(bytes) = bytes {
            self.limit = MemoryLimit::enter(bytes)?;
            option = self
                .limit
                .as_ref()
                .map(|_| format!("cache={}", bytes / CACHE));
        }
        self.mount(option.as_deref())?;
        Ok(self.limit.is_some())
    }

    fn drop_caches(&mut self) -> Result<(), Error> {
        self.drops.count();
        match &self.mounted {
            Some(mounted) => mounted.drop_caches(),
            None => drop_caches(),
        }
    }

    fn settle(&mut self) -> Result<(), Error> {
        match &self.mounted {
            Some(mounted) => mounted.tell("settle"),
            None => Ok(()),
        }
    }

    fn data(&self) -> Result<Option<(u64, u64)>, Error> {
        self.mounted.as_ref().map_or(Ok(None), Mounted::data)
    }

    fn daemons(&self) -> Daemons {
        Daemons {
            live: self.mounted.as_ref().and_then(Mounted::daemon),
            ended: self.ended,
        }
    }

    fn unmount(&mut self) -> Result<(), Error> {
        let Some(mounted) = self.mounted.take() else {
            return Ok(());
        };
        let (has_daemon, before) = (mounted.daemon().is_some(), children());
        mounted.unmount()?;
        if has_daemon {
            self.ended += children() - before;
        }
        Ok(())
    }

    fn seen(self: Box<Self>) -> Result<Seen, Error> {
        let trace = self.capture.stop()?;
        Ok(Seen {
            trace,
            parts: Vec::new(),
            journal: self.lab.journal()?,
            disturbed: self.drops.disturbed()?,
        })
    }
}
