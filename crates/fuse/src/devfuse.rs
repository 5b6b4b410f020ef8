//! The transport over `/dev/fuse`: one descriptor a thread. A request that was
//! read from a descriptor is answered on the same one, by the same thread
//! unless that was the last free one.

mod later;
mod spare;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::{IoSlice, read, write, writev};
use rustix::ioctl;

use crate::buffer::AlignedBuffer;
use crate::wire::READ_BUFFER_MIN;
use crate::wire::header::IN_HEADER_LEN;
use crate::wire::input::WriteIn;
use crate::{Channel, Config, Errno, Outcome, RawRequest, Reply, Transport, Worker};
use later::Later;
use spare::Spare;

/// Where the kernel's FUSE device is.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`: makes a fresh descriptor another end of a connection.
const CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// What stands in front of a WRITE's data.
const WRITE_PREFIX: usize = IN_HEADER_LEN + size_of::<WriteIn>();

/// How long what nobody waits for is left to collect.
const COLLECT: Duration = Duration::from_millis(100);

/// A mounted `/dev/fuse` descriptor.
pub struct DevFuse {
    connection: Arc<OwnedFd>,
    /// Descriptors that are ready for threads.
    ends: Mutex<Vec<Arc<OwnedFd>>>,
    buffer_len: usize,
    spare: Arc<Spare<Read>>,
    later: Option<Arc<Later<Read>>>,
}

impl DevFuse {
    /// Serves the mount behind `connection`, whose further descriptors are
    /// `ends`; `config` must be the dispatcher's, as it says how large a
    /// request can be.
    #[must_use]
    pub fn new(connection: Arc<OwnedFd>, ends: &[Arc<OwnedFd>], config: &Config) -> Self {
        let buffer_len = (WRITE_PREFIX + config.max_write_bytes()).max(READ_BUFFER_MIN);
        Self {
            connection,
            ends: Mutex::new(ends.to_vec()),
            buffer_len,
            spare: Arc::new(Spare::new(
                thread::available_parallelism().map_or(1, usize::from),
            )),
            later: None,
        }
    }

    /// Has the first channel put off what need not be carried out before
    /// [`resume`](Transport::resume). That channel may be reading then, for as long as nobody asks for anything more, so that
    /// another one has to have its turn beside it.
    pub(crate) fn putting_off(self) -> Self {
        Self {
            spare: Arc::new(Spare::new(self.spare.readers_max().max(2))),
            later: Some(Arc::default()),
            ..self
        }
    }

    /// One that is ready, or another one.
    fn end(&self) -> Arc<OwnedFd> {
        let ready = self
            .ends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        ready.unwrap_or_else(|| match clone_of(&self.connection) {
            Ok(fresh) => Arc::new(fresh),
            // Without a descriptor of its own the thread shares one: slower,
            // since the kernel then has one table of requests for all.
            Err(errno) => {
                tracing::debug!(%errno, "no descriptor of its own for a worker");
                Arc::clone(&self.connection)
            }
        })
    }
}

/// One more descriptor of a connection.
pub(crate) fn clone_of(connection: &OwnedFd) -> Result<OwnedFd, Errno> {
    let fresh = File::options()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    attach(fresh.as_fd(), connection.as_fd())?;
    Ok(fresh.into())
}

#[expect(
    unsafe_code,
    reason = "an ioctl's argument type is known only to its driver"
)]
fn attach(fresh: BorrowedFd<'_>, connection: BorrowedFd<'_>) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let number = u32::try_from(connection.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: FUSE_DEV_IOC_CLONE reads a u32 that holds a descriptor; both
    // descriptors stay open during the call.
    unsafe { ioctl::ioctl(fresh, ioctl::Setter::<CLONE, u32>::new(number)) }
}

impl Transport for DevFuse {
    fn channel(&self) -> Result<Box<dyn Channel>, Errno> {
        Ok(Box::new(self.open()))
    }

    fn resume(&self) {
        if let Some(later) = &self.later {
            later.begin();
        }
    }
}

impl DevFuse {
    /// One more channel.
    pub(crate) fn open(&self) -> DevChannel {
        DevChannel {
            descriptor: self.end(),
            buffer: AlignedBuffer::for_requests(WRITE_PREFIX, self.buffer_len),
            reply: Reply::new(),
            spare: Arc::clone(&self.spare),
            later: self.later.clone(),
        }
    }
}

/// A request that was read, and where it is answered.
struct Read {
    descriptor: Arc<OwnedFd>,
    buffer: AlignedBuffer,
    len: usize,
}

/// One thread's descriptor.
pub(crate) struct DevChannel {
    descriptor: Arc<OwnedFd>,
    buffer: AlignedBuffer,
    reply: Reply,
    spare: Arc<Spare<Read>>,
    later: Option<Arc<Later<Read>>>,
}

