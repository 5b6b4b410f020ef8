//! Making a volume larger that nobody has open.
//!
//! What is added has no group descriptors, and so is free: only the superblock copies change. They are written one
//! after the other, each durable before the next, and both name the same checkpoint; so a crash leaves the old size or
//! the new one. Opening a volume whose copies differ first brings the other copy into line, before anything may be
//! written to what was added: a copy that tells the old size would lose it, should the other rot.

use crate::env::Env;
use crate::error::Error;
use crate::volume::{OpenOptions, Volume};
use loamfs_device::Device;
use loamfs_format::superblock::{Geometry, Superblock, UNIT_SIZE, offsets};
use loamfs_log::superblocks;
use std::sync::Arc;

/// Makes the volume on a device larger: `size` bytes, or all that the device has. Returns its size before and after,
/// in bytes; when it has that size already nothing changes.
///
/// # Errors
/// [`Error::Options`] for a size that it cannot have; that the volume cannot be opened, or the device's.
pub fn grow(device: &Arc<dyn Device>, size: Option<u64>, env: &Env) -> Result<(u64, u64), Error> {
    // A size that it cannot have is refused before anything is written.
    let newest = superblocks::read(device.as_ref())?.newest;
    resized(&newest, size, device.size())?;
    // Recovered and closed, it stands on one checkpoint, which one copy names at least.
    let options = OpenOptions::default();
    Volume::open(Arc::clone(device), &options, env.clone())?.close()?;
    let copies = superblocks::read(device.as_ref())?;
    let old = &copies.newest;
    let grown = resized(old, size, device.size())?;
    let sizes = (bytes(&old.geometry), bytes(&grown.geometry));
    if sizes.0 == sizes.1 {
        return Ok(sizes);
    }
    // The device may hold anything there.
    let reached = grown.other_places();
    let reached = reached
        .into_iter()
        .filter(|place| !old.geometry.holds(*place));
    let reached = reached.map(|place| grown.geometry.byte_offset(place.start));
    superblocks::wipe(device.as_ref(), reached)?;
    device.flush()?;
    let newest = usize::from(copies.slots[0] < copies.slots[1]);
    for slot in [1 - newest, newest] {
        superblocks::write_slot(device.as_ref(), &grown, slot)?;
        device.flush()?;
    }
    // It must open as it is now.
    let env = Env {
        seed: env.seed.wrapping_add(1),
        ..env.clone()
    };
    Volume::open(Arc::clone(device), &options, env)?.close()?;
    Ok(sizes)
}

fn bytes(geometry: &Geometry) -> u64 {
    geometry
        .total_frags
        .saturating_mul(geometry.fragment_size.into())
}

fn resized(old: &Superblock, size: Option<u64>, device: u64) -> Result<Superblock, Error> {
    let refuse = |text: String| Err(Error::Options(text));
    let (have, want) = (bytes(&old.geometry), size.unwrap_or(device));
    let unit = u64::from(UNIT_SIZE);
    let new = want / unit * unit;
    if old.has_devices() {
        return refuse("a volume of several devices cannot be made larger yet".into());
    }
    if want > device {
        return refuse(format!(
            "the device has {device} bytes, fewer than the {want} asked for"
        ));
    }
    if new < have {
        return refuse(format!(
            "the volume has {have} bytes already; it cannot be made smaller"
        ));
    }
    if offsets(new) != offsets(have) {
        return refuse(format!(
            "a volume of {have} bytes cannot become one of {new}: below 16 MiB superblocks stand elsewhere; make a new \
             one"
        ));
    }
    let mut grown = old.clone();
    grown.geometry.total_frags = new / u64::from(old.geometry.fragment_size);
    if let [only] = grown.devices.as_mut_slice() {
        only.frags = grown.geometry.total_frags;
    }
    match grown.geometry.validate() {
        Ok(()) => Ok(grown),
        Err(error) => refuse(format!("{error}; a larger volume needs larger groups")),
    }
}
