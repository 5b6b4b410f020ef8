//! The daemon: opens the volume, mounts it, serves it until it is unmounted, and closes it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use loamfs_device::{Counters, Device};
use loamfs_fs::{AtimeWhen, Env, Error, Loss, OpenOptions, Volume};
use loamfs_fuse::uring::Rings;
use loamfs_fuse::{
    BlockDevice, MountEntry, MountFlags, MountOptions, Mounted, Notifier, Session, find_mount,
};
use rustix::process::{configure_io_flusher_behavior, geteuid};

use super::confine::Confinement;
use super::control::{self, Server};
use super::greeting::Greeting;
use super::handler::ControlHandler;
use super::log::Log;
use super::promise::{Promise, Standing};
use super::scrubber::Scrubber;
use super::source::Source;
use super::spec::Spec;
use super::ticker::Ticker;
use super::transport::{self, Transport};
use super::unmounter::{Unmounter, Wish};
use super::writers::{self, Writers};
use super::{cache, memory, spawn, stale, stop};
use crate::adapter::{self, Adapter, Attributes, Daemon, Events, Reads};
use crate::failure::{Failure, Kind};
use crate::mounts::SUBTYPE;
use crate::output::print_lines;
use crate::report::{Identity, requests_json};
use crate::text::shown_path;

/// How far the kernel reads ahead in a file.
const READ_AHEAD: u32 = 1 << 20;

/// What the threads of a daemon share.
struct State {
    ticker: Ticker,
    scrubber: Scrubber,
    log: Log,
    foreground: bool,
    /// What to say when the mount is ready; taken then.
    ready: Mutex<Option<Ready>>,
    /// How closing the volume ended.
    closed: Mutex<Option<Result<(), Error>>>,
}

struct Ready {
    greeting: String,
    /// The same for the log, in short.
    mounted: String,
    fallback_log: Option<PathBuf>,
}

impl Events for State {
    fn ready(&self) {
        let ready = self
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(ready) = ready else { return };
        if self.foreground {
            // Nobody may be reading.
            let _ = print_lines([ready.greeting.trim_end().to_owned()]);
        } else {
            self.log.leave_stderr(ready.fallback_log.as_deref());
            tracing::info!("{}", ready.mounted);
            spawn::report_ready(&ready.greeting);
        }
    }

    fn closing(&self) {
        self.scrubber.end();
        self.ticker.stop();
    }

    fn closed(&self, result: Result<(), Error>) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }
}

/// Mounts and serves; returns when everything is on the device.
///
/// # Errors
///
/// Why it could not be mounted, or not be closed.
pub fn run(spec: &Spec, log: &Log, unmounter: Unmounter) -> Result<(), Failure> {
    memory::set_up_allocator();
    // Lets the kernel give this process memory while it writes back for others. Threads inherit
    // it; only root may ask for it.
    let _ = configure_io_flusher_behavior(true);
    if let Some(file) = &spec.options.daemon.log {
        log.to_file(file)?;
    }
    stale::clear(&spec.device, &spec.mountpoint)?;
    let source = Source::open(&spec.device, &spec.options)?;
    let mounter = Mounter::start(&source)?;
    let rings = transport::rings(&spec.options)?;
    let transport = Arc::new(Transport::new(&spec.options, rings.as_ref()));
    let confinement = Confinement::before_reading(&spec.options.daemon);
    let identity =
        Identity::read(&source.device).map_err(|error| Failure::volume(&spec.device, &error))?;
    let before = source.device.counters();
    let start = Instant::now();
    let (spec, volume) = open(spec, &source, transport.memory())?;
    let spec = &spec;
    let opened = Opened {
        identity,
        loss: volume.info().loss.filter(|_| spec.options.is_read_only()),
        time: start.elapsed(),
        counters: source.device.counters() - before,
    };
    let unmounter = Arc::new(unmounter);
    let mounted = match mounter.mount(spec) {
        Ok(attached) => attached.detached_by(&unmounter),
        Err(failure) => {
            // What recovery wrote must not be left half way.
            if let Err(error) = volume.close() {
                tracing::error!("closing the volume failed: {error}");
            }
            return Err(failure);
        }
    };
    serve(Serving {
        spec,
        log,
        source,
        volume,
        attached: mounted,
        opened: &opened,
        unmounter,
        confinement: Arc::new(confinement),
        rings,
        transport,
    })
}

