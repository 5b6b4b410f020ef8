//! FITRIM, which fstrim(8) calls.

use loamfs_format::inode::ROOT_INO;
use loamfs_fuse::{ByteSink, Caller, Errno, IoctlCall};

use super::Adapter;
use super::trusted::administers;

/// `_IOWR('X', 121, struct fstrim_range)`.
pub(super) const COMMAND: u32 = 0xc018_5879;

impl Adapter {
    /// Tells the device what is free in the range that is passed in: first byte, length, least run. Returns the same with
    /// the bytes that were discarded for the length.
    pub(super) fn trim(
        &self,
        caller: Caller,
        call: IoctlCall<'_>,
        output: &mut ByteSink<'_>,
    ) -> Result<i32, Errno> {
        if !administers(caller) {
            return Err(Errno::PERM);
        }
        let (words, []) = call.input.as_chunks::<8>() else {
            return Err(Errno::INVAL);
        };
        let [start, len, least] = words else {
            return Err(Errno::INVAL);
        };
        let number = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        let told = self
            .volume
            .upkeep()
            .trim(number(start), number(len), number(least));
        let told = self.answer("trim", ROOT_INO, told)?;
        output.put(start);
        output.put(&told.to_ne_bytes());
        output.put(least);
        Ok(0)
    }
}
