//! A device that is an image file or a block device.

mod making;
mod open;
mod raw;

use std::fmt;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::io::Errno;

use crate::batch::{self, Run};
use crate::error::{check_range, check_write};
use crate::pool::{Job, Pool};
use crate::{
    AtomicCounters, Buffer, Counters, Device, DeviceError, IoKind, Member, Op, Read, Write, lock,
    sys,
};

use making::Making;
pub use open::{FileOptions, Lock, Mode};
use raw::RawFile;

/// An image file or a block device, opened once and locked on the descriptor
/// that does the I/O.
///
/// Uses direct I/O where it works: memory and ranges that do not fit it are
/// bounced, so callers see no difference. A batch that is one request after
/// merging runs in the calling thread, because waking another costs some tens of
/// microseconds; larger ones are shared with a few threads.
pub struct FileDevice {
    raw: Arc<RawFile>,
    readers: Pool<ReadJob>,
    threads: usize,
    counters: AtomicCounters,
    /// Set by the first discard that the device refused as unknown.
    discard_unsupported: AtomicBool,
    /// The image behind a loop device, for its lock.
    image: Option<Arc<FileDevice>>,
    /// What was done to its file, as long as that may be taken back.
    making: Option<Making>,
}

impl FileDevice {
    /// Opens and locks the device at `path`, with the usual options.
    pub fn open(path: impl AsRef<Path>, mode: Mode) -> Result<Self, DeviceError> {
        Self::open_with(path, &FileOptions::new(mode))
    }

    /// Opens and locks the device at `path`.
    pub fn open_with(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, DeviceError> {
        let raw = open::open(path.as_ref(), options)?;
        Ok(Self::from_raw(raw, options.threads.map_or(1, NonZero::get)))
    }

    /// The device that another process opened from `path` and locked, and handed over with that lock.
    pub fn handed_over(
        opened: OwnedFd,
        path: impl AsRef<Path>,
        options: &FileOptions,
    ) -> Result<Self, DeviceError> {
        let raw = open::measure(opened.into(), path.as_ref(), options)?;
        Ok(Self::from_raw(raw, options.threads.map_or(1, NonZero::get)))
    }

    /// Opens an image file for writing, created if it is not there, and extended
    /// with a hole if it is smaller than `size` bytes. Never cuts a file short.
    pub fn create(path: impl AsRef<Path>, size: u64) -> Result<Self, DeviceError> {
        let options = FileOptions::new(Mode::ReadWriteExclusive);
        let device = Self::create_with(path, size, &options)?;
        device.keep();
        Ok(device)
    }

    /// As [`create`](Self::create), with options; the mode must allow writing. Until it is [kept](Self::keep) the file is again
    /// what it was before when this goes.
    pub fn create_with(
        path: impl AsRef<Path>,
        size: u64,
        options: &FileOptions,
    ) -> Result<Self, DeviceError> {
        let (raw, making) = open::create(path.as_ref(), options, size)?;
        let threads = options.threads.map_or(1, NonZero::get);
        Ok(Self {
            making,
            ..Self::from_raw(raw, threads)
        })
    }

    /// What was made stays.
    pub fn keep(&self) {
        if let Some(making) = &self.making {
            making.keep();
        }
    }

    /// The same device under the same lock, measured again: whoever holds it has
    /// made it longer. The lock ends with the last of the two.
    pub fn measured_again(&self) -> Result<Self, DeviceError> {
        let raw = open::measured_again(&self.raw)
            .map_err(|errno| DeviceError::io(Op::Read, 0, 0, errno.raw_os_error()))?;
        Ok(Self {
            image: self.image.clone(),
            ..Self::from_raw(raw, self.threads)
        })
    }

    /// The same loop device, which keeps the lock of the image behind it: that another loop device of the image has not.
    #[must_use]
    pub fn with_image(self, image: Self) -> Self {
        Self {
            image: Some(Arc::new(image)),
            ..self
        }
    }

    /// Whether requests bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.raw.direct
    }

    /// Whether this is a block device, not an image file.
    pub fn is_block_device(&self) -> bool {
        self.raw.block
    }

    fn from_raw(raw: RawFile, threads: usize) -> Self {
        Self {
            raw: Arc::new(raw),
            // The calling thread works too.
            readers: Pool::new(threads - 1),
            threads,
            counters: AtomicCounters::default(),
            discard_unsupported: AtomicBool::new(false),
            image: None,
            making: None,
        }
    }

