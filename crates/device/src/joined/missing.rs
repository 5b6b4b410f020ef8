//! A device that is not there.

use crate::{Counters, Device, DeviceError, Member, Op, Read, Write};
use rustix::io::Errno;

/// In the place of a device of this many bytes: nothing can be read or written there, and nothing waits in its cache.
#[derive(Debug)]
pub(super) struct MissingDevice(pub u64);

impl Device for MissingDevice {
    fn size(&self) -> u64 {
        self.0
    }

    fn sector_size(&self) -> u32 {
        512
    }

    fn write_align(&self) -> u32 {
        512
    }

    fn rotational(&self) -> bool {
        false
    }

    fn read(&self, batch: &mut [Read]) {
        for read in batch {
            let len = read.buffer.len() as u64;
            read.result = Err(refused(Op::Read, read.offset, len));
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let refuse =
            |write: &Write<'_>| Err(refused(Op::Write, write.offset, write.data.len() as u64));
        batch.iter().map(refuse).collect()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _: &[(u64, u64)]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn members(&self) -> &[Member] {
        &[]
    }
}

fn refused(op: Op, offset: u64, len: u64) -> DeviceError {
    DeviceError::Io {
        op,
        offset,
        len,
        errno: Errno::IO.raw_os_error(),
        message: "the device is missing".to_owned(),
    }
}
