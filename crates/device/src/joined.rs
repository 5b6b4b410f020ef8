//! Several devices as one: the bytes of the first, then those of the second, and so on.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{check_range, check_write};
use crate::{
    Buffer, Counters, Device, DeviceError, IoKind, Read, Write, lock, read_exact, read_readable,
};
use loamfs_format::superblock::UNIT_SIZE;

mod changed;
mod missing;

use changed::Changed;

/// Where the bytes of a member stand.
#[derive(Clone)]
struct Place {
    name: Arc<str>,
    device: Arc<dyn Device>,
    /// Bytes on the device before those that it gives.
    offset: u64,
    unflushed: Arc<Unflushed>,
}

/// A second place for a member's bytes, on another member's device.
struct Second {
    place: Place,
    /// So many bytes, from the first on, stand there as they do in the first place. Who writes holds it, so that nobody copies old
    /// bytes there meanwhile.
    alike: RwLock<u64>,
    /// What was written in the first place since it was copied here, if this is one that is behind.
    changed: Changed,
}

impl Second {
    fn alike(&self) -> RwLockReadGuard<'_, u64> {
        self.alike.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, u64> {
        self.alike.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What [`Member::copy_more`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that were copied: one unit where not all that was asked for can be read.
    pub copied: u64,
    /// Bytes that are left to copy.
    pub left: u64,
    /// Of those that were copied, bytes that cannot be read: the second place has zeros there.
    pub unread: u64,
}

/// A device that is part of a [`JoinedDevice`].
#[derive(Clone)]
pub struct Member {
    place: Place,
    /// Where the same bytes stand once more, or may come to stand.
    copy: Option<Arc<Second>>,
    /// Bytes on the device before those that it gives, as the volume has it.
    offset: u64,
    /// Where these stand in the whole.
    range: Range<u64>,
    is_missing: bool,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("name", &self.place.name)
            .field("offset", &self.offset)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// `len` bytes of a device from byte `offset` on. Errors call it by its name.
    pub fn new(name: &str, device: Arc<dyn Device>, offset: u64, len: u64) -> Self {
        let place = Place {
            name: name.into(),
            device,
            offset,
            unflushed: Arc::default(),
        };
        Self {
            place,
            copy: None,
            offset,
            range: 0..len,
            is_missing: false,
        }
    }

    /// In the place of a device that is not there, and would give `len` bytes from byte `offset` on: reads and writes fail.
    pub fn missing(name: &str, offset: u64, len: u64) -> Self {
        let device = Arc::new(missing::MissingDevice(offset.saturating_add(len)));
        Self {
            is_missing: true,
            ..Self::new(name, device, offset, len)
        }
    }

    /// The same at `range` of the whole, which is as long as what the device gives.
    #[must_use]
    pub fn at_range(self, range: Range<u64>) -> Self {
        Self { range, ..self }
    }

    /// The same, with a second place for its bytes on the device of another member, from byte `offset` of that on. If they `stand`
    /// there: what is written goes to both, a flush is one of both, and what cannot be read in the first place is read in the second.
    /// Else they may be copied there ([`Member::copy_more`]).
    #[must_use]
    pub fn with_copy(self, other: &Member, offset: u64, stand: bool) -> Self {
        let place = Place {
            offset,
            ..other.place.clone()
        };
        let alike = RwLock::new(if stand { self.bytes() } else { 0 });
        let second = Second {
            place,
            alike,
            changed: Changed::of(self.bytes()),
        };
        Self {
            copy: Some(Arc::new(second)),
            ..self
        }
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// The device itself, with what lies before and behind the bytes that it gives. Who writes to it here flushes it here.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.place.device
    }

    /// Whether it only stands for a device that is not there.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Bytes on the device before those that it gives.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where its bytes stand in the whole.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The second place, if all bytes stand there.
    fn second(&self) -> Option<&Place> {
        let copy = self.copy.as_ref()?;
        let all_stand = *copy.alike() >= self.bytes();
        all_stand.then_some(&copy.place)
    }

    /// Whether its bytes stand in two places.
    pub fn stands_twice(&self) -> bool {
        self.second().is_some()
    }

    /// Copies up to `len` bytes more to the second place, one unit where not all of them can be read. What is written from now on to those that stand
    /// there goes to both.
    ///
    /// # Errors
    /// The second place's; [`DeviceError::OutOfRange`] where there is none.
    pub fn copy_more(&self, len: u64) -> Result<Copied, DeviceError> {
        let Some(copy) = &self.copy else {
            let (offset, size) = (0, 0);
            return Err(DeviceError::OutOfRange { offset, len, size });
        };
        let mut alike = copy.alone();
        let mut len = len.min(self.bytes().saturating_sub(*alike));
        let mut unread = 0;
        if len > 0 {
            let Place { device, offset, .. } = &self.place;
            let at = *offset + *alike;
            let bytes = match read_exact(device, at, len as usize, IoKind::Other) {
                Ok(bytes) => bytes,
                // Who writes waits for one bad sector at most.
                Err(_) => {
                    len = len.min(UNIT_SIZE.into());
                    let read = read_readable(device, at, len as usize, IoKind::Other);
                    let bytes;
                    (bytes, unread) = read.map_err(|error| self.place.named(error))?;
                    bytes
                }
            };
            let write = Write::new(*alike, &bytes, IoKind::Other);
            copy.place
                .write(&[write])
                .into_iter()
                .collect::<Result<(), _>>()?;
            *alike += len;
        }
        let left = self.bytes().saturating_sub(*alike);
        Ok(Copied {
            copied: len,
            left,
            unread,
        })
    }

    /// Its bytes do not stand in the second place any more: what is written goes to the first alone.
    pub fn forget_copy(&self) {
        if let Some(copy) = &self.copy {
            *copy.alone() = 0;
        }
    }

    /// The same with its bytes in each place alone: in one or two. It says of each that it stands where the first one does.
    pub fn alone(&self) -> Vec<Member> {
        let places = std::iter::once(&self.place).chain(self.second());
        let alone = |place: &Place| Self {
            place: place.clone(),
            copy: None,
            ..self.clone()
        };
        places.map(alone).collect()
    }

    /// Reads, counted from its first byte. What one place cannot give the other does.
    fn read(&self, batch: &mut [Read]) {
        self.place.read(batch);
        let failed = batch.iter_mut().filter(|read| read.result.is_err());
        for read in failed {
            let Some(second) = self.second() else {
                return;
            };
            let mut again = Read::new(read.offset, read.buffer.len(), read.kind);
            second.read(std::slice::from_mut(&mut again));
            if again.result.is_ok() {
                *read = again;
            }
        }
    }

    /// Writes, counted from its first byte, to each place in which these bytes stand.
    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let Some(copy) = &self.copy else {
            return self.place.write(batch);
        };
        let alike = copy.alike();
        let mut written = self.place.write(batch);
        for write in batch {
            let end = write.offset.saturating_add(write.data.len() as u64);
            copy.changed.note(write.offset..end);
        }
        let twice = batch.iter().enumerate();
        let twice = twice.filter(|(_, write)| write.offset < *alike);
        let (places, writes): (Vec<usize>, Vec<Write<'_>>) =
            twice.map(|(at, it)| (at, *it)).unzip();
        if !writes.is_empty() {
            for (at, other) in places.into_iter().zip(copy.place.write(&writes)) {
                written[at] = written[at].clone().and(other);
            }
        }
        written
    }

    /// The second place for its bytes, whatever stands there, by itself. What is written to it is flushed there too; a flush of this
    /// member may leave it out.
    pub fn second_place(&self) -> Option<Member> {
        let Place {
            name,
            device,
            offset,
            ..
        } = &self.copy.as_ref()?.place;
        Some(Self::new(name, Arc::clone(device), *offset, self.bytes()))
    }

    /// From now on it notes what is written, for [`Member::copy_changed`]: the second place lacks all that was written so far, or nothing of it.
    pub fn note_changes(&self, lacks_all: bool) {
        if let Some(copy) = &self.copy {
            copy.changed.begin(lacks_all);
        }
    }

    /// The second place lacks nothing of these bytes: nobody needs them there.
    pub fn lacks_nothing(&self, range: Range<u64>) {
        if let Some(copy) = &self.copy {
            copy.changed.clear(range);
        }
    }

    /// It notes nothing any more.
    pub fn forget_changes(&self) {
        if let Some(copy) = &self.copy {
            copy.changed.end();
        }
    }

    /// Bytes that the second place lacks of what was written; `None` if nobody notes that.
    pub fn bytes_behind(&self) -> Option<u64> {
        self.copy.as_ref()?.changed.waiting()
    }

    /// Copies to the second place what it lacks at byte `from` or behind it: the next run of that, of at most about `most` bytes, but for what
    /// lies in a range of `but`. Returns where that ends; `None` if nothing is lacking there. No flush of this member is one of that place.
    ///
    /// # Errors
    /// A device's: it is lacking still.
    pub fn copy_changed(
        &self,
        from: u64,
        most: u64,
        but: &[Range<u64>],
    ) -> Result<Option<u64>, DeviceError> {
        let Some(copy) = &self.copy else {
            return Ok(None);
        };
        let Some(run) = copy.changed.take(from, most) else {
            return Ok(None);
        };
        // Who flushes this member waits for none of it.
        let place = Place {
            unflushed: Arc::default(),
            ..copy.place.clone()
        };
        let mut at = run.start;
        let inside = but
            .iter()
            .filter(|it| it.start < run.end && run.start < it.end);
        let ends = inside
            .map(|it| (it.start, it.end))
            .chain([(run.end, run.end)]);
        for (stop, next) in ends {
            let copied = match at < stop {
                true => self.copy_between(&place, at..stop),
                false => Ok(()),
            };
            copied.inspect_err(|_| copy.changed.note(run.clone()))?;
            at = next;
        }
        Ok(Some(run.end))
    }

    fn copy_between(&self, to: &Place, range: Range<u64>) -> Result<(), DeviceError> {
        let len = (range.end - range.start) as usize;
        let mut read = Read::new(range.start, len, IoKind::Other);
        self.place.read(std::slice::from_mut(&mut read));
        let bytes = read.into_result()?;
        let write = Write::new(range.start, &bytes, IoKind::Other);
        to.write(&[write]).into_iter().collect()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let flushed = self.place.flush();
        let copy = self.copy.as_ref().map_or(Ok(()), |it| it.place.flush());
        flushed.and(copy)
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let Some(copy) = &self.copy else {
            return self.place.discard(ranges);
        };
        let alike = copy.alike();
        let told = self.place.discard(ranges);
        let twice = ranges.iter().filter(|(at, _)| at < &*alike);
        let twice: Vec<(u64, u64)> = twice.copied().collect();
        match twice.is_empty() {
            true => told,
            false => told.and(copy.place.discard(&twice)),
        }
    }
}

impl Place {
    fn read(&self, batch: &mut [Read]) {
        batch.iter_mut().for_each(|read| read.offset += self.offset);
        self.device.read(batch);
        for read in batch {
            read.offset -= self.offset;
            if let Err(error) = &read.result {
                read.result = Err(self.named(error.clone()));
            }
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let mut moved = batch.to_vec();
        moved.iter_mut().for_each(|it| it.offset += self.offset);
        let written = self.device.write(&moved);
        self.unflushed.note();
        let named = |result: Result<(), DeviceError>| result.map_err(|error| self.named(error));
        written.into_iter().map(named).collect()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let flushed = self.unflushed.flush(|| self.device.flush());
        flushed.map_err(|error| self.named(error))
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let moved = ranges.iter().map(|(at, len)| (self.offset + at, *len));
        let told = self.device.discard(&moved.collect::<Vec<_>>());
        self.unflushed.note();
        told.map_err(|error| self.named(error))
    }

    /// An error that says which device it is of.
    fn named(&self, error: DeviceError) -> DeviceError {
        match error {
            error @ DeviceError::Io { .. } => DeviceError::Member {
                name: Arc::clone(&self.name),
                error: Box::new(error),
            },
            other => other,
        }
    }
}

/// Whether a device was written since it was last flushed.
#[derive(Debug)]
struct Unflushed {
    written: AtomicBool,
    /// Held while it is flushed: whoever finds nothing to flush must not return before the flush that made it so.
    flushing: Mutex<()>,
}

impl Default for Unflushed {
    /// Nobody knows what a process that was killed has left in the device's cache (rule 4).
    fn default() -> Self {
        Self {
            written: AtomicBool::new(true),
            flushing: Mutex::default(),
        }
    }
}

impl Unflushed {
    /// Writes have completed. Told before they have, a flush in between would not count them.
    fn note(&self) {
        self.written.store(true, Ordering::Release);
    }

    fn flush(&self, flush: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let _alone = lock(&self.flushing);
        if !self.written.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        flush().inspect_err(|_| self.note())
    }
}

/// The same devices, where what stands twice is read and written in one place alone: in its first place, and in its second.
/// Empty where nothing stands twice.
///
/// # Errors
/// As for [`JoinedDevice::with_gaps`].
pub fn sides(device: &dyn Device) -> Result<Vec<Arc<dyn Device>>, DeviceError> {
    let members = device.members();
    let twice = members.iter().position(Member::stands_twice);
    let sides = twice.map(|twice| {
        let side = |alone: Member| {
            let mut members = members.to_vec();
            members[twice] = alone;
            let side = JoinedDevice::with_gaps(members, device.size())?;
            Ok(Arc::new(side) as Arc<dyn Device>)
        };
        members[twice].alone().into_iter().map(side).collect()
    });
    sides.unwrap_or(Ok(Vec::new()))
}

/// Several devices as one. A request that reaches from one into the next is cut; a flush goes to those that were written
/// since their last one, and returns when all of them have.
#[derive(Debug)]
pub struct JoinedDevice {
    members: Vec<Member>,
    size: u64,
}

/// The part of a request that goes to one member: the member's index, and the bytes within the request.
type Part = (usize, Range<usize>);

impl JoinedDevice {
    /// One device out of these, in this order, one behind the other.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if a member gives more than its device has, or all give more than can be counted.
    pub fn new(members: Vec<Member>) -> Result<Self, DeviceError> {
        let mut size = 0u64;
        let mut members = members;
        for member in &mut members {
            let len = member.range.end - member.range.start;
            let end = size.checked_add(len).ok_or(DeviceError::OutOfRange {
                offset: size,
                len,
                size: u64::MAX,
            })?;
            member.range = size..end;
            size = end;
        }
        Self::with_gaps(members, size)
    }

    /// One device of `size` bytes, in which each member has its range, by address. What is read in a gap is zeros, and nothing
    /// can be written there.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if a member gives more than its device has, or lies in another one or behind the end.
    pub fn with_gaps(members: Vec<Member>, size: u64) -> Result<Self, DeviceError> {
        let mut free_from = 0;
        for Member {
            place, copy, range, ..
        } in &members
        {
            let len = range.end.saturating_sub(range.start);
            let copy = copy.as_ref().map(|copy| &copy.place);
            for Place { device, offset, .. } in std::iter::once(place).chain(copy) {
                check_range(device.size(), *offset, len)?;
            }
            check_range(size, range.start, len)?;
            if range.start < free_from {
                let (offset, size) = (range.start, free_from);
                return Err(DeviceError::OutOfRange { offset, len, size });
            }
            free_from = range.end;
        }
        Ok(Self { members, size })
    }

    /// A byte of the whole, counted from the first of a member.
    fn within(&self, member: usize, byte: u64) -> u64 {
        byte - self.members[member].range.start
    }

    /// Whether a member has each byte of a range that lies on the device.
    fn check_held(&self, offset: u64, len: usize) -> Result<(), DeviceError> {
        let held: usize = self
            .cut(offset, len)
            .iter()
            .map(|(_, bytes)| bytes.len())
            .sum();
        match held == len {
            true => Ok(()),
            false => Err(DeviceError::OutOfRange {
                offset,
                len: len as u64,
                size: self.size,
            }),
        }
    }

    /// A range that lies on the device, cut where one member ends and the next begins.
    fn cut(&self, offset: u64, len: usize) -> Vec<Part> {
        let end = offset + len as u64;
        let first = self.members.partition_point(|m| m.range.end <= offset);
        let touched = self.members.iter().enumerate().skip(first);
        touched
            .take_while(|(_, member)| member.range.start < end)
            .map(|(index, Member { range, .. })| {
                let within = range.start.max(offset)..range.end.min(end);
                let bytes = (within.start - offset) as usize..(within.end - offset) as usize;
                (index, bytes)
            })
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect()
    }
}

/// The part of a read that goes to one member, where it counts from byte `at`. A read that is not cut keeps its buffer.
fn part_of(read: &mut Read, bytes: &Range<usize>, at: u64) -> Read {
    let buffer = match bytes.len() == read.buffer.len() {
        true => std::mem::take(&mut read.buffer),
        false => Buffer::zeroed(bytes.len()),
    };
    Read {
        buffer,
        ..Read::new(at, 0, read.kind)
    }
}

/// Puts what a member has read where the caller looks for it.
fn give_back(read: &mut Read, bytes: Range<usize>, part: Read) {
    if part.result.is_err() {
        read.result = part.result;
    } else if read.buffer.is_empty() {
        read.buffer = part.buffer;
    } else {
        read.buffer[bytes].copy_from_slice(&part.buffer);
    }
}

impl Device for JoinedDevice {
    fn size(&self) -> u64 {
        self.size
    }

    /// The largest of any member.
    fn sector_size(&self) -> u32 {
        let sectors = self.members.iter().map(|m| m.device().sector_size());
        sectors.max().unwrap_or(512)
    }

    /// The largest of any member.
    fn write_align(&self) -> u32 {
        let aligns = self.members.iter().map(|m| m.device().write_align());
        aligns.max().unwrap_or(512)
    }

    /// Whether a seek costs milliseconds on any member.
    fn rotational(&self) -> bool {
        self.members.iter().any(|m| m.device().rotational())
    }

    fn rotational_at(&self, offset: u64) -> bool {
        let held = self.members.iter().find(|m| m.range.contains(&offset));
        held.is_some_and(|m| {
            let within = m.place.offset.saturating_add(offset - m.range.start);
            m.device().rotational_at(within)
        })
    }

    fn read(&self, batch: &mut [Read]) {
        let mut below = vec![Vec::new(); self.members.len()];
        for (index, read) in batch.iter_mut().enumerate() {
            let len = read.buffer.len();
            read.result = check_range(self.size, read.offset, len as u64);
            if read.result.is_err() {
                continue;
            }
            let parts = self.cut(read.offset, len);
            if parts.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < len {
                read.buffer.fill(0);
            }
            for (member, bytes) in parts {
                let at = self.within(member, read.offset + bytes.start as u64);
                let part = part_of(read, &bytes, at);
                below[member].push(((index, bytes), part));
            }
        }
        for (member, parts) in self.members.iter().zip(below) {
            let (places, mut reads): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            if !reads.is_empty() {
                member.read(&mut reads);
            }
            for ((index, bytes), part) in places.into_iter().zip(reads) {
                give_back(&mut batch[index], bytes, part);
            }
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let align = self.write_align();
        let mut below = vec![Vec::new(); self.members.len()];
        let mut results: Vec<_> = batch
            .iter()
            .map(|write| {
                check_write(self.size, align, write.offset, write.data.len() as u64)?;
                self.check_held(write.offset, write.data.len())
            })
            .collect();
        let checked = batch.iter().zip(&results).enumerate();
        for (index, (write, _)) in checked.filter(|(_, (_, result))| result.is_ok()) {
            for (member, bytes) in self.cut(write.offset, write.data.len()) {
                let offset = self.within(member, write.offset + bytes.start as u64);
                let part = Write::new(offset, &write.data[bytes], write.kind);
                below[member].push((index, part));
            }
        }
        for (member, parts) in self.members.iter().zip(below) {
            let (places, writes): (Vec<usize>, Vec<Write<'_>>) = parts.into_iter().unzip();
            if writes.is_empty() {
                continue;
            }
            for (index, result) in places.into_iter().zip(member.write(&writes)) {
                if result.is_err() {
                    results[index] = result;
                }
            }
        }
        results
    }

    /// Flushes each device that was written since its last flush. All are tried, also when one fails.
    fn flush(&self) -> Result<(), DeviceError> {
        let mut outcome = Ok(());
        for member in &self.members {
            outcome = outcome.and(member.flush());
        }
        outcome
    }

    /// Tells each device of its part. All are told, also when one fails.
    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        let mut below = vec![Vec::new(); self.members.len()];
        for &(offset, len) in ranges {
            check_range(self.size, offset, len)?;
            let end = offset + len;
            for (index, member) in self.members.iter().enumerate() {
                let (start, end) = (member.range.start.max(offset), member.range.end.min(end));
                if start < end {
                    below[index].push((start - member.range.start, end - start));
                }
            }
        }
        let mut outcome = Ok(());
        let touched = self.members.iter().zip(below);
        for (member, ranges) in touched.filter(|(_, ranges)| !ranges.is_empty()) {
            outcome = outcome.and(member.discard(&ranges));
        }
        outcome
    }

    fn counters(&self) -> Counters {
        self.members.iter().map(|m| m.device().counters()).sum()
    }

    fn members(&self) -> &[Member] {
        &self.members
    }
}

#[cfg(test)]
mod tests;
