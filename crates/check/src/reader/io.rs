//! Reading bytes at addresses of the volume.

use crate::BlockFault;
use loamfs_device::{Buffer, Device, DeviceError, IoKind, Member, Read};
use loamfs_format::{Extent, FragAddr, Geometry, Pointer};

/// A device, seen through a volume's geometry.
#[derive(Clone, Copy)]
pub(crate) struct Io<'d> {
    pub(crate) device: &'d dyn Device,
    pub(crate) geometry: Geometry,
}

impl Io<'_> {
    /// Bytes of a fragment.
    pub(crate) fn frag(&self) -> u64 {
        u64::from(self.geometry.fragment_size)
    }

    /// The first `len` bytes at an address.
    pub(crate) fn read(&self, at: FragAddr, len: usize) -> Result<Buffer, DeviceError> {
        let mut batch = [self.request(at, len)];
        self.device.read(&mut batch);
        let [read] = batch;
        read.into_result()
    }

    /// The bytes of several ranges (address, length), in the order given. The device gets them together.
    pub(crate) fn read_all(
        &self,
        ranges: &[(FragAddr, usize)],
    ) -> Vec<Result<Buffer, DeviceError>> {
        let mut batch: Vec<Read> = ranges
            .iter()
            .map(|(at, len)| self.request(*at, *len))
            .collect();
        self.device.read(&mut batch);
        batch.into_iter().map(Read::into_result).collect()
    }

    /// The data of several blocks in the log, unverified, with one batch of requests.
    pub(crate) fn read_blocks(&self, pointers: &[Pointer]) -> Vec<Result<Buffer, BlockFault>> {
        let ranges: Vec<_> = pointers
            .iter()
            .map(|p| (p.addr, p.stored as usize))
            .collect();
        let read = self.read_all(&ranges).into_iter();
        read.map(|bytes| bytes.map_err(BlockFault::from)).collect()
    }

    /// Whether a part of a range stands on a device that is missing.
    pub(crate) fn is_missing(&self, extent: Extent) -> bool {
        let Some(len) = self.bytes(extent) else {
            return false;
        };
        let start = self.geometry.byte_offset(extent.start);
        let members = self.device.members().iter();
        members.filter(|member| member.is_missing()).any(|member| {
            let held = member.range();
            held.start < start + len && start < held.end
        })
    }

    /// How much of a range the device holds on which it begins, in whole units; at least one.
    pub(crate) fn on_one_device(&self, extent: Extent) -> Extent {
        let start = self.geometry.byte_offset(extent.start);
        let held = self.device.members().iter().map(Member::range);
        let frags = held
            .filter(|held| held.contains(&start))
            .map(|held| (held.end - start) / self.frag())
            .min()
            .unwrap_or(extent.frags);
        let unit = self.geometry.unit_frags();
        let frags = (frags / unit * unit).max(unit).min(extent.frags);
        Extent::new(extent.start, frags)
    }

    /// Bytes of a range, or `None` when it leaves the volume.
    pub(crate) fn bytes(&self, extent: Extent) -> Option<u64> {
        self.geometry
            .holds(extent)
            .then(|| extent.frags.checked_mul(self.frag()))
            .flatten()
    }

    fn request(&self, at: FragAddr, len: usize) -> Read {
        Read::new(self.geometry.byte_offset(at), len, IoKind::Check)
    }
}
