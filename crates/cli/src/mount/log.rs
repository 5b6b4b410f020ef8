//! Where the daemon's messages go: standard error while somebody looks at it, then the system's
//! log, or a file where there is no such thing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

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

enum Target {
    Stderr,
    Syslog(UnixDatagram),
    File(File),
}

/// Where messages go now.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Target>>);

impl Log {
    /// Starts logging to standard error.
    pub fn start() -> Self {
        let log = Self(Arc::new(Mutex::new(Target::Stderr)));
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
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .open(file)
            .map_err(|error| Failure::io(file, &error))?;
        self.set(Target::File(file));
        Ok(())
    }

    /// From now on away from standard error: to the system's log, or to `fallback` where there is
    /// none. Does nothing if a file was chosen.
    pub fn leave_stderr(&self, fallback: &Path) {
        let chosen = !matches!(
            &*self.0.lock().unwrap_or_else(PoisonError::into_inner),
            Target::Stderr
        );
        if chosen {
            return;
        }
        let syslog = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(SYSLOG)?;
            Ok(socket)
        });
        match syslog {
            Ok(socket) => self.set(Target::Syslog(socket)),
            // Without either, messages are lost; that must not end a mount.
            Err(_) => _ = self.to_file(fallback),
        }
    }

    fn line(&self, severity: u8) -> Line<'_> {
        Line {
            log: self,
            severity,
            bytes: Vec::new(),
        }
    }

    fn set(&self, target: Target) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = target;
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
        if self.bytes.is_empty() {
            return;
        }
        let mut target = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        // There is nowhere to say that a message could not be written.
        let _ = match &mut *target {
            Target::Stderr => io::stderr().write_all(&self.bytes),
            Target::File(file) => {
                let time = loamfs_fs::Env::system().clock.now();
                let mut line = format!("{} UTC ", crate::time::short(time)).into_bytes();
                line.extend_from_slice(&self.bytes);
                file.write_all(&line)
            }
            Target::Syslog(socket) => {
                let mut packet = format!(
                    "<{}>loamfs[{}]: ",
                    FACILITY | self.severity,
                    std::process::id()
                )
                .into_bytes();
                packet.extend_from_slice(self.bytes.trim_ascii());
                socket.send(&packet).map(|_| ())
            }
        };
    }
}
