//! Telling programs that do not know a feature, before a volume uses it.

use super::Engine;
use super::commit::End;
use crate::error::Error;
use loamfs_format::superblock::Features;

impl Engine {
    /// Has both superblock copies announce a feature before the volume uses it: programs that do not know it
    /// would take what stands there for something else.
    pub(super) fn announce(&self, feature: Features) -> Result<(), Error> {
        if self.core().checkpoints.is_announced(feature) {
            return Ok(());
        }
        let sealer = self.sealer();
        if self.core().checkpoints.is_announced(feature) {
            return Ok(());
        }
        let before = {
            let sb = &mut self.core().sb;
            let before = sb.features();
            *sb = sb.with_features(before.and(feature));
            before
        };
        // Each names one copy anew.
        let named = match self.law().announces_in_both() {
            true => sealer.name_in_both(),
            false => sealer.checkpoint(End::Open),
        };
        let mut core = self.core();
        match named {
            Ok(()) => core.checkpoints.note_announced(feature),
            Err(_) => core.sb = core.sb.with_features(before),
        }
        named
    }
}
