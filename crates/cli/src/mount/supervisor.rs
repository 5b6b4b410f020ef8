//! The small process above a daemon: it unmounts when the daemon asks for it, and should that die, it starts another one
//! in its place. For that it keeps the connection to the kernel, so that who uses the mount only waits; the device with its
//! lock, so that nobody else comes between; and the memory of [`super::handover`]. It reads nothing of them.
//!
//! A process is waited for to its end before the next one starts. So no write of a daemon that was killed is under way
//! any more.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loamfs_fuse::{NodeId, Notifier, find_mount, is_dead};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::keep::{Keep, What};
use super::log::Log;
use super::lost::Lost;
use super::packets::{self, Packet};
use super::room::Room;
use super::spec::Spec;
use super::{confine, handover, reaction, runtime, signals, spawn, stale, unmounter};
use crate::failure::{Failure, Kind};
use crate::mounts::{self, SUBTYPE};
use crate::text::shown_path;

/// Daemons that may die within a while. More do not help.
const DEATHS_MAX: usize = 5;
/// As many instead; for tests, which kill them.
const DEATHS_VARIABLE: &str = "LOAMFS_DEATHS";
const WHILE: Duration = Duration::from_secs(60);

/// Why no daemon follows.
const CANNOT: &str = "this mount cannot be taken over; unmount it first";

/// How a daemon is started: with the arguments of the first one, or of a successor.
pub struct Arguments {
    /// Those of the first.
    pub first: Vec<OsString>,
    /// Those of all others.
    pub successor: Vec<OsString>,
}

/// Starts the daemon, and another one each time that one dies, until the mount is gone. Returns the exit code of the last.
///
/// # Errors
///
/// If none can be started.
pub fn run(spec: &Spec, log: &Log, arguments: &Arguments) -> Result<u8, Failure> {
    signals::outlive()?;
    confine::spare_from_oom();
    if let Some(file) = &spec.options.daemon.log {
        log.to_file(file)?;
    }
    let mut supervisor = Supervisor {
        spec,
        program: std::env::current_exe().ok(),
        keep: Keep::default(),
        is_served: false,
        is_upgrade: false,
        makes_way: false,
        is_newest: false,
        deaths: Vec::new(),
        is_over: Arc::default(),
        room: None,
        shown: Arc::default(),
        daemon: None,
        notifier: None,
        device: None,
    };
    let mut daemon = supervisor.start(&arguments.first, false)?;
    // Whoever waits for the daemon waits for the end of what it says.
    spawn::let_go_of_output();
    log.leave_stderr(runtime::log_file("supervisor").as_deref());
    loop {
        let status = supervisor.wait(daemon)?;
        let Some(newest) = supervisor.next(status) else {
            return Ok(code_of(status));
        };
        daemon = supervisor.start(&arguments.successor, newest)?;
    }
}

struct Supervisor<'a> {
    spec: &'a Spec,
    /// The file of this program, for an upgrade.
    program: Option<PathBuf>,
    keep: Keep,
    /// The daemon serves the mount.
    is_served: bool,
    /// The daemon ends so that another one follows.
    is_upgrade: bool,
    /// It ends so that the next one changes the volume's devices.
    makes_way: bool,
    /// It is of the newest program.
    is_newest: bool,
    /// When daemons died.
    deaths: Vec<Instant>,
    /// The daemon that is served has ended.
    is_over: Arc<AtomicBool>,
    /// The log failed for want of this, and nobody has served the mount since.
    room: Option<Room>,
    /// The mount is shown as read-only for a failure.
    shown: Arc<AtomicBool>,
    /// The process that serves it.
    daemon: Option<OwnedFd>,
    /// What has the kernel forget content of files.
    notifier: Option<Notifier>,
    /// The device number of the mount.
    device: Option<(u32, u32)>,
}

