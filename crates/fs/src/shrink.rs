//! Making a volume smaller that nobody has open.
//!
//! What is behind the new end is moved first, until both superblock copies name checkpoints that have nothing there. Then only
//! these copies change, as when a volume grows (`grow`): a crash leaves the old size or the new one. The same again goes
//! on from there.

use crate::env::Env;
use crate::error::Error;
use crate::grow::{bytes, open, refuse_moved, reopened};
use crate::law;
use crate::mkfs::VOLUME_MIN;
use loamfs_device::Device;
use loamfs_format::superblock::{Superblock, UNIT_SIZE};
use loamfs_format::text::human;
use loamfs_log::{members, superblocks};
use std::sync::Arc;

/// Makes the volume on a device smaller: `size` bytes, in whole units. Returns its size before and after, in bytes; when it has that
/// size already nothing changes. `tell` is told now and then how many bytes are still to be moved.
///
/// # Errors
/// [`Error::Options`] for a size that it cannot have, with the smallest that has room for what it holds; that the volume cannot be
/// opened, or the device's.
pub fn shrink(
    device: &Arc<dyn Device>,
    size: u64,
    env: &Env,
    mut tell: impl FnMut(u64),
) -> Result<(u64, u64), Error> {
    // A size that it cannot have is refused before anything is written.
    let newest = superblocks::find(device.as_ref())?.newest;
    let sizes = (bytes(&newest), bytes(&cut(&newest, size)?));
    let law = law::of_log(&env.law);
    let volume = open(device, env)?;
    let cleared = match sizes.0 == sizes.1 || law.may_leave(false) {
        true => Ok(true),
        false => volume.upkeep().clear_behind(sizes.1, |left| {
            tell(left);
            true
        }),
    };
    let closed = volume.close();
    cleared.and(closed)?;
    if sizes.0 == sizes.1 {
        return Ok(sizes);
    }
    let copies = superblocks::read(device.as_ref())?;
    let smaller = cut(&copies.newest, size)?;
    members::change(device.as_ref(), &smaller, &copies.named, None, &law)?;
    reopened(device, env)?;
    Ok(sizes)
}

/// The superblock of a volume that ends after so many bytes.
///
/// # Errors
/// [`Error::Options`] if it cannot, whatever it holds.
pub(crate) fn cut(old: &Superblock, size: u64) -> Result<Superblock, Error> {
    let refuse = |text: String| Err(Error::Options(text));
    if old.has_devices() {
        return refuse("a volume of several devices becomes smaller when one is removed".into());
    }
    if old.is_all_log() {
        // What is behind the end in groups of the log is not counted before it moves.
        return refuse("a volume of the profile `lfs` keeps its size".into());
    }
    let unit = u64::from(UNIT_SIZE);
    let (have, new) = (bytes(old), size / unit * unit);
    if new > have {
        return refuse(format!(
            "the volume has {}; `loamfs grow` makes it larger",
            human(have)
        ));
    }
    if new < VOLUME_MIN {
        return refuse(format!("a volume has {} at least", human(VOLUME_MIN)));
    }
    refuse_moved(have, new)?;
    let mut cut = old.clone();
    cut.geometry.total_frags = new / u64::from(old.geometry.fragment_size);
    if let [only] = cut.devices.as_mut_slice() {
        only.frags = cut.geometry.total_frags;
    }
    match cut.geometry.validate() {
        Ok(()) => Ok(cut),
        Err(error) => refuse(error.to_string()),
    }
}
