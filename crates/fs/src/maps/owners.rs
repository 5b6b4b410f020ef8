//! The owner records of BFILE: what was written where, and for whom.

use super::{Maps, OWNER};
use crate::blocks::{Blocks, Missed, Stop};
use crate::error::{Corrupt, Error};
use crate::tree::Leaf;
use loamfs_format::maps::OwnerRecord;
use loamfs_format::{Extent, FragAddr, Geometry};
use loamfs_space::{Owner, Space};
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

/// How the owner tree must change at one place.
#[derive(Debug, Default)]
struct OwnerChange {
    remove: Vec<u64>,
    put: Vec<(u64, OwnerRecord)>,
}

impl OwnerChange {
    /// What a new record does to the old ones that it overlaps: all go, and their parts outside come back.
    fn of(
        overlapped: Vec<(Extent, Owner)>,
        geometry: &Geometry,
        (extent, owner): (Extent, &Owner),
    ) -> OwnerChange {
        let mut change = OwnerChange::default();
        for (old, whose) in overlapped {
            if old.start > extent.start {
                change.remove.push(old.start.0);
            }
            let left = whose.without(old, extent, geometry);
            change
                .put
                .extend(left.map(|(part, owner)| (part.start.0, record_of(part, &owner))));
        }
        change.put.push((extent.start.0, record_of(extent, owner)));
        change
    }
}

/// Records that overlap a range, picked from entries below its end. The first is the last one that begins in front of it.
struct Overlapping {
    range: Extent,
    found: Vec<(Extent, Owner)>,
    /// An entry that is no record.
    bad: Option<u64>,
}

impl Overlapping {
    fn new(range: Extent) -> Overlapping {
        Overlapping {
            range,
            found: Vec::new(),
            bad: None,
        }
    }

    fn visit(&mut self, key: u64, value: &[u8]) {
        match OwnerRecord::decode(value) {
            Some(record) => {
                let extent = Extent::new(FragAddr(key), record.frags.into());
                if extent.overlaps(self.range) {
                    self.found.push((extent, owner_of(&record)));
                }
            }
            None => self.bad = Some(key),
        }
    }

    fn end(self) -> Result<Vec<(Extent, Owner)>, Error> {
        match self.bad {
            Some(key) => Err(Corrupt::MapEntry { map: "owner", key }.into()),
            None => Ok(self.found),
        }
    }
}

/// Whether all records that overlap a range stand in a leaf.
fn holds(leaf: &Leaf, range: Extent) -> bool {
    leaf.reaches(range.start.0) && leaf.end.is_none_or(|end| range.end().0 <= end)
}

/// Those, as [`Maps::owners_of`].
fn overlapping(leaf: &Leaf, range: Extent) -> Result<Vec<(Extent, Owner)>, Error> {
    let mut found = Overlapping::new(range);
    let first = leaf.page.floor(range.start.0).unwrap_or_default();
    let behind = leaf.page.ceiling(range.end().0);
    let entries = (first..behind).filter_map(|index| leaf.page.entry(index));
    entries.for_each(|(key, value)| found.visit(key, value));
    found.end()
}

impl Maps {
    /// The owner records that overlap `range`, whole, as the last checkpoint has them.
    pub fn owners_of(
        &self,
        blocks: &mut Blocks,
        range: Extent,
    ) -> Result<Vec<(Extent, Owner)>, Stop> {
        let mut found = Overlapping::new(range);
        let start = match OWNER.prev(&self.owner, blocks, range.start.0)? {
            Some(entry) => entry.key(),
            None => range.start.0,
        };
        // No further: a checkpoint has prepared the leaves that these records stand in, and not the next one.
        let keys = start..range.end().0;
        let _ = OWNER.scan_range(&self.owner, blocks, keys, |key, value| {
            found.visit(key, value);
            ControlFlow::Continue(())
        })?;
        Ok(found.end()?)
    }

    /// The same with what changed since, by address.
    pub fn owners_now(
        &self,
        blocks: &mut Blocks,
        space: &Space,
        geometry: &Geometry,
        range: Extent,
    ) -> Result<Vec<(Extent, Owner)>, Stop> {
        let mut owners = self.owners_of(blocks, range)?;
        for (taken, owner) in space.owners().overlapping(range) {
            let cut = owners
                .extract_if(.., |(old, _)| old.overlaps(taken))
                .collect::<Vec<_>>();
            for (old, whose) in cut {
                owners.extend(whose.without(old, taken, geometry));
            }
            owners.push((taken, owner));
        }
        owners.retain(|(extent, _)| extent.overlaps(range));
        owners.sort_by_key(|(extent, _)| extent.start);
        Ok(owners)
    }

