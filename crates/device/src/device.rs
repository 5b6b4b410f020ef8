//! The trait that everything above a device is written against.

use std::sync::Arc;

use loamfs_format::superblock::UNIT_SIZE;

use crate::{Buffer, Counters, DeviceError, IoKind, Member, Read, Write};

/// A block device: ranges of bytes that are read, written and flushed.
///
/// Requests of one batch, or of several callers at once, run in any order and
/// must not overlap when one of them writes.
pub trait Device: Send + Sync {
    /// Size in bytes, fixed when the device was opened.
    fn size(&self) -> u64;

    /// Physical sector in bytes: 512 or 4096 (or what the device says, when it
    /// is more), the unit in which writes are torn. Where it is longer than a write
    /// the rest of it is taken to stay as it was.
    fn sector_size(&self) -> u32;

    /// Logical sector in bytes, the unit in which writes are made: at most a physical one.
    fn write_align(&self) -> u32;

    /// Whether a seek costs milliseconds.
    fn rotational(&self) -> bool;

    /// Whether it does where this byte is: of several devices on the one that has it.
    fn rotational_at(&self, _offset: u64) -> bool {
        self.rotational()
    }

    /// Reads a batch; the requests go down together, those that touch each other
    /// as one, and each carries its own result.
    fn read(&self, batch: &mut [Read]);

    /// Writes a batch; the requests go down together, those that touch each
    /// other as one. Returns when all have completed, with one result for each.
    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>>;

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Tells the device that the ranges (offset, length) hold nothing of value;
    /// what they read as afterwards is undefined. A device that cannot use the
    /// hint says `Ok`, and counts nothing.
    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError>;

    /// What was asked of the device so far.
    fn counters(&self) -> Counters;

    /// The devices that this one is joined of, by their bytes; none if it is one itself.
    fn members(&self) -> &[Member];
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn sector_size(&self) -> u32 {
        (**self).sector_size()
    }

    fn write_align(&self) -> u32 {
        (**self).write_align()
    }

    fn rotational(&self) -> bool {
        (**self).rotational()
    }

    fn rotational_at(&self, offset: u64) -> bool {
        (**self).rotational_at(offset)
    }

    fn read(&self, batch: &mut [Read]) {
        (**self).read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        (**self).write(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        (**self).flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        (**self).discard(ranges)
    }

    fn counters(&self) -> Counters {
        (**self).counters()
    }

    fn members(&self) -> &[Member] {
        (**self).members()
    }
}

/// Reads `len` bytes at byte `offset`: a batch of one.
pub fn read_exact(
    device: &dyn Device,
    offset: u64,
    len: usize,
    kind: IoKind,
) -> Result<Buffer, DeviceError> {
    // Checked before the buffer is made: a length that comes from a damaged
    // volume must not allocate more than the device could hold.
    crate::error::check_range(device.size(), offset, len as u64)?;
    let mut read = Read::new(offset, len, kind);
    device.read(std::slice::from_mut(&mut read));
    read.into_result()
}

/// Reads `len` bytes at byte `offset`, with zeros for units that cannot be read: who copies a device takes along what can be. Returns how many
/// bytes those are, too.
///
/// # Errors
/// [`DeviceError::OutOfRange`].
pub fn read_readable(
    device: &dyn Device,
    offset: u64,
    len: usize,
    kind: IoKind,
) -> Result<(Buffer, u64), DeviceError> {
    match read_exact(device, offset, len, kind) {
        Ok(bytes) => return Ok((bytes, 0)),
        Err(error @ DeviceError::OutOfRange { .. }) => return Err(error),
        Err(_) => {}
    }
    let (mut bytes, mut unread) = (Buffer::zeroed(len), 0);
    let mut at = offset;
    for piece in bytes.chunks_mut(UNIT_SIZE as usize) {
        match read_exact(device, at, piece.len(), kind) {
            Ok(read) => piece.copy_from_slice(&read),
            Err(_) => unread += piece.len() as u64,
        }
        at += piece.len() as u64;
    }
    Ok((bytes, unread))
}

/// Writes `data` at byte `offset`: a batch of one.
pub fn write_all(
    device: &dyn Device,
    offset: u64,
    data: &[u8],
    kind: IoKind,
) -> Result<(), DeviceError> {
    let results = device.write(&[Write::new(offset, data, kind)]);
    results
        .into_iter()
        .next()
        .unwrap_or(Err(DeviceError::NotIssued))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn helpers_move_one_range() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
        write_all(&device, 8192, &[5; 4096], IoKind::Other).unwrap();
        let buffer = read_exact(&device, 8190, 4, IoKind::Other).unwrap();
        assert_eq!(&buffer[..], &[0, 0, 5, 5]);
        let error = read_exact(&device, 0, usize::MAX / 2, IoKind::Other).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfRange { .. }));
    }
}
