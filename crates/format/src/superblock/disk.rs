//! What the time of a volume's disk costs.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the time of a volume's disk costs: by these figures is decided what is worth settling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFigures {
    /// Shortest seek, in microseconds.
    pub shortest_seek: u32,
    /// Seek over a third of the stroke, in microseconds; at most a second.
    pub average_seek: u32,
    /// A turn, in microseconds, at most a second; 0 for what does not turn.
    pub turn: u32,
    /// Bytes that pass in a microsecond, 1 to 1,000,000.
    pub rate: u32,
    /// Whether tracks overlap: what is written in short pieces costs no seek, but bands that are written anew later.
    pub shingled: bool,
}

impl DiskFigures {
    /// Those of a disk of 7,200 turns a minute.
    pub const TURNING: DiskFigures = DiskFigures {
        shortest_seek: 800,
        average_seek: 8_500,
        turn: 8_333,
        rate: 180,
        shingled: false,
    };
    /// Those of a disk that seeks in no time to speak of.
    pub const SOLID: DiskFigures = DiskFigures {
        shortest_seek: 50,
        average_seek: 50,
        turn: 0,
        rate: 500,
        shingled: false,
    };

    /// Those of such a disk whose tracks overlap.
    pub const SHINGLED: DiskFigures = DiskFigures {
        shingled: true,
        ..DiskFigures::TURNING
    };

    /// Those of most disks that turn, or do not.
    pub const fn usual(rotational: bool) -> DiskFigures {
        match rotational {
            true => DiskFigures::TURNING,
            false => DiskFigures::SOLID,
        }
    }

    /// Whether a disk can be like that.
    pub fn is_possible(&self) -> bool {
        self.shortest_seek <= self.average_seek
            && self.average_seek <= 1_000_000
            && self.turn <= 1_000_000
            && (1..=1_000_000).contains(&self.rate)
    }
}

/// The bit of `disk_kind` that says so of a shingled disk.
pub(super) const SHINGLED: u8 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDisk {
    shortest_seek: U32,
    average_seek: U32,
    turn: U32,
    rate: U32,
}

impl RawDisk {
    pub(super) fn new(figures: &DiskFigures) -> RawDisk {
        RawDisk {
            shortest_seek: U32::new(figures.shortest_seek),
            average_seek: U32::new(figures.average_seek),
            turn: U32::new(figures.turn),
            rate: U32::new(figures.rate),
        }
    }

    pub(super) fn decode(&self, kind: u8) -> Option<DiskFigures> {
        let figures = DiskFigures {
            shortest_seek: self.shortest_seek.get(),
            average_seek: self.average_seek.get(),
            turn: self.turn.get(),
            rate: self.rate.get(),
            shingled: kind & SHINGLED != 0,
        };
        Some(figures).filter(DiskFigures::is_possible)
    }
}
