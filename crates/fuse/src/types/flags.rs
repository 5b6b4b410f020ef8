//! Flags that a request carries, and those of an open reply.

use std::ops::BitOr;

use rustix::fs::OFlags;

use crate::Errno;

/// Flags of an open: the `O_*` bits, and what the kernel adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// The `O_*` bits as Linux defines them on this architecture.
    pub bits: u32,
    /// The open truncates, so clear set-user-id and set-group-id; only sent
    /// when [`Config::handle_killpriv`](crate::Config::handle_killpriv) was
    /// granted.
    pub kill_suidgid: bool,
}

impl OpenFlags {
    const fn has(self, flag: OFlags) -> bool {
        self.bits & flag.bits() != 0
    }

    const fn access(self) -> u32 {
        self.bits & OFlags::ACCMODE.bits()
    }

    /// Opened for reading.
    #[must_use]
    pub const fn read(self) -> bool {
        self.access() == OFlags::RDONLY.bits() || self.access() == OFlags::RDWR.bits()
    }

    /// Opened for writing.
    #[must_use]
    pub const fn write(self) -> bool {
        self.access() == OFlags::WRONLY.bits() || self.access() == OFlags::RDWR.bits()
    }

    /// `O_TRUNC`; only seen when [`Capabilities::ATOMIC_O_TRUNC`] was granted.
    ///
    /// [`Capabilities::ATOMIC_O_TRUNC`]: crate::Capabilities::ATOMIC_O_TRUNC
    #[must_use]
    pub const fn truncate(self) -> bool {
        self.has(OFlags::TRUNC)
    }

    /// `O_APPEND`.
    #[must_use]
    pub const fn append(self) -> bool {
        self.has(OFlags::APPEND)
    }

    /// `O_EXCL`.
    #[must_use]
    pub const fn exclusive(self) -> bool {
        self.has(OFlags::EXCL)
    }

    /// `O_DIRECT`.
    #[must_use]
    pub const fn direct(self) -> bool {
        self.has(OFlags::DIRECT)
    }

    /// `O_SYNC` or `O_DSYNC`.
    #[must_use]
    pub const fn synchronous(self) -> bool {
        self.has(OFlags::SYNC) || self.has(OFlags::DSYNC)
    }

    /// `O_NOATIME`.
    #[must_use]
    pub const fn noatime(self) -> bool {
        self.has(OFlags::NOATIME)
    }

    /// `O_SYNC` or `O_DSYNC`. The kernel follows such a write with an fsync.
    #[must_use]
    pub const fn sync(self) -> bool {
        self.has(OFlags::DSYNC)
    }
}

/// How the kernel should treat an open file. Combine with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReplyFlags(u32);

impl OpenReplyFlags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// Bypass the page cache.
    pub const DIRECT_IO: Self = Self(1 << 0);
    /// Keep what the page cache has of the file.
    pub const KEEP_CACHE: Self = Self(1 << 1);
    /// The file cannot seek.
    pub const NONSEEKABLE: Self = Self(1 << 2);
    /// Cache what readdir returns.
    pub const CACHE_DIR: Self = Self(1 << 3);
    /// The file has no position at all.
    pub const STREAM: Self = Self(1 << 4);
    /// Send no FLUSH when a descriptor is closed.
    pub const NOFLUSH: Self = Self(1 << 5);
    /// Let direct writes to one file run side by side.
    pub const PARALLEL_DIRECT_WRITES: Self = Self(1 << 6);

    /// The bits as the kernel reads them.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for OpenReplyFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a write is besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Comes from the page cache, perhaps long after the program wrote: caller
    /// and handle are guesses, so permissions were checked earlier.
    pub from_cache: bool,
    /// Clear set-user-id and set-group-id.
    pub kill_suidgid: bool,
    /// The flags of the open file.
    pub open: OpenFlags,
}

/// How a rename treats an existing target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail with EEXIST if the target exists.
    pub no_replace: bool,
    /// Swap source and target.
    pub exchange: bool,
    /// Leave a whiteout (a character device 0/0) in the source's place.
    pub whiteout: bool,
}

impl RenameFlags {
    /// From the `RENAME_*` bits.
    ///
    /// # Errors
    ///
    /// EINVAL for an unknown bit and for combinations that contradict.
    pub fn from_bits(bits: u32) -> Result<Self, Errno> {
        let flags = Self {
            no_replace: bits & 1 != 0,
            exchange: bits & 2 != 0,
            whiteout: bits & 4 != 0,
        };
        if bits & !7 != 0 || (flags.exchange && (flags.no_replace || flags.whiteout)) {
            return Err(Errno::INVAL);
        }
        Ok(flags)
    }
}

/// What fallocate does to its range. With none set it allocates, and extends
/// the file if needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FallocateMode {
    /// Do not extend the file.
    pub keep_size: bool,
    /// Free the range; comes with `keep_size`.
    pub punch_hole: bool,
    /// Make the range read as zeros and keep it allocated.
    pub zero_range: bool,
}

impl FallocateMode {
    /// From the `FALLOC_FL_*` bits.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP for any other mode, as fallocate(2) asks.
    pub fn from_bits(bits: u32) -> Result<Self, Errno> {
        const KEEP_SIZE: u32 = 0x01;
        const PUNCH_HOLE: u32 = 0x02;
        const ZERO_RANGE: u32 = 0x10;
        if bits & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(Self {
            keep_size: bits & KEEP_SIZE != 0,
            punch_hole: bits & PUNCH_HOLE != 0,
            zero_range: bits & ZERO_RANGE != 0,
        })
    }
}

/// What lseek looks for; the other kinds of seek stay in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhence {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file is one.
    Hole,
}

impl SeekWhence {
    /// From `SEEK_DATA` or `SEEK_HOLE`.
    ///
    /// # Errors
    ///
    /// EINVAL for anything else.
    pub fn from_raw(whence: u32) -> Result<Self, Errno> {
        match whence {
            3 => Ok(Self::Data),
            4 => Ok(Self::Hole),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Whether the extended attribute must or must not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// EEXIST if it exists.
    Create,
    /// ENODATA if it does not exist.
    Replace,
}

/// How to set an extended attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetXattrFlags {
    /// Whether it must or must not exist.
    pub mode: SetXattrMode,
    /// The value is an access list whose caller is not in the file's group:
    /// clear set-group-id. Only sent when
    /// [`Config::posix_acl`](crate::Config::posix_acl) was granted.
    pub clear_sgid: bool,
}

impl SetXattrMode {
    /// From the `XATTR_*` bits.
    ///
    /// # Errors
    ///
    /// EINVAL for an unknown bit or both bits.
    pub fn from_bits(bits: u32) -> Result<Self, Errno> {
        match bits {
            0 => Ok(Self::Any),
            1 => Ok(Self::Create),
            2 => Ok(Self::Replace),
            _ => Err(Errno::INVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradicting_rename_flags_are_refused() {
        for bits in [3, 6, 7, 8, u32::MAX] {
            assert_eq!(RenameFlags::from_bits(bits), Err(Errno::INVAL), "{bits}");
        }
        for bits in [0, 1, 2, 4, 5] {
            assert!(RenameFlags::from_bits(bits).is_ok(), "{bits}");
        }
    }

    #[test]
    fn access_mode_is_a_number_not_a_bit_set() {
        let flags = |bits| OpenFlags {
            bits,
            kill_suidgid: false,
        };
        assert!(flags(0).read() && !flags(0).write());
        assert!(!flags(1).read() && flags(1).write());
        assert!(flags(2).read() && flags(2).write());
        assert!(!flags(3).read() && !flags(3).write());
    }
}
