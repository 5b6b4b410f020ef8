//! What a device holds, in memory: sparse, and cheap to copy.

use std::fmt;
use std::sync::Arc;

use crate::DeviceError;
use crate::error::check_range;

/// Unit of sharing between copies: small, because a copy that differs by one
/// block owns one chunk.
const CHUNK: usize = 16 << 10;

type Chunk = [u8; CHUNK];

/// The bytes of a device. A clone shares everything with its original until one
/// of them is written to, and only what was never written takes no memory.
#[derive(Clone)]
pub struct Image {
    size: u64,
    /// `None` reads as zeroes.
    chunks: Arc<Vec<Option<Arc<Chunk>>>>,
}

impl Image {
    /// An image of `size` zero bytes.
    pub fn new(size: u64) -> Self {
        let count = size.div_ceil(CHUNK as u64) as usize;
        Self {
            size,
            chunks: Arc::new(vec![None; count]),
        }
    }

    /// An image of these bytes; chunks of zeroes take no memory.
    pub fn from_bytes(bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let chunks = bytes.chunks(CHUNK).map(|part| {
            part.iter().any(|&byte| byte != 0).then(|| {
                let mut chunk = [0; CHUNK];
                chunk[..part.len()].copy_from_slice(part);
                Arc::new(chunk)
            })
        });
        Self {
            size: bytes.len() as u64,
            chunks: Arc::new(chunks.collect()),
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` from byte `offset`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self.size, offset, buffer.len() as u64)?;
        let mut rest = buffer;
        for (index, start, count) in parts(offset, rest.len()) {
            let (head, tail) = rest.split_at_mut(count);
            match &self.chunks[index] {
                Some(chunk) => head.copy_from_slice(&chunk[start..start + count]),
                None => head.fill(0),
            }
            rest = tail;
        }
        Ok(())
    }

    /// Writes `data` at byte `offset`, at any alignment.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        check_range(self.size, offset, data.len() as u64)?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let mut rest = data;
        for (index, start, count) in parts(offset, rest.len()) {
            let (head, tail) = rest.split_at(count);
            let chunk = chunks[index].get_or_insert_with(|| Arc::new([0; CHUNK]));
            Arc::make_mut(chunk)[start..start + count].copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    /// Makes a range read as zeroes, and frees the memory of whole chunks.
    pub fn clear(&mut self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(self.size, offset, len)?;
        let chunks = Arc::make_mut(&mut self.chunks);
        for (index, start, count) in parts(offset, len as usize) {
            if count == CHUNK {
                chunks[index] = None;
            } else if let Some(chunk) = &mut chunks[index] {
                Arc::make_mut(chunk)[start..start + count].fill(0);
            }
        }
        Ok(())
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (part, chunk) in bytes.chunks_mut(CHUNK).zip(self.chunks.iter()) {
            if let Some(chunk) = chunk {
                part.copy_from_slice(&chunk[..part.len()]);
            }
        }
        bytes
    }
}

/// Compares the bytes, not how they are stored.
impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        const ZEROES: &Chunk = &[0; CHUNK];
        let same = |(left, right): (&Option<Arc<Chunk>>, &Option<Arc<Chunk>>)| match (left, right) {
            (None, None) => true,
            (Some(chunk), None) | (None, Some(chunk)) => **chunk == *ZEROES,
            (Some(left), Some(right)) => Arc::ptr_eq(left, right) || left == right,
        };
        self.size == other.size
            && (Arc::ptr_eq(&self.chunks, &other.chunks)
                || self.chunks.iter().zip(other.chunks.iter()).all(same))
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.chunks.iter().flatten().count() * CHUNK;
        f.debug_struct("Image")
            .field("size", &self.size)
            .field("used", &used)
            .finish()
    }
}

/// Cuts a range at chunk borders: (chunk, first byte in it, length).
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut index = (offset / CHUNK as u64) as usize;
    let mut start = (offset % CHUNK as u64) as usize;
    let mut left = len;
    std::iter::from_fn(move || {
        let count = left.min(CHUNK - start);
        let part = (index, start, count);
        left -= count;
        index += 1;
        start = 0;
        (count > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 5 * CHUNK as u64 + 100;

    #[test]
    fn reads_what_was_written_across_chunks() {
        let mut image = Image::new(SIZE);
        let data: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8 + 1).collect();
        image.write(10_000, &data).unwrap();
        let mut back = vec![9; 40_002];
        image.read(9_999, &mut back).unwrap();
        assert_eq!((back[0], back[40_001]), (0, 0));
        assert_eq!(back[1..40_001], data);
        assert_eq!(image.to_vec().len() as u64, SIZE);
        assert_eq!(Image::from_bytes(image.to_vec()), image);
    }

    #[test]
    fn a_clone_does_not_see_later_writes() {
        let mut image = Image::new(SIZE);
        image.write(0, &[1; 100]).unwrap();
        let before = image.clone();
        assert_eq!(before, image);
        image.write(50, &[2; 10]).unwrap();
        assert_ne!(before, image);
        let mut byte = [0];
        before.read(50, &mut byte).unwrap();
        assert_eq!(byte, [1]);
    }

    #[test]
    fn clearing_frees_whole_chunks_and_zeroes_parts() {
        let mut image = Image::from_bytes(vec![3; SIZE as usize]);
        image.clear(100, 2 * CHUNK as u64).unwrap();
        assert_eq!(image.chunks.iter().flatten().count(), 5);
        let bytes = image.to_vec();
        assert_eq!((bytes[99], bytes[100]), (3, 0));
        assert_eq!(bytes[100 + 2 * CHUNK - 1..100 + 2 * CHUNK + 1], [0, 3]);
        image.clear(0, SIZE).unwrap();
        assert_eq!(image, Image::new(SIZE));
    }

    #[test]
    fn nothing_reaches_beyond_the_end() {
        let mut image = Image::new(SIZE);
        assert!(image.write(SIZE - 1, &[1, 2]).is_err());
        assert!(image.read(u64::MAX, &mut [0]).is_err());
        assert!(image.clear(SIZE, 1).is_err());
        assert!(image.write(SIZE - 1, &[1]).is_ok());
    }
}
