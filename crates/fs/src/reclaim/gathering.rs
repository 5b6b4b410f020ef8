//! The gathering policy: which parts of large files are worth writing anew in the order of the file, where all of it is in the log
//! and so stands in the order in which it was written (LFS, section 4.3.2: who reads in order what was written at random pays a seek
//! for each piece). `volume::gathering` carries it out.

use super::settler::{Prices, READ_AHEAD};
use crate::cost::Scatter;
use crate::region::Region;
use loamfs_format::{Extent, FragAddr};
use std::collections::BTreeSet;

/// Regions that are remembered at most.
const REGIONS_MAX: usize = 65_536;
/// Ticks in a row at which nobody had asked for anything, before something is gathered: what is written again soon moves once.
const QUIET: u32 = 10;
/// Who asks for it gets what reads so much slower than in order: six fifths.
const SLOWER: (u64, u64) = (6, 5);

/// Regions of large files of which something was written over: what of them stands scattered is not known before that is looked at.
#[derive(Debug, Default)]
pub(crate) struct Scattered {
    regions: BTreeSet<Region>,
    /// Ticks in a row at which nobody had asked for anything.
    quiet: u32,
    /// Free groups when there was no room for the next one.
    stuck: Option<u64>,
}

impl Scattered {
    /// A region may be. Beyond [`REGIONS_MAX`] others are enough to do.
    pub fn note(&mut self, region: Region) {
        if self.regions.len() < REGIONS_MAX {
            self.regions.insert(region);
        }
    }

    /// The next one, which nobody remembers then.
    pub fn take(&mut self) -> Option<Region> {
        self.regions.pop_first()
    }

    /// All, which nobody remembers then.
    pub fn take_all(&mut self) -> BTreeSet<Region> {
        std::mem::take(&mut self.regions)
    }

    /// It was looked at, or gathered: what its own homes noted meanwhile was no news.
    pub fn forget(&mut self, region: Region) {
        self.regions.remove(&region);
    }

    /// Whether there was no room for a region.
    pub fn waits_for_room(&self) -> bool {
        self.stuck.is_some()
    }

    /// There is no room for a region while so few groups are free.
    pub fn wait_for_room(&mut self, region: Region, free_groups: u64) {
        self.note(region);
        self.stuck = Some(free_groups);
    }

    /// A tick comes while so many groups are free. Whether it is time to gather something.
    pub fn is_due(&mut self, is_quiet: bool, free_groups: u64) -> bool {
        self.quiet = match is_quiet {
            true => self.quiet.saturating_add(1),
            false => 0,
        };
        self.stuck = self.stuck.filter(|free| free_groups <= *free);
        self.quiet >= QUIET && self.stuck.is_none() && !self.regions.is_empty()
    }
}

/// What gathering a region takes, and saves, in microseconds of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gathering {
    /// To read and write all of it.
    cost: u64,
    /// To read it in order as it stands.
    scattered: u64,
    /// The same once it stands in order.
    gathered: u64,
}

impl Gathering {
    /// Whether it has paid once the region is read in order.
    pub fn pays(self) -> bool {
        self.scattered > self.gathered.saturating_add(self.cost)
    }

    /// Whether the region reads much slower than it could.
    pub fn helps(self) -> bool {
        self.scattered.saturating_mul(SLOWER.1) > self.gathered.saturating_mul(SLOWER.0)
    }
}

impl Prices {
    /// What gathering takes, and saves, of what stands in these places, in the order of the file, if so many bytes of it are in
    /// memory together. Where nothing turns it saves nothing.
    pub fn gathering(&self, places: &[Extent], together: u64) -> Gathering {
        if !self.disk.turns() {
            return Gathering::default();
        }
        let bytes = places.iter().map(|place| self.bytes(place.frags)).sum();
        let gathered = self.disk.pass(bytes);
        let write = self.disk.sweep(Scatter {
            pieces: 1,
            bytes,
            span: bytes,
        });
        Gathering {
            cost: self.read(places, together).saturating_add(write),
            scattered: self.read(places, READ_AHEAD),
            gathered,
        }
    }

    /// To read places, so many bytes at a time in the order of their addresses.
    fn read(&self, places: &[Extent], together: u64) -> u64 {
        let (mut sum, mut at, mut rest) = (0u64, None, places);
        while !rest.is_empty() {
            let mut bytes = 0;
            let before = |place: &&Extent| {
                let fits = bytes < together;
                bytes += self.bytes(place.frags);
                fits
            };
            let count = rest.iter().take_while(before).count();
            let (now, later) = rest.split_at(count.max(1));
            let mut now = now.to_vec();
            now.sort_unstable();
            for place in now {
                let (start, end) = (self.bytes(place.start.0), self.bytes(place.end().0));
                let way = at.map_or(0, |at| self.disk.way(at, start));
                sum = sum.saturating_add(way + self.disk.pass(end - start));
                at = Some(end);
            }
            rest = later;
        }
        sum
    }

    fn bytes(&self, frags: u64) -> u64 {
        self.geometry.byte_offset(FragAddr(frags))
    }
}
