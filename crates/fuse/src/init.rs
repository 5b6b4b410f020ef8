//! What the two sides agree on when the connection starts.

use std::ops::BitOr;

use rustix::param::page_size;

use crate::request::InitOffer;
use crate::wire;
use crate::wire::output::InitOut;

/// The first minor version with `FUSE_NOTIFY_INC_EPOCH`.
const MINOR_OF_EPOCHS: u32 = 44;

/// Optional parts of the protocol: the flag bits of INIT, both words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Reads of one file may run side by side.
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// Open truncates by itself, without a SETATTR.
    pub const ATOMIC_O_TRUNC: Self = Self(1 << 3);
    /// `.` and `..` can be looked up, so that NFS handles work.
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    /// Writes may be larger than a page.
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The server applies the umask.
    pub const DONT_MASK: Self = Self(1 << 6);
    /// A listing may bring the attributes along.
    pub const DO_READDIRPLUS: Self = Self(1 << 13);
    /// It does so only when they seem to be of use.
    pub const READDIRPLUS_AUTO: Self = Self(1 << 14);
    /// Direct I/O may be submitted asynchronously. Never asked for: behind an asynchronous direct write the kernel does not
    /// look again for pages that readers have brought in meanwhile, and goes on showing them. Telling it to forget them
    /// would come too late from behind the reply, and would wait for readers that wait for us from before it.
    pub const ASYNC_DIO: Self = Self(1 << 15);
    /// The page cache collects writes.
    pub const WRITEBACK_CACHE: Self = Self(1 << 16);
    /// An open can be answered with ENOSYS, for good (not together with
    /// `ATOMIC_O_TRUNC`: see [`Config::zero_message_open`]).
    pub const NO_OPEN_SUPPORT: Self = Self(1 << 17);
    /// Lookups and listings of one directory may run side by side.
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    /// The kernel enforces POSIX access lists.
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// The reply says how many pages a request may have.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// Targets of symbolic links are cached.
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// An opendir can be answered with ENOSYS, for good.
    pub const NO_OPENDIR_SUPPORT: Self = Self(1 << 24);
    /// Cached data is only dropped when the server says so.
    pub const EXPLICIT_INVAL_DATA: Self = Self(1 << 25);
    /// The server clears set-user-id and the like when a file is written.
    pub const HANDLE_KILLPRIV_V2: Self = Self(1 << 28);
    /// SETXATTR has its longer form.
    pub const SETXATTR_EXT: Self = Self(1 << 29);
    /// The second word of flags is valid.
    pub const INIT_EXT: Self = Self(1 << 30);
    /// What is opened with [`DIRECT_IO`](crate::OpenReplyFlags::DIRECT_IO) can be mapped and shared.
    pub const DIRECT_IO_ALLOW_MMAP: Self = Self(1 << 36);
    /// NFS handles are refused.
    pub const NO_EXPORT_SUPPORT: Self = Self(1 << 38);
    /// The kernel can send unanswered requests again to a new server.
    pub const HAS_RESEND: Self = Self(1 << 39);
    /// Requests can travel through io_uring.
    pub const OVER_IO_URING: Self = Self(1 << 41);

    /// From the protocol's bits, second word above the first.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The protocol's bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether all of `other` is in `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn when(self, wanted: bool) -> Self {
        if wanted { self } else { Self::NONE }
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// When a listing brings the attributes along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadDirPlus {
    /// Never.
    Off,
    /// For the first part of a listing, and later when programs look at the
    /// attributes.
    #[default]
    Auto,
    /// Always.
    Always,
}

