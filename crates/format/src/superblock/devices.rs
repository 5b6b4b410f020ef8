//! The devices of a volume: what each holds, and the table of them on disk.

use super::places::offsets;
use super::{SIZE, Section, Superblock};
use crate::geometry::{Geometry, UNIT_SIZE};
use crate::types::{Extent, FragAddr};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most devices of a volume.
pub const DEVICES_MAX: usize = 64;
/// Highest byte of a device at which what it holds may begin.
pub const DEVICE_OFFSET_MAX: u64 = 1 << 48;

/// Bit of an entry's `copy`: the copy of the leading device is there.
const COPY: u8 = 1;
/// The same: an older checkpoint of it is.
const BEHIND: u8 = 2;

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

/// Whether a device of several is to stay. The numbers 1 and 3 are kept for devices that join or are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceState {
    /// It is there to be used.
    #[default]
    Present = 0,
    /// Nothing new is placed there: what it holds moves to the others.
    Leaving = 2,
}

impl DeviceState {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceState::Present => "present",
            DeviceState::Leaving => "leaving",
        }
    }

    const fn decode(raw: u8) -> Option<DeviceState> {
        match raw {
            0 => Some(DeviceState::Present),
            2 => Some(DeviceState::Leaving),
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
    /// Whether it is to stay.
    pub state: DeviceState,
    /// First address that the device holds.
    pub addr: FragAddr,
    /// Fragments that it holds.
    pub frags: u64,
    /// Its number in the volume.
    pub device: u32,
    /// Bytes on the device before address `addr`.
    pub offset: u64,
    /// Whether the bytes of the leading device stand here once more, right before `offset`.
    pub has_copy: bool,
    /// Whether they stand here as an older checkpoint needs them.
    pub is_behind: bool,
    /// How its blocks of large files are given out, if by extents.
    pub section: Option<Section>,
}

impl DeviceEntry {
    /// Whether the bytes of the leading device have their second place here, alike or behind.
    pub const fn is_second_place(&self) -> bool {
        self.has_copy || self.is_behind
    }

    /// The fragments that it holds.
    pub const fn extent(&self) -> Extent {
        Extent::new(self.addr, self.frags)
    }
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
    copy: u8,
    section: u8,
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
            state: entry.state as u8,
            copy: (u8::from(entry.has_copy) * COPY) | (u8::from(entry.is_behind) * BEHIND),
            section: Section::encode(entry.section),
        }
    }

    /// The entry. Its section counts where entries may have one.
    fn decode(&self, may_have_section: bool) -> Option<DeviceEntry> {
        Some(DeviceEntry {
            uuid: self.uuid,
            kind: DeviceKind::decode(self.kind)?,
            state: DeviceState::decode(self.state)?,
            addr: FragAddr(self.addr.get()),
            frags: self.frags.get(),
            device: self.device.get(),
            offset: self.offset.get(),
            has_copy: self.copy & COPY != 0,
            is_behind: self.copy & BEHIND != 0,
            section: match may_have_section {
                true => Section::decode(self.section)?,
                false => None,
            },
        })
    }
}

/// The table of a copy that stands on device `here`: all entries are different devices, and that one is among them.
pub(super) fn table(
    members: &[RawMember],
    here: u32,
    may_have_section: bool,
) -> Option<Vec<DeviceEntry>> {
    let devices: Vec<DeviceEntry> = members
        .iter()
        .map(|member| member.decode(may_have_section))
        .collect::<Option<_>>()?;
    let differ = devices.iter().enumerate().all(|(index, one)| {
        let same = |other: &DeviceEntry| one.uuid == other.uuid || one.device == other.device;
        one.uuid != [0; 16] && !devices[..index].iter().any(same)
    });
    let is_here = devices.iter().any(|d| d.device == here);
    (differ && is_here).then_some(devices)
}

/// Whether the one device of a volume without a table holds it, from its first byte on.
pub(super) fn holds_all(device: DeviceEntry, geometry: &Geometry) -> bool {
    (device.addr.0, device.offset, device.frags) == (0, 0, geometry.total_frags)
}

/// Whether the devices of a table hold parts of the volume, by address: from a group's beginning on each, nothing twice, and no
/// superblock copy of another device than the first, which is to stay.
pub(super) fn fit(devices: &[DeviceEntry], geometry: &Geometry) -> bool {
    let bytes = geometry.byte_offset(FragAddr(geometry.total_frags));
    let copies_end = offsets(bytes)[1] + SIZE as u64;
    let mut free_from = 0u64;
    for (index, device) in devices.iter().enumerate() {
        let begins_well = match index {
            0 => {
                (device.addr.0, device.offset, device.state) == (0, 0, DeviceState::Present)
                    && geometry.byte_offset(FragAddr(device.frags)) >= copies_end
            }
            _ => {
                let before = copies_end.checked_add(copy_bytes(device, devices, geometry));
                before.is_some_and(|before| device.offset >= before)
                    && device.offset <= DEVICE_OFFSET_MAX
                    && device.offset.is_multiple_of(UNIT_SIZE.into())
            }
        };
        let Some(end) = device.addr.0.checked_add(device.frags) else {
            return false;
        };
        let of_units = device.frags != 0 && device.frags.is_multiple_of(geometry.unit_frags());
        let of_groups = device.addr.0.is_multiple_of(geometry.group_frags);
        let cut = device.section.is_none_or(|it| it.fits(device, geometry));
        if device.addr.0 < free_from || !of_groups || !of_units || !begins_well || !cut {
            return false;
        }
        free_from = end;
    }
    let copies = |device: &DeviceEntry| u32::from(device.has_copy) + u32::from(device.is_behind);
    let all: u32 = devices.iter().map(copies).sum();
    free_from <= geometry.total_frags && all <= 1 && devices.first().map_or(0, copies) == 0
}

