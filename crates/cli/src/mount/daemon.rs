//! The daemon: opens the volume, mounts it, serves it until it is unmounted, and closes it.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use loamfs_device::{Counters, Device};
use loamfs_fs::{AtimeWhen, Discard, Env, Error, Loss, OpenOptions, Volume};
use loamfs_fuse::uring::Rings;
use loamfs_fuse::{
    BlockDevice, Counts, Hold, MountEntry, MountFlags, MountOptions, Mounted, Notifier, Session,
    Tallies, find_mount,
};
use rustix::process::{configure_io_flusher_behavior, geteuid};

use super::change::Changed;
use super::confine::Confinement;
use super::control::{self, Server, Waiting};
use super::emptier::Emptier;
use super::failing::Failing;
use super::greeting::Greeting;
use super::handler::ControlHandler;
use super::handover::{Handover, Predecessor, Shard};
use super::heir::Heirlooms;
use super::keep::What;
use super::log::Log;
use super::lost::Lost;
use super::promise::{Promise, Standing};
use super::scrubber::Scrubber;
use super::source::Source;
use super::spec::Spec;
use super::state::{Ready, State};
use super::succession::{MakeWay, Succession};
use super::ticker::Ticker;
use super::transport::{self, Transport};
use super::unmounter::{Unmounter, Wish};
use super::writers::{self, Writers};
use super::{cache, memory, runtime, stale, standing, stop};
use crate::adapter::{self, Adapter, Attributes, Daemon, Events, Reads};
use crate::errors::Errors;
use crate::failure::{Failure, Kind};
use crate::mounts::{self, SUBTYPE};
use crate::report::{Identity, requests_json};
use crate::text::shown_path;

/// How far the kernel reads ahead in a file.
const READ_AHEAD: u32 = 1 << 20;

/// Mounts and serves; returns when everything is on the device.
///
/// # Errors
///
/// Why it could not be mounted, or not be closed.
pub fn run(
    spec: &Spec,
    log: &Log,
    unmounter: Unmounter,
    is_successor: bool,
) -> Result<(), Failure> {
    memory::set_up_allocator();
    // Lets the kernel give this process memory while it writes back for others. Threads inherit
    // it; only root may ask for it.
    let _ = configure_io_flusher_behavior(true);
    if let Some(file) = &spec.options.daemon.log {
        log.to_file(file)?;
    }
    let unmounter = Arc::new(unmounter);
    match is_successor {
        true => succeed(spec, log, unmounter),
        false => begin(spec, log, unmounter),
    }
}

/// Mounts and serves.
fn begin(spec: &Spec, log: &Log, unmounter: Arc<Unmounter>) -> Result<(), Failure> {
    stale::clear(&spec.device, &spec.mountpoint)?;
    let source = Source::open(&spec.device, &spec.options)?;
    let mounter = Mounter::start(&source)?;
    let is_supervised = spec.options.is_supervised() && !spec.foreground;
    let rings = transport::rings(&spec.options, is_supervised)?;
    let transport = Arc::new(Transport::new(&spec.options, rings.as_ref()));
    let confinement = Confinement::before_reading(&spec.options.daemon);
    let (spec, volume, opened) = open(spec, &source, transport.memory())?;
    let spec = &spec;
    let (handover, shards) = Handover::new().map_err(no_memory)?;
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
        handover: Arc::new(handover),
        shards,
        predecessor: None,
        changed: None,
        counted: Counting::default(),
    })
}

