//! What each of several devices contributes to a volume.

use super::{MkfsOptions, geometry, options};
use crate::env::Random;
use crate::error::Error;
use crate::types::CopyKind;
use loamfs_device::Device;
use loamfs_format::FragAddr;
use loamfs_format::superblock::{
    DEVICES_MAX, DeviceEntry, DeviceKind, DeviceState, Geometry, SIZE, SMALL_DEVICE, UNIT_SIZE,
    offsets,
};
use loamfs_format::text::human;
use std::sync::Arc;

/// A device for a new volume.
#[derive(Clone)]
pub struct NewDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// What it is for.
    pub kind: DeviceKind,
}

/// Bytes on a device but the first, before what it holds of a volume of `bytes` bytes: its superblock copies are there.
pub(crate) const fn lead_in(bytes: u64) -> u64 {
    if bytes < SMALL_DEVICE {
        256 << 10
    } else {
        16 << 20
    }
}

/// That a device can be written in the units in which a volume is.
pub(crate) fn takes_units(device: &dyn Device, name: &str) -> Result<(), Error> {
    let align = device.write_align();
    if UNIT_SIZE.is_multiple_of(align) {
        return Ok(());
    }
    Err(options(format!(
        "{name} has logical sectors of {}, and a volume is written in units of {}; choose another device",
        human(align.into()),
        human(UNIT_SIZE.into())
    )))
}

/// The sizes of a volume of all these devices, and what each holds of it: whole groups.
pub(super) fn divide(
    devices: &[NewDevice],
    o: &MkfsOptions,
    random: &mut Random,
) -> Result<(Geometry, Vec<DeviceEntry>), Error> {
    if !(1..=DEVICES_MAX).contains(&devices.len()) {
        let given = devices.len();
        return Err(options(format!(
            "a volume has 1 to {DEVICES_MAX} devices, not {given}"
        )));
    }
    if o.size.is_some() {
        return Err(options(
            "--size is for a volume of one device; several are used whole",
        ));
    }
    let sizes = devices.iter().map(|new| new.device.size());
    let raw = sizes.clone().fold(0, u64::saturating_add);
    let lead_in = lead_in(raw);
    // How large groups are follows from what there is at most.
    let rough = geometry(raw, o)?;
    let group = rough.byte_offset(FragAddr(rough.group_frags));
    let holder = match o.copy {
        Some(kind) => Some((holder(devices)?, kind)),
        None => None,
    };
    let first = devices[0].device.size() / group;
    // What is on each before its own bytes.
    let before = |index: usize| match index {
        0 => 0,
        _ if holder.is_some_and(|(holder, _)| holder == index) => {
            lead_in + first.saturating_mul(group)
        }
        _ => lead_in,
    };
    let whole = sizes.enumerate();
    let whole = whole.map(|(index, size)| size.saturating_sub(before(index)) / group);
    let whole: Vec<u64> = whole.collect();
    let total: u64 = whole.iter().sum::<u64>().saturating_mul(group);
    if let Some(index) = whole.iter().position(|groups| *groups == 0) {
        return Err(options(format!(
            "device {index} has {} bytes, too few for a group of {group} behind its superblocks; leave it out",
            devices[index].device.size()
        )));
    }
    let asked = MkfsOptions {
        group_size: Some(group),
        ..o.clone()
    };
    let geometry = geometry(total, &asked)?;
    let copies_end = offsets(total)[1] + SIZE as u64;
    if whole[0] * group < copies_end || lead_in < copies_end {
        return Err(options(format!(
            "the first device must hold {copies_end} bytes in whole groups of {group}; name a larger one first"
        )));
    }
    let mut addr = 0;
    let entries = devices.iter().zip(&whole).enumerate();
    let entries = entries.map(|(index, (new, groups))| {
        let frags = groups * geometry.group_frags;
        let entry = DeviceEntry {
            uuid: random.uuid(),
            kind: new.kind,
            addr: FragAddr(addr),
            frags,
            device: index as u32,
            offset: before(index),
            state: DeviceState::Present,
            has_copy: holder == Some((index, CopyKind::Each)),
            is_behind: holder == Some((index, CopyKind::Behind)),
            section: None,
        };
        addr += frags;
        entry
    });
    Ok((geometry, with_section(entries.collect(), &geometry, o)?))
}

/// The entries, of which fast ones have the section that was asked for, if there are any, and groups can have it.
fn with_section(
    mut entries: Vec<DeviceEntry>,
    geometry: &Geometry,
    o: &MkfsOptions,
) -> Result<Vec<DeviceEntry>, Error> {
    let Some(section) = o.section else {
        return Ok(entries);
    };
    let is_fast = |it: &&mut DeviceEntry| it.kind == DeviceKind::Fast;
    let mut fast: Vec<&mut DeviceEntry> = entries.iter_mut().filter(is_fast).collect();
    if fast.is_empty() {
        return Err(no_section());
    }
    fast.iter_mut().for_each(|it| it.section = Some(section));
    let all_fit = fast.iter().all(|it| section.fits(it, geometry));
    let group = geometry.byte_offset(FragAddr(geometry.group_frags));
    match all_fit {
        true => Ok(entries),
        false => Err(options(format!(
            "flash blocks and extents can be no longer than a group, of {}; choose smaller ones, or a larger --group-size",
            human(group)
        ))),
    }
}

/// Why a volume has no section.
pub(super) fn no_section() -> Error {
    options("--flash-block is for a volume of a fast device and others; name one by --fast")
}

/// The device that has the copy of the fast one, which is the first: the largest of the others.
fn holder(devices: &[NewDevice]) -> Result<usize, Error> {
    let is_fast = |new: &NewDevice| new.kind == DeviceKind::Fast;
    let slow = devices.iter().enumerate().filter(|(_, new)| !is_fast(new));
    let largest = slow.rev().max_by_key(|(_, new)| new.device.size());
    match (devices.iter().filter(|new| is_fast(new)).count(), largest) {
        (1, Some((index, _))) => Ok(index),
        _ => Err(no_copy()),
    }
}

/// Why a volume has no copy of its log.
pub(super) fn no_copy() -> Error {
    options("--copy is for a volume of one fast device and others; name one by --fast")
}