struct Opened {
    identity: Identity,
    loss: Option<Loss>,
    time: Duration,
    counters: Counters,
}

/// Opens the volume; read-only where it may be read, but not be written to without giving up what is lost.
fn open(spec: &Spec, source: &Source, buffers: usize) -> Result<(Spec, Arc<Volume>), Failure> {
    let failed = |error: Error| Failure::volume(&spec.device, &error);
    match open_as(spec, source, buffers) {
        Err(error) if error.loss().is_some() => {
            tracing::error!("mounted read-only: {error}");
            let mut spec = spec.clone();
            spec.options.kernel.flags.insert(MountFlags::RDONLY);
            let volume = open_as(&spec, source, buffers).map_err(failed)?;
            Ok((spec, volume))
        }
        opened => Ok((spec.clone(), opened.map_err(failed)?)),
    }
}

/// Opens the volume with what buffers for requests leave of the cache.
fn open_as(spec: &Spec, source: &Source, buffers: usize) -> Result<Arc<Volume>, Error> {
    let asked = &spec.options.volume;
    let mut options = OpenOptions {
        cache_bytes: asked.cache_bytes().saturating_sub(buffers),
        settle_bytes: asked.settle,
        read_only: spec.options.is_read_only(),
        accept_loss: asked.accept_loss,
        flights: writers::COUNT,
        discard: asked.discard.unwrap_or_default(),
        atime: asked.atime.unwrap_or_default(),
        owner: asked.owner,
        ..OpenOptions::default()
    };
    if (asked.cache).is_some_and(|bytes| bytes as u64 > cache::memory()) {
        tracing::warn!("cache= is more than the daemon's control group allows");
    }
    if let Some(seconds) = asked.commit_seconds {
        options.commit_age_ms = seconds.saturating_mul(1_000);
    }
    let device: Arc<dyn Device> = source.device.clone();
    Volume::open(device, &options, Env::system()).map(Arc::new)
}

/// The thread that mounts: the others have given up what that takes before there is anything to mount.
struct Mounter {
    ready: Sender<Spec>,
    thread: JoinHandle<Option<Result<Attached, Failure>>>,
}

impl Mounter {
    /// Starts it; it does nothing unless it is told to.
    fn start(source: &Source) -> Result<Self, Failure> {
        let (ready, told) = channel::<Spec>();
        let (block, because) = (source.block_device(), source.plain_because.clone());
        let thread = thread::Builder::new()
            .name("mounter".into())
            .spawn(move || Some(mount(&told.recv().ok()?, block, because)))
            .map_err(|error| {
                Failure::new(Kind::Io, format!("no thread can be started: {error}"))
            })?;
        Ok(Self { ready, thread })
    }

    /// Has it mount, and waits for its end.
    fn mount(self, spec: &Spec) -> Result<Attached, Failure> {
        // If it is gone, that is noticed below.
        let _ = self.ready.send(spec.clone());
        let mounted = self.thread.join().ok().flatten();
        mounted.unwrap_or_else(|| Err(Failure::new(Kind::Io, "the thread that mounts panicked")))
    }
}