impl Supervisor<'_> {
    /// Starts a daemon: this program as it is now, or the newest one.
    fn start(&mut self, arguments: &[OsString], newest: bool) -> Result<(Child, OwnedFd), Failure> {
        let failed =
            |error| Failure::new(Kind::Io, format!("the daemon cannot be started: {error}"));
        let (ours, theirs) = packets::pair().map_err(failed)?;
        let again = theirs.try_clone().map_err(failed)?;
        let program = self.program.as_deref().filter(|_| newest);
        let started = program.map(|file| spawn::newest(file, arguments).stdin(again).spawn());
        let child = match started {
            Some(Ok(child)) => child,
            other => {
                if let Some(Err(error)) = other {
                    tracing::error!("the program that is installed cannot be started: {error}");
                }
                let started = spawn::own(arguments).stdin(theirs).spawn();
                started.map_err(failed)?
            }
        };
        self.is_served = false;
        self.is_upgrade = false;
        self.makes_way = false;
        self.is_newest = newest;
        self.daemon = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Ok((child, ours))
    }

    /// Does what a daemon asks for until it ends.
    fn wait(&mut self, (mut child, socket): (Child, OwnedFd)) -> Result<ExitStatus, Failure> {
        unmounter::serve(&socket, |packet| self.note(packet, &socket));
        let failed = |error| Failure::new(Kind::Io, format!("waiting for the daemon: {error}"));
        self.is_over.store(true, Ordering::SeqCst);
        self.is_over = Arc::default();
        child.wait().map_err(failed)
    }

    fn note(&mut self, packet: Packet, socket: &OwnedFd) -> Result<(), String> {
        if let Some(why) = packet.text.strip_prefix("failed ") {
            self.react(why);
            return Ok(());
        }
        if let Some(why) = packet.text.strip_prefix("full ") {
            self.react(why);
            self.look_for_room();
            return Ok(());
        }
        if let Some(contents) = packet.text.strip_prefix("forget ") {
            return self.forget(contents);
        }
        if let Some(device) = packet.text.strip_prefix("served ") {
            self.is_served = true;
            let before = std::mem::replace(&mut self.device, unmounter::device_of(device));
            if let (None, Some(device)) = (before, self.device) {
                // Of an earlier mount.
                Lost::forget(device);
            }
            self.room = None;
            reaction::end(self.spec, &self.shown);
            return Ok(());
        }
        if packet.text.starts_with("change ") {
            if self.keep.first(What::Connection).is_none() {
                return Err(CANNOT.to_owned());
            }
            self.keep.note(packet)?;
            self.makes_way = true;
            return Ok(());
        }
        match packet.text.as_str() {
            // The mount is gone, and the volume is closed: nobody follows.
            "over" => {
                self.keep.clear();
                self.notifier = None;
            }
            "followed" if self.keep.first(What::Connection).is_some() => {}
            "followed" => return Err(CANNOT.to_owned()),
            "upgrade" if self.keep.first(What::Connection).is_some() => self.is_upgrade = true,
            "upgrade" => return Err(CANNOT.to_owned()),
            "changed" => {
                self.keep.end_change();
                self.keep.take(What::Joining);
            }
            "forgotten" => {
                let notifier = self.notifier()?;
                let ends = packet.descriptors.into_iter();
                ends.for_each(|end| notifier.close_then(end));
            }
            "take" => self.keep.send(socket).map_err(|error| error.to_string())?,
            _ => self.keep.note(packet)?,
        }
        Ok(())
    }

    /// The volume takes no changes any more.
    fn react(&self, why: &str) {
        let (is_over, shown) = (Arc::clone(&self.is_over), Arc::clone(&self.shown));
        reaction::begin(self.spec, why, is_over, shown);
    }

    /// Where the mount can be taken over, another daemon goes on once there is room.
    fn look_for_room(&mut self) {
        if self.keep.first(What::Connection).is_none() {
            return;
        }
        self.room = Room::below(&self.keep);
        if let (Some(room), Some(daemon)) = (&self.room, self.daemon.take()) {
            room.end_daemon(daemon, Arc::clone(&self.is_over));
        }
    }

    /// Writes down what went with a daemon that died.
    fn note_lost(&self, is_followed: bool) {
        let memory = self.keep.first(What::Memory);
        if let (Some(memory), Some(device)) = (memory, self.device) {
            match handover::lost(memory) {
                Ok(lost) => Lost {
                    is_followed,
                    ..lost
                }
                .note(device),
                Err(error) => tracing::warn!("what was lost cannot be told: {error}"),
            }
        }
    }

    /// Has the kernel forget contents of files. That waits for reads which are under way, and so perhaps for the next
    /// daemon: a daemon that waited for them could not end.
    fn forget(&mut self, contents: &str) -> Result<(), String> {
        let mut numbers = contents.split(' ').map(|number| number.parse().ok());
        let notifier = self.notifier()?;
        while let Some(node) = numbers.next() {
            let mut next = || numbers.next().flatten();
            let (Some(node), Some(start), Some(end)) = (node, next(), next()) else {
                return Err("that is no content".to_owned());
            };
            notifier.content(NodeId(node), start..end);
        }
        Ok(())
    }

    fn notifier(&mut self) -> Result<&Notifier, String> {
        let notifier = match self.notifier.take() {
            Some(notifier) => notifier,
            None => {
                let connection = self.keep.first(What::Connection).ok_or("there is none")?;
                let connection = connection.try_clone_to_owned();
                let connection = connection.map_err(|error| error.to_string())?;
                Notifier::of(Arc::new(connection)).map_err(|error| error.to_string())?
            }
        };
        Ok(self.notifier.insert(notifier))
    }

    /// Lets go of the mount: who uses it gets errors from here on.
    fn give_up(&mut self) {
        self.notifier = None;
        self.keep.clear();
        // A thread that waits for the kernel keeps the connection until that ends it.
        if let Some((major, minor)) = self.device {
            let number = u64::from(major) << 20 | u64::from(minor);
            let _ = fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1");
        }
    }

    /// Whether the mount is in the mount table. Whoever unmounts it waits for a daemon to close the volume, and cannot be
    /// killed: none may come for long.
    fn is_mounted(&self) -> bool {
        let mounts = loamfs_fuse::mounts();
        mounts.map_or(true, |all| {
            all.iter().any(|entry| self.device == Some(entry.device))
        })
    }

    /// Whether another daemon is to follow one that ended so, and whether that is the newest program.
    fn next(&mut self, status: ExitStatus) -> Option<bool> {
        let died = self.is_served && !status.success() && status.code().is_none();
        if died {
            self.note_lost(false);
        }
        let next = self.decide(status);
        if died && next.is_some() {
            self.note_lost(true);
        }
        next
    }

    fn decide(&mut self, status: ExitStatus) -> Option<bool> {
        let shown = shown_path(&self.spec.mountpoint);
        let kept = self.keep.first(What::Connection);
        let kept = kept.and_then(|connection| connection.try_clone_to_owned().ok());
        let Some(connection) = kept.as_ref().map(AsFd::as_fd) else {
            // It never came to be used, or it is not to be taken over.
            if !status.success() && !self.is_served {
                self.clear(status);
            } else if !status.success() {
                tracing::error!("the daemon of {shown} died ({status}); the next mount recovers");
            }
            return None;
        };
        if is_over(connection) {
            return None;
        }
        if self.is_upgrade {
            tracing::info!("the daemon of {shown} is replaced by another program");
            return Some(true);
        }
        if self.makes_way {
            return Some(false);
        }
        if status.success() {
            return None;
        }
        if self.keep.change().is_some() && !self.is_served && status.code().is_some() {
            tracing::error!("the devices of {shown} stay as they are ({status})");
            self.keep.end_change();
            return Some(false);
        }
        if let Some(mut room) = self.room.take() {
            if !room.is_there() {
                tracing::error!(
                    "the daemon of {shown} died ({status}); another one follows when there is room where the image is"
                );
            }
            room.wait(|| is_over(connection) || !self.is_mounted());
            if is_over(connection) {
                return None;
            }
            if !self.is_mounted() {
                tracing::warn!(
                    "{shown} was unmounted before there was room where the image is; the next mount recovers the volume"
                );
                self.give_up();
                return None;
            }
            self.room = Some(room);
            if self.count_death() <= deaths_max() {
                tracing::info!("another daemon goes on with {shown}");
                return Some(false);
            }
        }
        if self.is_newest && !self.is_served {
            tracing::error!("that program cannot serve {shown} ({status}); the one before goes on");
            return Some(false);
        }
        // One that ended by itself before it served has said why.
        let reason = match (self.is_served, status.code()) {
            (false, Some(code)) => format!("its successor cannot serve it (exit code {code})"),
            _ if self.count_death() > deaths_max() => "it dies again and again".to_owned(),
            _ => {
                tracing::error!("the daemon of {shown} died ({status}); another one follows");
                return Some(false);
            }
        };
        tracing::error!(
            "the daemon of {shown} died ({status}), and the mount is given up: {reason}; unmount it, look for the reason above, and mount it again"
        );
        self.give_up();
        None
    }

    /// Returns how many died lately.
    fn count_death(&mut self) -> usize {
        let now = Instant::now();
        self.deaths
            .retain(|death| now.duration_since(*death) < WHILE);
        self.deaths.push(now);
        self.deaths.len()
    }

    /// Takes a mount away that never could be used.
    fn clear(&self, status: ExitStatus) {
        let Ok(Some(entry)) = find_mount(&self.spec.mountpoint, SUBTYPE.as_ref()) else {
            return;
        };
        if !is_dead(&entry.path) {
            return;
        }
        tracing::error!("the daemon of {} died ({status})", shown_path(&entry.path));
        let views = mounts::ours().into_iter().rev();
        for view in views.filter(|view| view.device == entry.device) {
            if let Err(failure) = stale::clear_one(&view) {
                tracing::error!("{failure}");
            }
        }
    }
}

fn deaths_max() -> usize {
    let given = std::env::var(DEATHS_VARIABLE).ok();
    let count = given.and_then(|text| text.parse().ok());
    count.unwrap_or(DEATHS_MAX)
}

/// Whether a connection has ended: it was unmounted, or cut off.
fn is_over(connection: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(connection, PollFlags::IN)];
    let now = Timespec::default();
    let polled = poll(&mut asked, Some(&now));
    polled.is_err() || asked[0].revents().contains(PollFlags::ERR)
}

/// As a shell has it: a signal counts from 128 on.
fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
