//! Making a volume larger that nobody has open.
//!
//! What is added has no group descriptors, and so is free: only the superblock copies change. They are written one
//! after the other, each durable before the next, and both name the same checkpoint; so a crash leaves the old size or
//! the new one. Opening a volume whose copies differ first brings the other copy into line, before anything may be
//! written to what was added: a copy that tells the old size would lose it, should the other rot.

use crate::env::Env;
use crate::error::Error;
use crate::law;
use crate::volume::{OpenOptions, Volume};
use loamfs_device::{Device, Member};
use loamfs_format::superblock::{DeviceEntry, Superblock, UNIT_SIZE, offsets};
use loamfs_format::text::{human, lacking};
use loamfs_format::{FragAddr, Geometry};
use loamfs_log::superblocks::Copies;
use loamfs_log::{members, superblocks};
use std::sync::Arc;

/// Why a volume of several devices is given no size.
pub const SIZE_OF_SEVERAL: &str =
    "--size is for a volume of one device; of several each is used whole";

/// Makes the volume on a device larger: `size` bytes, or all that the device has. Of several devices each that has become longer
/// is used whole, as far as no other one's addresses follow. Returns the volume's size before and after, in bytes; when it has
/// that size already nothing changes.
///
/// # Errors
/// [`Error::Options`] for a size that it cannot have; that the volume cannot be opened, or the device's.
pub fn grow(device: &Arc<dyn Device>, size: Option<u64>, env: &Env) -> Result<(u64, u64), Error> {
    // A size that it cannot have is refused before anything is written.
    let newest = superblocks::read(device.as_ref())?.newest;
    resized(&newest, size, device.as_ref())?;
    let copies = closed(device, env)?;
    let old = &copies.newest;
    let grown = resized(old, size, device.as_ref())?;
    let sizes = (bytes(old), bytes(&grown));
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
    let law = law::of_log(&env.law);
    members::change(device.as_ref(), &grown, &copies.named, None, &law)?;
    if !old.has_devices() {
        reopened(device, env)?;
    }
    Ok(sizes)
}

/// Opens the volume as it is.
pub(crate) fn open(device: &Arc<dyn Device>, env: &Env) -> Result<Volume, Error> {
    Volume::open(Arc::clone(device), &OpenOptions::default(), env.clone())
}

/// The superblocks of a volume that was recovered and closed: it stands on one checkpoint, which one copy names at least.
pub(crate) fn closed(device: &Arc<dyn Device>, env: &Env) -> Result<Copies, Error> {
    open(device, env)?.close()?;
    Ok(superblocks::read(device.as_ref())?)
}

/// That it opens as it is now.
pub(crate) fn reopened(device: &Arc<dyn Device>, env: &Env) -> Result<(), Error> {
    let env = Env {
        seed: env.seed.wrapping_add(1),
        ..env.clone()
    };
    open(device, &env)?.close()
}

/// Fragments that a device holds behind its superblocks, which end at byte `offset`: whole units.
pub(crate) fn room_on(device: &dyn Device, offset: u64, g: &Geometry) -> u64 {
    device.size().saturating_sub(offset) / u64::from(UNIT_SIZE) * g.unit_frags()
}

/// That superblocks stand where they did in a volume that gets another size.
///
/// # Errors
/// [`Error::Options`] if they do not.
pub(crate) fn refuse_moved(have: u64, new: u64) -> Result<(), Error> {
    match offsets(have) == offsets(new) {
        true => Ok(()),
        false => Err(Error::Options(format!(
            "a volume of {} cannot become one of {}: below 16 MiB superblocks stand elsewhere; make a new one",
            human(have),
            human(new)
        ))),
    }
}

/// Bytes of a volume that there are.
pub(crate) fn bytes(sb: &Superblock) -> u64 {
    sb.geometry.byte_offset(FragAddr(sb.present_frags()))
}

fn resized(old: &Superblock, size: Option<u64>, device: &dyn Device) -> Result<Superblock, Error> {
    let grown = match (old.has_devices(), size) {
        (false, _) => one_resized(old, size, device.size())?,
        (true, None) => several_resized(old, device.members()),
        (true, Some(_)) => {
            return Err(Error::Options(SIZE_OF_SEVERAL.into()));
        }
    };
    match grown.geometry.validate() {
        Ok(()) => Ok(grown),
        Err(error) => Err(Error::Options(format!(
            "{error}; a larger volume needs larger groups"
        ))),
    }
}

fn one_resized(old: &Superblock, size: Option<u64>, device: u64) -> Result<Superblock, Error> {
    let refuse = |text: String| Err(Error::Options(text));
    let (have, want) = (bytes(old), size.unwrap_or(device));
    let unit = u64::from(UNIT_SIZE);
    let new = want / unit * unit;
    if want > device {
        return refuse(format!(
            "the device has {}; give a smaller --size, or none",
            lacking(device, want)
        ));
    }
    if new < have {
        return refuse(format!(
            "the volume has {} already; `loamfs shrink` makes it smaller",
            human(have)
        ));
    }
    refuse_moved(have, new)?;
    let mut grown = old.clone();
    grown.geometry.total_frags = new / u64::from(old.geometry.fragment_size);
    if let [only] = grown.devices.as_mut_slice() {
        only.frags = grown.geometry.total_frags;
    }
    Ok(grown)
}

/// Each device used as far as it reaches, and no other one's addresses follow; not the leading one where it has a copy. Where
/// superblocks stand stays as it is.
fn several_resized(old: &Superblock, members: &[Member]) -> Superblock {
    let g = &old.geometry;
    let mut grown = old.clone();
    for (index, member) in members.iter().enumerate().take(old.devices.len()) {
        let DeviceEntry {
            addr,
            frags,
            offset,
            ..
        } = old.devices[index];
        let held = room_on(member.device().as_ref(), offset, g);
        let next = old.devices.get(index + 1).map(|next| next.addr.0);
        let most = next.map_or(u64::MAX, |next| next.saturating_sub(addr.0));
        // What the first one holds stands a second time, where it has no more room.
        if index > 0 || old.second_place().is_none() {
            grown.devices[index].frags = held.min(most).max(frags);
        }
    }
    let end = grown.devices.last().map_or(0, |last| last.extent().end().0);
    grown.geometry.total_frags = g.total_frags.max(end);
    match offsets(grown.volume_bytes()) == offsets(old.volume_bytes()) {
        true => grown,
        false => old.clone(),
    }
}