/// Takes a mount over whose daemon died, with what the supervisor kept of it.
fn succeed(spec: &Spec, log: &Log, unmounter: Arc<Unmounter>) -> Result<(), Failure> {
    let mut keep = unmounter
        .take()
        .map_err(|error| Failure::new(Kind::Io, format!("the supervisor: {error}")))?;
    let (source, changed) = Source::taken_over(spec, &mut keep, &unmounter)?;
    let confinement = Confinement::before_reading(&spec.options.daemon);
    let transport = Arc::new(Transport::new(&spec.options, None));
    let (spec, volume, opened) = open(spec, &source, transport.memory())?;
    let spec = &spec;
    let memory = keep.take(What::Memory).into_iter().next();
    let memory = memory.ok_or_else(|| no_memory(std::io::ErrorKind::NotFound.into()))?;
    let (handover, shards, predecessor) = Handover::after(&memory).map_err(no_memory)?;
    let mut connection = keep.take(What::Connection).into_iter();
    let first = connection
        .next()
        .ok_or_else(|| Failure::new(Kind::Io, "there is no connection to the kernel"))?;
    let device = handover.mount();
    let mut mounts = mounts::ours().into_iter();
    // Without one it was taken out of the tree, and somebody still uses it.
    let entry = mounts.find(|entry| entry.device == device);
    let mounted = Mounted::taken_over(entry.clone(), first, connection);
    serve(Serving {
        spec,
        log,
        source,
        volume,
        attached: Attached::taken_over(mounted, entry).detached_by(&unmounter),
        opened: &opened,
        unmounter,
        confinement: Arc::new(confinement),
        rings: None,
        transport,
        handover: Arc::new(handover),
        shards,
        predecessor: Some(predecessor),
        changed,
        counted: Counting::default(),
    })
}

fn no_memory(error: std::io::Error) -> Failure {
    let text = format!("the memory for a successor cannot be used: {error}");
    Failure::new(Kind::Io, text)
}

struct Opened {
    identity: Identity,
    loss: Option<Loss>,
    missing: Vec<u32>,
    time: Duration,
    counters: Counters,
}

/// Opens the volume, and says what that took.
fn open(
    spec: &Spec,
    source: &Source,
    buffers: usize,
) -> Result<(Spec, Arc<Volume>, Opened), Failure> {
    let identity =
        Identity::read(source.device()).map_err(|error| Failure::volume(&spec.device, &error))?;
    let before = source.device().counters();
    let start = Instant::now();
    let (spec, volume) = open_volume(spec, source, buffers)?;
    let opened = Opened {
        identity,
        loss: volume.info().loss.filter(|_| spec.options.is_read_only()),
        missing: volume.info().missing(),
        time: start.elapsed(),
        counters: source.device().counters() - before,
    };
    Ok((spec, volume, opened))
}

