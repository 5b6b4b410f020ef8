//! Where the daemon's messages go: standard error while somebody looks at it, then the system's
//! log, or a file where there is no such thing.
//!
//! Whoever reads the log may be waiting for this very volume, so that nobody here waits for them. What cannot be written
//! at once is dropped, and the next message that gets through says how much that was. Nor does what others make go wrong
//! over and over fill the system. Of one kind of message only so many are written, and a file is begun anew when it is
//! large.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use tracing::callsite::Identifier;
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

/// How many messages from one place in the program are written at once; then one a second.
const AT_ONCE: u32 = 100;

/// Bytes after which a file is put aside, in the place of the one before.
const FILE_MAX: u64 = 8 << 20;

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

/// How many messages of one place may be written now.
struct Pace {
    left: u32,
    /// When `left` last grew.
    since: Instant,
    withheld: u64,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self {
            left: AT_ONCE,
            since: now,
            withheld: 0,
        }
    }

    /// Whether another message may be written; then how many were not since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let seconds = now.duration_since(self.since).as_secs();
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(AT_ONCE);
            self.left = self.left.saturating_add(more).min(AT_ONCE);
            self.since = now;
        }
        if self.left == 0 {
            self.withheld += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.withheld))
    }
}

enum Target {
    Stderr,
    File { file: File, path: PathBuf },
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
            Self::File { file, path } => {
                if is_full(file) {
                    match put_aside(file, path).and_then(|()| opened(path, OFlags::empty())) {
                        Ok(fresh) => *file = fresh,
                        // It may lie where this process cannot rename.
                        Err(_) => file.set_len(0)?,
                    }
                }
                write_now(file, &dated(text))
            }
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
                let path = self.fallback.as_ref().ok_or(error)?;
                let mut file = opened(path, OFlags::NOFOLLOW)?;
                if is_full(&file) {
                    put_aside(&file, path)?;
                    file = opened(path, OFlags::NOFOLLOW)?;
                }
                write_now(file, &dated(text))
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
    let intro = format!("{} UTC ", loamfs_console::time::short(time.seconds));
    [intro.as_bytes(), text, b"\n"].concat()
}

fn is_full(file: &File) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.len() >= FILE_MAX)
}

