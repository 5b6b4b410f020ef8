//! Giving back what files no longer have. It is free when the segment that says so is durable (rule 5).

use crate::blocks::{Blocks, Stop};
use crate::core::Core;
use crate::env::Surroundings;
use crate::inodes::Inodes;
use crate::maps::Maps;
use crate::pending::Pending;
use loamfs_format::summary::Record;
use loamfs_format::{Extent, Geometry, Ino, Pointer};

/// What the next segment frees.
pub(crate) struct Freeing<'c> {
    geometry: &'c Geometry,
    env: &'c Surroundings,
    maps: &'c mut Maps,
    blocks: &'c mut Blocks,
    inodes: &'c mut Inodes,
    pending: &'c mut Pending,
}

impl Core {
    /// What the next segment frees, to add to it.
    pub fn freeing(&mut self) -> Freeing<'_> {
        Freeing {
            geometry: &self.geometry,
            env: &self.env,
            maps: &mut self.maps,
            blocks: &mut self.blocks,
            inodes: &mut self.inodes,
            pending: &mut self.pending,
        }
    }
}

impl Freeing<'_> {
    /// Frees a run of the log with the next segment.
    pub fn run(&mut self, extent: Extent) {
        if extent.frags > 0 {
            self.blocks.free(extent);
            self.pending.note(|| self.env.elapsed());
        }
    }

    /// Frees a block of the log, content that a file no longer has, with the next segment.
    pub fn block(&mut self, pointer: &Pointer) {
        if pointer.is_some() {
            self.blocks.supersede(pointer);
            self.pending.note(|| self.env.elapsed());
        }
    }

    /// Frees a home with the next segment, and with it the images of its units (rule 7, revoke).
    pub fn home(&mut self, extent: Extent) {
        let images = self.maps.lazy_map_mut().revoke(extent);
        for image in &images {
            self.run(Extent::new(*image, self.geometry.unit_frags()));
        }
        if !images.is_empty() && self.env.law().revokes() {
            self.pending.say(Record::Revoke(extent));
        }
        self.run(extent);
    }

    /// Frees homes that a file no longer has.
    pub fn homes_of(&mut self, ino: Ino, homes: Vec<Extent>) -> Result<(), Stop> {
        let freed: u64 = homes.iter().map(|home| home.frags).sum();
        let inode = self.inodes.prepared(ino)?.inode_mut();
        inode.frags = inode.frags.saturating_sub(freed);
        homes.into_iter().for_each(|home| self.home(home));
        Ok(())
    }
}
