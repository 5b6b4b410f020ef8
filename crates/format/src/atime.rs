//! Access times beside the inodes: what the tree of the atime file, a reserved inode, holds.

use crate::ifile::INODES_PER_BLOCK;
use crate::inode::{Body, Inode, Timestamp, mode};
use crate::types::{Ino, Ssn};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The atime file. It has no name and no content; its tree `checksums` holds an [`AtimeRun`] for each inode block that
/// has any, by the block's number.
pub const ATIME_INO: Ino = Ino(3);

/// When an inode was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atime {
    /// When.
    pub time: Timestamp,
    /// Low half of the segment of the inode's last change: with any other, the inode's own time counts.
    pub ssn: u32,
}

impl Atime {
    /// Of an inode whose last change is in segment `ssn`.
    pub const fn new(time: Timestamp, ssn: Ssn) -> Atime {
        Atime {
            time,
            // Cut off on purpose.
            ssn: ssn.0 as u32,
        }
    }

    /// Whether it counts for an inode whose last change is in segment `ssn`.
    pub const fn counts(&self, ssn: Ssn) -> bool {
        self.ssn == ssn.0 as u32
    }
}

/// The form on disk, 16 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAtime {
    seconds: U64,
    nanos: U32,
    ssn: U32,
}

/// The access times of the inodes of one block, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtimeRun(pub [Option<Atime>; INODES_PER_BLOCK as usize]);

impl AtimeRun {
    /// The bytes on disk: a bit for each slot that has a time, then those times; `None` when there are none.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let slots = (0u32..).zip(&self.0);
        let mask = slots.fold(0, |mask, (slot, time)| {
            mask | u32::from(time.is_some()) << slot
        });
        let mut bytes = mask.to_le_bytes().to_vec();
        for atime in self.0.iter().flatten() {
            let raw = RawAtime {
                seconds: U64::new(atime.time.seconds.cast_unsigned()),
                nanos: U32::new(atime.time.nanos),
                ssn: U32::new(atime.ssn),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        (mask != 0).then_some(bytes)
    }

    /// Reads the bytes; `None` when they are no run.
    pub fn decode(bytes: &[u8]) -> Option<AtimeRun> {
        let (mask, rest) = bytes.split_first_chunk::<4>()?;
        let mask = u32::from_le_bytes(*mask);
        let raw = <[RawAtime]>::ref_from_bytes(rest).ok()?;
        if mask == 0 || raw.len() != mask.count_ones() as usize {
            return None;
        }
        let mut run = AtimeRun::default();
        let slots = (0u32..).zip(&mut run.0);
        let set = slots.filter(|(slot, _)| mask & (1 << slot) != 0);
        for ((_, time), raw) in set.zip(raw) {
            let nanos = raw.nanos.get();
            if nanos >= 1_000_000_000 {
                return None;
            }
            let seconds = raw.seconds.get().cast_signed();
            *time = Some(Atime {
                time: Timestamp { seconds, nanos },
                ssn: raw.ssn.get(),
            });
        }
        Some(run)
    }
}

/// Whether an inode is what the atime file is: with any other of its number nobody keeps access times.
pub fn is_atime_file(inode: &Inode) -> bool {
    inode.ino == ATIME_INO
        && inode.file_type() == mode::REGULAR
        && inode.nlink == 1
        && inode.size == 0
        && inode.truncating == u64::MAX
        && inode.body == Body::Empty
        && inode.xattrs.is_empty()
        && inode.inline_xattrs.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanos: u32, ssn: u32) -> Option<Atime> {
        let time = Timestamp { seconds, nanos };
        Some(Atime { time, ssn })
    }

    #[test]
    fn a_run_reads_back_and_takes_only_what_it_holds() {
        let mut run = AtimeRun::default();
        assert_eq!(run.encode(), None);
        (run.0[0], run.0[9], run.0[31]) = (at(-1, 999_999_999, 7), at(0, 0, 0), at(5, 6, u32::MAX));
        let bytes = run.encode().unwrap();
        assert_eq!(bytes.len(), 4 + 3 * 16);
        assert_eq!(bytes[..4], 0x8000_0201u32.to_le_bytes());
        assert_eq!(bytes[12..20], [0xff, 0xc9, 0x9a, 0x3b, 7, 0, 0, 0]);
        assert_eq!(AtimeRun::decode(&bytes), Some(run));
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let mut run = AtimeRun::default();
        run.0[3] = at(1, 2, 3);
        let bytes = run.encode().unwrap();
        assert_eq!(AtimeRun::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(AtimeRun::decode(&[]), None);
        assert_eq!(AtimeRun::decode(&[0; 4]), None, "no slot");
        assert_eq!(AtimeRun::decode(&[&bytes[..], &[0; 16]].concat()), None);
        let nanos = [&bytes[..12], &1_000_000_000u32.to_le_bytes(), &bytes[16..]].concat();
        assert_eq!(AtimeRun::decode(&nanos), None);
    }

    #[test]
    fn a_time_counts_while_the_inode_did_not_change() {
        let time = Atime::new(Timestamp::default(), Ssn(1 << 32 | 5));
        assert!(time.counts(Ssn(1 << 32 | 5)) && !time.counts(Ssn(1 << 32 | 6)));
    }
}
