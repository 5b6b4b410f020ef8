//! How other commands talk to a mount's daemon: a socket beside the mount.
//!
//! A client sends a line. The daemon answers and hangs up; the last line of its answer is `failed: ` and a sentence if
//! it could not do what was asked, else:
//! - `info`: its report as JSON;
//! - `fixed`: the options of the mount that no remount changes, as JSON: pairs of name and value;
//! - `map INODE`: a line of JSON for each piece of a file's content, then `done`;
//! - `sync`: `done` when everything is durable;
//! - `drop`: `done` when everything is durable, and forgotten that was read;
//! - `settle`: `progress DONE TOTAL` now and then; `done`, the number of images that were settled and of those that are
//!   left when what waited in the log is at home, and durable;
//! - `clean PERCENT`: `progress DONE TOTAL` now and then; `done`, the number of groups that were gone through, of those that are
//!   free now and were not, the bytes of these, bytes that were moved, and the number of groups that are left; it ends early
//!   if the client hangs up;
//! - `place INODE WORD`: a directory, and where small files of it go: `progress FILES 0` now and then; `done`, the number of
//!   directories that say so now, of files that were moved and of their bytes, 1 if room ran out, and the number of directories
//!   that are damaged, of which some are named before, by `damaged PATH: WHY`; it ends early if the client hangs up;
//! - `on INODE WORD`: the same of large files, and on which devices they go; room that ran out is room there;
//! - `scrub start RATE WORD`, a rate of 0 for none, `anew` or `on`; `scrub stop`; `scrub status`: how far a scrub is then, and
//!   what it found, as JSON;
//! - `trim START LENGTH LEAST`, in bytes: `progress DONE TOTAL` now and then; `done` and how many bytes the device was
//!   told to forget;
//! - `label TEXT`: `done` when the volume has that label;
//! - `freeze`, `thaw`: `done` when the volume takes no changes any more, or again;
//! - `atime RULE DIRECTORIES`, words of mount(8): `done`, and reads set access times by that from now on;
//! - `promise WORD`, a word of mount(8): `done`, and such changes are durable before they are answered from now on;
//! - `upgrade`: nothing; the daemon comes to rest and ends, and another one follows;
//! - `leave DEVICE`: `progress DONE TOTAL` now and then, in MiB; the daemon ends when the device is empty, and the next one takes it
//!   out; it goes on if the client hangs up;
//! - `stay DEVICE`: `done` when a device does not leave any more;
//! - `copy each`, `copy behind`, `copy none`: `progress DONE TOTAL` now and then, in MiB; `done` when what the leading device holds stands twice, or once;
//!   a copy that is not whole is given up if the client hangs up;
//! - `extents DEVICE FLASH EXTENT`, sizes in bytes, or 0 and 0: `done` when homes on a device are given out by such extents, or by none;
//! - `change WORDS`, of [`super::change`], with the descriptor of a device that is to join: the same, and the next one changes the
//!   devices first;
//! - `wait`: `waiting`, then `done` and all requests to the device as JSON when the daemon is about to exit, the volume
//!   closed and the device let go; `followed` if the volume is closed and another daemon goes on.

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use loamfs_fs::{AtimeRule, AtimeWhen, CopyKind, Placement, Section, Tiering};
use loamfs_fuse::{MountEntry, is_dead};

use super::change::Change;
use super::packets;
use super::promise::Promise;
use super::runtime;
use super::scrubber::Pace;
use crate::failure::{Failure, Kind};
use crate::mounts;
use crate::progress::StepProgress;
use crate::text::shown_path;

/// Longest request, in bytes.
const REQUEST_MAX: usize = 256;

/// How long a client may take to say what it wants.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// How long the successor of a daemon that died is waited for.
const SUCCESSION: Duration = Duration::from_secs(5);

/// What a line begins with that tells how far the daemon is.
const PROGRESS: &str = "progress ";

/// What a line begins with that names what could not be gone through, and says why.
pub(super) const DAMAGED: &str = "damaged ";

/// What a daemon says at its end if another one goes on.
const FOLLOWED: &str = "followed";

