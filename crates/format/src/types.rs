//! One type per kind of number: addresses, counts and sequence numbers never mix by accident.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            /// The plain number.
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A place on the volume, in fragments, translated to a device by the superblock's device map.
    FragAddr(u64), "@"
);
number!(
    /// The number of an inode. 0 is never used; see [`crate::inode::ROOT_INO`] and its neighbours.
    Ino(u64), "i"
);
number!(
    /// The number of an inode block: [`crate::ifile::INODES_PER_BLOCK`] consecutive inode numbers.
    InodeBlockNo(u64), "ib"
);
number!(
    /// The number of an allocation group.
    GroupNo(u32), "g"
);
number!(
    /// Segment sequence number. mkfs writes segment 1; 0 means "none".
    Ssn(u64), "S"
);
number!(
    /// What a segment chooses and its successor must repeat (FORMAT.md, "Following the chain"; rule 4).
    Token(u64), "t"
);

impl FragAddr {
    /// The address `frags` fragments further on, or `None` past the end of the address space.
    pub fn checked_add(self, frags: u64) -> Option<FragAddr> {
        self.0.checked_add(frags).map(FragAddr)
    }
}

impl Ssn {
    /// The sequence number of the following segment.
    pub fn next(self) -> Ssn {
        Ssn(self.0.saturating_add(1))
    }
}

/// A run of fragments: `start .. start + frags`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First fragment.
    pub start: FragAddr,
    /// Length in fragments.
    pub frags: u64,
}

impl Extent {
    /// The run of `frags` fragments from `start` on.
    pub const fn new(start: FragAddr, frags: u64) -> Extent {
        Extent { start, frags }
    }

    /// The first fragment behind the run, saturating at the end of the address space.
    pub const fn end(self) -> FragAddr {
        FragAddr(self.start.0.saturating_add(self.frags))
    }

    /// Whether the two runs share a fragment.
    pub const fn overlaps(self, other: Extent) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }

    /// The part of the run that lies in another one; without fragments if there is none.
    pub fn intersection(self, other: Extent) -> Extent {
        let (start, end) = (self.start.max(other.start), self.end().min(other.end()));
        Extent::new(start, end.0.saturating_sub(start.0))
    }

    /// Whether `addr` lies in the run.
    pub const fn contains(self, addr: FragAddr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end().0
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}+{}", self.start.0, self.frags)
    }
}