/// Bytes of the copy of the leading device that a device has.
fn copy_bytes(device: &DeviceEntry, devices: &[DeviceEntry], geometry: &Geometry) -> u64 {
    let first = devices.first().filter(|_| device.is_second_place());
    first.map_or(0, |first| {
        let fragment = u64::from(geometry.fragment_size);
        first.frags.saturating_mul(fragment)
    })
}

impl Superblock {
    /// The device that this copy stands on.
    pub fn own_device(&self) -> Option<&DeviceEntry> {
        self.devices.iter().find(|d| d.device == self.device)
    }

    /// Whether the device that this copy stands on leads the volume.
    pub fn leads(&self) -> bool {
        let first = self.devices.first();
        first.is_some_and(|first| first.device == self.device)
    }

    /// The bytes of the volume that a device holds.
    pub fn bytes_of(&self, device: &DeviceEntry) -> std::ops::Range<u64> {
        let end = FragAddr(device.addr.0.saturating_add(device.frags));
        self.geometry.byte_offset(device.addr)..self.geometry.byte_offset(end)
    }

    /// The addresses of the volume that no device holds, by address. Without a table of devices there are none.
    pub fn gaps(&self) -> Vec<Extent> {
        if !self.has_devices() {
            return Vec::new();
        }
        let ends = self.devices.iter().map(|device| device.extent().end().0);
        let starts = self.devices.iter().skip(1).map(|device| device.addr.0);
        let starts = starts.chain([self.geometry.total_frags]);
        ends.zip(starts)
            .filter(|(end, start)| end < start)
            .map(|(end, start)| Extent::new(FragAddr(end), start - end))
            .collect()
    }

    /// Fragments of the volume that there are: that a device holds.
    pub fn present_frags(&self) -> u64 {
        self.devices.iter().map(|device| device.frags).sum()
    }

    /// The device on which what the leading one holds stands once more, and from which byte of it on.
    pub fn copy(&self) -> Option<(&DeviceEntry, u64)> {
        let entry = self.devices.iter().find(|device| device.has_copy)?;
        let at = self.before(entry)?;
        self.may_have_copy().then_some((entry, at))
    }

    /// The device on which an older checkpoint of what the leading one holds stands, and from which byte of it on.
    pub fn behind(&self) -> Option<(&DeviceEntry, u64)> {
        let entry = self.devices.iter().find(|device| device.is_behind)?;
        let at = self.before(entry)?;
        self.may_be_behind().then_some((entry, at))
    }

    /// The second place of what the leading device holds, whether that is alike or behind.
    pub fn second_place(&self) -> Option<(&DeviceEntry, u64)> {
        self.copy().or_else(|| self.behind())
    }

    /// Where as many bytes as the leading device holds begin, which end where those of another one do.
    fn before(&self, entry: &DeviceEntry) -> Option<u64> {
        let held = self.bytes_of(self.devices.first()?);
        entry.offset.checked_sub(held.end - held.start)
    }

    /// The device that has the copy, or before whose bytes there is room for one, and from which byte of it on. Only what one fast
    /// device holds, which leads, can stand twice.
    pub fn place_for_copy(&self) -> Option<(&DeviceEntry, u64)> {
        let is_fast = |it: &&DeviceEntry| it.kind == DeviceKind::Fast;
        let first = self.devices.first()?;
        let lead_alone = self.devices.iter().filter(is_fast).count() == 1 && is_fast(&first);
        if self.second_place().is_some() || !lead_alone {
            return self.second_place();
        }
        let held = self.bytes_of(first);
        let need = held.end - held.start;
        let least = offsets(self.volume_bytes())[1] + SIZE as u64;
        let room = |entry: &&DeviceEntry| {
            let at = entry.offset.checked_sub(need);
            entry.state == DeviceState::Present && at.is_some_and(|at| at >= least)
        };
        let entry = self.devices.iter().skip(1).find(room)?;
        Some((entry, entry.offset - need))
    }

    /// The groups of a device.
    pub fn groups_of(&self, device: &DeviceEntry) -> std::ops::Range<u32> {
        let end = device.extent().end().0.div_ceil(self.geometry.group_frags);
        self.geometry.group_of(device.addr).0..self.geometry.groups().min(end as u32)
    }

    /// The groups on fast devices that are to stay, by address.
    pub fn fast_groups(&self) -> Vec<std::ops::Range<u32>> {
        let fast = |device: &&DeviceEntry| {
            (device.kind, device.state) == (DeviceKind::Fast, DeviceState::Present)
        };
        let fast = self.devices.iter().filter(fast);
        fast.map(|device| self.groups_of(device)).collect()
    }

    /// The groups on devices that leave, by address.
    pub fn leaving_groups(&self) -> Vec<std::ops::Range<u32>> {
        let leaving = |device: &&DeviceEntry| device.state == DeviceState::Leaving;
        let leaving = self.devices.iter().filter(leaving);
        leaving.map(|device| self.groups_of(device)).collect()
    }
}
