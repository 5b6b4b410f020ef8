//! A device that claims to be larger than what is in it, as a sparse file is, and of which some parts are nobody's.

use std::ops::Range;

use loamfs_device::{Counters, Device, DeviceError, IoKind, Member, MemoryDevice, Read, Write};
use loamfs_format::superblock::PROBES;

/// A memory device that claims another size. Behind its own end it reads as zeroes and forgets what is written.
#[derive(Debug)]
pub struct Stretched {
    inner: MemoryDevice,
    size: u64,
    kept: Vec<Range<u64>>,
}

impl Stretched {
    /// The device with so many bytes, at least those that it has.
    pub fn new(inner: MemoryDevice, size: u64) -> Self {
        let size = size.max(inner.size());
        let kept = Vec::new();
        Self { inner, size, kept }
    }

    /// The device, of which nobody writes these bytes but as a superblock.
    pub fn keeping(self, kept: Vec<Range<u64>>) -> Self {
        Self { kept, ..self }
    }

    /// # Panics
    /// When a write goes where none may.
    fn judge(&self, write: &Write<'_>) {
        let len = write.data.len() as u64;
        let end = write.offset.checked_add(len);
        let end = end.filter(|end| *end <= self.size);
        assert!(
            end.is_some(),
            "a write of {len} bytes at {} leaves the device",
            write.offset
        );
        let end = end.unwrap_or_default();
        let hit = |kept: &&Range<u64>| kept.start < end && write.offset < kept.end;
        let hit = self.kept.iter().find(hit);
        let superblock = write.kind == IoKind::Superblock && PROBES.contains(&write.offset);
        assert!(
            hit.is_none() || superblock,
            "a write of {len} bytes at {} reaches {hit:?}",
            write.offset
        );
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

    fn write_align(&self) -> u32 {
        self.inner.write_align()
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
            self.judge(write);
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

    fn members(&self) -> &[Member] {
        self.inner.members()
    }
}