/// What reading or writing the device means for the loop.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Go,
    End,
}

impl Channel for DevChannel {
    fn serve(&mut self, worker: &Worker) -> Result<(), Errno> {
        self.spare.join();
        let result = match self.catch_up(worker) {
            Ok(Step::Go) => self.take_requests(worker),
            other => other.map(drop),
        };
        self.spare.leave();
        result
    }
}

impl DevChannel {
    /// Serves alone until the connection has started, or never will.
    pub(crate) fn begin(&mut self, worker: &Worker) -> Result<(), Errno> {
        while !worker.is_started() && self.take_one(worker)? == Step::Go {}
        Ok(())
    }

    /// Takes what comes over the device while requests travel through io_uring: what nobody waits for. It is left to
    /// collect for a while, as the kernel then hands over many at a time.
    pub(crate) fn drain(&mut self, worker: &Worker) -> Result<(), Errno> {
        while self.take_one(worker)? == Step::Go {
            thread::sleep(COLLECT);
        }
        Ok(())
    }

    /// Takes one request, and carries it out whether it waits or not.
    fn take_one(&mut self, worker: &Worker) -> Result<Step, Errno> {
        let len = match read(&self.descriptor, self.buffer.bytes_mut()) {
            Ok(len) => len,
            Err(errno) => return after_read(errno),
        };
        match RawRequest::contiguous(filled(&self.buffer, len)) {
            Ok(raw) => handle(worker, &raw, &mut self.reply, &self.descriptor),
            Err(error) => {
                tracing::error!(%error, len, "dropped");
                Ok(Step::Go)
            }
        }
    }

    /// Puts off what comes until that is over, and then carries out what was put off, as other threads do.
    fn catch_up(&mut self, worker: &Worker) -> Result<Step, Errno> {
        let Some(later) = self.later.take() else {
            return Ok(Step::Go);
        };
        let mut step = Step::Go;
        while step == Step::Go && !later.has_begun() {
            step = match read(&self.descriptor, self.buffer.bytes_mut()) {
                Ok(len) => self.take_or_put_off(worker, len, &later)?,
                Err(errno) => after_read(errno)?,
            };
        }
        while step == Step::Go
            && let Some(mut read) = later.next()
        {
            self.exchange(&mut read);
            step = self.take(worker, read.len)?;
            self.exchange(&mut read);
        }
        Ok(step)
    }

    /// Carries out at once what the kernel keeps pages locked for, and what shows nothing that may be lost.
    fn take_or_put_off(
        &mut self,
        worker: &Worker,
        len: usize,
        later: &Later<Read>,
    ) -> Result<Step, Errno> {
        let request = filled(&self.buffer, len);
        if let Ok(raw) = RawRequest::contiguous(request) {
            if !raw.can_be_put_off() {
                return handle(worker, &raw, &mut self.reply, &self.descriptor);
            }
            let hand = || Read {
                descriptor: Arc::clone(&self.descriptor),
                buffer: copied(request),
                len,
            };
            if later.put_off(hand) {
                return Ok(Step::Go);
            }
        }
        self.take(worker, len)
    }

    /// Has this channel take a request that was read elsewhere, or go back to its own.
    fn exchange(&mut self, read: &mut Read) {
        std::mem::swap(&mut self.descriptor, &mut read.descriptor);
        std::mem::swap(&mut self.buffer, &mut read.buffer);
    }

    /// Takes requests until the connection ends.
    fn take_requests(&mut self, worker: &Worker) -> Result<(), Errno> {
        let mut step = Step::Go;
        while step == Step::Go {
            step = match read(&self.descriptor, self.buffer.bytes_mut()) {
                Ok(len) => self.take(worker, len)?,
                Err(errno) => after_read(errno)?,
            };
        }
        Ok(())
    }

    /// Takes the request of `len` bytes that was read. One that would wait it carries out while another thread reads, with
    /// what others hand over meanwhile, or hands it over itself.
    fn take(&mut self, worker: &Worker, len: usize) -> Result<Step, Errno> {
        let Self {
            descriptor,
            buffer,
            reply,
            spare,
            later: _,
        } = self;
        let raw = match RawRequest::contiguous(filled(buffer, len)) {
            Ok(raw) => raw,
            Err(error) => {
                tracing::error!(%error, len, "dropped");
                return Ok(Step::Go);
            }
        };
        if let Some(outcome) = worker.try_handle(&raw, reply) {
            return close(outcome, &raw, reply, descriptor);
        }
        let hand = || Read {
            descriptor: Arc::clone(descriptor),
            buffer: copied(filled(buffer, len)),
            len,
        };
        if !spare.start(len, hand) {
            return Ok(Step::Go);
        }
        let mut result = handle(worker, &raw, reply, descriptor);
        while let Some(read) = spare.done() {
            let Ok(raw) = RawRequest::contiguous(filled(&read.buffer, read.len)) else {
                continue;
            };
            let next = handle(worker, &raw, reply, &read.descriptor);
            if result == Ok(Step::Go) {
                result = next;
            }
        }
        result
    }
}

