//! `loamfs device copy`.

use std::path::PathBuf;

use loamfs_fs::{Error, Volume};
use serde_json::json;

use super::DeviceArgs;
use crate::failure::Failure;
use crate::members;
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::progress::StepProgress;

impl DeviceArgs {
    /// Has what the fast device holds stand twice, or once, and says so.
    ///
    /// # Errors
    ///
    /// As for [`DeviceArgs::make_copy`].
    pub(super) fn set_copy(&self, each: bool) -> Result<u8, Failure> {
        self.make_copy(each, members::named())?;
        let (word, times) = if each {
            ("each", "twice")
        } else {
            ("none", "once")
        };
        print_lines([match self.json {
            true => format!("{:#}", json!({ "copy": word })),
            false => format!("what the fast device holds stands {times} now"),
        }])
    }

    /// Has what the fast device holds stand twice, or once: of a volume that is mounted, or on these devices.
    ///
    /// # Errors
    ///
    /// That no device has room for it, or why the volume cannot be written; then it stands once.
    pub(super) fn make_copy(&self, each: bool, named: &[PathBuf]) -> Result<(), Failure> {
        if let Some(entry) = mounts::find(&self.volume) {
            let asked = control::ask_showing(&entry, &Request::Copy(each), "MiB copied");
            return asked.map(drop);
        }
        let (first, others) = self.candidates(named)?;
        let volume = self.opened(&first, &others)?;
        let copied = match each {
            true => make(&volume),
            false => volume.upkeep().copying().give_up(),
        };
        let closed = volume.close();
        copied
            .and(closed)
            .map_err(|error| Failure::volume(&self.volume, &error))
    }
}

fn make(volume: &Volume) -> Result<(), Error> {
    let mut bar = StepProgress::new();
    let mut total = 0;
    let made = volume.upkeep().copying().make(|left| {
        total = total.max(left);
        bar.step(1, "MiB copied", (total - left) >> 20, total >> 20);
        true
    });
    bar.finish();
    made.map(drop)
}
