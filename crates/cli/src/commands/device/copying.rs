//! `loamfs device copy`.

use std::path::PathBuf;

use loamfs_fs::CopyKind;
use serde_json::json;

use super::DeviceArgs;
use crate::failure::Failure;
use crate::members;
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::progress::StepProgress;

impl DeviceArgs {
    /// Has what the fast device holds stand twice in this way, or once, and says so.
    ///
    /// # Errors
    ///
    /// As for [`DeviceArgs::make_copy`].
    pub(super) fn set_copy(&self, copy: Option<CopyKind>) -> Result<u8, Failure> {
        self.make_copy(copy, members::named())?;
        let times = match copy {
            Some(CopyKind::Each) => "what the fast device holds stands twice now",
            Some(CopyKind::Behind) => {
                "what the fast device holds stands on another one too, as it is now; that is renewed while the volume is mounted"
            }
            None => "what the fast device holds stands once now",
        };
        print_lines([match self.json {
            true => format!("{:#}", json!({ "copy": control::copy_word(copy) })),
            false => times.to_owned(),
        }])
    }

    /// Has what the fast device holds stand twice in this way, or once: of a volume that is mounted, or on these devices.
    ///
    /// # Errors
    ///
    /// That no device has room for it, or why the volume cannot be written; then it stands once.
    pub(super) fn make_copy(
        &self,
        copy: Option<CopyKind>,
        named: &[PathBuf],
    ) -> Result<(), Failure> {
        if let Some(entry) = mounts::find(&self.volume) {
            let asked = control::ask_showing(&entry, &Request::Copy(copy), "MiB copied");
            return asked.map(drop);
        }
        let (first, others) = self.candidates(named)?;
        let volume = self.opened(&first, &others)?;
        let mut bar = StepProgress::new();
        let mut total = 0;
        let copied = volume.upkeep().copying().set(copy, |left| {
            total = total.max(left);
            bar.step(1, "MiB copied", (total - left) >> 20, total >> 20);
            true
        });
        bar.finish();
        let closed = volume.close();
        copied
            .and(closed)
            .map_err(|error| Failure::volume(&self.volume, &error))
    }
}
