//! The place of one request: the kernel writes it there, and the answer takes its place.
//!
//! ```text
//! payload                      page-aligned: names and data, of the request and then of the answer
//! head     0 .. 128            the request's header, then the answer's
//!        128 .. 256            the request's fixed-size argument
//!        256 .. 288            flags, commit id, payload size
//! iovecs                       where head and payload are, as the kernel is told once
//! ```

use crate::buffer::AlignedBuffer;
use crate::request::NotARequest;
use crate::wire::header::OUT_HEADER_LEN;
use crate::{Errno, RawRequest, Reply};

const FIXED: usize = 128;
const ENTRY: usize = 256;
const COMMIT_ID: usize = ENTRY + 8;
const PAYLOAD_SIZE: usize = ENTRY + 16;
const HEAD_LEN: usize = 288;
const IOVECS: usize = 512;
/// What a slot takes besides its payload.
const EXTRA: usize = IOVECS + size_of::<[usize; 4]>();

/// Where the number of a request is in its header.
const UNIQUE: usize = 8;

/// Number of iovecs of a slot.
pub(super) const IOVEC_COUNT: u32 = 2;

pub(super) struct Slot {
    buffer: AlignedBuffer,
    payload_len: usize,
    queue: u16,
}

impl Slot {
    /// A slot of a queue, for payloads of `payload_len` bytes.
    pub(super) fn new(queue: u16, payload_len: usize) -> Self {
        let mut buffer = AlignedBuffer::new(0, payload_len + EXTRA);
        let payload = buffer.bytes().as_ptr().expose_provenance();
        let iovecs = [payload + payload_len, HEAD_LEN, payload, payload_len];
        let place = &mut buffer.bytes_mut()[payload_len + IOVECS..];
        for (place, word) in place.chunks_exact_mut(size_of::<usize>()).zip(iovecs) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        Self {
            buffer,
            payload_len,
            queue,
        }
    }

    /// The queue that it belongs to.
    pub(super) fn queue(&self) -> u16 {
        self.queue
    }

    /// The address of [`IOVEC_COUNT`] iovecs that say where the kernel finds it. It stays where it is.
    pub(super) fn iovecs(&self) -> usize {
        let iovecs = &self.buffer.bytes()[self.payload_len + IOVECS..];
        iovecs.as_ptr().expose_provenance()
    }

    fn head(&self) -> &[u8] {
        &self.buffer.bytes()[self.payload_len..][..HEAD_LEN]
    }

    fn number<const LEN: usize>(&self, at: usize) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes.copy_from_slice(&self.head()[at..at + LEN]);
        bytes
    }

    /// The number by which the kernel knows the request that is in it.
    pub(super) fn commit_id(&self) -> u64 {
        u64::from_ne_bytes(self.number(COMMIT_ID))
    }

    /// The request that the kernel put into it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn request(&self) -> Result<RawRequest<'_>, NotARequest> {
        let size = u32::from_ne_bytes(self.number(PAYLOAD_SIZE));
        let size = usize::try_from(size).map_err(|_| NotARequest)?;
        let payload = &self.buffer.bytes()[..self.payload_len];
        let payload = payload.get(..size).ok_or(NotARequest)?;
        let head = self.head();
        RawRequest::split(&head[..FIXED], &head[FIXED..ENTRY], payload)
    }

    /// Puts the answer in the place of the request.
    pub(super) fn answer(&mut self, reply: &Reply) {
        let body = reply.len().saturating_sub(OUT_HEADER_LEN);
        if body > self.payload_len {
            tracing::error!(body, "an answer is too long for its slot");
            return self.refuse(Errno::IO);
        }
        let (payload, head) = self.buffer.bytes_mut().split_at_mut(self.payload_len);
        reply.with_slices(|slices| {
            let mut skip = OUT_HEADER_LEN;
            let mut at = 0;
            for slice in slices {
                let (start, rest) = slice.split_at(skip.min(slice.len()));
                let from = OUT_HEADER_LEN - skip;
                head[from..from + start.len()].copy_from_slice(start);
                skip -= start.len();
                payload[at..at + rest.len()].copy_from_slice(rest);
                at += rest.len();
            }
        });
        self.set_payload_size(body);
    }

    /// Answers with an error.
    pub(super) fn refuse(&mut self, errno: Errno) {
        let unique = u64::from_ne_bytes(self.number(UNIQUE));
        let mut reply = Reply::new();
        reply.fail(errno);
        reply.finish(unique);
        self.answer(&reply);
    }

    fn set_payload_size(&mut self, size: usize) {
        // Not more than the payload's length, which came from a u32.
        let size = (size as u32).to_ne_bytes();
        let start = self.payload_len + PAYLOAD_SIZE;
        self.buffer.bytes_mut()[start..start + size.len()].copy_from_slice(&size);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::reply::ReadReply;
    use crate::request::build::Builder;
    use crate::wire::opcode;

    /// As the kernel puts a request into a slot.
    fn put(slot: &mut Slot, opcode: u32, payload: &[u8]) {
        let request = Builder::new(opcode, 1).contiguous();
        let len = slot.payload_len;
        let bytes = slot.buffer.bytes_mut();
        bytes[len..len + request.len()].copy_from_slice(&request);
        bytes[..payload.len()].copy_from_slice(payload);
        slot.set_payload_size(payload.len());
    }

    #[test]
    fn a_request_is_found_where_the_kernel_puts_it() {
        let mut slot = Slot::new(3, 8192);
        put(&mut slot, opcode::LOOKUP, b"name\0");
        assert_eq!(slot.request().unwrap().opcode(), opcode::LOOKUP);
        slot.set_payload_size(8193);
        assert!(slot.request().is_err());
    }

    #[test]
    fn an_answer_in_pieces_becomes_one() {
        let mut slot = Slot::new(0, 16384);
        let shared: Arc<[u8]> = vec![7; 5000].into();
        let mut reply = Reply::new();
        reply.clear();
        let mut data = ReadReply::new(&mut reply, 16000);
        data.append(b"start");
        data.append_shared(shared, 0..5000);
        data.append(b"end");
        reply.finish(9);
        slot.answer(&reply);
        assert_eq!(slot.head()[8..16], 9_u64.to_ne_bytes());
        assert_eq!(u32::from_ne_bytes(slot.number(PAYLOAD_SIZE)), 5008);
        let bytes = slot.buffer.bytes();
        assert_eq!(&bytes[..5], b"start");
        assert!(bytes[5..5005].iter().all(|byte| *byte == 7));
        assert_eq!(&bytes[5005..5008], b"end");
    }

    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        let mut slot = Slot::new(0, 4096);
        put(&mut slot, opcode::READ, b"");
        let mut reply = Reply::new();
        reply.clear();
        ReadReply::new(&mut reply, 5000).append_zeros(5000);
        reply.finish(1);
        slot.answer(&reply);
        let error = i32::from_ne_bytes(slot.number(4));
        assert_eq!(error, -Errno::IO.raw_os_error());
        assert_eq!(u32::from_ne_bytes(slot.number(PAYLOAD_SIZE)), 0);
    }
}
