//! What a file holds: pieces of memory.

use loamfs_fuse::ReadReply;

/// Bytes of a piece: a large file is not moved as it grows.
const PIECE: usize = 1 << 20;

/// The bytes of a file. A piece may be shorter than its place; the rest reads as zeros.
#[derive(Default)]
pub struct Content {
    pieces: Vec<Vec<u8>>,
    size: u64,
}

/// The piece that a byte is in, and where in it.
fn place(offset: u64) -> (usize, usize) {
    let piece = PIECE as u64;
    ((offset / piece) as usize, (offset % piece) as usize)
}

impl Content {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends the `len` bytes from `offset` on to a reply, as far as there are any.
    pub fn read(&self, offset: u64, len: u64, reply: &mut ReadReply<'_>) {
        let end = offset.saturating_add(len).min(self.size);
        let mut at = offset;
        while at < end {
            let (index, start) = place(at);
            let taken = ((PIECE - start) as u64).min(end - at) as usize;
            let piece = self.pieces.get(index).map_or(&[][..], Vec::as_slice);
            let held = piece.get(start..).unwrap_or_default();
            let held = &held[..held.len().min(taken)];
            reply.append(held);
            reply.append_zeros(taken - held.len());
            at += taken as u64;
        }
    }

    /// A copy of the `len` bytes from `offset` on, as far as there are any.
    pub fn copy(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        let mut copy = vec![0; end.saturating_sub(offset) as usize];
        let mut done = 0;
        while done < copy.len() {
            let (index, start) = place(offset + done as u64);
            let taken = (PIECE - start).min(copy.len() - done);
            let piece = self.pieces.get(index).map_or(&[][..], Vec::as_slice);
            let held = piece.get(start..).unwrap_or_default();
            let held = &held[..held.len().min(taken)];
            copy[done..done + held.len()].copy_from_slice(held);
            done += taken;
        }
        copy
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (index, start) = place(at);
            let (now, later) = rest.split_at(rest.len().min(PIECE - start));
            if self.pieces.len() <= index {
                self.pieces.resize_with(index + 1, Vec::new);
            }
            let piece = &mut self.pieces[index];
            if piece.len() < start {
                piece.resize(start, 0);
            }
            let over = now.len().min(piece.len() - start);
            piece[start..start + over].copy_from_slice(&now[..over]);
            piece.extend_from_slice(&now[over..]);
            at += now.len() as u64;
            rest = later;
        }
        self.size = self.size.max(at);
    }

    /// Cuts it, or extends it by zeros.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            let (index, start) = place(size);
            self.pieces.truncate(index + 1);
            if let Some(piece) = self.pieces.get_mut(index) {
                piece.truncate(start);
            }
        }
        self.size = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_holes_are_zeros() {
        let mut content = Content::default();
        let far = 3 * PIECE as u64 - 2;
        content.write(2, b"abc");
        content.write(far, b"defgh");
        content.write(3, b"B");
        assert_eq!(content.size(), far + 5);
        assert_eq!(content.copy(0, 8), b"\0\0aBc\0\0\0");
        assert_eq!(content.copy(far - 1, 100), b"\0defgh");
        assert_eq!(content.copy(far + 5, 100), b"");
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut content = Content::default();
        content.write(0, b"abcdef");
        content.resize(3);
        content.resize(8);
        assert_eq!(content.copy(0, 9), b"abc\0\0\0\0\0");
        content.write(7, b"x");
        assert_eq!(content.copy(0, 9), b"abc\0\0\0\0x");
        content.resize(0);
        assert_eq!(content.size(), 0);
    }
}