/// What a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The report, as JSON.
    Info,
    /// The options that no remount changes.
    Fixed,
    /// Where a file's content is, a line a piece.
    Map(u64),
    /// Make everything durable.
    Sync,
    /// Make everything durable, and forget what was read.
    Drop,
    /// Bring parts of large files that wait in the log to their homes.
    Settle,
    /// Empty groups of the log of which less than so much of a hundred is in use.
    Clean(u32),
    /// Say where small files of a directory, by its inode, and of those below it go, and move those that are there.
    Place(u64, Placement),
    /// Say on which devices large files of a directory go, and move those that are there.
    On(u64, Tiering),
    /// Scrub, or go on with it.
    ScrubStart(Pace),
    /// Stop a scrub.
    ScrubStop,
    /// How far a scrub is.
    ScrubStatus,
    /// Tell the device what is free: first byte, length, least run.
    Trim([u64; 3]),
    /// Give the volume another label.
    Label(String),
    /// Take no changes any more, and write none.
    Freeze,
    /// Take changes again.
    Thaw,
    /// Which reads set access times from now on.
    Atime(AtimeRule),
    /// Which changes are durable before they are answered, from now on.
    Promise(Promise),
    /// Make way for the program that is installed now.
    Upgrade,
    /// Empty a device, by its number, and take it out.
    Leave(u32),
    /// Take that back.
    Stay(u32),
    /// Have what the leading device holds stand twice in this way, or once.
    Copy(Option<CopyKind>),
    /// Give out blocks of large files on a device, by its number, by extents, or not.
    Section(u32, Option<Section>),
    /// Move what stands behind so many bytes, and make way for one that makes the volume so small.
    Shrink(u64),
    /// Make way for one that changes the devices.
    Change(Change),
}

/// How what the leading device holds may stand a second time, or not, as people call it.
const COPIES: [(&str, Option<CopyKind>); 3] = [
    ("each", Some(CopyKind::Each)),
    ("behind", Some(CopyKind::Behind)),
    ("none", None),
];

/// What people call that.
pub fn copy_word(copy: Option<CopyKind>) -> &'static str {
    let found = COPIES.into_iter().find(|(_, known)| *known == copy);
    found.map_or("none", |(word, _)| word)
}

/// What people call so.
pub fn copy_named(word: &str) -> Option<Option<CopyKind>> {
    let found = COPIES.into_iter().find(|(known, _)| *known == word);
    found.map(|(_, copy)| copy)
}

/// The names of the rules for access times.
const ATIMES: [(&str, AtimeWhen); 3] = [
    ("relatime", AtimeWhen::Relative),
    ("strictatime", AtimeWhen::Always),
    ("noatime", AtimeWhen::Never),
];

impl Request {
    /// The line that a client sends.
    pub fn line(&self) -> String {
        match self {
            Self::Info => "info".to_owned(),
            Self::Fixed => "fixed".to_owned(),
            Self::Map(ino) => format!("map {ino}"),
            Self::Sync => "sync".to_owned(),
            Self::Drop => "drop".to_owned(),
            Self::Settle => "settle".to_owned(),
            Self::Clean(percent) => format!("clean {percent}"),
            Self::Place(ino, placement) => format!("place {ino} {}", placement.word()),
            Self::On(ino, tier) => format!("on {ino} {}", tier.word()),
            Self::ScrubStart(pace) => {
                let word = if pace.anew { "anew" } else { "on" };
                format!("scrub start {} {word}", pace.rate.unwrap_or(0))
            }
            Self::ScrubStop => "scrub stop".to_owned(),
            Self::ScrubStatus => "scrub status".to_owned(),
            Self::Trim([start, len, least]) => format!("trim {start} {len} {least}"),
            Self::Label(label) => format!("label {label}"),
            Self::Freeze => "freeze".to_owned(),
            Self::Thaw => "thaw".to_owned(),
            Self::Upgrade => "upgrade".to_owned(),
            Self::Leave(device) => format!("leave {device}"),
            Self::Stay(device) => format!("stay {device}"),
            Self::Copy(copy) => format!("copy {}", copy_word(*copy)),
            Self::Section(device, section) => {
                let (flash, extent) = section.map_or((0, 0), |it| (it.flash_block(), it.extent()));
                format!("extents {device} {flash} {extent}")
            }
            Self::Shrink(bytes) => format!("shrink {bytes}"),
            Self::Change(change) => format!("change {}", change.words()),
            Self::Atime(rule) => {
                let name = ATIMES.iter().find(|(_, when)| *when == rule.when);
                let directories = if rule.directories {
                    "diratime"
                } else {
                    "nodiratime"
                };
                format!("atime {} {directories}", name.map_or("", |(name, _)| name))
            }
            Self::Promise(promise) => format!("promise {}", Promise::WORDS.word(*promise)),
        }
    }

