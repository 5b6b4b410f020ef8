//! The settling policy: which regions are worth settling, and when, by what one sweep takes against what it saves whoever
//! reads them (Z3). `writeback::settle` carries it out.

use crate::core::Core;
use crate::cost::{Disk, Scatter};
use crate::maps::LazyMap;
use crate::region::Region;
use crate::writeback::{Readers, UNIT};
use loamfs_format::maps::LazyEntry;
use loamfs_format::{FragAddr, Geometry, Ino};
use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

/// Regions that are looked at closely at a time: those with most images.
const CLOSELY: usize = 8;
/// Bytes that whoever reads in order has read at a time.
const READ_AHEAD: u64 = 1 << 20;
/// Bytes of data that may wait for each image that the map in memory may name: it takes less than a fifth of that.
const BYTES_BESIDE: u64 = 1 << 10;
/// What settling may take between two ticks, which commit what is old, in microseconds of a disk.
const IDLE_MAX: u64 = 1_000_000;
/// What closing a volume may take longer, so that less is left to settle, in microseconds of a disk.
const CLOSING_MAX: u64 = 500_000;

/// What settling a region takes, and saves, in microseconds of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// One sweep.
    pub cost: u64,
    /// What reading the region in order takes longer until then.
    pub in_order: u64,
    /// What reading anything of it at random takes longer until then.
    pub at_random: u64,
}

impl Estimate {
    /// Whether it has paid once the region is read in order.
    pub fn pays(&self) -> bool {
        self.in_order >= self.cost && self.cost > 0
    }
}

/// What is looked at to choose what settles.
pub(crate) struct Settler<'c> {
    geometry: Geometry,
    disk: Disk,
    images_max: usize,
    map: &'c LazyMap,
    readers: &'c mut Readers,
}

impl Core {
    /// What the settling policy looks at.
    pub fn settler(&mut self) -> Settler<'_> {
        let sizes = self.sizes();
        let (most, stroke) = (sizes.images_max(), sizes.volume_bytes());
        let in_memory = self.writeback.bytes_max() / BYTES_BESIDE;
        let images_max = most.min(in_memory as usize);
        Settler {
            geometry: self.geometry,
            disk: Disk::of(stroke, self.sb.disk, self.env.config.rotational),
            images_max,
            map: self.maps.lazy_map(),
            readers: self.writeback.readers(),
        }
    }
}

