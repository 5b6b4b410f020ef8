//! A copy of what the leading device holds that is behind: it has an older checkpoint, whole ([`Superblock::behind`]; rule 5).
//!
//! What a newer one needs is copied to it now and then, to the same addresses. That goes over nothing that the older one needs: what was freed
//! since then is not used again before the copy names a checkpoint that has freed it too.

use crate::error::LogError;
use crate::law::Rules;
use crate::superblocks;
use loamfs_device::{Device, DeviceError, JoinedDevice, Member};
use loamfs_format::Ssn;
use loamfs_format::superblock::{Superblock, offsets};
use loamfs_space::law::Law;
use std::ops::Range;

/// Bytes that are copied at once.
const STEP: u64 = 4 << 20;

/// What stands in the second place of a volume whose copy is behind.
#[derive(Debug, Clone, Copy)]
pub struct Behind {
    /// The checkpoint that each of its superblocks names.
    named: [Option<Ssn>; 2],
    /// Up to there what was freed may have been used again.
    copied: Ssn,
}

impl Behind {
    /// What the second place says; `None` where its device is missing. One without a superblock of this volume holds nothing yet.
    ///
    /// # Errors
    /// The device's.
    pub fn read(device: &dyn Device, sb: &Superblock) -> Result<Option<Behind>, LogError> {
        let Some(place) = place_of(device)? else {
            return Ok(None);
        };
        let named = match superblocks::find(&place) {
            Ok(copies) if copies.newest.uuid == sb.uuid => copies.named,
            // What cannot be read is not there.
            _ => [None; 2],
        };
        Ok(Some(Behind {
            named,
            copied: sb.copied,
        }))
    }

    /// That it is the copy of this log, which ends with `last`. One that names less than the log's device knows it to have is from a backup, since
    /// what that needs may have been used again. If it names more, the log is from one.
    ///
    /// # Errors
    /// [`LogError::StaleFirst`], [`LogError::StaleSecond`].
    pub fn check(&self, last: Ssn) -> Result<(), LogError> {
        match self.named[0].max(self.named[1]) {
            Some(newest) if newest > last => Err(LogError::StaleFirst),
            Some(newest) if newest < self.copied => Err(LogError::StaleSecond),
            _ => Ok(()),
        }
    }

    /// The checkpoint that it has, or a later one: as the log's device knows. Of more that it may have a copy from a backup would not be told.
    pub fn copied(&self) -> Ssn {
        self.copied
    }

    /// Whether it has exactly this checkpoint, and all say so.
    pub fn is_at(&self, checkpoint: Ssn) -> bool {
        self.named == [Some(checkpoint); 2] && self.copied == checkpoint
    }
}

/// Copies what the second place lacks of what was written, in the order of addresses, and flushes it: all that a checkpoint needs which was durable
/// before. It begins at byte `from`, which becomes where the next call goes on. `tell` is told how many bytes are left, and says whether to go on.
///
/// # Errors
/// A device's.
pub fn copy(
    leads: &Member,
    sb: &Superblock,
    law: &Law<dyn Rules>,
    from: &mut u64,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, DeviceError> {
    // They say which checkpoint is there.
    let superblocks: Vec<Range<u64>> = offsets(sb.volume_bytes())
        .map(|at| at..at + loamfs_format::superblock::SIZE as u64)
        .into();
    while let Some(next) = leads.copy_changed(*from, STEP, &superblocks)? {
        *from = next;
        if !tell(leads.bytes_behind().unwrap_or_default()) {
            return Ok(false);
        }
    }
    let flushed = match leads.second_place() {
        Some(place) if law.copies_before_naming() => place.device().flush(),
        _ => Ok(()),
    };
    // Nobody knows what of all that was written is there.
    flushed.inspect_err(|_| leads.note_changes(true))?;
    Ok(true)
}

/// Has both superblocks of the second place say what `sb` does, each durable before the next, the older one first.
///
/// # Errors
/// A device's.
pub fn name(device: &dyn Device, sb: &Superblock) -> Result<(), LogError> {
    let Some(place) = place_of(device)? else {
        return Err(LogError::Alone);
    };
    let named = superblocks::find(&place).map_or([None; 2], |copies| copies.named);
    let newest = usize::from(named[0] < named[1]);
    for copy in [1 - newest, newest] {
        superblocks::write_copy(&place, sb, copy)?;
        place.flush()?;
    }
    Ok(())
}

/// Takes away what the superblocks of the second place say.
///
/// # Errors
/// A device's.
pub fn wipe(device: &dyn Device, sb: &Superblock) -> Result<(), LogError> {
    let Some(place) = place_of(device)? else {
        return Ok(());
    };
    superblocks::wipe(&place, offsets(sb.volume_bytes()))?;
    Ok(place.flush()?)
}

/// The second place of what leads, by itself.
fn place_of(device: &dyn Device) -> Result<Option<JoinedDevice>, DeviceError> {
    let second = device.members().first().and_then(Member::second_place);
    second
        .map(|place| JoinedDevice::new(vec![place]))
        .transpose()
}
