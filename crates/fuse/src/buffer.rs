//! Buffers in which data lies on a page boundary, where a direct write can take it from.

use std::hint::black_box;

use rustix::param::page_size;

/// Longer than most requests but writes, in bytes.
const TOUCHED: usize = 8192;

/// Bytes of which those behind a prefix start on a page boundary.
pub(crate) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    /// `len` zeros; the one behind the first `prefix` is aligned.
    pub(crate) fn new(prefix: usize, len: usize) -> Self {
        let align = page_size();
        // Zeroed by the allocator, so untouched pages cost no memory.
        let bytes = vec![0; len + align];
        let data = bytes.as_ptr().wrapping_add(prefix);
        let start = data.align_offset(align);
        // align_offset may refuse to answer; then it is a slower buffer.
        let start = if start < align { start } else { 0 };
        Self { bytes, start }
    }

    /// As [`new`](Self::new), for requests that are read: the pages that most of them take are there. If a server is
    /// killed while the kernel copies a request to it, and a page is not there, the kernel fails the request with EIO
    /// instead of leaving it to a successor.
    pub(crate) fn for_requests(prefix: usize, len: usize) -> Self {
        let mut buffer = Self::new(prefix, len);
        let touched = buffer.bytes.len().min(buffer.start + TOUCHED);
        buffer.bytes[..touched].fill(1);
        black_box(&mut buffer.bytes);
        buffer
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_prefix_is_aligned() {
        for (prefix, len) in [(80, 8192), (80, 1 << 20), (0, 4096)] {
            let mut buffer = AlignedBuffer::new(prefix, len);
            assert!(buffer.bytes_mut().len() >= len);
            let data = buffer.bytes()[prefix..].as_ptr();
            assert_eq!(data.align_offset(page_size()), 0);
        }
    }
}
