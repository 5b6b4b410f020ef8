//! A device that remembers everything that was done to it, in order.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::error::check_range;
use crate::{
    Counters, Device, DeviceError, Image, IoKind, Member, MemoryDevice, Read, Write, lock,
};

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
    /// A flush of one device of several: every write before it to this range is durable.
    FlushPart {
        /// First byte on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
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
            Self::Flush | Self::FlushPart { .. } | Self::Mark(_) => Ok(()),
        }
    }
}

/// A working device in memory that keeps a log of all changes from the image
/// that it started with, from which the states that a crash may leave are made.
#[derive(Debug)]
pub struct RecordingDevice {
    base: Image,
    recorder: Arc<Recorder>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Recorder {
    device: MemoryDevice,
    /// Held while a change is made, so that the log has the order of the device.
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// Writes to a part of the device that begins at byte `from`.
    fn write(&self, batch: &[Write<'_>], from: u64) -> Vec<Result<(), DeviceError>> {
        let mut events = lock(&self.events);
        let batch: Vec<Write<'_>> = batch
            .iter()
            .map(|write| Write::new(write.offset + from, write.data, write.kind))
            .collect();
        let results = self.device.write(&batch);
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

    fn flush(&self, event: Event) -> Result<(), DeviceError> {
        let mut events = lock(&self.events);
        self.device.flush()?;
        events.push(event);
        Ok(())
    }

    fn discard(&self, ranges: &[(u64, u64)], from: u64) -> Result<(), DeviceError> {
        let mut events = lock(&self.events);
        for &(offset, len) in ranges {
            let offset = offset + from;
            self.device.discard(&[(offset, len)])?;
            events.push(Event::Discard { offset, len });
        }
        Ok(())
    }
}

impl RecordingDevice {
    /// Starts recording with what `device` holds now.
    pub fn new(device: MemoryDevice) -> Self {
        Self {
            base: device.image(),
            recorder: Arc::new(Recorder {
                device,
                events: Mutex::new(Vec::new()),
            }),
            members: Vec::new(),
        }
    }

    /// The same as several devices one behind the other, of which each is flushed
    /// by itself: [`members`](Device::members), which end at these bytes and at
    /// the end.
    #[must_use]
    pub fn cut(self, ends: &[u64]) -> Self {
        let mut at = 0;
        let ends = ends.iter().copied().chain([self.size()]);
        let members = ends.enumerate().map(|(index, end)| {
            let part = Part {
                recorder: Arc::clone(&self.recorder),
                range: at..end,
            };
            let len = end.saturating_sub(at);
            at = end;
            Member::new(&format!("part {index}"), Arc::new(part), 0, len)
        });
        Self {
            members: members.collect(),
            ..self
        }
    }

    /// What the device held when recording started.
    pub fn base_image(&self) -> Image {
        self.base.clone()
    }

    /// What the device holds now.
    pub fn image(&self) -> Image {
        self.recorder.device.image()
    }

    /// Notes a place in the stream of events.
    pub fn mark(&self, mark: u64) {
        lock(&self.recorder.events).push(Event::Mark(mark));
    }

    /// All events so far. The data is shared, not copied.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.recorder.events).clone()
    }

    /// How many events there are so far.
    pub fn event_count(&self) -> usize {
        lock(&self.recorder.events).len()
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
        self.recorder.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.recorder.device.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.recorder.device.write_align()
    }

    fn rotational(&self) -> bool {
        self.recorder.device.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        self.recorder.device.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        self.recorder.write(batch, 0)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.recorder.flush(Event::Flush)
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        self.recorder.discard(ranges, 0)
    }

    fn counters(&self) -> Counters {
        self.recorder.device.counters()
    }

    fn members(&self) -> &[Member] {
        &self.members
    }
}

/// One device of several that are recorded together.
#[derive(Debug)]
struct Part {
    recorder: Arc<Recorder>,
    range: Range<u64>,
}

impl Device for Part {
    fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn sector_size(&self) -> u32 {
        self.recorder.device.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.recorder.device.write_align()
    }

    fn rotational(&self) -> bool {
        self.recorder.device.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        for read in batch.iter_mut() {
            read.result = check_range(self.size(), read.offset, read.buffer.len() as u64);
            if read.result.is_ok() {
                read.offset += self.range.start;
                self.recorder.device.read(std::slice::from_mut(read));
                read.offset -= self.range.start;
            }
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let outside = |write: &Write<'_>| {
            check_range(self.size(), write.offset, write.data.len() as u64).err()
        };
        match batch.iter().find_map(outside) {
            Some(error) => vec![Err(error); batch.len()],
            None => self.recorder.write(batch, self.range.start),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.recorder.flush(Event::FlushPart {
            offset: self.range.start,
            len: self.size(),
        })
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        for &(offset, len) in ranges {
            check_range(self.size(), offset, len)?;
        }
        self.recorder.discard(ranges, self.range.start)
    }

    fn counters(&self) -> Counters {
        self.recorder.device.counters()
    }

    fn members(&self) -> &[Member] {
        &[]
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

    #[test]
    fn parts_are_flushed_by_themselves() {
        let device = RecordingDevice::new(MemoryDevice::new(32768)).cut(&[8192]);
        let [one, two] = device.members() else {
            panic!("two parts")
        };
        assert_eq!((one.device().size(), two.device().size()), (8192, 24576));
        write_all(two.device(), 4096, &[3; 4096], IoKind::Other).unwrap();
        two.device().flush().unwrap();
        assert!(write_all(one.device(), 8192, &[3; 4096], IoKind::Other).is_err());
        let events = device.events();
        assert!(matches!(
            &events[..],
            [
                Event::Write { offset: 12288, .. },
                Event::FlushPart {
                    offset: 8192,
                    len: 24576
                },
            ]
        ));
        let read = read_exact(two.device(), 4096, 1, IoKind::Other).unwrap();
        assert_eq!(read[..], [3]);
        assert!(read_exact(one.device(), 8192, 1, IoKind::Other).is_err());
    }
}
