//! A device in memory, for tests and for images that are explored.

use std::sync::Mutex;

use crate::batch;
use crate::error::{check_range, check_write};
use crate::{
    AtomicCounters, Counters, Device, DeviceError, Image, IoKind, Member, Op, Read, Write, lock,
};

/// A device whose bytes are an [`Image`]. Writes take effect at once and in
/// order; a flush is only counted.
#[derive(Debug)]
pub struct MemoryDevice {
    image: Mutex<Image>,
    size: u64,
    sector: u32,
    align: u32,
    rotational: bool,
    counters: AtomicCounters,
}

impl MemoryDevice {
    /// A device of `size` zero bytes with sectors of 4096 bytes.
    pub fn new(size: u64) -> Self {
        Self::from_image(Image::new(size))
    }

    /// A device that holds these bytes.
    pub fn from_bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::from_image(Image::from_bytes(bytes))
    }

    /// A device that starts with this image.
    pub fn from_image(image: Image) -> Self {
        Self {
            size: image.size(),
            image: Mutex::new(image),
            sector: 4096,
            align: 4096,
            rotational: false,
            counters: AtomicCounters::default(),
        }
    }

    /// The same device with sectors of another size, which writes must keep to.
    #[must_use]
    pub fn with_sector_size(mut self, sector: u32) -> Self {
        // A sector of no bytes would divide by zero in every write.
        self.sector = sector.max(1);
        self.align = self.sector;
        self
    }

    /// The same device, which takes writes of less than a sector, as those do whose physical sector is larger than the logical one.
    #[must_use]
    pub fn with_write_align(mut self, align: u32) -> Self {
        self.align = align.max(1);
        self
    }

    /// The same device, claiming that its seeks are dear or that they are not.
    #[must_use]
    pub fn with_rotational(mut self, rotational: bool) -> Self {
        self.rotational = rotational;
        self
    }

    /// What the device holds now; cheap, and independent of later writes.
    pub fn image(&self) -> Image {
        lock(&self.image).clone()
    }

    /// All bytes that the device holds now.
    pub fn snapshot(&self) -> Vec<u8> {
        // The copying is done on a clone, so that nobody waits for it.
        self.image().to_vec()
    }

    /// A second device with the same contents, geometry, and fresh counters.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_image(self.image())
            .with_sector_size(self.sector)
            .with_write_align(self.align)
            .with_rotational(self.rotational)
    }

    /// Changes bytes behind the back of whoever uses the device: any alignment,
    /// not counted. For tests that damage a volume.
    pub fn poke(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        lock(&self.image).write(offset, data)
    }

    /// Looks at bytes without being counted.
    pub fn peek(&self, offset: u64, len: usize) -> Result<Vec<u8>, DeviceError> {
        check_range(self.size, offset, len as u64)?;
        let mut bytes = vec![0; len];
        lock(&self.image).read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn write_align(&self) -> u32 {
        self.align
    }

    fn rotational(&self) -> bool {
        self.rotational
    }

    fn read(&self, batch: &mut [Read]) {
        let runs = batch::read_runs(batch, |read| {
            check_range(self.size, read.offset, read.buffer.len() as u64)
        });
        batch::count_reads(&self.counters, &runs, batch);
        let image = lock(&self.image);
        for read in batch.iter_mut().filter(|read| read.result.is_ok()) {
            read.result = image.read(read.offset, &mut read.buffer);
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let (mut results, runs) = batch::write_runs(batch, |write| {
            check_write(self.size, self.align, write.offset, write.data.len() as u64)
        });
        batch::count_writes(&self.counters, &runs, batch);
        let mut image = lock(&self.image);
        for (write, result) in batch.iter().zip(&mut results) {
            if result.is_ok() {
                *result = image.write(write.offset, write.data);
            }
        }
        results
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.counters.request(Op::Flush, IoKind::Other);
        Ok(())
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let mut image = lock(&self.image);
        for &(offset, len) in ranges {
            image.clear(offset, len)?;
            self.counters.request(Op::Discard, IoKind::Other);
            self.counters.bytes(Op::Discard, IoKind::Other, len);
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.counters.snapshot()
    }

    fn members(&self) -> &[Member] {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read_exact, write_all};

    #[test]
    fn keeps_what_is_written_and_forgets_what_is_discarded() {
        let device = MemoryDevice::from_bytes(vec![7; 64 << 10]);
        write_all(&device, 4096, &[1; 8192], IoKind::Homed).unwrap();
        device.discard(&[(8192, 4096)]).unwrap();
        let bytes = read_exact(&device, 4095, 8194, IoKind::Homed).unwrap();
        assert_eq!((bytes[0], bytes[8193]), (7, 7));
        assert_eq!(bytes[1..4097], [1; 4096]);
        assert_eq!(bytes[4097..8193], [0; 4096]);
        assert_eq!(device.snapshot()[4095..12289], bytes[..]);
    }

    #[test]
    fn each_request_of_a_batch_has_its_own_result() {
        let device = MemoryDevice::new(16384).with_sector_size(512);
        let data = [3; 512];
        let results = device.write(&[
            Write::new(0, &data, IoKind::Other),
            Write::new(16384, &data, IoKind::Other),
            Write::new(100, &data, IoKind::Other),
            Write::new(15872, &data, IoKind::Other),
        ]);
        assert_eq!(results[0], Ok(()));
        assert!(matches!(results[1], Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(results[2], Err(DeviceError::Unaligned { .. })));
        assert_eq!(results[3], Ok(()));

        let mut batch = [
            Read::new(15872, 512, IoKind::Other),
            Read::new(16000, 512, IoKind::Other),
        ];
        device.read(&mut batch);
        assert_eq!(batch[0].result, Ok(()));
        assert_eq!(batch[0].buffer[..], data);
        assert!(batch[1].result.is_err());
    }

    #[test]
    fn neighbours_count_as_one_request() {
        let device = MemoryDevice::new(1 << 20);
        let data = [0; 4096];
        device.write(&[
            Write::new(4096, &data, IoKind::SmallData),
            Write::new(0, &data, IoKind::Segment),
            Write::new(65536, &data, IoKind::SmallData),
        ]);
        device.flush().unwrap();
        let counters = device.counters();
        assert_eq!(counters.kind(IoKind::Segment).writes, 1);
        assert_eq!(counters.kind(IoKind::Segment).write_bytes, 4096);
        assert_eq!(counters.kind(IoKind::SmallData).writes, 1);
        assert_eq!(counters.kind(IoKind::SmallData).write_bytes, 8192);
        assert_eq!(counters.flushes(), 1);
    }

    #[test]
    fn a_fork_and_its_original_go_apart() {
        let device = MemoryDevice::new(1 << 20)
            .with_sector_size(512)
            .with_rotational(true);
        write_all(&device, 0, &[1; 512], IoKind::Other).unwrap();
        let fork = device.fork();
        write_all(&fork, 0, &[2; 512], IoKind::Other).unwrap();
        assert_eq!(device.peek(0, 1).unwrap(), [1]);
        assert_eq!(fork.peek(0, 1).unwrap(), [2]);
        assert_eq!((fork.sector_size(), fork.rotational()), (512, true));
        assert_eq!(fork.counters().total().writes, 1);
    }

    #[test]
    fn poking_is_neither_aligned_nor_counted() {
        let device = MemoryDevice::new(8192);
        device.poke(4095, &[1, 2]).unwrap();
        assert_eq!(device.peek(4094, 4).unwrap(), [0, 1, 2, 0]);
        assert_eq!(device.counters(), Counters::default());
    }
}
