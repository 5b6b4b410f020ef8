//! A disk of the model below a device that is used: it is charged as requests come, for what runs on the library.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use loamfs_device::{Issued, ObservedDevice, Observer};

use super::replay::Meter;
use super::{Preset, Priced};
use crate::trace::Request;

/// A device with a disk of the model below it. What it costs is what a replay of its trace costs.
pub type PricedDevice<D> = ObservedDevice<D, VirtualDisk>;

/// A disk whose clock goes on as requests come.
pub struct VirtualDisk {
    meter: Mutex<Meter>,
}

impl VirtualDisk {
    /// A new disk under a device of `size` bytes.
    pub fn new(preset: Preset, size: u64) -> VirtualDisk {
        VirtualDisk {
            meter: Mutex::new(Meter::new(preset, size)),
        }
    }

    /// A phase begins here.
    pub fn begin(&self, name: &str) {
        self.meter().begin(name);
    }

    /// The phase ends here: what waits is done first.
    pub fn end(&self, operations: u64) {
        self.meter().end(operations);
    }

    /// The virtual clock: seconds that the disk has been busy.
    pub fn seconds(&self) -> f64 {
        self.meter().seconds()
    }

    /// What all came to so far.
    pub fn priced(&self) -> Priced {
        self.meter().priced()
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for VirtualDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        f.debug_struct("VirtualDisk")
            .field("seconds", &seconds)
            .finish()
    }
}

impl Observer for VirtualDisk {
    fn issued(&self, request: Issued) {
        // When it comes is nothing to a disk that nobody waits for.
        self.meter().take(&Request::issued(0, &request));
    }
}

#[cfg(test)]
mod tests {
    use loamfs_device::{Device, IoKind, MemoryDevice, Read, TracingDevice, write_all};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::disk::replay;
    use crate::trace::{Phase, Trace};

    const SIZE: u64 = 256 << 20;
    /// Sectors of 4 KiB.
    const PAGES: u64 = SIZE / 4096;

    /// Requests of chance in phases, two of one name; returns the phases as a trace has them.
    fn drive(device: &PricedDevice<TracingDevice<MemoryDevice>>) -> Trace {
        let disk = device.observer();
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut below = |bound: u64| random.random_range(0..bound);
        let mut work = |requests: u64| {
            for _ in 0..requests {
                let offset = below(PAGES) * 4096;
                let pages = 1 + below(32.min(PAGES - offset / 4096));
                let len = (pages * 4096) as usize;
                match below(10) {
                    0 => device.flush().unwrap(),
                    1..4 => device.read(&mut [Read::new(offset, len, IoKind::Check)]),
                    _ => write_all(device, offset, &vec![1; len], IoKind::Homed).unwrap(),
                }
            }
            device.counters()
        };
        let (mut marks, mut at) = (Vec::new(), 0);
        for (name, requests) in [("setup", 50), ("", 40), ("a", 200), ("b", 300), ("a", 100)] {
            if !name.is_empty() {
                disk.begin(name);
            }
            let total = work(requests);
            disk.end(requests);
            let end = total.total().reads + total.total().writes + total.flushes();
            marks.push((name, requests, (at, end as usize)));
            at = end as usize;
        }
        let phase = |(name, operations, requests): (&str, u64, (usize, usize))| Phase {
            name: name.to_owned(),
            micros: (0, 0),
            operations,
            requests,
        };
        let named = marks.into_iter().filter(|mark| !mark.0.is_empty());
        Trace {
            phases: named.map(phase).collect(),
            ..Trace::default()
        }
    }

    /// Unnamed parts have no operations of their own in a trace.
    fn without_operations(mut priced: Priced) -> Priced {
        for tally in priced
            .phases
            .iter_mut()
            .filter(|tally| tally.name.is_empty())
        {
            priced.total.operations -= std::mem::take(&mut tally.operations);
        }
        priced
    }

    #[test]
    fn what_a_device_costs_while_it_is_used_is_what_its_trace_costs() {
        for preset in [Preset::Reference, Preset::ReferenceShingled] {
            let traced = TracingDevice::traced(MemoryDevice::new(SIZE), || 0);
            let device = PricedDevice::new(traced, VirtualDisk::new(preset, SIZE));
            let phases = drive(&device);
            let trace = Trace {
                phases: phases.phases,
                ..Trace::of_device(SIZE, &device.inner().observer().take())
            };
            let price = without_operations(device.observer().priced());
            assert_eq!(price, replay(&trace, preset, SIZE));
            let names: Vec<&str> = price.phases.iter().map(|p| p.name.as_str()).collect();
            assert_eq!(names, ["", "a", "b"]);
            // What prepares takes its time too.
            assert!(device.observer().seconds() > price.total.seconds);
        }
    }

    #[test]
    fn the_clock_goes_on_when_the_disk_works() {
        let disk = VirtualDisk::new(Preset::Reference, SIZE);
        let device = PricedDevice::new(MemoryDevice::new(SIZE), disk);
        write_all(&device, 1 << 20, &[1; 4096], IoKind::Homed).unwrap();
        assert_eq!(device.observer().seconds(), 0.0, "it waits in the queue");
        device.flush().unwrap();
        assert!(device.observer().seconds() > 0.0);
    }
}
