//! A device that claims to be larger than what is in it, as a sparse file is.

use loamfs_device::{Counters, Device, DeviceError, MemoryDevice, Read, Write};

/// A memory device that claims another size. Behind its own end it reads as zeroes and forgets what is written.
#[derive(Debug)]
pub struct Stretched {
    inner: MemoryDevice,
    size: u64,
}

impl Stretched {
    /// The device with so many bytes, at least those that it has.
    pub fn new(inner: MemoryDevice, size: u64) -> Self {
        let size = size.max(inner.size());
        Self { inner, size }
    }

    fn holds(&self, offset: u64, len: usize) -> bool {
        offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= self.inner.size() || end > self.size)
    }
}

impl Device for Stretched {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn rotational(&self) -> bool {
        self.inner.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        for read in batch {
            if self.holds(read.offset, read.buffer.len()) {
                self.inner.read(std::slice::from_mut(read));
            } else {
                read.buffer.fill(0);
                read.result = Ok(());
            }
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let one = |write: &Write<'_>| {
            if self.holds(write.offset, write.data.len()) {
                self.inner.write(std::slice::from_ref(write)).remove(0)
            } else {
                Ok(())
            }
        };
        batch.iter().map(one).collect()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let inside: Vec<(u64, u64)> = ranges
            .iter()
            .copied()
            .filter(|(offset, len)| self.holds(*offset, *len as usize))
            .collect();
        self.inner.discard(&inside)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
