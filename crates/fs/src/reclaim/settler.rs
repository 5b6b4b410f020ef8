//! The settling policy: which regions are worth settling, and when, by what one sweep takes against what it saves whoever
//! reads them (Z3). `volume::settling` asks for it, and `writeback::settle` carries it out.

use crate::core::Core;
use crate::cost::{Disk, Scatter};
use crate::law::{Law, Rules};
use crate::maps::{Image, LazyMap, UnitHome};
use crate::region::Region;
use crate::types::SettleWhen;
use crate::unit::UNIT;
use crate::writeback::Writeback;
use loamfs_format::{FragAddr, Geometry, Ssn};
use std::cmp::Reverse;
use std::ops::Range;

/// Bytes that whoever reads in order has read at a time.
pub(super) const READ_AHEAD: u64 = 1 << 20;
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
    /// The same when memory has let go of all images.
    pub cold: u64,
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

/// What settling a region takes, and saves, as it was when that was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighed {
    pub region: Region,
    /// Those of its images that may settle.
    pub images: usize,
    pub estimate: Estimate,
}

/// What is looked at to choose what settles.
pub(crate) struct Settler<'c> {
    images_max: usize,
    when: SettleWhen,
    law: &'c Law<dyn Rules>,
    durable: Ssn,
    map: &'c LazyMap,
    writeback: &'c mut Writeback,
}

impl Core {
    /// What the settling policy looks at.
    pub fn settler(&mut self) -> Settler<'_> {
        let most = self.sizes().images_max();
        let in_memory = self.writeback.bytes_max() / BYTES_BESIDE;
        Settler {
            images_max: most.min(in_memory as usize),
            when: self.env.config().settles,
            law: self.env.law(),
            durable: self
                .env
                .law()
                .settles_up_to(self.log.durable(), self.checkpoints.copied()),
            map: self.maps.lazy_map(),
            writeback: &mut self.writeback,
        }
    }

    /// What settling is priced by.
    pub fn prices(&self) -> Prices {
        let stroke = self.sizes().volume_bytes();
        Prices {
            geometry: self.geometry,
            disk: Disk::of(stroke, self.sb.disk, self.env.config().rotational),
        }
    }
}

impl Settler<'_> {
    /// Of at most `max` images of a region, in the order of its units, behind `after`, those that may settle; and where to go
    /// on, if there are more.
    pub fn images(
        &self,
        region: Region,
        after: Option<UnitHome>,
        max: usize,
    ) -> (Vec<Image>, Option<UnitHome>) {
        let mut images: Vec<Image> = self.map.of_region_from(region, after).take(max).collect();
        let last = images.last().filter(|_| images.len() == max);
        let next = last.map(|(home, entry)| (entry.unit, *home));
        images.retain(|image| self.may_settle(image));
        (images, next)
    }

    fn may_settle(&self, image: &Image) -> bool {
        self.writeback.may_settle(self.law, self.durable, image)
    }

    /// The regions that have images, those with most first, and how many these are.
    pub fn regions(&self) -> Vec<(Region, usize)> {
        let mut regions: Vec<(Region, usize)> = self.map.regions().collect();
        regions.sort_unstable_by_key(|(region, images)| (Reverse(*images), *region));
        regions
    }

    /// Whether what pays settles without being asked for.
    pub fn chooses(&self) -> bool {
        self.when == SettleWhen::Pays
    }

    /// Whether there are more images than the log should hold.
    pub fn is_pressed(&self) -> bool {
        self.map.len() > self.images_max
    }

    /// Somebody reads bytes that are not in memory. Whether it is time to ask if their region should settle before.
    pub fn asks(&mut self, region: Region, read: Range<u64>) -> bool {
        if !self.chooses() {
            return false;
        }
        let mut images = self.map.of_region(region);
        let may_settle = images.any(|image| self.may_settle(&image));
        if !may_settle || !self.writeback.readers().knows(region) {
            return may_settle;
        }
        let has_image = self.has_image(region, &read);
        self.writeback.readers().read(region, read, has_image)
    }

    /// Whether any of a region's bytes has an image.
    pub fn has_image(&self, region: Region, bytes: &Range<u64>) -> bool {
        let before = (bytes.start / UNIT).checked_sub(1);
        let after = before.map(|unit| (unit, FragAddr(u64::MAX)));
        let next = self.map.of_region_from(region, after).next();
        next.is_some_and(|(_, entry)| entry.unit < bytes.end.div_ceil(UNIT))
    }
}

