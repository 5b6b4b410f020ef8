//! The process that takes a mount out of the tree, since its daemon has given up what that takes ([`super::confine`]).
//!
//! It is told by packets, and answers each with one: `done`, or why not. In the background it is the daemon's supervisor,
//! at the other end of the daemon's standard input, which keeps descriptors for a successor too
//! ([`super::supervisor`]). Else it is a child of the daemon's. It ends with the daemon.
//!
//! Wishes of a mount's have a connection and a thread of their own: a mount that ends waits for its daemon, which may have
//! something else to say before it can answer.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use loamfs_fuse::{MountEntry, NodeId, detach, unmount};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mount::UnmountFlags;
use rustix::process::geteuid;
use rustix::stdio::stdin;

use super::keep::{Keep, What};
use super::log::Log;
use super::packets::{self, Packet};
use super::spec::Spec;
use super::words::Words;
use super::{signals, spawn};
use crate::failure::{Failure, Kind};
use crate::mounts;
use crate::text::shown_path;

/// Contents in one packet at most: three numbers each.
const FORGET_MAX: usize = packets::BYTES_MAX / (3 * 21) - 1;

/// What it is asked for of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The end of the mount, wherever it is seen: who uses it is cut off.
    End,
    /// To take it out of the tree; it ends when nobody uses it any more.
    Detach,
}

impl Wish {
    const WORDS: Words<Self> = Words(&[("end", Self::End), ("detach", Self::Detach)]);
}

/// Has the connection that comes with it serve wishes.
const WISHES: &str = "wishes";

/// The daemon's way to that process.
pub struct Unmounter {
    socket: Mutex<OwnedFd>,
    /// The way of wishes, where the other process is not of an earlier version.
    wishes: Option<Mutex<OwnedFd>>,
}

impl Unmounter {
    /// The supervisor of a daemon in the background.
    ///
    /// # Errors
    ///
    /// If standard input cannot be had.
    pub fn supervisor() -> io::Result<Self> {
        Ok(Self::at(standard_input()?))
    }

    /// A child of this process, with these arguments.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(arguments: &[OsString]) -> io::Result<Self> {
        let (ours, theirs) = packets::pair()?;
        // Whoever waits for the end of what the daemon says does not wait for this one.
        spawn::own(arguments)
            .stdin(theirs)
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self::at(ours))
    }

    fn at(socket: OwnedFd) -> Self {
        let wishes = wishes(&socket).inspect_err(|error| {
            tracing::debug!("no connection for wishes: {error}");
        });
        Self {
            socket: Mutex::new(socket),
            wishes: wishes.ok().map(Mutex::new),
        }
    }

    /// Has it take away the mount of this device number.
    ///
    /// # Errors
    ///
    /// Why it cannot, or that it is gone.
    pub fn ask(&self, wish: Wish, (major, minor): (u32, u32)) -> Result<(), String> {
        let words = format!("{} {major}:{minor}", Wish::WORDS.word(wish));
        let way = self.wishes.as_ref().unwrap_or(&self.socket);
        tell(&locked(way), &words, &[])
    }

    /// Has the supervisor keep descriptors for a successor, instead of those that it kept as the same.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn keep(&self, what: What, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        let mut parts = descriptors.chunks(packets::DESCRIPTORS_MAX);
        let word = What::WORDS.word(what);
        self.tell(&format!("keep {word}"), parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| self.tell(&format!("keep-more {word}"), part))
    }

    /// Tells the supervisor something: that the mount with a device number is `served`, or that it is `over`, that something
    /// has `failed`, or to `upgrade`.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn say(&self, word: &str) -> Result<(), String> {
        self.tell(word, &[])
    }

    /// Has the supervisor have the kernel forget, soon, content of files.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn forget(&self, contents: &[(NodeId, Range<u64>)]) -> Result<(), String> {
        let mut parts = contents.chunks(FORGET_MAX);
        parts.try_for_each(|part| {
            let words = part.iter().map(|(node, range)| {
                let (start, end) = (range.start, range.end);
                format!(" {node} {start} {end}", node = node.0)
            });
            self.say(&format!("forget{}", words.collect::<String>()))
        })
    }

    /// What ends when the kernel has forgotten all that it was to forget so far.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn when_forgotten(&self) -> Result<OwnedFd, String> {
        let (ours, theirs) = packets::pair().map_err(|error| error.to_string())?;
        self.tell("forgotten", &[theirs.as_fd()])?;
        Ok(ours)
    }

    /// What the supervisor kept.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn take(&self) -> Result<Keep, String> {
        let socket = locked(&self.socket);
        let failed = |error: io::Error| error.to_string();
        packets::send(&*socket, "take", &[]).map_err(failed)?;
        let mut kept = Keep::default();
        loop {
            match packets::receive(&*socket).map_err(failed)? {
                Some(packet) if packet.text == "done" => return Ok(kept),
                Some(packet) => kept.note(packet)?,
                None => return Err(gone()),
            }
        }
    }

    fn tell(&self, words: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
        tell(&locked(&self.socket), words, descriptors)
    }
}

