//! Serving a mount until it ends.

use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use crate::devfuse::{DevChannel, DevFuse};
use crate::uring::{Muster, Pool, Rings};
use crate::{
    Capabilities, Channel, Config, Dispatcher, Errno, Error, Filesystem, Mounted, Negotiated,
    Tallies, Transport, Worker,
};

/// Fewest threads by default: one that waits for a disk must not stop the rest.
const WORKERS_MIN: usize = 4;

/// How to serve a mount.
#[derive(Default)]
pub struct Session {
    config: Config,
    workers: Option<usize>,
    rings: Option<Rings>,
    agreed: Option<Negotiated>,
    put_off_until: Option<Postponed>,
    hold: Hold,
    tallies: Tallies,
}

/// Returns when something has happened.
type Postponed = Box<dyn FnOnce() + Send>;

impl Session {
    /// A session that asks the kernel for what `config` says.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Counts requests there.
    #[must_use]
    pub fn tallies(mut self, tallies: Tallies) -> Self {
        self.tallies = tallies;
        self
    }

    /// Serves with `count` threads, at least one, and one more that never waits
    /// for a device. By default twice as many as there are processors, and at
    /// least four, because a request that waits for a disk keeps its thread.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = Some(count.max(1));
        self
    }

    /// Goes on with a connection that an earlier server has started: what it
    /// agreed on counts, and the kernel is not asked again.
    #[must_use]
    pub fn taken_over(mut self, agreed: Negotiated) -> Self {
        self.config.max_write = agreed.max_write;
        self.agreed = Some(agreed);
        self
    }

    /// Puts requests off over `/dev/fuse` until `wait` returns: all but those
    /// without which the kernel cannot forget what it has cached.
    #[must_use]
    pub fn put_off_until(mut self, wait: impl FnOnce() + Send + 'static) -> Self {
        self.put_off_until = Some(Box::new(wait));
        self
    }

    /// Lets `hold` stop the session for a successor.
    #[must_use]
    pub fn held_by(mut self, hold: Hold) -> Self {
        self.hold = hold;
        self
    }

    /// Threads that serve a mount over `/dev/fuse`, each with a descriptor.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.worker_count() + 1
    }

    /// Has requests travel through `rings`, if the kernel takes them; the
    /// threads above then carry out what waits. The rings say how large a write
    /// can be, and how many requests there can be for which nobody waits.
    #[must_use]
    pub fn rings(mut self, rings: Rings) -> Self {
        rings.fit(&mut self.config);
        self.rings = Some(rings);
        self
    }

    /// Serves `mounted` with `fs` until it is unmounted.
    /// [`Filesystem::destroy`] has returned when this does, and on a mount of
    /// type fuseblk before umount does.
    ///
    /// # Errors
    ///
    /// [`Error::Init`] if the file system refused to start, and what kept the
    /// workers from going on. The mount is detached in both cases.
    pub fn run(mut self, fs: Arc<dyn Filesystem>, mounted: Mounted) -> Result<(), Error> {
        let connection = Arc::clone(mounted.connection());
        let mut transport = DevFuse::new(connection, mounted.ends(), &self.config);
        let wait = self.put_off_until.take();
        if wait.is_some() {
            transport = transport.putting_off();
        }
        let dispatcher = Arc::new(Dispatcher::counting(
            Arc::clone(&fs),
            self.config,
            self.tallies.clone(),
        ));
        if let Some(agreed) = self.agreed.take() {
            dispatcher.take_over(agreed);
        }
        self.hold.holds(&dispatcher);
        let result = match self.rings.take() {
            None => self.serve(&transport, &dispatcher, &mounted, wait),
            Some(rings) => {
                let mut first = transport.open();
                let serving = Serving {
                    fs: &*fs,
                    dispatcher: &dispatcher,
                    mounted: &mounted,
                    workers: self.worker_count(),
                };
                match serving.by_rings(rings, &mut first) {
                    Ok(false) => self.serve(&transport, &dispatcher, &mounted, wait),
                    result => result.map(drop),
                }
            }
        };
        dispatcher.disconnected();
        match dispatcher.init_error() {
            Some(errno) => Err(Error::Init(errno)),
            None => result,
        }
    }

    fn serve(
        &self,
        transport: &dyn Transport,
        dispatcher: &Arc<Dispatcher>,
        mounted: &Mounted,
        mut wait: Option<Postponed>,
    ) -> Result<(), Error> {
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..self.threads() {
                let started = transport
                    .channel()
                    .map_err(Error::Connection)
                    .and_then(|channel| {
                        let worker = dispatcher.worker();
                        thread::Builder::new()
                            .name(format!("fuse-{number}"))
                            .spawn_scoped(scope, move || work(channel, &worker, mounted))
                            .map_err(Error::Thread)
                    });
                match started {
                    Ok(running) => {
                        threads.push(running);
                        if let Some(wait) = wait.take() {
                            wait();
                            transport.resume();
                        }
                    }
                    Err(error) if threads.is_empty() => return Err(error),
                    // Fewer threads will do.
                    Err(error) => {
                        tracing::warn!(%error, number, "fewer workers than wanted");
                        break;
                    }
                }
            }
            // As long as one worker could go on, the mount was served; only
            // when the last one fails is that the end.
            let ends: Vec<_> = threads
                .into_iter()
                .map(|running| running.join().unwrap_or(Err(Errno::IO)))
                .collect();
            match ends.first() {
                Some(&Err(errno)) if ends.iter().all(Result::is_err) => {
                    Err(Error::Connection(errno))
                }
                _ => Ok(()),
            }
        })
    }

    fn worker_count(&self) -> usize {
        self.workers.unwrap_or_else(|| {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            (2 * processors).max(WORKERS_MIN)
        })
    }
}