/// Gives a file of messages another name, so that the next ones go into a new one. The daemon and the process that unmounts
/// for it share a log: the other one may have done so already.
fn put_aside(file: &File, path: &Path) -> io::Result<()> {
    let number = |found: fs::Metadata| (found.dev(), found.ino());
    let named = std::fs::metadata(path).map(number);
    if named.is_ok_and(|named| file.metadata().is_ok_and(|open| number(open) != named)) {
        return Ok(());
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(".old");
    std::fs::rename(path, aside)
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
pub struct Log {
    sink: Arc<Mutex<Sink>>,
    /// Of each place in the program that had something to say.
    paces: Arc<Mutex<HashMap<Identifier, Pace>>>,
}

impl Log {
    fn to(target: Target) -> Self {
        Self {
            sink: Arc::new(Mutex::new(Sink { target, lost: 0 })),
            paces: Arc::default(),
        }
    }

    /// Starts logging to standard error.
    pub fn start() -> Self {
        let log = Self::to(Target::Stderr);
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
        self.sink().target = Target::File {
            file: opened,
            path: file.to_owned(),
        };
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

    fn line(&self, severity: u8, withheld: Option<u64>) -> Line<'_> {
        Line {
            log: self,
            severity,
            withheld,
            bytes: Vec::new(),
        }
    }

    /// Whether a message from this place may be written, and how many were not before it.
    fn admit(&self, place: Identifier) -> Option<u64> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let pace = paces.entry(place).or_insert_with(|| Pace::new(now));
        pace.admit(now)
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        self.line(NOTICE, Some(0))
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        self.line(severity_of(*meta.level()), self.admit(meta.callsite()))
    }
}

/// One message, which goes out in one piece when it is dropped.
pub struct Line<'a> {
    log: &'a Log,
    /// As syslog(3) counts.
    severity: u8,
    /// How many messages from the same place were not written before it; nothing if it is not either.
    withheld: Option<u64>,
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
        let Some(withheld) = self.withheld else {
            return;
        };
        if self.bytes.is_empty() {
            return;
        }
        if withheld > 0 {
            let more = format!("({withheld} more like the next one were left out) ");
            self.bytes.splice(..0, more.into_bytes());
        }
        self.log.sink().put(self.severity, &self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

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
    fn of_one_kind_there_are_only_so_many() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let written = (0..1000).filter(|_| pace.admit(start).is_some()).count();
        assert_eq!(written, AT_ONCE as usize);
        // The next one tells of the others, the one behind it does not again.
        let later = start + Duration::from_secs(2);
        assert_eq!(pace.admit(later), Some(900));
        assert_eq!(pace.admit(later), Some(0));
        assert_eq!(pace.admit(later), None);
    }

    #[test]
    fn a_file_that_is_large_is_put_aside() {
        let place = Place::new();
        let path = place.0.path().join("file");
        let log = Log::to(Target::Stderr);
        log.to_file(&path).unwrap();
        let message = vec![b'x'; 1 << 20];
        let written = FILE_MAX / message.len() as u64 + 3;
        for _ in 0..written {
            log.sink().put(NOTICE, &message);
        }
        let lengths = [path.clone(), path.with_extension("old")]
            .map(|path| std::fs::metadata(path).unwrap().len());
        assert!(
            lengths.iter().all(|&len| len <= FILE_MAX + (2 << 20)),
            "{lengths:?}"
        );
        assert!(lengths.iter().sum::<u64>() >= written << 20, "{lengths:?}");
        // The same of the file in the place of the system's log.
        let mut sink = place.sink();
        for _ in 0..written {
            sink.put(NOTICE, &message);
        }
        assert!(place.fallback().len() < FILE_MAX as usize);
        assert!(place.0.path().join("fallback.old").exists());
    }

    #[test]
    fn of_two_who_share_a_file_one_puts_it_aside() {
        let place = Place::new();
        let path = place.0.path().join("file");
        let (one, other) = (Log::to(Target::Stderr), Log::to(Target::Stderr));
        one.to_file(&path).unwrap();
        other.to_file(&path).unwrap();
        let mut full = opened(&path, OFlags::empty()).unwrap();
        full.write_all(&vec![b'x'; FILE_MAX as usize]).unwrap();
        one.sink().put(NOTICE, b"one");
        other.sink().put(NOTICE, b"other");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| &line[line.len() - 5..]).collect();
        assert_eq!(lines, ["C one", "other"]);
        let aside = std::fs::metadata(path.with_extension("old")).unwrap();
        assert_eq!(aside.len(), FILE_MAX);
    }

    #[test]
    fn a_large_file_that_cannot_be_put_aside_is_begun_anew() {
        let place = Place::new();
        let directory = place.0.path().join("gone");
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("file");
        let log = Log::to(Target::Stderr);
        log.to_file(&path).unwrap();
        let written = File::open(&path).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let message = vec![b'x'; 1 << 20];
        for _ in 0..FILE_MAX / message.len() as u64 + 3 {
            log.sink().put(NOTICE, &message);
        }
        assert_eq!(log.sink().lost, 0);
        let len = written.metadata().unwrap().len();
        assert!((1 << 20..FILE_MAX).contains(&len), "{len}");
    }

    #[test]
    fn nobody_waits_for_a_full_pipe() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let written = std::iter::from_fn(|| write_now(&writer, &[b'x'; 1000]).ok());
        assert!(written.take(10_000).count() < 10_000);
        let file = File::from(OwnedFd::from(writer));
        let mut sink = Sink {
            target: Target::File {
                file,
                path: PathBuf::new(),
            },
            lost: 0,
        };
        sink.put(NOTICE, b"lost");
        assert_eq!(sink.lost, 1);
    }
}
