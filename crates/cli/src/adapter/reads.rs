//! Whether reads may be served from the kernel's caches.

use loamfs_fs::AtimeWhen;
use loamfs_fuse::OpenReplyFlags;

use crate::mount::options::Options;

/// Which reads reach the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// Those of what the kernel has not cached. Files and directories are opened without a message.
    #[default]
    Uncached,
    /// All but those through a mapping, since each of them sets the access time: opens are answered, and bypass the cache.
    All,
}

impl Reads {
    /// What the options of a mount ask for.
    pub fn of(options: &Options) -> Self {
        let always = options.volume.atime.unwrap_or_default().when == AtimeWhen::Always;
        match always && !options.is_read_only() {
            true => Self::All,
            false => Self::Uncached,
        }
    }

    /// What an open file is answered with.
    pub(super) fn open_flags(self) -> OpenReplyFlags {
        match self {
            Self::Uncached => OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NOFLUSH,
            Self::All => OpenReplyFlags::DIRECT_IO | OpenReplyFlags::NOFLUSH,
        }
    }
}
