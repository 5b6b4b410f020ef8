//! Serving a mount until it ends.

use std::sync::Arc;
use std::thread;

use crate::devfuse::DevFuse;
use crate::{Channel, Config, Dispatcher, Errno, Error, Filesystem, Mounted, Transport, Worker};

/// Fewest threads by default: one that waits for a disk must not stop the rest.
const WORKERS_MIN: usize = 4;

/// How to serve a mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    config: Config,
    workers: Option<usize>,
}

impl Session {
    /// A session that asks the kernel for what `config` says.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            workers: None,
        }
    }

    /// Serves with `count` threads, at least one, and one more that never waits
    /// for a device. By default twice as many as there are processors, and at
    /// least four, because a request that waits for a disk keeps its thread.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = Some(count.max(1));
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
    pub fn run(self, fs: Arc<dyn Filesystem>, mounted: Mounted) -> Result<(), Error> {
        let transport = DevFuse::new(Arc::clone(mounted.connection()), &self.config);
        let dispatcher = Arc::new(Dispatcher::new(fs, self.config));
        let result = self.serve(&transport, &dispatcher, &mounted);
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
    ) -> Result<(), Error> {
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..=self.worker_count() {
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
                    Ok(running) => threads.push(running),
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

fn work(mut channel: Box<dyn Channel>, worker: &Worker, mounted: &Mounted) -> Result<(), Errno> {
    let result = channel.serve(worker);
    if let Err(errno) = result {
        tracing::error!(%errno, "a worker cannot go on");
    }
    // The worker that saw the refusal ends; the others wait for requests that
    // never come until the mount is gone.
    if worker.refused()
        && mounted.is_mounted()
        && let Err(error) = mounted.detach()
    {
        tracing::error!(%error, "cannot get rid of a mount that could not be started");
    }
    result
}
