//! A device that tells somebody of each request that goes down.

use crate::batch::{Run, merge};
use crate::error::check_range;
use crate::{Counters, Device, DeviceError, IoKind, Member, Op, Read, Write};
use std::sync::Arc;

/// A request as it goes down: what a batch was merged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// What it does.
    pub op: Op,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// What it is for: if it was merged, what the first part is for.
    pub kind: IoKind,
}

/// Somebody who is told of requests, in the order in which they go down.
pub trait Observer: Send + Sync {
    /// A request goes down now.
    fn issued(&self, request: Issued);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn issued(&self, request: Issued) {
        (**self).issued(request);
    }
}

/// A device whose requests an [`Observer`] is told of: those that its [`Counters`] count, no more and no fewer, as long as
/// callers write whole sectors to a device that may be written.
#[derive(Debug)]
pub struct ObservedDevice<D, O> {
    device: D,
    observer: O,
}

impl<D: Device, O: Observer> ObservedDevice<D, O> {
    /// `device`, watched by `observer`.
    pub const fn new(device: D, observer: O) -> Self {
        Self { device, observer }
    }

    /// Who is told.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// The device below.
    pub const fn inner(&self) -> &D {
        &self.device
    }

    /// Tells of the requests of a batch, of which `part` gives each one's range and kind.
    fn tell<T>(&self, op: Op, batch: &[T], part: impl Fn(&T) -> (u64, u64, IoKind)) {
        let parts = batch.iter().map(&part).enumerate();
        // What lies outside is refused below.
        let inside = parts
            .filter(|(_, (offset, len, _))| check_range(self.device.size(), *offset, *len).is_ok());
        let ranges = inside.map(|(index, (offset, len, _))| (index, offset, len));
        for Run {
            offset,
            len,
            pieces,
        } in merge(ranges)
        {
            let (_, _, kind) = part(&batch[pieces[0]]);
            self.observer.issued(Issued {
                op,
                offset,
                len,
                kind,
            });
        }
    }
}

impl<D: Device, O: Observer> Device for ObservedDevice<D, O> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.device.write_align()
    }

    fn rotational(&self) -> bool {
        self.device.rotational()
    }

    fn rotational_at(&self, offset: u64) -> bool {
        self.device.rotational_at(offset)
    }

    fn read(&self, batch: &mut [Read]) {
        self.tell(Op::Read, batch, |read| {
            (read.offset, read.buffer.len() as u64, read.kind)
        });
        self.device.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        self.tell(Op::Write, batch, |write| {
            (write.offset, write.data.len() as u64, write.kind)
        });
        self.device.write(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.observer.issued(Issued {
            op: Op::Flush,
            offset: 0,
            len: 0,
            kind: IoKind::Other,
        });
        self.device.flush()
    }

    /// A range that the device cannot use the hint for does not go down: its counters say which do.
    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        for &(offset, len) in ranges {
            let before = self.device.counters().discards();
            self.device.discard(&[(offset, len)])?;
            if self.device.counters().discards() != before {
                self.observer.issued(Issued {
                    op: Op::Discard,
                    offset,
                    len,
                    kind: IoKind::Other,
                });
            }
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }

    fn members(&self) -> &[Member] {
        self.device.members()
    }
}
