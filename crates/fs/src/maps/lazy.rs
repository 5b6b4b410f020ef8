//! The lazy map (Z1, rule 7), which ext4-lazy has for blocks of its journal. Here it is of data of large files, not of metadata: which homed units have their newest content
//! in an image in the log, and where that is.

use crate::doubt::Doubt;
use crate::region::Region;
use loamfs_format::maps::LazyEntry;
use loamfs_format::{Extent, FragAddr};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// An image, by its home.
pub(crate) type Image = (FragAddr, LazyEntry);

/// A unit of a file, and its home.
pub(crate) type UnitHome = (u64, FragAddr);

/// The lazy map, as a whole in memory. Settling begins where it grows large, but nothing bounds it: what cannot settle stays.
#[derive(Debug, Default)]
pub(crate) struct LazyMap {
    /// By home.
    entries: BTreeMap<FragAddr, LazyEntry>,
    /// Units and homes of the same, by region: what settles together is looked for at each tick.
    regions: BTreeMap<Region, BTreeSet<UnitHome>>,
    /// Homes whose entries changed since the last checkpoint.
    changed: BTreeSet<FragAddr>,
    /// What of it could not be read.
    doubt: Doubt,
}

impl LazyMap {
    /// The map as the last checkpoint has it.
    pub fn of(entries: impl Iterator<Item = (FragAddr, LazyEntry)>) -> LazyMap {
        let mut map = LazyMap::default();
        for (home, entry) in entries {
            map.enter(home, entry);
        }
        map
    }

    /// Where the image of a home's unit is, if it has one.
    pub fn get(&self, home: &FragAddr) -> Option<&LazyEntry> {
        self.entries.get(home)
    }

    /// All images, in the order of their homes.
    pub fn iter(&self) -> impl Iterator<Item = (&FragAddr, &LazyEntry)> {
        self.entries.iter()
    }

    /// Those whose homes are in a range.
    pub fn within(&self, range: Extent) -> impl Iterator<Item = (&FragAddr, &LazyEntry)> {
        self.entries.range(range.start..range.end())
    }

    /// Regions with images, and how many each has.
    pub fn regions(&self) -> impl Iterator<Item = (Region, usize)> {
        let regions = self.regions.iter();
        regions.map(|(region, units)| (*region, units.len()))
    }

    /// The images of a region, in the order of its units.
    pub fn of_region(&self, region: Region) -> impl Iterator<Item = Image> {
        self.of_region_from(region, None)
    }

    /// The same behind `after`.
    pub fn of_region_from(
        &self,
        region: Region,
        after: Option<UnitHome>,
    ) -> impl Iterator<Item = Image> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let units = self.regions.get(&region).into_iter();
        let units = units.flat_map(move |units| units.range((from, Bound::Unbounded)));
        units.filter_map(|(_, home)| Some((*home, *self.entries.get(home)?)))
    }

    /// How many images there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// A unit has a new image. Returns the one before.
    pub fn insert(&mut self, home: FragAddr, entry: LazyEntry) -> Option<LazyEntry> {
        self.changed.insert(home);
        self.enter(home, entry)
    }

    fn enter(&mut self, home: FragAddr, entry: LazyEntry) -> Option<LazyEntry> {
        let old = self.leave(home);
        let region = Region::of(entry.ino, entry.unit);
        let units = self.regions.entry(region).or_default();
        units.insert((entry.unit, home));
        self.entries.insert(home, entry);
        old
    }

    fn leave(&mut self, home: FragAddr) -> Option<LazyEntry> {
        let old = self.entries.remove(&home)?;
        if let Entry::Occupied(mut region) = self.regions.entry(Region::of(old.ino, old.unit)) {
            region.get_mut().remove(&(old.unit, home));
            if region.get().is_empty() {
                region.remove();
            }
        }
        Some(old)
    }

    /// An entry of which the checkpoint tells nothing, unless a segment since then does.
    pub fn fill_in(&mut self, home: FragAddr, entry: LazyEntry) {
        self.changed.insert(home);
        if !self.entries.contains_key(&home) {
            self.enter(home, entry);
        }
    }

    /// A unit has its newest content at home.
    pub fn remove(&mut self, home: FragAddr) {
        self.changed.insert(home);
        self.leave(home);
    }

    /// Forgets the images of the units whose homes are in a range (rule 7); returns where they are.
    pub fn revoke(&mut self, range: Extent) -> Vec<FragAddr> {
        let here = self.within(range);
        let (homes, images): (Vec<FragAddr>, Vec<FragAddr>) =
            here.map(|(home, entry)| (*home, entry.image)).unzip();
        homes.into_iter().for_each(|home| self.remove(home));
        images
    }

    /// Homes whose entries changed since the last checkpoint.
    pub fn changed(&self) -> impl ExactSizeIterator<Item = &FragAddr> {
        self.changed.iter()
    }

    /// A checkpoint has all of it.
    pub fn checkpointed(&mut self) {
        self.changed.clear();
    }

    /// What of it could not be read.
    pub fn doubt(&self) -> &Doubt {
        &self.doubt
    }

    pub fn set_doubt(&mut self, doubt: Doubt) {
        self.doubt = doubt;
    }

    /// A later segment tells of the homes in a range.
    pub fn clear_doubt(&mut self, range: Extent) {
        self.doubt.clear(range);
    }
}