/// A connection of its own for wishes. It is made before the daemon is confined, which makes none afterwards.
fn wishes(socket: &OwnedFd) -> Result<OwnedFd, String> {
    let (ours, theirs) = packets::pair().map_err(|error| error.to_string())?;
    tell(socket, WISHES, &[theirs.as_fd()])?;
    Ok(ours)
}

fn locked(way: &Mutex<OwnedFd>) -> MutexGuard<'_, OwnedFd> {
    way.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(socket: &OwnedFd, words: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
    let answer = packets::send(socket, words, descriptors).and_then(|()| packets::receive(socket));
    match answer {
        Ok(Some(packet)) if packet.text == "done" => Ok(()),
        Ok(Some(packet)) => Err(packet.text),
        _ => Err(gone()),
    }
}

fn gone() -> String {
    "the process that unmounts is gone".to_owned()
}

/// Does what the daemon at the other end asks for, until that ends. What is no wish of a mount's is for `otherwise`.
pub fn serve(socket: &OwnedFd, mut otherwise: impl FnMut(Packet) -> Result<(), String>) {
    let mut has_wishes = false;
    answer(socket, |packet| match carried_out(&packet.text) {
        Some(result) => result,
        // One is enough: whoever went wrong must not have as many threads as he likes.
        None if packet.text == WISHES && !has_wishes => {
            has_wishes = true;
            serve_wishes(packet)
        }
        None => otherwise(packet),
    });
}

/// Serves the connection that came with a packet, beside what the daemon says otherwise.
fn serve_wishes(packet: Packet) -> Result<(), String> {
    let socket = packet.descriptors.into_iter().next();
    let socket = socket.ok_or("there is no connection")?;
    let wish = |packet: Packet| {
        let result = carried_out(&packet.text);
        result.unwrap_or_else(|| Err("that is no wish".to_owned()))
    };
    let spawned = thread::Builder::new()
        .name("wishes".into())
        .spawn(move || answer(&socket, wish));
    spawned
        .map(drop)
        .map_err(|error| format!("no thread can be started: {error}"))
}

/// Answers what comes, until the other end is gone.
fn answer(socket: &OwnedFd, mut result_of: impl FnMut(Packet) -> Result<(), String>) {
    while let Ok(Some(packet)) = packets::receive(socket) {
        let words = result_of(packet).err();
        let words = words.unwrap_or_else(|| "done".to_owned());
        // The daemon may have ended by it.
        let _ = packets::send(socket, &words, &[]);
    }
}

/// How a wish of a mount's ended; `None` if it is none.
fn carried_out(words: &str) -> Option<Result<(), String>> {
    let (wish, device) = parse(words)?;
    let views = views(device);
    Some(match wish {
        Wish::End => end(&views),
        Wish::Detach => views.iter().try_for_each(|view| detached(view)),
    })
}

/// As [`serve`], for the daemon at the other end of standard input.
///
/// # Errors
///
/// If that cannot be had.
pub fn run(spec: &Spec, log: &Log) -> Result<(), Failure> {
    signals::outlive()?;
    if let Some(file) = &spec.options.daemon.log {
        log.to_file(file)?;
    }
    let parent = standard_input().map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
    serve(&parent, |_| {
        Err("no other daemon can follow that of this mount; unmount it first".to_owned())
    });
    Ok(())
}

/// Standard input, where the other process is. No program that is started from here inherits this descriptor.
fn standard_input() -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(stdin(), 3)?)
}
fn parse(line: &str) -> Option<(Wish, (u32, u32))> {
    let (word, numbers) = line.split_once(' ')?;
    Some((Wish::WORDS.value(word)?, device_of(numbers)?))
}