/// Carries out a request and answers it.
fn handle(
    worker: &Worker,
    raw: &RawRequest<'_>,
    reply: &mut Reply,
    descriptor: &OwnedFd,
) -> Result<Step, Errno> {
    close(worker.handle(raw, reply), raw, reply, descriptor)
}

/// Answers a request that was carried out.
fn close(
    outcome: Outcome,
    raw: &RawRequest<'_>,
    reply: &mut Reply,
    descriptor: &OwnedFd,
) -> Result<Step, Errno> {
    let step = match outcome {
        Outcome::Reply => answer(reply, descriptor, raw.unique())?,
        Outcome::Silent => Step::Go,
        Outcome::Refused => {
            answer(reply, descriptor, raw.unique())?;
            Step::End
        }
    };
    // Shared data must not stay pinned while this thread waits.
    reply.clear();
    Ok(step)
}

fn answer(reply: &mut Reply, descriptor: &OwnedFd, unique: u64) -> Result<Step, Errno> {
    loop {
        let errno = match send(reply, descriptor) {
            Ok(()) => return Ok(Step::Go),
            Err(errno) => errno,
        };
        match errno {
            Errno::INTR | Errno::AGAIN => {}
            // The request was given up meanwhile.
            Errno::NOENT => return Ok(Step::Go),
            Errno::NODEV | Errno::CONNABORTED => return Ok(Step::End),
            // The reply did not please the kernel: say so to the caller,
            // who would else wait for ever, unless this was such an attempt.
            errno if reply.error() == 0 => {
                tracing::error!(%errno, "the kernel refused a reply");
                reply.fail(Errno::IO);
                reply.finish(unique);
            }
            errno => return Err(errno),
        }
    }
}

fn send(reply: &Reply, descriptor: &OwnedFd) -> Result<(), Errno> {
    reply.with_slices(|slices: &[IoSlice<'_>]| match slices {
        [whole] => write(descriptor, whole),
        pieces => writev(descriptor, pieces),
    })?;
    Ok(())
}

fn after_read(errno: Errno) -> Result<Step, Errno> {
    match errno {
        // Interrupted, given up before it was read, or nothing there.
        Errno::INTR | Errno::NOENT | Errno::AGAIN => Ok(Step::Go),
        // Unmounted, or cut off through /sys/fs/fuse/connections.
        Errno::NODEV | Errno::CONNABORTED => Ok(Step::End),
        errno => Err(errno),
    }
}

/// The request that was read into a buffer.
fn filled(buffer: &AlignedBuffer, len: usize) -> &[u8] {
    &buffer.bytes()[..len]
}

/// A copy of a request, its data aligned likewise.
fn copied(request: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(WRITE_PREFIX, request.len());
    buffer.bytes_mut()[..request.len()].copy_from_slice(request);
    buffer
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use crate::request::build::Builder;
    use crate::wire::opcode;
    use crate::{Dispatcher, Filesystem, Negotiated};

    /// Implements nothing.
    struct Empty;

    impl Filesystem for Empty {}

    /// Has this thread, and those that it starts, see one processor.
    fn see_one_processor() {
        let all = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
    }

    /// Whether something waits to be read.
    fn is_waiting(socket: &UnixDatagram) -> bool {
        let mut asked = [PollFd::new(socket, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn what_was_put_off_is_carried_out_though_nobody_asks_for_more() {
        see_one_processor();
        let (kernel, ours) = UnixDatagram::pair().unwrap();
        kernel
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let config = Config::default();
        let dispatcher = Arc::new(Dispatcher::new(Arc::new(Empty), config));
        dispatcher.take_over(Negotiated::from_words([31, 7, 1, 65_536]).unwrap());
        let connection = Arc::new(OwnedFd::from(ours.try_clone().unwrap()));
        let transport = DevFuse::new(connection, &[], &config).putting_off();
        // They read for as long as the process lives: nothing but a mount ends.
        let serve = || {
            let (mut channel, worker) = (transport.open(), dispatcher.worker());
            thread::spawn(move || channel.serve(&worker));
        };
        serve();
        let request = Builder::new(opcode::GETATTR, 1).contiguous();
        kernel.send(&request).unwrap();
        while is_waiting(&ours) {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(50));
        assert!(!is_waiting(&kernel), "it is put off");
        transport.resume();
        serve();
        let mut reply = [0; 256];
        assert!(kernel.recv(&mut reply).is_ok());
        std::mem::forget(kernel);
    }
}
