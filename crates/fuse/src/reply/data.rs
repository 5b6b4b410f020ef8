//! Replies that are bytes: file data, link targets, extended attributes.

use std::ops::Range;
use std::sync::Arc;

use super::{Reply, Segment};

/// Below this size a copy is cheaper than one more slice for the kernel to
/// look up.
const COPY_MAX: usize = 2048;

/// Takes the data of a READ, in order, up to the size that was asked for. What
/// is appended beyond that is cut off; fewer bytes mean the end of the file.
pub struct ReadReply<'a> {
    reply: &'a mut Reply,
    left: usize,
}

impl<'a> ReadReply<'a> {
    pub(crate) fn new(reply: &'a mut Reply, size: usize) -> Self {
        Self { reply, left: size }
    }

    /// Appends a copy of `bytes`.
    pub fn append(&mut self, bytes: &[u8]) {
        let taken = bytes.len().min(self.left);
        self.reply.push_bytes(&bytes[..taken]);
        self.left -= taken;
    }

    /// Appends `bytes[range]`, which the kernel copies straight from there. The
    /// part of the range behind the end of `bytes` is ignored.
    pub fn append_shared(&mut self, bytes: Arc<[u8]>, range: Range<usize>) {
        let range = self.clip(bytes.len(), range);
        if range.len() <= COPY_MAX || !self.reply.can_share() {
            self.append(&bytes[range]);
            return;
        }
        let len = range.len();
        self.left -= len;
        self.reply.share(Segment::Shared(bytes, range), len);
    }

    /// Appends `count` zeros, for a hole.
    pub fn append_zeros(&mut self, count: usize) {
        let count = count.min(self.left);
        self.left -= count;
        if count <= COPY_MAX || !self.reply.can_share() {
            self.reply.push_zeros(count);
        } else {
            self.reply.share(Segment::Zeros(count), count);
        }
    }

    fn clip(&self, len: usize, range: Range<usize>) -> Range<usize> {
        let start = range.start.min(len);
        let end = range.end.clamp(start, len);
        start..end.min(start.saturating_add(self.left))
    }
}

/// Takes bytes that belong together: a link's target, the value of an extended
/// attribute, the names of all of them, the output of an ioctl.
pub struct ByteSink<'a> {
    reply: &'a mut Reply,
}

impl<'a> ByteSink<'a> {
    pub(crate) fn new(reply: &'a mut Reply) -> Self {
        Self { reply }
    }

    /// Appends `bytes`.
    pub fn put(&mut self, bytes: &[u8]) {
        self.reply.push_bytes(bytes);
    }

    /// Appends one name of a list of extended attributes.
    pub fn put_name(&mut self, name: &[u8]) {
        self.reply.push_bytes(name);
        self.reply.push_bytes(&[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::flat;
    use super::*;

    fn reply_of(size: usize, build: impl FnOnce(&mut ReadReply<'_>)) -> Vec<u8> {
        let mut reply = Reply::new();
        reply.clear();
        build(&mut ReadReply::new(&mut reply, size));
        assert_eq!(reply.body_len(), flat(&reply).len() - 16);
        flat(&reply)[16..].to_vec()
    }

    #[test]
    fn pieces_keep_their_order() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        let shared: Arc<[u8]> = bytes.clone().into();
        let got = reply_of(1 << 20, |read| {
            read.append(b"first");
            read.append_shared(Arc::clone(&shared), 1_000..9_000);
            read.append(b"second");
            read.append_zeros(200_000);
            read.append_shared(Arc::clone(&shared), 0..3);
            read.append(b"last");
        });
        let mut want = b"first".to_vec();
        want.extend_from_slice(&bytes[1_000..9_000]);
        want.extend_from_slice(b"second");
        want.resize(want.len() + 200_000, 0);
        want.extend_from_slice(&[0, 1, 2]);
        want.extend_from_slice(b"last");
        assert!(got == want);
    }

    #[test]
    fn nothing_exceeds_the_size_asked_for() {
        let shared: Arc<[u8]> = vec![1; 10_000].into();
        for size in [0, 1, 4_095, 4_096, 9_999] {
            let got = reply_of(size, |read| {
                read.append_shared(Arc::clone(&shared), 0..usize::MAX);
                read.append(&[2; 10]);
                read.append_zeros(usize::MAX);
            });
            assert_eq!(got.len(), size);
        }
        let reversed = Range { start: 9, end: 3 };
        assert!(reply_of(100, |read| read.append_shared(shared, reversed)).is_empty());
    }

    #[test]
    fn many_pieces_fall_back_to_copying() {
        let shared: Arc<[u8]> = vec![3; 2_100].into();
        let mut reply = Reply::new();
        reply.clear();
        let mut read = ReadReply::new(&mut reply, usize::MAX);
        for _ in 0..2_000 {
            read.append_shared(Arc::clone(&shared), 0..2_100);
        }
        reply.with_slices(|slices| {
            assert!(slices.len() <= 1024);
            assert_eq!(
                slices.iter().map(|s| s.len()).sum::<usize>(),
                16 + 2_000 * 2_100
            );
        });
    }
}