/// The regions that are worth settling, in the order in which they were weighed, as long as sweeps of so many microseconds
/// take, by what `takes` says; `or_one` of them may take longer.
fn within(
    weighed: &[Weighed],
    mut left: u64,
    takes: fn(&Estimate) -> u64,
    or_one: bool,
) -> Vec<Region> {
    let mut chosen = Vec::new();
    for Weighed {
        region, estimate, ..
    } in weighed
    {
        let fits = takes(estimate) <= left || or_one && chosen.is_empty();
        if estimate.pays() && fits {
            left = left.saturating_sub(takes(estimate));
            chosen.push(*region);
        }
    }
    chosen
}

/// The regions that are worth settling while nobody asks the disk for anything, as far as the clock can wait for it.
pub(crate) fn idle(weighed: &[Weighed]) -> Vec<Region> {
    within(weighed, IDLE_MAX, |estimate| estimate.cost, true)
}

/// The regions that are worth settling before the volume is closed, as long as that takes. What is in memory counts like all
/// else: the sweep of who reads a region first would leave it in memory, where it serves him.
pub(crate) fn closing(weighed: &[Weighed]) -> Vec<Region> {
    within(weighed, CLOSING_MAX, |estimate| estimate.cold, false)
}

/// Those first where settling takes least for each image.
pub(crate) fn cheapest_first(weighed: &mut [Weighed]) {
    let each = |it: &Weighed| (it.estimate.cost / it.images.max(1) as u64, it.region);
    weighed.sort_unstable_by_key(each);
}

/// What settling is priced by.
#[derive(Clone, Copy)]
pub(crate) struct Prices {
    pub(super) geometry: Geometry,
    pub(super) disk: Disk,
}

impl Prices {
    /// The disk.
    pub fn disk(&self) -> Disk {
        self.disk
    }

    /// What settling a region with these images takes, and saves, where those at `absent` must be read. What it saves is what
    /// it does once memory has let go of the others.
    pub fn estimate(&self, images: &[Image], absent: &[FragAddr]) -> Estimate {
        if images.is_empty() {
            return Estimate::default();
        }
        let runs = self.in_order(images);
        let homes = self.scatter(images.iter().map(|(home, _)| *home));
        let log = self.scatter(images.iter().map(|(_, entry)| entry.image));
        let read = self.scatter(absent.iter().copied());
        let per_read = (runs.saturating_mul(READ_AHEAD) / homes.span.max(READ_AHEAD)).max(1);
        Estimate {
            cost: self.disk.sweep(read) + self.disk.sweep(homes),
            cold: self.disk.sweep(log) + self.disk.sweep(homes),
            in_order: runs * self.disk.step(log.span / per_read),
            at_random: self.detour(images, homes),
        }
    }

    /// Images that are read one behind the other, by whoever reads the file in order, count once.
    fn in_order(&self, images: &[Image]) -> u64 {
        let unit_frags = self.geometry.unit_frags();
        let follows = |(_, a): &Image, (_, b): &Image| {
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
    fn detour(&self, images: &[Image], homes: Scatter) -> u64 {
        let count = (images.len() as u128).max(1);
        let mean = |addr: fn(&Image) -> u64| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_format::Ino;

    /// It settled when the volume was closed, and whoever read it next at random found nothing of it in memory.
    #[test]
    fn what_is_in_memory_is_left_to_who_reads_it_first_when_a_volume_is_closed() {
        let estimate = Estimate {
            cost: 1,
            cold: CLOSING_MAX + 1,
            in_order: 1 << 40,
            ..Estimate::default()
        };
        let region = Region::of(Ino(1), 0);
        let weighed = [Weighed {
            region,
            images: 1,
            estimate,
        }];
        assert_eq!(idle(&weighed), [region]);
        assert!(closing(&weighed).is_empty());
    }
}
