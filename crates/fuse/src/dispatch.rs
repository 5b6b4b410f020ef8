//! The dispatcher: from the bytes of a request, through the file system, to
//! the slices of a reply. It knows no transport.
//!
//! One [`Dispatcher`] serves a mount; each thread has a [`Worker`] of it. A worker
//! says whether it is inside the file system, so that
//! [`destroy`](Filesystem::destroy) can wait until no other one is:
//!
//! ```text
//! worker     busy := true;   read ended;  call or refuse;  busy := false
//! destroyer  ended := true;  read busy of every other worker until all are false
//! ```
//!
//! With sequentially consistent accesses at least one of the two sees the
//! other, so no call runs beside or after `destroy`. Each worker's flag has its
//! own cache line and a worker touches no other, so requests do not contend.

mod serve;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::request::{InitOffer, Operation, RawRequest, decode};
use crate::tally::{Answered, Own};
use crate::wire::output::InitOut;
use crate::wire::{self, opcode};
use crate::{Capabilities, Config, Errno, Filesystem, Negotiated, Reply, Tallies};

/// How often the destroyer looks whether the other workers are done.
const QUIET_POLL: Duration = Duration::from_millis(1);

/// What a transport does after a request was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send the reply.
    Reply,
    /// Send nothing: the kernel expects no answer.
    Silent,
    /// Send the reply, and stop serving: the connection never came up.
    Refused,
}

/// A flag alone on its cache line (two lines, as they are fetched in pairs).
#[repr(align(128))]
#[derive(Default)]
struct Busy(AtomicBool);

/// Everything about one mount that its threads share.
pub struct Dispatcher {
    fs: Arc<dyn Filesystem>,
    config: Config,
    negotiated: OnceLock<Negotiated>,
    init_error: OnceLock<Errno>,
    /// No call of the file system may start any more.
    ended: AtomicBool,
    /// Nor may it, as a successor takes over: what comes is not answered.
    held: AtomicBool,
    /// An earlier server has started the connection.
    taken_over: AtomicBool,
    workers: Mutex<Vec<Arc<Busy>>>,
    tallies: Tallies,
}

impl Dispatcher {
    /// A dispatcher that waits for the first request, INIT.
    #[must_use]
    pub fn new(fs: Arc<dyn Filesystem>, config: Config) -> Self {
        Self::counting(fs, config, Tallies::default())
    }

    /// The same, which counts requests there.
    #[must_use]
    pub fn counting(fs: Arc<dyn Filesystem>, config: Config, tallies: Tallies) -> Self {
        Self {
            tallies,
            fs,
            config,
            negotiated: OnceLock::new(),
            init_error: OnceLock::new(),
            ended: AtomicBool::new(false),
            held: AtomicBool::new(false),
            taken_over: AtomicBool::new(false),
            workers: Mutex::new(Vec::new()),
        }
    }

    /// A way in for one more thread.
    #[must_use]
    pub fn worker(self: &Arc<Self>) -> Worker {
        let busy = Arc::new(Busy::default());
        self.workers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&busy));
        Worker {
            dispatcher: Arc::clone(self),
            busy,
            tally: self.tallies.own(),
        }
    }

    /// What was agreed on, once INIT is answered.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.get()
    }

    /// Why INIT was refused, if it was. The mount is useless then.
    #[must_use]
    pub fn init_error(&self) -> Option<Errno> {
        self.init_error.get().copied()
    }

    /// Goes on with a connection that an earlier server has started.
    pub(crate) fn take_over(&self, agreed: Negotiated) {
        // It is the first to say so.
        let _ = self.negotiated.set(agreed);
        self.taken_over.store(true, Ordering::SeqCst);
    }

    /// Carries out nothing more, and waits until nothing is carried out. What
    /// comes is left for a successor.
    pub(crate) fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
        self.wait_for_others(None);
    }

    /// Calls [`Filesystem::destroy`] if that has not happened, once every worker
    /// but `own` is outside the file system.
    fn end(&self, own: Option<&Arc<Busy>>) {
        if self.ended.swap(true, Ordering::SeqCst) || self.negotiated.get().is_none() {
            return;
        }
        self.wait_for_others(own);
        if catch_unwind(AssertUnwindSafe(|| self.fs.destroy())).is_err() {
            tracing::error!("the file system panicked while it was shut down");
        }
    }

    /// Waits until every worker but `own` is outside the file system.
    fn wait_for_others(&self, own: Option<&Arc<Busy>>) {
        let workers = self
            .workers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for worker in workers {
            if own.is_some_and(|own| Arc::ptr_eq(own, &worker)) {
                continue;
            }
            while worker.0.load(Ordering::SeqCst) {
                std::thread::sleep(QUIET_POLL);
            }
        }
    }

    /// Calls [`Filesystem::destroy`] if the kernel did not ask for it. To be
    /// called when the connection is gone.
    pub fn disconnected(&self) {
        self.end(None);
    }

    fn granted(&self) -> Capabilities {
        self.negotiated
            .get()
            .map_or(Capabilities::NONE, |negotiated| negotiated.granted)
    }

    fn init(&self, offer: &InitOffer, reply: &mut Reply) -> Result<(), Errno> {
        if offer.major > wire::MAJOR {
            // By the protocol's rule: name our version, and the kernel starts
            // again with that.
            reply.push(&InitOut {
                major: wire::MAJOR,
                minor: wire::MINOR,
                ..InitOut::default()
            });
            return Ok(());
        }
        if let Some(agreed) = self.negotiated.get() {
            if !self.taken_over.load(Ordering::SeqCst) {
                return Err(Errno::INVAL);
            }
            // The first server ended when all was settled, and before it said so.
            reply.push(&agreed.answer(&self.config));
            return Ok(());
        }
        let negotiated = self.start(offer).inspect_err(|&errno| {
            // Of two reasons the first one counts.
            let _ = self.init_error.set(errno);
        })?;
        reply.push(&negotiated.answer(&self.config));
        Ok(())
    }

    fn start(&self, offer: &InitOffer) -> Result<Negotiated, Errno> {
        if offer.major < wire::MAJOR || offer.minor < wire::MINOR_MIN {
            tracing::error!(
                major = offer.major,
                minor = offer.minor,
                "the kernel's FUSE protocol is too old"
            );
            return Err(Errno::PROTO);
        }
        let negotiated = Negotiated::new(&self.config, offer);
        self.fs.init(&negotiated)?;
        tracing::debug!(?negotiated, "connected");
        self.negotiated
            .set(negotiated)
            .map_err(|_| Errno::INVAL)
            .map(|()| negotiated)
    }
}

