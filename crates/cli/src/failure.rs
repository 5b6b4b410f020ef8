//! Why a command failed: one sentence for a person, and an exit code for a script.

use std::fmt;
use std::io;
use std::path::Path;

use loamfs_check::CheckError;
pub use loamfs_console::{Front, Kind};
use loamfs_device::DeviceError;
use loamfs_format::superblock::SuperblockError;
use loamfs_fs::{Error, LogError, MembersError};
use rustix::io::Errno;

use crate::text::shown_path;

/// A failure: what kind, and a sentence that says what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// Its kind.
    kind: Kind,
    message: String,
}

impl Failure {
    /// A failure of a kind, in these words.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Its kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// A mistake on the command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The system refused something about a path.
    pub fn io(path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NoInput,
            io::ErrorKind::PermissionDenied => Kind::NoPermission,
            io::ErrorKind::AlreadyExists => Kind::CannotCreate,
            io::ErrorKind::ResourceBusy => Kind::Busy,
            _ => Kind::Io,
        };
        let shown = shown_path(path);
        let message = match kind {
            Kind::NoInput => format!("{shown} does not exist; check the path"),
            Kind::NoPermission => {
                format!("{shown}: permission denied; try as root, or as its owner")
            }
            Kind::CannotCreate => {
                format!("{shown} exists already; remove it, or name something else")
            }
            _ => match error.kind() {
                io::ErrorKind::FileTooLarge => format!(
                    "{shown}: the file system that it is on takes no file of that size; choose a smaller one, or \
                     another place"
                ),
                io::ErrorKind::StorageFull => format!(
                    "{shown}: the file system that it is on is full; make room, or choose another place"
                ),
                _ => format!("{shown}: {error}"),
            },
        };
        Self::new(kind, message)
    }

    /// A device that could not be opened or used.
    pub fn device(path: &Path, error: &DeviceError) -> Self {
        let shown = shown_path(path);
        match error {
            DeviceError::Busy { .. } => Self::new(
                Kind::Busy,
                format!(
                    "{shown} is mounted or used by another program; unmount it, or wait for that \
                     program to end"
                ),
            ),
            DeviceError::NotADevice { .. } => Self::new(
                Kind::NoInput,
                format!("{shown} is neither a regular file nor a block device; name one of those"),
            ),
            DeviceError::Open { errno, .. } => {
                Self::io(path, &io::Error::from_raw_os_error(*errno))
            }
            DeviceError::ReadOnly => Self::new(
                Kind::NoPermission,
                format!("{shown} can only be read; make it writable first"),
            ),
            DeviceError::Io { errno, .. } if *errno == Errno::NOSPC.raw_os_error() => Self::new(
                Kind::Io,
                format!(
                    "{shown}: the file system that it is on is full; make room there, or mount it read-only (`-o ro`)"
                ),
            ),
            other => Self::new(Kind::Io, format!("{shown}: {other}")),
        }
    }

    /// What the file system said about the volume on `path`.
    pub fn volume(path: &Path, error: &Error) -> Self {
        let shown = shown_path(path);
        let told = |kind, advice: &str| Self::new(kind, format!("{shown}: {error}{advice}"));
        match error {
            Error::Device(error) | Error::Log(LogError::Device(error)) => Self::device(path, error),
            Error::Superblock(SuperblockError::Magic | SuperblockError::Short) => Self::new(
                Kind::Data,
                format!(
                    "{shown} holds no LoamFS volume; check the path, or make one with `loamfs mkfs`"
                ),
            ),
            Error::Superblock(SuperblockError::Version { .. }) => {
                told(Kind::Data, "; use a newer loamfs")
            }
            Error::Superblock(SuperblockError::Incompatible { .. }) => {
                told(Kind::Data, "; use a newer loamfs")
            }
            Error::Superblock(SuperblockError::ReadOnly { .. }) => {
                told(Kind::Data, "; use it read-only, or a newer loamfs")
            }
            Error::Log(LogError::Members(MembersError::Missing {
                dispensable: true, ..
            })) => told(
                Kind::Data,
                ", or read what is on the others with `--degraded` (`mount -o degraded`)",
            ),
            Error::Log(
                LogError::Shrunk { .. }
                | LogError::Foreign
                | LogError::Undecided { .. }
                | LogError::Incomplete { .. }
                | LogError::Members(_)
                | LogError::Alone
                | LogError::StaleFirst
                | LogError::StaleSecond
                | LogError::Lost(_),
            ) => told(Kind::Data, ""),
            Error::Superblock(_) | Error::Corrupt(_) | Error::Log(_) | Error::Space(_) => {
                told(Kind::Data, "; run `loamfs check` on it")
            }
            Error::Options(_) | Error::Invalid(_) => told(Kind::Usage, ""),
            Error::NotPermitted => told(Kind::NoPermission, ""),
            Error::NotFound => told(Kind::NoInput, "; `loamfs tree` shows what there is"),
            Error::Exists => told(Kind::CannotCreate, ""),
            // It was opened for writing.
            Error::ReadOnly => told(Kind::Io, "; its device has failed, so look at that first"),
            Error::NoSpace => told(Kind::Io, "; delete something, or use a larger device"),
            _ => told(Kind::Io, ""),
        }
    }
}

impl Failure {
    /// What the checker's reader said about the volume on `path`.
    pub fn check(path: &Path, error: &CheckError) -> Self {
        let kind = match error {
            CheckError::Device(error) => return Self::device(path, error),
            CheckError::Superblock(error) => return Self::volume(path, &error.clone().into()),
            CheckError::Foreign => return Self::volume(path, &LogError::Foreign.into()),
            CheckError::Undecided { small, large } => {
                let (small, large) = (*small, *large);
                return Self::volume(path, &LogError::Undecided { small, large }.into());
            }
            CheckError::Shrunk { have, need } => {
                let (have, need) = (*have, *need);
                return Self::volume(path, &LogError::Shrunk { have, need }.into());
            }
            CheckError::Incomplete { count } => {
                let count = *count;
                return Self::volume(path, &LogError::Incomplete { count }.into());
            }
            CheckError::NoInode { .. }
            | CheckError::NoSegment { .. }
            | CheckError::NoNode { .. } => Kind::NoInput,
            _ => Kind::Data,
        };
        Self::new(kind, format!("{}: {error}", shown_path(path)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        let path = Path::new("/dev/sdz");
        let busy = DeviceError::Busy { path: path.into() };
        let text = Failure::device(path, &busy).to_string();
        assert!(text.contains("unmount it"), "{text}");
        let none = Error::Superblock(SuperblockError::Magic);
        let failure = Failure::volume(path, &none);
        assert_eq!(failure.kind, Kind::Data);
        assert!(failure.to_string().contains("loamfs mkfs"));
    }
}
