//! A reader over the arguments of a request that cannot run off the end.

use zerocopy::FromBytes;

use super::RawRequest;
use crate::Errno;

pub(super) struct Args<'a> {
    fixed: &'a [u8],
    rest: &'a [u8],
    /// Fixed-size argument and the rest lie apart.
    split: bool,
}

impl<'a> Args<'a> {
    pub(super) fn new(raw: &RawRequest<'a>) -> Self {
        Self {
            fixed: raw.fixed,
            rest: raw.payload.unwrap_or(raw.fixed),
            split: raw.payload.is_some(),
        }
    }

    /// The next fixed-size argument. Copied, because the buffer need not be
    /// aligned for it and the structures are small.
    pub(super) fn fixed<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (value, tail) = T::read_from_prefix(self.fixed).map_err(|_| Errno::INVAL)?;
        self.fixed = tail;
        if !self.split {
            self.rest = tail;
        }
        Ok(value)
    }

    /// A string that ends in a zero byte, which is not part of it.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Errno> {
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(Errno::INVAL)?;
        let string = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(string)
    }

    /// A string that is one component of a path.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.string()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(Errno::INVAL);
        }
        Ok(name)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: u32) -> Result<&'a [u8], Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Errno::INVAL)?;
        self.rest = rest;
        Ok(bytes)
    }
}
