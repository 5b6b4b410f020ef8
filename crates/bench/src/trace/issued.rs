//! Requests of our own device layer, as a trace has them.

use loamfs_device::{IoKind, Issued, Op as DeviceOp};

use super::{Op, Request, SECTOR, Trace};

impl Request {
    /// What went down to a device, `micros` being the time. Parts of sectors count whole.
    pub fn issued(micros: u64, issued: &Issued) -> Request {
        let sector = issued.offset / SECTOR;
        let end = issued.offset.saturating_add(issued.len).div_ceil(SECTOR);
        Request {
            micros,
            op: match issued.op {
                DeviceOp::Read => Op::Read,
                DeviceOp::Write => Op::Write,
                DeviceOp::Flush => Op::Flush,
                DeviceOp::Discard => Op::Discard,
            },
            marks: match issued.kind {
                IoKind::Superblock | IoKind::Summary | IoKind::Metadata => "m".into(),
                _ => String::new(),
            },
            sector,
            sectors: end - sector,
        }
    }
}

impl Trace {
    /// What went down to a device of `size` bytes, each request with its time in microseconds; without phases.
    pub fn of_device(size: u64, requests: &[(u64, Issued)]) -> Trace {
        Trace {
            size: Some(size),
            requests: requests
                .iter()
                .map(|(micros, issued)| Request::issued(*micros, issued))
                .collect(),
            ..Trace::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use loamfs_device::{Device, MemoryDevice, Read, TracingDevice, Write, write_all};

    use super::*;

    #[test]
    fn a_device_of_ours_is_traced_in_the_format_of_all_traces() {
        let device = TracingDevice::traced(MemoryDevice::new(1 << 20), || 7);
        write_all(&device, 4096, &[1; 8192], IoKind::Homed).unwrap();
        device.flush().unwrap();
        device.read(&mut [Read::new(8192, 512, IoKind::Metadata)]);
        device.discard(&[(65536, 4096)]).unwrap();
        let data = [0; 4096];
        device.write(&[
            Write::new(4096, &data, IoKind::Superblock),
            Write::new(0, &data, IoKind::Segment),
        ]);
        let trace = Trace::of_device(device.size(), &device.observer().take());
        let lines = ["7 W 8 16", "7 F 0 0", "7 Rm 16 1", "7 D 128 8", "7 W 0 16"];
        assert_eq!(trace.to_string().lines().collect::<Vec<_>>(), lines);
        assert_eq!(trace.size, Some(1 << 20));
        let (counted, written) = (device.counters().total(), trace.sum(Op::Write));
        assert_eq!(
            (written.requests, written.bytes),
            (counted.writes, counted.write_bytes)
        );
    }
}