impl Settler<'_> {
    /// What settling a region takes, and saves. Nothing of it counts as being in memory.
    pub fn estimate(&self, region: Region) -> Estimate {
        let images: Vec<(FragAddr, LazyEntry)> = self.map.of_region(region).collect();
        if images.is_empty() {
            return Estimate::default();
        }
        let runs = self.in_order(&images);
        let homes = self.scatter(images.iter().map(|(home, _)| *home));
        let log = self.scatter(images.iter().map(|(_, entry)| entry.image));
        let per_read = (runs.saturating_mul(READ_AHEAD) / homes.span.max(READ_AHEAD)).max(1);
        Estimate {
            cost: self.disk.sweep(log) + self.disk.sweep(homes),
            in_order: runs * self.disk.step(log.span / per_read),
            at_random: self.detour(&images, homes),
        }
    }

    /// The regions that are worth settling now, those with most images first, as long as a sweep of so many microseconds takes;
    /// `or_one` of them may take longer.
    fn within(&self, mut left: u64, or_one: bool) -> Vec<Region> {
        let mut chosen = Vec::new();
        for (region, _) in self.largest() {
            let estimate = self.estimate(region);
            let fits = estimate.cost <= left || or_one && chosen.is_empty();
            if estimate.pays() && fits {
                left = left.saturating_sub(estimate.cost);
                chosen.push(region);
            }
        }
        chosen
    }

    /// The regions that are worth settling while nobody asks the disk for anything, as far as the clock can wait for it.
    pub fn idle(&self) -> Vec<Region> {
        self.within(IDLE_MAX, true)
    }

    /// When there are more images than the log should hold, the region where settling takes least for each, and whether it
    /// pays.
    pub fn pressed(&self) -> Option<(Region, bool)> {
        if self.map.len() <= self.images_max {
            return None;
        }
        let estimates = self.largest().into_iter().map(|(region, images)| {
            let estimate = self.estimate(region);
            (
                estimate.cost / images.max(1) as u64,
                region,
                estimate.pays(),
            )
        });
        let cheapest = estimates.min_by_key(|(each, region, _)| (*each, *region));
        cheapest.map(|(_, region, pays)| (region, pays))
    }

    /// The regions that are worth settling before the volume is closed, as long as that takes.
    pub fn closing(&self) -> Vec<Region> {
        self.within(CLOSING_MAX, false)
    }

    /// Somebody reads bytes of a file that are not in memory. The regions that are to settle before, if that pays: whoever
    /// reads in order will read the rest of it, and what is behind, whose images are passed in the log by the same sweep; whoever
    /// reads at random has paid as much for it as settling takes.
    pub fn before_read(&mut self, ino: Ino, offset: u64, len: u64) -> Vec<Region> {
        let region = Region::of(ino, offset / UNIT);
        if !self.settles_before(region, offset..offset.saturating_add(len)) {
            return Vec::new();
        }
        let regions = std::iter::successors(Some(region), |region| Some(region.next()));
        let behind = regions.skip(1).take(CLOSELY);
        let pays = |region: &Region| self.estimate(*region).pays();
        std::iter::once(region)
            .chain(behind.take_while(pays))
            .collect()
    }

    fn settles_before(&mut self, region: Region, read: Range<u64>) -> bool {
        if self.map.of_region(region).next().is_none() {
            return false;
        }
        if !self.readers.knows(region) {
            let estimate = self.estimate(region);
            self.readers.meet(region, estimate);
        }
        if !self.readers.read(region, read) {
            return false;
        }
        let estimate = self.estimate(region);
        self.readers.decide(region, estimate)
    }

    /// What settling everything would take.
    pub fn all(&self) -> Duration {
        let regions = self.map.regions();
        let cost = regions.map(|(region, _)| self.estimate(region).cost);
        Duration::from_micros(cost.sum())
    }

    /// The regions with most images, and how many these are.
    fn largest(&self) -> Vec<(Region, usize)> {
        let mut regions: Vec<(Region, usize)> = self.map.regions().collect();
        regions.sort_unstable_by_key(|(region, images)| (Reverse(*images), *region));
        regions.truncate(CLOSELY);
        regions
    }

    /// Images that are read one behind the other, by whoever reads the file in order, count once.
    fn in_order(&self, images: &[(FragAddr, LazyEntry)]) -> u64 {
        let unit_frags = self.geometry.unit_frags();
        let follows = |(_, a): &(FragAddr, LazyEntry), (_, b): &(FragAddr, LazyEntry)| {
            a.unit.checked_add(1) == Some(b.unit)
                && a.image.0.checked_add(unit_frags) == Some(b.image.0)
        };
        images.chunk_by(follows).count() as u64
    }

    /// How units lie there.
    fn scatter(&self, addrs: impl Iterator<Item = FragAddr>) -> Scatter {
        let unit_frags = self.geometry.unit_frags();
        let mut sorted: Vec<u64> = addrs.map(|addr| addr.0).collect();
        sorted.sort_unstable();
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
            return Scatter::default();
        };
        let span = (last - first).saturating_add(unit_frags);
        let pieces = sorted.chunk_by(|a, b| a.checked_add(unit_frags) == Some(*b));
        Scatter {
            pieces: pieces.count() as u64,
            bytes: sorted.len() as u64 * UNIT,
            span: span.saturating_mul(self.geometry.fragment_size.into()),
        }
    }

    /// How much further it is to the images than from anywhere among the homes to anywhere else there.
    fn detour(&self, images: &[(FragAddr, LazyEntry)], homes: Scatter) -> u64 {
        let count = (images.len() as u128).max(1);
        let mean = |addr: fn(&(FragAddr, LazyEntry)) -> u64| {
            let sum: u128 = images.iter().map(|image| u128::from(addr(image))).sum();
            (sum / count) as u64
        };
        let (home, image) = (mean(|(home, _)| home.0), mean(|(_, entry)| entry.image.0));
        let apart = home.abs_diff(image);
        let there = apart.saturating_mul(self.geometry.fragment_size.into());
        self.disk
            .step(there)
            .saturating_sub(self.disk.step(homes.span / 3))
    }
}
