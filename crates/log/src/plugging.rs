//! Hole plugging (H10): which holes a segment is cut into where space is scarce. The log is threaded through them. Placing asks,
//! and whoever foresees whether a segment will have a place.

use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::{FragAddr, Geometry};
use std::collections::BTreeMap;

/// Into which holes a segment is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each block into the smallest that it fits into, so that what superseded blocks leave is as good for their
    /// successors, and longer ones stay whole. But each extent changes the maps elsewhere.
    Smallest,
    /// Each block into the longest hole, so that extents are few. Short blocks, which are nodes, leave enough long holes for the
    /// longer blocks of this segment. If it has none, they leave enough for those of the next one.
    Longest,
}

/// Holes of one length.
pub trait Count {
    /// How many there are.
    fn count(&self) -> u64;
}

impl Count for u64 {
    fn count(&self) -> u64 {
        *self
    }
}

impl Count for Vec<FragAddr> {
    fn count(&self) -> u64 {
        self.len() as u64
    }
}

/// What short blocks leave alone: room for so many fragments in holes that fit blocks of that length.
#[derive(Clone, Copy, Debug)]
struct Spared {
    length: u64,
    frags: u64,
}

/// How the holes of a segment are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Fitting {
    cut: Cut,
    spared: Spared,
    unit: u64,
}

impl Fitting {
    /// For a segment whose blocks that are longer than a unit have so many fragments at most, and together.
    pub fn new(geometry: &Geometry, cut: Cut, longest: u64, frags: u64) -> Fitting {
        let unit = geometry.unit_frags();
        let spared = match longest > unit {
            true => Spared {
                length: longest,
                frags,
            },
            false => Spared {
                length: geometry.frags_for(INODE_BLOCK_MAX),
                frags: u64::MAX,
            },
        };
        Fitting { cut, spared, unit }
    }

    /// For a segment of these blocks.
    pub fn of(geometry: &Geometry, cut: Cut, blocks: &[u32]) -> Fitting {
        let blocks = blocks.iter().map(|frags| u64::from(*frags));
        let long = blocks.filter(|frags| *frags > geometry.unit_frags());
        let (longest, all) = long.fold((0, 0), |(longest, all), frags| {
            (frags.max(longest), all + frags)
        });
        Fitting::new(geometry, cut, longest, all)
    }

    /// A block of so many fragments was placed: it needs nothing any more.
    pub fn placed(&mut self, frags: u64) {
        if frags > self.unit {
            self.spared.frags = self.spared.frags.saturating_sub(frags);
        }
    }

    /// The length of the hole that is taken next, of at least `least` fragments.
    pub fn choose(&self, holes: &BTreeMap<u64, impl Count>, least: u64) -> Option<u64> {
        let mut fitting = holes.range(least..).map(|(frags, _)| *frags);
        if self.cut == Cut::Smallest {
            return fitting.next();
        }
        let longest = fitting.next_back()?;
        let short = holes.range(least..self.spared.length.max(least));
        match self.spares(holes, longest) {
            true => Some(longest),
            false => Some(short.last().map_or(longest, |(frags, _)| *frags)),
        }
    }

    /// Whether longer blocks find what they need in the other holes if a hole of that length is taken.
    fn spares(&self, holes: &BTreeMap<u64, impl Count>, taken: u64) -> bool {
        let Spared { length, frags } = self.spared;
        let whole = |frags: u64| frags - frags % length;
        let all = holes.range(length..);
        let all: u64 = all.map(|(frags, some)| whole(*frags) * some.count()).sum();
        all.saturating_sub(whole(taken)) >= frags
    }
}
