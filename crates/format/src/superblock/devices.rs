//! The devices of a volume: what each holds, and the table of them on disk.

use super::places::offsets;
use super::{SIZE, Superblock};
use crate::geometry::{Geometry, UNIT_SIZE};
use crate::types::FragAddr;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most devices of a volume.
pub const DEVICES_MAX: usize = 64;
/// Highest byte of a device at which what it holds may begin.
pub const DEVICE_OFFSET_MAX: u64 = 1 << 48;

/// What a device of several is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// The blocks of large files.
    #[default]
    Slow = 0,
    /// The log.
    Fast = 1,
}

impl DeviceKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Slow => "slow",
            DeviceKind::Fast => "fast",
        }
    }

    const fn decode(raw: u8) -> Option<DeviceKind> {
        match raw {
            0 => Some(DeviceKind::Slow),
            1 => Some(DeviceKind::Fast),
            _ => None,
        }
    }
}

/// One device of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Its identity, of a volume with [`super::INCOMPATIBLE_DEVICES`]; else zeros.
    pub uuid: [u8; 16],
    /// What it is for.
    pub kind: DeviceKind,
    /// First address that the device holds.
    pub addr: FragAddr,
    /// Fragments that it holds.
    pub frags: u64,
    /// Its number in the volume.
    pub device: u32,
    /// Bytes on the device before address `addr`.
    pub offset: u64,
}

/// The device of a volume of one.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDevice {
    addr: U64,
    frags: U64,
    offset: U64,
    device: U32,
    reserved: U32,
}

impl RawDevice {
    pub(super) fn new(entry: &DeviceEntry) -> RawDevice {
        RawDevice {
            addr: U64::new(entry.addr.0),
            frags: U64::new(entry.frags),
            offset: U64::new(entry.offset),
            device: U32::new(entry.device),
            reserved: U32::new(0),
        }
    }

    pub(super) fn decode(&self) -> DeviceEntry {
        DeviceEntry {
            addr: FragAddr(self.addr.get()),
            frags: self.frags.get(),
            device: self.device.get(),
            offset: self.offset.get(),
            ..DeviceEntry::default()
        }
    }
}

/// An entry of the table of devices.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawMember {
    uuid: [u8; 16],
    addr: U64,
    frags: U64,
    offset: U64,
    device: U32,
    kind: u8,
    state: u8,
    reserved: [u8; 2],
}

impl RawMember {
    pub(super) fn new(entry: &DeviceEntry) -> RawMember {
        RawMember {
            uuid: entry.uuid,
            addr: U64::new(entry.addr.0),
            frags: U64::new(entry.frags),
            offset: U64::new(entry.offset),
            device: U32::new(entry.device),
            kind: entry.kind as u8,
            state: 0,
            reserved: [0; 2],
        }
    }

    fn decode(&self) -> Option<DeviceEntry> {
        let entry = DeviceEntry {
            uuid: self.uuid,
            kind: DeviceKind::decode(self.kind)?,
            addr: FragAddr(self.addr.get()),
            frags: self.frags.get(),
            device: self.device.get(),
            offset: self.offset.get(),
        };
        (self.state == 0).then_some(entry)
    }
}

/// The table of a copy that stands on device `here`: all entries are different devices, and that one is among them.
pub(super) fn table(members: &[RawMember], here: u32) -> Option<Vec<DeviceEntry>> {
    let devices: Vec<DeviceEntry> = members
        .iter()
        .map(RawMember::decode)
        .collect::<Option<_>>()?;
    let differ = devices.iter().enumerate().all(|(index, one)| {
        let same = |other: &DeviceEntry| one.uuid == other.uuid || one.device == other.device;
        one.uuid != [0; 16] && !devices[..index].iter().any(same)
    });
    let is_here = devices.iter().any(|d| d.device == here);
    (differ && is_here).then_some(devices)
}

/// Whether the devices hold every address, whole groups each but for the last one, and no superblock copy of another
/// device than the first.
pub(super) fn hold_all(devices: &[DeviceEntry], geometry: &Geometry, several: bool) -> bool {
    let bytes = geometry.byte_offset(FragAddr(geometry.total_frags));
    let copies_end = offsets(bytes)[1] + SIZE as u64;
    let unit = u64::from(UNIT_SIZE);
    let mut at = 0u64;
    for (index, device) in devices.iter().enumerate() {
        let is_last = index + 1 == devices.len();
        let whole = is_last || device.frags.is_multiple_of(geometry.group_frags);
        let begins_well = match index {
            0 => {
                device.offset == 0
                    && (!several || geometry.byte_offset(FragAddr(device.frags)) >= copies_end)
            }
            _ => {
                device.offset >= copies_end
                    && device.offset <= DEVICE_OFFSET_MAX
                    && device.offset.is_multiple_of(unit)
            }
        };
        let Some(end) = at.checked_add(device.frags) else {
            return false;
        };
        if device.addr.0 != at || device.frags == 0 || !whole || !begins_well {
            return false;
        }
        at = end;
    }
    at == geometry.total_frags
}

impl Superblock {
    /// The device that this copy stands on.
    pub fn own_device(&self) -> Option<&DeviceEntry> {
        self.devices.iter().find(|d| d.device == self.device)
    }

    /// The bytes of the volume that a device holds.
    pub fn bytes_of(&self, device: &DeviceEntry) -> std::ops::Range<u64> {
        let end = FragAddr(device.addr.0.saturating_add(device.frags));
        self.geometry.byte_offset(device.addr)..self.geometry.byte_offset(end)
    }

    /// The groups on fast devices, by address.
    pub fn fast_groups(&self) -> Vec<std::ops::Range<u32>> {
        let group = |at: u64| (at / self.geometry.group_frags) as u32;
        let fast = self.devices.iter().filter(|d| d.kind == DeviceKind::Fast);
        fast.map(|d| group(d.addr.0)..self.geometry.groups().min(group(d.addr.0 + d.frags)))
            .collect()
    }
}
