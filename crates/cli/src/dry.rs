//! A device that can be read, but takes no writes: to try out whether something could begin.

use std::sync::Arc;

use loamfs_device::{Counters, Device, DeviceError, Member, Read, Write};

/// Refuses everything that would change the device below.
pub struct DryDevice(pub Arc<dyn Device>);

impl Device for DryDevice {
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

    fn read(&self, batch: &mut [Read]) {
        self.0.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        vec![Err(DeviceError::ReadOnly); batch.len()]
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn discard(&self, _: &[(u64, u64)]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }

    fn members(&self) -> &[Member] {
        self.0.members()
    }
}