/// Stops a session so that a successor can take its connection over.
#[derive(Clone, Default)]
pub struct Hold(Arc<OnceLock<Weak<Dispatcher>>>);

impl Hold {
    fn holds(&self, dispatcher: &Arc<Dispatcher>) {
        // A session runs once.
        let _ = self.0.set(Arc::downgrade(dispatcher));
    }

    /// From here on no request is carried out or answered but those that have
    /// no answer. Returns when those that were under way are over. The kernel
    /// sends the others again to the successor.
    pub fn hold(&self) {
        if let Some(dispatcher) = self.0.get().and_then(Weak::upgrade) {
            dispatcher.hold();
        }
    }
}

/// A mount with rings.
struct Serving<'a> {
    fs: &'a dyn Filesystem,
    dispatcher: &'a Arc<Dispatcher>,
    mounted: &'a Mounted,
    /// Threads for what waits.
    workers: usize,
}

impl Serving<'_> {
    /// Starts the connection over the device, and serves by rings until its end; `false` if it goes on over the device.
    fn by_rings(&self, rings: Rings, first: &mut DevChannel) -> Result<bool, Error> {
        let worker = self.dispatcher.worker();
        let begun = first.begin(&worker).map_err(Error::Connection);
        let negotiated = self.dispatcher.negotiated();
        let has_rings =
            negotiated.is_some_and(|with| with.granted.contains(Capabilities::OVER_IO_URING));
        if begun.is_ok() && has_rings && self.through(rings, first, &worker) {
            return Ok(true);
        }
        // Whoever waits to hear how requests travel hears it in any case.
        self.fs.carried(false);
        begun?;
        detach_if_refused(&worker, self.mounted);
        Ok(negotiated.is_none())
    }

    /// Serves by rings until the end; `false` if they cannot begin.
    fn through(&self, rings: Rings, first: &mut DevChannel, worker: &Worker) -> bool {
        let (queues, processors) = rings.queues(self.mounted.connection());
        let pool = &Pool::new(processors.clone());
        // Whoever asks by a ring how requests travel hears so.
        let by_rings = || self.fs.carried(true);
        let muster = &Muster::new(queues.len() + 1, &by_rings);
        thread::scope(|scope| {
            let start = |name: String, work: Box<dyn FnOnce(&Worker) + Send>| {
                let worker = self.dispatcher.worker();
                let thread = thread::Builder::new().name(name);
                let started = thread.spawn_scoped(scope, move || work(&worker));
                started.map_err(|error| tracing::warn!(%error, "no thread can be started"))
            };
            let waiting = (0..self.workers).filter_map(|number| {
                let work = Box::new(move |worker: &Worker| pool.work(number, worker));
                start(format!("pool-{number}"), work).ok()
            });
            muster.report(waiting.count() > 0);
            let mut serving = Vec::new();
            for (queue, processor) in queues.into_iter().zip(processors) {
                let work = move |worker: &Worker| queue.serve(processor, worker, pool, muster);
                match start(format!("ring-{processor}"), Box::new(work)) {
                    Ok(thread) => serving.push(thread),
                    Err(()) => muster.report(false),
                }
            }
            let is_served = muster.all_ready();
            if is_served {
                if let Err(errno) = first.drain(worker) {
                    tracing::error!(%errno, "what the kernel forgets is not heard any more");
                }
            } else {
                tracing::warn!("the kernel does not take the rings: it goes on over /dev/fuse");
            }
            for thread in serving {
                if thread.join().is_err() {
                    tracing::error!("the thread of a ring panicked");
                }
            }
            pool.close();
            is_served
        })
    }
}

fn work(mut channel: Box<dyn Channel>, worker: &Worker, mounted: &Mounted) -> Result<(), Errno> {
    let result = channel.serve(worker);
    if let Err(errno) = result {
        tracing::error!(%errno, "a worker cannot go on");
    }
    detach_if_refused(worker, mounted);
    result
}

/// The worker that saw the refusal ends; others wait for requests that never
/// come until the mount is gone.
fn detach_if_refused(worker: &Worker, mounted: &Mounted) {
    if worker.refused()
        && mounted.is_mounted()
        && let Err(error) = mounted.detach()
    {
        tracing::error!(%error, "cannot get rid of a mount that could not be started");
    }
}