/// Opens the volume; read-only where it may be read, but not be written to without giving up what is lost.
fn open_volume(
    spec: &Spec,
    source: &Source,
    buffers: usize,
) -> Result<(Spec, Arc<Volume>), Failure> {
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

/// Which devices are told what was freed if nothing is said of it: solid-state disks live on it. The room that an image has was
/// given to it, and is taken from it when somebody asks.
fn told_by_default(source: &Source) -> Discard {
    match source.is_image() {
        true => Discard::Never,
        false => Discard::Flash,
    }
}

/// Opens the volume with what buffers for requests leave of the cache.
fn open_as(spec: &Spec, source: &Source, buffers: usize) -> Result<Arc<Volume>, Error> {
    let (asked, defaults) = (&spec.options.volume, OpenOptions::default());
    let mut options = OpenOptions {
        cache_bytes: asked.cache_bytes().saturating_sub(buffers),
        settle_bytes: asked.settle,
        cleaning: asked.clean.unwrap_or_default(),
        tracks: asked.tracks.unwrap_or_default(),
        hot: asked.hot.unwrap_or(defaults.hot),
        read_only: spec.options.is_read_only(),
        accept_loss: asked.accept_loss,
        flights: writers::COUNT,
        discard: asked.discard.unwrap_or_else(|| told_by_default(source)),
        atime: asked.atime.unwrap_or_default(),
        owner: asked.owner,
        ..defaults
    };
    if (asked.cache).is_some_and(|bytes| bytes as u64 > cache::memory()) {
        tracing::warn!("cache= is more than the daemon's control group allows");
    }
    if let Some(seconds) = asked.commit_seconds {
        options.commit_age_ms = seconds.saturating_mul(1_000);
    }
    let device: Arc<dyn Device> = source.device().clone();
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
        let (block, because) = (source.block_device(), source.plain_because().cloned());
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

    fn taken_over(mounted: Mounted, entry: Option<MountEntry>) -> Self {
        Self {
            mounted,
            entry,
            plain_because: None,
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
    handover: Arc<Handover>,
    shards: Vec<Shard>,
    /// Of a successor.
    predecessor: Option<Predecessor>,
    /// How a change of its devices ended, of a successor that was to change them.
    changed: Option<Changed>,
    counted: Counting,
}

/// What is counted of a mount.
#[derive(Clone, Default)]
struct Counting {
    operations: Tallies,
    errors: Arc<Errors>,
}

impl Counting {
    /// Goes on from what daemons before have counted.
    fn after(handover: &Handover) -> Self {
        let before = handover.counted();
        let operations = Tallies::default();
        operations.count_on(before.operations.map(Counts::from_words));
        Self {
            operations,
            errors: Arc::new(Errors::counting_on(before.errors, handover.damaged())),
        }
    }

    /// Has a successor go on from here.
    fn note(&self, volume: &Volume, is_durable: bool, handover: &Handover) {
        let info = volume.info();
        let waiting = info.dirty_log_bytes.saturating_add(info.dirty_home_bytes);
        handover.note_counted((!is_durable).then_some(waiting), |counted| {
            counted.operations = self.operations.counts().map(|counts| counts.to_words());
            counted.errors = self.errors.counts();
        });
        handover.note_damaged(&self.errors.damaged());
    }
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
            missing: &opened.missing,
            time: opened.time,
            counters: opened.counters,
        };
        let entry = attached.entry.as_ref();
        let name = entry.map_or("mount".to_owned(), control::name_of);
        let (device, place) = (&self.spec.device, &self.spec.mountpoint);
        Ready {
            greeting: self.predecessor.is_none().then(|| greeting.text()),
            mounted: format!("mounted {} on {}", shown_path(device), shown_path(place)),
            fallback_log: runtime::log_file(&name),
        }
    }

    /// Answers other commands from now on. A mount that cannot is served all the same.
    fn control(
        &self,
        state: &Arc<State>,
        promise: &Arc<Standing>,
        failing: &Arc<Failing>,
        (make_way, waiting): (MakeWay, Waiting),
    ) -> Option<Server> {
        let handler = Arc::new(ControlHandler {
            volume: Arc::downgrade(&self.volume),
            identity: self.opened.identity.clone(),
            spec: self.spec.clone(),
            promise: Arc::clone(promise),
            confinement: Arc::clone(&self.confinement),
            state: Arc::clone(state),
            transport: Arc::clone(&self.transport),
            handover: Arc::clone(&self.handover),
            failing: Arc::clone(failing),
            make_way,
            changed: self.changed.clone(),
            tallies: self.counted.operations.clone(),
            errors: Arc::clone(&self.counted.errors),
        });
        let started = Server::start(self.attached.entry.as_ref()?, handler, waiting);
        if let Err(error) = &started {
            tracing::warn!("other commands cannot ask this mount: {error}");
        }
        started.ok()
    }

    /// What ends this process so that another one goes on where it came to rest.
    fn make_way(&self, state: &Arc<State>, hold: Hold, waiting: Waiting) -> MakeWay {
        let (state, unmounter) = (Arc::clone(state), Arc::clone(&self.unmounter));
        let (handover, one) = (Arc::clone(&self.handover), Mutex::new(()));
        Arc::new(move |volume, succession| {
            if let Some(why) = succession.refused(&volume.upkeep().access()) {
                return Err(why);
            }
            if matches!(succession, Succession::Asked) {
                return unmounter.say("followed");
            }
            // A second one would end this process before all is said that the first one has to say.
            let _alone = one.lock().unwrap_or_else(PoisonError::into_inner);
            match succession {
                Succession::Asked => {}
                Succession::Upgrade => unmounter.say("upgrade")?,
                Succession::Change(change, joining) => {
                    let joining: Vec<_> = joining.iter().map(AsFd::as_fd).collect();
                    if !joining.is_empty() {
                        // Where nobody follows it must not stay there, locked.
                        unmounter.say("followed")?;
                        unmounter.keep(What::Joining, &joining)?;
                    }
                    unmounter.say(&format!("change {}", change.words()))?;
                }
            }
            hold.hold();
            state.closing();
            match volume.close() {
                Ok(()) => {
                    handover.note_durable();
                    waiting.tell_followed();
                }
                // The successor takes it for a crash.
                Err(error) => tracing::error!("closing the volume failed: {error}"),
            }
            std::process::exit(0);
        })
    }

    /// Whether another daemon is to follow this one if it dies.
    fn is_supervised(&self) -> bool {
        self.spec.options.is_supervised() && !self.spec.foreground
    }

    /// The promise of the mount, and what else a remount has changed of it before.
    fn standing(&self) -> Result<Arc<Standing>, Failure> {
        let before = self.handover.standing();
        let promise = standing::promise(&before).unwrap_or(Promise::of(&self.spec.options));
        if let Some(rule) = standing::atime(&before) {
            self.volume.upkeep().set_atime_rule(rule);
        }
        Ok(Arc::new(Standing::new(promise)))
    }

    /// The bridge between the kernel and the volume, which knows what an earlier daemon left.
    fn adapter(
        &mut self,
        state: &Arc<State>,
        promise: Arc<Standing>,
        (reads, attributes): (Reads, Attributes),
    ) -> Result<Adapter, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(Kind::Io, error.to_string());
        let notifier = Notifier::start(&self.attached.mounted).map_err(|error| failed(&error))?;
        let daemon = Daemon {
            events: Arc::clone(state) as Arc<dyn Events>,
            promise,
            transport: Arc::clone(&self.transport),
            handover: Arc::clone(&self.handover),
            errors: Arc::clone(&self.counted.errors),
            supervisor: self.is_supervised().then(|| Arc::clone(&self.unmounter)),
        };
        let shards = std::mem::take(&mut self.shards);
        let volume = Arc::clone(&self.volume);
        let mut adapter = Adapter::new(volume, notifier, daemon, (reads, attributes), shards);
        if let Some(predecessor) = self.predecessor.take() {
            adapter
                .succeed(predecessor)
                .map_err(|errno| failed(&errno))?;
            if standing::is_frozen(&self.handover.standing()) {
                self.volume
                    .upkeep()
                    .freeze()
                    .map_err(|error| Failure::volume(&self.spec.device, &error))?;
            }
        }
        Ok(adapter)
    }

    /// Serves until the mount is gone. Returns how that ended, what the volume was on, and who waits to be told.
    fn run(mut self, state: &Arc<State>) -> Result<Served, Failure> {
        let options = &self.spec.options;
        let (reads, attributes) = (Reads::of(options), Attributes::of(&options.daemon));
        let hold = Hold::default();
        let mut session = Session::new(adapter::config(reads, attributes)).held_by(hold.clone());
        self.counted = Counting::after(&self.handover);
        session = session.tallies(self.counted.operations.clone());
        if let Some(threads) = options.daemon.threads {
            session = session.workers(threads);
        }
        if !self.spec.foreground {
            if self.is_supervised() {
                self.attached.mounted.open_ends(session.threads());
            }
            let mounted = &self.attached.mounted;
            let heirlooms = Heirlooms::of(mounted, &self.source, &self.handover);
            let failed = |error| Failure::new(Kind::Io, format!("descriptors: {error}"));
            state.will_hand_over(heirlooms.map_err(failed)?);
        }
        let promise = self.standing()?;
        let adapter = Arc::new(self.adapter(state, Arc::clone(&promise), (reads, attributes))?);
        let writers = Writers::start(&self.volume)?;
        let supervisor = (!self.spec.foreground).then(|| Arc::clone(&self.unmounter));
        let failing = Failing::new(self.is_supervised() && self.source.is_image());
        let failing = Arc::new(failing);
        let changes = adapter.changes();
        let (looked, told) = (changes.clone(), Arc::clone(&failing));
        let (counted, handover) = (self.counted.clone(), Arc::clone(&self.handover));
        let ticker = Ticker::start(Arc::downgrade(&self.volume), move |volume| {
            looked.look_after(volume);
            told.look(volume, supervisor.as_ref());
            counted.note(volume, looked.are_durable(), &handover);
        })?;
        // It is the only one.
        let _ = state.ticker().set(ticker);
        let waiting = Waiting::default();
        let make_way = self.make_way(state, hold, waiting.clone());
        state.emptier().ends_by(Arc::clone(&make_way));
        let server = self.control(state, &promise, &failing, (make_way, waiting));
        self.confinement.before_serving(self.rings.is_some());
        if let Some(rings) = self.rings {
            session = session.rings(rings);
        }
        if let Some(agreed) = self.handover.agreed() {
            let ready = state.ready(&agreed);
            ready.map_err(|errno| Failure::new(Kind::Io, errno.to_string()))?;
            adapter.go_on();
            session = session.taken_over(agreed);
            if adapter.is_in_doubt() {
                let adapter = Arc::clone(&adapter);
                session = session.put_off_until(move || adapter.wait_until_forgotten());
            }
        }
        drop(self.volume);
        // The session owns the adapter, and that the volume: both are gone when it returns.
        let ended = session.run(adapter, self.attached.mounted);
        writers.stop();
        state.closing();
        let lost = Lost {
            files: changes.undurable(),
            bytes: self.handover.waiting(),
            is_followed: false,
        };
        Ok(Served {
            ended,
            source: self.source,
            server,
            lost,
            failing,
        })
    }
}

