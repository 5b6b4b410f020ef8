//! Why a measurement could not be made.

use std::io;
use std::path::Path;

/// Why a measurement could not be made. That a claim does not hold is no error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the file's name.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// Its last words.
        said: String,
    },
    /// The trace and the device's own counters differ, or events were lost: nothing measured so counts.
    #[error("the trace cannot be trusted: {0}")]
    Trace(String),
    /// The loop device.
    #[error(transparent)]
    Loop(#[from] loamfs_device::LoopError),
    /// The program that makes volumes and mounts them.
    #[error(transparent)]
    Missing(#[from] loamfs_console::sibling::Missing),
    /// The mount table.
    #[error(transparent)]
    Mounts(#[from] loamfs_fuse::Error),
    /// Loop devices, mounts and the kernel's tracing take root.
    #[error("loop devices, mounts and the kernel's tracing take root")]
    NotRoot,
    /// What an emulated machine says, or its last words.
    #[error("in the emulated machine: {0}")]
    Emulated(String),
    /// A file is not what it should be.
    #[error("{path} is no {what}: {why}")]
    Data {
        /// The file.
        path: String,
        /// What it should be.
        what: &'static str,
        /// Why it is not.
        why: String,
    },
    /// Runs of a series; the others were made.
    #[error(
        "{0} of the runs failed, as the table says; run the same command again to repeat these alone"
    )]
    Failed(u64),
    /// The machine or the call lacks something.
    #[error("{0}")]
    Lacking(String),
}

impl Error {
    /// Whether the file system had no space left.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }

    /// Whether there was no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// For `map_err`: what was tried on `path`.
    pub fn at(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io {
            what: format!("{verb} {}", path.display()),
            source,
        }
    }
}