/// Mounts as fuseblk if there is a block device and the kernel agrees, else plainly.
fn mount(
    spec: &Spec,
    block_device: Option<BlockDevice>,
    plain_because: Option<String>,
) -> Result<Attached, Failure> {
    let failed = |error: loamfs_fuse::Error| Failure::new(Kind::Io, error.to_string());
    let mut options = mount_options(spec);
    options.block_device = block_device;
    let mut because = plain_because;
    if options.block_device.is_some() {
        match loamfs_fuse::mount(&spec.mountpoint, &options) {
            Ok(mounted) => return Ok(Attached::new(mounted, None)),
            Err(error) => because = Some(error.to_string()),
        }
        options.block_device = None;
    }
    let mounted = loamfs_fuse::mount(&spec.mountpoint, &options).map_err(failed)?;
    Ok(Attached::new(mounted, because))
}

/// The kernel's side of the mount.
struct Attached {
    mounted: Mounted,
    entry: Option<MountEntry>,
    plain_because: Option<String>,
}

impl Attached {
    fn new(mounted: Mounted, plain_because: Option<String>) -> Self {
        // Only root may, and 128 KiB work too.
        let _ = mounted.set_read_ahead(READ_AHEAD);
        Self {
            entry: find_mount(mounted.path(), SUBTYPE.as_ref()).unwrap_or_default(),
            mounted,
            plain_because,
        }
    }
}

impl Attached {
    /// Has another process take the mount away, should this one fail.
    fn detached_by(self, unmounter: &Arc<Unmounter>) -> Self {
        let (unmounter, device) = (Arc::clone(unmounter), self.device());
        let detach = move |_: &Path| {
            let device = device.ok_or("the mount table does not have it")?;
            unmounter.ask(Wish::Detach, device)
        };
        Self {
            mounted: self.mounted.detached_by(detach),
            ..self
        }
    }

    /// Its device number.
    fn device(&self) -> Option<(u32, u32)> {
        self.entry.as_ref().map(|entry| entry.device)
    }
}

/// The options of the mount itself, without a block device.
pub fn mount_options(spec: &Spec) -> MountOptions {
    let kernel = &spec.options.kernel;
    let atime = spec.options.volume.atime.unwrap_or_default();
    let mut flags = kernel.flags;
    flags.set(MountFlags::NOATIME, atime.when == AtimeWhen::Never);
    flags.set(MountFlags::STRICTATIME, atime.when == AtimeWhen::Always);
    flags.set(MountFlags::NODIRATIME, !atime.directories);
    MountOptions {
        // Whoever looks for the mount of a device compares names.
        fsname: std::fs::canonicalize(&spec.device)
            .unwrap_or_else(|_| spec.device.clone())
            .into_os_string(),
        subtype: SUBTYPE.into(),
        allow_other: kernel.allow_other || geteuid().is_root(),
        default_permissions: true,
        flags,
        ..MountOptions::default()
    }
}

/// What a mount is served with.
struct Serving<'a> {
    spec: &'a Spec,
    log: &'a Log,
    source: Source,
    volume: Arc<Volume>,
    attached: Attached,
    opened: &'a Opened,
    unmounter: Arc<Unmounter>,
    confinement: Arc<Confinement>,
    rings: Option<Rings>,
    transport: Arc<Transport>,
}

