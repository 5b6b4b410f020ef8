//! Where the daemon's messages go: standard error while somebody looks at it, then the system's
//! log, or a file where there is no such thing.
//!
//! Whoever reads the log may be waiting for this very volume, so that nobody here waits for them: what cannot be written
//! at once is dropped, and the next message that gets through says how much that was.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::Failure;

/// The variable that says how much is logged, such as `debug` or `loamfs_fs=trace`.
const FILTER_VARIABLE: &str = "LOAMFS_LOG";

/// Where the system's log listens.
const SYSLOG: &str = "/dev/log";

/// The facility "daemon" of syslog(3).
const FACILITY: u8 = 3 << 3;

/// The severity "notice" of syslog(3).
const NOTICE: u8 = 5;

/// The severity of syslog(3) for a level.
const fn severity_of(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Where messages go now, and how many have gone nowhere since the last one that got through.
struct Sink {
    target: Target,
    lost: u64,
}

enum Target {
    Stderr,
    File(File),
    System(SystemLog),
}

/// The system's log, and the file that stands in for it while nobody listens there.
struct SystemLog {
    path: PathBuf,
    fallback: Option<PathBuf>,
    /// Made anew when its listener is another one.
    socket: Option<UnixDatagram>,
}

impl Sink {
    /// Puts a message where it belongs, or counts it as lost.
    fn put(&mut self, severity: u8, message: &[u8]) {
        let mut text = match self.lost {
            0 => String::new(),
            lost => format!("({lost} messages before this one were lost) "),
        }
        .into_bytes();
        text.extend_from_slice(message.trim_ascii());
        self.lost = match self.target.write(severity, &text) {
            Ok(()) => 0,
            Err(_) => self.lost.saturating_add(1),
        };
    }
}

impl Target {
    fn write(&mut self, severity: u8, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Stderr => write_now(io::stderr(), &[text, b"\n"].concat()),
            Self::File(file) => write_now(file, &dated(text)),
            Self::System(log) => log.write(severity, text),
        }
    }
}

impl SystemLog {
    fn write(&mut self, severity: u8, text: &[u8]) -> io::Result<()> {
        let intro = format!("<{}>loamfs[{}]: ", FACILITY | severity, std::process::id());
        let packet = [intro.as_bytes(), text].concat();
        match self.send(&packet) {
            // There is a listener, who does not keep up.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error),
            Err(error) => {
                let file = self.fallback.as_ref().ok_or(error)?;
                write_now(opened(file, OFlags::NOFOLLOW)?, &dated(text))
            }
            Ok(()) => Ok(()),
        }
    }

    fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            match socket.send(packet) {
                // Whoever listened has gone; somebody else may be there.
                Err(error) if error.kind() != ErrorKind::WouldBlock => self.socket = None,
                sent => return sent.map(drop),
            }
        }
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(&self.path)?;
        self.socket.insert(socket).send(packet).map(drop)
    }
}

/// A line for a file.
fn dated(text: &[u8]) -> Vec<u8> {
    let time = loamfs_fs::Env::system().clock.now();
    let intro = format!("{} UTC ", crate::time::short(time));
    [intro.as_bytes(), text, b"\n"].concat()
}

fn opened(file: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(flags.bits().cast_signed())
        .open(file)
}

/// Writes a line, unless that had to wait, as for a pipe that nobody empties. The flag that says so to the kernel would be
/// seen by everybody who shares a standard error.
fn write_now(mut to: impl Write + AsFd, line: &[u8]) -> io::Result<()> {
    let mut asked = [PollFd::new(&to, PollFlags::OUT)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut asked, Some(&at_once))?;
    if !asked[0].revents().contains(PollFlags::OUT) {
        return Err(ErrorKind::WouldBlock.into());
    }
    to.write_all(line)
}

/// The log of this process.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Sink>>);

impl Log {
    /// Starts logging to standard error.
    pub fn start() -> Self {
        let log = Self(Arc::new(Mutex::new(Sink {
            target: Target::Stderr,
            lost: 0,
        })));
        let filter =
            EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .with_writer(log.clone())
            .finish();
        // Only a second call could fail, and the first one's log is as good.
        let _ = tracing::subscriber::set_global_default(subscriber);
        log
    }