    fn parse_scrub(rest: &str) -> Option<Self> {
        Some(match rest.split_once(' ').unwrap_or((rest, "")) {
            ("stop", "") => Self::ScrubStop,
            ("status", "") => Self::ScrubStatus,
            ("start", pace) => {
                let (rate, word) = pace.split_once(' ')?;
                let rate: u64 = rate.parse().ok()?;
                Self::ScrubStart(Pace {
                    rate: Some(rate).filter(|rate| *rate > 0),
                    anew: match word {
                        "anew" => true,
                        "on" => false,
                        _ => return None,
                    },
                })
            }
            _ => return None,
        })
    }

    fn parse_section(rest: &str) -> Option<Self> {
        let (device, sizes) = rest.split_once(' ')?;
        let (flash, extent) = sizes.split_once(' ')?;
        let section = match (flash.parse().ok()?, extent.parse().ok()?) {
            (0, 0) => None,
            (flash, extent) => Some(Section::new(flash, extent)?),
        };
        Some(Self::Section(device.parse().ok()?, section))
    }

    fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut numbers = rest.split(' ').map(|number| number.parse().ok());
        Some(match word {
            "info" => Self::Info,
            "fixed" => Self::Fixed,
            "map" => Self::Map(numbers.next()??),
            "sync" => Self::Sync,
            "drop" => Self::Drop,
            "settle" => Self::Settle,
            "clean" => Self::Clean(rest.parse().ok()?),
            "place" => {
                let (ino, word) = rest.split_once(' ')?;
                Self::Place(ino.parse().ok()?, Placement::of_word(word)?)
            }
            "on" => {
                let (ino, word) = rest.split_once(' ')?;
                Self::On(ino.parse().ok()?, Tiering::of_word(word)?)
            }
            "scrub" => Self::parse_scrub(rest)?,
            "trim" => Self::Trim([numbers.next()??, numbers.next()??, numbers.next()??]),
            "label" => Self::Label(rest.to_owned()),
            "freeze" => Self::Freeze,
            "thaw" => Self::Thaw,
            "upgrade" => Self::Upgrade,
            "leave" => Self::Leave(rest.parse().ok()?),
            "stay" => Self::Stay(rest.parse().ok()?),
            "copy" => Self::Copy(copy_named(rest)?),
            "extents" => Self::parse_section(rest)?,
            "shrink" => Self::Shrink(rest.parse().ok()?),
            "change" => Self::Change(Change::parse(rest)?),
            "atime" => {
                let (name, directories) = rest.split_once(' ')?;
                let (_, when) = ATIMES.into_iter().find(|(known, _)| *known == name)?;
                let directories = match directories {
                    "diratime" => true,
                    "nodiratime" => false,
                    _ => return None,
                };
                Self::Atime(AtimeRule { when, directories })
            }
            "promise" => Self::Promise(Promise::WORDS.value(rest)?),
            _ => return None,
        })
    }
}

/// Who answers.
pub trait Answers: Send + Sync {
    /// Does what a request asks for, with what came beside it, and writes what there is to say to `out`, the last line too.
    ///
    /// # Errors
    ///
    /// A sentence that says why it could not be done.
    fn answer(
        &self,
        request: &Request,
        descriptors: Vec<OwnedFd>,
        out: &mut dyn Write,
    ) -> Result<(), String>;
}

/// The name that a mount goes by in [`runtime::directory`].
pub fn name_of(entry: &MountEntry) -> String {
    let (major, minor) = entry.device;
    format!("{major}-{minor}")
}