    /// Reads everything that [`Maps::apply_owners`] will need.
    pub(super) fn prepare_owners(
        &self,
        blocks: &mut Blocks,
        space: &Space,
        geometry: &Geometry,
        missed: &mut Missed,
    ) -> Result<(), Stop> {
        // They come by address, so that most stand in the leaf of the one before.
        let mut near = None;
        for (extent, owner) in space.owners().iter() {
            if !near.as_ref().is_some_and(|near| holds(near, extent)) {
                near = missed.note(self.leaf_of(blocks, extent))?.flatten();
            }
            let old = match near.as_ref().filter(|near| holds(near, extent)) {
                Some(near) => Ok(overlapping(near, extent)?),
                None => self.owners_of(blocks, extent),
            };
            let Some(old) = missed.note(old)? else {
                continue;
            };
            let change = OwnerChange::of(old, geometry, (extent, &owner));
            let is_far = |key: &u64| !near.as_ref().is_some_and(|near| near.reaches(*key));
            for key in change.put.iter().map(|(key, _)| *key).filter(is_far) {
                missed.note(OWNER.prepare_put(&self.owner, blocks, key))?;
            }
            for key in &change.remove {
                missed.note(OWNER.prepare_remove(&self.owner, blocks, *key))?;
            }
        }
        for range in space.checkpoint().cleared()? {
            missed.note(OWNER.prepare_drop_leaves(&self.owner, blocks, range.clone()))?;
            missed.note(self.before_next(blocks, range))?;
        }
        let behind = behind(space, geometry).map(|behind| self.owners_of(blocks, behind));
        let behind = behind.map(|found| missed.note(found)).transpose()?;
        for (extent, _) in behind.flatten().into_iter().flatten() {
            missed.note(OWNER.prepare_remove(&self.owner, blocks, extent.start.0))?;
        }
        Ok(())
    }

    /// The leaf in which the record of a range stands; what a put there needs is read.
    fn leaf_of(&self, blocks: &mut Blocks, extent: Extent) -> Result<Option<Leaf>, Stop> {
        OWNER.prepare_put(&self.owner, blocks, extent.start.0)?;
        OWNER.descend(&self.owner, blocks, extent.start.0, |_| true)
    }

    /// Merges the records since the last checkpoint into the tree, and drops those of chunks without a bit: whole leaves,
    /// unread, since a record says nothing where no bit is set.
    pub(super) fn apply_owners(
        &mut self,
        blocks: &mut Blocks,
        space: &Space,
        geometry: &Geometry,
    ) -> Result<(), Stop> {
        let cleared = space.checkpoint().cleared()?.into_iter();
        let cleared = cleared.map(|range| self.before_next(blocks, range));
        let cleared: Vec<Range<u64>> = cleared.collect::<Result<_, _>>()?;
        // New keys go in before old ones go out, as `tree` demands; until then nobody looks at those in `gone`.
        let mut gone = BTreeSet::new();
        for (extent, owner) in space.owners().iter() {
            let mut old = self.owners_of(blocks, extent)?;
            old.retain(|(old, _)| !gone.contains(&old.start.0));
            let change = OwnerChange::of(old, geometry, (extent, &owner));
            for (key, record) in &change.put {
                OWNER.put(&mut self.owner, blocks, *key, &record.encode())?;
                gone.remove(key);
            }
            gone.extend(change.remove);
        }
        for key in gone {
            OWNER.remove(&mut self.owner, blocks, key)?;
        }
        for range in cleared {
            let mut overlay = space.owners().overlapping(edge(&range));
            let end = overlay
                .next()
                .map_or(range.end, |(extent, _)| extent.start.0);
            OWNER.drop_leaves(&mut self.owner, blocks, range.start..end)?;
        }
        match behind(space, geometry) {
            Some(behind) => self.cut_owners(blocks, behind),
            None => Ok(()),
        }
    }

    /// Nothing is said any more of what is behind the end that the volume is to have.
    fn cut_owners(&mut self, blocks: &mut Blocks, behind: Extent) -> Result<(), Stop> {
        for (extent, owner) in self.owners_of(blocks, behind)? {
            let (key, front) = (
                extent.start.0,
                behind.start.0.saturating_sub(extent.start.0),
            );
            match front {
                0 => _ = OWNER.remove(&mut self.owner, blocks, key)?,
                _ => {
                    let record = record_of(Extent::new(extent.start, front), &owner);
                    OWNER.put(&mut self.owner, blocks, key, &record.encode())?;
                }
            }
        }
        Ok(())
    }

    /// The part of a range before the record that reaches beyond its end, if there is one: it may say whose what lies
    /// behind is.
    fn before_next(&self, blocks: &mut Blocks, range: Range<u64>) -> Result<Range<u64>, Stop> {
        let last = self.owners_of(blocks, edge(&range))?;
        let beyond = last
            .into_iter()
            .find(|(extent, _)| extent.end().0 > range.end);
        let end = beyond.map_or(range.end, |(extent, _)| extent.start.0);
        Ok(range.start..end)
    }
}

fn owner_of(record: &OwnerRecord) -> Owner {
    Owner {
        kind: record.kind,
        level: record.level,
        ino: record.ino,
        logical: record.logical,
    }
}

/// The record that says whose a range is.
fn record_of(extent: Extent, owner: &Owner) -> OwnerRecord {
    OwnerRecord {
        frags: extent.frags as u32,
        kind: owner.kind,
        level: owner.level,
        ino: owner.ino,
        logical: owner.logical,
    }
}

/// What is behind the groups that hold something, of a volume that may end there.
fn behind(space: &Space, geometry: &Geometry) -> Option<Extent> {
    let start = space.checkpoint().vacant_from()?;
    Some(Extent::new(
        start,
        geometry.total_frags.saturating_sub(start.0),
    ))
}

/// The last fragment of a range.
fn edge(range: &Range<u64>) -> Extent {
    Extent::new(FragAddr(range.end.saturating_sub(1)), 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
