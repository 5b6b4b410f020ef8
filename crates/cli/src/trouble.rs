//! What goes wrong with one of many files that are copied: the others are copied all the same.

use std::fmt;
use std::io;
use std::path::Path;

use loamfs_fs::Error;
use rustix::io::Errno;

use crate::failure::{Failure, Kind};
use crate::text::shown_path;

/// What went wrong, without the path of the file.
pub enum Trouble {
    /// The system refused something.
    System(io::Error),
    /// The volume did.
    Volume(Error),
    /// Something has its name already, and may not be replaced.
    There,
    /// A sentence.
    Said(Kind, String),
    /// A whole sentence, with the path.
    Whole(Failure),
}

impl Trouble {
    /// That something of the file does not fit where it is copied to.
    pub fn left_out(what: impl fmt::Display, reason: &dyn fmt::Display) -> Self {
        Self::Said(Kind::Io, format!("{what} is left out: {reason}"))
    }

    /// Whether the next file would fare no better.
    pub fn is_hopeless(&self) -> bool {
        match self {
            Self::System(error) => matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::ReadOnlyFilesystem
            ),
            Self::Volume(error) => matches!(error, Error::NoSpace | Error::ReadOnly),
            Self::There | Self::Said(..) | Self::Whole(_) => false,
        }
    }

    /// Says it of the file at `path`.
    pub fn of(self, path: &Path) -> Failure {
        match self {
            Self::System(error) => Failure::io(path, &error),
            Self::Volume(error) => Failure::volume(path, &error),
            Self::There => Failure::new(
                Kind::CannotCreate,
                format!(
                    "{} exists already; give --force to replace it, or choose another place",
                    shown_path(path)
                ),
            ),
            Self::Said(kind, words) => Failure::new(kind, format!("{}: {words}", shown_path(path))),
            Self::Whole(failure) => failure,
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Volume(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Whole(failure)
    }
}
