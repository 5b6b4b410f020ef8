//! A device that remembers everything that was done to it, in order.

use std::sync::{Arc, Mutex};

use crate::{Counters, Device, DeviceError, Image, IoKind, MemoryDevice, Read, Write, lock};

/// One thing that was done to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write that succeeded; each request of a batch by itself, as the device
    /// may lose each by itself.
    Write {
        /// First byte on the device.
        offset: u64,
        /// What was written.
        data: Arc<[u8]>,
        /// What it was for.
        kind: IoKind,
    },
    /// A flush: every write before it is durable.
    Flush,
    /// A discarded range.
    Discard {
        /// First byte on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A note by whoever drives the device: an operation ended here.
    Mark(u64),
}

impl Event {
    /// Does to an image what was done to the device.
    pub fn apply(&self, image: &mut Image) -> Result<(), DeviceError> {
        match self {
            Self::Write { offset, data, .. } => image.write(*offset, data),
            Self::Discard { offset, len } => image.clear(*offset, *len),
            Self::Flush | Self::Mark(_) => Ok(()),
        }
    }
}

/// A working device in memory that keeps a log of all changes from the image
/// that it started with, from which the states that a crash may leave are made.
#[derive(Debug)]
pub struct RecordingDevice {
    base: Image,
    device: MemoryDevice,
    /// Held while a change is made, so that the log has the order of the device.
    events: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Starts recording with what `device` holds now.
    pub fn new(device: MemoryDevice) -> Self {
        Self {
            base: device.image(),
            device,
            events: Mutex::new(Vec::new()),
        }
    }

    /// What the device held when recording started.
    pub fn base_image(&self) -> Image {
        self.base.clone()
    }

    /// What the device holds now.
    pub fn image(&self) -> Image {
        self.device.image()
    }

    /// Notes a place in the stream of events.
    pub fn mark(&self, mark: u64) {
        lock(&self.events).push(Event::Mark(mark));
    }

    /// All events so far. The data is shared, not copied.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// How many events there are so far.
    pub fn event_count(&self) -> usize {
        lock(&self.events).len()
    }

    /// What the device held after its first `count` events.
    pub fn image_after(&self, count: usize) -> Result<Image, DeviceError> {
        let mut image = self.base_image();
        for event in self.events().iter().take(count) {
            event.apply(&mut image)?;
        }
        Ok(image)
    }
}

impl Device for RecordingDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn rotational(&self) -> bool {
        self.device.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        self.device.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let mut events = lock(&self.events);
        let results = self.device.write(batch);
        for (write, result) in batch.iter().zip(&results) {
            if result.is_ok() {
                events.push(Event::Write {
                    offset: write.offset,
                    data: write.data.into(),
                    kind: write.kind,
                });
            }
        }
        results
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut events = lock(&self.events);
        self.device.flush()?;
        events.push(Event::Flush);
        Ok(())
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let mut events = lock(&self.events);
        for &(offset, len) in ranges {
            self.device.discard(&[(offset, len)])?;
            events.push(Event::Discard { offset, len });
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read_exact, write_all};

    fn recorded() -> RecordingDevice {
        let device = MemoryDevice::from_bytes(vec![9; 32768]);
        let device = RecordingDevice::new(device);
        write_all(&device, 0, &[1; 4096], IoKind::Segment).unwrap();
        device.flush().unwrap();
        device.mark(77);
        write_all(&device, 4096, &[2; 4096], IoKind::Homed).unwrap();
        device.discard(&[(8192, 4096)]).unwrap();
        device
    }

    #[test]
    fn events_stand_in_the_order_of_the_device() {
        let events = recorded().events();
        assert!(matches!(
            &events[..],
            [
                Event::Write { offset: 0, kind: IoKind::Segment, .. },
                Event::Flush,
                Event::Mark(77),
                Event::Write { offset: 4096, kind: IoKind::Homed, data },
                Event::Discard { offset: 8192, len: 4096 },
            ] if data[..] == [2; 4096]
        ));
    }

    #[test]
    fn replaying_all_events_gives_the_device() {
        let device = recorded();
        assert_eq!(device.event_count(), 5);
        assert_eq!(device.image_after(5).unwrap(), device.image());
        assert_eq!(device.image_after(0).unwrap(), device.base_image());
        let half = device.image_after(1).unwrap().to_vec();
        assert_eq!((half[0], half[4096], half[8192]), (1, 9, 9));
        let read = read_exact(&device, 8191, 2, IoKind::Check).unwrap();
        assert_eq!(read[..], [2, 0]);
    }

    #[test]
    fn what_failed_is_not_recorded() {
        let device = recorded();
        assert!(write_all(&device, 32768, &[0; 4096], IoKind::Other).is_err());
        assert!(device.discard(&[(32768, 1)]).is_err());
        assert_eq!(device.event_count(), 5);
    }
}
