//! The reply to one request, in a buffer that its thread uses again and again.
//!
//! Layout: `head` holds the reply's header, the fixed-size answer and all data
//! that was copied in. Data that the file system shares instead of copying
//! stands in `segments`, between runs of `head`:
//!
//! ```text
//! head      [header][answer][ copied ........ ][ copied ]
//! segments  |---- Inline ----------| Shared |--| Zeros  |  (then the last run)
//! ```

mod data;
mod dir;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::Errno;
use crate::wire::header::{OUT_HEADER_LEN, OutHeader};

pub use data::{ByteSink, ReadReply};
pub use dir::{DirEntry, DirPlusSink, DirSink};

/// Where a stretch of the reply's data lies.
enum Segment {
    /// In `head`.
    Inline(Range<usize>),
    Shared(Arc<[u8]>, Range<usize>),
    Zeros(usize),
}

/// Zeros for holes; a longer hole names them several times.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Slices that are prepared on the stack: enough for 1 MiB in blocks of 16 KiB.
const SLICES_ON_STACK: usize = 72;

/// Pieces after which data is copied, so that a reply stays below the number
/// of slices that one writev takes (1024).
const PIECES_MAX: usize = 900;

/// A reply under construction. Reusable: the buffer keeps its capacity.
#[derive(Default)]
pub struct Reply {
    head: Vec<u8>,
    segments: Vec<Segment>,
    /// Where in `head` the run starts that no segment names yet.
    run_start: usize,
    /// Bytes outside `head`.
    shared_len: usize,
    /// Slices that `segments` will need.
    pieces: usize,
    error: i32,
}

impl Reply {
    /// An empty reply.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the content, and lets go of everything shared.
    pub fn clear(&mut self) {
        self.head.clear();
        self.head.resize(OUT_HEADER_LEN, 0);
        self.segments.clear();
        self.run_start = 0;
        self.shared_len = 0;
        self.pieces = 0;
        self.error = 0;
    }

    /// Replaces the content by an error.
    pub fn fail(&mut self, errno: Errno) {
        self.clear();
        let raw = errno.raw_os_error();
        // The kernel refuses a reply with a number outside this range, and the
        // caller would wait for ever.
        self.error = if (1..512).contains(&raw) {
            -raw
        } else {
            -Errno::IO.raw_os_error()
        };
    }

    /// Writes the header, now that the length is known.
    pub(crate) fn finish(&mut self, unique: u64) {
        let header = OutHeader {
            len: u32::try_from(self.len()).unwrap_or(u32::MAX),
            error: self.error,
            unique,
        };
        if let Some(place) = self.head.get_mut(..OUT_HEADER_LEN) {
            place.copy_from_slice(header.as_bytes());
        }
    }

    /// Length in bytes, header included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.shared_len
    }

    /// Whether there is nothing but the header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() <= OUT_HEADER_LEN
    }

    /// The errno of the reply, negated, or zero.
    #[must_use]
    pub fn error(&self) -> i32 {
        self.error
    }

    /// Length of what follows the header.
    pub(crate) fn body_len(&self) -> usize {
        self.len().saturating_sub(OUT_HEADER_LEN)
    }

    pub(crate) fn push<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.head.extend_from_slice(value.as_bytes());
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    pub(crate) fn push_zeros(&mut self, count: usize) {
        self.head.resize(self.head.len() + count, 0);
    }

    /// Replaces the copied body by `value`.
    pub(crate) fn replace<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.head.truncate(OUT_HEADER_LEN);
        self.push(value);
    }

    /// Overwrites what was pushed at `at` bytes behind the header.
    pub(crate) fn patch<T: IntoBytes + Immutable>(&mut self, at: usize, value: &T) {
        let start = OUT_HEADER_LEN + at;
        let bytes = value.as_bytes();
        if let Some(place) = self.head.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn can_share(&self) -> bool {
        self.pieces < PIECES_MAX
    }

    fn share(&mut self, segment: Segment, len: usize) {
        if self.head.len() > self.run_start {
            let run = self.run_start..self.head.len();
            self.run_start = run.end;
            self.segments.push(Segment::Inline(run));
            self.pieces += 1;
        }
        self.pieces += match segment {
            Segment::Zeros(count) => count.div_ceil(ZEROS.len()),
            _ => 1,
        };
        self.segments.push(segment);
        self.shared_len += len;
    }

    /// Calls `send` with the whole reply as slices, in order.
    pub fn with_slices<R>(&self, send: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        if self.segments.is_empty() {
            return send(&[IoSlice::new(&self.head)]);
        }
        if self.pieces < SLICES_ON_STACK {
            let mut slices = [IoSlice::new(&[]); SLICES_ON_STACK];
            let mut used = 0;
            self.each_slice(|bytes| {
                if let Some(slot) = slices.get_mut(used) {
                    *slot = IoSlice::new(bytes);
                    used += 1;
                }
            });
            return send(&slices[..used]);
        }
        let mut slices = Vec::with_capacity(self.pieces + 1);
        self.each_slice(|bytes| slices.push(IoSlice::new(bytes)));
        send(&slices)
    }

    fn each_slice<'a>(&'a self, mut take: impl FnMut(&'a [u8])) {
        for segment in &self.segments {
            match segment {
                Segment::Inline(range) => take(&self.head[range.clone()]),
                Segment::Shared(bytes, range) => take(&bytes[range.clone()]),
                Segment::Zeros(count) => {
                    let mut left = *count;
                    while left > 0 {
                        let piece = left.min(ZEROS.len());
                        take(&ZEROS[..piece]);
                        left -= piece;
                    }
                }
            }
        }
        if self.head.len() > self.run_start {
            take(&self.head[self.run_start..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn flat(reply: &Reply) -> Vec<u8> {
        reply.with_slices(|slices| slices.iter().flat_map(|s| s.to_vec()).collect())
    }

    #[test]
    fn an_errno_the_kernel_refuses_becomes_eio() {
        let mut reply = Reply::new();
        reply.fail(Errno::from_raw_os_error(600));
        assert_eq!(reply.error(), -5);
        reply.fail(Errno::NOENT);
        assert_eq!(reply.error(), -2);
        reply.finish(7);
        let bytes = flat(&reply);
        assert_eq!(bytes.len(), OUT_HEADER_LEN);
        assert_eq!(bytes[0..4], 16_u32.to_ne_bytes());
        assert_eq!(bytes[4..8], (-2_i32).to_ne_bytes());
        assert_eq!(bytes[8..16], 7_u64.to_ne_bytes());
    }

    #[test]
    fn clearing_lets_go_of_shared_data() {
        let data: Arc<[u8]> = vec![1; 100_000].into();
        let mut reply = Reply::new();
        reply.clear();
        ReadReply::new(&mut reply, 100_000).append_shared(Arc::clone(&data), 0..100_000);
        assert_eq!(Arc::strong_count(&data), 2);
        reply.clear();
        assert_eq!(Arc::strong_count(&data), 1);
    }
}