/// One thread's way into a [`Dispatcher`].
pub struct Worker {
    dispatcher: Arc<Dispatcher>,
    busy: Arc<Busy>,
    tally: Own,
}

impl Worker {
    /// Carries out a request and leaves the answer in `reply`, whose earlier
    /// content is dropped.
    pub fn handle(&self, raw: &RawRequest<'_>, reply: &mut Reply) -> Outcome {
        let began = Instant::now();
        let outcome = self.carry_out(raw, reply);
        self.count(raw, reply, began);
        outcome
    }

    fn count(&self, raw: &RawRequest<'_>, reply: &Reply, began: Instant) {
        let bytes = match raw.opcode() {
            opcode::READ => reply.body_len() as u64,
            opcode::WRITE if reply.error() == 0 => raw.data_len(),
            _ => 0,
        };
        self.tally.count(&Answered {
            opcode: raw.opcode(),
            process: raw.caller().pid,
            refused: is_refusal(reply.error()),
            bytes,
            took: began.elapsed(),
        });
    }

    fn carry_out(&self, raw: &RawRequest<'_>, reply: &mut Reply) -> Outcome {
        reply.clear();
        self.busy.0.store(true, Ordering::SeqCst);
        // The answer of a method that panicked is thrown away as a whole.
        let result = catch_unwind(AssertUnwindSafe(|| self.serve(raw, reply)));
        self.busy.0.store(false, Ordering::Release);
        let result = result.unwrap_or_else(|_| {
            tracing::error!(
                opcode = raw.opcode(),
                node = raw.node().0,
                "the file system panicked; answered with EIO"
            );
            Err(Errno::IO)
        });
        if let Err(errno) = &result {
            tracing::trace!(
                opcode = raw.opcode(),
                node = raw.node().0,
                %errno,
                "refused"
            );
            reply.fail(*errno);
        }
        if !raw.wants_reply() || result == Ok(Done::Left) {
            return Outcome::Silent;
        }
        reply.finish(raw.unique());
        if self.refused() {
            Outcome::Refused
        } else {
            Outcome::Reply
        }
    }

    /// As [`handle`](Self::handle), without waiting; `None` if the request
    /// has to be handled by a thread that may wait.
    pub fn try_handle(&self, raw: &RawRequest<'_>, reply: &mut Reply) -> Option<Outcome> {
        if raw.waits() {
            return None;
        }
        let mut outcome = None;
        let fs = &self.dispatcher.fs;
        let began = Instant::now();
        let answered = fs.without_waiting(raw.changes(), &mut || {
            outcome = Some(self.carry_out(raw, reply));
        });
        let outcome = outcome.filter(|_| answered)?;
        self.count(raw, reply, began);
        Some(outcome)
    }

    /// Whether INIT was answered well.
    pub(crate) fn is_started(&self) -> bool {
        self.dispatcher.negotiated.get().is_some()
    }

    /// Whether INIT was refused, so that the mount is useless.
    #[must_use]
    pub fn refused(&self) -> bool {
        self.dispatcher.init_error().is_some()
    }

    fn serve(&self, raw: &RawRequest<'_>, reply: &mut Reply) -> Result<Done, Errno> {
        let dispatcher = &*self.dispatcher;
        if dispatcher.held.load(Ordering::SeqCst) && raw.wants_reply() {
            return Ok(Done::Left);
        }
        if dispatcher.ended.load(Ordering::SeqCst) {
            return Err(Errno::NOTCONN);
        }
        let granted = dispatcher.granted();
        let operation = decode(raw, granted)?;
        match &operation {
            Operation::Init(offer) => dispatcher.init(offer, reply)?,
            _ if dispatcher.negotiated.get().is_none() => return Err(Errno::IO),
            Operation::Destroy => dispatcher.end(Some(&self.busy)),
            _ => serve::operation(
                &*dispatcher.fs,
                &dispatcher.config,
                granted,
                raw,
                operation,
                reply,
            )?,
        }
        Ok(Done::Answered)
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Answered,
    /// It is a successor's.
    Left,
}

/// Whether an answer refuses something: that there is no such attribute, or nothing to do, is an answer like others.
fn is_refusal(error: i32) -> bool {
    let answers = [Errno::NODATA, Errno::NOSYS].map(|errno| -errno.raw_os_error());
    error != 0 && !answers.contains(&error)
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.dispatcher
            .workers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|busy| !Arc::ptr_eq(busy, &self.busy));
    }
}

#[cfg(test)]
mod tests;
