//! Requests: what is read or written, and what for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Buffer, DeviceError};

/// What a request is for, so that requests and bytes are counted by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoKind {
    /// A copy of the superblock.
    Superblock,
    /// A summary alone, as recovery reads it.
    Summary,
    /// A whole segment: its summary and its body.
    Segment,
    /// Blocks of inodes, directories, extent trees, maps.
    Metadata,
    /// The data of small files in the log.
    SmallData,
    /// The data of large files at home.
    Homed,
    /// Images of homed blocks in the log.
    Image,
    /// Images brought home.
    Settle,
    /// What the checker reads.
    Check,
    /// Anything else.
    Other,
}

impl IoKind {
    /// All kinds, in the order of their indices.
    pub const ALL: [Self; 10] = [
        Self::Superblock,
        Self::Summary,
        Self::Segment,
        Self::Metadata,
        Self::SmallData,
        Self::Homed,
        Self::Image,
        Self::Settle,
        Self::Check,
        Self::Other,
    ];

    /// Place in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The kind's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Summary => "summary",
            Self::Segment => "segment",
            Self::Metadata => "metadata",
            Self::SmallData => "small_data",
            Self::Homed => "homed",
            Self::Image => "image",
            Self::Settle => "settle",
            Self::Check => "check",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One read of a batch; the device fills its buffer and sets its result.
#[derive(Clone, Debug)]
pub struct Read {
    /// First byte on the device; need not be aligned.
    pub offset: u64,
    /// Receives the bytes; its length is the length of the request. Its
    /// contents mean nothing unless the result is `Ok`; a failed read must be
    /// made anew, as its buffer may be lost.
    pub buffer: Buffer,
    /// What the request is for.
    pub kind: IoKind,
    /// [`DeviceError::NotIssued`] until a device has answered, so that a request
    /// that was forgotten never passes for data.
    pub result: Result<(), DeviceError>,
}

impl Read {
    /// A request for `len` bytes at byte `offset`.
    pub fn new(offset: u64, len: usize, kind: IoKind) -> Self {
        Self {
            offset,
            buffer: Buffer::zeroed(len),
            kind,
            result: Err(DeviceError::NotIssued),
        }
    }

    /// The bytes read, or why there are none.
    pub fn into_result(self) -> Result<Buffer, DeviceError> {
        self.result.map(|()| self.buffer)
    }
}

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// First byte on the device; a multiple of the sector size.
    pub offset: u64,
    /// What is written; its length is a multiple of the sector size. Memory
    /// from a [`Buffer`] is written without a copy.
    pub data: &'a [u8],
    /// What the request is for.
    pub kind: IoKind,
}

impl<'a> Write<'a> {
    /// A request to write `data` at byte `offset`.
    pub fn new(offset: u64, data: &'a [u8], kind: IoKind) -> Self {
        Self { offset, data, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_their_indices() {
        for (index, kind) in IoKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
        }
    }

    #[test]
    fn a_read_that_nobody_answered_is_an_error() {
        let read = Read::new(0, 512, IoKind::Other);
        assert_eq!(read.into_result(), Err(DeviceError::NotIssued));
    }
}