/// What to ask the kernel for. The default suits a file system that nobody
/// changes behind the kernel's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest write and read, in bytes; a multiple of the page size.
    pub max_write: u32,
    /// Most that the kernel reads ahead, in bytes; it never takes more than
    /// the limit of the mount (128 KiB, see [`Mounted::set_read_ahead`]).
    ///
    /// [`Mounted::set_read_ahead`]: crate::Mounted::set_read_ahead
    pub max_readahead: u32,
    /// Requests that may wait without anybody waiting for them.
    pub max_background: u16,
    /// Number of them from which writers are slowed down.
    pub congestion_threshold: u16,
    /// Attributes in listings.
    pub readdirplus: ReadDirPlus,
    /// Do without OPEN and RELEASE of files: the dispatcher answers OPEN with
    /// ENOSYS, all handles are 0, and data stays cached. An open with
    /// `O_TRUNC` then arrives as a SETATTR, so ATOMIC_O_TRUNC is not asked for.
    pub zero_message_open: bool,
    /// Have an open truncate by itself, where opens are asked for.
    pub atomic_truncate: bool,
    /// Let files be mapped and shared whose opens bypass the page cache.
    pub direct_io_allow_mmap: bool,
    /// Do without OPENDIR and RELEASEDIR in the same way.
    pub zero_message_opendir: bool,
    /// Let the file system clear set-user-id and the like on writes.
    pub handle_killpriv: bool,
    /// Let the kernel enforce POSIX access lists; implies default_permissions.
    pub posix_acl: bool,
    /// Let the file system apply the umask, which default access lists need.
    pub dont_mask: bool,
    /// Allow NFS handles: node ids are stable, `.` and `..` can be looked up.
    pub export_support: bool,
    /// Cache the targets of symbolic links.
    pub cache_symlinks: bool,
    /// Never drop cached data because attributes changed.
    pub explicit_invalidation: bool,
    /// Collect writes in the page cache.
    pub writeback_cache: bool,
    /// Have requests travel through io_uring; set by a session that has rings.
    pub over_io_uring: bool,
    /// Step of the time stamps, in nanoseconds.
    pub time_granularity: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            readdirplus: ReadDirPlus::Auto,
            zero_message_open: false,
            atomic_truncate: true,
            direct_io_allow_mmap: false,
            zero_message_opendir: false,
            handle_killpriv: false,
            posix_acl: false,
            dont_mask: false,
            export_support: true,
            cache_symlinks: true,
            explicit_invalidation: true,
            writeback_cache: false,
            over_io_uring: false,
            time_granularity: 1,
        }
    }
}

impl Config {
    fn wanted(&self) -> Capabilities {
        Capabilities::ASYNC_READ
            | Capabilities::BIG_WRITES
            | Capabilities::PARALLEL_DIROPS
            | Capabilities::MAX_PAGES
            | Capabilities::SETXATTR_EXT
            | Capabilities::INIT_EXT
            | Capabilities::ATOMIC_O_TRUNC.when(self.atomic_truncate && !self.zero_message_open)
            | Capabilities::DIRECT_IO_ALLOW_MMAP.when(self.direct_io_allow_mmap)
            | Capabilities::DO_READDIRPLUS.when(self.readdirplus != ReadDirPlus::Off)
            | Capabilities::READDIRPLUS_AUTO.when(self.readdirplus == ReadDirPlus::Auto)
            | Capabilities::HANDLE_KILLPRIV_V2.when(self.handle_killpriv)
            | Capabilities::POSIX_ACL.when(self.posix_acl)
            | Capabilities::DONT_MASK.when(self.dont_mask)
            | Capabilities::EXPORT_SUPPORT.when(self.export_support)
            | Capabilities::NO_EXPORT_SUPPORT.when(!self.export_support)
            | Capabilities::CACHE_SYMLINKS.when(self.cache_symlinks)
            | Capabilities::EXPLICIT_INVAL_DATA.when(self.explicit_invalidation)
            | Capabilities::WRITEBACK_CACHE.when(self.writeback_cache)
            | Capabilities::OVER_IO_URING.when(self.over_io_uring)
    }

    /// `max_write` in whole pages, at least one and at most what the protocol's
    /// field holds.
    pub(crate) fn max_pages(&self) -> u16 {
        let page = u32::try_from(page_size()).unwrap_or(4096);
        u16::try_from(self.max_write.div_ceil(page).max(1)).unwrap_or(u16::MAX)
    }

    /// `max_write` rounded up to whole pages, in bytes.
    pub(crate) fn max_write_bytes(&self) -> usize {
        usize::from(self.max_pages()) * page_size()
    }
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol, the smaller of both sides'.
    pub minor: u32,
    /// All that the kernel offered.
    pub offered: Capabilities,
    /// What is in force.
    pub granted: Capabilities,
    /// Largest write, in bytes.
    pub max_write: u32,
}

