//! Which extended attributes a mount has. Each that the kernel asks for is a request; whoever has none saves them.

use loamfs_format::Ino;
use loamfs_fs::{Error, Volume};
use loamfs_fuse::Errno;

use crate::mount::options::DaemonOptions;

/// What lets a program do more than who runs it. A change of the file takes it away.
const CAPABILITY: &[u8] = b"security.capability";

/// The extended attributes that can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// All.
    #[default]
    All,
    /// All but access lists: modes alone say who may do what.
    Unlisted,
    /// None.
    None,
}

impl Attributes {
    /// What the options of a mount ask for.
    pub const fn of(options: &DaemonOptions) -> Self {
        match (options.noxattr, options.noacl) {
            (true, _) => Self::None,
            (false, true) => Self::Unlisted,
            (false, false) => Self::All,
        }
    }

    /// That an attribute of this name can be asked for.
    ///
    /// # Errors
    /// `ENOSYS` where there are none, which the kernel takes for the whole mount: it asks no more.
    pub(super) fn check(self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::None => Err(Errno::NOSYS),
            Self::Unlisted if name.starts_with(b"system.posix_acl_") => Err(Errno::OPNOTSUPP),
            Self::All | Self::Unlisted => Ok(()),
        }
    }
}

/// Takes away what lets a program do more than who runs it. Of an inode that has no attributes nothing is read.
pub(super) fn drop_capability(volume: &Volume, ino: Ino) -> Result<(), Error> {
    match volume.xattrs(ino).get(CAPABILITY) {
        Err(Error::NoAttribute) => Ok(()),
        _ => volume.xattrs(ino).remove(CAPABILITY),
    }
}