/// A device number as packets have it.
pub fn device_of(numbers: &str) -> Option<(u32, u32)> {
    let (major, minor) = numbers.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where the mount is seen. Nothing but mounts of LoamFS is ever taken away.
fn views(device: (u32, u32)) -> Vec<PathBuf> {
    let is_it = |entry: &MountEntry| entry.device == device;
    let views = mounts::ours().into_iter().filter(is_it);
    views.map(|entry| entry.path).collect()
}

fn detached(view: &Path) -> Result<(), String> {
    detach(view).map_err(|error| error.to_string())
}

/// Unmounts; if files are still open, writes everything out and cuts them off, because whoever wants it will not wait.
fn end(views: &[PathBuf]) -> Result<(), String> {
    let Some((last, others)) = views.split_last() else {
        return Err("it is not in the mount table".to_owned());
    };
    // Who uses a view that is taken out of the tree keeps the whole mount alive.
    let in_use = others.iter().filter(|view| !leave(view)).count() > 0;
    if !in_use && unmount(last).is_ok() {
        return Ok(());
    }
    tracing::warn!("{} is in use; cutting off who uses it", shown_path(last));
    // Brings dirty pages of mapped files to the daemon while it still listens.
    if let Ok(directory) = File::open(last)
        && let Err(error) = rustix::fs::syncfs(&directory)
    {
        tracing::warn!("cannot sync before the end: {error}");
    }
    if !geteuid().is_root() {
        return cut_off(last);
    }
    // FORCE ends the connection although files are open, DETACH the mount.
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
    rustix::mount::unmount(last, flags).map_err(|error| error.to_string())
}

/// Takes a view away that is not the last one. Returns whether nobody uses it any more.
fn leave(view: &Path) -> bool {
    if unmount(view).is_ok() {
        return true;
    }
    if let Err(error) = detach(view) {
        tracing::warn!("{error}");
    }
    false
}

/// What root does with FORCE an ordinary user does through the control file system.
fn cut_off(mountpoint: &Path) -> Result<(), String> {
    let entry = mounts::ours()
        .into_iter()
        .rfind(|entry| entry.path == mountpoint);
    detach(mountpoint).map_err(|error| error.to_string())?;
    let (_, minor) = entry.ok_or("it is not in the mount table")?.device;
    let abort = format!("/sys/fs/fuse/connections/{minor}/abort");
    fs::write(&abort, "1").map_err(|error| format!("{abort}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use super::*;

    /// Long enough for whatever does not hang.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn waited(until: &Receiver<()>) -> Result<(), String> {
        until.recv_timeout(PATIENCE).map_err(|_| "in vain".into())
    }

    #[test]
    fn wishes_are_read_as_they_were_written() {
        assert_eq!(parse("end 7:12"), Some((Wish::End, (7, 12))));
        assert_eq!(parse("detach 0:50"), Some((Wish::Detach, (0, 50))));
        for line in ["", "end", "end 7", "end x:1", "leave 7:1"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_not_mounted_cannot_be_ended_and_the_end_of_the_other_is_noticed() {
        let (ours, theirs) = packets::pair().unwrap();
        let server = std::thread::spawn(move || serve(&theirs, |_| Ok(())));
        let unmounter = Unmounter::at(ours);
        // No device has that number.
        let said = unmounter.ask(Wish::End, (0, u32::MAX)).unwrap_err();
        assert_eq!(said, "it is not in the mount table");
        drop(unmounter);
        server.join().unwrap();
        let (ours, theirs) = packets::pair().unwrap();
        drop(theirs);
        let said = Unmounter::at(ours).ask(Wish::End, (0, 1)).unwrap_err();
        assert_eq!(said, "the process that unmounts is gone");
    }

    /// A supervisor where a mount ends once its daemon has said something else.
    struct Slow {
        begins: Sender<()>,
        says: Sender<()>,
        said: Mutex<Receiver<()>>,
    }

    impl Slow {
        fn serve(self: Arc<Self>, socket: OwnedFd) {
            while let Ok(Some(packet)) = packets::receive(&socket) {
                let answer = match packet.text.split(' ').next() {
                    Some(WISHES) => {
                        for socket in packet.descriptors {
                            let slow = Arc::clone(&self);
                            thread::spawn(move || slow.serve(socket));
                        }
                        Ok(())
                    }
                    Some("end") => {
                        self.begins.send(()).unwrap();
                        waited(&self.said.lock().unwrap())
                    }
                    _ => self.says.send(()).map_err(|error| error.to_string()),
                };
                let words = answer.err().unwrap_or_else(|| "done".to_owned());
                packets::send(&socket, &words, &[]).unwrap();
            }
        }
    }

    #[test]
    fn the_end_of_a_mount_keeps_nobody_from_saying_something() {
        let (ours, theirs) = packets::pair().unwrap();
        let ((begins, has_begun), (says, said)) = (mpsc::channel(), mpsc::channel());
        let said = Mutex::new(said);
        let slow = Arc::new(Slow { begins, says, said });
        thread::spawn(move || slow.serve(theirs));
        let unmounter = Unmounter::at(ours);
        thread::scope(|scope| {
            let ended = scope.spawn(|| unmounter.ask(Wish::End, (0, 1)));
            waited(&has_begun).unwrap();
            assert_eq!(unmounter.say("failed x"), Ok(()));
            assert_eq!(ended.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn wishes_are_served_beside_other_words() {
        let (ours, theirs) = packets::pair().unwrap();
        let ((begins, has_begun), (ends, has_ended)) = (mpsc::channel(), mpsc::channel());
        let server = thread::spawn(move || {
            serve(&theirs, |_| {
                begins.send(()).unwrap();
                waited(&has_ended)
            });
        });
        let unmounter = Unmounter::at(ours);
        thread::scope(|scope| {
            let said = scope.spawn(|| unmounter.say("failed x"));
            waited(&has_begun).unwrap();
            let said_of_it = unmounter.ask(Wish::End, (0, u32::MAX)).unwrap_err();
            assert_eq!(said_of_it, "it is not in the mount table");
            ends.send(()).unwrap();
            assert_eq!(said.join().unwrap(), Ok(()));
        });
        drop(unmounter);
        server.join().unwrap();
    }

    #[test]
    fn a_daemon_has_one_connection_for_wishes() {
        let (ours, theirs) = packets::pair().unwrap();
        thread::spawn(move || serve(&theirs, |_| Err("what?".to_owned())));
        let first = wishes(&ours).unwrap();
        assert_eq!(wishes(&ours).err().as_deref(), Some("what?"));
        assert_eq!(wishes(&first).err().as_deref(), Some("that is no wish"));
    }
}
