//! A part of a device, which is a device of its own.

use std::sync::Arc;

use loamfs_device::{Counters, Device, DeviceError, JoinedDevice, Member, Read, Write};

/// The part, as the only member of a device that says it has none.
#[derive(Debug)]
pub struct Slice(JoinedDevice);

impl Slice {
    /// So many bytes from byte `at` on.
    ///
    /// # Errors
    /// That the device has no such part.
    pub fn of(device: &Arc<dyn Device>, at: u64, len: u64) -> Result<Arc<dyn Device>, DeviceError> {
        let member = Member::new("part", Arc::clone(device), at, len);
        Ok(Arc::new(Self(JoinedDevice::new(vec![member])?)))
    }
}

impl Device for Slice {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.0.write_align()
    }

    fn rotational(&self) -> bool {
        self.0.rotational()
    }

    fn rotational_at(&self, offset: u64) -> bool {
        self.0.rotational_at(offset)
    }

    fn read(&self, batch: &mut [Read]) {
        self.0.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        self.0.write(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        self.0.discard(ranges)
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }

    fn members(&self) -> &[Member] {
        &[]
    }
}