fn socket_in(directory: &Path, entry: &MountEntry) -> PathBuf {
    directory.join(name_of(entry) + ".sock")
}

/// Those who wait for a daemon's end; all clones are the same.
#[derive(Clone, Default)]
pub struct Waiting(Arc<Mutex<(Vec<UnixStream>, Option<String>)>>);

impl Waiting {
    /// Has one more wait, or tells it how it ended.
    fn add(&self, mut stream: UnixStream) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (streams, told) = &mut *waiting;
        // So that the client knows that it will be told.
        if stream.write_all(b"waiting\n").is_err() {
            return;
        }
        match told {
            Some(line) => drop(stream.write_all(line.as_bytes())),
            None => streams.push(stream),
        }
    }

    /// Tells them, and all who come later, with a line.
    fn tell(&self, line: String) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (streams, told) = &mut *waiting;
        for mut stream in streams.drain(..) {
            // Who hung up does not want to know.
            let _ = stream.write_all(line.as_bytes());
        }
        *told = Some(line);
    }

    /// Tells them that the volume is closed, and that another daemon goes on with the mount.
    pub fn tell_followed(&self) {
        self.tell(format!("{FOLLOWED}\n"));
    }
}

/// The daemon's end.
pub struct Server {
    path: PathBuf,
    /// Of the socket at that path: a later mount of the same device number has another one there.
    inode: u64,
    waiting: Waiting,
}

impl Server {
    /// Listens beside the mount `entry`.
    ///
    /// # Errors
    ///
    /// What the system said; a mount works without this.
    pub fn start(
        entry: &MountEntry,
        answers: Arc<dyn Answers>,
        waiting: Waiting,
    ) -> io::Result<Self> {
        Self::listen(socket_in(&runtime::make()?, entry), answers, waiting)
    }

    fn listen(path: PathBuf, answers: Arc<dyn Answers>, waiting: Waiting) -> io::Result<Self> {
        // A daemon that was killed leaves its socket behind.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(&path)?.ino();
        let inner = waiting.clone();
        thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (answers, waiting) = (Arc::clone(&answers), inner.clone());
                    let serve = move || serve(stream, &*answers, &waiting);
                    // Without a thread this client is turned away.
                    let _ = thread::Builder::new().name("client".into()).spawn(serve);
                }
            })?;
        Ok(Self {
            path,
            inode,
            waiting,
        })
    }

    /// Tells those who wait how it ended, with a line of words, and closes the socket's name.
    pub fn finish(self, result: Result<String, String>) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
        self.waiting.tell(match result {
            Ok(words) => format!("done {words}\n"),
            Err(error) => format!("failed: {error}\n"),
        });
    }
}

/// Connects with the daemon of a mount.
fn connect(entry: &MountEntry) -> io::Result<UnixStream> {
    let directory = runtime::directory();
    runtime::refuse_foreign(&directory)?;
    let socket = socket_in(&directory, entry);
    match UnixStream::connect(&socket) {
        // Where another one follows, it is asked when it answers the mount.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            match is_dead_within(&entry.path, SUCCESSION) {
                Some(true) => Err(error),
                Some(false) => UnixStream::connect(&socket),
                None => Err(io::ErrorKind::TimedOut.into()),
            }
        }
        connected => connected,
    }
}

/// Whether somebody serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Somebody does.
    Now,
    /// Its daemon died, and the next one waits for something.
    Later,
    /// Nobody does any more, nor will.
    NoMore,
}

