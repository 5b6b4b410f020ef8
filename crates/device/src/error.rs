//! What can go wrong at a device.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loamfs_format::text::human;
use rustix::io::Errno;

/// The four things that a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A read of a range.
    Read,
    /// A write of a range.
    Write,
    /// A flush of everything that completed before.
    Flush,
    /// A hint that a range is no longer needed.
    Discard,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        })
    }
}

/// An error of a device. It can be cloned, because one failed request may
/// answer several waiting operations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The medium or the kernel refused a request.
    #[error("{op}{} failed: {message}", range(*offset, *len))]
    Io {
        /// What was asked.
        op: Op,
        /// First byte of the range; 0 for a flush.
        offset: u64,
        /// Length of the range in bytes; 0 for a flush.
        len: u64,
        /// The system's error number.
        errno: i32,
        /// The system's words for it.
        message: String,
    },
    /// A range reaches beyond the end of the device.
    #[error("{} at byte {offset} reach beyond the device, which has {}", human(*len), human(*size))]
    OutOfRange {
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        len: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// A write that does not start and end at a sector.
    #[error("a write{} is not in whole sectors of {}", range(*offset, *len), human((*sector).into()))]
    Unaligned {
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        len: u64,
        /// The unit of writing in bytes.
        sector: u32,
    },
    /// The path names neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    NotADevice {
        /// The path as given.
        path: PathBuf,
    },
    /// Somebody else holds the device.
    #[error("{} is in use", path.display())]
    Busy {
        /// The path as given.
        path: PathBuf,
    },
    /// A change was asked of a device that was opened for reading.
    #[error("the device is open for reading only")]
    ReadOnly,
    /// The device could not be opened, locked, measured or created.
    #[error("cannot open {}: {message}", path.display())]
    Open {
        /// The path as given.
        path: PathBuf,
        /// The system's error number.
        errno: i32,
        /// The system's words for it.
        message: String,
    },
    /// One device of several failed.
    #[error("{name}: {error}")]
    Member {
        /// Which.
        name: Arc<str>,
        /// What it said.
        error: Box<DeviceError>,
    },
    /// The result of a [`Read`](crate::Read) that no device has answered yet.
    #[error("the request was never issued")]
    NotIssued,
}

impl DeviceError {
    /// An [`Io`](Self::Io) error with the system's own message for `errno`.
    pub fn io(op: Op, offset: u64, len: u64, errno: i32) -> Self {
        Self::Io {
            op,
            offset,
            len,
            errno,
            message: describe(errno),
        }
    }

    /// The error number that fits best, for callers that speak errno.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io { errno, .. } | Self::Open { errno, .. } => *errno,
            Self::OutOfRange { .. } | Self::Unaligned { .. } => Errno::INVAL.raw_os_error(),
            Self::NotADevice { .. } => Errno::NOTBLK.raw_os_error(),
            Self::Busy { .. } => Errno::BUSY.raw_os_error(),
            Self::ReadOnly => Errno::ROFS.raw_os_error(),
            Self::Member { error, .. } => error.errno(),
            Self::NotIssued => Errno::IO.raw_os_error(),
        }
    }

    /// Whether a flush failed: what was written before it may be lost.
    pub fn is_of_flush(&self) -> bool {
        match self {
            Self::Io { op, .. } => *op == Op::Flush,
            Self::Member { error, .. } => error.is_of_flush(),
            _ => false,
        }
    }

    /// Whether the same may well succeed later: nothing is wrong with the medium.
    pub fn is_passing(&self) -> bool {
        const PASSING: [Errno; 6] = [
            Errno::AGAIN,
            Errno::INTR,
            Errno::NOMEM,
            Errno::BUSY,
            Errno::NOSPC,
            Errno::DQUOT,
        ];
        let is = |passing: &Errno| passing.raw_os_error() == self.errno();
        PASSING.iter().any(is)
    }

    pub(crate) fn open(path: &Path, errno: Errno) -> Self {
        let errno = errno.raw_os_error();
        Self::Open {
            path: path.to_path_buf(),
            errno,
            message: describe(errno),
        }
    }
}

/// A range for people: how long, and the byte at which it begins, which one needs to look there. A flush has none.
fn range(offset: u64, len: u64) -> String {
    match len {
        0 => String::new(),
        _ => format!(" of {} at byte {offset}", human(len)),
    }
}

fn describe(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

/// Whether `offset..offset + len` lies within a device of `size` bytes.
pub(crate) fn check_range(size: u64, offset: u64, len: u64) -> Result<(), DeviceError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::OutOfRange { offset, len, size }),
    }
}

/// Whether a write lies within the device and is made of whole sectors.
pub(crate) fn check_write(
    size: u64,
    sector: u32,
    offset: u64,
    len: u64,
) -> Result<(), DeviceError> {
    check_range(size, offset, len)?;
    let unit = u64::from(sector);
    if offset.is_multiple_of(unit) && len.is_multiple_of(unit) {
        Ok(())
    } else {
        Err(DeviceError::Unaligned {
            offset,
            len,
            sector,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_at_the_size_and_do_not_wrap() {
        assert!(check_range(100, 0, 100).is_ok());
        assert!(check_range(100, 100, 0).is_ok());
        for (offset, len) in [(1, 100), (101, 0), (u64::MAX, 2)] {
            assert_eq!(
                check_range(100, offset, len),
                Err(DeviceError::OutOfRange {
                    offset,
                    len,
                    size: 100
                })
            );
        }
    }

    #[test]
    fn writes_are_whole_sectors() {
        assert!(check_write(4096, 512, 512, 1024).is_ok());
        for (offset, len) in [(1, 512), (512, 100)] {
            assert!(matches!(
                check_write(4096, 512, offset, len),
                Err(DeviceError::Unaligned { sector: 512, .. })
            ));
        }
    }

    #[test]
    fn messages_name_the_place_and_the_reason() {
        let error = DeviceError::io(Op::Write, 8192, 4096, Errno::IO.raw_os_error());
        let text = error.to_string();
        assert!(
            text.starts_with("write of 4.0 KiB at byte 8192 failed: "),
            "{text}"
        );
        assert_eq!(error.errno(), 5);
        assert!(!error.is_passing());
        assert!(DeviceError::io(Op::Write, 0, 512, Errno::NOSPC.raw_os_error()).is_passing());
        assert_eq!(DeviceError::ReadOnly.errno(), 30);
    }
}
