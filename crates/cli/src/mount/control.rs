//! How other commands talk to a mount's daemon: a socket beside the mount.
//!
//! A client sends one word and a newline:
//! - `info`: the daemon answers with its report as JSON and hangs up;
//! - `sync`: it makes everything durable, answers `done` and hangs up;
//! - `wait`: it answers when it is about to exit, the volume closed and the device let go:
//!   `done`, or `failed: ` and a sentence.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use loamfs_fuse::MountEntry;
use rustix::process::geteuid;

/// Longest request, in bytes.
const REQUEST_MAX: u64 = 64;

/// How long a client may take to say what it wants.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// What the daemon answers with.
pub trait Answers: Send + Sync {
    /// The report, as JSON.
    fn info(&self) -> String;
    /// Makes everything durable.
    ///
    /// # Errors
    ///
    /// A sentence that says why not.
    fn sync(&self) -> Result<(), String>;
}

/// Where daemons of this user keep their sockets and, without a system log, their logs.
pub fn directory() -> PathBuf {
    if geteuid().is_root() {
        return "/run/loamfs".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(path) if Path::new(&path).is_absolute() => Path::new(&path).join("loamfs"),
        _ => format!("/tmp/loamfs-{}", geteuid().as_raw()).into(),
    }
}

/// The name that a mount goes by in [`directory`].
pub fn name_of(entry: &MountEntry) -> String {
    let (major, minor) = entry.device;
    format!("{major}-{minor}")
}

fn socket_of(entry: &MountEntry) -> PathBuf {
    directory().join(name_of(entry) + ".sock")
}

/// The daemon's end.
pub struct Server {
    path: PathBuf,
    waiting: Arc<Mutex<Vec<UnixStream>>>,
}

impl Server {
    /// Listens beside the mount `entry`.
    ///
    /// # Errors
    ///
    /// What the system said; a mount works without this.
    pub fn start(entry: &MountEntry, answers: Arc<dyn Answers>) -> io::Result<Self> {
        let path = socket_of(entry);
        make_directory()?;
        // A daemon that was killed leaves its socket behind.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let inner = Arc::clone(&waiting);
        thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (answers, waiting) = (Arc::clone(&answers), Arc::clone(&inner));
                    let serve = move || serve(stream, &*answers, &waiting);
                    // Without a thread this client is turned away.
                    let _ = thread::Builder::new().name("client".into()).spawn(serve);
                }
            })?;
        Ok(Self { path, waiting })
    }

    /// Tells those who wait how it ended, and closes the socket's name.
    pub fn finish(self, result: Result<(), &str>) {
        let _ = fs::remove_file(&self.path);
        let text = match result {
            Ok(()) => "done\n".to_owned(),
            Err(error) => format!("failed: {error}\n"),
        };
        for mut stream in self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // Who hung up does not want to know.
            let _ = stream.write_all(text.as_bytes());
        }
    }
}

/// Makes the directory, for this user alone.
fn make_directory() -> io::Result<()> {
    let path = directory();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)?;
    let metadata = fs::symlink_metadata(&path)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        // Below /tmp anybody could have made it.
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

fn serve(stream: UnixStream, answers: &dyn Answers, waiting: &Mutex<Vec<UnixStream>>) {
    // A client that says nothing must not keep a thread for ever.
    let _ = stream.set_read_timeout(Some(REQUEST_TIME));
    let mut word = String::new();
    if BufReader::new((&stream).take(REQUEST_MAX))
        .read_line(&mut word)
        .is_err()
    {
        return;
    }
    let answer = match word.trim_end() {
        "info" => answers.info(),
        "sync" => match answers.sync() {
            Ok(()) => "done\n".to_owned(),
            Err(error) => format!("failed: {error}\n"),
        },
        "wait" => {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            // So that the client knows that it will be told.
            if (&stream).write_all(b"waiting\n").is_ok() {
                waiting.push(stream);
            }
            return;
        }
        _ => "failed: that is not a request\n".to_owned(),
    };
    let _ = (&stream).write_all(answer.as_bytes());
}

/// Asks the daemon of a mount, and reads all that it answers.
///
/// # Errors
///
/// If no daemon listens, or the caller may not ask it.
pub fn ask(entry: &MountEntry, word: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket_of(entry))?;
    writeln!(stream, "{word}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
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
        let mut stream = UnixStream::connect(socket_of(entry))?;
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

    /// Waits until the daemon has let go of the device.
    ///
    /// # Errors
    ///
    /// What went wrong when it closed the volume, or that it died.
    pub fn wait(mut self) -> Result<(), String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(_) if line == "done\n" => Ok(()),
            Ok(_) if !line.is_empty() => {
                Err(line.trim_start_matches("failed: ").trim_end().to_owned())
            }
            _ => Err("the daemon died before it was done; the next mount recovers".to_owned()),
        }
    }
}