/// Whether the daemon that was asked for a mount is gone, and none is asked in its place yet.
pub fn is_between(entry: &MountEntry) -> bool {
    let connected = UnixStream::connect(socket_in(&runtime::directory(), entry));
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether somebody serves a mount.
pub fn served(entry: &MountEntry) -> Served {
    match is_dead_within(&entry.path, SUCCESSION) {
        Some(true) => Served::NoMore,
        Some(false) => Served::Now,
        // It is busy, or cannot be asked by this user.
        None if !is_between(entry) => Served::Now,
        None => Served::Later,
    }
}

/// Whether a mount has lost its server, as far as that can be told in time: while another one is to follow, nobody answers.
fn is_dead_within(path: &Path, patience: Duration) -> Option<bool> {
    let (tell, told) = mpsc::channel();
    let path = path.to_owned();
    // It may never end, and goes with this process.
    let asked = thread::Builder::new().spawn(move || tell.send(is_dead(&path)));
    asked.ok()?;
    told.recv_timeout(patience).ok()
}

/// That a daemon died, and its successor does not serve yet.
fn late(entry: &MountEntry) -> Failure {
    Failure::new(
        Kind::Busy,
        format!(
            "the daemon of {} has died, and the next one does not serve yet: mostly it waits for room where the image is, \
             so make some there; the log says more",
            shown_path(&entry.path)
        ),
    )
}

fn serve(stream: UnixStream, answers: &dyn Answers, waiting: &Waiting) {
    // A client that says nothing must not keep a thread for ever.
    let _ = stream.set_read_timeout(Some(REQUEST_TIME));
    let Ok((line, descriptors)) = read_request(&stream) else {
        return;
    };
    if line == "wait" {
        waiting.add(stream);
        return;
    }
    let mut out = BufWriter::new(&stream);
    let answered = match Request::parse(&line) {
        Some(request) => answers.answer(&request, descriptors, &mut out),
        None => Err("that is not a request".to_owned()),
    };
    // Who hung up does not want to know.
    let _ = match answered {
        Ok(()) => out.flush(),
        Err(error) => writeln!(out, "failed: {error}").and_then(|()| out.flush()),
    };
}

/// The line that a client sends, and the descriptors beside it.
fn read_request(stream: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    let (mut line, mut descriptors) = (String::new(), Vec::new());
    while let Some(packet) = packets::receive(stream)? {
        line += &packet.text;
        descriptors.extend(packet.descriptors);
        if let Some(whole) = line.strip_suffix('\n') {
            return Ok((whole.to_owned(), descriptors));
        }
        if line.len() > REQUEST_MAX {
            break;
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Tells a client that waits how much of its request is done.
pub fn tell_progress(out: &mut dyn Write, done: u64, total: u64) {
    // Who hung up does not want to know.
    let _ = is_heard(out, done, total);
}

/// As [`tell_progress`], and whether the client still listens.
pub fn is_heard(out: &mut dyn Write, done: u64, total: u64) -> bool {
    let told = writeln!(out, "{PROGRESS}{done} {total}");
    told.and_then(|()| out.flush()).is_ok()
}

fn progress_of(line: &str) -> Option<(u64, u64)> {
    let (done, total) = line.strip_prefix(PROGRESS)?.split_once(' ')?;
    Some((done.parse().ok()?, total.parse().ok()?))
}

/// Asks the daemon of a mount, and reads all that it answers.
///
/// # Errors
///
/// If no daemon listens, the caller may not ask it, or it says why it cannot.
pub fn ask(entry: &MountEntry, request: &Request) -> Result<String, Failure> {
    ask_telling(entry, request, &[], &mut |_, _| {})
}

/// As [`ask`], with descriptors beside the request.
///
/// # Errors
///
/// As [`ask`].
pub fn ask_with(
    entry: &MountEntry,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> Result<String, Failure> {
    ask_telling(entry, request, descriptors, &mut |_, _| {})
}

fn ask_telling(
    entry: &MountEntry,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
    tell: &mut dyn FnMut(u64, u64),
) -> Result<String, Failure> {
    let shown = shown_path(&entry.path);
    let makes_way = matches!(request, Request::Upgrade | Request::Change(_));
    let asked = connect(entry).and_then(|stream| {
        packets::send(stream.as_fd(), &(request.line() + "\n"), descriptors)?;
        let mut answer = String::new();
        for line in BufReader::new(stream).lines() {
            let line = line?;
            match progress_of(&line) {
                Some((done, total)) => tell(done, total),
                None => answer = answer + &line + "\n",
            }
        }
        Ok(answer)
    });
    let answer = asked.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => Failure::new(
            Kind::NoPermission,
            format!("the daemon of {shown} cannot be asked; try as the user who mounted it"),
        ),
        io::ErrorKind::TimedOut => late(entry),
        io::ErrorKind::ConnectionRefused => Failure::new(
            Kind::Io,
            format!("the daemon of {shown} has died; `loamfs unmount` clears the mount"),
        ),
        _ => Failure::new(Kind::Io, format!("the daemon of {shown}: {error}")),
    })?;
    let last = answer.lines().next_back().unwrap_or_default();
    match last.strip_prefix("failed: ") {
        Some(words) => Err(Failure::new(
            Kind::Io,
            format!("the daemon of {shown} says: {words}"),
        )),
        None if last.is_empty() && !makes_way => Err(ended_early(entry)),
        None => Ok(answer),
    }
}

/// That a daemon ended before it was done: it died, or the volume was unmounted.
fn ended_early(entry: &MountEntry) -> Failure {
    let shown = shown_path(&entry.path);
    let died = format!("the daemon of {shown} died before it was done; try again");
    unmounted(entry).unwrap_or_else(|| Failure::new(Kind::Io, died))
}

/// That a mount is gone, if it is.
pub fn unmounted(entry: &MountEntry) -> Option<Failure> {
    let is_it = |other: &MountEntry| (other.device, &other.path) == (entry.device, &entry.path);
    if mounts::ours().iter().any(is_it) {
        return None;
    }
    let shown = shown_path(&entry.path);
    let words = format!("{shown} was unmounted before that was done; what was done so far stays");
    Some(Failure::new(Kind::Io, words))
}

/// As [`ask`], showing how far the daemon is with what is called `name`.
///
/// # Errors
///
/// As [`ask`].
pub fn ask_showing(
    entry: &MountEntry,
    request: &Request,
    name: &'static str,
) -> Result<String, Failure> {
    let mut bar = StepProgress::new();
    let answer = ask_telling(entry, request, &[], &mut |done, total| {
        bar.step(1, name, done, total)
    });
    bar.finish();
    answer
}

/// An answer without the lines that name what could not be gone through, and what these say.
pub fn without_damaged(answer: &str) -> (String, Vec<String>) {
    let (damaged, rest): (Vec<&str>, Vec<&str>) =
        answer.lines().partition(|line| line.starts_with(DAMAGED));
    let damaged = damaged
        .into_iter()
        .filter_map(|line| line.strip_prefix(DAMAGED));
    (rest.join("\n"), damaged.map(str::to_owned).collect())
}

/// The numbers behind `done`.
///
/// # Errors
///
/// If they are not as many.
pub fn figures<const COUNT: usize>(answer: &str) -> Result<[u64; COUNT], Failure> {
    let numbers = all_figures(answer)?;
    numbers.try_into().map_err(|_| unclear())
}

/// As [`figures`], however many they are.
///
/// # Errors
///
/// If there are none.
pub fn all_figures(answer: &str) -> Result<Vec<u64>, Failure> {
    let words = answer.trim_end().strip_prefix("done ");
    let numbers = words.and_then(|words| words.split(' ').map(|word| word.parse().ok()).collect());
    numbers.ok_or_else(unclear)
}

fn unclear() -> Failure {
    Failure::new(Kind::Io, "the daemon does not say how much")
}

/// How a daemon ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// It closed the volume; all its requests to the device, as JSON.
    Closed(String),
    /// It could not; why.
    Failed(String),
    /// It closed the volume, and another one goes on with the mount.
    Followed,
    /// It died before it was done.
    Died,
}

/// A client that waits for the end of a daemon.
pub struct Waiter(BufReader<UnixStream>);

impl Waiter {
    /// Asks to be told; returns when the daemon has taken note.
    ///
    /// # Errors
    ///
    /// As [`ask`].
    pub fn new(entry: &MountEntry) -> io::Result<Self> {
        Self::on(connect(entry)?)
    }

    fn on(mut stream: UnixStream) -> io::Result<Self> {
        writeln!(stream, "wait")?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line == "waiting\n" {
            Ok(Self(reader))
        } else {
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }

    /// Waits until the daemon has let go of the device, or is gone.
    pub fn wait(mut self) -> Ended {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        let line = line.trim_end();
        match (read, line.strip_prefix("done")) {
            (Ok(_), Some(words)) => Ended::Closed(words.trim_start().to_owned()),
            (Ok(_), None) if line == FOLLOWED => Ended::Followed,
            (Ok(_), None) if !line.is_empty() => {
                Ended::Failed(line.trim_start_matches("failed: ").to_owned())
            }
            _ => Ended::Died,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_fs::{Purpose, Tier};

    struct Nobody;

    impl Answers for Nobody {
        fn answer(&self, _: &Request, _: Vec<OwnedFd>, _: &mut dyn Write) -> Result<(), String> {
            Err("nobody is here".to_owned())
        }
    }

    /// A device that was unmounted may be mounted again before its daemon has ended.
    #[test]
    fn a_daemon_that_ends_leaves_its_successors_socket_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("7-0.sock");
        let first = Server::listen(path.clone(), Arc::new(Nobody), Waiting::default()).unwrap();
        let second = Server::listen(path.clone(), Arc::new(Nobody), Waiting::default()).unwrap();
        first.finish(Ok(String::new()));
        assert!(UnixStream::connect(&path).is_ok());
        second.finish(Ok(String::new()));
        assert!(!path.exists());
    }

    #[test]
    fn who_waits_for_a_daemon_that_makes_way_knows_that_it_did_not_die() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("7-0.sock");
        let waiting = Waiting::default();
        let _server = Server::listen(path.clone(), Arc::new(Nobody), waiting.clone()).unwrap();
        let waiter = || Waiter::on(UnixStream::connect(&path).unwrap()).unwrap();
        let before = waiter();
        waiting.tell_followed();
        // Also who comes before that has ended.
        let after = waiter();
        assert_eq!(before.wait(), Ended::Followed);
        assert_eq!(after.wait(), Ended::Followed);
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        for request in [
            Request::Info,
            Request::Fixed,
            Request::Map(77),
            Request::Sync,
            Request::Drop,
            Request::Settle,
            Request::Clean(80),
            Request::Place(2, Placement::Hash),
            Request::On(2, Tier::Fast.into()),
            Request::On(2, Tiering::of_word("256K").unwrap()),
            Request::ScrubStop,
            Request::ScrubStatus,
            Request::ScrubStart(Pace {
                rate: Some(1 << 20),
                anew: false,
            }),
            Request::ScrubStart(Pace {
                rate: None,
                anew: true,
            }),
            Request::Trim([0, u64::MAX, 4096]),
            Request::Label("two words".to_owned()),
            Request::Label(String::new()),
            Request::Freeze,
            Request::Thaw,
            Request::Upgrade,
            Request::Change(Change::Add(Purpose::Fast)),
            Request::Copy(Some(CopyKind::Each)),
            Request::Copy(Some(CopyKind::Behind)),
            Request::Copy(None),
            Request::Leave(3),
            Request::Shrink(1 << 30),
            Request::Stay(0),
            Request::Section(2, None),
            Request::Section(0, Section::new(2 << 20, 64 << 10)),
            Request::Atime(AtimeRule::default()),
            Request::Promise(Promise::Names),
            Request::Atime(AtimeRule {
                when: AtimeWhen::Never,
                directories: false,
            }),
        ] {
            assert_eq!(Request::parse(&request.line()), Some(request));
        }
        assert_eq!(progress_of("progress 3 12"), Some((3, 12)));
        assert_eq!(progress_of("done 3 12"), None);
        assert_eq!(figures("done 3 12\n").unwrap(), [3, 12]);
        assert!(figures::<2>("done 3\n").is_err() && figures::<1>("done\n").is_err());
        for line in [
            "",
            "map",
            "map x",
            "clean",
            "clean x",
            "place 2",
            "place 2 x",
            "place x hash",
            "scrub",
            "scrub start 5",
            "trim 1 2",
            "copy",
            "copy all",
            "extents 0 0",
            "extents 0 4096 5000",
            "frobnicate",
        ] {
            assert_eq!(Request::parse(line), None, "{line}");
        }
    }
}