    fn write_run(&self, run: &Run, batch: &[Write<'_>]) -> Vec<(usize, Result<(), DeviceError>)> {
        let pieces: Vec<&[u8]> = run.pieces.iter().map(|&i| batch[i].data).collect();
        let whole = self.raw.write(&pieces, run.offset);
        run.pieces
            .iter()
            .map(|&index| {
                let write = &batch[index];
                let outcome = match whole {
                    // One bad sector fails the whole run; writing each piece
                    // again, harmless as it is, tells whose sector it was.
                    Err(_) if run.pieces.len() > 1 => self.raw.write(&[write.data], write.offset),
                    outcome => outcome,
                };
                let len = write.data.len() as u64;
                (index, to_result(outcome, Op::Write, write.offset, len))
            })
            .collect()
    }

    /// Writes several runs at once.
    ///
    /// The data is borrowed, so the threads are scoped to this call: starting
    /// three costs about 75 us, next to nothing beside writes that are far apart.
    fn write_parallel(
        &self,
        runs: &[Run],
        batch: &[Write<'_>],
        results: &mut [Result<(), DeviceError>],
    ) {
        let next = AtomicUsize::new(0);
        let finished = Mutex::new(Vec::new());
        let work = || {
            while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = self.write_run(run, batch);
                lock(&finished).extend(outcome);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.min(runs.len()) {
                let name = thread::Builder::new().name("loamfs-io".into());
                // Without helpers this thread does it all.
                if name.spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        for (index, result) in lock(&finished).drain(..) {
            results[index] = result;
        }
    }
}

impl AsFd for FileDevice {
    /// The descriptor that does the I/O and holds the lock.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.file.as_fd()
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("file", &self.raw.file)
            .field("size", &self.raw.size)
            .field("sector", &self.raw.sector)
            .field("direct", &self.raw.direct)
            .finish_non_exhaustive()
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.raw.size
    }

    fn sector_size(&self) -> u32 {
        self.raw.sector
    }

    fn write_align(&self) -> u32 {
        self.raw.align
    }

    fn rotational(&self) -> bool {
        self.raw.rotational
    }

    fn read(&self, batch: &mut [Read]) {
        let runs = batch::read_runs(batch, |read| {
            check_range(self.raw.size, read.offset, read.buffer.len() as u64)
        });
        batch::count_reads(&self.counters, &runs, batch);
        let mut jobs: Vec<_> = runs
            .iter()
            .map(|run| ReadJob::new(&self.raw, run, batch))
            .collect();
        if jobs.len() > 1 {
            jobs = self.readers.run(jobs);
        } else {
            jobs.iter_mut().for_each(Job::run);
        }
        for piece in jobs.into_iter().flat_map(|job| job.pieces) {
            let read = &mut batch[piece.index];
            let len = piece.buffer.len() as u64;
            read.buffer = piece.buffer;
            read.result = to_result(piece.outcome, Op::Read, read.offset, len);
        }
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        if !self.raw.writable {
            return vec![Err(DeviceError::ReadOnly); batch.len()];
        }
        let (mut results, runs) = batch::write_runs(batch, |write| {
            let len = write.data.len() as u64;
            check_write(self.raw.size, self.raw.align, write.offset, len)
        });
        batch::count_writes(&self.counters, &runs, batch);
        if let [run] = &runs[..] {
            for (index, result) in self.write_run(run, batch) {
                results[index] = result;
            }
        } else if !runs.is_empty() {
            self.write_parallel(&runs, batch, &mut results);
        }
        results
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.counters.request(Op::Flush, IoKind::Other);
        to_result(self.raw.flush(), Op::Flush, 0, 0)
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        if !self.raw.writable {
            return Err(DeviceError::ReadOnly);
        }
        for &(offset, len) in ranges {
            check_range(self.raw.size, offset, len)?;
            if self.discard_unsupported.load(Ordering::Relaxed) {
                continue;
            }
            match self.raw.discard(offset, len) {
                Err(errno) if sys::is_unsupported(errno) => {
                    self.discard_unsupported.store(true, Ordering::Relaxed);
                }
                outcome => {
                    self.counters.request(Op::Discard, IoKind::Other);
                    to_result(outcome.map(drop), Op::Discard, offset, len)?;
                    let whole = outcome.unwrap_or(0);
                    self.counters.bytes(Op::Discard, IoKind::Other, whole);
                }
            }
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

fn to_result(outcome: Result<(), Errno>, op: Op, offset: u64, len: u64) -> Result<(), DeviceError> {
    outcome.map_err(|errno| DeviceError::io(op, offset, len, errno.raw_os_error()))
}

/// One run of reads. It owns its buffers while it is under way, so that it can
/// run on another thread without borrowing from the caller.
struct ReadJob {
    raw: Arc<RawFile>,
    offset: u64,
    pieces: Vec<ReadPiece>,
}

struct ReadPiece {
    /// Place in the batch.
    index: usize,
    buffer: Buffer,
    outcome: Result<(), Errno>,
}

impl ReadJob {
    fn new(raw: &Arc<RawFile>, run: &Run, batch: &mut [Read]) -> Self {
        let pieces = run
            .pieces
            .iter()
            .map(|&index| {
                let read = &mut batch[index];
                // Stays, with an empty buffer, if the job is lost with its thread.
                read.result = Err(DeviceError::NotIssued);
                ReadPiece {
                    index,
                    buffer: std::mem::take(&mut read.buffer),
                    outcome: Ok(()),
                }
            })
            .collect();
        Self {
            raw: Arc::clone(raw),
            offset: run.offset,
            pieces,
        }
    }
}

impl Job for ReadJob {
    fn run(&mut self) {
        let mut buffers: Vec<&mut [u8]> = self
            .pieces
            .iter_mut()
            .map(|piece| piece.buffer.as_mut_slice())
            .collect();
        let whole = self.raw.read(&mut buffers, self.offset);
        let alone = self.pieces.len() == 1;
        let mut offset = self.offset;
        for piece in &mut self.pieces {
            piece.outcome = match whole {
                // One bad sector fails the whole run; only the pieces that
                // touch it shall fail.
                Err(_) if !alone => self.raw.read(&mut [&mut piece.buffer], offset),
                outcome => outcome,
            };
            offset += piece.buffer.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests;