    /// From now on to `file`, if one was asked for.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn to_file(&self, file: &Path) -> Result<(), Failure> {
        let opened = opened(file, OFlags::empty()).map_err(|error| Failure::io(file, &error))?;
        self.sink().target = Target::File(opened);
        Ok(())
    }

    /// From now on away from standard error: to the system's log, or to the file `fallback`, if it may be
    /// written, while there is none. Does nothing if a file was chosen.
    pub fn leave_stderr(&self, fallback: Option<&Path>) {
        let mut sink = self.sink();
        if matches!(sink.target, Target::Stderr) {
            sink.target = Target::System(SystemLog {
                path: SYSLOG.into(),
                fallback: fallback.map(Path::to_owned),
                socket: None,
            });
        }
    }

    fn line(&self, severity: u8) -> Line<'_> {
        Line {
            log: self,
            severity,
            bytes: Vec::new(),
        }
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        self.line(NOTICE)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        self.line(severity_of(*meta.level()))
    }
}

/// One message, which goes out in one piece when it is dropped.
pub struct Line<'a> {
    log: &'a Log,
    /// As syslog(3) counts.
    severity: u8,
    bytes: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.log.sink().put(self.severity, &self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// A system's log of the test's own.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn sink(&self) -> Sink {
            Sink {
                target: Target::System(SystemLog {
                    path: self.0.path().join("log"),
                    fallback: Some(self.0.path().join("fallback")),
                    socket: None,
                }),
                lost: 0,
            }
        }

        fn listen(&self) -> UnixDatagram {
            let path = self.0.path().join("log");
            let _ = std::fs::remove_file(&path);
            let listener = UnixDatagram::bind(path).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        }

        fn fallback(&self) -> String {
            std::fs::read_to_string(self.0.path().join("fallback")).unwrap_or_default()
        }
    }

    /// What is there to be read, without what comes before the text.
    fn received(listener: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 200];
        std::iter::from_fn(|| {
            let length = listener.recv(&mut buffer).ok()?;
            let packet = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let (intro, text) = packet.split_once("]: ").unwrap();
            assert_eq!(intro, format!("<29>loamfs[{}", std::process::id()));
            Some(text.to_owned())
        })
        .collect()
    }

    #[test]
    fn nobody_waits_for_a_log_that_nobody_reads() {
        const MESSAGES: usize = 10_000;
        let place = Place::new();
        let (mut sink, listener) = (place.sink(), place.listen());
        for number in 0..MESSAGES {
            sink.put(NOTICE, format!("message {number}\n").as_bytes());
        }
        let arrived = received(&listener);
        assert_eq!(arrived[0], "message 0");
        sink.put(NOTICE, b"next\n");
        sink.put(NOTICE, b"last\n");
        let lost = MESSAGES - arrived.len();
        assert!(lost > 0);
        let words = format!("({lost} messages before this one were lost) next");
        assert_eq!(received(&listener), [words.as_str(), "last"]);
        assert_eq!(place.fallback(), "");
    }

    #[test]
    fn a_log_that_comes_again_is_found() {
        let place = Place::new();
        let mut sink = place.sink();
        let first = place.listen();
        sink.put(NOTICE, b"one\n");
        assert_eq!(received(&first), ["one"]);
        // Gone, and its name still there.
        drop(first);
        sink.put(NOTICE, b"two\n");
        assert!(place.fallback().ends_with(" UTC two\n"));
        let second = place.listen();
        sink.put(NOTICE, b"three\n");
        assert_eq!(received(&second), ["three"]);
        // Another one between two messages, with some that nobody has read.
        sink.put(NOTICE, b"unread\n");
        drop(second);
        let third = place.listen();
        sink.put(NOTICE, b"four\n");
        assert_eq!(received(&third), ["four"]);
        assert_eq!((place.fallback().lines().count(), sink.lost), (1, 0));
    }

    #[test]
    fn a_message_too_large_for_the_system_s_log_is_in_the_file() {
        let place = Place::new();
        let (mut sink, listener) = (place.sink(), place.listen());
        sink.put(NOTICE, &[b'x'; 4 << 20]);
        assert!(place.fallback().ends_with("xxx\n"));
        sink.put(NOTICE, b"small\n");
        assert_eq!(received(&listener), ["small"]);
    }

    #[test]
    fn nobody_waits_for_a_full_pipe() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let written = std::iter::from_fn(|| write_now(&writer, &[b'x'; 1000]).ok());
        assert!(written.take(10_000).count() < 10_000);
        let file = File::from(OwnedFd::from(writer));
        let mut sink = Sink {
            target: Target::File(file),
            lost: 0,
        };
        sink.put(NOTICE, b"lost");
        assert_eq!(sink.lost, 1);
    }
}