/// A mount that has ended.
struct Served {
    ended: Result<(), loamfs_fuse::Error>,
    source: Source,
    server: Option<Server>,
    /// What is lost if the volume was not closed well.
    lost: Lost,
    failing: Arc<Failing>,
}

fn serve(serving: Serving<'_>) -> Result<(), Failure> {
    let (spec, unmounter) = (serving.spec, Arc::clone(&serving.unmounter));
    let scrubber = Scrubber::new(Arc::downgrade(&serving.volume));
    let ready = serving.ready();
    let device = serving.attached.device();
    let named = serving.source.named_number();
    let may_write = !spec.options.is_read_only();
    let emptier = Emptier::new(Arc::downgrade(&serving.volume), may_write, named);
    let workers = (scrubber, emptier);
    let state = State::new(spec, serving.log, workers, ready, device, &unmounter);
    let state = Arc::new(state);
    if let Some(device) = device {
        serving.handover.note_mount(device);
    }
    stop::on_signal(
        Arc::clone(&unmounter),
        device,
        spec.foreground,
        Arc::downgrade(&serving.volume),
    )?;
    let served = serving.run(&state)?;
    let requests = requests_json(&served.source.device().counters());
    drop(served.source);
    if !spec.foreground {
        // It lets go of the device too. If it is gone, it has.
        let _ = unmounter.say("over");
    }
    let (why, lost) = (served.failing.why(), served.lost);
    let result =
        outcome(spec, &state, served.ended).map_err(|failure| failed(&failure, why, &lost));
    match &result {
        Ok(()) => tracing::info!("unmounted {}", shown_path(&spec.mountpoint)),
        Err(failure) => tracing::error!("{failure}"),
    }
    if let Some(server) = served.server {
        let words = match &result {
            Ok(()) => Ok(requests.to_string()),
            Err(failure) => Err(failure.to_string()),
        };
        server.finish(words);
    }
    result
}

/// Whether the mount ended well: served to its end, and the volume closed.
fn outcome(
    spec: &Spec,
    state: &State,
    ended: Result<(), loamfs_fuse::Error>,
) -> Result<(), Failure> {
    match (ended, state.take_closed()) {
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
    }
}

/// That a mount did not end well: why, and what is lost.
fn failed(failure: &Failure, why: Option<String>, lost: &Lost) -> Failure {
    let why = why.unwrap_or_else(|| failure.to_string());
    match lost.words() {
        Some(lost) => Failure::new(failure.kind(), format!("{why}; {lost}")),
        None => Failure::new(failure.kind(), why),
    }
}
