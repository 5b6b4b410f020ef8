//! Memory that direct I/O accepts: page-aligned, zero-initialised bytes.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The alignment that satisfies every sector size in use.
const ALIGN: usize = 4096;

/// A byte buffer whose first byte is aligned to 4096, zeroed when made.
///
/// Devices read into it and write from it without a copy, where an ordinary
/// vector would have to be bounced.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// Where the first aligned byte is.
    start: usize,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        // Asked for without an alignment the allocator takes zeros from the kernel, and does not write them once more.
        let bytes = vec![0; len + ALIGN];
        // It may refuse to answer. What is not aligned takes a copy more.
        let start = Some(bytes.as_ptr().align_offset(ALIGN)).filter(|start| *start < ALIGN);
        Self {
            bytes,
            start: start.unwrap_or(0),
            len,
        }
    }

    /// Length in bytes, as asked for when it was made.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    /// The bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }

    /// Drops all bytes from `len` on; does nothing to a shorter buffer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::from(self.as_slice())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes themselves would drown every message that holds a buffer.
        f.debug_struct("Buffer").field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_aligned_and_as_long_as_asked() {
        for len in [0, 1, 511, 4096, 4097, 100_000] {
            let buffer = Buffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.is_empty(), len == 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            if len > 0 {
                assert_eq!(buffer.as_ptr().addr() % ALIGN, 0);
            }
        }
    }

    #[test]
    fn keeps_what_is_written_and_truncates() {
        let mut buffer = Buffer::from(&[7u8; 5000][..]);
        buffer[4999] = 9;
        assert_eq!(buffer[4998..], [7, 9]);
        buffer.truncate(6000);
        assert_eq!(buffer.len(), 5000);
        buffer.truncate(3);
        assert_eq!(&buffer[..], &[7, 7, 7]);
        assert_eq!(buffer, Buffer::from(&[7u8; 3][..]));
    }

    #[test]
    fn debug_does_not_print_the_bytes() {
        assert_eq!(
            format!("{:?}", Buffer::zeroed(4096)),
            "Buffer { len: 4096 }"
        );
    }
}
