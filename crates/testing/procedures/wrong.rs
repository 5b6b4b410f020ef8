//! Procedures that break a rule: `procedures.patch` brings them into a build of the tests, and calls each where it does
//! harm. See `run.sh`.

use super::homed::Batch;
use super::start::HomeWrite;
use crate::blocks::Stop;
use crate::core::Core;
use crate::extents;
use loamfs_format::summary::{Record, SegmentKind};
use loamfs_format::{Extent, FragAddr, Ino, Ssn};
use std::collections::{BTreeMap, BTreeSet};

impl Core {
    /// Rule 5: what a segment supersedes is free before it is placed, for itself to use.
    pub(crate) fn free_own(&mut self, ssn: Ssn, kind: SegmentKind) -> Result<Vec<Record>, Stop> {
        let nothing = kind != SegmentKind::Normal || self.blocks.frees().is_empty();
        if nothing || !self.env.law().procedure("free-own") {
            return Ok(Vec::new());
        }
        let frees = self.blocks.take_frees();
        for extent in &frees {
            self.space.free(*extent, ssn)?;
            self.space.release_range(*extent);
        }
        Ok(frees.into_iter().map(Record::Free).collect())
    }

    /// Rule 6: overwrites go over what segments show.
    pub(crate) fn overwrite_homes(
        &mut self,
        ino: Ino,
        images: &[(u64, FragAddr)],
        fresh: &BTreeSet<u64>,
    ) -> Option<HomeWrite> {
        if images.is_empty() || !fresh.is_empty() || !self.env.law().procedure("overwrite-shown") {
            return None;
        }
        let id = self.writeback.new_batch();
        let node = self.inodes.get_mut(ino)?;
        let (mut units, mut crcs, mut runs) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (per_block, shown) = (self.geometry.block_units(), node.inode().size);
        for (unit, home) in images {
            let taken = node.change_homed(&mut self.writeback, |homed| {
                homed.take_units(std::iter::once(*unit), per_block)
            });
            let (_, waiting) = taken.into_iter().next()?;
            runs.push((*home, vec![(*unit, waiting.bytes.clone())]));
            crcs.push((*unit, 0));
            units.insert(*unit, waiting);
        }
        node.change_homed(&mut self.writeback, |homed| {
            homed.set_off(Batch {
                id,
                shown,
                units,
                homes: Vec::new(),
                crcs,
                landed: false,
            });
        });
        Some(HomeWrite {
            ino,
            batch: id,
            runs,
            still: BTreeSet::new(),
        })
    }

    /// Rule 3: the homes that new ones are about to replace are freed before these are shown.
    pub(crate) fn old_homes(
        &mut self,
        ino: Ino,
        homes: &[(u64, Extent)],
    ) -> Result<Vec<Extent>, Stop> {
        let geometry = self.geometry;
        let mut old = BTreeSet::new();
        let Some(node) = self.inodes.get(ino) else {
            return Ok(Vec::new());
        };
        for (block, extent) in homes {
            let end = block + extent.frags / geometry.block_frags();
            let found =
                extents::overlapping(node.inode(), &mut self.blocks, &geometry, *block, end)?;
            old.extend(found.iter().map(|e| e.pointer.extent()));
        }
        // A second try comes by once more.
        old.retain(|home| !self.blocks.frees().contains(home));
        if old.is_empty() || !self.env.law().procedure("free-before-show") {
            return Ok(Vec::new());
        }
        Ok(old.into_iter().collect())
    }
}
