//! A device that keeps what reaches the one below it.

use std::fmt;
use std::sync::Mutex;

use crate::{Device, Issued, ObservedDevice, Observer, lock};

/// A device whose requests are kept, with the times at which they went down.
pub type TracingDevice<D> = ObservedDevice<D, Tracer>;

/// Keeps requests, with their times.
pub struct Tracer {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    requests: Mutex<Vec<(u64, Issued)>>,
}

impl Tracer {
    /// One that takes the time from `clock`, in microseconds.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            clock: Box::new(clock),
            requests: Mutex::new(Vec::new()),
        }
    }

    /// The requests so far, with their times; none is told twice.
    pub fn take(&self) -> Vec<(u64, Issued)> {
        std::mem::take(&mut lock(&self.requests))
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = lock(&self.requests).len();
        f.debug_struct("Tracer").field("kept", &kept).finish()
    }
}

impl Observer for Tracer {
    fn issued(&self, request: Issued) {
        // The time is looked at under the lock, so that times stand in order.
        let mut requests = lock(&self.requests);
        requests.push(((self.clock)(), request));
    }
}

impl<D: Device> TracingDevice<D> {
    /// `device`, traced by a clock in microseconds.
    pub fn traced(device: D, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self::new(device, Tracer::new(clock))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Counters, FileDevice, IoKind, MemoryDevice, Op, Read, Write, write_all};

    fn traced<D: Device>(device: D) -> TracingDevice<D> {
        let clock = AtomicU64::new(0);
        TracingDevice::traced(device, move || clock.fetch_add(1, Ordering::Relaxed))
    }

    /// Batches that merge, such that do not, what is refused, flushes and discards.
    fn drive(device: &impl Device) {
        let data = [7; 16384];
        let results = device.write(&[
            Write::new(8192, &data[..4096], IoKind::SmallData),
            Write::new(4096, &data[..4096], IoKind::Segment),
            Write::new(65536, &data, IoKind::Homed),
            Write::new(device.size(), &data, IoKind::Homed),
            Write::new(0, &[], IoKind::Other),
        ]);
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
        device.flush().unwrap();
        let mut batch = [
            Read::new(4096, 512, IoKind::Metadata),
            Read::new(4608, 7680, IoKind::Check),
            Read::new(512 << 10, 4096, IoKind::Metadata),
            Read::new(device.size() - 1, 2, IoKind::Metadata),
        ];
        device.read(&mut batch);
        assert_eq!(batch.iter().filter(|read| read.result.is_err()).count(), 1);
        device.discard(&[(65536, 8192), (131_072, 4096)]).unwrap();
        assert!(device.discard(&[(device.size(), 1)]).is_err());
        // More pieces than the kernel takes in one request.
        let many: Vec<_> = (0..1030)
            .map(|i| Write::new((1 << 20) + i * 4096, &data[..4096], IoKind::Segment))
            .collect();
        device.write(&many);
    }

    fn assert_agrees(kept: &[(u64, Issued)], counters: &Counters) {
        let of = |op: Op| {
            let requests = kept.iter().filter(move |(_, request)| request.op == op);
            let (mut count, mut bytes) = (0, 0);
            requests.for_each(|(_, request)| {
                count += 1;
                bytes += request.len;
            });
            (count, bytes)
        };
        let total = counters.total();
        assert_eq!(of(Op::Read), (total.reads, total.read_bytes));
        assert_eq!(of(Op::Write), (total.writes, total.write_bytes));
        assert_eq!(of(Op::Flush), (counters.flushes(), 0));
        assert_eq!(
            of(Op::Discard),
            (counters.discards(), counters.discard_bytes())
        );
        for kind in IoKind::ALL {
            let of_kind = |op| {
                let requests = kept.iter().map(|(_, request)| request);
                requests.filter(|r| (r.op, r.kind) == (op, kind)).count() as u64
            };
            let row = counters.kind(kind);
            assert_eq!(
                (of_kind(Op::Read), of_kind(Op::Write)),
                (row.reads, row.writes)
            );
        }
    }

    #[test]
    fn what_is_kept_is_what_the_counters_count_in_memory_and_in_files() {
        let memory = traced(MemoryDevice::new(8 << 20));
        drive(&memory);
        let kept = memory.observer().take();
        assert_agrees(&kept, &memory.counters());
        assert_eq!(memory.counters().discards(), 2);

        let directory = tempfile::tempdir().unwrap();
        let file = FileDevice::create(directory.path().join("image"), 8 << 20).unwrap();
        let file = traced(file);
        drive(&file);
        let in_file = file.observer().take();
        assert_agrees(&in_file, &file.counters());
        // The same requests, whatever they reach; discards only where the file system of the image has holes.
        let known = |request: &&(u64, Issued)| request.1.op != Op::Discard;
        let requests = |kept: &[(u64, Issued)]| -> Vec<Issued> {
            kept.iter()
                .filter(known)
                .map(|(_, request)| *request)
                .collect()
        };
        assert_eq!(requests(&in_file), requests(&kept));
    }

    #[test]
    fn requests_stand_in_order_with_their_times_and_are_taken_once() {
        let device = traced(MemoryDevice::new(1 << 20));
        write_all(&device, 4096, &[1; 8192], IoKind::Homed).unwrap();
        device.flush().unwrap();
        let write = Issued {
            op: Op::Write,
            offset: 4096,
            len: 8192,
            kind: IoKind::Homed,
        };
        let kept = device.observer().take();
        assert_eq!(kept[0], (0, write));
        assert_eq!((kept[1].0, kept[1].1.op), (1, Op::Flush));
        assert!(device.observer().take().is_empty());
    }
}