impl Negotiated {
    /// As numbers that another process of this machine understands.
    #[must_use]
    pub fn to_words(&self) -> [u64; 4] {
        let Self {
            minor,
            offered,
            granted,
            max_write,
        } = *self;
        [
            minor.into(),
            offered.bits(),
            granted.bits(),
            max_write.into(),
        ]
    }

    /// From [`to_words`](Self::to_words); `None` if that is not what they are.
    #[must_use]
    pub fn from_words([minor, offered, granted, max_write]: [u64; 4]) -> Option<Self> {
        let minor = u32::try_from(minor).ok().filter(|minor| *minor > 0)?;
        Some(Self {
            minor,
            offered: Capabilities::from_bits(offered),
            granted: Capabilities::from_bits(granted),
            max_write: u32::try_from(max_write).ok()?,
        })
    }

    /// Whether a successor can go on with this connection, should the server die: the kernel sends unanswered requests
    /// again (Linux 6.9), and forgets names when it is told to (Linux 6.16).
    #[must_use]
    pub fn can_be_taken_over(&self) -> bool {
        self.minor >= MINOR_OF_EPOCHS
            && self.offered.contains(Capabilities::HAS_RESEND)
            && !self.granted.contains(Capabilities::OVER_IO_URING)
    }

    /// Settles what both sides can do.
    pub(crate) fn new(config: &Config, offer: &InitOffer) -> Self {
        let offered = Capabilities::from_bits(offer.flags);
        Self {
            minor: offer.minor.min(wire::MINOR),
            offered,
            granted: config.wanted().and(offered),
            max_write: u32::try_from(config.max_write_bytes()).unwrap_or(u32::MAX),
        }
    }

    /// The answer to INIT.
    pub(crate) fn answer(&self, config: &Config) -> InitOut {
        let [low, high] = halves(self.granted.bits());
        InitOut {
            major: wire::MAJOR,
            minor: self.minor,
            // Not cut to the offer: the mount's limit may have been raised
            // since that was sent, and the kernel applies it anyway.
            max_readahead: config.max_readahead,
            flags: low,
            max_background: config.max_background,
            congestion_threshold: config.congestion_threshold,
            max_write: self.max_write,
            time_gran: config.time_granularity,
            max_pages: config.max_pages(),
            flags2: high,
            ..InitOut::default()
        }
    }
}

fn halves(bits: u64) -> [u32; 2] {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
    [half(bits), half(bits >> 32)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(flags: u64) -> InitOffer {
        InitOffer {
            major: 7,
            minor: 45,
            flags,
        }
    }

    #[test]
    fn only_what_is_offered_is_granted() {
        let config = Config::default();
        let none = Negotiated::new(&config, &offer(0));
        assert_eq!(none.granted, Capabilities::NONE);
        let all = Negotiated::new(&config, &offer(u64::MAX));
        assert_eq!(all.granted, config.wanted());
        let answer = all.answer(&config);
        assert_eq!(
            u64::from(answer.flags) | u64::from(answer.flags2) << 32,
            config.wanted().bits()
        );
    }

    #[test]
    fn locks_stay_in_the_kernel() {
        const POSIX_LOCKS: u64 = 1 << 1;
        const FLOCK_LOCKS: u64 = 1 << 10;
        let everything = Config {
            handle_killpriv: true,
            posix_acl: true,
            dont_mask: true,
            writeback_cache: true,
            ..Config::default()
        };
        assert_eq!(everything.wanted().bits() & (POSIX_LOCKS | FLOCK_LOCKS), 0);
    }

    #[test]
    fn direct_writes_are_waited_for() {
        let wanted = Config::default().wanted();
        assert!(!wanted.contains(Capabilities::ASYNC_DIO));
    }

    #[test]
    fn opens_without_messages_do_not_truncate_atomically() {
        let config = Config {
            zero_message_open: true,
            ..Config::default()
        };
        assert!(!config.wanted().contains(Capabilities::ATOMIC_O_TRUNC));
    }

    #[test]
    fn odd_sizes_become_whole_pages() {
        for max_write in [0, 1, 4096, 5000, u32::MAX] {
            let config = Config {
                max_write,
                ..Config::default()
            };
            assert!(config.max_pages() >= 1);
            assert_eq!(config.max_write_bytes() % page_size(), 0);
        }
    }
}