impl Serving<'_> {
    /// What to say when the mount can be used.
    fn ready(&self) -> Ready {
        let (attached, opened) = (&self.attached, self.opened);
        let greeting = Greeting {
            spec: self.spec,
            identity: &opened.identity,
            entry: attached.entry.as_ref(),
            loop_path: self.source.loop_path().map(Path::to_owned),
            plain_because: attached.plain_because.as_deref(),
            loss: opened.loss,
            time: opened.time,
            counters: opened.counters,
        };
        let entry = attached.entry.as_ref();
        let name = entry.map_or("mount".to_owned(), control::name_of);
        let (device, place) = (&self.spec.device, &self.spec.mountpoint);
        Ready {
            greeting: greeting.text(),
            mounted: format!("mounted {} on {}", shown_path(device), shown_path(place)),
            fallback_log: control::log_file(&name),
        }
    }

    /// Answers other commands from now on. A mount that cannot is served all the same.
    fn control(&self, promise: &Arc<Standing>, scrubber: &Scrubber) -> Option<Server> {
        let handler = Arc::new(ControlHandler {
            volume: Arc::downgrade(&self.volume),
            identity: self.opened.identity.clone(),
            spec: self.spec.clone(),
            promise: Arc::clone(promise),
            confinement: Arc::clone(&self.confinement),
            scrubber: scrubber.clone(),
            transport: Arc::clone(&self.transport),
        });
        let started = Server::start(self.attached.entry.as_ref()?, handler);
        if let Err(error) = &started {
            tracing::warn!("other commands cannot ask this mount: {error}");
        }
        started.ok()
    }

    /// Serves until the mount is gone. Returns how that ended, and what the volume was on.
    fn run(self, state: &Arc<State>, promise: Arc<Standing>) -> Result<(Served, Source), Failure> {
        let options = &self.spec.options;
        let notifier = Notifier::start(&self.attached.mounted)
            .map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
        let writers = Writers::start(&self.volume)?;
        let (reads, attributes) = (Reads::of(options), Attributes::of(&options.daemon));
        let daemon = Daemon {
            events: Arc::clone(state) as Arc<dyn Events>,
            promise,
            transport: self.transport,
        };
        let adapter = Adapter::new(self.volume, notifier, daemon, (reads, attributes));
        let mut session = Session::new(adapter::config(reads, attributes));
        if let Some(threads) = options.daemon.threads {
            session = session.workers(threads);
        }
        self.confinement.before_serving(self.rings.is_some());
        if let Some(rings) = self.rings {
            session = session.rings(rings);
        }
        // The session owns the adapter, and that the volume: both are gone when it returns.
        let served = session.run(Arc::new(adapter), self.attached.mounted);
        writers.stop();
        state.scrubber.end();
        state.ticker.stop();
        Ok((served, self.source))
    }
}

type Served = Result<(), loamfs_fuse::Error>;

fn serve(serving: Serving<'_>) -> Result<(), Failure> {
    let spec = serving.spec;
    let state = Arc::new(State {
        ticker: Ticker::start(Arc::downgrade(&serving.volume))?,
        scrubber: Scrubber::new(Arc::downgrade(&serving.volume)),
        log: serving.log.clone(),
        foreground: spec.foreground,
        ready: Mutex::new(Some(serving.ready())),
        closed: Mutex::new(None),
    });
    let promise = Arc::new(Standing::new(Promise::of(&spec.options)));
    let server = serving.control(&promise, &state.scrubber);
    stop::on_signal(
        Arc::clone(&serving.unmounter),
        serving.attached.device(),
        spec.foreground,
        Arc::downgrade(&serving.volume),
    )?;
    let (served, source) = serving.run(&state, promise)?;
    let requests = requests_json(&source.device.counters());
    drop(source);
    let result = outcome(spec, &state, served);
    if let Some(server) = server {
        let words = match &result {
            Ok(()) => Ok(requests.to_string()),
            Err(failure) => Err(failure.to_string()),
        };
        server.finish(words);
    }
    result
}

/// Whether the mount ended well: served to its end, and the volume closed.
fn outcome(spec: &Spec, state: &State, served: Served) -> Result<(), Failure> {
    let closed = state
        .closed
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let result = match (served, closed) {
        (_, Some(Err(error))) => Err(Failure::volume(&spec.device, &error)),
        (Err(error), _) => Err(Failure::new(Kind::Io, error.to_string())),
        (Ok(()), Some(Ok(()))) => Ok(()),
        (Ok(()), None) => Err(Failure::new(
            Kind::Io,
            format!(
                "{}: the mount ended before it began",
                shown_path(&spec.device)
            ),
        )),
    };
    match &result {
        Ok(()) => tracing::info!("unmounted {}", shown_path(&spec.mountpoint)),
        Err(failure) => tracing::error!("{failure}"),
    }
    result
}
