//! Errors of the layer itself. A file system answers with [`Errno`] instead.

use std::io;
use std::path::PathBuf;

use crate::Errno;

/// Why mounting or serving failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `/dev/fuse` could not be opened.
    #[error("cannot open /dev/fuse (is the fuse module loaded?): {0}")]
    OpenDevice(#[source] io::Error),
    /// mount(2) refused.
    #[error("cannot mount on {path}: {source}", path = path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// umount2(2) refused.
    #[error("cannot unmount {path}: {source}", path = path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The helper that mounts for ordinary users is missing.
    #[error("cannot run fusermount3 (is the package fuse3 installed?): {0}")]
    HelperMissing(#[source] io::Error),
    /// The helper that mounts for ordinary users refused.
    #[error("fusermount3 failed on {path}: {message}", path = path.display())]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// What it printed.
        message: String,
    },
    /// A mount option or path that cannot be passed on.
    #[error("{what} contains a zero byte or another character that a mount option cannot hold")]
    BadOption {
        /// Which one.
        what: &'static str,
    },
    /// A path cannot be followed to what might be mounted there.
    #[error("{path} cannot be looked at: {source}", path = path.display())]
    Path {
        /// The path as given.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel's mount table could not be read.
    #[error("cannot read the mount table (mountinfo): {0}")]
    MountInfo(#[source] io::Error),
    /// The connection to the kernel failed while serving.
    #[error("the connection to the kernel failed: {0}")]
    Connection(#[source] Errno),
    /// A worker thread could not be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(#[source] io::Error),
    /// The file system or the protocol version refused to start.
    #[error("the file system could not be started: {0}")]
    Init(#[source] Errno),
}
