//! Segments on their way to the device, and the threads that bring them there (L7; rule 4: several may be in flight).
//!
//! Who seals a segment puts it into a queue. Threads of the front end take segments from it ([`Upkeep::write_behind`]);
//! when more than [`super::OpenOptions::flights`] wait, the one who seals writes the oldest, and a flush first writes
//! or waits for all of them. So operations go on in memory while the device works. On a device that rotates one is written at
//! a time, in their order: two would have its head go back and forth. Of several devices that on which a segment begins
//! counts. The same threads commit early, when much is dirty, so that hardly any operation has to.

use super::{Engine, Sealer, Upkeep};
use crate::error::Error;
use loamfs_device::{Device, IoKind, Write};
use loamfs_format::{Extent, Geometry};
use loamfs_log::segment::Segment;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Sealed segments that are not written, and what else the writing threads have to do.
#[derive(Debug, Default)]
pub(super) struct Flight {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A sealed segment.
#[derive(Debug)]
struct Sealed {
    segment: Segment,
    /// It is not written while another is: its device rotates.
    alone: bool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Sealed segments, the oldest first.
    waiting: VecDeque<Sealed>,
    /// Segments that somebody is writing.
    writing: usize,
    /// Much is dirty.
    pressed: bool,
    /// Files are being written from front to back, of which enough waits.
    streams: bool,
    /// Somebody writes such files out. One does: the others keep to what more wait for.
    streaming: bool,
    /// The volume is closed: writing threads end.
    closed: bool,
}

/// What a writing thread does next.
enum Work {
    Write(Segment),
    Commit,
    Stream,
}

impl Queue {
    /// The oldest segment, if it may be written now. Who takes it is writing.
    fn pop(&mut self) -> Option<Segment> {
        let next = self.waiting.front()?;
        if next.alone && self.writing > 0 {
            return None;
        }
        self.writing += 1;
        self.waiting.pop_front().map(|sealed| sealed.segment)
    }
}

impl Flight {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest segment, if more than `allowed` wait. Whoever takes it calls [`Flight::landed`] after writing it.
    fn take(&self, allowed: usize) -> Option<Segment> {
        let mut queue = self.queue();
        loop {
            if queue.waiting.len() <= allowed {
                return None;
            }
            if let Some(segment) = queue.pop() {
                return Some(segment);
            }
            queue = self.wait(queue);
        }
    }

    fn landed(&self) {
        self.queue().writing -= 1;
        self.changed.notify_all();
    }

    /// Waits until nobody writes any more or there is something to write.
    fn quiet(&self) {
        let mut queue = self.queue();
        while queue.writing > 0 && queue.waiting.is_empty() {
            queue = self.wait(queue);
        }
    }

    /// Waits for work; `None` when there will be none any more.
    fn next(&self) -> Option<Work> {
        let mut queue = self.queue();
        loop {
            if let Some(segment) = queue.pop() {
                return Some(Work::Write(segment));
            }
            if queue.closed && queue.waiting.is_empty() {
                return None;
            }
            if std::mem::take(&mut queue.pressed) {
                return Some(Work::Commit);
            }
            if queue.streams && !queue.streaming {
                (queue.streams, queue.streaming) = (false, true);
                return Some(Work::Stream);
            }
            queue = self.wait(queue);
        }
    }

    /// Tells a writing thread that it is time for a commit.
    pub(super) fn press(&self) {
        let mut queue = self.queue();
        if !queue.pressed {
            queue.pressed = true;
            drop(queue);
            self.changed.notify_one();
        }
    }

    /// Tells a writing thread that files which are being written from front to back can go home.
    pub(super) fn stream(&self) {
        let mut queue = self.queue();
        if !queue.streams {
            queue.streams = true;
            drop(queue);
            self.changed.notify_one();
        }
    }

    /// Nobody writes them out any more.
    fn streamed(&self) {
        let mut queue = self.queue();
        queue.streaming = false;
        if queue.streams {
            drop(queue);
            self.changed.notify_one();
        }
    }

    /// Ends the threads once the queue is empty.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }
}

impl Upkeep<'_> {
    /// Writes what others have sealed, and commits when much is dirty, until the volume is closed. A front end gives
    /// it a few threads; without any, whoever seals a segment writes it.
    pub fn write_behind(&self) {
        let engine = self.engine();
        while let Some(work) = engine.flight.next() {
            let done = match work {
                Work::Write(segment) => engine.bring(&segment),
                Work::Commit => engine.relieve().map(|_| ()),
                Work::Stream => engine.write_streams(),
            };
            if let Err(error) = done {
                tracing::debug!(%error, "writing behind failed; whoever waits for it is told");
            }
        }
    }

    /// Ends [`Upkeep::write_behind`] on all threads, after what has been sealed is written.
    pub fn end_write_behind(&self) {
        self.engine().flight.close();
    }
}

impl Engine {
    /// Writes out what waits of files that are being written from front to back. So the device works while they are
    /// written, and who syncs them waits for the rest only.
    fn write_streams(&self) -> Result<(), Error> {
        let _streaming = Streaming(&self.flight);
        let files = self.core().writeback.take_streams();
        // What could not be written waits on, and is the next fsync's error.
        self.write_homes(&files, None).map(|_| ())
    }

    /// Returns when every segment that was sealed before is written.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when one could not be.
    pub(super) fn land(&self) -> Result<(), Error> {
        loop {
            match self.flight.take(0) {
                Some(segment) => self.bring(&segment)?,
                None if self.flight.queue().writing == 0 => break,
                None => self.flight.quiet(),
            }
        }
        self.core().access.check()
    }

