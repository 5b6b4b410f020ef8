//! Attributes of an inode.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time, before 1970 too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let seconds_of = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                seconds: seconds_of(after),
                nanoseconds: after.subsec_nanos(),
            },
            Err(before) => {
                // The fraction counts forward from the second, so a time
                // before 1970 belongs to the second below.
                let before = before.duration();
                match before.subsec_nanos() {
                    0 => Self {
                        seconds: -seconds_of(before),
                        nanoseconds: 0,
                    },
                    fraction => Self {
                        seconds: -seconds_of(before) - 1,
                        nanoseconds: 1_000_000_000 - fraction,
                    },
                }
            }
        }
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    /// This time.
    Time(Timestamp),
    /// The file system's idea of now.
    Now,
}

/// Type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl FileKind {
    /// The kind in the type bits of a mode, if they name one.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode >> 12 {
            0o01 => Self::Fifo,
            0o02 => Self::CharDevice,
            0o04 => Self::Directory,
            0o06 => Self::BlockDevice,
            0o10 => Self::Regular,
            0o12 => Self::Symlink,
            0o14 => Self::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode (`S_IFMT`).
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        self.dirent_type() << 12
    }

    /// The `DT_*` value in a directory entry.
    #[must_use]
    pub const fn dirent_type(self) -> u32 {
        match self {
            Self::Fifo => 0o01,
            Self::CharDevice => 0o02,
            Self::Directory => 0o04,
            Self::BlockDevice => 0o06,
            Self::Regular => 0o10,
            Self::Symlink => 0o12,
            Self::Socket => 0o14,
        }
    }
}

/// What `stat` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttr {
    /// Inode number shown to programs.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, in the 32-bit form in which mknod
    /// brings it: minor bits 0-7, major bits 8-19, minor bits 8-19 above.
    pub rdev: u32,
    /// Preferred size of an I/O, in bytes.
    pub blksize: u32,
}

/// What a SETATTR sets; a field that is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Handle of the open file through which the change was asked for.
    pub fh: Option<u64>,
    /// Permission bits (with type bits that are to be ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncate or extend with zeros.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeOrNow>,
    /// Last change of the data.
    pub mtime: Option<TimeOrNow>,
    /// Last change of the inode; only sent with a write-back cache.
    pub ctime: Option<Timestamp>,
    /// Clear set-user-id, set-group-id and `security.capability` as a write
    /// by an unprivileged user does; only sent when
    /// [`Config::handle_killpriv`](crate::Config::handle_killpriv) was granted.
    pub kill_suidgid: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_the_mode() {
        for mode in 0..16_u32 {
            if let Some(kind) = FileKind::from_mode(mode << 12 | 0o644) {
                assert_eq!(kind.mode_bits(), mode << 12);
            }
        }
        assert_eq!(FileKind::from_mode(0o100_644), Some(FileKind::Regular));
        assert_eq!(FileKind::from_mode(0o644), None);
    }

    #[test]
    fn times_before_1970_count_their_fraction_forward() {
        let time = UNIX_EPOCH - Duration::from_millis(1_250);
        assert_eq!(
            Timestamp::from(time),
            Timestamp {
                seconds: -2,
                nanoseconds: 750_000_000
            }
        );
        assert_eq!(
            Timestamp::from(UNIX_EPOCH - Duration::from_secs(3)).seconds,
            -3
        );
    }
}
