//! How far scrubs are.

use crate::types::FragAddr;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How far a scrub is, or what the last one found. Who loses this loses nothing but time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubMark {
    /// Where the one that is under way goes on; none is at address 0.
    pub next: FragAddr,
    /// When it began, seconds since 1970.
    pub since: i64,
    /// When the last one ended that came to the end of the volume, seconds since 1970; 0 if none did.
    pub until: i64,
    /// Blocks that it found damaged.
    pub damaged: u64,
    /// Those of them that it wrote anew, from a second copy.
    pub healed: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawScrub {
    next: U64,
    since: U64,
    until: U64,
    damaged: U64,
    healed: U64,
}

impl RawScrub {
    pub(super) fn new(mark: &ScrubMark) -> RawScrub {
        RawScrub {
            next: U64::new(mark.next.0),
            since: U64::new(mark.since.cast_unsigned()),
            until: U64::new(mark.until.cast_unsigned()),
            damaged: U64::new(mark.damaged),
            healed: U64::new(mark.healed),
        }
    }

    pub(super) fn decode(&self) -> ScrubMark {
        ScrubMark {
            next: FragAddr(self.next.get()),
            since: self.since.get().cast_signed(),
            until: self.until.get().cast_signed(),
            damaged: self.damaged.get(),
            healed: self.healed.get(),
        }
    }
}