    /// Writes a segment that was taken from the queue.
    fn bring(&self, segment: &Segment) -> Result<(), Error> {
        let _landing = Landing(&self.flight);
        let _watch = self.watch();
        self.write_log(segment)
    }

    /// Writes a segment. A failure makes the volume read-only (rule 12), and then no later one is written: they are
    /// behind the chain's end.
    fn write_log(&self, segment: &Segment) -> Result<(), Error> {
        let geometry = {
            let core = self.core();
            core.access.check()?;
            core.geometry
        };
        let frags = |bytes: &[u8]| geometry.frags_for(bytes.len() as u64);
        let writes = segment.writes.iter();
        self.reader
            .yield_to(writes.map(|(at, bytes)| Extent::new(*at, frags(bytes))));
        let result = write_segment(self.device.as_ref(), &geometry, segment);
        for (at, bytes) in &segment.writes {
            let start = geometry.byte_offset(*at);
            let end = start + bytes.len() as u64;
            self.reader.forget_around(start..end);
        }
        let mut core = self.core();
        match result {
            Err(error) => {
                core.access.fail_log(&error);
                Err(error)
            }
            Ok(()) => {
                core.log.written(segment.ssn);
                core.blocks.segment_written(segment.ssn);
                Ok(())
            }
        }
    }
}

impl Sealer<'_> {
    /// Puts a sealed segment into the queue, and writes the oldest while too many wait.
    ///
    /// # Errors
    /// A write failed; the volume is read-only (rule 12).
    pub(super) fn launch(&self, segment: Segment) -> Result<(), Error> {
        // What was sealed is in the caches.
        self.share_cache(&self.core());
        let geometry = self.core().geometry;
        let first = segment
            .writes
            .first()
            .map(|(at, _)| geometry.byte_offset(*at));
        let alone = first.is_some_and(|at| self.device.rotational_at(at));
        let sealed = Sealed { segment, alone };
        self.flight.queue().waiting.push_back(sealed);
        self.flight.changed.notify_one();
        while let Some(oldest) = self.flight.take(self.flights) {
            self.bring(&oldest)?;
        }
        Ok(())
    }
}

/// A segment that somebody took from the queue: whoever waits goes on when it is dropped, after a panic too.
struct Landing<'a>(&'a Flight);

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.0.landed();
    }
}

/// Whoever writes streams out: another one may when it is dropped, after a panic too.
struct Streaming<'a>(&'a Flight);

impl Drop for Streaming<'_> {
    fn drop(&mut self) {
        self.0.streamed();
    }
}

/// Writes a segment and waits for it.
pub(crate) fn write_segment(
    device: &dyn Device,
    geometry: &Geometry,
    segment: &Segment,
) -> Result<(), Error> {
    let writes: Vec<Write<'_>> = segment
        .writes
        .iter()
        .map(|(at, bytes)| Write {
            offset: geometry.byte_offset(*at),
            data: bytes,
            kind: IoKind::Segment,
        })
        .collect();
    device
        .write(&writes)
        .into_iter()
        .collect::<Result<(), _>>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::OpenOptions;
    use crate::fixture::{file, volume};

    /// Nothing of a file went home before three quarters of what may wait did, and the device had nothing to do.
    #[test]
    fn a_file_that_is_written_from_front_to_back_goes_home_meanwhile() {
        let options = OpenOptions {
            cache_bytes: 1 << 30,
            flights: 1,
            ..OpenOptions::default()
        };
        let volume = volume(512 << 20, &options);
        let ino = file(&volume, b"stream");
        let waiting = || volume.core().writeback.totals().units;
        let told = || volume.engine.flight.queue().streams;
        let piece = vec![1; 1 << 20];
        for mib in 0..3 {
            volume.write(ino, mib << 20, &piece).unwrap();
        }
        assert!(!told());
        volume.write(ino, 3 << 20, &piece).unwrap();
        assert!(told());
        assert_eq!(waiting(), 1024);
        volume.engine.write_streams().unwrap();
        assert_eq!(waiting(), 0);
        assert!(!volume.core().writeback.has_streams());
    }

    /// The log stands on a fast device; a slow one beside it, where it spills to, has a head of its own.
    #[test]
    fn segments_wait_for_each_other_where_a_seek_is_dear_alone() {
        let mut queue = Queue::default();
        for (ssn, alone) in [false, false, true, false].into_iter().enumerate() {
            let segment = Segment {
                ssn: loamfs_format::Ssn(ssn as u64),
                writes: Vec::new(),
            };
            queue.waiting.push_back(Sealed { segment, alone });
        }
        let mut pop = |landed| {
            queue.writing -= landed;
            queue.pop().map(|segment| segment.ssn.0)
        };
        assert_eq!([pop(0), pop(0), pop(0)], [Some(0), Some(1), None]);
        assert_eq!([pop(1), pop(1), pop(0)], [None, Some(2), Some(3)]);
    }

    /// Nobody takes them there, and each was remembered until the volume was closed.
    #[test]
    fn a_file_that_went_home_is_no_stream_any_more_without_threads() {
        let volume = volume(512 << 20, &OpenOptions::default());
        let ino = file(&volume, b"stream");
        volume.write(ino, 0, &vec![1; 8 << 20]).unwrap();
        assert!(volume.core().writeback.has_streams());
        volume.fsync(ino, true).unwrap();
        assert!(!volume.core().writeback.has_streams());
    }
}
